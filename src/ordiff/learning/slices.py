"""The time slices of a chain: blocks of them, what samples get from each block, and what is kept of a pass.

BlockSchedule                                how the steps are cut into blocks
SliceWeights, PooledWeights                  how samples weight the time slices; immutable
LikelihoodAccumulator, PooledAccumulator     one pass: likelihoods from blocks, and sources for the way back
ReceivedSource                               the sources of samples that are elsewhere
ForwardStore, Workspace                      the memory of a pass
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ordiff import _parallel
from ordiff._compiled import csr
from ordiff._compiled import likelihood as loops
from ordiff._validation import Array

# Buffers that samples are scattered to side by side; a fixed number, so that sums do not depend on the threads.
_MOST_BUFFERS = 4


@dataclass(frozen=True)
class BlockSchedule:
    """How the S steps of F phases are cut into blocks of ``length`` steps. Block 0 is time slice 0 alone."""

    n: int
    steps: int
    phases: int
    length: int

    @property
    def n_blocks(self) -> int:
        return -(-self.steps // self.length)

    @property
    def width(self) -> int:
        """Time slices per block."""
        return self.length * self.phases

    @property
    def n_slices(self) -> int:
        return 1 + self.steps * self.phases

    def first_slice(self, block: int) -> int:
        return 0 if block == 0 else 1 + (block - 1) * self.width

    def blocks(self) -> list[tuple[int, int, int]]:
        """(number, first step, last step + 1), from 1 on."""
        L = self.length
        return [(b + 1, b * L, min((b + 1) * L, self.steps)) for b in range(self.n_blocks)]

    def by_state(self, steps: Array, out: Array) -> Array:
        """(T, N, F) → (N, T F)."""
        _parallel.over_ranges(_parallel.even_ranges(self.n, 2 * out.size), loops.by_state, steps, out)
        return out


class Workspace:
    """Named arrays that are used again for every block and every pass of one caller."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def __call__(self, name: str, *shape: int) -> Array:
        """An array of this shape, with anything in it."""
        size = math.prod(shape)
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size)
        return self._arrays[name][:size].reshape(shape)


@dataclass(frozen=True)
class ForwardStore:
    """What is kept of a forward pass: all steps (S, N, F), or one block of them and, for a way back, block starts."""

    steps: Array
    starts: Array | None
    complete: bool

    @classmethod
    def everything(cls, schedule: BlockSchedule, workspace: Workspace) -> ForwardStore:
        return cls(workspace("steps", schedule.steps, schedule.n, schedule.phases), None, True)

    @classmethod
    def one_block(cls, schedule: BlockSchedule) -> ForwardStore:
        return cls(np.empty((schedule.length, schedule.n, schedule.phases)), None, False)

    @classmethod
    def block_starts(cls, schedule: BlockSchedule) -> ForwardStore:
        starts = np.empty((schedule.n_blocks, schedule.n, schedule.phases))
        return cls(cls.one_block(schedule).steps, starts, False)

    def block(self, first: int, last: int) -> Array:
        """Where steps first .. last − 1 are."""
        return self.steps[first:last] if self.complete else self.steps[: last - first]


def place_arrays(B: sp.csr_array | None, place: NDArray[np.uint32]) -> tuple[Any, ...]:
    """The places of samples as the loops take them: the state of each, or B."""
    if B is None:
        return place, np.empty(0, np.int32), np.empty(0, np.uint32), np.empty(0)
    return np.empty(0, np.uint32), B.indptr, csr.unsigned(B.indices), B.data


# ------------------------------------------------------------------------------------------ any weights


class SliceWeights:
    """W (m, T), the weight of every time slice for every sample, and B, the states around it, block by block.

    offset: δ v (N,) in the log-linear form, else empty.
    """

    def __init__(
        self,
        W: sp.csr_array,
        B: sp.csr_array | None,
        place: NDArray[np.uint32],
        offset: Array,
        floor: float,
        schedule: BlockSchedule,
    ) -> None:
        self.W, self.B, self.place, self.offset, self.floor, self.schedule = W, B, place, offset, floor, schedule
        self.log = offset.size > 0
        self.volumes = offset / floor if self.log else offset
        self.places = place_arrays(B, place)
        per_row = 1 if B is None else max(1, B.nnz // B.shape[0])
        self.visits = self._visits(per_row * (3 if self.log else 1))

    @property
    def n_samples(self) -> int:
        return int(self.W.shape[0])

    def accumulator(self, workspace: Workspace) -> LikelihoodAccumulator:
        return LikelihoodAccumulator(self, workspace)

    def _visits(self, work: int) -> list[tuple[tuple[Any, ...], int]]:
        """Runs of entries of W in one row and one block, grouped by block: (sample, first, last), and their work."""
        W, schedule = self.W, self.schedule
        rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
        block = np.where(W.indices == 0, 0, 1 + (W.indices - 1) // schedule.width)
        first = np.flatnonzero(np.diff(rows, prepend=-1) + np.diff(block, prepend=-1).astype(bool))
        last = np.append(first[1:], W.nnz)
        sample, of = rows[first], block[first]
        order = np.argsort(of, kind="stable")
        cuts = np.searchsorted(of[order], np.arange(schedule.n_blocks + 2))
        found = []
        for a, b in pairwise(cuts.tolist()):
            at = order[a:b]
            arrays = tuple(np.ascontiguousarray(x[at], dtype=np.intp) for x in (sample, first, last))
            found.append((arrays, int((last[at] - first[at]).sum()) * work))
        return found

    def visit(self, block: int, table: Array) -> tuple[Any, ...]:
        """What the loops over samples take for a block, after the range."""
        arrays, W = self.visits[block][0], self.W
        return (*arrays, W.indices, W.data, self.schedule.first_slice(block), *self.places, table, self.log)

    def ranges(self, block: int, most: int | None = None) -> list[_parallel.Range]:
        arrays, work = self.visits[block]
        return _parallel.even_ranges(arrays[0].size, work, most)

    def is_empty(self, block: int) -> bool:
        return self.visits[block][0][0].size == 0


class LikelihoodAccumulator:
    """One pass over the time slices: Σ_r W_ir p̂_i(r) forward, and its derivatives on the way back."""

    def __init__(self, weights: SliceWeights, workspace: Workspace) -> None:
        self.weights, self.workspace = weights, workspace
        self.total = np.zeros(weights.n_samples)
        self._block = -1  # the one that is in the workspace by state

    def _loop(self, block: int, loop: Callable[..., Any], table: Array, *args: Any) -> None:
        _parallel.over_ranges(self.weights.ranges(block), loop, *self.weights.visit(block, table), *args)

    def _table(self, states: Array) -> Array:
        """What B is applied to: the masses (N, C), or log(p/v + δ)."""
        w = self.weights
        if not w.log:
            return states
        out = self.workspace("table", *states.shape)
        ranges = _parallel.even_ranges(len(states), 4 * states.size)
        _parallel.over_ranges(ranges, loops.log_densities, states, w.volumes, w.floor, out)
        return out

    def by_state(self, block: int, steps: Array) -> Array:
        """The time slices of a block by states, (N, T F)."""
        count, n, phases = steps.shape
        out = self.workspace("by state", n, count * phases)
        if block != self._block:
            self.weights.schedule.by_state(steps, out)
            self._block = block
        return out

    def accumulate(self, block: int, steps: Array) -> None:
        """Add the time slices of a block, (T, N, F)."""
        if not self.weights.is_empty(block):
            self._loop(block, loops.accumulate_likelihood, self._table(self.by_state(block, steps)), self.total)

    def likelihood(self) -> Array:
        return self.total if self.weights.log else self.total + self.weights.floor

    def adjoint_source(self, block: int, states: Array, slope: Array, out: Array) -> None:
        """The derivative of Σ_i slope_i · likelihood_i by the time slices of a block, (T, N, F); states: (N, T F)."""
        w = self.weights
        if w.is_empty(block):
            out[...] = 0.0
            return
        visit = w.visit(block, self._table(states))
        # samples that are states never write to the same row; others get buffers
        ranges = w.ranges(block, _MOST_BUFFERS)
        parts = self.workspace("parts", 1 if w.B is None else len(ranges), *states.shape)
        parts[...] = 0.0
        targets = [parts[min(k, len(parts) - 1)] for k in range(len(ranges))]

        def scatter(item: tuple[_parallel.Range, Array]) -> None:
            rows, target = item
            loops.accumulate_adjoint(*rows, *visit, slope, target)

        _parallel.parallel_map(scatter, list(zip(ranges, targets, strict=True)))
        nodes = _parallel.even_ranges(len(states), 2 * states.size)
        _parallel.over_ranges(nodes, loops.by_step, parts, states, w.offset, out)

    def slice_shares(self, initial: Array, masses: Array, slope: Array) -> Array:
        """slope_i W_ir (p̂_i(r)) for the entries of W, from slice 0 (N,) and all steps (S, N, F)."""
        w, out = self.weights, np.empty(self.weights.W.nnz)
        for block, first, last in [(0, 0, 1), *w.schedule.blocks()]:
            if not w.is_empty(block):
                steps = initial[None, :, None] if block == 0 else masses[first:last]
                self._loop(block, loops.slice_shares, self._table(self.by_state(block, steps)), slope, out)
        return out


# ------------------------------------------------------------------------------------------ one row of weights


@dataclass(frozen=True, eq=False)
class PooledWeights:
    """The linear form when all samples have the same weights (T,): only the weighted sum of the time slices matters."""

    weights: Array
    B: sp.csr_array | None
    place: NDArray[np.uint32]
    floor: float
    schedule: BlockSchedule

    @property
    def n_samples(self) -> int:
        return self.place.size if self.B is None else int(self.B.shape[0])

    @property
    def by_step(self) -> Array:
        """(S, F)."""
        return self.weights[1:].reshape(-1, self.schedule.phases)

    def accumulator(self, workspace: Workspace) -> PooledAccumulator:
        return PooledAccumulator(self, workspace)


class PooledAccumulator:
    """One pass for pooled weights."""

    def __init__(self, weights: PooledWeights, workspace: Workspace) -> None:
        self.weights, self.workspace = weights, workspace
        self.total = np.zeros(weights.schedule.n)

    def accumulate(self, block: int, steps: Array) -> None:
        w = self.weights
        if block == 0:
            self.total += w.weights[0] * steps[0, :, 0]
            return
        begin = (block - 1) * w.schedule.length
        for mass, weights in zip(steps, w.by_step[begin:], strict=False):
            self.total += mass @ weights

    def by_state(self, block: int, steps: Array) -> Array:
        count, n, phases = steps.shape
        return self.weights.schedule.by_state(steps, self.workspace("by state", n, count * phases))

    def likelihood(self) -> Array:
        w = self.weights
        return (self.total[w.place] if w.B is None else w.B @ self.total) + w.floor

    def adjoint_source(self, block: int, states: Array, slope: Array, out: Array) -> None:
        w = self.weights
        if w.B is None:
            source = np.zeros(w.schedule.n)
            source[w.place] = slope
        else:
            source = w.B.T @ slope
        begin = (block - 1) * w.schedule.length
        for target, weights in zip(out, w.by_step[begin:], strict=False):
            np.multiply(source[:, None], weights, out=target)


# ------------------------------------------------------------------------------------------ samples elsewhere


@dataclass(frozen=True, eq=False)
class ReceivedSource:
    """The derivative of a loss by all time slices, (S, N, F), as blocks of samples elsewhere have given it."""

    source: Array
    schedule: BlockSchedule
    workspace: Workspace

    def by_state(self, block: int, steps: Array) -> Array:
        count, n, phases = steps.shape
        return self.schedule.by_state(steps, self.workspace("by state", n, count * phases))

    def adjoint_source(self, block: int, states: Array, slope: Array, out: Array) -> None:
        begin = (block - 1) * self.schedule.length
        out[...] = self.source[begin : begin + len(out)]
