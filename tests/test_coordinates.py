"""The same process in other coordinates is learned alike."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ordiff as od
from ordiff._coordinates import LinearCoordinates, distinct_rows, is_noise_in_time
from ordiff.learning.data import Snapshots
from ordiff.learning.settings import TimeDensity

_M = 400


@pytest.fixture(scope="module")
def wells():
    return od.datasets.double_well(_M, random_state=0)


def _fit(X, times, start):
    return od.SnapshotSDE(start, noise="constant", solver=od.Solver(n_starts=1)).fit(X, times)


@pytest.fixture(scope="module")
def bare(wells):
    return _fit(wells.X, wells.times, wells.start)


def _rotation(n, d=2):
    """An isometry of d coordinates into n, (d, n)."""
    return np.linalg.qr(np.random.default_rng(n).standard_normal((n, d)))[0].T


def _number(X, times=None):
    coordinates = LinearCoordinates.of(X, times)
    return coordinates.transform(X).shape[1]


# ------------------------------------------------------------------------------------------------ the subspace


@pytest.mark.parametrize("n", [3, 10, 20, 96])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.1])
def test_noise_across_a_plane_is_left_out(wells, rng, n, share):
    noise = share * wells.X.std(axis=0).max() * rng.standard_normal((_M, n))
    assert _number(wells.X @ _rotation(n) + 3.0 + noise, wells.times) == 2
    if n > 3:
        assert _number(wells.X @ _rotation(n) + 3.0 + noise) == 2


def test_constant_columns_and_copies_are_left_out_as_they_are(wells):
    X = np.column_stack([wells.X, np.full(_M, 7.0), wells.X[:, 1]])
    coordinates = LinearCoordinates.of(X)
    np.testing.assert_array_equal(coordinates.transform(X), wells.X)
    np.testing.assert_allclose(coordinates.inverse(wells.X), X)
    np.testing.assert_allclose(coordinates.vectors(np.array([[1.0, 2.0]])), [[1.0, 2.0, 0.0, 2.0]])


def test_points_and_vectors_come_back(wells):
    Q = _rotation(10)
    X = wells.X @ Q + 3.0
    coordinates = LinearCoordinates.of(X)
    np.testing.assert_allclose(coordinates.inverse(coordinates.transform(X)), X, atol=1e-10)
    V = coordinates.vectors(coordinates.transform(X) - coordinates.transform(X[:1]))
    np.testing.assert_allclose(V, X - X[:1], atol=1e-10)


@pytest.mark.parametrize("a", [0.1, 0.3, 0.43])
def test_a_curve_is_not_flattened(rng, a):
    x = rng.uniform(-1, 1, 800)
    assert _number(np.column_stack([x, a * x**2 + 0.01 * rng.standard_normal(800)])) == 2


def test_curved_surfaces_keep_their_coordinates():
    assert _number(od.datasets.sphere(800, random_state=0).X) == 3
    assert _number(od.datasets.torus(30).X) == 4


def test_a_tight_direction_of_the_process_is_no_noise(rng):
    t = rng.uniform(0, 3, 1000)
    wide, tight = np.sqrt(t), 0.2 * np.sqrt(1 - np.exp(-4 * t))
    X = np.stack([wide, tight, tight], axis=1) * rng.standard_normal((1000, 3))
    assert _number(X, t) == 3
    assert is_noise_in_time(X[:, 1:], t) is False
    assert is_noise_in_time(rng.standard_normal((1000, 2)), t) is True
    assert is_noise_in_time(X, None) is None


@pytest.mark.parametrize("seed", [208, 211])
def test_directions_across_a_long_way_are_no_noise(seed):
    """Early samples are few, and about as far across as late ones; those between are farther."""
    far = od.datasets.far_start(600, random_state=seed)
    assert _number(far.X, far.times) == 3
    assert _number(od.datasets.unequal_wells(600, random_state=seed).X) == 2


def test_a_direction_that_relaxes_from_a_wide_start_is_no_noise(rng):
    t = np.repeat([0.0, 1.0, 2.0], 300)
    X = rng.standard_normal((900, 2)) * [10, 1] + np.stack([0 * t, 2 * np.exp(-t)], axis=1)
    assert LinearCoordinates.of(X, t, one_start=False).forward is None
    steady = rng.standard_normal((900, 2)) * [10, 1]
    assert LinearCoordinates.of(steady, t, one_start=False).reduced


def test_dimension_of_noisy_data_in_many_coordinates(wells, rng):
    X = wells.X @ _rotation(20) + 0.05 * rng.standard_normal((_M, 20))
    assert od.States.design(X).dimension == 2


def test_too_many_dimensions_are_refused_in_words(rng):
    for n in (30, 96):
        X, t = rng.standard_normal((500, n)), rng.uniform(0.1, 1, 500)
        with pytest.raises(ValueError, match=r"-dimensional, and a process .* principal components"):
            od.SnapshotSDE(X[0]).fit(X, t)
        with pytest.raises(ValueError, match="9-dimensional"):
            od.States.design(X, dimension=9)


# --------------------------------------------------------------------------------------------------- the fits


def _same(model, bare, back=lambda V: V):
    assert abs(np.log(model.noise_.mean() / bare.noise_.mean())) < 2 * bare.log_noise_std_.mean()
    difference = back(model.drift_) - bare.drift_
    assert np.sqrt((difference**2).mean() / (bare.drift_**2).mean()) < 0.25
    assert model.states_.dimension == model.states_.points.shape[1] == 2


def test_constant_and_copied_columns_change_nothing(wells, bare):
    which = [0, 1, 1]
    X = np.column_stack([wells.X[:, which], np.full(_M, 5.0)])
    model = _fit(X, wells.times, np.append(wells.start[which], 5.0))
    np.testing.assert_allclose(model.noise_, bare.noise_)
    np.testing.assert_allclose(model.drift_[:, :3], bare.drift_[:, which])
    assert not model.drift_[:, 3].any()


def test_noisy_plane_in_twenty_coordinates(wells, bare, rng, tmp_path):
    Q = _rotation(20)
    X = wells.X @ Q + 3.0 + 0.05 * rng.standard_normal((_M, 20))
    model = _fit(X, wells.times, wells.start @ Q + 3.0)
    _same(model, bare, lambda V: V @ Q.T)
    assert "learned in 2 components" in model.summary()
    np.testing.assert_array_equal(model.samples_, X)
    np.testing.assert_allclose(model.predict(X), model.ordering_)
    np.testing.assert_allclose(model.predict_drift(X), model.drift_)
    times, paths = model.simulate(3, random_state=0)
    assert paths.shape == (3, len(times), 20)
    assert np.abs(paths[:, 0] - (wells.start @ Q + 3.0)).max() < 0.3
    sides = {"left": lambda x: (x - 3.0) @ Q[0] < -1.5, "right": lambda x: (x - 3.0) @ Q[0] > 1.5}
    F = model.fate_probabilities(sides)
    assert F.shape == (_M, 2)
    np.testing.assert_allclose(model.fate_probabilities(sides, X), F)
    assert np.isfinite(model.score(X, wells.times))
    model.save(tmp_path / "model.npz")
    again = od.load(tmp_path / "model.npz")
    np.testing.assert_allclose(again.predict_drift(X), model.drift_)
    np.testing.assert_allclose(again.fate_probabilities(sides), F)
    np.testing.assert_allclose(again.start, [wells.start @ Q + 3.0], atol=0.3)
    np.testing.assert_array_equal(again.samples_, X)


def test_copies_of_rows_are_said_and_count_as_weights(wells, bare):
    with pytest.warns(od.OrdiffWarning, match="400 of 800 rows of X are exact copies"):
        model = _fit(np.repeat(wells.X, 2, axis=0), np.repeat(wells.times, 2), wells.start)
    assert abs(np.log(model.noise_.mean() / bare.noise_.mean())) < bare.log_noise_std_.mean()
    assert model.states_.spacing == pytest.approx(bare.states_.spacing, rel=0.1)


# --------------------------------------------------------------------------------------------- units and start


def test_units_that_differ_are_said(wells, rng):
    with pytest.warns(od.OrdiffWarning, match="columns 0 of X spread more than 30 times as far as 1, .*StandardScaler"):
        _check_units(wells.X * [1000, 1], wells)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _check_units(np.column_stack([wells.X, 0.01 * rng.standard_normal(_M)]), wells)  # noise
        _check_units(np.column_stack([wells.X, 0.01 * wells.X[:, 0], np.ones(_M)]), wells)  # linear, constant


def _check_units(X, wells):
    from ordiff.learning.data import warn_of_units

    data = Snapshots.of(X[0], TimeDensity(), X, wells.times, None)
    warn_of_units(data, [str(k) for k in range(X.shape[1])])


def test_a_start_of_samples_at_one_place_is_a_point(wells):
    X = np.concatenate([np.tile(wells.start, (50, 1)), wells.X])
    times = np.concatenate([np.zeros(50), wells.times])
    at_start = np.arange(len(X)) < 50
    by_mask, by_point = (Snapshots.of(start, TimeDensity(), X, times, None) for start in (at_start, wells.start))
    np.testing.assert_array_equal(by_mask.start, by_point.start)
    np.testing.assert_array_equal(by_mask.start_weights, by_point.start_weights)


def test_distinct_rows_keep_their_order(rng):
    X = rng.standard_normal((20, 2))
    np.testing.assert_array_equal(distinct_rows(np.concatenate([X, X[::-1]])), X)
    assert distinct_rows(X) is X
