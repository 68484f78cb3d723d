"""The operator read back from its slots."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cell_data import assert_same_results
from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
@pytest.mark.parametrize("options", [{}, {"speed": 1.0, "eps": 0.05, "noise": 0.5}], ids=["forward", "speed"])
def test_round_trip_is_exact(cells, tmp_path, ending, options):
    if ending == "zarr":
        pytest.importorskip("zarr")
    op = sc.operator(cells, ordering="pseudotime", **options)
    path = tmp_path / f"cells.{ending}"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Writing zarr v2", UserWarning)  # anndata's own news
        getattr(cells, f"write_{ending}")(path)
        back = getattr(anndata, f"read_{ending}")(path)
    assert_same_results(cells, back)
    again = sc.stored_operator(back)
    assert again.eps == op.eps
    np.testing.assert_array_equal(again.matrix.toarray(), op.matrix.toarray())
    np.testing.assert_array_equal(again.density, op.density)
    np.testing.assert_allclose(again.generator(cells.obsm["X_pca"]), op.generator(cells.obsm["X_pca"]))


def test_a_subset_of_a_result_is_refused_as_an_operator(cells):
    sc.operator(cells, ordering="pseudotime")
    with pytest.raises(ValueError, match=r"After taking a subset of cells run .* again"):
        sc.stored_operator(cells[:300].copy())


def test_nothing_stored(cells):
    with pytest.raises(ValueError, match=r"no result 'ordiff'.*Run ordiff.single_cell.operator"):
        sc.stored_operator(cells)
