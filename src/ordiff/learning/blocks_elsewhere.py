"""A block of samples where it is kept: what it adds to the loss, and to its derivative by the time slices.

ChainView        what a block has to know of a chain to observe it
SampleRows       the samples of a block, as they were read
ObservedBlock    the same with their observation weights: from the masses of all time slices to sums

With many samples the chain is small beside them. An evaluation of the loss then sends the masses p of the time slices,
(S, N, F), to each block, and adds up what comes back,

    Σ_i ω_i log likelihood_i      and      ∂/∂p of it, (S, N, F).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ordiff._coordinates import LinearCoordinates
from ordiff._sizes import Sized
from ordiff._validation import Array
from ordiff.learning.likelihood import positive_likelihood
from ordiff.learning.observation import Observation, known_time_weights, place_matrix
from ordiff.learning.slices import BlockSchedule, SliceWeights, Workspace
from ordiff.states import States


@dataclass(frozen=True, eq=False)
class ChainView:
    """Designed states, the times of the time slices (T,), the first that may be used, and the floor of a density."""

    states: States
    slices: Array
    first: int
    floor: float


@dataclass(frozen=True, eq=False)
class SampleRows(Sized):
    """Samples of one block: points (p, n), times (p,) or windows (p, 2), weights (p,), and the number of the first."""

    X: Array
    times: Array
    weights: Array
    number: int

    @property
    def latest(self) -> Array:
        return self.times if self.times.ndim == 1 else self.times.max(axis=1)


@dataclass(frozen=True)
class SampleFilter:
    """Which samples are used: those no farther than so from the states and seen no earlier than so; and the
    coordinates in which the chain lives."""

    coordinates: LinearCoordinates = field(default_factory=LinearCoordinates)
    farthest: float = np.inf
    earliest: float = -np.inf


@dataclass(frozen=True, eq=False)
class ObservedBlock(Sized):
    """The samples of a block that are used, in the order of the states that they are near."""

    weights: SliceWeights | None  # None when no sample is used
    sample_weight: Array
    numbers: NDArray[np.intp]

    @classmethod
    def of(
        cls, rows: SampleRows, view: ChainView, chosen: SampleFilter, rank: NDArray[np.uint32], schedule: BlockSchedule
    ) -> ObservedBlock:
        """The rows as they see a chain; rank: (N,), of the states in the inner order."""
        states, X = view.states, chosen.coordinates.transform(rows.X)
        kept = (states.distance(X) <= chosen.farthest) & (rows.latest >= chosen.earliest) & (rows.weights > 0)
        numbers = rows.number + np.flatnonzero(kept)
        if numbers.size == 0:
            return cls(None, np.empty(0), numbers)
        W = Observation(known_time_weights(rows.times[kept], view.slices, view.first)).time_matrix(view.slices.size)
        B = place_matrix(states.observe(X[kept]), (numbers.size, rank.size), rank)
        order = np.argsort(B.indices[B.indptr[:-1]], kind="stable")
        volumes = np.empty(rank.size)
        volumes[rank] = states.volumes
        place = np.arange(numbers.size, dtype=np.uint32)
        weights = SliceWeights(W[order], B[order], place, view.floor * volumes, view.floor, schedule)
        return cls(weights, rows.weights[kept][order], numbers[order])

    @property
    def weight(self) -> float:
        """The sum of the weights of the samples that are used."""
        return float(self.sample_weight.sum())

    def sums(self, masses: Array, total: float) -> tuple[float, Array]:
        """−Σ_i ω_i log likelihood_i / total, and its derivative by the masses, (S, N, F)."""
        if self.weights is None:
            return 0.0, np.zeros_like(masses)
        accumulator, schedule = self.weights.accumulator(Workspace()), self.weights.schedule
        for block, first, last in schedule.blocks():
            accumulator.accumulate(block, masses[first:last])
        likelihood = positive_likelihood(accumulator.likelihood(), self.numbers)
        share, source = self.sample_weight / total, np.empty_like(masses)
        for block, first, last in reversed(schedule.blocks()):
            states = accumulator.by_state(block, masses[first:last])
            accumulator.adjoint_source(block, states, -share / likelihood, source[first:last])
        return -float(share @ np.log(likelihood)), source


def added(*parts: tuple[float, Array]) -> tuple[float, Array]:
    """The sums of several blocks together."""
    loss, source = parts[0][0], parts[0][1].copy()
    for value, derivative in parts[1:]:
        loss += value
        source += derivative
    return loss, source
