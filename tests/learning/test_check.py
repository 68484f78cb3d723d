"""The self-check: right fits pass, and what is wrong is told."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import ordiff as od


def fitted(start, X, times, **settings):
    return fitted_and_told(start, X, times, **settings)[0]


def fitted_and_told(start, X, times, **settings):
    """A model, and the warnings of its fit."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", od.OrdiffWarning)
        return od.SnapshotSDE(start, noise="constant", **settings).fit(X, times), told


@pytest.fixture(scope="module")
def right() -> od.SnapshotSDE:
    data = od.datasets.double_well(600, random_state=0)
    return fitted(data.start, data.X, data.times)


@pytest.fixture(scope="module")
def turning_and_told():
    rng = np.random.default_rng(0)
    times = rng.uniform(0, 3, 600)
    rotation = np.array([[-1.0, 2.0], [-2.0, -1.0]])
    X = od.datasets.simulate(lambda x: x @ rotation, 0.6, [2.0, 0.0], times, random_state=rng)
    return fitted_and_told(np.array([2.0, 0.0]), X, times, drift="gradient")


@pytest.fixture(scope="module")
def turning(turning_and_told) -> od.SnapshotSDE:
    return turning_and_told[0]


def test_a_right_fit_is_trusted(right):
    assert right.check_.trusted
    assert right.check_.reasons == ()
    assert right.check_.worst_z < 4
    assert right.summary().startswith("Check: passed")
    assert "known to ±" in right.summary()


def test_the_table_holds_the_moments_of_the_samples(right):
    rows = [row for row in right.check_.table if row.name == "mean of x1"]
    order = np.argsort(right._data.times[right._result.used])
    x = right.samples_[right._result.used][order, 0]
    assert sum(row.n for row in rows) == x.size
    assert rows[0].observed == pytest.approx(x[: rows[0].n].mean())
    assert [row.time for row in rows] == sorted(row.time for row in rows)


def test_a_drift_that_turns_is_told(turning):
    check = turning.check_
    assert not check.trusted
    assert "does not reproduce the samples" in check.reasons[0]
    assert "no gradient" in check.reasons[0]
    assert turning.summary().startswith("Check: NOT TRUSTED")
    assert "known to ±" not in turning.summary()


def test_the_verdict_is_kept_in_a_file(turning, tmp_path):
    turning.save(tmp_path / "model.npz")
    assert od.load(tmp_path / "model.npz").check_ == turning.check_


def test_a_chain_in_four_dimensions_is_told():
    rng = np.random.default_rng(0)
    times = rng.uniform(0, 2, 400)
    X = od.datasets.simulate(lambda x: -x, 0.7, np.ones(4), times, random_state=rng)
    model = fitted(np.ones(4), X, times, states=od.DesignedStates(spacing=1.0))
    assert any("4 dimensions" in reason for reason in model.check_.reasons)


def test_an_untrusted_fit_warns(turning_and_told):
    _, told = turning_and_told
    assert "not trusted: the fitted process does not reproduce" in str(told[0].message)


@pytest.mark.slow
def test_close_snapshots_of_a_wide_start_are_told(rng):
    """Noise of .45 moves by .06 in the horizon, less than the samples of the start are apart."""
    times = np.repeat([0.0, 0.01, 0.02], 200)
    X = od.datasets.simulate(lambda x: -10 * x, 0.45, rng.uniform(-4, 4, (600, 2)), times, random_state=rng)
    model = fitted(times == 0, X, times, drift="gradient")
    assert any("sampling of the start" in reason for reason in model.check_.reasons)


def test_deviations_of_the_drift_cover(right):
    data = od.datasets.double_well(600, random_state=0)
    assert right.drift_std_.shape == right.drift_.shape
    assert 0.8 < np.mean(np.abs(right.drift_ - data.drift) <= 2 * right.drift_std_) <= 1
