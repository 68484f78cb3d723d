"""Stationary mass and fates of a chain whose matrix is in blocks elsewhere: products with it are all that is used.

The systems are those of `passage`; GMRES is preconditioned by an approximate solve within each block, and after it one
for functions constant on groups of near samples, which joins the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ordiff import _absorbing, _targets, _validation
from ordiff._validation import Array, GraphError
from ordiff.passage import terminal_sets

# Groups of the coarse level, at most, and samples in one, at least.
_GROUPS, _GROUP_POINTS = 4_000, 20
# Steps from the uniform mass after which the most likely state is the reference of the stationary mass.
_BURN_IN = 30


class BlockChain(Protocol):
    """What is asked of a chain, as `distributed.DistributedOperator` has it."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def moving(self) -> Array: ...

    def _pull(self, f: Array) -> Array: ...

    def _push(self, mass: Array) -> Array: ...

    def _increment(self, f: Array) -> Array: ...

    def block_inverse(self, free: NDArray[np.bool_]) -> Callable[[Array, bool], Array]: ...

    def groups(self, total: int) -> NDArray[np.intp]: ...

    def between_groups(self, label: NDArray[np.intp], count: int) -> sp.csr_array: ...


def fate_probabilities(op: BlockChain, terminal: Any) -> Array:
    """The probability to end in each of several terminal sets, from every sample, (m, fates), as
    `ordiff.fate_probabilities` has it: (I − Q) f_s = R_s by GMRES on blocks.

    The probabilities of a row are summed up before they are scaled to 1: a sum that is off by more than 10⁻⁶, like a
    residual above 10⁻¹⁰, is an error.
    """
    m = op.shape[0]
    sets = [_targets.members(states, m, "terminal") for states in terminal_sets(terminal, m).values()]
    targets = np.logical_or.reduce(sets)
    _targets.some_left(targets)
    lost = ~_reaching(op, targets)
    if lost.any():
        raise GraphError(
            f"{int(lost.sum())} of {m} samples, the first at index {int(np.argmax(lost))}, do not reach any of the "
            "terminal sets: add a set that holds where they end, join them by more neighbours, or leave them out."
        )
    fates = np.stack(sets, axis=1).astype(float)
    system = _BlockSystem(op, ~targets)
    into = op._pull(fates)[~targets]
    found = np.maximum(np.stack([system.solve(b) for b in into.T], axis=1), 0.0)
    total = found.sum(axis=1, keepdims=True)
    _check_ones(total)
    fates[~targets] = found / total
    return fates


def stationary(op: BlockChain) -> Array:
    """The stationary mass, π = Pᵀπ, (m,), of total 1, as `ordiff.stationary` has it: by GMRES on blocks, with the
    sample that is visited most as the reference. A chain with several closed classes is an error."""
    m = op.shape[0]
    start = np.full(m, 1.0 / m)
    for _ in range(_BURN_IN):
        start = op._push(start)
    mass = np.zeros(m)
    mass[np.argmax(start)] = 1.0
    reference = mass > 0
    lost = ~_reaching(op, reference)
    if lost.any():
        raise GraphError(
            f"the chain has more than one closed class: {int(lost.sum())} of {m} samples, the first at index "
            f"{int(np.argmax(lost))}, do not lead to sample {int(np.argmax(reference))}. Join them by more neighbours."
        )
    recurrent = _spread(op._push, reference)
    free = recurrent & ~reference
    if free.any():
        system = _BlockSystem(op, free)
        _check_ones(system.solve(system.leaving))
        mass[free] = np.maximum(system.solve(op._push(mass)[free], transposed=True), 0.0)
    return mass / mass.sum()


def _reaching(op: BlockChain, goal: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The samples from which the goal can be reached, (m,)."""
    return _spread(op._pull, goal)


def _spread(step: Callable[[Array], Array], start: NDArray[np.bool_]) -> NDArray[np.bool_]:
    here = start
    while True:
        there = here | (step(here.astype(float)) > 0)
        if (there == here).all():
            return here
        here = there


def _check_ones(found: Array) -> None:
    """The probability to end at all, which is 1, as a system solves for it."""
    if not (worst := float(np.abs(found - 1.0).max())) <= _absorbing._MAX_ERROR:
        raise _validation.unsolved(f"the chain ends with probability 1, which comes out {worst:.1g} off")


class _BlockSystem:
    """(I − Q) x = b, or its transpose, among the free samples, with Q in blocks.

    The preconditioner is made of the systems of the blocks and of one for groups of samples.
    """

    def __init__(self, op: BlockChain, free: NDArray[np.bool_]) -> None:
        self.op, self.free, self.diagonal = op, free, op.moving[free]
        group = op.groups(min(_GROUPS, max(1, free.size // _GROUP_POINTS)))
        used, self.label = np.unique(group[free], return_inverse=True)
        self.count, label = used.size, np.full(free.size, -1)
        label[free] = self.label
        self._inverse = op.block_inverse(free)
        self.leaving = op._pull((~free).astype(float))[free]
        leaving = self._sums(self.leaving)
        self._coarse = _absorbing._factored(_absorbing._with_row_sums(-op.between_groups(label, self.count), leaving))

    def _sums(self, values: Array) -> Array:
        """Over each group."""
        return _absorbing._group_sums(self.label, values, self.count)

    def product(self, x: Array, transposed: bool) -> Array:
        """(I − Q) x, or its transpose."""
        padded = np.zeros(self.free.size)
        padded[self.free] = x
        if transposed:
            return (padded - self.op._push(padded))[self.free]
        return -self.op._increment(padded)[self.free]

    def precondition(self, b: Array, transposed: bool) -> Array:
        x = self._in_blocks(b, transposed)
        residual = b - self.product(x, transposed)
        return x + self._coarse(self._sums(residual), transposed)[self.label]

    def _in_blocks(self, b: Array, transposed: bool) -> Array:
        padded = np.zeros(self.free.size)
        padded[self.free] = b
        return self._inverse(padded, transposed)[self.free]

    def solve(self, b: Array, *, transposed: bool = False) -> Array:
        """x, whose residual has been checked."""
        x, iterations = _absorbing._gmres(self.product, self.precondition, b, transposed)
        residual = float(np.linalg.norm(b - self.product(x, transposed)))
        size = float(np.linalg.norm(b) + np.linalg.norm(self.diagonal * x))
        if not residual <= _absorbing._MAX_RESIDUAL * size:
            raise _validation.unsolved(f"after {iterations} iterations its relative residual is {residual / size:.2g}")
        return x
