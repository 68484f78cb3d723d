"""AnnData in and out. Scanpy and CellRank are in tests/single_cell, which `make test-single-cell` runs."""

from __future__ import annotations

import builtins
import sys
import types
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import ordiff as od
from ordiff import single_cell as sc

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")  # comes with anndata


def strip(m=600, seed=0):
    """Cells on a strip, ordered along it, with an embedding that is the strip turned by 90°."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(m, 2)) * [4.0, 1.0]
    obs = pd.DataFrame({"pseudotime": np.exp(X[:, 0])}, index=[f"cell{i}" for i in range(m)])
    turned = np.stack([-X[:, 1], X[:, 0]], axis=1)
    return anndata.AnnData(rng.normal(size=(m, 3)).astype(np.float32), obs=obs, obsm={"X_pca": X, "X_umap": turned})


@pytest.fixture
def cells():
    return strip()


def interior(cells):
    return (np.abs(cells.obsm["X_pca"] - [2.0, 0.5]) < [1.2, 0.3]).all(axis=1)


# --------------------------------------------------------------------------------------------------- operator


def test_writes_what_it_returns(cells):
    op = sc.operator(cells, ordering="pseudotime")
    P = cells.obsp["ordiff_transitions"]
    assert isinstance(P, sp.csr_matrix)
    assert P.dtype == np.float64
    np.testing.assert_allclose(np.asarray(P.sum(axis=1)).ravel(), 1.0, atol=1e-12)
    np.testing.assert_array_equal(P.toarray(), op.matrix.toarray())
    assert P.data.flags.writeable  # the user's own, not the operator's memory
    np.testing.assert_array_equal(cells.obs["ordiff_ordering"], cells.obs["pseudotime"])
    np.testing.assert_allclose(cells.obsm["ordiff_velocity_pca"], od.velocity(op, "symmetric"))
    settings = cells.uns["ordiff"]
    assert settings["eps"] == op.eps
    assert settings["use_rep"] == "X_pca"
    assert settings["forward"] == 0.8
    assert settings["eps_low"] <= settings["eps"] <= settings["eps_high"]


def test_drift_goes_up_the_ordering_and_turns_with_the_embedding(cells):
    sc.operator(cells, ordering="pseudotime")
    inside = interior(cells)
    v, turned = cells.obsm["ordiff_velocity_pca"][inside], cells.obsm["ordiff_velocity_umap"][inside]
    assert (v[:, 0] > 0).all()
    assert np.median(np.abs(v[:, 1]) / v[:, 0]) < 0.25
    np.testing.assert_allclose(turned, np.stack([-v[:, 1], v[:, 0]], axis=1), atol=1e-9)


@pytest.mark.parametrize("forward", [0.65, 0.8, 0.9])
@pytest.mark.parametrize("stretch", [np.exp, np.log1p, lambda x: 1000 * x**3])
def test_forward_is_the_probability_of_going_up_in_any_units(cells, forward, stretch):
    l = stretch(cells.obsm["X_pca"][:, 0])
    op = sc.operator(cells, ordering=l, forward=forward)
    P = op.matrix.tocoo()
    up = np.bincount(P.row, P.data * (l[P.col] > l[P.row]), minlength=len(l)) / (1 - op.staying())
    assert abs(np.median(up[interior(cells)]) - forward) < 0.06


def test_forward_below_half_goes_down(cells):
    sc.operator(cells, ordering="pseudotime", forward=0.2)
    assert (cells.obsm["ordiff_velocity_pca"][interior(cells), 0] < 0).all()


def test_tilt_is_the_gaussian_one_and_bounded_by_outliers():
    """Rise in sd: exact for a gaussian; a neighbour far ahead with little weight does not take the row."""
    x = np.linspace(-4, 4, 401).reshape(-1, 1)
    graph = od.NeighborGraph.build(x, k=400)
    base = od.Kernel(noise=1.0).operator(graph, eps=0.25)
    slope = sc._tilt(base, od.Ordering(x[:, 0]), 0.5)
    assert abs(slope[200] - 0.5 / 0.5) < 0.01  # sd of a step is √eps = 0.5
    assert sc._tilt(base, od.Ordering(x[:, 0]), -0.5)[200] == pytest.approx(-slope[200], rel=1e-9)
    l = np.where(x[:, 0] > 2.0, 1000.0, 0.0)  # flat, then far ahead, four sd away
    slope = sc._tilt(base, od.Ordering(l), 0.5)
    tilted = od.Kernel(od.Ordering(l, speed=slope), noise=1.0).operator(graph, eps=0.25)
    assert tilted.matrix[[200], :].toarray().ravel()[x[:, 0] > 2].sum() < 0.02
    assert (sc._tilt(base, od.Ordering(0 * l), 0.5) == 0).all()


def test_tilt_in_blocks_is_the_same(cells, monkeypatch):
    whole = sc.operator(cells, ordering="pseudotime").matrix
    monkeypatch.setattr(sc, "_BLOCK_EDGES", 250)
    np.testing.assert_allclose(sc.operator(cells, ordering="pseudotime").matrix.toarray(), whole.toarray(), rtol=1e-12)


def test_speed_in_units_of_the_representation(cells):
    sc.operator(cells, ordering="pseudotime", speed=1.5, noise=0.5, n_neighbors=300)
    v = cells.obsm["ordiff_velocity_pca"][interior(cells)]
    assert abs(np.median(v[:, 0]) - 1.5) < 0.25
    assert cells.uns["ordiff"]["speed"] == 1.5
    assert "forward" not in cells.uns["ordiff"]


def test_no_ordering_is_plain_diffusion(cells):
    op = sc.operator(cells, ordering=None)
    np.testing.assert_array_equal(op.matrix.toarray(), op.undirected().matrix.toarray())
    assert cells.uns["ordiff"]["ordering"] == "none"
    assert "ordiff_ordering" not in cells.obs


def test_a_ready_ordering_is_taken_as_it_is(cells):
    ready = od.Ordering(cells.obsm["X_pca"][:, 0], speed=0.7)
    op = sc.operator(cells, ordering=ready, noise=0.5, eps=0.05, density=None)
    graph = od.NeighborGraph.build(cells.obsm["X_pca"], k=100)
    np.testing.assert_array_equal(
        op.matrix.toarray(), od.Kernel(ready, noise=0.5).operator(graph, 0.05).matrix.toarray()
    )


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


def test_same_seed_same_bits(cells):
    one, two = (sc.operator(strip(), ordering="pseudotime").matrix for _ in range(2))
    np.testing.assert_array_equal(one.data, two.data)


def test_embeddings_by_short_name_and_list(cells):
    sc.operator(cells, ordering="pseudotime", embedding=["umap", "X_pca"])
    assert {"ordiff_velocity_umap", "ordiff_velocity_pca"} <= set(cells.obsm)
    with pytest.raises(ValueError, match="no embedding 'tsne'"):
        sc.operator(cells, ordering="pseudotime", embedding="tsne")


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


# ---------------------------------------------------------------------------------------- representation, graph


def test_dataframe_and_first_coordinates(cells):
    cells.obsm["frame"] = pd.DataFrame(np.c_[cells.obsm["X_pca"], np.ones(600)], index=cells.obs_names)
    a = sc.operator(cells, ordering="pseudotime", use_rep="frame", n_pcs=2)
    b = sc.operator(cells, ordering="pseudotime")
    np.testing.assert_array_equal(a.matrix.toarray(), b.matrix.toarray())


def test_genes_as_representation(cells):
    op = sc.operator(cells, ordering="pseudotime", use_rep="X")
    assert op.graph.X.shape == (600, 3)
    assert "ordiff_velocity_X" in cells.obsm


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


def test_too_few_neighbours_are_told(rng):
    X = rng.normal(size=(300, 30))
    cells = anndata.AnnData(obs=pd.DataFrame({"l": X[:, 0]}, index=list(map(str, range(300)))), obsm={"X_pca": X})
    with pytest.warns(od.OrdiffWarning, match="n_neighbors"):
        op = sc.operator(cells, ordering="l", n_neighbors=15)
    assert np.median(op.staying()) < 0.25  # it moves all the same
    assert cells.uns["ordiff"]["eps"] > cells.uns["ordiff"]["eps_high"]


# ---------------------------------------------------------------------------------------------------- orderings


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


# -------------------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("labels", "values", "unit"),
    [
        (["0h", "24h", "48 hr"], [0, 24, 48], "hour"),
        (["day 2", "Day_10", "d0.5"], [2, 10, 0.5], "day"),
        (["E8.5", "E9.0", "E10"], [8.5, 9, 10], "day"),
        (["12h", "day 1", "1 week"], [12, 24, 168], "hour"),
        (["0", "30 min", "1h"], [0, 30, 60], "minute"),
        (["3", "1.5", "-2"], [3, 1.5, -2], ""),
        (["t=6", "T12", "time 18"], [6, 12, 18], ""),
        (["10hpf", "24 hpf", "2dpf"], [10, 24, 48], "hour"),
        ([5, 6, 7], [5, 6, 7], ""),
    ],
)
@pytest.mark.parametrize("kind", ["object", "category", "string"])
def test_times_in_words(labels, values, unit, kind):
    cells = anndata.AnnData(
        obs=pd.DataFrame({"t": pd.Series(labels).astype(kind).to_numpy(copy=True)}, index=list("abc"))
    )
    cells.obs["t"] = pd.Series(labels, index=cells.obs_names).astype(kind)
    times = sc.read_times(cells, "t")
    np.testing.assert_allclose(times.values, values)
    assert times.unit == unit


def test_durations_and_nullable_numbers():
    obs = pd.DataFrame(
        {"d": pd.to_timedelta([0, 36], unit="h"), "n": pd.array([1, 2], dtype="Int64")}, index=list("ab")
    )
    cells = anndata.AnnData(obs=obs)
    assert sc.read_times(cells, "d").values.tolist() == [0, 36]
    assert sc.read_times(cells, "d").unit == "hour"
    assert sc.read_times(cells, "n").values.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (["iPSC", "day 1", "day 2"], "no times: 'iPSC'"),
        (["E8.5", "P0", "P7"], "do not count from one moment"),
        (["24h", "48", "72h"], "without: '48'"),
        (["0-2h", "2-4h", "4-6h"], "no times: '0-2h'"),
        (["day-2", "day 1", "day 3"], "no times: 'day-2'"),
        ([True, False, True], "no time"),
    ],
)
def test_labels_that_are_no_times(labels, says):
    cells = anndata.AnnData(obs=pd.DataFrame({"t": labels}, index=list("abc")))
    with pytest.raises(ValueError, match=says):
        sc.read_times(cells, "t")


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


# ---------------------------------------------------------------------------------------- views, files, round trips


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


def test_a_subset_of_a_result_is_refused_as_an_operator(cells):
    sc.operator(cells, ordering="pseudotime")
    with pytest.raises(ValueError, match=r"After taking a subset of cells run .* again"):
        sc.stored_operator(cells[:300].copy())


def assert_same_results(a, b):
    for place in ("obs", "obsm", "obsp"):
        for key in filter(sc.Keys().own, getattr(a, place)):
            one, two = getattr(a, place)[key], getattr(b, place)[key]
            assert type(one) is type(two)
            assert one.dtype == two.dtype
            if sp.issparse(one):
                for part in ("data", "indices", "indptr"):
                    np.testing.assert_array_equal(getattr(one, part), getattr(two, part))
                    assert getattr(one, part).dtype == getattr(two, part).dtype
            else:
                np.testing.assert_array_equal(np.asarray(one), np.asarray(two))
    one, two = a.uns["ordiff"], b.uns["ordiff"]
    assert sorted(one) == sorted(two)
    for name, value in one.items():
        assert np.asarray(value).dtype == np.asarray(two[name]).dtype
        np.testing.assert_array_equal(value, two[name])


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


# ----------------------------------------------------------------------------------------------------- learning


class Learned:
    """Stands in for SnapshotSDE: remembers what it was given, and has learned a drift to the right."""

    def __init__(self, start, **options):
        self.start, self.options = np.asarray(start), options

    def fit(self, X, times):
        self.X, self.times = X, times
        self.ordering_, self.noise_, self.eps_, self.converged_ = X[:, 0].copy(), np.full(len(X), 0.5), 0.1, True
        self.ordering_std_ = self.noise_std_ = np.full(len(X), 0.01)
        self.drift_, self.loss_, self.n_iter_ = np.tile([1.0, 0.0], (len(X), 1)), 1.5, 7
        return self


@pytest.fixture
def learned(monkeypatch):
    module = types.ModuleType("ordiff.model")
    module.SnapshotSDE = Learned
    monkeypatch.setitem(sys.modules, "ordiff.model", module)


@pytest.fixture
def staged(cells):
    cells.obs["stage"] = pd.Categorical([f"day {2 + int(x)}" for x in cells.obsm["X_pca"][:, 0]])
    return cells


@pytest.mark.usefixtures("learned")
def test_fit_reads_times_and_writes_fields(staged, tmp_path):
    model = sc.fit(staged, "stage", max_iter=7, eps=0.1)
    assert model.options == {"max_iter": 7, "eps": 0.1}
    assert sorted(set(model.times)) == [0, 1, 2, 3]
    np.testing.assert_array_equal(model.start, staged.obs["stage"] == "day 2")
    assert staged.uns["ordiff"]["start"] == f"{model.start.sum()} cells"
    np.testing.assert_array_equal(staged.obs["ordiff_ordering"], model.ordering_)
    np.testing.assert_array_equal(staged.obs["ordiff_noise_std"], model.noise_std_)
    np.testing.assert_allclose(staged.obsm["ordiff_velocity_umap"], np.tile([0.0, 1.0], (600, 1)), atol=1e-9)
    settings = staged.uns["ordiff"]
    assert (settings["time_unit"], settings["time_origin"], settings["max_iter"]) == ("day", 2.0, 7)
    np.testing.assert_allclose(np.asarray(staged.obsp["ordiff_transitions"].sum(axis=1)).ravel(), 1.0)
    staged.write_h5ad(tmp_path / "cells.h5ad")
    assert_same_results(staged, anndata.read_h5ad(tmp_path / "cells.h5ad"))
    assert sc.stored_operator(staged).eps == settings["eps"]
    assert settings["model_eps"] == 0.1
    assert sc.fit(staged, "stage", time_origin=1.5).times.min() == 0.5
    sc.operator(staged, ordering="pseudotime")
    assert "ordiff_ordering_std" not in staged.obs


@pytest.mark.usefixtures("learned")
def test_roots(staged):
    X = staged.obsm["X_pca"]
    early = int(np.argmin(X[:, 0]))
    assert sc.fit(staged, "stage", root=early).start == early
    assert sc.fit(staged, "stage", root=f"cell{early}").start == early
    assert staged.uns["ordiff"]["start"] == f"cell cell{early}"
    np.testing.assert_array_equal(sc.fit(staged, "stage", root=[0.1, 0.2]).start, [0.1, 0.2])
    with pytest.raises(ValueError, match="the name of 0 cells"):
        sc.fit(staged, "stage", root="nobody")
    staged.uns["iroot"] = early
    assert sc.fit(staged, "stage").start == early
    staged.uns["iroot"] = int(np.argmax(X[:, 0]))
    with pytest.raises(ValueError, match="not a cell of the earliest sample"):
        sc.fit(staged, "stage")
    new = sc.fit(staged, "stage", root=early, copy=True, key_added="other")
    assert "other_transitions" in new.obsp
    assert "other" not in staged.uns


def test_fit_learns_an_ornstein_uhlenbeck_process():
    truth = od.datasets.ornstein_uhlenbeck(400, random_state=0)
    obs = pd.DataFrame({"t": truth.times}, index=[f"cell{i}" for i in range(400)])
    cells = anndata.AnnData(obs=obs, obsm={"X_pca": truth.X, "X_umap": truth.X[:, ::-1].copy()})
    model = sc.fit(cells, "t", root=truth.start, time_origin=0.0, noise="constant")
    assert isinstance(model, pytest.importorskip("ordiff.model").SnapshotSDE)
    assert 0.9 < cells.obs["ordiff_noise"].mean() / 2**0.5 < 1.1
    np.testing.assert_array_equal(cells.obsm["ordiff_velocity_pca"], model.drift_)
    turned = cells.obsm["ordiff_velocity_umap"][:, ::-1]
    assert np.median(np.linalg.norm(turned - model.drift_, axis=1) / np.linalg.norm(model.drift_, axis=1)) < 0.1
    # the chain on the cells does what was learned: its drift is that of the model
    chain = od.velocity(sc.stored_operator(cells))
    assert np.corrcoef(chain.ravel(), model.drift_.ravel())[0, 1] > 0.9


# -------------------------------------------------------------------------------------------------------- fates


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


# ------------------------------------------------------------------------------------------------------- errors


def test_missing_pseudotime_says_how_many_and_which(cells):
    cells.obs.loc[cells.obs_names[[7, 30]], "pseudotime"] = np.nan
    with pytest.raises(ValueError, match=r"missing or infinite for 2 of 600 cells \(cell7, cell30\)"):
        sc.operator(cells, ordering="pseudotime")
    cells.obs["pseudotime"] = np.inf
    with pytest.raises(ValueError, match=r"600 of 600 cells .*, …\)\. Diffusion pseudotime is infinite where"):
        sc.operator(cells, ordering="pseudotime")
    assert "ordiff" not in cells.uns


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ordering": "dpt_pseudotime"}, r"Run scanpy.tl.dpt.*'pseudotime'"),
        ({"ordering": np.ones(5)}, r"one value per cell, shape \(600,\); got shape \(5,\)"),
        ({"use_rep": "X_scvi"}, "no 'X_scvi', it has 'X_pca', 'X_umap'"),
        ({"n_pcs": 7}, "n_pcs must be at most 2"),
        ({"neighbors_key": "neighbors"}, "run scanpy.pp.neighbors"),
        ({"neighbors_key": "neighbors", "n_neighbors": 15}, "not both"),
        ({"forward": 1.5}, "forward must be between 0 and 1"),
        ({"noise": -1.0}, "noise must be positive"),
        ({"noise": "rho"}, "obs has no 'rho'"),
        ({"eps": "best"}, "eps must be one of 'auto'"),
        ({"key_added": "a/b"}, "without '/'"),
        ({"ordering": sc.Velocity()}, "no velocity 'velocity'"),
        ({"ordering": sc.Lineages("far")}, "no distances 'far'"),
        ({"ordering": sc.Cycle()}, "score_genes_cell_cycle"),
    ],
)
def test_errors_say_what_to_do(cells, options, says):
    with pytest.raises(ValueError, match=says):
        sc.operator(cells, **{"ordering": "pseudotime", **options})
    assert "ordiff" not in cells.uns


def test_sparse_genes_are_not_densified(cells, tmp_path):
    cells.X = sp.csr_matrix(cells.X)
    with pytest.raises(ValueError, match="X is sparse"):
        sc.operator(cells, ordering="pseudotime", use_rep="X")
    cells.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    with pytest.raises(ValueError, match="X is sparse"):
        sc.operator(backed, ordering="pseudotime", use_rep="X")
    backed.file.close()


def test_velocity_without_loadings(cells):
    cells.layers["velocity"] = np.ones((600, 3))
    with pytest.raises(ValueError, match="varm has no 'PCs'"):
        sc.operator(cells, ordering=sc.Velocity())


def test_not_anndata():
    with pytest.raises(ValueError, match="must be an AnnData object; got ndarray"):
        sc.operator(np.ones((5, 2)))


def test_nothing_stored(cells):
    with pytest.raises(ValueError, match=r"no result 'ordiff'.*Run ordiff.single_cell.operator"):
        sc.stored_operator(cells)


@pytest.mark.parametrize(("package", "says"), [("anndata", r"ordiff\[single-cell\]"), ("cellrank", "cellrank")])
def test_without_the_packages(cells, monkeypatch, package, says):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    monkeypatch.delitem(vars(sc), "OrdiffKernel", raising=False)
    with pytest.raises(od.MissingExtraError, match=says):
        sc.operator(cells) if package == "anndata" else sc.OrdiffKernel


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = sc.Nothing
