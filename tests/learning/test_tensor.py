"""Noise with a direction: its slopes, their derivatives, and a process whose tensor is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

import ordiff as od
from chain_reference import slope_along
from ordiff.kernel.ordering import Ordering
from ordiff.learning.data import Snapshots
from ordiff.learning.direction import NoiseDirection
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.observation import Observation, time_weights
from ordiff.learning.optimise import PenalisedLikelihood
from ordiff.learning.parameters import Parameters
from ordiff.learning.rotation import tensor_block, with_tensor
from ordiff.learning.scores import scores
from ordiff.learning.settings import FitSettings
from ordiff.learning.tensor import metric_of, metric_slopes, products, symmetric
from ordiff.states import States

ENTRIES = np.array([0.4, 0.3, -0.4])  # S of trace 0


def test_slopes_give_the_metric_back():
    slopes, derivative = metric_slopes(ENTRIES, 0.1)
    np.testing.assert_allclose(metric_of(slopes, 0.1), expm(-symmetric(ENTRIES)))
    h = 1e-6
    for k, unit in enumerate(np.eye(3)):
        ahead, behind = (metric_slopes(ENTRIES + sign * h * unit, 0.1)[0] for sign in (1, -1))
        np.testing.assert_allclose(derivative[:, k], (ahead - behind) / (2 * h), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("d", [2, 3])
def test_the_logarithm_has_no_trace(d):
    basis = tensor_block(d, 0).basis
    assert basis.shape[1] == d * (d + 1) // 2 - 1
    for column in basis.T:
        assert np.trace(symmetric(column)) == pytest.approx(0, abs=1e-12)


@pytest.fixture(scope="module")
def problem():
    """A small chain with an ordering, seen after half steps too, with a tensor to be learned."""
    rng = np.random.default_rng(0)
    states = States.design(rng.uniform(-1, 1, (400, 2)), 0.25, np.zeros(2), radius=0.9)
    eps, steps, fractions, N = 0.1, 4, (0.5, 1.0), len(states.points)
    slices = np.concatenate([[0.0], ((np.arange(steps)[:, None] + np.array(fractions)) * eps).ravel()])
    X = rng.uniform(-0.7, 0.7, (30, 2))
    W = time_weights(rng.uniform(0.05, 0.4, 30), slices, first=1)
    observation = Observation(W, states.observe(X), states.volumes, 1e-3)
    likelihood = SnapshotLikelihood(states.graph, observation, states.start, steps, fractions)
    base = Dynamics(eps, np.full(N, 0.8), (states.points[:, 0],), (np.ones(N),), (), np.log(states.volumes))
    parameters = Parameters((), base)
    plain = PenalisedLikelihood(likelihood, parameters, np.ones(30))
    return states, with_tensor(plain, states, np.empty(0))[0]


def test_gradient_and_scores(problem):
    _, problem = problem
    a = np.array([0.5, 0.3])
    _, gradient = problem.value_and_gradient(a)
    u = np.array([0.7, -1.3])
    assert gradient @ u == pytest.approx(slope_along(lambda b: problem.value_and_gradient(b)[0], a, u), rel=1e-6)
    p = problem.parameters
    found = scores(problem.likelihood, p.dynamics(a), p.directions(a), dtype=np.float64)
    np.testing.assert_allclose(-found.mean(axis=0), gradient, rtol=1e-8)


def test_the_chain_is_that_of_the_anisotropic_kernel(problem):
    """Slopes of products are the metric A⁻¹ of a coupled kernel, whose order term is that of l."""
    states, problem = problem
    a = np.array([0.5, 0.3])
    S = symmetric(problem.parameters.blocks[0].field(a)[0])
    dynamics = problem.parameters.dynamics(a)
    A = np.broadcast_to(expm(S), (len(states.points), 2, 2))
    kernel = od.Kernel(Ordering(states.points[:, 0]), noise=0.8, anisotropy=A, coupled=True)
    P = kernel.operator(states.graph, 0.1, 1 / states.volumes).matrix
    found = states.graph.matrix(problem.likelihood.matrix(dynamics))
    np.testing.assert_allclose(found.toarray(), P.toarray(), atol=1e-10)


def test_products(problem):
    states, _ = problem
    z = states.points[states.graph.indices] - states.points[states.graph.sources()]
    np.testing.assert_allclose(products(states.graph)[1], z[:, 0] * z[:, 1])


@pytest.mark.slow
def test_a_tensor_is_learned(tmp_path):
    data = od.datasets.tensor_ou(600, random_state=2, angle=0.6)
    model = od.SnapshotSDE(data.start, noise="tensor", solver=od.Solver(n_starts=1)).fit(data.X, data.times)
    A, true = model.noise_tensor_, data.anisotropy[0]
    assert np.linalg.det(A) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(A - true) < 0.2 * np.linalg.norm(true)
    assert (np.abs(A - true) < 3.5 * model.noise_tensor_std_).all()
    assert np.median(model.noise_) == pytest.approx(0.8, rel=0.1)
    assert np.linalg.norm(model.drift_ - data.drift) < 0.35 * np.linalg.norm(data.drift)
    assert "times as large along" in model.summary()
    model.save(tmp_path / "model.npz")
    other = od.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(other.noise_tensor_, A)
    np.testing.assert_allclose(other.predict_drift(data.X[:9]), model.predict_drift(data.X[:9]))
    np.testing.assert_allclose(other.score_samples(data.X, data.times), model.score_samples(data.X, data.times))
    _, paths = other.simulate(3000, horizon=2.5, random_state=0)
    late = data.times > 2.0
    np.testing.assert_allclose(np.cov(paths[:, -1].T), np.cov(data.X[late].T), atol=0.15)


def test_a_gradient_has_no_tensor():
    data = od.datasets.tensor_ou(50, random_state=0)
    with pytest.raises(ValueError, match="a gradient is none in them"):
        od.SnapshotSDE(data.start, noise="tensor", drift="gradient").fit(data.X, data.times)


def direction_of(data):
    settings = FitSettings.of(od.SnapshotSDE(data.start, noise="auto"))
    return NoiseDirection.of(settings, Snapshots.of(data.start, settings.times, data.X, data.times, None))


@pytest.mark.slow
def test_a_direction_is_taken_where_the_samples_ask_for_it():
    data = od.datasets.tensor_ou(900, random_state=0)
    found = direction_of(data)
    assert found.nats > 3
    assert (found.settings.noise, found.settings.drift) == ("tensor", "general")
    A = found.root @ found.root
    assert np.linalg.det(A) == pytest.approx(1, abs=1e-6)
    assert np.linalg.norm(A - data.anisotropy[0]) < 0.25 * np.linalg.norm(data.anisotropy[0])


def test_no_direction_is_taken_where_there_is_none():
    found = direction_of(od.datasets.ornstein_uhlenbeck(250, random_state=0))
    assert found.nats < 0
    assert found.root is None
    assert (found.settings.noise, found.settings.drift) == ("field", "auto")


def test_no_direction_is_looked_for_where_none_can_be():
    """Beside a gradient, and with few samples, "auto" is a field."""
    data = od.datasets.ornstein_uhlenbeck(60, random_state=0)
    for drift in ("gradient", "auto"):
        settings = FitSettings.of(od.SnapshotSDE(data.start, noise="auto", drift=drift))
        found = NoiseDirection.of(settings, Snapshots.of(data.start, settings.times, data.X, data.times, None))
        assert (found.settings.noise, found.root, found.nats) == ("field", None, None)
