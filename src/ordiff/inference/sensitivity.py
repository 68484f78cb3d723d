"""Scores: how the log likelihood of every sample changes with every coefficient, by forward sensitivities.

OrderingChange, RowChange    dPᵀ p for many directions at once
View                         from changes of records to changes of log likelihoods
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ordiff import _sparse, _threads
from ordiff._check import Array, IntArray
from ordiff.inference.chain import Chain, Rows
from ordiff.inference.records import Observer, SharedObserver, where

# Directions per task of the scores: the neighbours' changes then fit the second-level cache.
DIRECTIONS = 40


@dataclass(frozen=True)
class OrderingChange:
    """An ordering changes by U a. With c = slope/ρ²,  (dPᵀ p)(j) = U_j [Pᵀ(p c)](j) − [Pᵀ(p c (P U))](j)."""

    U: Array  # (N, K)
    PU: Array  # (N, K)
    firsts: list[Array]  # P_θ U on the rows of the start, (rows, K) each
    coef: Array  # (N,)

    @classmethod
    def make(cls, chain: Chain, coef: Array, U: Array) -> OrderingChange:
        PU = np.zeros_like(U)
        chain.pull_onto(U, PU)
        return cls(U, PU, [_times(chain.start, P, U) for P in chain.firsts], coef)

    def columns(self, a: int) -> OrderingChange:
        """Those of one task, from column a on."""
        some = slice(a, a + DIRECTIONS)
        U, PU, *firsts = (np.ascontiguousarray(array[:, some]) for array in (self.U, self.PU, *self.firsts))
        return OrderingChange(U, PU, firsts, self.coef)

    def launch(self, chain: Chain, mass: Array) -> Array:
        """The change of the first step of every phase, (N, F, K)."""
        pc = mass * self.coef[chain.start.rows]
        along = chain.launch(pc)
        out = along[:, :, None] * self.U[:, None, :]
        for f, (P, PU) in enumerate(zip(chain.firsts, self.firsts, strict=True)):
            out[:, f] -= _transposed_times(chain, P, pc[:, None] * PU)
        return out

    def step(self, chain: Chain, mass: Array, here: Array) -> tuple[Array, Array]:
        """What is yet to be pushed by Pᵀ, and what is added to it, (N, F, K) each."""
        pc = mass * self.coef[:, None]
        along = chain.push(pc)
        return here - pc[:, :, None] * self.PU[:, None, :], along[:, :, None] * self.U[:, None, :]


@dataclass(frozen=True)
class RowChange:
    """A parameter of rows changes by U a: with A_ij = ∂ log K_ij, R = P ∘ (A − rowsum(P∘A)),  dPᵀ p = Rᵀ(p U)."""

    U: Array  # (N, K)
    RT: Array  # (E,), by columns
    firsts: list[Array]  # R of every phase on the rows of the start

    @classmethod
    def make(cls, chain: Chain, exponent: Callable[[Rows, float], Array], U: Array) -> RowChange:
        rows, start, eps = chain.pattern.all, chain.start, chain.parts.eps
        R = rows.centred(chain.P, exponent(rows, eps))
        firsts = [
            start.centred(P, exponent(start, theta * eps))
            for theta, P in zip(chain.fractions, chain.firsts, strict=True)
        ]
        return cls(U, chain.pattern.columns.values(R), firsts)

    def columns(self, a: int) -> RowChange:
        return RowChange(np.ascontiguousarray(self.U[:, a : a + DIRECTIONS]), self.RT, self.firsts)

    def launch(self, chain: Chain, mass: Array) -> Array:
        moved = mass[:, None] * self.U[chain.start.rows]
        return np.stack([_transposed_times(chain, R, moved) for R in self.firsts], axis=1)

    def step(self, chain: Chain, mass: Array, here: Array) -> tuple[Array, Array]:
        n, phases, K = here.shape
        out = np.zeros((n, phases * K))
        chain.push_onto(self.RT, (mass[:, :, None] * self.U[:, None, :]).reshape(n, phases * K), out)
        return here, out.reshape(here.shape)


def _times(rows: Rows, data: Array, f: Array) -> Array:
    """A f on some rows, (rows, K)."""
    out = np.empty((rows.rows.size, f.shape[1]))
    _sparse.pull(0, rows.rows.size, rows.indptr, rows.indices, data, f, out, False)
    return out


def _transposed_times(chain: Chain, data: Array, mass: Array) -> Array:
    """Aᵀ mass from the rows of the start, (N, K)."""
    out, start = np.zeros((chain.pattern.n, mass.shape[1])), chain.start
    _sparse.push(0, start.rows.size, start.indptr, start.indices, data, mass, out)
    return out


class View:
    """Turns changes of records into changes of log likelihoods, a record at a time."""

    def __init__(self, observer: Observer | SharedObserver, masses: Array, initial: Array) -> None:
        self.masses, self.plan, self.where = masses, observer.plan, where(observer.B, observer.place)
        self.shared = observer if isinstance(observer, SharedObserver) else None
        self.offset = np.empty(0)
        self.n_samples = observer.n_samples
        if isinstance(observer, Observer):
            self.offset = observer.offset
            shares = np.empty(observer.W.nnz)
            observer.shares(0, initial[None, :, None], shares)
            for block, first, last in self.plan.blocks():
                observer.shares(block, masses[first:last], shares)
            entries = (shares, observer.W.indices, observer.W.indptr)
            by_record = sp.csr_array(entries, shape=observer.W.shape).tocsc()
            self.indptr, self.seen, self.share = by_record.indptr, by_record.indices, by_record.data

    def begin(self, K: int) -> Array:
        """What is added up: a row per sample, or per state when all samples weight the records alike."""
        return np.zeros((self.n_samples if self.shared is None else self.plan.n, K))

    def see(self, step: int, change: Array, out: Array) -> None:
        """Add what the changes of a step, (N, F, K), do."""
        if self.shared is not None:
            for f, weight in enumerate(self.shared.weights[step]):
                out += weight * change[:, f]
            return
        for f in range(self.plan.phases):
            record = 1 + step * self.plan.phases + f
            a, b = self.indptr[record], self.indptr[record + 1]
            if a == b:
                continue
            here = change[:, f]
            if self.offset.size:
                here = here / (self.masses[step, :, f] + self.offset)[:, None]
            _score(self.where, self.seen[a:b], self.share[a:b], np.ascontiguousarray(here), out)

    def finish(self, out: Array) -> Array:
        """The changes of log likelihoods, (m, K)."""
        if self.shared is None:
            return out
        samples = np.zeros((self.n_samples, out.shape[1]))
        _score(self.where, np.arange(self.n_samples), 1 / self.shared.likelihood(), out, samples)
        return samples


def _score(where: tuple[Any, ...], seen: IntArray, share: Array, change: Array, out: Array) -> None:
    ranges = _threads.even_ranges(seen.size, seen.size * out.shape[1] * 4)
    _threads.over(ranges, _sparse.score_record, seen, share, *where, change, out)
