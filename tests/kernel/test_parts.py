"""Orderings, profiles, bandwidths and metrics one by one: what they accept, and what they say when they do not."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff.kernel.metric import Metric
from ordiff.kernel.profile import PROFILES
from reference import Surface

# small graphs with wide steps: what is tested is the arithmetic
pytestmark = pytest.mark.filterwarnings("ignore:the graph is too small", "ignore:eps = ")


@pytest.fixture(scope="module")
def surface():
    return Surface(m=60)


@pytest.fixture(scope="module")
def graph(surface):
    return od.NeighborGraph.build(surface.X, k=20)


def test_the_fast_exponential(rng):
    """To 2 units in the last place, 0 far below, and NaN stays NaN: that is how a bad row is found."""
    from ordiff._compiled.transition import exp_shifted

    x = np.concatenate([-rng.exponential(20, 100_000), [0.0, -1e-300, -707.999, -709.0, -1e9, -np.inf]])
    p, bits = x.copy(), np.empty(x.size, np.int64)
    exp_shifted(p, 0.0, bits.view(np.float64), bits)
    near = x > -708
    np.testing.assert_allclose(p[near], np.exp(x[near]), rtol=4.5e-16)
    assert (p[~near] == 0).all()
    p = np.array([np.nan, -1.0])
    exp_shifted(p, 0.0, bits[:2].view(np.float64), bits[:2])
    assert np.isnan(p[0])
    assert p[1] == pytest.approx(np.exp(-1), rel=1e-15)


# --------------------------------------------------------------------------------------------------- profiles


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("dimension", [1, 2, 3, 7])
def test_second_moments_by_quadrature(name, dimension):
    profile = PROFILES[name]
    assert profile.second_moment(dimension) == pytest.approx(od.Profile.second_moment(profile, dimension), rel=1e-7)


class Logistic(od.Profile):
    """A user's profile: h(u) = 1 / (1 + exp(3u)), and nothing else."""

    def log_value(self, u):
        return -np.logaddexp(0.0, 3.0 * u)


def test_a_profile_of_the_users_own():
    theta = 2 * np.pi * np.arange(800) / 800
    graph = od.NeighborGraph.build(np.stack([np.cos(theta), np.sin(theta)], 1), radius=1.2)
    truth = -0.5 * 0.8**2 * np.sin(theta)
    errors = []
    for eps in (0.02, 0.01):
        op = od.Kernel(noise=0.8, profile=Logistic(), dimension=1).operator(graph, eps)
        errors.append(np.sqrt(np.mean((op.generator(np.sin(theta)) - truth) ** 2)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(1.0, abs=0.1)


def test_a_profile_without_a_second_moment_is_refused(graph):
    class Heavy(od.Profile):
        def log_value(self, u):
            return -np.log1p(u)

    with pytest.raises(ValueError, match="no finite second moment in dimension 2"):
        od.Kernel(profile=Heavy(), dimension=2).operator(graph, 0.1)


@pytest.mark.parametrize(
    "wrong", [lambda u: None, lambda u: -0.5, lambda u: -u[:1], lambda u: -u + 0j, lambda u: -u.reshape(-1, 1)]
)
def test_a_profile_that_returns_something_else_is_refused(graph, wrong):
    class Wrong(od.Profile):
        def log_value(self, u):
            return wrong(u)

        def second_moment(self, dimension):
            return 1.0

    with pytest.raises(ValueError, match=r"Wrong\.log_value must return one real number for each of u, shape \(\d+,\)"):
        od.Kernel(profile=Wrong(), dimension=2).operator(graph, 0.1)


@pytest.mark.parametrize("coordinates", [True, False])
def test_a_local_ordering_that_is_wrong_names_the_first_pair(rng, coordinates):
    """As the caller names them, though operators are sorted inside."""
    graph = od.NeighborGraph.build(rng.normal(size=(600, 2)), k=30)
    if not coordinates:
        graph = od.NeighborGraph.from_distances(graph.matrix(np.sqrt(graph.sqdist)))
    assert np.argmax(graph.layout.order % 200 == 9) != 9
    kernel = od.Kernel(od.Ordering.local(lambda i, j: np.where((i % 200 == 9) & (i != j), np.nan, 0.0)))
    first = next(j for j in graph.indices[graph.indptr[9] : graph.indptr[10]] if j != 9)
    with pytest.raises(ValueError, match=rf"is nan for the pair \(9, {first}\), where it must be finite"):
        kernel.operator(graph, 0.1)


def test_the_dimension_of_a_profile_is_estimated(surface, graph):
    known = od.Kernel(profile="compact", dimension=2).operator(graph, 0.4)
    np.testing.assert_array_equal(od.Kernel(profile="compact").operator(graph, 0.4).matrix.data, known.matrix.data)


def test_a_compact_kernel_that_reaches_nobody_is_an_error(surface, graph):
    kernel = od.Kernel(od.Ordering(5 * surface.X[:, 0], speed=20.0), profile="compact", dimension=2)
    with pytest.raises(od.ResolutionError, match=r"row \d+ .*larger eps or noise"):
        kernel.operator(graph, 0.05)


# -------------------------------------------------------------------------------------------------- orderings


def test_estimated_scales_are_those_of_local_pca(surface, graph):
    l = surface.X[:, 0] + 0.3 * surface.X[:, 1]
    norm = od.TangentSpaces.fit(graph, k=20).gradient_norm(l)
    for scale, kappa in (("gradient", norm), ("time", norm**2)):
        got = od.Kernel(od.Ordering(l, scale=scale)).operator(graph, 0.1).matrix.data
        np.testing.assert_allclose(got, od.Kernel(od.Ordering(l, scale=kappa)).operator(graph, 0.1).matrix.data)


def test_a_pure_order_has_the_same_speed_whatever_its_units(surface):
    """With scale="gradient", l and a monotone function of it give the same drift."""
    X = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
    graph = od.NeighborGraph.build(X, k=250)
    inside = (abs(X) < 0.6).all(axis=1)
    for l in (X[:, 0], np.exp(0.5 * X[:, 0]), 1e5 * X[:, 0]):
        op = od.Kernel(od.Ordering(l, speed=2.0, scale="gradient"), noise=0.5).operator(graph, 0.02, density="balanced")
        drift = od.velocity(op, "symmetric")[inside].mean(axis=0)
        np.testing.assert_allclose(drift, [2.0, 0.0], atol=0.1)


def test_no_gradient_no_drift(graph, surface):
    flat = od.Kernel(od.Ordering(np.zeros(60), scale="gradient")).operator(graph, 0.1)
    np.testing.assert_array_equal(flat.matrix.data, od.Kernel().operator(graph, 0.1).matrix.data)
    with pytest.raises(ValueError, match="times are constant around sample 0"):
        od.Kernel(od.Ordering(np.zeros(60), scale="time")).operator(graph, 0.1)


def test_plain_values_are_a_global_ordering(surface, graph):
    one = od.Kernel(surface.l).operator(graph, 0.1).matrix.data
    np.testing.assert_array_equal(one, od.Kernel(od.Ordering(surface.l)).operator(graph, 0.1).matrix.data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: od.Ordering([1.0, np.nan]), "the ordering has 1 value.* index 1"),
        (lambda s: od.Ordering(s.l, speed="gradient"), "speed must be a number"),
        (lambda s: od.Ordering(s.l, scale="unit"), "scale must be one of 'gradient', 'time'"),
        (lambda s: od.Ordering(s.l, scale=0.0), "scale must be positive; it is 0 at index 0"),
        (lambda s: od.Ordering(s.l, speed=np.ones(3)), "speed must have one value per sample"),
        (lambda s: od.Ordering(s.l[:50]), "ordering is for 50 samples, but the graph has 60"),
        (lambda s: od.Ordering.local(3.0), "takes a function of two index arrays"),
        (lambda s: od.Ordering.local(lambda i, j: 1.0), r"returned shape \(\)"),
        (lambda s: od.Ordering.local(lambda i, j: np.where(j == 5, np.nan, 0.0)), r"is nan for the pair \(\d+, 5\)"),
        (lambda s: od.Ordering.local(lambda i, j: 10.0 + j - i), r"is 10 for the pair \(0, 0\), where it must be 0"),
        (lambda s: od.Ordering.field(np.ones((60, 2))), r"V must have shape \(60, 3\)"),
        (lambda s: od.Ordering.cyclic(s.l, 0.0), "period must be one positive number"),
        (lambda s: od.Ordering.piecewise(np.full(60, 3), s.table), r"labels must be 0..2 .* it is 3 at index 0"),
        (lambda s: od.Ordering.piecewise(np.zeros(60), s.table), "labels must be whole numbers"),
        (lambda s: [od.Ordering(s.l), s.l], "must hold Ordering objects only"),
        (lambda s: [s.l, s.l], "wrap each array in Ordering"),
        (lambda s: od.Ordering.piecewise(s.labels, s.l), r"values must have shape \(labels, samples\)"),
    ],
)
def test_ordering_errors(surface, graph, make, message):
    with pytest.raises(ValueError, match=message):
        od.Kernel(make(surface)).operator(graph, 0.1)


# ------------------------------------------------------------------------------------- kernels and their parts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": 0.0}, "noise must be positive; it is 0 at index 0"),
        ({"noise": -np.ones(60)}, "noise must be positive; it is -1 at index 0"),
        ({"noise": np.ones(5)}, "noise must have one value per sample"),
        ({"noise_right": 1.0, "beta": 0.5}, "noise_right or beta, not both"),
        ({"basis": np.ones((60, 3, 2))}, "give anisotropy too"),
        ({"profile": "round"}, "profile must be one of 'gaussian', 'compact', 'supergaussian'"),
        ({"normal_weight": 0.0}, "normal_weight must be one positive number"),
        ({"beta": np.inf}, "beta must be one finite number"),
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"anisotropy": np.eye(3)}, r"anisotropy must have shape \(60, 3, 3\)"),
        ({"anisotropy": np.tile(np.diag([1.0, 1.0, -1.0]), (60, 1, 1))}, "positive definite on the tangent space"),
        ({"anisotropy": np.zeros((60, 3, 3))}, "positive definite on the tangent space"),
        ({"anisotropy": np.tile([[1.0, 2, 0], [0, 1, 0], [0, 0, 1]], (60, 1, 1))}, "must be symmetric.* index 0"),
    ],
)
def test_kernel_errors(graph, options, message):
    with pytest.raises(ValueError, match=message):
        od.Kernel(**options).operator(graph, 0.1)


def test_a_direction_without_diffusion_is_refused(rng):
    X = rng.uniform(-1, 1, (300, 2))
    graph = od.NeighborGraph.build(X, k=30)
    flat = np.tile(np.diag([1.0, 0.0]), (300, 1, 1))
    with pytest.raises(ValueError, match="rank 1, but the data have dimension 2"):
        od.Kernel(anisotropy=flat).operator(graph, 0.02)
    flat[:150] = np.eye(2)
    with pytest.raises(ValueError, match="rank 2 in places, but 1 at index 150"):
        od.Kernel(anisotropy=flat).operator(graph, 0.02)
    with pytest.raises(ValueError, match="positive definite"):
        od.Kernel(anisotropy=np.tile(np.diag([1.0, 0, -1]), (60, 1, 1))).operator(
            od.NeighborGraph.build(rng.normal(size=(60, 3)), k=20), 0.1
        )


def test_opposite_drifts_cancel_for_every_profile(surface, graph):
    V = surface.gradients[0]
    for profile in PROFILES:
        none = od.Kernel(profile=profile, dimension=2).operator(graph, 0.4).matrix.data
        both = od.Kernel([od.Ordering.field(V), od.Ordering.field(-V)], profile=profile, dimension=2)
        np.testing.assert_allclose(both.operator(graph, 0.4).matrix.data, none, rtol=1e-12, atol=1e-15)


def test_a_gaussian_of_another_width_is_not_the_gaussian(graph):
    class Narrow(od.Gaussian):
        def log_value(self, u):
            return -u

        def second_moment(self, dimension):
            return 0.5

    plain = od.Kernel(noise=0.5).operator(graph, 0.1).matrix.data
    np.testing.assert_allclose(
        od.Kernel(noise=0.5, profile=Narrow()).operator(graph, 0.1).matrix.data, plain, rtol=1e-12
    )


def test_the_gradient_of_a_local_function_is_estimated_with_flat_indices(surface, graph):
    """The function sees one-dimensional index arrays, whoever calls it."""
    shapes = []

    def fn(i, j):
        shapes.append((i.ndim, j.ndim))
        return ((surface.X[j] - surface.X[i]) * [1.0, 2.0, 0.0]).sum(axis=1)

    od.Kernel(od.Ordering.local(fn, scale="gradient")).operator(graph, 0.1)
    assert set(shapes) == {(1, 1)}


def test_the_lift_of_a_tensor_is_block_diagonal(surface):
    tangent = Metric.make(surface.X, surface.A, surface.J, 1.0)
    A_amb = surface.J @ surface.A @ surface.J.transpose(0, 2, 1)
    ambient = Metric.make(surface.X, A_amb, None, 1.0)
    for metric in (tangent, ambient):
        np.testing.assert_allclose(metric.tensor(), A_amb, atol=1e-12)
        np.testing.assert_allclose(metric.smallest, np.linalg.eigvalsh(A_amb)[:, 1], rtol=1e-9)
    v = surface.gradients[0]
    np.testing.assert_allclose(tangent.raised(tangent.raised(v, 1), -1), v, atol=1e-12)
    rest = tangent.minus(0.5 * tangent.smallest, 1.0)
    projector = surface.J @ np.linalg.pinv(surface.J)
    np.testing.assert_allclose(rest.tensor(), A_amb - 0.5 * tangent.smallest[:, None, None] * projector, atol=1e-12)


def test_an_isotropic_tensor_is_no_tensor(surface, graph):
    """A = ρ²I in ambient coordinates, coupled or not, is the isotropic kernel with that noise."""
    kernel = od.Kernel(od.Ordering.field(surface.gradients[0]), anisotropy=np.tile(0.7 * np.eye(3), (60, 1, 1)))
    plain = od.Kernel(od.Ordering.field(surface.gradients[0]), noise=np.sqrt(0.7))
    np.testing.assert_allclose(
        kernel.operator(graph, 0.2).matrix.data, plain.operator(graph, 0.2).matrix.data, rtol=1e-10
    )


def test_constant_noise_needs_no_right_factor(surface, graph):
    one = od.Kernel(surface.l, noise=0.7).operator(graph, 0.2).matrix.data
    for other in (od.Kernel(surface.l, noise=0.7, beta=0.2), od.Kernel(surface.l, noise=0.7, noise_right=0.7)):
        np.testing.assert_allclose(other.operator(graph, 0.2).matrix.data, one, rtol=1e-12)
