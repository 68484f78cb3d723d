"""Blocks of time slices: all steps once, and sums forward whose transposes go back."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from chain_reference import place_matrix
from ordiff._compiled import csr
from ordiff.learning.slices import BlockSchedule, ForwardStore, PooledWeights, SliceWeights, Workspace

N, STEPS, PHASES, SAMPLES = 30, 10, 2, 17


@given(steps=st.integers(1, 200), phases=st.integers(1, 4), length=st.integers(1, 64))
def test_blocks_hold_every_time_slice_once(steps, phases, length):
    schedule = BlockSchedule(5, steps, phases, min(length, steps))
    blocks = schedule.blocks()
    assert [b for b, _, _ in blocks] == list(range(1, schedule.n_blocks + 1))
    assert [s for _, first, last in blocks for s in range(first, last)] == list(range(steps))
    assert all(last - first == schedule.length for _, first, last in blocks[:-1])
    assert schedule.n_slices == 1 + steps * phases
    assert schedule.first_slice(0) == 0
    assert [schedule.first_slice(b) for b, _, _ in blocks] == [1 + first * phases for _, first, _ in blocks]


def test_a_workspace_is_used_again():
    workspace = Workspace()
    large = workspace("a", 4, 5)
    large[:] = 1.0
    small = workspace("a", 3, 2)
    assert small.shape == (3, 2)
    assert np.shares_memory(small, large)
    assert not np.shares_memory(workspace("b", 4, 5), large)
    assert not np.shares_memory(workspace("a", 5, 5), large)  # it has grown


def test_what_is_kept_of_a_pass():
    schedule = BlockSchedule(N, STEPS, PHASES, 4)
    everything, one = ForwardStore.everything(schedule, Workspace()), ForwardStore.one_block(schedule)
    assert np.shares_memory(everything.block(4, 8), everything.steps[4:8])
    assert one.block(8, 10).shape == (2, N, PHASES)
    assert one.starts is None
    assert ForwardStore.block_starts(schedule).starts.shape == (3, N, PHASES)


def make(rng, form, pooled=False):
    """Weights of 17 samples on a chain of 10 steps in blocks of 4, as sparse matrices too."""
    schedule = BlockSchedule(N, STEPS, PHASES, 4)
    W = sp.csr_array(rng.uniform(size=(SAMPLES, schedule.n_slices)) * (rng.uniform(size=schedule.n_slices) < 0.6))
    if pooled:
        W = sp.csr_array(np.tile(W.toarray()[0], (SAMPLES, 1)))
    place = rng.permutation(N)[:SAMPLES].astype(np.uint32)
    B = None if form == "states" else place_matrix(rng, SAMPLES, N, signed=form == "log-linear")
    volumes, floor = rng.uniform(0.5, 2, N), 1e-3
    offset = floor * volumes if form == "log-linear" else csr.EMPTY
    full = np.eye(N)[place] if B is None else B.toarray()
    return SliceWeights(W, B, place, offset, floor, schedule), full, volumes


def pass_over(weights, initial, masses):
    accumulator = weights.accumulator(Workspace())
    accumulator.accumulate(0, initial[None, :, None])
    for block, first, last in weights.schedule.blocks():
        accumulator.accumulate(block, masses[first:last])
    return accumulator


def by_time(initial, masses):
    """All time slices, (T, N)."""
    return np.vstack([initial, masses.transpose(0, 2, 1).reshape(-1, N)])


@pytest.mark.parametrize("form", ["states", "linear", "log-linear"])
def test_sums_over_time_slices(rng, form):
    weights, B, volumes = make(rng, form)
    initial, masses = rng.uniform(size=N), rng.uniform(size=(STEPS, N, PHASES))
    accumulator = pass_over(weights, initial, masses)
    slices, W = by_time(initial, masses), weights.W.toarray()
    if form == "log-linear":
        predicted = np.exp(np.log(slices / volumes + 1e-3) @ B.T).T
        expected = (W * predicted).sum(axis=1)
    else:
        predicted = B @ slices.T
        expected = (W * predicted).sum(axis=1) + 1e-3
    np.testing.assert_allclose(accumulator.likelihood(), expected, rtol=1e-12)
    slope = rng.normal(size=SAMPLES)
    shares = weights.W.copy()
    shares.data = accumulator.slice_shares(initial, masses, slope)
    expected = slope[:, None] * W * (predicted if form == "log-linear" else 1.0)
    np.testing.assert_allclose(shares.toarray(), expected, rtol=1e-12)


@pytest.mark.parametrize("form", ["states", "linear", "log-linear"])
def test_sources_are_the_derivatives_of_the_sums(rng, form):
    weights, _, _ = make(rng, form)
    initial, masses, change = rng.uniform(size=N), *rng.uniform(0.5, 1, (2, STEPS, N, PHASES))
    slope, h = rng.normal(size=SAMPLES), 1e-4
    accumulator, total = pass_over(weights, initial, masses), 0.0
    for block, first, last in reversed(weights.schedule.blocks()):
        out = np.full((last - first, N, PHASES), np.nan)
        accumulator.adjoint_source(block, accumulator.by_state(block, masses[first:last]), slope, out)
        total += (out * change[first:last]).sum()
    ahead, behind = (slope @ pass_over(weights, initial, masses + t * change).likelihood() for t in (h, -h))
    assert total == pytest.approx((ahead - behind) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("form", ["states", "linear"])
def test_weights_that_all_share_are_pooled(rng, form):
    weights, _, _ = make(rng, form, pooled=True)
    row = weights.W.toarray()[0]
    pooled = PooledWeights(row, weights.B, weights.place, 1e-3, weights.schedule)
    assert pooled.n_samples == weights.n_samples == SAMPLES
    initial, masses = rng.uniform(size=N), rng.uniform(size=(STEPS, N, PHASES))
    one, other = (pass_over(w, initial, masses) for w in (weights, pooled))
    np.testing.assert_allclose(other.likelihood(), one.likelihood(), rtol=1e-12)
    slope = rng.normal(size=SAMPLES)
    for block, first, last in weights.schedule.blocks():
        sources = []
        for accumulator in (one, other):
            states = accumulator.by_state(block, masses[first:last])
            np.testing.assert_array_equal(states, masses[first:last].transpose(1, 0, 2).reshape(N, -1))
            out = np.full((last - first, N, PHASES), np.nan)
            accumulator.adjoint_source(block, states, slope, out)
            sources.append(out)
        np.testing.assert_allclose(sources[1], sources[0], rtol=1e-12, atol=1e-14)
