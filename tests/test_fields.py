"""Fields: velocity, curvature and moments against the analytic truth of the spiral, the torus and the circle."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od

EPS, RHO, SIDE = 0.0015, 2.0, 100


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


@pytest.fixture(scope="module")
def spiral():
    return od.datasets.spiral(SIDE)


@pytest.fixture(scope="module")
def op(spiral):
    graph = od.NeighborGraph.build(spiral.X, radius=0.5)
    return od.Kernel(od.Ordering(spiral.ordering, scale=spiral.scale), noise=RHO).operator(graph, EPS)


@pytest.fixture(scope="module")
def interior(spiral):
    """At least 5 standard deviations of a step from every edge of the sheet, in arclength."""
    reach = 5 * RHO * np.sqrt(EPS)
    u, v = spiral.coordinates.T
    angle = 2 * np.pi * u
    s = (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / (4 * np.pi)
    inside = (s > s.min() + reach) & (s < s.max() - reach) & (v > reach) & (v < 1 - reach)
    assert inside.sum() > 1500
    return inside


def relative(estimate, truth):
    return np.linalg.norm(estimate - truth, axis=1) / np.linalg.norm(truth, axis=1)


@pytest.mark.parametrize("kind", ["symmetric", "covariance"])
def test_velocity_inside(spiral, op, interior, kind):
    error = np.linalg.norm(od.velocity(op, kind) - spiral.drift, axis=1)[interior]
    speed = np.linalg.norm(spiral.drift, axis=1)[interior]
    assert (error / speed).mean() < 0.01
    assert error.max() < 0.01 * speed.max()


def test_velocity_displaced_by_curvature_and_projected_back(spiral, op, interior):
    displacement = od.velocity(op)[interior]
    with_curvature = spiral.drift + 0.5 * RHO**2 * spiral.curvature
    assert relative(displacement, with_curvature[interior]).max() < 0.02
    assert relative(displacement, spiral.drift[interior]).max() > 0.1
    projected = od.velocity(op, "projected", basis=spiral.jacobian)[interior]
    assert np.linalg.norm(projected - spiral.drift[interior], axis=1).max() < 0.01 * 6.4


def test_velocity_at_the_edge(spiral, op):
    """The first row of the grid: only the covariance form is right there."""
    edge = slice(0, SIDE)
    assert relative(od.velocity(op)[edge], spiral.drift[edge]).min() > 3
    assert relative(od.velocity(op, "symmetric")[edge], spiral.drift[edge]).min() > 0.3
    assert relative(od.velocity(op, "covariance")[edge], spiral.drift[edge]).max() < 0.05
    known = od.velocity(op, "covariance", basis=spiral.jacobian)
    assert relative(known[edge], spiral.drift[edge]).max() < 0.01


def test_intrinsic_velocity(spiral, op, interior):
    speed = spiral.intrinsic_drift[interior, 0].max()
    for options in ({"jacobian": spiral.jacobian}, {"coordinates": spiral.coordinates}):
        got = od.velocity(op, "intrinsic", **options)
        assert got.shape == (SIDE**2, 2)
        assert abs(got - spiral.intrinsic_drift)[interior].max() < 0.01 * speed


def test_mean_curvature(spiral, op, interior):
    H = od.mean_curvature(op.graph, EPS, RHO)
    assert relative(H, spiral.curvature)[interior].max() < 0.01


def test_covariance_velocity_of_an_anisotropic_strang_operator():
    p = od.datasets.torus(60, anisotropic=True)
    graph = od.NeighborGraph.build(p.X, radius=1.2)
    kernel = od.Kernel(od.Ordering.local(p.ordering), noise=p.noise, anisotropy=p.anisotropy, basis=p.jacobian)
    plain, extrapolated = od.strang(kernel, graph, 0.02), od.richardson(kernel, graph, 0.02, scheme=od.strang)
    assert rms(od.velocity(plain, "covariance") - p.drift) < 0.03 * rms(p.drift)
    assert rms(od.velocity(extrapolated, "covariance") - p.drift) < 0.005 * rms(p.drift)


def test_local_moments_read_back_what_was_asked():
    p = od.datasets.torus(60, anisotropic=True)
    graph = od.NeighborGraph.build(p.X, radius=1.0)
    kernel = od.Kernel(od.Ordering.field(p.drift), noise=p.noise, anisotropy=p.anisotropy, basis=p.jacobian)
    op = kernel.operator(graph, 0.006)
    drift, diffusion = od.local_moments(op)
    # the plain sums
    z = graph.X[graph.indices] - graph.X[graph.sources()]
    P = op.matrix.data
    second = np.zeros((3600, 4, 4))
    np.add.at(second, graph.sources(), P[:, None, None] * z[:, :, None] * z[:, None, :])
    np.testing.assert_allclose(diffusion, second / (2 * op.eps), atol=1e-11)
    # the truth
    asked = 0.5 * p.jacobian @ p.anisotropy @ p.jacobian.transpose(0, 2, 1)
    assert rms(diffusion - asked) < 0.05 * rms(asked)
    tangent = np.einsum("mna,mn->ma", p.jacobian, drift)
    assert rms(tangent - p.intrinsic_drift) < 0.01 * rms(p.intrinsic_drift)


@pytest.mark.parametrize("options", [
    {"noise_right": 1.3}, {"beta": 0.5}, {"coupled": True, "anisotropy": True},
], ids=["self-tuning", "beta", "coupled"])  # fmt: skip
def test_covariance_velocity_of_other_kernels(options):
    """It scales with the diffusion that the kernel has: ρ1ρ2, ρ², or A; the truth is the ordering's own drift."""
    p = od.datasets.torus(50, anisotropic=True)
    graph = od.NeighborGraph.build(p.X, radius=1.3)
    noise = 1.2 + 0.2 * np.sin(p.coordinates[:, 0])
    options = dict(options)
    drift = p.drift
    if options.pop("anisotropy", False):
        options |= {"anisotropy": p.anisotropy, "basis": p.jacobian}
        noise = 0.7
        drift = np.einsum("mna,mab,mb->mn", p.jacobian, p.anisotropy, p.intrinsic_drift)
    kernel = od.Kernel(od.Ordering.local(p.ordering), noise=noise, **options)
    op = od.richardson(kernel, graph, 0.015)
    assert rms(od.velocity(op, "covariance", basis=p.jacobian) - drift) < 0.02 * rms(drift)


def test_moments_on_data_of_two_scales(rng):
    """Two clusters far apart: displacements, not products of coordinates, make the moments."""
    square = rng.uniform(0, 1, (400, 2))
    X = np.concatenate([square, square + 1e8])
    op = od.Kernel(X[:, 0] - np.repeat([0, 1e8], 400)).operator(od.NeighborGraph.build(X, k=60), 0.002)
    drift, diffusion = od.local_moments(op)
    np.testing.assert_allclose(diffusion[400:], diffusion[:400], rtol=1e-4)
    np.testing.assert_allclose(drift[400:], drift[:400], atol=1e-3)


def test_a_sample_apart_has_no_covariance_velocity(rng):
    X = np.concatenate([rng.uniform(0, 1, (500, 2)), [[5.0, 5.0]]])
    op = od.Kernel(X[:, 0]).operator(od.NeighborGraph.build(X, k=60), 0.002)
    with pytest.warns(od.OrdiffWarning, match=r"at 1 sample\(s\), the first at index 500"):
        v = od.velocity(op, "covariance")
    assert np.isnan(v[500]).all()
    assert np.isfinite(v[:500]).all()


def test_one_weak_sample_does_not_spoil_the_others(rng):
    X = np.concatenate([rng.uniform(0, 1, (1500, 2)), [[1.1, 1.1]]])
    graph = od.NeighborGraph.build(X, radius=0.16)
    assert np.diff(graph.indptr).min() < 5
    op = od.Kernel(od.Ordering.field(np.ones_like(X))).operator(graph, 0.002)
    assert od.TangentSpaces.fit(graph).dimension == 2
    inside = (abs(X - 0.5) < 0.25).all(axis=1)
    np.testing.assert_allclose(od.velocity(op, "projected")[inside], od.velocity(op)[inside], atol=1e-10)
    with pytest.warns(od.OrdiffWarning, match="the first at index 1500"):
        drift = od.velocity(op, "covariance")
    np.testing.assert_allclose(drift[inside].mean(axis=0), 1.0, atol=0.05)


def test_curvature_with_density_and_a_field_of_noise():
    s = 2 * np.pi * np.arange(800) / 800
    theta, q = s + 0.3 * np.sin(s), 1 / (1 + 0.3 * np.cos(s))
    X = np.stack([np.cos(theta), np.sin(theta)], 1)
    graph = od.NeighborGraph.build(X, radius=1.0)
    H = od.mean_curvature(graph, 0.005, 1 + 0.3 * np.sin(theta), density=q)
    assert relative(H, -X).max() < 0.01
    assert relative(od.mean_curvature(graph, 0.005), -X).max() > 0.2  # without the density


def test_curvature_of_circles_and_spheres(rng):
    """H = −(d/R²) x for a sphere of radius R."""
    theta = 2 * np.pi * np.arange(400) / 400
    X = 3 * np.stack([np.cos(theta), np.sin(theta)], 1)
    H = od.mean_curvature(od.NeighborGraph.build(X, k=60), 0.02, 0.7)
    assert relative(H, -X / 9).max() < 0.01


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda op: od.velocity(op, "fast"), "kind must be one of 'displacement'"),
        (lambda op: od.velocity(op, "intrinsic"), "either jacobian"),
        (lambda op: od.velocity(op, "intrinsic", jacobian=np.ones((3, 2))), "jacobian must have shape"),
        (lambda op: od.velocity(op, "projected", basis=np.zeros((50, 2, 1))), "not linearly independent"),
    ],
)
def test_errors(call, message, rng):
    X = rng.normal(size=(50, 2))
    op = od.Kernel(X[:, 0]).operator(od.NeighborGraph.build(X, k=10), 0.1)
    with pytest.raises(ValueError, match=message):
        call(op)


def test_a_graph_of_distances_has_no_velocity(rng):
    X = rng.normal(size=(50, 2))
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    op = od.Kernel(X[:, 0]).operator(od.NeighborGraph.from_distances(D), 0.1)
    with pytest.raises(od.GraphError, match=r"pass X to NeighborGraph\.from_distances"):
        od.velocity(op)
