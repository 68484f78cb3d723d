"""Representations and embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")  # comes with anndata


def test_dataframe_and_first_coordinates(cells):
    cells.obsm["frame"] = pd.DataFrame(np.c_[cells.obsm["X_pca"], np.ones(600)], index=cells.obs_names)
    a = sc.operator(cells, ordering="pseudotime", use_rep="frame", n_pcs=2)
    b = sc.operator(cells, ordering="pseudotime")
    np.testing.assert_array_equal(a.matrix.toarray(), b.matrix.toarray())


def test_genes_as_representation(cells):
    op = sc.operator(cells, ordering="pseudotime", use_rep="X")
    assert op.graph.X.shape == (600, 3)
    assert "ordiff_velocity_X" in cells.obsm


def test_embeddings_by_short_name_and_list(cells):
    sc.operator(cells, ordering="pseudotime", embedding=["umap", "X_pca"])
    assert {"ordiff_velocity_umap", "ordiff_velocity_pca"} <= set(cells.obsm)
    with pytest.raises(ValueError, match="no embedding 'tsne'"):
        sc.operator(cells, ordering="pseudotime", embedding="tsne")


def test_sparse_genes_are_not_densified(cells, tmp_path):
    cells.X = sp.csr_matrix(cells.X)
    with pytest.raises(ValueError, match="X is sparse"):
        sc.operator(cells, ordering="pseudotime", use_rep="X")
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(ValueError, match="X is sparse"):
        sc.operator(backed, ordering="pseudotime", use_rep="X")
    backed.file.close()


def test_not_anndata():
    with pytest.raises(ValueError, match="must be an AnnData object; got ndarray"):
        sc.operator(np.ones((5, 2)))
