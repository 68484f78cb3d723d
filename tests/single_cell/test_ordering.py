"""Orderings: velocities, lineages, cycles, several together, sampling times."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cell_data import interior
from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")  # comes with anndata


def test_velocity_in_the_representation(cells):
    cells.obsm["velocity_pca"] = np.tile([0.0, 3.0], (600, 1))
    sc.operator(cells, ordering=sc.Velocity("velocity_pca"))
    v = cells.obsm["ordiff_velocity_pca"][interior(cells)]
    assert (v[:, 1] > 0).all()
    assert np.median(np.abs(v[:, 0]) / v[:, 1]) < 0.3


@pytest.mark.parametrize("sparse", [False, True])
def test_velocity_in_genes_by_loadings(cells, sparse):
    cells.varm["PCs"] = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    layer = np.tile([3.0, 0.0, np.nan], (600, 1))  # gene 0 is the second component; gene 2 has no velocity
    cells.layers["velocity"] = sp.csr_matrix(layer) if sparse else layer
    op = sc.operator(cells, ordering=sc.Velocity())
    cells.obsm["velocity_pca"] = np.tile([0.0, 3.0], (600, 1))
    same = sc.operator(cells, ordering=sc.Velocity("velocity_pca"))
    np.testing.assert_array_equal(op.matrix.toarray(), same.matrix.toarray())
    assert cells.uns["ordiff"]["ordering"].startswith("Velocity(")


def test_velocity_without_loadings(cells):
    cells.layers["velocity"] = np.ones((600, 3))
    with pytest.raises(ValueError, match="varm has no 'PCs'"):
        sc.operator(cells, ordering=sc.Velocity())


def test_cells_without_velocity_do_not_drift(cells):
    V = np.tile([0.0, 3.0], (600, 1))
    V[:50] = 0.0
    cells.obsm["velocity_pca"] = V
    op = sc.operator(cells, ordering=sc.Velocity("velocity_pca"))
    np.testing.assert_allclose(op.matrix[:50].toarray(), op.undirected().matrix[:50].toarray())


def test_lineages(cells):
    X = cells.obsm["X_pca"]
    ends = np.array([[4.0, 0.0], [0.0, 1.0]])
    cells.obsm["far"] = np.linalg.norm(X[:, None] - ends, axis=2)
    cells.obsm["fate"] = np.tile([1.0, 0.0], (600, 1))
    sc.operator(cells, ordering=sc.Lineages("far", weights="fate"))
    assert (cells.obsm["ordiff_velocity_pca"][interior(cells), 0] > 0).all()
    np.testing.assert_array_equal(cells.obsm["ordiff_ordering"], -cells.obsm["far"])
    cells.obs["a"], cells.obs["b"] = cells.obsm["far"].T
    by_columns = sc.operator(cells, ordering=sc.Lineages(("a", "b")))
    np.testing.assert_array_equal(
        by_columns.matrix.toarray(), sc.operator(cells, ordering=sc.Lineages("far")).matrix.toarray()
    )


def ring(m=500):
    rng = np.random.default_rng(2)
    angle = rng.uniform(0, 2 * np.pi, m)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.uniform(0.8, 1.2, (m, 1))
    obs = pd.DataFrame({"S_score": X[:, 0], "G2M_score": X[:, 1], "phi": angle / (2 * np.pi)}, index=map(str, range(m)))
    return anndata.AnnData(obs=obs, obsm={"X_pca": X}), angle


@pytest.mark.parametrize("cycle", [sc.Cycle("phi", period=1.0), sc.Cycle()], ids=["phase", "scores"])
def test_cell_cycle_goes_round(cycle):
    cells, angle = ring()
    sc.operator(cells, ordering=cycle, n_neighbors=60)
    round_and_round = np.stack([-np.sin(angle), np.cos(angle)], axis=1)
    assert ((cells.obsm["ordiff_velocity_pca"] * round_and_round).sum(axis=1) > 0).mean() > 0.99


def test_several_share_the_drift(cells):
    cells.obsm["up"] = np.tile([0.0, 1.0], (600, 1))
    sc.operator(cells, ordering=["pseudotime", sc.Velocity("up")])
    v = cells.obsm["ordiff_velocity_pca"][interior(cells)]
    assert np.median(v[:, 0]) > 0
    assert np.median(v[:, 1]) > 0
    assert cells.uns["ordiff"]["ordering"].startswith("pseudotime + Velocity(")


def test_an_unordered_label_is_no_phase(cells):
    cells.obs["phase"] = pd.Categorical(["G1", "S", "G2M"] * 200)
    with pytest.raises(ValueError, match="are no phase: leave it out"):
        sc.operator(cells, ordering=sc.Cycle("phase"))


def test_sampling_times_are_smoothed_over_neighbours(cells):
    day = np.floor(cells.obsm["X_pca"][:, 0]).astype(int)
    cells.obs["stage"] = pd.Categorical([f"day {d}" for d in day])
    sc.operator(cells, ordering="stage")
    l = cells.obs["ordiff_ordering"].to_numpy()
    assert np.unique(l).size > 400
    assert np.corrcoef(l, cells.obsm["X_pca"][:, 0])[0, 1] > 0.98
    assert cells.uns["ordiff"]["time_unit"] == "day"
    assert (cells.obsm["ordiff_velocity_pca"][interior(cells), 0] > 0).mean() > 0.95
    sc.operator(cells, ordering="stage", smoothing=None)
    np.testing.assert_array_equal(cells.obs["ordiff_ordering"], day)


def test_an_ordered_categorical_is_an_order(cells):
    names = np.array(["early", "middle", "late"])[np.digitize(cells.obsm["X_pca"][:, 0], [1.3, 2.6])]
    cells.obs["stage"] = pd.Categorical(names, categories=["early", "middle", "late"], ordered=True)
    sc.operator(cells, ordering="stage", smoothing=None)
    assert set(cells.obs["ordiff_ordering"]) == {0.0, 1.0, 2.0}
    cells.obs["stage"] = pd.Categorical(names)
    with pytest.raises(ValueError, match="ordered categorical"):
        sc.operator(cells, ordering="stage")
