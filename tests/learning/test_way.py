"""States where a process passes between snapshots, and no samples are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ordiff as od
from ordiff.learning.data import Snapshots
from ordiff.learning.way import unseen_way

SPEED, SPREAD = np.array([4.0, 0.0]), 0.3


def moving(times, rng, per=200):
    """Snapshots of a process that moves along x from (0, 0) with noise SPREAD."""
    t = np.repeat(times, per)
    return SPEED * t[:, None] + SPREAD * np.sqrt(t)[:, None] * rng.standard_normal((t.size, 2)), t


def of_a_point(X, t):
    return unseen_way(X, t, np.zeros((1, 2)), np.ones(1))


def test_points_on_the_way_are_where_the_process_was(rng):
    X, t = moving([0.5, 1.0], rng)
    way = of_a_point(X, t)
    for low, high in ((0.4, 1.2), (2.6, 3.4)):  # before the first snapshot, and between the two
        here = way[(way[:, 0] > low) & (way[:, 0] < high)]
        assert len(here) > 100
        spread = SPREAD * np.sqrt(0.5 * (low + high) / SPEED[0])
        assert here[:, 1].std() == pytest.approx(spread, rel=0.25)
    assert np.linalg.norm(way - [2, 0], axis=1).min() > 0.2  # not where most samples are


def test_where_samples_are_seen_all_the_way_there_are_none(rng):
    t = rng.uniform(0, 1, 500)
    X = SPEED * t[:, None] + SPREAD * np.sqrt(t)[:, None] * rng.standard_normal((500, 2))
    assert len(of_a_point(X, t)) == 0
    X, t = moving(np.linspace(0.05, 1, 20), rng)
    assert len(of_a_point(X, t)) == 0
    assert len(of_a_point(np.repeat(X, 10, axis=0), np.repeat(t, 10))) == 0


def test_a_few_samples_do_not_hide_a_way(rng):
    X, t = moving([0.2, 0.6, 1.0], rng)
    kept = np.sort(np.concatenate([np.flatnonzero(t != 0.6), np.flatnonzero(t == 0.6)[:5]]))
    way = of_a_point(X[kept], t[kept])
    assert ((way[:, 0] > 1.2) & (way[:, 0] < 3.4)).sum() > 100


def test_nothing_follows_from_a_few_samples_or_those_that_do_not_count(rng):
    X, t = moving([*np.linspace(0.02, 0.2, 10), 1.0], rng)
    late = np.flatnonzero(t == 1.0)
    assert len(of_a_point(X, t)) > 100
    few = np.delete(np.arange(len(t)), late[5:])
    assert len(of_a_point(X[few], t[few])) == 0
    weights = (t < 1).astype(float)
    data = Snapshots.of([0.0, 0.0], od.TimeDensity(), X, t, weights)
    assert len(data.way) == 0
    assert len(of_a_point(np.ones((20, 2)), np.ones(20))) == 0


def test_branches_that_change_in_size_are_not_joined(rng):
    """A tenth of all samples pass from one well to another between two snapshots."""
    X, t = 0.2 * rng.standard_normal((1000, 2)), np.repeat([1.0, 2.0], 500)
    X[:250, 0] += 3.0
    X[500:800, 0] += 3.0
    assert len(unseen_way(X, t, X[:500], np.full(500, 1 / 500))) == 0


def test_states_are_on_the_way(rng):
    """A chain that had to jump over it would find a noise that is too large."""
    X, t = moving([0.2, 0.4, 0.7, 1.0], rng)
    model = od.SnapshotSDE([0.0, 0.0], noise="constant", drift="gradient").fit(X, t)
    x, y = model.states_.points.T
    between = (x > 0.2) & (x < 0.5)
    assert between.sum() > 10
    assert np.abs(y[between]).max() < 1.0
    assert np.ptp(y[between]) > 2 * SPREAD * np.sqrt(0.1)
    assert abs(model.noise_[0] - SPREAD) < 3 * model.noise_std_[0] + 0.02


@pytest.mark.parametrize("states", [od.DesignedStates(spacing=0.1), od.DesignedStates()])
def test_a_way_that_wider_states_would_not_reach_over(rng, states):
    X, t = moving([0.3, 0.5, 0.7, 1.0], rng)
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):  # the step, with this spacing
        model = od.SnapshotSDE([0.0, 0.0], noise="constant", drift="gradient", states=states).fit(X, t)
    assert abs(model.noise_[0] - SPREAD) < 0.05
