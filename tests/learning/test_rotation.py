"""Drift that turns: fields without divergence, what is read from a chain, and whether the evidence asks for it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.linalg import expm

import ordiff as od
from ordiff import plot, report
from ordiff.learning.check import _of_a_steady_state
from ordiff.learning.choice import _with_one_noise, noise_level
from ordiff.learning.data import Snapshots
from ordiff.learning.discretise import is_resolved
from ordiff.learning.evidence import log_evidence
from ordiff.learning.likelihood import Dynamics
from ordiff.learning.parameters import ParameterBlock
from ordiff.learning.possible import RotationScore
from ordiff.learning.rotation import StreamFunctions, displacements, read_general
from ordiff.learning.smoothing import best_strengths
from ordiff.states import States

SPACING = {2: 0.15, 3: 0.32}


@pytest.fixture(scope="module", params=[2, 3])
def states(request) -> States:
    d = request.param
    X = np.random.default_rng(0).uniform(-1, 1, (1500, d))
    return States.design(X, SPACING[d], np.zeros(d), dimension=d, radius=2.5 * SPACING[d])


@pytest.fixture(scope="module")
def streams(states) -> StreamFunctions:
    return StreamFunctions.on(states, coarse=True)


def slopes(states, field):
    """∂_e w_c (N, d, d) of a field (d, N)."""
    return np.stack([states.derivatives(w)[0] for w in field], axis=1)


def test_fields_turn_and_have_no_divergence(states, streams):
    for k in (0, 3, 7):
        J = slopes(states, streams.fields[:, :, k])
        size = np.sqrt((J**2).sum(axis=(1, 2)).mean())
        assert np.abs(np.trace(J, axis1=1, axis2=2)).mean() < 0.03 * size
        assert np.sqrt(((J - J.swapaxes(1, 2)) ** 2).sum(axis=(1, 2)).mean()) > 0.5 * size


def test_the_smoothest_fields_are_rotations_of_space(states, streams):
    """One in the plane, three in space; none is constant or the gradient of a harmonic function."""
    d = states.dimension
    free = d * (d - 1) // 2
    assert (streams.penalty[:free] < 1e-6 * streams.penalty[free]).all()
    for k in range(free):
        w = streams.fields[:, :, k].T
        M, rest, *_ = np.linalg.lstsq(np.c_[states.points, np.ones(len(w))], w, rcond=None)
        assert rest.sum() < 1e-10 * (w**2).sum()
        np.testing.assert_allclose(M[:d] + M[:d].T, 0, atol=1e-5 * np.abs(M).max())


def test_coefficients_of_a_field(states, streams):
    a = np.zeros(streams.penalty.size)
    a[:4] = [1.0, -0.5, 0.2, 0.1]
    w = 2.0**2 * np.einsum("dnk,k->nd", streams.fields, a)
    np.testing.assert_allclose(streams.coefficients(w, states.volumes, 2.0), a, atol=6e-3)


def test_displacements(states):
    i, j = states.graph.sources(), states.graph.indices
    for c, values in enumerate(displacements(states.graph)):
        np.testing.assert_allclose(values, states.points[j, c] - states.points[i, c])


def test_reading_is_exact_for_a_linear_drift(states, streams):
    """A chain with (I − εH)⁻¹(I + εW) = exp(εA) is read as A: here a damped rotation of the first two coordinates."""
    d, eps = states.dimension, 0.15
    A = -np.eye(d)
    A[0, 1], A[1, 0] = -2.0, 2.0
    E = expm(eps * A)
    h = 1 / np.diag(E)
    W = (h[:, None] * E - np.eye(d)) / eps
    np.testing.assert_allclose(W, -W.T, atol=1e-12)
    x = states.points
    l = 0.5 * (x**2 @ ((1 - h) / eps))
    noise = np.full(len(x), 0.6)
    dynamics = Dynamics(eps, noise, (l,), (np.ones(len(x)),))
    ordering, rotation = read_general(states, dynamics, x @ W.T, streams)
    np.testing.assert_allclose(states.derivatives(ordering)[0] + rotation, x @ A.T, atol=1e-3)
    M = np.linalg.lstsq(np.c_[x, np.ones(len(x))], rotation, rcond=None)[0][:d].T  # about the middle of the states
    np.testing.assert_allclose(M, 0.5 * (A - A.T), atol=1e-3)
    assert states.start @ ordering == pytest.approx(0, abs=1e-12)


def test_no_stream_functions_where_there_is_no_plane():
    line = States.design(np.random.default_rng(0).uniform(-1, 1, (200, 1)), 0.05, [0.0])
    assert StreamFunctions.on(line, coarse=False) is None
    X = od.datasets.sphere(400, random_state=0).X
    assert StreamFunctions.on(States.design(X, 0.25, X[0], dimension=2), coarse=False) is None


def test_a_vortex_about_a_hole_turns(rng):
    """It has neither divergence nor curl, but is no gradient: stream functions have it."""
    angle, r = rng.uniform(0, 2 * np.pi, 1200), rng.uniform(1.6, 2.4, 1200)
    X = np.stack([r * np.cos(angle), r * np.sin(angle)], axis=1)
    ring = States.design(X, 0.15, X[0], dimension=2)
    streams, at = StreamFunctions.on(ring, coarse=False), ring.points
    vortex = np.stack([-at[:, 1], at[:, 0]]) / (at**2).sum(axis=1)
    functions = np.concatenate([streams.gradients, streams.fields], axis=2).reshape(2 * len(at), -1)
    left = vortex.ravel() - functions @ np.linalg.lstsq(functions, vortex.ravel(), rcond=1e-9)[0]
    assert np.linalg.norm(left) < 0.04 * np.linalg.norm(vortex)


def test_a_rotation_that_was_left_out(rng):
    """One coefficient, whose prior has the sizes s and the posterior in closed form."""
    block = ParameterBlock("rotation", np.ones((4, 1)), penalty=np.zeros(1), lower=((np.eye(1), 0.0),))
    h, S, F = 3.0, 5.0, rng.standard_normal((2, 1))
    score = RotationScore(block, np.array([h]), np.array([[S]]), F, 100.0, np.empty((2, 2)))
    found = score.left_out(gradient=2.0, unit=0.7)
    variances = (2.0 * np.array([0.125, 0.25, 0.5, 1.0]) / 0.7) ** 2
    likely = np.exp(0.5 * h**2 / (S + 1 / variances) - 0.5 * np.log1p(S * variances))
    assert found.nats == pytest.approx(np.log(likely.mean()))
    squares = 1 / (S + 1 / variances) + (h / (S + 1 / variances)) ** 2
    both = np.vstack([F, [[1.0]]])
    np.testing.assert_allclose(found.covariance, both @ both.T * (likely @ squares) / (likely.sum() + 1))


def test_strengths_of_the_largest_evidence(rng):
    """Of coefficients of which only some are there, the others are sent to 0; of nothing, all are."""
    K, m = 12, 500.0
    penalty = np.r_[0.0, np.full(K - 1, 1e6)]
    block = ParameterBlock("rotation", np.ones((5, K)), penalty=penalty, lower=((np.eye(K), 1e-5),))
    S = 400.0 * np.eye(K)
    b = S @ np.r_[1.0, np.zeros(K - 1)] + 20 * rng.standard_normal(K)
    first = np.array([1e-8, 1e-5])
    strengths, nats = best_strengths(block, b, S, m, first)
    assert nats > 100
    assert strengths[0] * 1e6 * 2 * m > 100  # the rough ones are held at 0
    assert strengths[1] * 2 * m < 100  # the first is not
    _, nothing = best_strengths(block, np.zeros(K), S, m, first)
    assert nothing < 0.5


@pytest.fixture(scope="module")
def turning():
    data = od.datasets.turning(700, random_state=0)
    model = od.SnapshotSDE(data.start, noise="constant", solver=od.Solver(n_starts=1)).fit(data.X, data.times)
    return data, model


def test_a_turning_process_is_found(turning):
    data, model = turning
    error = np.linalg.norm(model.drift_ - data.drift) / np.linalg.norm(data.drift)
    assert error < 0.15
    assert model.noise_[0] == pytest.approx(0.6, rel=0.1)
    assert model.rotation_nats_ > 100
    M = np.linalg.lstsq(np.c_[data.X, np.ones(700)], model.rotation_, rcond=None)[0][:2].T
    np.testing.assert_allclose(M, [[0, -2], [2, 0]], atol=0.2)
    assert np.mean(np.abs(model.drift_ - data.drift) < 3 * model.drift_std_) > 0.8
    assert (model.rotation_std_ > 0).all()
    assert (model.rotation_std_ < 1).mean() > 0.9
    assert model.check_.trusted
    assert "the drift turns" in model.summary()
    assert 0.6 < model.rotation_share() < 0.95


def test_what_turns_can_be_predicted_saved_and_simulated(turning, tmp_path):
    data, model = turning
    model.save(tmp_path / "model.npz")
    other = od.load(tmp_path / "model.npz")
    new = data.X[:20] + 0.01
    for name in ("predict_drift", "predict_rotation", "predict"):
        np.testing.assert_allclose(getattr(other, name)(new), getattr(model, name)(new))
    np.testing.assert_allclose(model.predict_drift(data.X), model.drift_, atol=1e-10)
    np.testing.assert_allclose(other.score_samples(data.X, data.times), model.score_samples(data.X, data.times))
    np.testing.assert_array_equal(other.rotation_, model.rotation_)
    assert other.summary() == model.summary()
    times, paths = other.simulate(2000, horizon=1.0, random_state=0)
    expected = expm(times[-1] * np.array([[-1.0, -2.0], [2.0, -1.0]])) @ data.start
    np.testing.assert_allclose(paths[:, -1].mean(axis=0), expected, atol=0.12)
    fates = model.fate_probabilities(
        {"left": lambda x: x[:, 0] < -0.7, "down": lambda x: (x[:, 1] < -0.7) & (x[:, 0] > -0.7)}, data.X[:5]
    )
    np.testing.assert_allclose(fates.sum(axis=1), 1.0)


def test_a_gradient_is_not_taken_for_a_rotation():
    data = od.datasets.double_well(400, random_state=1)
    settings = {"noise": "constant", "solver": od.Solver(n_starts=1)}
    model = od.SnapshotSDE(data.start, **settings).fit(data.X, data.times)
    assert not model.rotation_.any()
    assert model.rotation_nats_ < 3
    assert "Rotation: none" in model.summary()
    alone = replace(model._result, rotation=None).deviations(data.X, None)
    assert not alone[3].any()
    assert (model.rotation_std_ > 0).all()  # what might turn is not known
    assert (model.drift_std_ >= alone[2]).all()
    assert "allow for one" in model.summary()
    assert np.isfinite(log_evidence(model._result.solution))


def test_a_step_that_is_too_long_for_the_drift_is_not_resolved(turning):
    _, model = turning
    settings, data, chain = model._settings, model._data, model._result.chain
    assert is_resolved(settings, data, chain)
    assert not is_resolved(settings, data, replace(chain, dynamics=replace(chain.dynamics, eps=3 * chain.dynamics.eps)))


def test_where_nothing_can_turn_general_says_so():
    data = od.datasets.sphere(300, random_state=0)
    with pytest.raises(ValueError, match="2 or 3 flat dimensions"):
        od.SnapshotSDE(data.start, drift="general").fit(data.X, data.times)
    with pytest.raises(ValueError, match="drift"):
        od.SnapshotSDE(data.start, drift="curl").fit(data.X, data.times)
    with pytest.raises(ValueError, match="beside an ordering"):
        od.SnapshotSDE(data.start, drift="general", learn=("noise",)).fit(data.X, data.times)


def test_a_known_phase_agrees_with_what_is_learned_without_it(turning):
    """With the shape x ↦ (−y, x) of the rotation given, its speed is 2, and the drift that of the fit without it."""
    data, model = turning

    def phase(x):
        return od.Ordering.field(np.stack([-x[:, 1], x[:, 0]], axis=1))

    settings = {"noise": "constant", "solver": od.Solver(n_starts=1), "learn": ("ordering", "noise", "speed")}
    known = od.SnapshotSDE(data.start, ordering=phase, **settings).fit(data.X, data.times)
    assert known.speed_[1] == pytest.approx(2.0, rel=0.05)
    assert np.linalg.norm(known.drift_ - model.drift_) < 0.05 * np.linalg.norm(model.drift_)
    assert known.noise_[0] == pytest.approx(model.noise_[0], rel=0.02)


def test_at_a_steady_state_no_rotation_can_be_told(rng):
    X = rng.standard_normal((240, 2))
    times = np.repeat([0.0, 1.0, 2.0], 80)
    model = od.SnapshotSDE(
        times == 0, noise="constant", states=od.DesignedStates(spacing=0.4), solver=od.Solver(eps=0.2, n_starts=1)
    )
    with pytest.warns(od.OrdiffWarning):
        model.fit(X, times)
    assert any("nothing is seen to move" in reason for reason in model.check_.reasons)
    assert "Rotation: near a steady state, as here, neither" in model.summary()
    X[times > 0] += 0.7  # then it moves
    assert not _of_a_steady_state(Snapshots.of(times == 0, od.TimeDensity(), X, times, None))


def test_what_turns_is_drawn_reported_and_passed_through(turning, tmp_path):
    """The time to pass half a turn is that of the simulated process, and pictures and report know of the rotation."""
    _, model = turning
    at = model.states_.points
    passed = od.first_passage_time(model.operator_, np.flatnonzero(at[:, 0] < -0.2), continuous=True)
    assert model.states_.start @ passed.mean == pytest.approx(0.924, rel=0.1)  # of 20,000 simulated paths
    figure = plot.rotation(model)
    assert f"{100 * model.rotation_share():.0f}%" in figure.axes[2].get_title()
    plt.close(figure)
    report.write(model, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "it turns" in page
    assert "rotation, share of the squared drift" in page


def test_a_drift_that_changes_within_a_step_is_read_within_bounds(states, streams):
    """μ = −x/ε would be read off the chain that jumps to 0 within a step as −∞."""
    eps, d, N = 0.5, states.dimension, len(states.points)
    w = -states.points / eps
    dynamics = Dynamics(eps, np.full(N, 0.3), (np.zeros(N),), (np.ones(N),))
    ordering, rotation = read_general(states, dynamics, w, streams)
    drift = states.derivatives(ordering)[0] + rotation
    assert np.abs(drift).max() < 2.5 * np.abs(w).max()
    assert drift.shape == (N, d)


def test_a_coarse_chain_has_one_noise_where_the_drift_turns(turning):
    """The problem of a noise field, with one number in its place, has the same ordering and the level of the noise."""
    _, model = turning
    problem, a = model._result.solution.problem, model._result.solution.a
    p = problem.parameters
    N = p.base.noise.size
    field = ParameterBlock("noise", np.c_[np.ones(N), np.linspace(-1, 1, N)])
    blocks = tuple(field if block.target == "noise" else block for block in p.blocks)
    with_field = replace(problem, parameters=replace(p, blocks=blocks))
    b = np.r_[a[:-1], np.log(0.5), 0.1]
    one, c = _with_one_noise(with_field, b)
    noise = one.parameters.dynamics(c).noise
    assert np.ptp(noise) < 1e-12
    assert noise[0] == pytest.approx(noise_level(with_field.parameters.dynamics(b)), rel=1e-3)
    np.testing.assert_array_equal(
        one.parameters.dynamics(c).orderings[0], with_field.parameters.dynamics(b).orderings[0]
    )


@pytest.mark.slow
def test_errors_of_a_coarse_chain_are_not_taken_for_a_rotation(monkeypatch):
    """A gradient of many samples: what a coarse chain gets wrong is worth nats that grow with their number."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ordiff.learning.fit.design", interrupted)
    data = od.datasets.valley(8000, random_state=0)
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        model = od.SnapshotSDE(data.start, solver=od.Solver(n_starts=1)).fit(data.X, data.times)
    assert model.rotation_nats_ > 30
    assert model.rotation_share() == 0
