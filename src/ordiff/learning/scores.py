"""Scores: how the log likelihood of every sample changes with every coefficient, by forward sensitivities.

    dp_{s+1} = Pᵀ dp_s + dPᵀ p_s

for all directions of a task at once, in single precision: what the Fisher information needs of them.

Directions                   changes U a of the dynamics
StartChange                  dp_0 for many directions at once, after which nothing is added
OrderingChange, RowChange    dPᵀ p for many directions at once
ScoreAccumulator             from changes of time slices to changes of log likelihoods
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ordiff import _parallel, _validation
from ordiff._compiled import csr
from ordiff._compiled import likelihood as loops
from ordiff._validation import Array
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood, positive_likelihood
from ordiff.learning.slices import ForwardStore, LikelihoodAccumulator, PooledAccumulator, Workspace, place_arrays
from ordiff.learning.transition import ChainRows, TransitionMatrix

# Directions per task: the neighbours' changes then fit the second-level cache.
_DIRECTIONS = 64
# What is a smaller share of the largest is 0 in the scores: single precision has no normal numbers for products of
# smaller ones, and processors take up to ten times as long for others.
_NEGLIGIBLE = 1e-18
# In units of the precision: a transition that is less likely, beside the likeliest to the same state, is left out; of a
# hundred steps together these bring less than the least density that likelihoods on designed states allow for.
_LOST = 0.01

Derivative = Callable[[ChainRows, float], Array]  # ∂ log K on the edges of rows whose step is given


@dataclass(frozen=True)
class Directions:
    """Changes U a of the dynamics, each U (N, K_k): one for every ordering, slope and local slope (None: no change),
    those of several local slopes together, one for the noise, whose columns of the scores are the last, and one for the
    initial mass, whose columns are the first."""

    orderings: tuple[Array | None, ...] = ()
    slopes: tuple[Array | None, ...] = ()
    local_slopes: tuple[Array | None, ...] = ()
    noise: Array | None = None
    together: tuple[tuple[int, Array], ...] = ()  # the first of d local slopes, and their changes U (d, N, K)
    initial: Array | None = None


def scores(
    likelihood: SnapshotLikelihood,
    dynamics: Dynamics,
    directions: Directions,
    rows: ArrayLike | None = None,
    dtype: Any = np.float32,
) -> Array:
    """∂ log likelihood_i / ∂a for changes U a of the dynamics, (m, K) or, for some ``rows``, (len(rows), K)."""
    chain = likelihood.transition(dynamics)
    m = likelihood.n_samples
    wanted = np.arange(m) if rows is None else _validation.indices(rows, m, "rows")
    weights = likelihood.slice_weights(likelihood.inner_samples(wanted))
    accumulator = weights.accumulator(Workspace())
    masses = likelihood.forward(chain, accumulator, ForwardStore.everything(likelihood.schedule, Workspace()))
    values = positive_likelihood(accumulator.likelihood(), wanted)
    target = ScoreAccumulator(accumulator, masses, chain.initial, values, dtype)
    # on samples a state may be reached by the least likely of steps alone
    lost = 0.0 if target.scale is None else _LOST * float(np.finfo(dtype).eps)
    sensitivity = Sensitivity(chain, masses, dtype, lost)
    tasks = [task for change in _changes(chain, directions, sensitivity) for task in change.tasks()]
    parts = _parallel.parallel_map(lambda change: sensitivity.scores(change, target), tasks)
    return np.hstack([np.empty((wanted.size, 0)), *parts])


def _changes(chain: TransitionMatrix, directions: Directions, sensitivity: Sensitivity) -> list[Change]:
    """One change for each part of the dynamics that has directions."""
    p, n = chain.parameters, chain.pattern.n
    d = directions
    if max(len(d.orderings), len(d.slopes)) > len(p.tables) or len(d.local_slopes) > len(p.local_slopes):
        raise ValueError("there are more directions of orderings or slopes than the dynamics have.")

    def inner(U: Array, name: str) -> Array:
        return np.ascontiguousarray(chain.pattern.inner(_validation.functions(U, n, name).reshape(n, -1)))

    found: list[Change] = []
    if d.initial is not None:
        found.append(StartChange(inner(d.initial, "initial")[chain.start.pattern.rows]))
    for k, U in enumerate(d.orderings):
        if U is not None:
            found.append(OrderingChange.make(sensitivity, p.coefs[k], inner(U, "orderings")))
    for k, U in enumerate(d.slopes):
        if U is not None:
            derivative = lambda rows, eps, k=k: rows.by_slope(k, p, eps)  # noqa: E731
            found.append(RowChange.make(sensitivity, [derivative], [inner(U, "slopes")]))

    def by_local_slope(k: int) -> Derivative:
        return lambda rows, eps: rows.by_local_slope(k, p, eps)

    for k, U in enumerate(d.local_slopes):
        if U is not None:
            found.append(RowChange.make(sensitivity, [by_local_slope(k)], [inner(U, "local_slopes")]))
    for first, parts in d.together:
        derivatives = [by_local_slope(first + c) for c in range(len(parts))]
        found.append(RowChange.make(sensitivity, derivatives, [inner(U, "local_slopes") for U in parts]))
    if d.noise is not None:
        found.append(RowChange.make(sensitivity, [lambda rows, eps: rows.by_noise(p, eps)], [inner(d.noise, "noise")]))
    return found


class Sensitivity:
    """The chain in the precision of the scores, and the steps of a change.

    lost: transitions that are less likely than this share of the likeliest to the same state are left out: with 1e-9 a
    third of them, where the noise differs by a factor of two between states.
    """

    def __init__(self, chain: TransitionMatrix, masses: Array, dtype: Any, lost: float) -> None:
        self.chain, self.dtype = chain, dtype
        self.masses = drop_negligible(masses.astype(dtype))
        by = chain.pattern.transpose
        least = lost * np.maximum.reduceat(chain.PT, by.indptr[:-1])
        self.kept = np.repeat(least, np.diff(by.indptr)) < chain.PT
        self.indptr = np.concatenate([[0], np.cumsum(self.kept)])[by.indptr]
        self.indices = by.indices[self.kept]
        self.PT = chain.PT[self.kept].astype(dtype)

    def by_columns(self, edges: Array) -> Array:
        """Edge values of the transitions that are kept, by columns."""
        return np.asarray(self.chain.pattern.transpose.values(edges)[self.kept].astype(self.dtype))

    def push_add(self, by_columns: Array, mass: Array, out: Array) -> None:
        """out += Aᵀ mass, (N, F, K), for edge values given by columns."""
        n = self.chain.pattern.n
        args = (self.indptr, self.indices, by_columns, mass.reshape(n, -1), out.reshape(n, -1))
        csr.multiply_add(0, n, *args)

    def scores(self, change: Change, target: ScoreAccumulator) -> Array:
        """The columns of one task."""
        here = change.launch(self).astype(self.dtype)  # (N, F, K)
        out = target.zeros(here.shape[2])
        target.accumulate(0, here, out)
        for s in range(1, len(self.masses)):
            pushed, after = change.step(self, s - 1, here)
            self.push_add(self.PT, pushed, after)
            here = drop_negligible(after)
            target.accumulate(s, here, out)
        return target.finish(out).astype(np.float64) * change.unit


def drop_negligible(values: Array) -> Array:
    """The array itself, now with 0 for what is negligible beside the largest."""
    least = values.dtype.type(_NEGLIGIBLE * max(values.max(), -values.min()))
    loops.drop_below(0, values.size, least, values.reshape(-1))
    return values


@dataclass(frozen=True)
class StartChange:
    """The initial mass changes by U a: dp_0 = U a, and dP = 0."""

    U: Array  # (rows of the start, K)
    unit: float = 1.0

    def tasks(self) -> list[StartChange]:
        columns = range(0, self.U.shape[1], _DIRECTIONS)
        return [StartChange(np.ascontiguousarray(self.U[:, a : a + _DIRECTIONS])) for a in columns]

    def launch(self, sensitivity: Sensitivity) -> Array:
        chain = sensitivity.chain
        return np.stack([chain.launch_with(P, self.U) for P in chain.firsts], axis=1)

    def step(self, sensitivity: Sensitivity, s: int, here: Array) -> tuple[Array, Array]:
        return here, np.zeros_like(here)


@dataclass(frozen=True)
class OrderingChange:
    """An ordering changes by U a. With c = slope/ρ²,  (dPᵀ p)(j) = U_j [Pᵀ(p c)](j) − [Pᵀ(p c (P U))](j)."""

    U: Array  # (N, K)
    PU: Array  # (N, K)
    firsts: tuple[Array, ...]  # P_θ U on the rows of the start, (rows, K) each
    coef: Array  # (N,), in units of its largest, so that single precision holds it in any units of X
    moved: Array  # p c, (S, N, F)
    along: Array  # Pᵀ(p c), (S, N, F)
    unit: float

    @classmethod
    def make(cls, sensitivity: Sensitivity, coef: Array, U: Array) -> OrderingChange:
        chain, dtype = sensitivity.chain, sensitivity.dtype
        unit = float(np.abs(coef).max()) or 1.0
        coef = coef / unit
        rows, PU = chain.pattern.rows.pattern, np.zeros_like(U)
        ranges = _parallel.row_ranges(rows.indptr, U.shape[1])
        _parallel.over_ranges(ranges, csr.multiply_add, rows.indptr, rows.indices, chain.P, U, PU)
        moved = sensitivity.masses * coef[:, None].astype(dtype)
        along = np.empty(moved.shape)
        for source, out in zip(moved, along, strict=True):
            chain.push(source.astype(np.float64), out)
        firsts = tuple(chain.start_times(P, U) for P in chain.firsts)
        return cls(U, PU, firsts, coef, moved, along.astype(dtype), unit)

    def tasks(self) -> list[OrderingChange]:
        """Columns of U, some a task."""
        found = []
        for a in range(0, self.U.shape[1], _DIRECTIONS):
            some = slice(a, a + _DIRECTIONS)
            U, PU = (np.ascontiguousarray(x[:, some]).astype(self.along.dtype) for x in (self.U, self.PU))
            firsts = tuple(np.ascontiguousarray(x[:, some]) for x in self.firsts)
            found.append(replace(self, U=U, PU=PU, firsts=firsts))
        return found

    def launch(self, sensitivity: Sensitivity) -> Array:
        """The change of the first step of every phase, (N, F, K)."""
        chain = sensitivity.chain
        pc = chain.start_mass * self.coef[chain.start.pattern.rows]
        out = chain.launch(pc)[:, :, None] * self.U[:, None, :].astype(np.float64)
        for f, (P, PU) in enumerate(zip(chain.firsts, self.firsts, strict=True)):
            out[:, f] -= chain.launch_with(P, pc[:, None] * PU)
        return out

    def step(self, sensitivity: Sensitivity, s: int, here: Array) -> tuple[Array, Array]:
        """From step s to the next: what is yet to be pushed by Pᵀ, and what is added to it, (N, F, K) each."""
        pushed, out = np.empty_like(here), np.empty_like(here)
        loops.ordering_change(0, len(here), here, self.moved[s], self.along[s], self.U, self.PU, pushed, out)
        return pushed, out


@dataclass(frozen=True)
class RowChange:
    """Parameters of rows change by U_c a, one or several together: with A_ij = ∂ log K_ij and
    R_c = P ∘ (A − rowsum(P∘A)),  dPᵀ p = Σ_c R_cᵀ(p U_c)."""

    U: tuple[Array, ...]  # (N, K) each
    RT: tuple[Array, ...]  # (E,) each, by columns
    firsts: tuple[tuple[Array, ...], ...]  # of each, R of every phase on the rows of the start
    unit: float = 1.0

    @classmethod
    def make(cls, sensitivity: Sensitivity, derivatives: list[Derivative], U: list[Array]) -> RowChange:
        chain = sensitivity.chain
        rows, start, eps = chain.pattern.rows, chain.start, chain.parameters.eps
        RT, firsts = [], []
        for derivative in derivatives:
            R = rows.centred(chain.P, derivative(rows, eps))
            RT.append(sensitivity.by_columns(R))
            phases = zip(chain.fractions, chain.firsts, strict=True)
            firsts.append(tuple(start.centred(P, derivative(start, theta * eps)) for theta, P in phases))
        return cls(tuple(U), tuple(RT), tuple(firsts))

    def tasks(self) -> list[RowChange]:
        def columns(a: int) -> tuple[Array, ...]:
            some = slice(a, a + _DIRECTIONS)
            return tuple(np.ascontiguousarray(U[:, some]).astype(self.RT[0].dtype) for U in self.U)

        return [replace(self, U=columns(a)) for a in range(0, self.U[0].shape[1], _DIRECTIONS)]

    def launch(self, sensitivity: Sensitivity) -> Array:
        chain, total = sensitivity.chain, np.zeros(())
        for U, firsts in zip(self.U, self.firsts, strict=True):
            moved = chain.start_mass[:, None] * U[chain.start.pattern.rows]
            total = total + np.stack([chain.launch_with(R, moved) for R in firsts], axis=1)
        return total

    def step(self, sensitivity: Sensitivity, s: int, here: Array) -> tuple[Array, Array]:
        moved, out = np.empty_like(here), np.zeros_like(here)
        for U, RT in zip(self.U, self.RT, strict=True):
            loops.row_change(0, len(here), sensitivity.masses[s], U, moved)
            sensitivity.push_add(RT, moved, out)
        return here, out


Change = StartChange | OrderingChange | RowChange


class ScoreAccumulator:
    """Turns changes of time slices into changes of log likelihoods, a step at a time."""

    def __init__(
        self,
        accumulator: LikelihoodAccumulator | PooledAccumulator,
        masses: Array,
        initial: Array,
        likelihood: Array,
        dtype: Any,
    ) -> None:
        w = accumulator.weights
        self.schedule, self.dtype, self.likelihood = w.schedule, dtype, likelihood
        *places, data = place_arrays(w.B, w.place)
        self.places = (*places, data.astype(dtype))
        self.pooled = accumulator.weights.by_step.astype(dtype) if isinstance(accumulator, PooledAccumulator) else None
        self.scale: Array | None = None  # 1/(p + δv), (S, N, F), in the log-linear form
        if isinstance(accumulator, LikelihoodAccumulator):
            if accumulator.weights.offset.size:
                self.scale = (1 / (masses + accumulator.weights.offset[:, None])).astype(dtype)
            W = accumulator.weights.W
            shares = accumulator.slice_shares(initial, masses, 1 / likelihood)
            by_slice = sp.csr_array((shares, W.indices, W.indptr), shape=W.shape).tocsc()
            self.indptr, self.samples, self.shares = by_slice.indptr, by_slice.indices, by_slice.data.astype(dtype)

    def zeros(self, K: int) -> Array:
        """What is added up: a row per sample, or per state when all samples weight the time slices alike."""
        return np.zeros((self.likelihood.size if self.pooled is None else self.schedule.n, K), self.dtype)

    def accumulate(self, step: int, change: Array, out: Array) -> None:
        """Add what the changes of a step, (N, F, K), do."""
        for f in range(self.schedule.phases):
            if self.pooled is not None:
                out += self.pooled[step, f] * change[:, f]
                continue
            at = 1 + step * self.schedule.phases + f
            a, b = self.indptr[at], self.indptr[at + 1]
            if a == b:
                continue
            here = np.ascontiguousarray(change[:, f])
            if self.scale is not None:
                here = here * self.scale[step, :, f, None]
            loops.score_slice(0, b - a, self.samples[a:b], self.shares[a:b], *self.places, here, out)

    def finish(self, out: Array) -> Array:
        """The changes of log likelihoods, (m, K)."""
        if self.pooled is None:
            return out
        samples = np.zeros((self.likelihood.size, out.shape[1]), self.dtype)
        shares = (1 / self.likelihood).astype(self.dtype)
        loops.score_slice(0, shares.size, np.arange(shares.size, dtype=np.int32), shares, *self.places, out, samples)
        return samples
