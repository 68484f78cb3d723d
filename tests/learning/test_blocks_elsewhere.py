"""Sums over blocks of samples against the likelihood of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from ordiff._coordinates import LinearCoordinates
from ordiff.learning.blocks_elsewhere import ChainView, ObservedBlock, SampleFilter, SampleRows, added
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.observation import Observation, known_time_weights
from ordiff.states import States

EPS, STEPS, FRACTIONS, FLOOR = 0.05, 9, (0.5, 1.0), 1e-4


@pytest.fixture(scope="module")
def states():
    X = np.random.default_rng(1).uniform(-1, 1, (400, 2))
    return States.design(X, 0.2, np.zeros(2), radius=0.7)


@pytest.mark.parametrize("windows", [False, True])
def test_sums_over_blocks_are_value_and_gradient(rng, states, windows):
    m = 90
    X, t, w = rng.uniform(-1, 1, (m, 2)), rng.uniform(0, STEPS * EPS, m), rng.uniform(0, 2, m)
    X[3], t[:6], w[7:9] = 5.0, 0.01, 0.0  # one lies apart, some are early, some do not count
    times = np.column_stack([0.9 * t, t]) if windows else t
    kept = (t >= EPS) & (w > 0) & (X[:, 0] < 2)
    slices = np.concatenate([[0.0], ((np.arange(STEPS)[:, None] + np.array(FRACTIONS)) * EPS).ravel()])
    W = known_time_weights(times[kept], slices, 1)
    observation = Observation(W, states.observe(X[kept]), states.volumes, FLOOR)
    likelihood = SnapshotLikelihood(
        states.graph, observation, states.start, STEPS, FRACTIONS, sample_weight=w[kept]
    )  # fmt: skip
    dynamics = Dynamics(EPS, np.full(len(states.points), 0.8), (states.points[:, 0],), (np.ones(len(states.points)),))
    loss, gradient = likelihood.value_and_gradient(dynamics)

    turned = LinearCoordinates(np.zeros(2), np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    view, chosen = ChainView(states, slices, 1, FLOOR), SampleFilter(turned, 0.5, EPS)

    class Elsewhere:
        def sums(self, masses, rank, schedule):
            rows = [SampleRows(X[a:b, ::-1], times[a:b], w[a:b], a) for a, b in ((0, 5), (5, 40), (40, m))]
            blocks = [ObservedBlock.of(one, view, chosen, rank, schedule) for one in rows]
            assert np.isin(np.concatenate([one.numbers for one in blocks]), np.flatnonzero(kept)).all()
            assert blocks[0].weights is None
            return added(*(one.sums(masses, sum(block.weight for block in blocks)) for one in blocks))

    # of samples elsewhere, those here do not matter for loss and gradient
    some = Observation(W[:5], states.observe(X[kept][:5]), states.volumes, FLOOR, Elsewhere())
    remote = SnapshotLikelihood(states.graph, some, states.start, STEPS, FRACTIONS)
    found, by = remote.value_and_gradient(dynamics)
    assert found == pytest.approx(loss, rel=1e-13)
    np.testing.assert_allclose(by.noise, gradient.noise, rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(by.orderings[0], gradient.orderings[0], rtol=1e-11, atol=1e-15)
    assert by.eps == pytest.approx(gradient.eps, rel=1e-11)


def test_a_sample_that_is_not_reached_is_named_by_its_row(rng, states):
    rows = SampleRows(rng.uniform(-1, 1, (4, 2)), np.full(4, 0.2), np.ones(4), 700)
    from ordiff.learning.slices import BlockSchedule

    schedule = BlockSchedule(len(states.points), STEPS, 2, STEPS)
    slices = np.concatenate([[0.0], ((np.arange(STEPS)[:, None] + np.array(FRACTIONS)) * EPS).ravel()])
    rank = np.arange(len(states.points), dtype=np.uint32)
    block = ObservedBlock.of(rows, ChainView(states, slices, 1, FLOOR), SampleFilter(), rank, schedule)
    with pytest.raises(ValueError, match="the first at index 700"):
        block.sums(np.full((STEPS, len(states.points), 2), np.inf), 4.0)
