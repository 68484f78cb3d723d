"""Writing: several results, copies, views and backed files."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")


def test_results_side_by_side(cells):
    first = sc.operator(cells, ordering="pseudotime")
    sc.operator(cells, ordering="pseudotime", forward=0.6, key_added="slow")
    np.testing.assert_array_equal(cells.obsp["ordiff_transitions"].toarray(), first.matrix.toarray())
    assert cells.uns["slow"]["forward"] == 0.6
    assert {"ordiff_velocity_umap", "slow_velocity_umap"} <= set(cells.obsm)


def test_a_second_run_leaves_nothing_of_the_first(cells):
    sc.operator(cells, ordering="pseudotime")
    sc.operator(cells, ordering=None, embedding=None)
    assert "ordiff_velocity_umap" not in cells.obsm
    assert "ordiff_ordering" not in cells.obs
    assert "pseudotime" in cells.obs


def test_copy_returns_anndata_and_leaves_the_original(cells):
    before = set(cells.obsm), set(cells.obs), set(cells.uns)
    new = sc.operator(cells, ordering="pseudotime", copy=True)
    assert isinstance(new, anndata.AnnData)
    assert (set(cells.obsm), set(cells.obs), set(cells.uns)) == before
    assert "ordiff_transitions" in new.obsp


def test_a_view_becomes_its_own_without_a_warning(cells):
    before = sc.operator(cells, ordering="pseudotime")
    view = cells[cells.obsm["X_pca"][:, 0] > 1]
    assert view.is_view
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = sc.operator(view, ordering="pseudotime", embedding=None)
    assert not view.is_view
    np.testing.assert_array_equal(view.obsp["ordiff_transitions"].toarray(), after.matrix.toarray())
    assert "ordiff_velocity_umap" not in view.obsm
    np.testing.assert_array_equal(cells.obsp["ordiff_transitions"].toarray(), before.matrix.toarray())
    assert "ordiff_velocity_umap" in cells.obsm


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_backed_file_is_read_and_left_alone(cells, tmp_path, mode):
    path = tmp_path / "cells.h5ad"
    cells.write_h5ad(path)
    before = path.read_bytes()
    backed = anndata.read_h5ad(path, backed=mode)
    op = sc.operator(backed, ordering="pseudotime")
    genes = sc.operator(backed, ordering="pseudotime", use_rep="X", key_added="genes")
    in_memory = sc.operator(backed, ordering="pseudotime", copy=True)
    assert not in_memory.isbacked
    backed.write_h5ad(tmp_path / "new.h5ad")
    with pytest.raises(ValueError, match="view of a backed file"):
        sc.operator(backed[:300], ordering="pseudotime")
    backed.file.close()
    np.testing.assert_array_equal(op.matrix.toarray(), sc.operator(cells, ordering="pseudotime").matrix.toarray())
    np.testing.assert_array_equal(
        genes.matrix.toarray(), sc.operator(cells, ordering="pseudotime", use_rep="X", key_added="g").matrix.toarray()
    )
    assert path.read_bytes() == before
    assert "ordiff_transitions" in anndata.read_h5ad(tmp_path / "new.h5ad").obsp
