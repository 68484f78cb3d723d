"""Neighbour graphs: exact against brute force, approximate by recall, distances from elsewhere, errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist

import ordiff as od


def rows(graph):
    return [set(graph.indices[a:b].tolist()) for a, b in zip(graph.indptr[:-1], graph.indptr[1:], strict=True)]


def brute(X, k):
    return [set(row[: k + 1].tolist()) for row in np.argsort(cdist(X, X), axis=1)]


def assert_well_formed(graph, X):
    m = len(X)
    assert graph.indptr[0] == 0
    assert graph.indptr.dtype == graph.indices.dtype == np.int32
    for i, row in enumerate(rows(graph)):
        assert i in row
        listed = graph.indices[graph.indptr[i] : graph.indptr[i + 1]]
        assert (np.diff(listed) > 0).all()
    want = ((X[graph.indices] - X[graph.sources()]) ** 2).sum(axis=1)
    np.testing.assert_allclose(graph.sqdist, want, rtol=1e-12)
    assert (graph.sqdist[graph.sources() == graph.indices] == 0).all()
    assert graph.n_points == m


@pytest.mark.parametrize("n", [1, 3, 40], ids=["line", "tree", "all pairs"])
def test_exact_neighbours(n, rng):
    X = rng.normal(size=(300, n))
    graph = od.NeighborGraph.build(X, k=12)
    assert_well_formed(graph, X)
    assert rows(graph) == brute(X, 12)


@pytest.mark.parametrize("n", [2, 40], ids=["tree", "all pairs"])
def test_radius(n, rng):
    X = rng.normal(size=(300, n))
    D = cdist(X, X)
    radius = float(np.quantile(D, 0.1))
    graph = od.NeighborGraph.build(X, radius=radius)
    assert_well_formed(graph, X)
    assert rows(graph) == [set(np.flatnonzero(row <= radius).tolist()) for row in D]


def test_radius_smaller_than_every_gap_leaves_each_point_alone(rng):
    for n in (2, 40):
        graph = od.NeighborGraph.build(rng.normal(size=(50, n)), radius=1e-12)
        np.testing.assert_array_equal(graph.indices, np.arange(50))
        assert graph.n_components == 50


def test_search_in_blocks_changes_nothing(rng, monkeypatch):
    X = rng.normal(size=(200, 3))
    whole = [od.NeighborGraph.build(X, k=9), od.NeighborGraph.build(X, radius=0.7)]
    monkeypatch.setattr("ordiff.neighbors._BLOCK", 100)
    for graph, other in zip(
        whole, [od.NeighborGraph.build(X, k=9), od.NeighborGraph.build(X, radius=0.7)], strict=True
    ):
        np.testing.assert_array_equal(graph.indices, other.indices)
        np.testing.assert_array_equal(graph.indptr, other.indptr)


@pytest.mark.filterwarnings("ignore")  # pynndescent's own
@pytest.mark.parametrize("n", [5, 30])
def test_approximate_recall(n):
    pytest.importorskip("pynndescent")
    X = np.random.default_rng(0).normal(size=(4000, n))
    graph = od.NeighborGraph.build(X, k=15, method="approximate", random_state=1)
    assert_well_formed(graph, X)
    exact = od.NeighborGraph.build(X, k=15, method="exact")
    recall = np.mean([len(a & b) - 1 for a, b in zip(rows(graph), rows(exact), strict=True)]) / 15
    assert recall > 0.95
    again = od.NeighborGraph.build(X, k=15, method="approximate", random_state=1)
    np.testing.assert_array_equal(graph.indices, again.indices)


def test_many_coincident_points_keep_their_selves():
    X = np.zeros((40, 2))
    graph = od.NeighborGraph.build(X, k=5)
    assert_well_formed(graph, X)
    assert (np.diff(graph.indptr) == 6).all()


def test_nearest_are_sorted_and_leave_out_self(rng):
    X = rng.normal(size=(100, 3))
    D = cdist(X, X)
    neighbors, distances = od.NeighborGraph.build(X, k=20).nearest(7)
    np.testing.assert_array_equal(neighbors, np.argsort(D, axis=1)[:, 1:8])
    np.testing.assert_allclose(distances, np.sort(D, axis=1)[:, 1:8])
    with pytest.raises(od.GraphError, match="needs 30 neighbours per sample, but sample 0 has 20"):
        od.NeighborGraph.build(X, k=20).nearest(30)


# ------------------------------------------------------------------------------------------- from distances


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array, sp.coo_matrix, sp.csc_array])
def test_from_scikit_learn(include_self, kind, rng):
    from sklearn.neighbors import kneighbors_graph

    X = rng.normal(size=(80, 3))
    D = kind(kneighbors_graph(X, 6 + include_self, mode="distance", include_self=include_self))
    graph = od.NeighborGraph.from_distances(D, X=X)
    assert_well_formed(graph, X)
    assert rows(graph) == brute(X, 6)


def test_from_a_scanpy_style_graph(rng):
    """scanpy stores n_neighbors − 1 distances a row, float32, without the diagonal."""
    X = rng.normal(size=(80, 3))
    exact = od.NeighborGraph.build(X, k=14)
    D = exact.matrix(np.sqrt(exact.sqdist)).tocsr().astype(np.float32)
    D.setdiag(0)
    D.eliminate_zeros()
    graph = od.NeighborGraph.from_distances(sp.csr_matrix(D))
    assert rows(graph) == rows(exact)
    np.testing.assert_allclose(graph.sqdist, exact.sqdist, rtol=1e-6)
    assert graph.X is None
    f = X[:, 0]
    want = od.Kernel(f).operator(exact, 0.1) @ f
    np.testing.assert_allclose(od.Kernel(f).operator(graph, 0.1) @ f, want, rtol=1e-4)


def test_from_dense_and_asymmetric_distances(rng):
    X = rng.normal(size=(30, 2))
    D = cdist(X, X)
    graph = od.NeighborGraph.from_distances(D, X=X)
    assert graph.n_edges == 900
    D[0, 5] = np.inf  # one direction only
    other = od.NeighborGraph.from_distances(D, X=X)
    assert other.n_edges == 899
    assert 5 not in rows(other)[0]
    assert 0 in rows(other)[5]


def test_stored_zeros_are_coincident_neighbours():
    D = sp.csr_array((np.array([0.0, 1.0, 0.0, 1.0]), ([0, 0, 1, 2], [1, 2, 0, 0])), shape=(3, 3))
    graph = od.NeighborGraph.from_distances(D)
    assert rows(graph) == [{0, 1, 2}, {0, 1}, {0, 2}]


@pytest.mark.parametrize(
    ("D", "message"),
    [
        (np.ones(3), "square matrix"),
        (np.ones((3, 4)), "square matrix"),
        (np.eye(3), "most entries of the dense D are 0"),
        (np.eye(3) + 1, "distance of a point to itself must be 0; D.0, 0. is 2.*connectivities"),
        (np.array([[0, -1.0], [1, 0]]), r"D\[0, 1\] is -1"),
        (np.array([[0, np.nan], [1, 0]]), r"D\[0, 1\] is nan"),
        (sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(2, 2)), "from 0 to 1 more than once"),
    ],
)
def test_bad_distances(D, message):
    with pytest.raises(ValueError, match=message):
        od.NeighborGraph.from_distances(D)


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (np.zeros((5, 2)), {}, "either k .* or radius"),
        (np.zeros((5, 2)), {"k": 2, "radius": 1.0}, "either k .* or radius"),
        (np.zeros((5, 2)), {"k": 5}, "k must be at most 4; got 5. There are only 5 points"),
        (np.zeros((5, 2)), {"k": 0}, "k must be at least 1"),
        (np.zeros((5, 2)), {"k": 2.5}, "k must be a whole number"),
        (np.zeros((5, 2)), {"radius": -1}, "radius must be one positive number"),
        (np.zeros((5, 2)), {"radius": 1, "method": "approximate"}, "with a radius the search is exact"),
        (np.zeros((5, 2)), {"k": 1, "method": "fast"}, "method must be one of"),
        (np.zeros(5), {"k": 2}, r"reshape\(-1, 1\)"),
        (np.zeros((1, 2)), {"k": 1}, "at least 2 points"),
        (np.array([[0, 1], [np.nan, 1], [0, np.inf]]), {"k": 1}, r"2 value\(s\) .* first at index \(1, 0\)"),
        (np.array([["a", "b"]] * 3), {"k": 1}, "array of real numbers"),
    ],
)
def test_errors(X, options, message):
    with pytest.raises(ValueError, match=message):
        od.NeighborGraph.build(X, **options)


def test_components(rng):
    X = np.concatenate([rng.normal(size=(30, 2)), rng.normal(size=(40, 2)) + 100, rng.normal(size=(50, 2)) - 100])
    assert od.NeighborGraph.build(X, k=5).n_components == 3
    assert od.NeighborGraph.build(X, k=60).n_components == 1


def test_repr(rng):
    assert (
        repr(od.NeighborGraph.build(rng.normal(size=(9, 2)), k=3)) == "NeighborGraph(9 points, 36 edges, 2 coordinates)"
    )
