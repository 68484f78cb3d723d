"""The graph of the cells, built or scanpy's, and the noise on it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import ordiff as od
from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")  # comes with anndata


def test_local_noise_follows_the_spacing():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(500, 2)), 5 * rng.normal(size=(500, 2)) + [8, 0]])
    cells = anndata.AnnData(obs=pd.DataFrame({"l": X[:, 0]}, index=list(map(str, range(1000)))), obsm={"X_pca": X})
    sc.operator(cells, ordering="l")
    noise = cells.obs["ordiff_noise"].to_numpy()
    assert np.median(noise[500:]) > 2 * np.median(noise[:500])
    assert np.median(noise) == pytest.approx(1.0, rel=0.05)
    cells.obs["rho"] = 2.0
    sc.operator(cells, ordering="l", noise="rho", n_neighbors=300)
    assert (cells.obs["ordiff_noise"] == 2.0).all()
    assert cells.uns["ordiff"]["noise"] == "rho"


def scanpy_like(cells, k=15, **params):
    """What scanpy.pp.neighbors writes."""
    from sklearn.neighbors import kneighbors_graph

    cells.obsp["distances"] = sp.csr_matrix(kneighbors_graph(cells.obsm["X_pca"], k, mode="distance"))
    cells.uns["neighbors"] = {
        "distances_key": "distances", "connectivities_key": "connectivities",
        "params": {"n_neighbors": k + 1, "method": "umap", "metric": "euclidean", **params},
    }  # fmt: skip


def test_scanpys_graph_as_it_is(cells):
    scanpy_like(cells, k=40, n_pcs=2)
    op = sc.operator(cells, ordering="pseudotime", neighbors_key="neighbors")
    assert op.graph.n_edges == 600 * 41
    assert cells.uns["ordiff"]["n_neighbors"] == 40
    assert cells.uns["ordiff"]["neighbors_key"] == "neighbors"


def test_distances_of_another_representation_are_told(cells):
    scanpy_like(cells, k=40)
    cells.obsm["X_pca"] = 2 * cells.obsm["X_pca"]
    with pytest.warns(od.OrdiffWarning, match="not the Euclidean ones of 'X_pca'"):
        sc.operator(cells, ordering="pseudotime", neighbors_key="neighbors")


def test_parts_of_the_graph_are_told():
    X = np.random.default_rng(0).uniform(size=(300, 2))
    X[150:] += 100
    cells = anndata.AnnData(obs=pd.DataFrame({"l": X[:, 0]}, index=list(map(str, range(300)))), obsm={"X_pca": X})
    with pytest.warns(od.OrdiffWarning, match="2 parts, the largest of 150 of 300 cells"):
        sc.operator(cells, ordering="l", n_neighbors=60)
