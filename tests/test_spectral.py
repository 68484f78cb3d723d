from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

import ordiff as od
from ordiff.spectral import smooth_basis


def test_circle_eigenvalues_tend_to_minus_half_k_squared():
    theta = 2 * np.pi * np.arange(300) / 300
    graph = od.NeighborGraph.build(np.stack([np.cos(theta), np.sin(theta)], 1), k=299)
    want = -0.5 * np.array([0, 1, 1, 4, 4, 9, 9])
    errors = []
    for eps in (0.01, 0.005):
        values, functions = od.eigenbasis(graph, eps, 7)
        errors.append(abs(values - want).max())
        assert abs(functions[:, 0] - functions[0, 0]).max() < 1e-9
        np.testing.assert_allclose(functions.T @ functions / 300, np.eye(7), atol=1e-9)
    assert errors[1] < 0.12
    assert np.log2(errors[0] / errors[1]) == pytest.approx(1.0, abs=0.1)


def test_eigenpairs_are_those_of_the_operator(rng):
    X = rng.normal(size=(200, 2))
    graph = od.NeighborGraph.build(X, radius=2.5)
    q = rng.uniform(0.5, 2, 200)
    values, functions = od.eigenbasis(graph, 0.1, 6, density=q)
    op = od.Kernel().operator(graph, 0.1, density=q)
    np.testing.assert_allclose(op.generator(functions), values * functions, atol=1e-9)
    assert (od.eigenbasis(graph, 0.1, 6, density=q).functions == functions).all()
    # orthonormal under the weights that P conserves
    K = np.exp(-graph.sqdist / 0.2) / q[graph.sources()] / q[graph.indices]
    conserved = np.bincount(graph.sources(), K)
    conserved /= conserved.sum()
    np.testing.assert_allclose(functions.T @ (conserved[:, None] * functions), np.eye(6), atol=1e-9)


def test_a_graph_in_parts_is_told(rng):
    X = np.concatenate([rng.normal(size=(50, 2)), rng.normal(size=(50, 2)) + 50])
    with pytest.warns(od.OrdiffWarning, match="the graph has 2 parts"):
        values, _ = od.eigenbasis(od.NeighborGraph.build(X, k=20), 0.1, 4)
    assert abs(values[1]) < 1e-5


def test_a_one_sided_graph_is_made_symmetric(rng):
    graph = od.NeighborGraph.build(rng.normal(size=(200, 2)), k=10)
    values, _ = od.eigenbasis(graph, 0.1, 4)
    assert values[0] == pytest.approx(0.0, abs=1e-9)
    assert (np.diff(values) < 1e-12).all()


# ------------------------------------------------------------------------------------------- smooth functions


def even(candidates, spacing):
    """Points no two of which are nearer than the spacing."""
    tree, free, kept = cKDTree(candidates), np.ones(len(candidates), bool), []
    for i, point in enumerate(candidates):
        if free[i]:
            kept.append(i)
            free[tree.query_ball_point(point, spacing)] = False
    return candidates[kept]


def square(rng, spacing=0.08):
    return even(rng.uniform(0, np.pi, (20_000, 2)), spacing)


def circle(theta):
    return np.stack([np.cos(theta), np.sin(theta)], axis=1)


WAVES = np.sort([k**2 + l**2 for k in range(30) for l in range(30)])


def test_smooth_functions_of_a_square(rng):
    X = square(rng)
    graph = od.NeighborGraph.build(X, radius=0.5)
    values, functions = smooth_basis(graph, 80)
    assert values[0] == 0
    np.testing.assert_allclose(values[1:11], WAVES[1:11], rtol=0.05)
    assert abs(values[40:80] / WAVES[40:80] - 1).mean() < 0.05  # the finer ones too, by the heat flow
    np.testing.assert_allclose(functions.T @ functions / len(X), np.eye(80), atol=1e-10)
    assert (functions[:, 0] == 1).all()
    assert (functions.max(axis=0) >= -functions.min(axis=0)).all()
    # cosines span the first of them
    x, y = X.T
    for wave in (np.cos(x), np.cos(y), np.cos(x) * np.cos(y)):
        rest = wave - functions[:, :5] @ (functions[:, :5].T @ wave) / len(X)
        assert np.std(rest) < 0.05 * np.std(wave)
    again = smooth_basis(graph, 80)
    assert (again.functions == functions).all()
    assert (again.values == values).all()


def test_smooth_functions_on_a_circle_and_a_sphere(rng):
    graph = od.NeighborGraph.build(circle(2 * np.pi * np.arange(200) / 200), k=60)
    np.testing.assert_allclose(smooth_basis(graph, 9).values, [0, 1, 1, 4, 4, 9, 9, 16, 16], rtol=1e-3)
    X = rng.normal(size=(20_000, 3))
    X = even(X / np.linalg.norm(X, axis=1, keepdims=True), 0.1)
    values, _ = smooth_basis(od.NeighborGraph.build(X, radius=0.6), 16)
    np.testing.assert_allclose(values, np.repeat([0, 2, 6, 12], [1, 3, 5, 7]), rtol=0.06)
    assert values[1:4].mean() == pytest.approx(2, rel=0.02)
    assert values[4:9].mean() == pytest.approx(6, rel=0.02)


def test_volumes_take_the_density_out(rng):
    # twice as many states on one half of the circle, each of half the volume
    theta = np.concatenate([np.linspace(0, np.pi, 201)[:-1], np.linspace(np.pi, 2 * np.pi, 101)[:-1]])
    theta += rng.uniform(-1e-3, 1e-3, 300)  # no ties
    graph = od.NeighborGraph.build(circle(theta), k=60)
    v = np.repeat([1.0, 2.0], [200, 100])
    values, functions = smooth_basis(graph, 7, v)
    np.testing.assert_allclose(values, [0, 1, 1, 4, 4, 9, 9], rtol=0.02)
    np.testing.assert_allclose(functions.T @ (v[:, None] * functions), v.sum() * np.eye(7), atol=1e-8)
    # units: the scale of the volumes does not matter, that of lengths enters by its square
    wide = smooth_basis(od.NeighborGraph.build(8 * circle(theta), k=60), 7, 3 * v)
    np.testing.assert_allclose(wide.values * 64, values, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(wide.functions, functions, atol=1e-6)


@pytest.mark.parametrize("away", [[[20.0, 20.0]], [[3.5, 1.5]], [[9.0, 9.0], [9.0, 9.05], [30.0, -9.0]]])
def test_outliers_take_no_function_for_themselves(rng, away):
    X = square(rng)
    graph = od.NeighborGraph.build(X, radius=0.5)
    Y = np.concatenate([X, away])
    v = np.ones(len(Y))
    v[len(X) :] = 5
    plain = smooth_basis(graph, 60)
    values, functions = smooth_basis(od.NeighborGraph.build(Y, radius=0.5), 60, v, dimension=2)
    np.testing.assert_allclose(values, plain.values, rtol=0.02)
    np.testing.assert_allclose(functions.T @ (v[:, None] * functions), v.sum() * np.eye(60), atol=1e-8 * v.sum())
    inside = abs(functions[: len(X)]).max(axis=0)
    assert (abs(functions[len(X) :]) <= inside).all()
    assert abs(functions).max() < 1.2 * abs(plain.functions).max()
    # they hold what the nearest states hold
    near = cKDTree(X).query(away, 4)[1]
    for lone, lenders in zip(functions[len(X) :], functions[near], strict=True):
        assert ((lone <= lenders.max(axis=0) + 1e-9) & (lone >= lenders.min(axis=0) - 1e-9)).all()


def test_smooth_functions_of_two_parts(rng):
    X = square(rng, 0.2)
    graph = od.NeighborGraph.build(np.concatenate([X, X + 50]), radius=1.0)
    with pytest.warns(od.OrdiffWarning, match="the graph has 2 parts"):
        values, functions = smooth_basis(graph, 10, dimension=2)
    assert (values[:2] == 0).all()
    assert values[2] > 0.5
    assert (functions[:, 0] == 1).all()
    np.testing.assert_allclose(abs(functions[:, 1]), 1.0, atol=1e-9)


def test_a_graph_of_distances_needs_no_coordinates():
    D = od.NeighborGraph.build(circle(2 * np.pi * np.arange(200) / 200), k=60)
    bare = od.NeighborGraph.from_distances(D.matrix(np.sqrt(D.sqdist)))
    got = smooth_basis(bare, 5, dimension=1).values
    np.testing.assert_allclose(got, smooth_basis(D, 5, dimension=1).values, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(smooth_basis(bare, 5, bandwidth=0.05).values, [0, 1, 1, 4, 4], rtol=0.01)
    with pytest.raises(od.GraphError, match="needs the coordinates"):
        smooth_basis(bare, 5)


def test_inputs_of_smooth_basis_are_checked(rng):
    X = square(rng, 0.2)
    graph = od.NeighborGraph.build(X, radius=1.0)
    with pytest.raises(ValueError, match="n_functions must be at most"):
        smooth_basis(graph, len(X))
    with pytest.raises(ValueError, match="volumes must be positive"):
        smooth_basis(graph, 5, np.zeros(len(X)))
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        smooth_basis(graph, 5, bandwidth=-1.0)
    with pytest.raises(ValueError, match="bandwidth must be one of 'self-tuning'"):
        od.eigenbasis(graph, 0.1, 5, bandwidth="wide")


def test_all_functions_of_few_states():
    graph = od.NeighborGraph.build(np.linspace(0, 1, 30)[:, None], k=12)
    values, functions = smooth_basis(graph, 29)
    assert (np.diff(values) > 0).all()
    np.testing.assert_allclose(functions.T @ functions / 30, np.eye(29), atol=1e-10)


# ------------------------------------------------------------------------------------------- own bandwidths


def test_self_tuning_eigenvalues_are_in_real_units():
    # states four times as dense on one side: q ∝ 1/spacing
    u = np.linspace(0, 1, 401)[:-1]
    theta = 2 * np.pi * u + 0.6 * np.sin(2 * np.pi * u)
    q = 1 / (1 + 0.6 * np.cos(2 * np.pi * u))
    graph = od.NeighborGraph.build(circle(theta), k=150)
    want = -0.5 * np.array([0, 1, 1, 4, 4, 9, 9])
    errors = []
    for eps in (0.008, 0.004):
        values, functions = od.eigenbasis(graph, eps, 7, q, bandwidth="self-tuning")
        errors.append(abs(values - want).max())
        np.testing.assert_allclose(functions.T @ (functions / q[:, None]), np.sum(1 / q) * np.eye(7), atol=1e-8)
    assert errors[1] < 0.15
    assert np.log2(errors[0] / errors[1]) == pytest.approx(1.0, abs=0.2)
    # lengths of one's own: only their ratios count
    h = 1 / q
    by_lengths = od.eigenbasis(graph, 0.004, 7, q, bandwidth=h)
    np.testing.assert_allclose(by_lengths.values, want, atol=0.15)
    np.testing.assert_allclose(od.eigenbasis(graph, 0.004, 7, q, bandwidth=7 * h).values, by_lengths.values, atol=1e-9)


def test_self_tuning_is_robust_where_the_fixed_kernel_is_not():
    p = od.datasets.nonlinear(1500, 0)
    graph = od.NeighborGraph.build(p.X, k=100)
    q = od.knn_density(graph)
    fixed = od.eigenbasis(graph, 0.03, 60, q)
    tuned = od.eigenbasis(graph, 0.03, 60, q, bandwidth="self-tuning")
    own = lambda basis: np.sum((basis.functions**2).max(axis=0) > 0.5 * (basis.functions**2).sum(axis=0))  # noqa: E731
    assert own(fixed) >= 5  # one sample holds most of a function
    assert own(tuned) == 0

    def rest(basis):
        a = np.linalg.lstsq(basis.functions[:, :40], p.ordering, rcond=None)[0]
        return np.std(p.ordering - basis.functions[:, :40] @ a) / np.std(p.ordering)

    assert rest(tuned) < 0.05
    assert rest(tuned) < 0.5 * rest(fixed)
