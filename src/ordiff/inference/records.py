"""What samples see of the records of a chain, block by block, and what is kept of them on the way.

Plan                        how the steps are cut into blocks
Observer, SharedObserver    likelihoods from blocks of records, and sources for the way back
Kept, Scratch               the memory of a pass
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ordiff import _sparse, _threads
from ordiff._check import Array


def where(B: sp.csr_array | None, place: NDArray[np.uint32]) -> tuple[Any, ...]:
    """The places of samples as the loops take them: the state of each, or B."""
    if B is None:
        return place, np.empty(0, np.int32), np.empty(0, np.uint32), np.empty(0)
    return np.empty(0, np.uint32), B.indptr, _sparse.unsigned(B.indices), B.data


class Observer:
    """What samples see of each block of records, any weights. Block 0 is record 0 alone."""

    def __init__(
        self,
        W: sp.csr_array,
        B: sp.csr_array | None,
        place: NDArray[np.uint32],
        offset: Array,
        floor: float,
        plan: Plan,
    ) -> None:
        self.W, self.B, self.place, self.offset, self.floor, self.plan = W, B, place, offset, floor, plan
        self.log = offset.size > 0
        self.volumes = offset / floor if self.log else offset
        self.total, self.scratch = np.zeros(W.shape[0]), Scratch()
        self.block, self.slope = -1, np.empty(0)
        self.where = where(B, place)
        per_row = 1 if B is None else max(1, B.nnz // B.shape[0])
        self._visits(per_row * (3 if self.log else 1))

    def fresh(self, memory: Scratch | None = None) -> Observer:
        """The same observer with nothing seen yet."""
        new = copy(self)
        new.total, new.scratch, new.block = np.zeros_like(self.total), memory or Scratch(), -1
        return new

    def _visits(self, work: int) -> None:
        """Runs of entries of W in one row and one block, grouped by block."""
        W, plan = self.W, self.plan
        rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
        block = np.where(W.indices == 0, 0, 1 + (W.indices - 1) // plan.width)
        first = np.flatnonzero(np.diff(rows, prepend=-1) + np.diff(block, prepend=-1).astype(bool))
        last = np.append(first[1:], W.nnz)
        seen, of = rows[first], block[first]
        order = np.argsort(of, kind="stable")
        cuts = np.searchsorted(of[order], np.arange(plan.n_blocks + 2))
        self.visits = []
        for a, b in pairwise(cuts.tolist()):
            at = order[a:b]
            entries = int((last[at] - first[at]).sum())
            arrays = tuple(np.ascontiguousarray(x[at], dtype=np.intp) for x in (seen, first, last))
            self.visits.append((arrays, _threads.even_ranges(b - a, entries * work)))

    def _loop(self, block: int, loop: Callable[..., Any], table: Array, *args: Any) -> None:
        arrays, ranges = self.visits[block]
        W, first = self.W, self.plan.first_record(block)
        _threads.over(ranges, loop, *arrays, W.indices, W.data, first, *self.where, table, self.log, *args)

    def table(self, states: Array) -> Array:
        """What B is applied to: the masses (N, C), or log(p/v + δ)."""
        if not self.log:
            return states
        out = self.scratch("table", *states.shape)
        ranges = _threads.even_ranges(len(states), 4 * states.size)
        _threads.over(ranges, _sparse.log_table, states, self.volumes, self.floor, out)
        return out

    def states(self, block: int, steps: Array) -> Array:
        """The records of a block by states, (N, T F); the block that was asked for last is at hand."""
        count, n, phases = steps.shape
        out = self.scratch("states", n, count * phases)
        if block != self.block:
            self.plan.states(steps, out)
            self.block = block
        return out

    def look(self, block: int, steps: Array) -> None:
        """Add the records of a block, (T, N, F)."""
        if self.visits[block][0][0].size:
            self._loop(block, _sparse.observe, self.table(self.states(block, steps)), self.total)

    @property
    def n_samples(self) -> int:
        return self.total.size

    def likelihood(self) -> Array:
        return self.total if self.log else self.total + self.floor

    def source(self, block: int, states: Array, out: Array) -> None:
        """The derivative of the loss by the records of a block, (T, N, F), from their masses by states, (N, C)."""
        arrays, ranges = self.visits[block]
        if arrays[0].size == 0:
            out[...] = 0.0
            return
        table = self.table(states)
        W, first = self.W, self.plan.first_record(block)
        # samples that are states never write to the same row; others get a buffer per thread
        parts = self.scratch("parts", 1 if self.B is None else len(ranges), *states.shape)
        parts[...] = 0.0
        targets = [parts[min(k, len(parts) - 1)] for k in range(len(ranges))]

        def scatter(item: tuple[_threads.Range, Array]) -> None:
            rows, target = item
            visit = (*arrays, W.indices, W.data, first, *self.where, table, self.log, self.slope)
            _sparse.observe_back(*rows, *visit, target)

        _threads.in_threads(scatter, list(zip(ranges, targets, strict=True)))
        nodes = _threads.even_ranges(len(states), 2 * states.size)
        _threads.over(nodes, _sparse.states_to_steps, parts, states, self.offset, out)

    def shares(self, block: int, steps: Array, out: Array) -> None:
        """slope_i W_ir (p̂_i(r)) for the entries of W in a block."""
        if self.visits[block][0][0].size:
            self._loop(block, _sparse.record_shares, self.table(self.states(block, steps)), self.slope, out)


class SharedObserver:
    """The linear form when all samples have the same weights of records: only the weighted sum of records matters."""

    def __init__(
        self, weights: Array, B: sp.csr_array | None, place: NDArray[np.uint32], floor: float, plan: Plan
    ) -> None:
        self.B, self.place, self.floor, self.plan, self.scratch = B, place, floor, plan, Scratch()
        self.first, self.weights = weights[0], weights[1:].reshape(-1, plan.phases)
        self.total = np.zeros(plan.n)
        self._source = np.empty(0)

    def look(self, block: int, steps: Array) -> None:
        if block == 0:
            self.total += self.first * steps[0, :, 0]
            return
        begin = (block - 1) * self.plan.length
        for mass, weights in zip(steps, self.weights[begin:], strict=False):
            self.total += mass @ weights

    def states(self, block: int, steps: Array) -> Array:
        count, n, phases = steps.shape
        return self.plan.states(steps, self.scratch("states", n, count * phases))

    @property
    def n_samples(self) -> int:
        return self.place.size if self.B is None else int(self.B.shape[0])

    def likelihood(self) -> Array:
        seen = self.total[self.place] if self.B is None else self.B @ self.total
        return seen + self.floor

    @property
    def slope(self) -> Array:
        return self._source

    @slope.setter
    def slope(self, slope: Array) -> None:
        if self.B is None:
            self._source = np.empty_like(slope)
            self._source[self.place] = slope
        else:
            self._source = self.B.T @ slope

    def source(self, block: int, states: Array, out: Array) -> None:
        begin = (block - 1) * self.plan.length
        for target, weights in zip(out, self.weights[begin:], strict=False):
            np.multiply(self._source[:, None], weights, out=target)


@dataclass(frozen=True)
class Plan:
    """How the S steps of F phases are cut into blocks of ``length`` steps."""

    n: int
    steps: int
    phases: int
    length: int

    @property
    def n_blocks(self) -> int:
        return -(-self.steps // self.length)

    @property
    def width(self) -> int:
        """Records per block."""
        return self.length * self.phases

    @property
    def n_records(self) -> int:
        return 1 + self.steps * self.phases

    def first_record(self, block: int) -> int:
        return 0 if block == 0 else 1 + (block - 1) * self.width

    def blocks(self) -> list[tuple[int, int, int]]:
        """(number, first step, last step + 1), from 1 on."""
        L = self.length
        return [(b + 1, b * L, min((b + 1) * L, self.steps)) for b in range(self.n_blocks)]

    def states(self, steps: Array, out: Array) -> Array:
        """(T, N, F) → (N, T F)."""
        _threads.over(_threads.even_ranges(self.n, 2 * out.size), _sparse.steps_to_states, steps, out)
        return out


class Scratch:
    """Arrays that are used again, for every block or every pass: new memory costs as much as what is done with it."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def __call__(self, name: str, *shape: int) -> Array:
        """An array of this shape, with anything in it."""
        size = math.prod(shape)
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size)
        return self._arrays[name][:size].reshape(shape)


@dataclass(frozen=True)
class Kept:
    """What is kept of a forward pass: all steps (S, N, F), or one block of them and, for a way back, block starts."""

    steps: Array
    starts: Array | None
    everything: bool

    @classmethod
    def all(cls, plan: Plan, memory: Scratch | None = None) -> Kept:
        return cls((memory or Scratch())("steps", plan.steps, plan.n, plan.phases), None, True)

    @classmethod
    def nothing(cls, plan: Plan) -> Kept:
        return cls(np.empty((plan.length, plan.n, plan.phases)), None, False)

    @classmethod
    def starting(cls, plan: Plan) -> Kept:
        return cls(cls.nothing(plan).steps, np.empty((plan.n_blocks, plan.n, plan.phases)), False)

    def room(self, first: int, last: int) -> Array:
        """Where steps first .. last − 1 are."""
        return self.steps[first:last] if self.everything else self.steps[: last - first]
