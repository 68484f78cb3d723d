"""Fates from a stored operator."""

from __future__ import annotations

import numpy as np
import pytest

from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")  # comes with anndata


def test_fates_by_column_names_and_masks(cells, tmp_path):
    passage = pytest.importorskip("ordiff.passage")
    x = cells.obsm["X_pca"][:, 0]
    ends = {"left": x < 0.3, "right": x > 3.7}
    op = sc.operator(cells, ordering=None)
    frame = sc.fates(cells, ends)
    assert list(frame.columns) == ["left", "right"]
    np.testing.assert_allclose(frame.to_numpy(), passage.fate_probabilities(op, ends))
    np.testing.assert_allclose(frame.sum(axis=1), 1.0, atol=1e-9)
    assert np.corrcoef(frame["right"], x)[0, 1] > 0.97
    cells.obs["end"] = pd.Categorical(np.select([ends["left"], ends["right"]], ["left", "right"], None))
    by_names = {name: cells.obs_names[mask] for name, mask in ends.items()}
    for other in ("end", by_names):
        np.testing.assert_array_equal(sc.fates(cells, other), frame)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    pd.testing.assert_frame_equal(anndata.read_h5ad(tmp_path / "cells.h5ad").obsm["ordiff_fates"], frame)
    with pytest.raises(ValueError, match="cells that adata has not: 'nobody'"):
        sc.fates(cells, {"a": ["nobody"]})
    with pytest.raises(ValueError, match="obs has no 'clusters'"):
        sc.fates(cells, "clusters")
    sc.operator(cells, ordering="pseudotime")
    assert "ordiff_fates" not in cells.obsm  # of the operator before
