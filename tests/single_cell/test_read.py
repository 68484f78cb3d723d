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


def in_blocks(cells, tmp_path, reads):
    """The same cells as Dask arrays of a zarr store; every block that is read is noted by the name of its array."""
    da = pytest.importorskip("dask.array")
    zarr = pytest.importorskip("zarr")
    cells.write_zarr(tmp_path / "cells.zarr")
    store = zarr.open(tmp_path / "cells.zarr", mode="r")

    def lazily(group, name):
        def noted(block):
            reads.append(name)
            return block

        array = da.from_array(group[name], chunks=(250, -1))
        return array.map_blocks(noted, meta=np.empty((0, 0), array.dtype))

    obsm = {name: lazily(store["obsm"], name) for name in cells.obsm}
    return anndata.AnnData(lazily(store, "X"), obs=cells.obs.copy(), obsm=obsm)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of zarr and of anndata, on formats and on writing
def test_blocks_of_x_are_not_read_unless_they_are_asked_for(cells, tmp_path):
    import dask

    reads = []
    lazy = in_blocks(cells, tmp_path, reads)
    with dask.config.set(scheduler="synchronous"):
        op = sc.operator(lazy, ordering="pseudotime")
        assert set(reads) == {"X_pca", "X_umap"}
        expected = sc.operator(cells, ordering="pseudotime")
        np.testing.assert_array_equal(op.matrix.toarray(), expected.matrix.toarray())
        sc.operator(lazy, ordering="pseudotime", copy=True)
        assert "X" not in reads
        genes = sc.operator(lazy, ordering="pseudotime", use_rep="X", n_pcs=2, embedding=None)
        assert reads.count("X") == 3  # 600 cells in blocks of 250, each once
        of_memory = sc.operator(cells, ordering="pseudotime", use_rep="X", n_pcs=2, embedding=None)
        np.testing.assert_array_equal(genes.matrix.toarray(), of_memory.matrix.toarray())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_does_not_read_x(cells, tmp_path, monkeypatch):
    import dask

    from ordiff.single_cell import _fit

    cells.obs["day"] = np.round(cells.obsm["X_pca"][:, 0] * 2) / 2
    reads, learned = [], []
    lazy = in_blocks(cells, tmp_path, reads)

    def learn(X, times, start, options):
        learned.append((X, times))
        raise RuntimeError("learned")

    monkeypatch.setattr(_fit, "_learn", learn)  # what it learns from is what matters
    with dask.config.set(scheduler="synchronous"), pytest.raises(RuntimeError, match="learned"):
        sc.fit(lazy, "day")
    assert set(reads) == {"X_pca"}
    np.testing.assert_array_equal(learned[0][0], cells.obsm["X_pca"])


def test_dask_arrays_of_sparse_chunks_are_refused(cells):
    da = pytest.importorskip("dask.array")
    chunks = da.from_array(np.eye(600), chunks=200).map_blocks(sp.csr_matrix)
    sparse = anndata.AnnData(chunks, obs=cells.obs.copy())
    with pytest.raises(ValueError, match="X is sparse, and would fill memory"):
        sc.operator(sparse, ordering="pseudotime", use_rep="X")
