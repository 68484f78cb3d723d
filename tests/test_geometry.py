from __future__ import annotations

import numpy as np
import pytest

import ordiff as od


def sphere(m, rng):
    X = rng.normal(size=(m, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_dimension(rng):
    curve = np.zeros((500, 50))
    t = np.sort(rng.uniform(0, 6, 500))
    curve[:, 0], curve[:, 1], curve[:, 2] = np.cos(t), np.sin(t), t
    for X, d in [
        (sphere(2000, rng), 2),
        (od.datasets.torus(60).X, 2),
        (od.datasets.spiral(100).X, 2),
        (curve + 0.001 * rng.normal(size=curve.shape), 1),
        (rng.normal(size=(2000, 3)), 3),
    ]:
        assert od.TangentSpaces.fit(od.NeighborGraph.build(X, k=20)).dimension == d


def test_gradient_on_the_sphere(rng):
    """∇z is the tangent part of e_z. The error of local PCA falls as the neighbourhoods shrink."""
    errors = []
    for m in (1000, 4000):
        X = sphere(m, rng)
        tangents = od.TangentSpaces.fit(od.NeighborGraph.build(X, k=20))
        truth = np.array([0, 0, 1]) - X[:, 2:] * X
        errors.append(np.sqrt(np.mean((tangents.gradient(X[:, 2]) - truth) ** 2)))
        np.testing.assert_allclose(tangents.gradient_norm(X[:, 2]), np.linalg.norm(tangents.gradient(X[:, 2]), axis=1))
    assert errors[1] < 0.6 * errors[0]
    assert errors[1] < 0.03


def test_gradients_of_linear_functions_are_exact(rng):
    X = rng.normal(size=(300, 3))
    tangents = od.TangentSpaces.fit(od.NeighborGraph.build(X, k=25))
    slope = np.array([1.0, -2.0, 0.5])
    full = tangents.dimensions == 3
    assert full.mean() > 0.6
    np.testing.assert_allclose(tangents.gradient(X @ slope)[full], np.tile(slope, (full.sum(), 1)), atol=1e-10)
    basis = tangents.basis(0)
    np.testing.assert_allclose(basis.T @ basis, np.eye(tangents.dimensions[0]), atol=1e-12)


def test_knn_density_is_unbiased_on_known_densities(rng):
    square = rng.uniform(0, 2, (4000, 2))
    inner = (abs(square - 1) < 0.8).all(axis=1)
    q = od.knn_density(od.NeighborGraph.build(square, k=32), k=32, dimension=2)
    assert q[inner].mean() == pytest.approx(0.25, rel=0.03)
    q = od.knn_density(od.NeighborGraph.build(sphere(4000, rng), k=32), k=32)
    assert q.mean() == pytest.approx(1 / (4 * np.pi), rel=0.03)


def test_balanced_density_makes_sums_into_integrals(rng):
    """Σ_i f(x_i)/(m q_i) = ∫f to far better than the 1/√m of random samples; the values are a density."""
    m = 4000
    theta = rng.uniform(0, 2 * np.pi, 3 * m)
    theta = theta[rng.uniform(0, 1.5, 3 * m) < 1 + 0.5 * np.sin(theta)][:m]
    phi = rng.uniform(0, 2 * np.pi, m)
    X = np.stack([np.sin(theta), np.cos(theta), np.sin(phi), np.cos(phi)], 1)
    graph = od.NeighborGraph.build(X, k=64)
    truth = (1 + 0.5 * np.sin(theta)) / (4 * np.pi**2)
    f = np.stack([np.ones(m), np.cos(theta) ** 2, np.sin(theta) * np.sin(phi) + 1, np.cos(2 * phi)], 1)
    integrals = 4 * np.pi**2 * np.array([1, 0.5, 1, 0])
    q = od.balanced_density(graph)
    assert (1 / q).mean() == pytest.approx(4 * np.pi**2, rel=0.01)
    errors = {}
    for name, estimate in (("balanced", q), ("knn", od.knn_density(graph, 12)), ("exact", truth)):
        errors[name] = abs(np.average(f, axis=0, weights=1 / estimate) * 4 * np.pi**2 - integrals).max()
    assert errors["balanced"] < 0.2 * min(errors["knn"], errors["exact"])


def test_length_scale_and_smooth(rng):
    X = rng.normal(size=(200, 2))
    graph = od.NeighborGraph.build(X, k=40)
    distances = graph.nearest(16)[1]
    np.testing.assert_allclose(od.length_scale(graph, 16), distances[:, -1])
    np.testing.assert_allclose(od.length_scale(graph, 16, "geometric"), np.exp(np.log(distances).mean(axis=1)))
    np.testing.assert_allclose(od.smooth(graph, np.full(200, 3.0)), 3.0)
    i = 11
    row = slice(graph.indptr[i], graph.indptr[i + 1])
    w = np.exp(-graph.sqdist[row] / (2 * od.length_scale(graph, 35)[i] ** 2))
    f = rng.normal(size=(200, 2))
    np.testing.assert_allclose(od.smooth(graph, f)[i], w @ f[graph.indices[row]] / w.sum())


def test_errors(rng):
    graph = od.NeighborGraph.build(rng.normal(size=(50, 2)), k=10)
    with pytest.raises(ValueError, match="needs 16 neighbours per sample"):
        od.knn_density(graph)
    with pytest.raises(ValueError, match="variance must be below 1"):
        od.TangentSpaces.fit(graph, k=5, variance=1.5)
    with pytest.raises(ValueError, match="kind must be one of 'radius', 'geometric'"):
        od.length_scale(graph, 5, "mean")
