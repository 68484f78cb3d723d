"""Every combination of the parts: against a naive dense evaluation, and the properties that all must have."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import ordiff as od
from ordiff.kernel.terms import PatternRows
from reference import COMBINATIONS, METRICS, Surface, make_kernel, naive_operator

# small graphs with wide steps: what is tested is the arithmetic
pytestmark = pytest.mark.filterwarnings("ignore:the graph is too small", "ignore:eps = ")

EPS, ALPHA = 0.4, 0.7


@pytest.fixture(scope="module")
def surface():
    return Surface()


@pytest.fixture(scope="module")
def graph(surface):
    graph = od.NeighborGraph.build(surface.X, k=surface.m - 1)
    assert (graph.layout.order != np.arange(surface.m)).any()  # operators are sorted inside
    return graph


@pytest.fixture(scope="module")
def own_order(surface, graph):
    """The samples in the order of their layout, which then leaves them as they are."""
    moved = surface.moved(np.eye(3), np.zeros(3), graph.layout.order)
    in_order = od.NeighborGraph.build(moved.X, k=surface.m - 1)
    np.testing.assert_array_equal(in_order.layout.order, np.arange(surface.m))
    return moved, in_order


@pytest.mark.parametrize("parts", COMBINATIONS, ids="-".join)
def test_every_combination(surface, graph, own_order, parts):
    expected = naive_operator(surface, *parts, EPS, ALPHA)
    check_combination(surface, graph, parts, expected)
    order = graph.layout.order
    check_combination(*own_order, parts, expected[np.ix_(order, order)])


def check_combination(surface, graph, parts, expected):
    op = make_kernel(surface, *parts).operator(graph, EPS, density=surface.q, alpha=ALPHA)
    P = op.matrix.toarray()
    np.testing.assert_allclose(P, expected, rtol=1e-9, atol=1e-12)
    assert abs(P.sum(axis=1) - 1).max() < 1e-12
    assert (P >= 0).all()
    assert (op.generator(np.full(surface.m, 7.0)) == 0).all()

    # a second ordering that does not move changes nothing
    still = od.Ordering(np.cos(surface.l), speed=0.0, gradient=surface.gradients[2])
    other = make_kernel(surface, *parts, extra=[still]).operator(graph, EPS, density=surface.q, alpha=ALPHA)
    np.testing.assert_allclose(other.matrix.toarray(), P, rtol=1e-12, atol=1e-15)


DENSITIES = {
    "uniform": lambda s: {},
    "given": lambda s: {"density": s.q, "alpha": ALPHA},
    "knn": lambda s: {"density": "knn"},
    "not removed": lambda s: {"density": s.q, "alpha": 0.0},
    "weight": lambda s: {"density": s.q, "weight": s.noise},
}


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("metric", METRICS)
def test_permutation_and_rigid_motion(surface, graph, rng, metric, density):
    """Of every combination with this metric."""
    order = rng.permutation(surface.m)
    moved = surface.moved(Rotation.from_rotvec([0.3, -1.1, 0.7]).as_matrix(), np.array([3.0, -2.0, 1.0]), order)
    other_graph = od.NeighborGraph.build(moved.X, k=surface.m - 1)
    options, other_options = DENSITIES[density](surface), DENSITIES[density](moved)
    for parts in COMBINATIONS:
        if parts[1] == metric:
            P = make_kernel(surface, *parts).operator(graph, EPS, **options).matrix.toarray()
            Q = make_kernel(moved, *parts).operator(other_graph, EPS, **other_options).matrix.toarray()
            np.testing.assert_allclose(Q, P[np.ix_(order, order)], rtol=1e-9, atol=1e-12, err_msg="-".join(parts))


@pytest.mark.parametrize("parts", COMBINATIONS[::11], ids="-".join)
def test_a_sparse_graph_gives_the_dense_kernel_restricted(surface, parts):
    graph = od.NeighborGraph.build(surface.X, k=12)
    sparse = make_kernel(surface, *parts).operator(graph, EPS, density=surface.q, alpha=ALPHA).matrix.toarray()
    dense = naive_operator(surface, *parts, EPS, ALPHA)
    kept = np.zeros_like(dense)
    kept[graph.sources(), graph.indices] = 1.0
    dense *= kept
    np.testing.assert_allclose(sparse, dense / dense.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-12)


def test_the_build_does_not_depend_on_blocks_or_threads(surface, monkeypatch, set_threads):
    graph = od.NeighborGraph.build(surface.X, k=20)
    kernel = make_kernel(surface, "several", "tangent", "beta", "gaussian")
    set_threads(1)
    whole = kernel.operator(graph, EPS).matrix.data.copy()
    monkeypatch.setattr("ordiff.kernel.terms._BLOCK", 50)
    monkeypatch.setattr("ordiff._parallel._PIECE", 100)
    monkeypatch.setattr("ordiff._parallel._SHARED", 100)
    set_threads(3)
    assert len(PatternRows.of(graph).blocks()) > 5
    np.testing.assert_array_equal(kernel.operator(graph, EPS).matrix.data, whole)
