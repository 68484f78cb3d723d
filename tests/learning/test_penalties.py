"""Penalties against closed forms, and their derivatives against differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ive

import ordiff as od
from ordiff.learning.penalties import ActionPenalty, GradientPenalty, LaplacianPenalty, RelativeRoughness


def plane(rng, m=150):
    return od.NeighborGraph.build(rng.uniform(size=(m, 2)), k=20)


def circle(m=200):
    theta = 2 * np.pi * np.arange(m) / m
    return theta, od.NeighborGraph.build(np.stack([np.cos(theta), np.sin(theta)], 1), k=m - 1)


def difference(value, x, direction, h):
    """dR(x + t direction)/dt at 0, to fourth order."""
    at = lambda t: value(x + t * direction)  # noqa: E731
    return (8 * (at(h) - at(-h)) - at(2 * h) + at(-2 * h)) / (12 * h)


def value_of(R):
    return lambda f: R.value_and_gradient(f)[0]


def quadratics(rng, m=150):
    graph = plane(rng, m)
    volumes = rng.uniform(0.5, 2, m)
    tangents = od.TangentSpaces.fit(graph, k=12, dimension=2)
    operator = od.Kernel().operator(graph, 0.01, density="knn")
    yield GradientPenalty(tangents)
    yield GradientPenalty(tangents, volumes)
    yield LaplacianPenalty(operator)
    yield LaplacianPenalty(operator, volumes)


def test_derivatives_of_quadratics_and_their_matrices(rng):
    for R in quadratics(rng):
        f, v = rng.normal(size=(2, 150))
        value, gradient = R.value_and_gradient(f)
        assert gradient @ v == pytest.approx(difference(value_of(R), f, v, 1e-2), rel=1e-6)
        assert f @ (R.matrix @ f) == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(2 * (R.matrix @ f), gradient, rtol=1e-9, atol=1e-12 * abs(gradient).max())
        assert abs(R.matrix - R.matrix.T).max() <= 1e-12 * abs(R.matrix).max()
        assert R.matrix is R.matrix


def test_gradient_is_that_of_the_tangent_spaces(rng):
    tangents = od.TangentSpaces.fit(plane(rng), k=12, variance=0.7)  # the dimension varies from sample to sample
    assert np.ptp(tangents.dimensions) > 0
    f = rng.normal(size=150)
    w = rng.uniform(size=150)
    square = tangents.gradient_norm(f) ** 2
    assert GradientPenalty(tangents).value_and_gradient(f)[0] == pytest.approx(square.mean(), rel=1e-10)
    assert GradientPenalty(tangents, w).value_and_gradient(f)[0] == pytest.approx(w @ square, rel=1e-10)


def test_gradient_of_a_linear_function_is_its_slope():
    x, y = (a.ravel() for a in np.meshgrid(np.linspace(0, 1, 12), np.linspace(0, 2, 15)))
    X = np.stack([x, y, 0.3 * x - 0.4 * y], 1)
    tangents = od.TangentSpaces.fit(od.NeighborGraph.build(X, k=20), k=20, dimension=2)
    # in the tilted plane a function of x alone has |∇f|² = g^{xx}
    metric = np.array([[1 + 0.09, -0.12], [-0.12, 1 + 0.16]])
    value, _ = GradientPenalty(tangents).value_and_gradient(3 * x)
    assert value == pytest.approx(9 * np.linalg.inv(metric)[0, 0], rel=1e-9)
    area = np.full(x.size, np.sqrt(np.linalg.det(metric)) * 2 / x.size)
    assert GradientPenalty(tangents, area).value_and_gradient(3 * x)[0] == pytest.approx(value * area.sum(), rel=1e-9)


def test_a_sample_without_neighbours_costs_nothing():
    X = np.concatenate([np.linspace(0, 1, 30), [50.0]])[:, None]
    tangents = od.TangentSpaces.fit(od.NeighborGraph.build(X, radius=0.2), k=4)
    assert GradientPenalty(tangents).value_and_gradient(np.eye(31)[30])[0] == 0
    assert GradientPenalty(tangents).value_and_gradient(2 * X[:, 0])[0] == pytest.approx(4 * 30 / 31)


def test_laplacian_of_a_wave_on_the_circle():
    # P e^{ikθ} = I_k(1/ε)/I_0(1/ε) e^{ikθ}
    theta, graph = circle()
    eps = 0.02
    R = LaplacianPenalty(od.Kernel().operator(graph, eps))
    for k in (1, 3):
        value, _ = R.value_and_gradient(np.sin(k * theta))
        rate = (ive(k, 1 / eps) / ive(0, 1 / eps) - 1) / eps
        assert value == pytest.approx(0.5 * rate**2, rel=1e-10)
        assert rate == pytest.approx(-0.5 * k**2, rel=0.1)


def test_laplacian_of_a_square_on_the_line():
    # ½(x²)'' = 1, and a gaussian step gives it exactly, away from the ends
    x = np.linspace(-1, 1, 201)
    graph = od.NeighborGraph.build(x[:, None], k=200)
    inside = (abs(x) < 0.5) / np.count_nonzero(abs(x) < 0.5)
    R = LaplacianPenalty(od.Kernel().operator(graph, 0.001), inside)
    assert R.value_and_gradient(x**2)[0] == pytest.approx(1.0, abs=1e-6)
    assert R.value_and_gradient(3 * x)[0] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("fields", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_action_and_its_derivatives(rng, fields, weighted):
    graph = plane(rng)
    m = graph.n_points
    w = rng.uniform(size=m) if weighted else None
    tangents = od.TangentSpaces.fit(graph, k=12, dimension=2)
    R = ActionPenalty(tangents, w)
    size = m if fields else None
    l, rho, slope = rng.normal(size=m), rng.uniform(0.5, 1.5, size), rng.uniform(0.5, 1.5, size)
    value, (dl, drho, dslope) = R.value_and_gradient(l, rho, slope)
    each = (slope * tangents.gradient_norm(l) / rho) ** 2
    assert value == pytest.approx(np.average(each) if w is None else w @ each, rel=1e-10)
    v, u = rng.normal(size=m), rng.normal(size=size)
    assert np.ndim(drho) == np.ndim(dslope) == (1 if fields else 0)
    at = lambda *a: R.value_and_gradient(*a)[0]  # noqa: E731
    assert dl @ v == pytest.approx(difference(lambda l: at(l, rho, slope), l, v, 1e-2), rel=1e-6)
    assert np.sum(drho * u) == pytest.approx(difference(lambda r: at(l, r, slope), rho, u, 1e-3), rel=1e-6)
    assert np.sum(dslope * u) == pytest.approx(difference(lambda s: at(l, rho, s), slope, u, 1e-3), rel=1e-6)


def test_action_of_a_straight_drift(rng):
    graph = plane(rng)
    X = graph.X
    R = ActionPenalty(od.TangentSpaces.fit(graph, k=12, dimension=2))
    value, _ = R.value_and_gradient(3 * X[:, 0] - 4 * X[:, 1], 2.0, 0.5)
    assert value == pytest.approx((0.5 * 5 / 2) ** 2)


def test_weights_are_checked(rng):
    tangents = od.TangentSpaces.fit(plane(rng), k=12)
    with pytest.raises(ValueError, match="weights must not be negative"):
        GradientPenalty(tangents, -np.ones(150))
    with pytest.raises(ValueError, match=r"weights must have one value per sample, shape \(150,\)"):
        ActionPenalty(tangents, np.ones(3))


def test_relative_roughness_is_differentiated_exactly_and_has_no_unit(rng):
    D, at = rng.standard_normal((30, 6)), rng.integers(0, 10, 30)
    D[:, :2] = 0.0
    penalty = RelativeRoughness(D, at, n_free=2)
    a, rho = rng.standard_normal(6), rng.uniform(0.5, 2.0, 10)
    value, by_a, by_noise = penalty.value_and_gradient(a, rho)
    h = 1e-6
    for k in range(6):
        e = h * np.eye(6)[k]
        slope = (penalty.value_and_gradient(a + e, rho)[0] - penalty.value_and_gradient(a - e, rho)[0]) / (2 * h)
        assert by_a[k] == pytest.approx(slope, rel=1e-6, abs=1e-7)
    for i in range(10):
        e = h * np.eye(10)[i]
        slope = (penalty.value_and_gradient(a, rho + e)[0] - penalty.value_and_gradient(a, rho - e)[0]) / (2 * h)
        assert by_noise[i] == pytest.approx(slope, rel=1e-6, abs=1e-7)
    assert penalty.value_and_gradient(9 * a, 3 * rho)[0] == pytest.approx(value, rel=1e-12)
    J, by_b = penalty.jacobian(a, rho, np.eye(10))
    np.testing.assert_allclose(2 * J.T @ (J @ a), by_a, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(2 * by_b.T @ (J @ a), by_noise, rtol=1e-12, atol=1e-12)
    half_log_det = 0.5 * np.linalg.slogdet(J[:, 2:].T @ J[:, 2:])[1]
    assert penalty.log_volume(rho) == pytest.approx(half_log_det, rel=1e-12)
