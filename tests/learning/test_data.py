"""Snapshots: every kind of start and of times, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff.learning.data import Snapshots
from ordiff.learning.settings import TimeDensity

M = 40
KNOWN, UNIFORM = TimeDensity(), TimeDensity("uniform", 3.0)


@pytest.fixture
def X(rng):
    return rng.normal(size=(M, 2))


@pytest.fixture
def times(rng):
    return np.append(rng.uniform(0, 2, M - 1), 2.0)


def test_times_known_and_unknown(X, times):
    data = Snapshots.of(0, KNOWN, X, times, None)
    assert data.horizon == 2.0
    np.testing.assert_array_equal(data.times, times)
    np.testing.assert_array_equal(data.latest, times)
    np.testing.assert_array_equal(data.weights, 1.0)
    assert Snapshots.of(0, TimeDensity(horizon=5.0), X, times, None).horizon == 5.0
    windows = np.column_stack([0.5 * times, times])
    data = Snapshots.of(0, KNOWN, X, windows, None)
    assert data.horizon == 2.0
    np.testing.assert_array_equal(data.latest, times)
    data = Snapshots.of(0, UNIFORM, X, None, None)
    assert (data.times, data.latest, data.horizon) == (None, None, 3.0)


def test_every_kind_of_start(X, times):
    def of(start):
        data = Snapshots.of(start, KNOWN, X, times, None)
        return data.start, data.start_weights, data.one_start

    for one in (7, [7], np.int64(7), X[7], np.arange(M) == 7, np.eye(M)[7]):
        points, weights, alone = of(one)
        np.testing.assert_array_equal(points, X[[7]])
        np.testing.assert_array_equal(weights, 1.0)
        assert alone
    points, weights, alone = of([1, 2, 5])
    np.testing.assert_array_equal(points, X[[1, 2, 5]])
    np.testing.assert_allclose(weights, 1 / 3)
    assert not alone
    mass = np.zeros(M)
    mass[[3, 9]] = 1.0, 3.0
    points, weights, _ = of(mass)
    np.testing.assert_array_equal(points, X[[3, 9]])
    np.testing.assert_allclose(weights, [0.25, 0.75])


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (None, "start is None"),
        (np.zeros(M, bool), "start is a mask"),
        (np.ones(M - 1, bool), rf"start is a mask: it must have shape \({M},\)"),
        ([1, 2], "may be a point or 2 samples"),
        (M, "start must be 0..39"),
        (np.zeros(M), "start is a mass on the samples"),
        (-np.ones(M), "start is a mass on the samples"),
        ([0.0, 1.0, 2.0], r"start must have one value per sample, shape \(2,\)"),
        ([1e3, 0.0], "start = .* is far from all samples"),
    ],
)
def test_starts_that_are_refused(X, times, start, message):
    with pytest.raises(ValueError, match=message):
        Snapshots.of(start, KNOWN, X, times, None)


def test_times_and_weights_that_are_refused(X, times):
    for design, t, weights, message in (
        (KNOWN, None, None, "without times, give times=TimeDensity"),
        (TimeDensity("uniform"), None, None, "without times"),
        (KNOWN, times[:-1], None, "times must have one value per sample"),
        (KNOWN, -times, None, "times must not be negative"),
        (KNOWN, 0 * times, None, "all times are 0"),
        (KNOWN, np.column_stack([times, times - 0.1]), None, "ends before it begins"),
        (TimeDensity(horizon=1.0), times, None, r"outside \[0, 1\]"),
        (KNOWN, times, np.zeros(M), "sample_weight must not be negative, and not all zero"),
        (KNOWN, times, np.ones(3), "sample_weight must have one value per sample"),
    ):
        with pytest.raises(ValueError, match=message):
            Snapshots.of(0, design, X, t, weights)


def test_what_may_not_be_meant_is_told(X, times):
    with pytest.warns(od.OrdiffWarning, match="sample_weight counts samples, and these have a mean of 0.025"):
        Snapshots.of(0, KNOWN, X, times, np.full(M, 1 / M))
    with pytest.warns(od.OrdiffWarning, match=r"count the times from there: times - times.min\(\)"):
        Snapshots.of(0, KNOWN, X, times + 10, None)


def test_other_points_of_the_same_process(X, times, rng):
    data = Snapshots.of(0, KNOWN, X, times, rng.uniform(0.5, 2, M))
    other = data.at(X[:5], [1.0, 2.0, 3.0, 1.0, 0.0])
    assert other.horizon == 3.0
    np.testing.assert_array_equal(other.weights, np.ones(5))
    np.testing.assert_array_equal(other.start, data.start)
    unknown = Snapshots.of(0, UNIFORM, X, None, None)
    assert unknown.at(X[:5], None).horizon == 3.0
    assert unknown.at(X, times).times is not None  # the times of other points may be known
    assert data.at(X, None).times is None


def test_some_of_them(X, times, rng):
    data = Snapshots.of(0, KNOWN, X, np.column_stack([times, times]), rng.uniform(0.5, 2, M))
    kept = times > 1
    some = data.only(kept)
    np.testing.assert_array_equal(some.X, X[kept])
    np.testing.assert_array_equal(some.times[:, 0], times[kept])
    np.testing.assert_array_equal(some.weights, data.weights[kept])
    assert some.horizon == data.horizon
