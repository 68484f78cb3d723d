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


def circle(m, rng):
    """Angles of density (1 + ½ cos θ)/2π by rejection, the points, and the density."""
    theta = rng.uniform(0, 2 * np.pi, 4 * m)
    theta = theta[rng.uniform(0, 1.5, 4 * m) < 1 + 0.5 * np.cos(theta)][:m]
    return np.stack([np.cos(theta), np.sin(theta)], 1), (1 + 0.5 * np.cos(theta)) / (2 * np.pi)


def relative_error(q, truth):
    return float(np.sqrt(np.mean((q / truth - 1) ** 2)))


def test_knn_density_rate(rng):
    """The relative error is about 1/√k where the density is flat over the ball, on the circle, the sphere and in R²."""
    for k in (16, 64):
        X, truth = circle(8000, rng)
        on_circle = relative_error(od.knn_density(od.NeighborGraph.build(X, k=k), k), truth)
        on_sphere = relative_error(od.knn_density(od.NeighborGraph.build(sphere(8000, rng), k=k), k), 1 / (4 * np.pi))
        X = rng.normal(size=(8000, 2))
        inner = (X**2).sum(axis=1) < 2
        gauss = np.exp(-0.5 * (X**2).sum(axis=1)) / (2 * np.pi)
        on_plane = relative_error(od.knn_density(od.NeighborGraph.build(X, k=k), k)[inner], gauss[inner])
        for error in (on_circle, on_sphere, on_plane):
            assert error == pytest.approx(1 / np.sqrt(k), rel=0.25)


def test_kernel_density_rate(rng):
    """With h ∝ m^(−1/(d+4)) the error falls as m^(−2/(d+4)): by 16^0.4 = 3.0 on the circle."""
    errors = []
    for m, n_runs in ((250, 40), (4000, 3)):
        runs = []
        for _ in range(n_runs):
            X, truth = circle(m, rng)
            h = 0.9 * m**-0.2
            graph = od.NeighborGraph.build(X, radius=4 * h)
            runs.append(relative_error(od.kernel_density(graph, bandwidth=h, dimension=1), truth))
        errors.append(np.mean(runs))
    assert errors[0] / errors[1] == pytest.approx(16**0.4, rel=0.25)
    assert errors[1] < 0.05


def test_sample_point_density_on_known_densities(rng):
    X = rng.normal(size=(5000, 2))
    inner = (X**2).sum(axis=1) < 3
    gauss = np.exp(-0.5 * (X**2).sum(axis=1)) / (2 * np.pi)
    graph = od.NeighborGraph.build(X, k=150)
    assert relative_error(od.kernel_density(graph, k=15)[inner], gauss[inner]) < 0.22
    on_sphere = od.kernel_density(od.NeighborGraph.build(sphere(5000, rng), k=150), k=15)
    assert on_sphere.mean() == pytest.approx(1 / (4 * np.pi), rel=0.05)
    assert relative_error(on_sphere, 1 / (4 * np.pi)) < 0.22
    # the formula, at one sample
    h = od.length_scale(graph, 15)
    row = slice(graph.indptr[5], graph.indptr[6])
    j = graph.indices[row]
    want = np.mean(np.exp(-graph.sqdist[row] / (2 * h[j] ** 2)) / (2 * np.pi * h[j] ** 2)) * len(j) / 5000
    assert od.kernel_density(graph, k=15, dimension=2)[5] == pytest.approx(want, rel=1e-12)


def test_a_graph_too_small_for_a_bandwidth_is_told(rng):
    graph = od.NeighborGraph.build(rng.normal(size=(300, 2)), k=20)
    with pytest.warns(od.OrdiffWarning, match="reaches 1.1 bandwidths at the median sample"):
        od.kernel_density(graph, k=15)


def test_tangent_spaces_do_not_depend_on_batches_and_serve_weak_samples(rng, monkeypatch):
    curve = np.stack([np.linspace(0, 3, 200), np.zeros(200), np.zeros(200)], 1)
    sheet = np.concatenate([rng.uniform(5, 7, (200, 2)), np.zeros((200, 1))], 1)
    graph = od.NeighborGraph.build(np.concatenate([curve, sheet, [[50.0, 0, 0]]]), radius=0.6)
    whole = od.TangentSpaces.fit(graph, k=12)
    monkeypatch.setattr("ordiff.geometry._BATCH_NUMBERS", 12 * 3 * 50)
    parts = od.TangentSpaces.fit(graph, k=12)
    np.testing.assert_allclose(abs(whole.axes), abs(parts.axes), atol=1e-9)
    np.testing.assert_array_equal(whole.dimensions, parts.dimensions)
    assert whole.dimensions[100] == 1
    assert np.median(whole.dimensions[200:400]) == 2
    assert whole.dimensions[400] == 0  # alone: no tangent space
    assert (whole.gradient(graph.X[:, 0])[400] == 0).all()
    f = graph.X[:, 0]
    np.testing.assert_allclose(whole.gradient(f), parts.gradient(f), atol=1e-9)
    known = od.TangentSpaces.fit(graph, k=12, dimension=3)
    assert known.frames().shape == (401, 3, 3)
    with pytest.raises(ValueError, match=r"dimension must be at most 2; got 3\. k is 2"):
        od.TangentSpaces.fit(graph, k=2, dimension=3)


def test_a_known_dimension_is_used_for_gradients_and_projection(rng):
    """A noisy straight line in ten coordinates: only the part along its one direction remains."""
    t = rng.uniform(0, 1, 600)
    X = np.concatenate([t[:, None], 0.01 * rng.normal(size=(600, 9))], axis=1)
    graph = od.NeighborGraph.build(X, k=60)
    tangents = od.TangentSpaces.fit(graph, k=60, dimension=1)
    V = np.concatenate([np.ones((600, 1)), rng.normal(size=(600, 9))], axis=1)
    e = tangents.frames()[:, :, 0]
    np.testing.assert_allclose(tangents.project(V), (V * e).sum(axis=1)[:, None] * e, atol=1e-12)
    gradient = tangents.gradient(t)
    np.testing.assert_allclose(gradient, (gradient * e).sum(axis=1)[:, None] * e, atol=1e-12)
    assert (tangents.dimensions == 1).all()
    assert (od.TangentSpaces.fit(graph, k=60).dimensions > 1).any()


def test_more_coordinates_than_neighbours(rng):
    """n > k: the smaller matrix is decomposed; the gradient of a linear function lies in the span of the offsets."""
    u = rng.uniform(-1, 1, (1000, 2))
    lift = np.linalg.qr(rng.normal(size=(50, 2)))[0]
    X = u @ lift.T
    tangents = od.TangentSpaces.fit(od.NeighborGraph.build(X, k=15), k=15)
    assert tangents.dimension == 2
    full = tangents.dimensions == 2
    want = lift @ [1.0, -3.0]
    np.testing.assert_allclose(tangents.gradient(u @ [1.0, -3.0])[full], np.tile(want, (full.sum(), 1)), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("circle", 1), ("circle in the plane, with noise", 1), ("circle in ten dimensions, with noise", 1),
     ("torus", 2), ("cube", 3), ("elongated", 2)],
)  # fmt: skip
def test_dimension_of_noisy_and_curved_data(name, expected, rng):
    u, v = rng.uniform(0, 2 * np.pi, (2, 2000))
    circle = np.c_[np.cos(u), np.sin(u)]
    X = {
        "circle": circle,
        "circle in the plane, with noise": circle + 0.02 * rng.normal(size=circle.shape),
        "circle in ten dimensions, with noise": np.c_[circle, np.zeros((2000, 8))] + 0.02 * rng.normal(size=(2000, 10)),
        "torus": np.c_[(3 + np.cos(u)) * np.cos(v), (3 + np.cos(u)) * np.sin(v), np.sin(u)],
        "cube": rng.uniform(size=(2000, 3)),
        "elongated": rng.normal(size=(2000, 2)) * [20, 1],
    }[name]
    assert od.geometry.intrinsic_dimension(od.NeighborGraph.build(X, k=100)) == expected
