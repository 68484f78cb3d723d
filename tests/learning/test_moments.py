"""Learning by moments in four dimensions and more: ridges, particles, directions, and fits against their truth."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff.learning.directions import candidates, unexplained
from ordiff.learning.particles import Particles, mean_changes, mean_values
from ordiff.learning.ridges import RidgeBasis, RidgeOrdering

D = 4


@pytest.fixture
def basis(rng):
    return RidgeBasis.of(np.zeros(D), np.stack([np.eye(D)[0], np.full(D, 0.5)]), rng.normal(size=(300, D)))


@pytest.fixture
def ordering(basis, rng):
    a = 0.2 * rng.normal(size=basis.size)
    a[D : 2 * D] -= 1.5
    return RidgeOrdering(basis, a)


def numerical(f, x, step=1e-5):
    return np.stack([(f(x + step * e) - f(x - step * e)) / (2 * step) for e in np.eye(x.shape[1])], axis=1)


def test_derivatives_of_ridge_functions(basis, ordering, rng):
    u = 2 * rng.normal(size=(40, D))  # beyond the knots too
    np.testing.assert_allclose(basis.gradients(u), numerical(basis.values, u), atol=1e-7)
    np.testing.assert_allclose(ordering.gradient(u), basis.gradients(u) @ ordering.coefficients, atol=1e-12)
    np.testing.assert_allclose(ordering.hessian(u), numerical(ordering.gradient, u), atol=1e-7)


def test_sensitivities_are_the_derivatives_of_moments(basis, ordering):
    particles = Particles(np.full((40, D), 0.1), 0.05, 10, seed=0)

    def moments(theta):
        for u in particles.positions(RidgeOrdering(basis, theta[:-1]), float(np.exp(theta[-1]))):
            last = u
        return mean_values(basis, last)

    theta = np.append(ordering.coefficients, np.log(0.6))
    for u, S in particles.sensitivities(ordering, 0.6, 40):
        last = mean_changes(basis, u, S)
    expected = numerical(lambda rows: np.array([moments(row) for row in rows]), theta[None])[0].T
    np.testing.assert_allclose(last, expected, atol=1e-7)


def test_particles_of_a_linear_drift_have_its_moments():
    basis = RidgeBasis.of(np.zeros(D), np.empty((0, D)), np.empty((0, D)))
    a = np.zeros(basis.size)
    a[D : 2 * D] = -1.5
    *_, u = Particles(np.tile(np.eye(D)[:1], (20_000, 1)), 0.05, 20, seed=0).positions(RidgeOrdering(basis, a), 0.6)
    np.testing.assert_allclose(u.mean(axis=0), np.exp(-1.5) * np.eye(D)[0], atol=2e-3)
    np.testing.assert_allclose(u.var(axis=0), 0.36 / 3 * (1 - np.exp(-3.0)), rtol=0.03)


def test_a_direction_of_two_modes_is_found(rng):
    w = np.array([0.6, 0.8, 0.0, 0.0])
    x, y = (rng.normal(size=(n, D)) for n in (1000, 4000))
    axes = np.linalg.qr(np.column_stack([w, rng.normal(size=(D, D - 1))]))[0].T
    none = unexplained(candidates(axes, np.empty((0, D))), [x, x[:500]], [y, y])
    assert none.n_significant(1e-4) == 0
    bimodal = x + np.outer(np.sign(x @ w) - x @ w, w)
    found = unexplained(candidates(axes, np.empty((0, D))), [bimodal], [y])
    assert found.n_significant(1e-4) > 0
    taken = found.independent(np.empty((0, D)))
    assert abs(taken[0] @ w) > 0.99


@pytest.fixture(scope="module")
def well():
    return od.datasets.well_ou(900, random_state=3, dimension=4)


@pytest.fixture(scope="module")
def model(well):
    return od.SnapshotSDE(well.start).fit(well.X, well.times)


@pytest.mark.slow
def test_a_double_well_in_four_dimensions(well, model):
    assert model.check_.trusted
    assert model.converged_
    error = np.linalg.norm(model.drift_ - well.drift) / np.linalg.norm(well.drift)
    assert error < 0.3
    assert abs(model.noise_[0] / 0.6 - 1) < 0.1
    assert np.mean(np.abs(model.drift_ - well.drift) <= 2 * model.drift_std_) > 0.7
    l = well.ordering - well.ordering_at(well.start[None])[0]
    assert np.mean(np.abs(model.ordering_ - l) <= 2 * model.ordering_std_) > 0.7


def test_what_is_read_from_it(well, model):
    assert model.predict(well.start[None])[0] == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(model.predict_drift(well.X), model.drift_)
    np.testing.assert_allclose(model.drift_[:9], numerical(model.predict, well.X[:9]), atol=1e-6)
    times, paths = model.simulate(2000, random_state=0)
    late = well.X[well.times > 2.5]
    assert paths.shape == (2000, times.size, 4)
    np.testing.assert_allclose(paths[:, -5].std(axis=0), late.std(axis=0), rtol=0.2)
    assert "moments" in model.summary()
    assert "direction" in model.summary()


def test_what_needs_a_chain_is_said(well, model):
    with pytest.raises(AttributeError, match="four dimensions"):
        model.operator_  # noqa: B018
    for ask in (model.profile, lambda: model.fate_probabilities({"end": [0]}), lambda: model.score(well.X, well.times)):
        with pytest.raises(ValueError, match="four dimensions"):
            ask()


def test_file(well, model, tmp_path):
    model.save(tmp_path / "model.npz")
    again = od.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(well.X[:20]), model.predict(well.X[:20]))
    np.testing.assert_array_equal(again.predict_drift(well.X[:20]), model.predict_drift(well.X[:20]))
    assert again.summary() == model.summary()


def test_a_known_noise_is_kept_and_snapshots_do(rng):
    t, start = np.repeat([0.3, 1.0, 2.0], 200), np.eye(D)[0]
    X = od.datasets.simulate(lambda x: -1.5 * x, 0.6, start, t, step=0.02, random_state=rng)
    model = od.SnapshotSDE(start, noise=0.6).fit(X, t)
    assert (model.noise_ == 0.6).all()
    assert (model.noise_std_ == 0).all()
    assert np.linalg.norm(model.drift_ + 1.5 * X) < 0.25 * np.linalg.norm(1.5 * X)


def test_too_many_dimensions_are_refused(rng):
    X, t = rng.normal(size=(200, 30)), rng.uniform(0, 1, 200)
    with pytest.raises(ValueError, match="30 coordinates"):
        od.SnapshotSDE(np.zeros(30)).fit(X * t[:, None] ** 0.5, t)
