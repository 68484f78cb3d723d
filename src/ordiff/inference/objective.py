"""The likelihood of snapshots under a chain, and its exact gradient in one backward pass.

    Dynamics      what may be learned: step, noise, orderings and their slopes, weights of the states
    Observation   what was seen: which records of the chain, and which states, each sample looks at
    Objective     loss, gradient, per-sample likelihoods and scores on one graph

The chain starts from a mass p_0 on N states. With fractions θ_1 < … < θ_F several phases run side by side: phase f
first makes a step of length θ_f ε, then steps of length ε. Record 0 is p_0 at time 0; record 1 + sF + f is phase f
after its step s, at time (s + θ_f) ε, s = 0 … S − 1. So R = 1 + SF records, in the order of their times.

    log K_ij = −|x_j − x_i|²/(2ερ_i²) + (1/ρ_i²) Σ_k slope_k(i) Δl_k(i,j) + w_j,     P_ij = K_ij / Σ_n K_in
    loss     = −Σ_i ω_i log( Σ_r W_ir p̂_i(r) + floor ) / Σ_i ω_i,                    p̂ = B p, or its log-linear form

The derivative Ḡ of the loss by P lives on the pattern of P only, and everything follows from M = P ∘ (Ḡ − rowsum(P∘Ḡ)),
the derivative by log K. Inside, states are sorted so that neighbours are close in memory; the border un-sorts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _check, _sparse, _threads
from ordiff._check import Array, IntArray
from ordiff.graph import NeighborGraph

# From this many edges on the states are sorted for locality.
_SORTED_EDGES = 200_000
# Records per block: a state's records of a block are a vector that the sampled product runs over.
_BLOCK_RECORDS = 32
# Directions per task of the scores: the neighbours' changes then fit the second-level cache.
_DIRECTIONS = 40


@dataclass(frozen=True)
class Dynamics:
    """The parameters of the chain.

    eps: the step ε. noise: ρ (N,). orderings: values l_k (N,) each. slopes: τ_k/κ_k (N,), one for each ordering.
    local: local orderings Δl (E,) in the order of the graph's edges, not learned. local_slopes: (N,), one for each.
    log_weight: log v (N,), the logarithm of the states' volumes, −α log q. self_weight: a factor on P_ii before the
    rows are scaled to sum to 1.
    """

    eps: float
    noise: Array
    orderings: tuple[Array, ...] = ()
    slopes: tuple[Array, ...] = ()
    local: tuple[Array, ...] = ()
    local_slopes: tuple[Array, ...] = ()
    log_weight: Array | None = None
    self_weight: float = 1.0


@dataclass(frozen=True)
class Gradient:
    """The derivative of the loss by each part of `Dynamics`; by eps with the number of steps and W held fixed."""

    eps: float
    noise: Array
    orderings: tuple[Array, ...]
    slopes: tuple[Array, ...]
    local_slopes: tuple[Array, ...]
    log_weight: Array


@dataclass(frozen=True)
class Observation:
    """What m samples see of the chain.

    times: W (m, R) sparse, the weight of every record for every sample; see `time_weights` and `time_quadrature`.
    places: B (m, N) sparse, the states around every sample; None: sample i is state i.
    volumes: v (N,) for the log-linear form, None for the linear one.
    floor: δ ≥ 0.

        linear        likelihood_i = Σ_r W_ir Σ_j B_ij p_r(j) + δ
        log-linear    likelihood_i = Σ_r W_ir exp( Σ_j B_ij log(p_r(j)/v_j + δ) )
    """

    times: Any
    places: Any = None
    volumes: Array | None = None
    floor: float = 0.0


# -------------------------------------------------------------------------------------------- times


def time_weights(times: ArrayLike, record_times: ArrayLike, *, first: int = 0) -> sp.csr_array:
    """W (m, R) for known times: linear interpolation between the records before and after each.

    first: the earliest record that may be used. Samples before it are put wholly on it, because the first records
    from a delta are unreliable.

    >>> time_weights([0.25, 1.0], [0.0, 1.0, 2.0]).toarray()
    array([[0.75, 0.25, 0.  ],
           [0.  , 1.  , 0.  ]])
    """
    records = _ascending(record_times)
    first = _check.count(first, "first", 0, records.size - 1)
    t = np.atleast_1d(_check.functions(times, np.size(times), "times"))
    outside = (t < 0) | (t > records[-1] * (1 + 1e-12))
    if outside.any():
        at = int(np.argmax(outside))
        raise ValueError(f"times must be within [0, {records[-1]:g}]; it is {t[at]:g} at index {at}.")
    t = np.clip(t, records[first], records[-1])
    right = np.clip(np.searchsorted(records, t), min(first + 1, records.size - 1), None)
    left = np.maximum(right - 1, first)
    gap = np.where(right > left, records[right] - records[left], 1.0)
    share = (t - records[left]) / gap
    rows = np.arange(t.size)
    entries = (np.concatenate([1 - share, share]), (np.concatenate([rows, rows]), np.concatenate([left, right])))
    weights = sp.csr_array(entries, shape=(t.size, records.size))
    weights.eliminate_zeros()
    return weights


def time_quadrature(density: Callable[[Array], ArrayLike], record_times: ArrayLike) -> Array:
    """Weights (R,) for unknown times: ∫ r(t) hat_s(t) dt, hat_s linear between the records, scaled to sum to 1.

    density: r, up to a factor, on an array of times. By Gauss–Legendre quadrature with 5 points per interval.

    >>> time_quadrature(lambda t: np.ones_like(t), [0.0, 1.0, 2.0])
    array([0.25, 0.5 , 0.25])
    """
    records = _ascending(record_times)
    node, weight = np.polynomial.legendre.leggauss(5)
    share = 0.5 * (node + 1)  # the place in an interval, from 0 to 1
    gap = np.diff(records)[:, None]
    t = records[:-1, None] + gap * share
    r = np.broadcast_to(np.asarray(density(t), dtype=float), t.shape)
    if not (np.isfinite(r).all() and (r >= 0).all() and r.any()):
        raise ValueError("the density of times must be finite, not negative, and not 0 everywhere.")
    mass = 0.5 * gap * weight * r
    out = np.zeros(records.size)
    out[:-1] += (mass * (1 - share)).sum(axis=1)
    out[1:] += (mass * share).sum(axis=1)
    return out / out.sum()


def _ascending(record_times: ArrayLike) -> Array:
    records = np.atleast_1d(_check.functions(record_times, np.size(record_times), "record_times"))
    if records.size < 2 or not (np.diff(records) > 0).all():
        raise ValueError("record_times must be two or more ascending numbers.")
    return records


# ------------------------------------------------------------------------------------------- the matrix


@dataclass(frozen=True)
class _Parts:
    """The dynamics in the inner order of states and edges, checked."""

    eps: float
    noise: Array
    tables: Array  # (K, N)
    slopes: Array  # (K, N)
    local: tuple[Array, ...]  # (E,) each
    local_slopes: Array  # (local, N)
    log_weight: Array
    log_self: float

    @cached_property
    def coefs(self) -> Array:
        """slope_k/ρ²."""
        return self.slopes / self.noise**2

    def by_noise(self, rows: _Rows, eps: float) -> Array:
        """∂ log K_ij/∂ρ_i = −2/ρ_i times the exponent, (E,)."""
        out = rows.exponent(self, eps)
        out *= np.repeat(-2 / self.noise[rows.rows], np.diff(rows.indptr))
        return out

    def by_ordering_slope(self, k: int, rows: _Rows, eps: float) -> Array:
        """∂ log K_ij/∂slope_k(i) = (l_k(j) − l_k(i))/ρ_i², (E,)."""
        out = np.empty(rows.sqdist.size)
        one, none = (1 / self.noise**2)[None], np.zeros_like(self.noise)
        rows.loop(_sparse.log_kernel, rows.indices, rows.rows, rows.sqdist, none, self.tables[k : k + 1], one, out)
        return out

    def by_local_slope(self, k: int, rows: _Rows, eps: float) -> Array:
        """∂ log K_ij/∂local_slope_k(i) = Δl_k(i,j)/ρ_i², (E,)."""
        out = np.zeros(rows.sqdist.size)
        rows.loop(_sparse.add_scaled_rows, rows.rows, rows.values(self.local[k]), 1 / self.noise**2, out)
        return out


@dataclass
class _Sums:
    """The gradient while it is added up, in the inner order."""

    noise: Array
    tables: Array
    slopes: Array
    local_slopes: Array
    log_weight: Array
    eps: float = 0.0

    @classmethod
    def zeros(cls, parts: _Parts) -> _Sums:
        new = np.zeros_like
        return cls(
            new(parts.noise), new(parts.tables), new(parts.slopes), new(parts.local_slopes), new(parts.log_weight)
        )


@dataclass(frozen=True)
class _Rows:
    """Rows of the pattern: row r is state rows[r]; its entries are the inner edges ``edges`` (None: all of them)."""

    indptr: IntArray
    indices: NDArray[np.unsignedinteger[Any]]
    rows: NDArray[np.uint32]
    sqdist: Array
    selves: NDArray[np.intp]
    edges: NDArray[np.intp] | None = None
    ranges: list[_threads.Range] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranges", _threads.edge_ranges(self.indptr, 4))

    def only(self, rows: NDArray[np.intp]) -> _Rows:
        """Some of all rows."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(self.indptr.dtype)
        edges = np.repeat(self.indptr[rows] - indptr[:-1], lengths).astype(np.intp) + np.arange(indptr[-1])
        selves = self.selves[rows] - self.indptr[rows] + indptr[:-1]
        return _Rows(indptr, self.indices[edges], rows.astype(np.uint32), self.sqdist[edges], selves, edges)

    def values(self, edges: Array) -> Array:
        """Values on all edges, on those of these rows."""
        return edges if self.edges is None else edges[self.edges]

    def loop(self, loop: Callable[..., Any], *args: Any) -> list[Any]:
        return _threads.over(self.ranges, loop, self.indptr, *args)

    def exponent(self, parts: _Parts, eps: float) -> Array:
        """−|x_j − x_i|²/(2ερ_i²) + (1/ρ_i²) Σ_k slope_k(i) Δl_k(i,j)."""
        out = np.empty(self.sqdist.size)
        scale = -0.5 / (eps * parts.noise**2)
        self.loop(_sparse.log_kernel, self.indices, self.rows, self.sqdist, scale, parts.tables, parts.coefs, out)
        for edges, slope in zip(parts.local, parts.local_slopes, strict=True):
            self.loop(_sparse.add_scaled_rows, self.rows, self.values(edges), slope / parts.noise**2, out)
        return out

    def transition(self, parts: _Parts, eps: float) -> tuple[Array, int]:
        """P, and the first of these rows that is without mass, or −1."""
        P = self.exponent(parts, eps)
        if parts.log_self != 0:
            P[self.selves] += parts.log_self
        failed = [row for row in self.loop(_sparse.exponentiate_rows, self.indices, parts.log_weight, P) if row >= 0]
        return P, min(failed, default=-1)

    def centred(self, P: Array, values: Array) -> Array:
        """P ∘ (values − rowsum(P ∘ values)), in place of the values."""
        self.loop(_sparse.centre_rows, P, values)
        return values

    def collect(self, M: Array, parts: _Parts, eps: float, sums: _Sums) -> None:
        """Add what a row's own parameters get from M; ``eps`` is the step of these rows, θε."""
        rho = parts.noise[self.rows]
        second, first = np.empty(self.rows.size), np.empty(self.rows.size)
        self.loop(_sparse.row_dots, M, self.sqdist, second)
        order = np.zeros(self.rows.size)  # Σ_j M_ij Σ_k slope_k Δl_k
        for k, table in enumerate(parts.tables):
            self.loop(_sparse.row_differences, self.indices, self.rows, M, table, first)
            sums.slopes[k, self.rows] += first / rho**2
            order += parts.slopes[k, self.rows] * first
        for k, edges in enumerate(parts.local):
            self.loop(_sparse.row_dots, M, self.values(edges), first)
            sums.local_slopes[k, self.rows] += first / rho**2
            order += parts.local_slopes[k, self.rows] * first
        sums.noise[self.rows] += (second / eps - 2 * order) / rho**3
        sums.eps += float(np.sum(second / rho**2)) / (2 * eps * parts.eps)

    def collect_columns(self, M: Array, parts: _Parts, sums: _Sums) -> None:
        """Add what the ends of edges get from M, for a few rows."""
        n, lengths = parts.noise.size, np.diff(self.indptr)
        sums.log_weight += np.bincount(self.indices, M, n)
        for k, coef in enumerate(parts.coefs):
            sums.tables[k] += np.bincount(self.indices, M * np.repeat(coef[self.rows], lengths), n)


class _Pattern:
    """The graph's pattern by rows and by columns, with large ones sorted for locality."""

    def __init__(self, graph: NeighborGraph) -> None:
        n = graph.n_points
        self.order: NDArray[np.intp] | None = None
        self.edges: IntArray | None = None
        indptr, indices, sqdist = graph._indptr, graph._indices, graph._sqdist
        if graph.n_edges > _SORTED_EDGES:
            order, indptr, indices, self.edges = graph.local_order
            self.order, sqdist = order.astype(np.intp), sqdist[self.edges]
        selves, unused = np.empty(n, np.intp), np.empty(n)
        named = _sparse.unsigned(indices)
        _threads.over_rows(_sparse.row_summary, indptr, named, sqdist, selves, unused, unused)
        self.all = _Rows(indptr, named, np.arange(n, dtype=np.uint32), sqdist, selves)
        numbers = np.arange(indices.size, dtype=indices.dtype)
        columns = sp.csr_array((numbers, indices, indptr), shape=(n, n)).tocsc()
        self.t_indptr, self.t_indices = columns.indptr, _sparse.unsigned(columns.indices)
        self.t_edges = _sparse.unsigned(columns.data)
        self.ranges = _threads.edge_ranges(indptr)
        self.t_ranges = _threads.edge_ranges(self.t_indptr)
        self.t_heavy = _threads.edge_ranges(self.t_indptr, 4)

    @property
    def n(self) -> int:
        return self.all.rows.size

    @cached_property
    def rank(self) -> NDArray[np.intp]:
        """Where each state is in the inner order."""
        if self.order is None:
            return np.arange(self.n)
        rank = np.empty(self.n, np.intp)
        rank[self.order] = np.arange(self.n)
        return rank

    def inner(self, values: Array) -> Array:
        """(N, …) in the inner order."""
        return values if self.order is None else values[self.order]

    def outer(self, values: Array) -> Array:
        """(N, …) in the caller's order."""
        return values if self.order is None else values[self.rank]

    def transposed(self, data: Array) -> Array:
        """Edge values, by columns."""
        out = np.empty_like(data)
        _threads.over(_threads.even_ranges(data.size, data.size), _sparse.take, self.t_edges, data, out)
        return out

    def collect_columns(self, M: Array, parts: _Parts, sums: _Sums) -> None:
        """∂l_k = Mᵀ c_k,  ∂w = column sums of M."""
        out = np.empty((len(parts.coefs) + 1, self.n))
        by_columns = (self.t_indptr, self.t_indices, self.t_edges)
        _threads.over(self.t_heavy, _sparse.column_sums, *by_columns, M, parts.coefs, out)
        sums.tables += out[:-1]
        sums.log_weight += out[-1]


class _Chain:
    """P by rows and by columns, the first steps of all phases, and the products with them."""

    def __init__(self, pattern: _Pattern, start: _Rows, parts: _Parts, fractions: tuple[float, ...]) -> None:
        self.pattern, self.start, self.parts, self.fractions = pattern, start, parts, fractions
        self.P, failed = pattern.all.transition(parts, parts.eps)
        self._check(failed)
        self.PT = pattern.transposed(self.P)
        self.firsts = [self._first(theta) for theta in fractions]

    def _first(self, theta: float) -> Array:
        """The rows of P_θε that the initial mass needs."""
        if theta == 1.0:
            return self.start.values(self.P)
        P, failed = self.start.transition(self.parts, theta * self.parts.eps)
        self._check(int(self.start.rows[failed]) if failed >= 0 else -1)
        return P

    def _check(self, failed: int) -> None:
        if failed >= 0:
            at = failed if self.pattern.order is None else int(self.pattern.order[failed])
            raise _check.empty_row(at, self.parts.eps)

    def launch(self, mass: Array) -> Array:
        """The first step of every phase from a mass on the rows of the start, (N, F)."""
        out = np.zeros((len(self.firsts), self.pattern.n))
        for P, target in zip(self.firsts, out, strict=True):
            _sparse.push_part_one(0, mass.size, self.start.indptr, self.start.indices, P, mass, target)
        return np.ascontiguousarray(out.T)

    def push(self, mass: Array, out: Array) -> None:
        """out = Pᵀ mass, (N, c)."""
        out[...] = 0.0
        self.push_onto(self.PT, mass, out)

    def push_onto(self, by_columns: Array, mass: Array, out: Array) -> None:
        """out += Aᵀ mass, (N, c), for any edge values given by columns."""
        pattern = self.pattern
        _threads.over(pattern.t_ranges, _onto(out), pattern.t_indptr, pattern.t_indices, by_columns, mass, out)

    def pull_onto(self, f: Array, out: Array) -> None:
        """out += P f, (N, c)."""
        rows = self.pattern.all
        _threads.over(self.pattern.ranges, _onto(out), rows.indptr, rows.indices, self.P, f, out)


def _onto(out: Array) -> Callable[..., Any]:
    loops = {1: _sparse.pull_onto, 2: _sparse.pull_two_onto}
    return loops.get(out.shape[1], _sparse.pull_many_onto)


# ----------------------------------------------------------------------------------------- observations


def _where(B: sp.csr_array | None, place: NDArray[np.uint32]) -> tuple[Any, ...]:
    """The places of samples as the loops take them: the state of each, or B."""
    if B is None:
        return place, np.empty(0, np.int32), np.empty(0, np.uint32), np.empty(0)
    return np.empty(0, np.uint32), B.indptr, _sparse.unsigned(B.indices), B.data


class _Observer:
    """What samples see of each block of records, any weights. Block 0 is record 0 alone."""

    def __init__(
        self,
        W: sp.csr_array,
        B: sp.csr_array | None,
        place: NDArray[np.uint32],
        offset: Array,
        floor: float,
        plan: _Plan,
    ) -> None:
        self.W, self.B, self.place, self.offset, self.floor, self.plan = W, B, place, offset, floor, plan
        self.log = offset.size > 0
        self.volumes = offset / floor if self.log else offset
        self.total, self.scratch = np.zeros(W.shape[0]), _Scratch()
        self.slope = np.empty(0)
        self.where = _where(B, place)
        per_row = 1 if B is None else max(1, B.nnz // B.shape[0])
        self._visits(per_row * (3 if self.log else 1))

    def fresh(self) -> _Observer:
        """The same observer with nothing seen yet."""
        new = copy(self)
        new.total, new.scratch = np.zeros_like(self.total), _Scratch()
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

    def _table(self, steps: Array) -> Array:
        count, n, phases = steps.shape
        return self.table(self.plan.states(steps, self.scratch("states", n, count * phases)))

    def look(self, block: int, steps: Array) -> None:
        """Add the records of a block, (T, N, F)."""
        if self.visits[block][0][0].size:
            self._loop(block, _sparse.observe, self._table(steps), self.total)

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
            self._loop(block, _sparse.record_shares, self._table(steps), self.slope, out)


class _SharedObserver:
    """The linear form when all samples have the same weights of records: only the weighted sum of records matters."""

    def __init__(
        self, weights: Array, B: sp.csr_array | None, place: NDArray[np.uint32], floor: float, plan: _Plan
    ) -> None:
        self.B, self.place, self.floor, self.plan = B, place, floor, plan
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
class _Plan:
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


class _Scratch:
    """Arrays that a pass uses again for every block: new memory costs as much as what is done with it."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def __call__(self, name: str, *shape: int) -> Array:
        """An array of this shape, with anything in it."""
        size = math.prod(shape)
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size)
        return self._arrays[name][:size].reshape(shape)


@dataclass(frozen=True)
class _Kept:
    """What is kept of a forward pass: all steps (S, N, F), or one block of them and, for a way back, block starts."""

    steps: Array
    starts: Array | None
    everything: bool

    @classmethod
    def all(cls, plan: _Plan) -> _Kept:
        return cls(np.empty((plan.steps, plan.n, plan.phases)), None, True)

    @classmethod
    def nothing(cls, plan: _Plan) -> _Kept:
        return cls(np.empty((plan.length, plan.n, plan.phases)), None, False)

    @classmethod
    def starting(cls, plan: _Plan) -> _Kept:
        return cls(cls.nothing(plan).steps, np.empty((plan.n_blocks, plan.n, plan.phases)), False)

    def room(self, first: int, last: int) -> Array:
        """Where steps first .. last − 1 are."""
        return self.steps[first:last] if self.everything else self.steps[: last - first]


# --------------------------------------------------------------------------------------- changes of P


@dataclass(frozen=True)
class _OrderingChange:
    """An ordering changes by U a. With c = slope/ρ²,  (dPᵀ p)(j) = U_j [Pᵀ(p c)](j) − [Pᵀ(p c (P U))](j)."""

    U: Array  # (N, K)
    PU: Array  # (N, K)
    firsts: list[Array]  # P_θ U on the rows of the start, (rows, K) each
    coef: Array  # (N,)

    @classmethod
    def make(cls, chain: _Chain, coef: Array, U: Array) -> _OrderingChange:
        PU = np.zeros_like(U)
        chain.pull_onto(U, PU)
        return cls(U, PU, [_times(chain.start, P, U) for P in chain.firsts], coef)

    def columns(self, a: int) -> _OrderingChange:
        """Those of one task, from column a on."""
        some = slice(a, a + _DIRECTIONS)
        U, PU, *firsts = (np.ascontiguousarray(array[:, some]) for array in (self.U, self.PU, *self.firsts))
        return _OrderingChange(U, PU, firsts, self.coef)

    def launch(self, chain: _Chain, mass: Array) -> Array:
        """The change of the first step of every phase, (N, F, K)."""
        pc = mass * self.coef[chain.start.rows]
        along = chain.launch(pc)
        out = along[:, :, None] * self.U[:, None, :]
        for f, (P, PU) in enumerate(zip(chain.firsts, self.firsts, strict=True)):
            out[:, f] -= _transposed_times(chain, P, pc[:, None] * PU)
        return out

    def step(self, chain: _Chain, mass: Array, here: Array) -> tuple[Array, Array]:
        """What is yet to be pushed by Pᵀ, and what is added to it, (N, F, K) each."""
        pc = mass * self.coef[:, None]
        along = np.empty_like(pc)
        chain.push(pc, along)
        return here - pc[:, :, None] * self.PU[:, None, :], along[:, :, None] * self.U[:, None, :]


@dataclass(frozen=True)
class _RowChange:
    """A parameter of rows changes by U a: with A_ij = ∂ log K_ij, R = P ∘ (A − rowsum(P∘A)),  dPᵀ p = Rᵀ(p U)."""

    U: Array  # (N, K)
    RT: Array  # (E,), by columns
    firsts: list[Array]  # R of every phase on the rows of the start

    @classmethod
    def make(cls, chain: _Chain, exponent: Callable[[_Rows, float], Array], U: Array) -> _RowChange:
        rows, start, eps = chain.pattern.all, chain.start, chain.parts.eps
        R = rows.centred(chain.P, exponent(rows, eps))
        firsts = [
            start.centred(P, exponent(start, theta * eps))
            for theta, P in zip(chain.fractions, chain.firsts, strict=True)
        ]
        return cls(U, chain.pattern.transposed(R), firsts)

    def columns(self, a: int) -> _RowChange:
        return _RowChange(np.ascontiguousarray(self.U[:, a : a + _DIRECTIONS]), self.RT, self.firsts)

    def launch(self, chain: _Chain, mass: Array) -> Array:
        moved = mass[:, None] * self.U[chain.start.rows]
        return np.stack([_transposed_times(chain, R, moved) for R in self.firsts], axis=1)

    def step(self, chain: _Chain, mass: Array, here: Array) -> tuple[Array, Array]:
        n, phases, K = here.shape
        out = np.zeros((n, phases * K))
        chain.push_onto(self.RT, (mass[:, :, None] * self.U[:, None, :]).reshape(n, phases * K), out)
        return here, out.reshape(here.shape)


def _times(rows: _Rows, data: Array, f: Array) -> Array:
    """A f on some rows, (rows, K)."""
    out = np.empty((rows.rows.size, f.shape[1]))
    _sparse.pull_many(0, rows.rows.size, rows.indptr, rows.indices, data, f, out)
    return out


def _transposed_times(chain: _Chain, data: Array, mass: Array) -> Array:
    """Aᵀ mass from the rows of the start, (N, K)."""
    out, start = np.zeros((chain.pattern.n, mass.shape[1])), chain.start
    _sparse.push_part(0, start.rows.size, start.indptr, start.indices, data, mass, out)
    return out


class _View:
    """Turns changes of records into changes of log likelihoods, a record at a time."""

    def __init__(self, observer: _Observer | _SharedObserver, masses: Array, initial: Array) -> None:
        self.masses, self.plan, self.where = masses, observer.plan, _where(observer.B, observer.place)
        self.shared = observer if isinstance(observer, _SharedObserver) else None
        self.offset = np.empty(0)
        self.n_samples = observer.n_samples
        if isinstance(observer, _Observer):
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


# ---------------------------------------------------------------------------------------- the objective


class Objective:
    """loss(dynamics) and its gradient, on one graph and one set of observations.

    graph: N states. initial: p_0 (N,), masses. steps: S. fractions: θ_f, ascending, in (0, 1]. sample_weight: ω (m,),
    1 by default. memory_budget: bytes; when twice the records of all steps take more, only the first step of every
    block of about √S steps is kept, and the others are made again on the way back.
    """

    def __init__(
        self,
        graph: NeighborGraph,
        observation: Observation,
        initial: ArrayLike,
        steps: int,
        fractions: Sequence[float] = (1.0,),
        *,
        sample_weight: ArrayLike | None = None,
        memory_budget: int = 2**31,
    ) -> None:
        n = graph.n_points
        self.graph, self.observation = graph, observation
        self.steps = _check.count(steps, "steps", 1)
        self.fractions = _fractions(fractions)
        self._pattern = _Pattern(graph)
        mass = self._pattern.inner(_check.nodes(initial, n, "initial"))
        if not ((mass >= 0).all() and mass.any()):
            raise ValueError("initial must be masses, not negative and not all 0.")
        self._initial = mass
        started = np.flatnonzero(mass)
        self._start, self._start_mass = self._pattern.all.only(started), mass[started]
        phases = len(self.fractions)
        self._stored = 2 * (1 + self.steps * phases) * n * 8 <= memory_budget
        length = max(8, _BLOCK_RECORDS // phases)
        if not self._stored:
            length = min(max(8, round(self.steps**0.5)), 64)
        self._plan = _Plan(n, self.steps, phases, min(length, self.steps))
        self._prepare_observation(observation, sample_weight)

    # ------------------------------------------------------------------------------------ set-up

    def _prepare_observation(self, observation: Observation, sample_weight: ArrayLike | None) -> None:
        n = self.graph.n_points
        self._W = _time_matrix(observation.times, self._plan.n_records)
        m = self._W.shape[0]
        self._B = self._place_matrix(observation.places, m)
        if self._B is None and m != n:
            raise ValueError(f"without places every sample is a state, but there are {m} samples and {n} states.")
        self._floor = _check.number(observation.floor, "floor")
        if self._floor < 0:
            raise ValueError(f"floor must not be negative; got {self._floor:g}.")
        self._offset = np.empty(0)  # δ v, in the log-linear form
        if observation.volumes is not None:
            if self._B is None or self._floor == 0:
                raise ValueError("the log-linear form (volumes given) needs places and a positive floor.")
            volumes = _check.node_or_scalar(observation.volumes, n, "volumes", positive=True)
            self._offset = self._floor * self._pattern.inner(volumes)
        weight = np.ones(m) if sample_weight is None else _check.nodes(sample_weight, m, "sample_weight")
        if not ((weight >= 0).all() and weight.any()):
            raise ValueError("sample_weight must not be negative, and not all 0.")
        # samples, too, are kept in the order of the states that they are near
        near = self._pattern.rank if self._B is None else self._B.indices[self._B.indptr[:-1]]
        self._samples = np.argsort(near, kind="stable")
        self._W, self._B = self._W[self._samples], None if self._B is None else self._B[self._samples]
        self._sample_weight = (weight / weight.sum())[self._samples]
        self._shared = _shared_row(self._W) if self._offset.size == 0 else None
        self._visitor: _Observer | None = None
        if self._shared is None:
            seen = self._observer()
            assert isinstance(seen, _Observer)
            self._visitor = seen

    def _place_matrix(self, places: Any, m: int) -> sp.csr_array | None:
        if places is None:
            return None
        B = _sparse_rows(places, (m, self.graph.n_points), "places")
        indices = self._pattern.rank[B.indices].astype(B.indices.dtype)
        B = sp.csr_array((B.data, indices, B.indptr), shape=B.shape)
        B.sort_indices()
        if (np.diff(B.indptr) == 0).any():
            raise ValueError(f"row {int(np.argmin(np.diff(B.indptr)))} of places is empty: that sample is nowhere.")
        return B

    def _observer(self, rows: NDArray[np.intp] | None = None) -> _Observer | _SharedObserver:
        """What all samples see, or some of them; with nothing seen yet."""
        if rows is None and self._visitor is not None:
            return self._visitor.fresh()
        W, B, place = self._W, self._B, np.arange(self._W.shape[0], dtype=np.uint32)
        if rows is not None:
            W, B, place = W[rows], None if B is None else B[rows], place[rows]
        if self._shared is not None:
            return _SharedObserver(self._shared, B, place, self._floor, self._plan)
        return _Observer(W, B, place, self._offset, self._floor, self._plan)

    def _parts(self, dynamics: Dynamics) -> _Parts:
        n, pattern = self.graph.n_points, self._pattern
        eps = _check.positive(dynamics.eps, "eps")
        weight = np.zeros(n) if dynamics.log_weight is None else dynamics.log_weight
        self_weight = _check.number(dynamics.self_weight, "self_weight")
        if self_weight < 0:
            raise ValueError(f"self_weight must not be negative; got {self_weight:g}.")
        _same_number(dynamics.orderings, dynamics.slopes, "slopes", "orderings")
        _same_number(dynamics.local, dynamics.local_slopes, "local_slopes", "local orderings")

        def stack(arrays: tuple[Array, ...], name: str) -> Array:
            rows = [pattern.inner(_check.node_or_scalar(array, n, name)) for array in arrays]
            return np.array(rows).reshape(len(rows), n)

        return _Parts(
            eps,
            pattern.inner(_check.node_or_scalar(dynamics.noise, n, "noise", positive=True)),
            stack(dynamics.orderings, "orderings"),
            stack(dynamics.slopes, "slopes"),
            tuple(self._inner_edges(edges) for edges in dynamics.local),
            stack(dynamics.local_slopes, "local_slopes"),
            pattern.inner(_check.nodes(weight, n, "log_weight")),
            float(np.log(self_weight)) if self_weight > 0 else -np.inf,
        )

    def _inner_edges(self, edges: Array) -> Array:
        edges = _check.node_vectors(edges, (self.graph.n_edges,), "local")
        return edges if self._pattern.edges is None else edges[self._pattern.edges]

    def _chain(self, dynamics: Dynamics) -> _Chain:
        return _Chain(self._pattern, self._start, self._parts(dynamics), self.fractions)

    # ------------------------------------------------------------------------------------ what it offers

    def record_times(self, eps: float) -> Array:
        """The times of the records, (R,)."""
        inner = (np.arange(self.steps)[:, None] + np.array(self.fractions)) * eps
        return np.concatenate([[0.0], inner.ravel()])

    def matrix(self, dynamics: Dynamics) -> Array:
        """P, (E,), in the order of the graph's edges."""
        P = self._chain(dynamics).P
        if self._pattern.edges is None:
            return P
        out = np.empty_like(P)
        out[self._pattern.edges] = P
        return out

    def history(self, dynamics: Dynamics) -> Array:
        """The masses of all records, (R, N)."""
        kept = _Kept.all(self._plan)
        self._forward(self._chain(dynamics), None, kept)
        records = kept.steps.transpose(0, 2, 1).reshape(-1, self._plan.n)
        return np.vstack([self._initial, records])[:, self._pattern.rank]

    def per_sample(self, dynamics: Dynamics) -> Array:
        """The logarithm of every sample's likelihood, (m,)."""
        out = np.empty(self._samples.size)
        out[self._samples] = self._per_sample(dynamics)
        return out

    def _per_sample(self, dynamics: Dynamics) -> Array:
        observer = self._observer()
        self._forward(self._chain(dynamics), observer, _Kept.nothing(self._plan))
        return np.log(_positive(observer.likelihood(), self._samples))

    def value(self, dynamics: Dynamics) -> float:
        """The loss."""
        return -float(self._sample_weight @ self._per_sample(dynamics))

    def value_and_gradient(self, dynamics: Dynamics) -> tuple[float, Gradient]:
        """The loss and its derivatives."""
        chain, observer, plan = self._chain(dynamics), self._observer(), self._plan
        kept = _Kept.all(plan) if self._stored else _Kept.starting(plan)
        self._forward(chain, observer, kept)
        likelihood = _positive(observer.likelihood(), self._samples)
        observer.slope = -self._sample_weight / likelihood
        sums = self._backward(chain, observer, kept)
        return -float(self._sample_weight @ np.log(likelihood)), self._gradient(sums)

    # ------------------------------------------------------------------------------------ scores

    def scores(
        self,
        dynamics: Dynamics,
        orderings: tuple[Array | None, ...] = (),
        slopes: tuple[Array | None, ...] = (),
        local_slopes: tuple[Array | None, ...] = (),
        noise: Array | None = None,
        rows: ArrayLike | None = None,
    ) -> Array:
        """∂ log likelihood_i / ∂a for changes U a of the dynamics, exact, (m, K) or, for some ``rows``, (len(rows), K).

        Each U is (N, K_k): one for every ordering, slope and local slope (None: no change), and one for the noise.
        Columns: those of the orderings, then slopes, local slopes, noise. By forward sensitivities, all directions
        of a task at once:  dp_{s+1} = Pᵀ dp_s + dPᵀ p_s.
        """
        chain = self._chain(dynamics)
        wanted = np.arange(self._samples.size) if rows is None else _check.indices(rows, self._samples.size, "rows")
        rank = np.empty(self._samples.size, np.intp)
        rank[self._samples] = np.arange(rank.size)
        observer = self._observer(rank[wanted])
        kept = _Kept.all(self._plan)
        self._forward(chain, observer, kept)
        masses = kept.steps
        likelihood = _positive(observer.likelihood(), wanted)
        if isinstance(observer, _Observer):
            observer.slope = 1 / likelihood
        view = _View(observer, masses, self._initial)
        changes = self._changes(chain, orderings, slopes, local_slopes, noise)
        tasks = [change.columns(a) for change in changes for a in range(0, change.U.shape[1], _DIRECTIONS)]
        parts = _threads.in_threads(lambda change: self._scores(chain, change, masses, view), tasks)
        return np.hstack([np.empty((wanted.size, 0)), *parts])

    def _changes(
        self,
        chain: _Chain,
        orderings: tuple[Array | None, ...],
        slopes: tuple[Array | None, ...],
        local_slopes: tuple[Array | None, ...],
        noise: Array | None,
    ) -> list[_OrderingChange | _RowChange]:
        parts, n = chain.parts, self._plan.n
        if max(len(orderings), len(slopes)) > len(parts.tables) or len(local_slopes) > len(parts.local):
            raise ValueError("there are more directions of orderings or slopes than the dynamics have.")

        def directions(U: Array, name: str) -> Array:
            checked = _check.functions(U, n, name)
            return np.ascontiguousarray(self._pattern.inner(checked.reshape(n, -1)))

        def of_rows(exponent: Callable[[_Rows, float], Array], U: Array, name: str) -> _RowChange:
            return _RowChange.make(chain, exponent, directions(U, name))

        found: list[_OrderingChange | _RowChange] = []
        for k, U in enumerate(orderings):
            if U is not None:
                found.append(_OrderingChange.make(chain, parts.coefs[k], directions(U, "orderings")))
        for k, U in enumerate(slopes):
            if U is not None:
                found.append(of_rows(partial(parts.by_ordering_slope, k), U, "slopes"))
        for k, U in enumerate(local_slopes):
            if U is not None:
                found.append(of_rows(partial(parts.by_local_slope, k), U, "local_slopes"))
        if noise is not None:
            found.append(of_rows(parts.by_noise, noise, "noise"))
        return found

    def _scores(self, chain: _Chain, change: _OrderingChange | _RowChange, masses: Array, view: _View) -> Array:
        """The columns of one task."""
        here = change.launch(chain, self._start_mass)  # (N, F, K)
        n, phases, K = here.shape
        out = view.begin(K)
        view.see(0, here, out)
        for s in range(1, self.steps):
            pushed, after = change.step(chain, masses[s - 1], here)
            flat = after.reshape(n, phases * K)
            chain.push_onto(chain.PT, pushed.reshape(n, phases * K), flat)
            here = after
            view.see(s, here, out)
        return view.finish(out)

    # ------------------------------------------------------------------------------------ passes

    def _forward(self, chain: _Chain, observer: _Observer | _SharedObserver | None, kept: _Kept) -> None:
        """All steps, a block at a time: observed, and kept."""
        if observer is not None:
            observer.look(0, self._initial[None, :, None])
        here = chain.launch(self._start_mass)
        for block, first, last in self._plan.blocks():
            steps = kept.room(first, last)
            if kept.starts is not None:
                kept.starts[block - 1] = here
            _fill(chain, here, steps)
            if observer is not None:
                observer.look(block, steps)
            if last < self.steps:
                here = np.empty_like(here)
                chain.push(steps[-1], here)

    def _backward(self, chain: _Chain, observer: _Observer | _SharedObserver, kept: _Kept) -> _Sums:
        """λ_s = P λ_{s+1} + src_s from the last step to the first; Ḡ_ij = Σ_s ⟨p_s(i), λ_{s+1}(j)⟩ over phases."""
        plan, rows = self._plan, self._pattern.all
        G, scratch = np.zeros(self.graph.n_edges), _Scratch()
        ring = np.zeros((plan.length + 1, plan.n, plan.phases))  # λ of a block, then the first λ of the next block
        ranges = _threads.edge_ranges(rows.indptr, plan.width)
        for block, first, last in reversed(plan.blocks()):
            count, steps = last - first, kept.room(first, last)
            if kept.starts is not None:
                _fill(chain, kept.starts[block - 1], steps)
            states = plan.states(steps, scratch("states", plan.n, count * plan.phases))
            ring[count] = ring[0] if last < self.steps else 0.0
            observer.source(block, states, ring[:count])
            for s in reversed(range(count)):
                if first + s + 1 < self.steps:
                    chain.pull_onto(ring[s + 1], ring[s])
            later = plan.states(ring[1 : count + 1], scratch("later", *states.shape))
            _threads.over(ranges, _sparse.sampled_product, rows.indptr, rows.indices, states, later, G)
        return self._collect(chain, G, ring[0])

    def _collect(self, chain: _Chain, G: Array, first: Array) -> _Sums:
        """The gradient from Ḡ and from the first λ, (N, F)."""
        parts, pattern, start = chain.parts, self._pattern, self._start
        sums = _Sums.zeros(parts)
        mass = np.repeat(self._start_mass, np.diff(start.indptr))
        for f, (theta, P) in enumerate(zip(self.fractions, chain.firsts, strict=True)):
            own = mass * first[start.indices, f]
            if theta == 1.0:
                G[start.edges] += own
                continue
            M = start.centred(P, own)
            start.collect(M, parts, theta * parts.eps, sums)
            start.collect_columns(M, parts, sums)
        M = pattern.all.centred(chain.P, G)
        pattern.all.collect(M, parts, parts.eps, sums)
        pattern.collect_columns(M, parts, sums)
        return sums

    def _gradient(self, sums: _Sums) -> Gradient:
        outer = self._pattern.outer

        def each(rows: Array) -> tuple[Array, ...]:
            return tuple(outer(row) for row in rows)

        tables, slopes, local = each(sums.tables), each(sums.slopes), each(sums.local_slopes)
        return Gradient(sums.eps, outer(sums.noise), tables, slopes, local, outer(sums.log_weight))


def _fill(chain: _Chain, first: Array, steps: Array) -> None:
    """steps[0] = first, and each step from the one before."""
    steps[0] = first
    for s in range(1, len(steps)):
        chain.push(steps[s - 1], steps[s])


# ------------------------------------------------------------------------------------------- checks


def _fractions(fractions: Sequence[float]) -> tuple[float, ...]:
    theta = np.atleast_1d(np.asarray(fractions, dtype=float))
    if theta.ndim != 1 or not ((theta > 0).all() and (theta <= 1).all() and (np.diff(theta) > 0).all()):
        raise ValueError(f"fractions must be ascending numbers in (0, 1]; got {fractions!r}.")
    return tuple(float(value) for value in theta)


def _sparse_rows(matrix: Any, shape: tuple[int, int], name: str) -> sp.csr_array:
    rows = sp.csr_array(matrix, dtype=np.float64, copy=True)
    if rows.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {rows.shape}.")
    if not np.isfinite(rows.data).all():
        raise ValueError(f"{name} has values that are NaN or infinite.")
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def _time_matrix(times: Any, n_records: int) -> sp.csr_array:
    W = _sparse_rows(times, (times.shape[0], n_records), "times")
    if (W.data < 0).any():
        raise ValueError("times must hold weights that are not negative.")
    lengths = np.diff(W.indptr)
    if (lengths == 0).any():
        raise ValueError(f"row {int(np.argmin(lengths))} of times has no record with a positive weight.")
    return W


def _shared_row(W: sp.csr_array) -> Array | None:
    """The row of weights that all samples have, (R,), if they do."""
    m = W.shape[0]
    length = W.indptr[1]
    if m == 1 or W.nnz != m * length or (np.diff(W.indptr) != length).any():
        return None
    indices, data = W.indices.reshape(m, length), W.data.reshape(m, length)
    if (indices != indices[0]).any() or (data != data[0]).any():
        return None
    row = np.zeros(W.shape[1])
    row[indices[0]] = data[0]
    return row


def _same_number(these: tuple[Any, ...], those: tuple[Any, ...], name: str, what: str) -> None:
    if len(these) != len(those):
        raise ValueError(f"{name} must have one entry for each of the {len(these)} {what}; got {len(those)}.")


def _positive(likelihood: Array, names: NDArray[np.intp]) -> Array:
    bad = ~((likelihood > 0) & (likelihood < np.inf))
    if bad.any():
        raise ValueError(
            f"{int(bad.sum())} sample(s) have a likelihood that is not positive and finite, the first at index "
            f"{int(names[bad].min())}: the process does not reach them. Use more neighbours, more noise, or a floor."
        )
    return likelihood
