"""Neighbour graphs: exact against brute force, approximate by recall, distances from elsewhere, errors."""

from __future__ import annotations

import os
import pickle
import re
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import cdist

import ordiff as od
import processes
from ordiff.graph import approximate, search


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
    monkeypatch.setattr("ordiff.graph.search._BLOCK", 100)
    for graph, other in zip(
        whole, [od.NeighborGraph.build(X, k=9), od.NeighborGraph.build(X, radius=0.7)], strict=True
    ):
        np.testing.assert_array_equal(graph.indices, other.indices)
        np.testing.assert_array_equal(graph.indptr, other.indptr)


@pytest.mark.parametrize("n", [2, 6, 40], ids=["plane", "tree", "all pairs"])
@pytest.mark.parametrize("options", [{"k": 9}, {"radius": 0.7}], ids=["k", "radius"])
def test_the_order_of_the_samples_is_kept(n, options, rng):
    """The tree is searched along a curve; the rows are those of the samples as they were given."""
    X = rng.normal(size=(300, n))
    graph = od.NeighborGraph.build(X, **options)
    shuffle = rng.permutation(300)
    other = od.NeighborGraph.build(X[shuffle], **options)
    np.testing.assert_array_equal(other.X, X[shuffle])
    D = graph.matrix(graph.sqdist + 1)[shuffle][:, shuffle].sorted_indices()
    np.testing.assert_array_equal(other.indptr, D.indptr)
    np.testing.assert_array_equal(other.indices, D.indices)
    np.testing.assert_allclose(other.sqdist, D.data - 1, atol=1e-12)


@pytest.mark.parametrize("kind", ["points", "line", "coincident", "distances"])
def test_the_layout_is_the_pattern_renamed(kind, rng):
    X = rng.normal(size=(300, 1 if kind == "line" else 4)) * (kind != "coincident")
    graph = od.NeighborGraph.build(X, k=8)
    if kind == "distances":  # upper part only, so that many samples are not met from the first
        graph = od.NeighborGraph.from_distances(sp.triu(graph.matrix(np.sqrt(graph.sqdist))))
    layout = graph.layout
    order, indptr, indices = layout.order, layout.indptr, layout.indices
    edges = layout.sort_edges(np.arange(graph.n_edges))
    np.testing.assert_array_equal(np.sort(order), np.arange(300))
    np.testing.assert_array_equal(np.sort(edges), np.arange(graph.n_edges))
    np.testing.assert_array_equal(order[indices], graph.indices[edges])
    np.testing.assert_array_equal(order[np.repeat(np.arange(300), np.diff(indptr))], graph.sources()[edges])
    assert (order.dtype, indices.dtype) == (np.uint32, np.uint32)
    np.testing.assert_array_equal(order[layout.rank], np.arange(300))
    np.testing.assert_array_equal(edges[indptr[:-1]], graph.indptr[:-1][order])
    i, j = layout.edges(10, 20)
    some = edges[indptr[10] : indptr[20]]
    np.testing.assert_array_equal(i, graph.sources()[some])
    np.testing.assert_array_equal(j, graph.indices[some])


def test_what_a_layout_sorts_it_brings_back(rng):
    graph = od.NeighborGraph.build(rng.normal(size=(300, 2)), radius=0.5)
    layout = graph.layout
    for f in (rng.normal(size=300), rng.normal(size=(300, 1)), rng.normal(size=(300, 3))):
        np.testing.assert_array_equal(layout.sort(f), f[layout.order])
        np.testing.assert_array_equal(layout.unsort(layout.sort(f)), f)
    for values in (rng.normal(size=graph.n_edges), np.arange(graph.n_edges)):
        np.testing.assert_array_equal(layout.unsort_edges(layout.sort_edges(values)), values)
    P = sp.csr_array((graph.sqdist + 1.0, graph.indices, graph.indptr))[layout.order][:, layout.order].T.tocsr()
    P.sort_indices()
    by = layout.transpose
    np.testing.assert_array_equal(by.indptr, P.indptr)
    found = by.values(layout.sort_edges(graph.sqdist + 1.0))
    np.testing.assert_array_equal(sp.csr_array((found, by.indices, by.indptr)).toarray(), P.toarray())


def test_the_layout_keeps_neighbours_together(rng):
    X = rng.uniform(size=(5000, 2))
    for graph in (exact := od.NeighborGraph.build(X, k=8),
                  od.NeighborGraph.from_distances(exact.matrix(np.sqrt(exact.sqdist)))):  # fmt: skip
        layout = graph.layout
        rows = np.repeat(np.arange(5000), np.diff(layout.indptr))
        assert np.median(abs(rows - layout.indices.astype(int))) < 250


@pytest.fixture(params=[20_000, 0], ids=["lists", "neighbours"])
def approximation(request, monkeypatch):
    """Both ways of the approximate search."""
    pytest.importorskip("faiss")
    monkeypatch.setattr(approximate, "_MOST_VISITS", request.param)


@pytest.mark.usefixtures("approximation")
@pytest.mark.parametrize("n", [5, 30])
def test_approximate_recall(n):
    X = np.random.default_rng(0).normal(size=(4000, n))
    graph = od.NeighborGraph.build(X, k=15, method="approximate", random_state=1)
    assert_well_formed(graph, X)
    exact = od.NeighborGraph.build(X, k=15, method="exact")
    assert exact.recall_ == 1
    recall = np.mean([len(a & b) for a, b in zip(rows(graph), rows(exact), strict=True)]) / 16
    assert recall > 0.98
    assert abs(graph.recall_ - recall) < 0.01
    again = od.NeighborGraph.build(X, k=15, method="approximate", random_state=1)
    np.testing.assert_array_equal(graph.indices, again.indices)
    assert pickle.loads(pickle.dumps(graph)).recall_ == graph.recall_


@pytest.mark.usefixtures("approximation")
def test_approximate_search_has_the_same_bits_on_any_number_of_threads(rng, set_threads):
    import faiss

    X, before = rng.normal(size=(5000, 10)), faiss.omp_get_max_threads()
    found = []
    for threads in (1, 4):
        set_threads(threads)
        found.append(od.NeighborGraph.build(X, k=15, method="approximate"))
    np.testing.assert_array_equal(found[0].indices, found[1].indices)
    assert found[0].recall_ == found[1].recall_
    assert faiss.omp_get_max_threads() == before


@pytest.mark.usefixtures("approximation")
def test_a_higher_recall_is_reached(rng):
    X = rng.normal(size=(4000, 12))
    low, high = (od.NeighborGraph.build(X, k=15, method="approximate", recall=r).recall_ for r in (0.98, 0.999))
    assert low < high
    assert high > 0.998


@pytest.mark.usefixtures("approximation")
@pytest.mark.parametrize("scale", [2.0**-300, 2.0**300], ids=["tiny", "huge"])
def test_approximate_search_in_any_units(scale, rng):
    X = rng.normal(size=(1000, 8))  # squares of the scaled ones overflow in single precision
    graph, scaled = (od.NeighborGraph.build(Y, k=9, method="approximate") for Y in (X, scale * X))
    np.testing.assert_array_equal(scaled.indices, graph.indices)
    assert scaled.recall_ == graph.recall_


def test_lists_that_hold_too_few_points_are_joined_by_others(rng):
    pytest.importorskip("faiss")
    X, k = rng.normal(size=(2000, 3)), 60
    lists = approximate.make_lists(X.astype(np.float32), rng)
    assert (np.diff(lists.first) < k).any()
    expected = brute(X, k - 1)
    for n_probe in (1, len(lists.near)):
        for some, found in lists.blocks(k, n_probe, 300):
            for i, row in zip(lists.order[some], lists.order[found], strict=True):
                assert len(set(row.tolist())) == k
                assert n_probe == 1 or set(row.tolist()) == expected[i]


def test_a_pass_finds_the_nearest_among_neighbours_of_neighbours(rng):
    X, k = rng.normal(size=(300, 4)).astype(np.float32), 6
    near = np.array([rng.choice(np.delete(np.arange(300), i), k, replace=False) for i in range(300)])
    D = cdist(X, X, "sqeuclidean").astype(np.float32)
    near = np.take_along_axis(near, np.argsort(np.take_along_axis(D, near, axis=1), axis=1), axis=1)
    found, reach = approximate.improved(X, near.astype(np.uint32), np.take_along_axis(D, near, axis=1), 0)
    for i in range(300):
        listing = np.flatnonzero((near == i).any(axis=1))
        first = sorted(set(near[i]) | set(listing), key=lambda j: D[i, j])[:k]
        assert set(first) <= set(near[i]) | set(listing)
        assert D[i, found[i]].max() <= D[i, first].max()
        assert len(set(found[i].tolist())) == k
        assert i not in found[i]
    np.testing.assert_allclose(reach, np.take_along_axis(D, found.astype(int), axis=1), rtol=1e-5)
    assert (np.diff(reach, axis=1) >= 0).all()


def test_points_without_enough_first_neighbours_are_searched_exactly(rng, monkeypatch):
    pytest.importorskip("faiss")
    X, k, first = rng.normal(size=(500, 4)), 9, approximate.first_neighbors

    def few(*args):
        near, far = first(*args)
        near[::7, 3:], far[::7, 3:] = np.arange(0, 500, 7)[:, None], np.inf
        return near, far

    monkeypatch.setattr(approximate, "_MOST_VISITS", 0)
    monkeypatch.setattr(approximate, "first_neighbors", few)
    monkeypatch.setattr(approximate, "improved", lambda points, near, far, _: (near, far))
    monkeypatch.setattr(approximate, "_recall", lambda *_: 1.0)
    expected = brute(X, k - 1)
    found = list(approximate.nearest(X, k, 0.98, 0, 100)[0])
    samples, neighbors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    for i, row in zip(samples[::7], neighbors[::7], strict=True):
        assert set(row.tolist()) == expected[i]


@pytest.mark.usefixtures("approximation")
def test_approximate_search_of_coincident_points():
    graph = od.NeighborGraph.build(np.zeros((500, 4)), k=5, method="approximate")
    assert_well_formed(graph, np.zeros((500, 4)))
    assert graph.recall_ == 1


FORK_AND_INTERRUPT = """
import os, signal, sys, threading
import numpy as np
import ordiff as od
from ordiff.graph import approximate
approximate._MOST_VISITS = int(sys.argv[1])
X = np.random.default_rng(0).normal(size=(5000, 10))
def search(points=X):
    return od.NeighborGraph.build(points, k=15, method="approximate").indices
expected = search()
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(search(), expected) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        search()
except KeyboardInterrupt:
    pass
assert np.array_equal(search(), expected)
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("visits", ["20000", "0"], ids=["lists", "neighbours"])
def test_approximate_search_survives_a_fork_and_an_interrupt(visits):
    pytest.importorskip("faiss")
    command, environ = [sys.executable, "-c", FORK_AND_INTERRUPT, visits], processes.environment(NUMBA_NUM_THREADS="2")
    assert processes.run(command, environ, seconds=120) == "done\n"


def test_approximate_search_without_faiss(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(od.MissingExtraError, match=r"needs faiss: pip install 'ordiff\[approximate\]'"):
        od.NeighborGraph.build(rng.normal(size=(50, 3)), k=5, method="approximate")


@pytest.mark.parametrize(
    ("m", "n", "installed", "expected"),
    [
        (300, 6, True, "_tree"),
        (300, 7, True, "approximate"),
        (300, 7, False, "_tree"),
        (300, 16, True, "approximate"),
        (300, 16, False, "_all_pairs"),
        (100, 15, True, "_tree"),
        (100, 16, True, "_all_pairs"),
    ],
)
def test_the_search_is_chosen_by_dimension_and_size(m, n, installed, expected, rng, monkeypatch):
    for name in ("_tree", "_all_pairs"):
        monkeypatch.setattr(search, name, lambda *_, name=name: name)
    monkeypatch.setattr(search, "_APPROXIMATE_SIZE", 200)
    monkeypatch.setattr(approximate, "has_faiss", lambda: installed)
    monkeypatch.setattr(approximate, "nearest", lambda *_: ("approximate", 0.99))
    blocks, recall = search.nearest(rng.normal(size=(m, n)), 5, "auto", None, np.arange(m), 0.99)
    assert blocks == expected
    assert recall == (0.99 if expected == "approximate" else 1)


@pytest.mark.parametrize(("n", "expected"), [(7, "approximate"), (16, "_all_pairs")])
def test_all_pairs_are_compared_where_the_lists_are_as_many(n, expected, rng, monkeypatch):
    pytest.importorskip("faiss")
    X = rng.normal(size=(300, n))
    monkeypatch.setattr(search, "_all_pairs", lambda *_: "_all_pairs")
    monkeypatch.setattr(search, "_APPROXIMATE_SIZE", 200)
    blocks, recall = search.nearest(X, 5, "auto", None, np.arange(300), 0.99)
    assert (blocks == "_all_pairs") == (expected == "_all_pairs")
    assert recall == 1 or expected == "approximate"


def test_indices_of_64_bits_change_nothing(rng, monkeypatch):
    X = rng.normal(size=(300, 2))

    def made():
        graph = od.NeighborGraph.build(X, k=60)
        op = od.Kernel(X[:, 0], noise=0.5).operator(graph, 0.02, density="knn")
        steps = op.backward(X, 3), op.forward(np.ones(300) / 300, 3), op.adjoint(X[:, 1])
        return graph.indices.dtype, [op.matrix.toarray(), *steps, od.velocity(op, "symmetric"), *od.local_moments(op)]

    short, expected = made()
    monkeypatch.setattr("ordiff._compiled.csr.index_dtype", lambda largest: np.int64)
    long, found = made()
    assert (short, long) == (np.int32, np.int64)
    for here, there in zip(found, expected, strict=True):
        np.testing.assert_array_equal(here, there)


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
    for ask in (od.NeighborGraph.build(X, k=20).nearest, od.NeighborGraph.build(X, k=20).radius):
        with pytest.raises(od.GraphError, match="needs 30 neighbours per sample, but sample 0 has 20"):
            ask(30)


@pytest.mark.parametrize("ties", [None, 1, 4, 30], ids=["distinct", "coincident", "few values", "many values"])
@pytest.mark.parametrize("m", [2, 3, 5, 60])
def test_radius_is_the_distance_of_the_last(rng, ties, m):
    """Also with many equal distances, and where samples have fewer."""
    X = rng.normal(size=(m, 2)) if ties is None else rng.integers(0, ties, (m, 1)).astype(float)
    D = cdist(X, X)
    for k in {1, 2, m // 2, m - 1} - {0}:
        if k < m:
            graph = od.NeighborGraph.build(X, k=m - 1)
            np.testing.assert_allclose(graph.radius(k), np.sort(D, axis=1)[:, k], rtol=1e-14)
    few = od.NeighborGraph.build(X, radius=0.7)
    for k in (1, 4, m):
        np.testing.assert_array_equal(few.radius(k, pad=True), few.nearest(k, pad=True)[1].max(axis=1))


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
        (np.zeros((5, 2)), {"k": 2, "recall": 0.5}, r"recall must be from 0\.98 to 1; got 0\.5"),
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


# ------------------------------------------------------------------------------- threshold graphs, geodesics


@pytest.mark.parametrize("n", [2, 20])
@pytest.mark.parametrize("rule", ["knn", "and", "or", "cknn"])
@pytest.mark.filterwarnings("ignore:the graph has")
def test_threshold_rules(n, rule, rng):
    X = rng.normal(size=(150, n))
    D = cdist(X, X)
    r = np.sort(D, axis=1)[:, 7]
    threshold = {
        "knn": np.broadcast_to(r[:, None], D.shape),
        "and": np.minimum(r[:, None], r[None, :]),
        "or": np.maximum(r[:, None], r[None, :]),
        "cknn": 1.3 * np.sqrt(np.outer(r, r)),
    }[rule]
    graph = od.threshold_graph(X, k=7, rule=rule, delta=1.3)
    assert_well_formed(graph, X)
    want = threshold * (1 + 1e-12) >= D
    np.testing.assert_array_equal(graph.matrix(np.ones(graph.n_edges)).toarray() > 0, want)
    if rule != "knn":
        assert (want == want.T).all()


@pytest.mark.parametrize("rule", ["knn", "and", "or", "cknn"])
def test_what_joins_a_graph_in_parts(rule, rng):
    X = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(25, 2)) + np.array([9, 0])])
    with pytest.warns(od.OrdiffWarning, match=r"the graph has \d+ parts of .* samples\. The smallest") as told:
        od.threshold_graph(X, k=4, rule=rule)
    value = float(re.search(r"joins them is ([\d.]+?)\.?( |$)", str(told[0].message)).group(1))
    options = {"k": 4, "delta": value} if rule == "cknn" else {"k": int(value)}
    assert od.threshold_graph(X, rule=rule, **options).n_components == 1
    options = {"k": 4, "delta": value - 0.002} if rule == "cknn" else {"k": int(value) - 1}
    with pytest.warns(od.OrdiffWarning, match="2 parts of 60 and 25 samples"):
        od.threshold_graph(X, rule=rule, **options)


def test_parts_too_far_apart_to_join(rng, monkeypatch):
    monkeypatch.setattr("ordiff.graph.threshold._MOST_EDGES", 2000)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 50])
    with pytest.warns(od.OrdiffWarning, match="No k joins them within 10 neighbours"):
        od.threshold_graph(X, k=5, rule="or")


def test_a_symmetric_radius_graph_on_a_grid():
    """Distances that tie with the radius are all in or all out, whatever the rounding of the search."""
    a = np.arange(15) * 0.1
    graph = od.NeighborGraph.build(np.stack(np.meshgrid(a, a), -1).reshape(-1, 2), radius=0.5)
    M = graph.matrix(np.ones(graph.n_edges))
    assert abs(M - M.T).sum() == 0


def test_exact_search_does_not_mind_an_offset(rng):
    X = rng.normal(size=(300, 20))
    assert rows(od.NeighborGraph.build(X + 1e7, k=10)) == rows(od.NeighborGraph.build((X + 1e7) - 1e7, k=10))


def test_geodesics_against_dense_shortest_paths(rng):
    from scipy.sparse.csgraph import shortest_path

    X = np.repeat(rng.normal(size=(60, 2)), 2, axis=0)  # with coincident points, which are edges of length 0
    graph = od.NeighborGraph.build(X, k=12)
    lengths = graph.matrix(np.sqrt(graph.sqdist)).toarray()
    lengths[lengths == 0] = np.inf
    coincide = cdist(X, X) == 0
    lengths[coincide] = 1e-6  # less would be no edge to the dense routine
    want = shortest_path(np.minimum(lengths, lengths.T), method="D")
    np.testing.assert_allclose(graph.geodesic(7), want[7], atol=1e-4)
    np.testing.assert_allclose(graph.geodesic([3, 9], [1, 3]), 0.25 * want[3] + 0.75 * want[9], atol=1e-4)


def test_every_kind_of_start(rng):
    X = rng.normal(size=(100, 2))
    graph = od.threshold_graph(X, k=12)
    want = graph.geodesic(17)
    mass = np.zeros(100)
    mass[17] = 2.0
    for start in (17, [17], np.int64(17), X[17], X[17] + 1e-9, mass, mass.astype(int)):
        np.testing.assert_array_equal(od.geodesic_order(graph, start), want)
    np.testing.assert_allclose(od.geodesic_order(graph, [1, 2, 3]), graph.geodesic([1, 2, 3]))
    with pytest.raises(ValueError, match=r"may be a point or 2 samples.*\[5.0, 5.0\]"):
        od.geodesic_order(graph, [5, 5])
    with pytest.raises(ValueError, match=r"more than ten times the reach"):
        od.geodesic_order(graph, [500.0, 0.0])
    with pytest.raises(ValueError, match=r"sources must be 0..99, there are 100 samples; got 100"):
        od.geodesic_order(graph, 100)
    with pytest.raises(ValueError, match="weights must not be negative"):
        od.geodesic_order(graph, -mass)


def test_samples_out_of_reach_are_named(rng):
    X = np.concatenate([rng.normal(size=(50, 2)), rng.normal(size=(5, 2)) + 100])
    graph = od.NeighborGraph.build(X, k=4)
    with pytest.raises(
        od.GraphError, match=r"5 of 55 samples cannot be reached .* index 50: the graph has 2 parts of 50 and 5"
    ):
        graph.geodesic(0)


def roll(m, rng):
    """A Swiss roll of m random samples, and the arclength of each from its inner end."""
    t = np.sort(rng.uniform(1.5 * np.pi, 4.5 * np.pi, m))
    length = lambda s: 0.5 * (s * np.sqrt(1 + s**2) + np.arcsinh(s))  # noqa: E731
    return np.stack([t * np.cos(t), rng.uniform(0, 3, m), t * np.sin(t)], 1), length(t) - length(t[0])


def test_geodesic_order_is_the_arclength(rng):
    """Within 2% at 5,000 samples, on the spiral and a Swiss roll: along the edge at which the start is."""
    X, s = roll(5000, rng)
    X[0, 1] = 1.5
    l = od.geodesic_order(od.threshold_graph(X, k=30), X[0])
    along = (abs(X[:, 1] - 1.5) < 0.2) & (s > 0.2 * s.max())
    assert abs(l[along] / s[along] - 1).max() < 0.02

    u = np.sqrt(rng.uniform(1, 4, 5000))
    v = rng.uniform(0, 1, 5000)
    u[0], v[0] = 1.0, 0.5
    X = np.stack([u * np.cos(2 * np.pi * u), v, u * np.sin(2 * np.pi * u)], 1)
    angle = 2 * np.pi * u
    s = (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / (4 * np.pi)
    s = s - s[0]
    l = od.geodesic_order(od.threshold_graph(X, k=30), 0)
    along = (abs(v - 0.5) < 0.1) & (s > 0.2 * s.max())
    assert abs(l[along] / s[along] - 1).max() < 0.02


PATTERN = {"indptr": [0, 2, 5, 7], "indices": [0, 1, 0, 1, 2, 1, 2], "sqdist": [0, 1, 1, 0, 4, 4, 0.0]}


def test_a_graph_of_your_own_arrays():
    graph = od.NeighborGraph(**PATTERN, X=np.arange(3.0)[:, None])
    assert graph.n_edges == 7
    np.testing.assert_array_equal(graph.radius(1), [1, 1, 2])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"indptr": [0, 2, 5]}, "indptr must go from 0"),
        ({"indptr": np.empty(0, int)}, "no entries"),
        ({"indptr": [0, 5, 2, 7]}, "indptr must ascend"),
        ({"indptr": [-4, 2, 5, 7]}, "indptr must go from 0"),
        ({"indptr": [0.0, 2.0, 5.0, 7.0]}, "whole numbers"),
        ({"indices": [0, 1, 0, 1, 2, -1, 2]}, r"0\.\.2"),
        ({"indices": [0, 1, 0, 1, 3, 1, 2]}, r"0\.\.2"),
        ({"indices": [1, 0, 0, 1, 2, 1, 2]}, "must ascend"),
        ({"indices": [0, 1, 0, 0, 2, 1, 2]}, "must ascend"),
        ({"indices": [0, 1, 0, 1, 2, 0, 1]}, "sample 2 is not"),
        ({"sqdist": [0, 1, 1]}, r"shape \(7,\)"),
        ({"sqdist": [0, 1, 1, 0, np.nan, 4, 0]}, "NaN"),
        ({"sqdist": [0, 1, 1, 0, -4, 4, 0]}, "negative"),
        ({"sqdist": [0, 1, 1, 3, 4, 4, 0]}, "to itself"),
        ({"X": np.zeros((2, 1))}, "2 points"),
    ],
)
def test_arrays_that_are_no_graph_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        od.NeighborGraph(**PATTERN | changes)


@pytest.mark.parametrize("k", [0, -1, np.nan, 1.5, "2", None, True])
def test_a_radius_of_no_neighbour_is_refused(k, rng):
    graph = od.NeighborGraph.build(rng.normal(size=(20, 2)), k=3)
    for ask in (graph.radius, graph.nearest):
        for pad in (False, True):
            with pytest.raises(ValueError, match="k must be"):
                ask(k, pad=pad)
    with pytest.raises(ValueError, match="k must be at most"):
        graph.nearest(10**9, pad=True)


@pytest.mark.parametrize("distance", [1e160, 1e-170])
def test_distances_without_a_square_are_refused(distance):
    with pytest.raises(ValueError, match="unit of length"):
        od.NeighborGraph.from_distances(np.array([[0, distance], [distance, 0]]))


def test_unsound_sparse_distances_are_refused():
    D = sp.csr_array(np.array([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]]))
    D.indices[0] = -1
    with pytest.raises(ValueError, match="not a sound sparse matrix"):
        od.NeighborGraph.from_distances(D)
    with pytest.raises(ValueError, match="complex"):
        od.NeighborGraph.from_distances(sp.csr_array(np.array([[0, 1j], [1j, 0]])))
