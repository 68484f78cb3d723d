"""The chain of a likelihood: its matrix P by rows and by columns, products with it, and derivatives by its parameters.

Pattern    the graph's edges by rows and by columns, sorted for locality inside
Rows       some rows of it: log K, P, and what their parameters get from M
Chain      P for one set of parameters (Parts), with the first steps of all phases
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordiff import _check, _march, _sparse, _threads
from ordiff._check import Array, IntArray
from ordiff._quads import Quads
from ordiff._threads import cached_property
from ordiff.graph import Columns, NeighborGraph

# From this many edges on the states are sorted for locality.
_SORTED_EDGES = 20_000


@dataclass(frozen=True)
class Parts:
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

    def by_noise(self, rows: Rows, eps: float) -> Array:
        """∂ log K_ij/∂ρ_i = −2/ρ_i times the exponent, (E,)."""
        out = rows.exponent(self, eps)
        out *= np.repeat(-2 / self.noise[rows.rows], np.diff(rows.indptr))
        return out

    def by_ordering_slope(self, k: int, rows: Rows, eps: float) -> Array:
        """∂ log K_ij/∂slope_k(i) = (l_k(j) − l_k(i))/ρ_i², (E,)."""
        out = np.empty(rows.sqdist.size)
        one, none = (1 / self.noise**2)[None], np.zeros_like(self.noise)
        rows.loop(_sparse.log_kernel, rows.indices, rows.rows, rows.sqdist, none, self.tables[k : k + 1], one, out)
        return out

    def by_local_slope(self, k: int, rows: Rows, eps: float) -> Array:
        """∂ log K_ij/∂local_slope_k(i) = Δl_k(i,j)/ρ_i², (E,)."""
        out = np.zeros(rows.sqdist.size)
        rows.loop(_sparse.add_scaled_rows, rows.rows, rows.values(self.local[k]), 1 / self.noise**2, out)
        return out


@dataclass
class Sums:
    """The gradient while it is added up, in the inner order."""

    noise: Array
    tables: Array
    slopes: Array
    local_slopes: Array
    log_weight: Array
    eps: float = 0.0

    @classmethod
    def zeros(cls, parts: Parts) -> Sums:
        new = np.zeros_like
        return cls(
            new(parts.noise), new(parts.tables), new(parts.slopes), new(parts.local_slopes), new(parts.log_weight)
        )


@dataclass(frozen=True)
class Rows:
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

    def only(self, rows: NDArray[np.intp]) -> Rows:
        """Some of all rows."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(self.indptr.dtype)
        edges = np.repeat(self.indptr[rows] - indptr[:-1], lengths).astype(np.intp) + np.arange(indptr[-1])
        selves = self.selves[rows] - self.indptr[rows] + indptr[:-1]
        return Rows(indptr, self.indices[edges], rows.astype(np.uint32), self.sqdist[edges], selves, edges)

    def values(self, edges: Array) -> Array:
        """Values on all edges, on those of these rows."""
        return edges if self.edges is None else edges[self.edges]

    def loop(self, loop: Callable[..., Any], *args: Any) -> list[Any]:
        return _threads.over(self.ranges, loop, self.indptr, *args)

    def exponent(self, parts: Parts, eps: float, out: Array | None = None) -> Array:
        """−|x_j − x_i|²/(2ερ_i²) + (1/ρ_i²) Σ_k slope_k(i) Δl_k(i,j)."""
        out = np.empty(self.sqdist.size) if out is None else out
        scale = -0.5 / (eps * parts.noise**2)
        self.loop(_sparse.log_kernel, self.indices, self.rows, self.sqdist, scale, parts.tables, parts.coefs, out)
        for edges, slope in zip(parts.local, parts.local_slopes, strict=True):
            self.loop(_sparse.add_scaled_rows, self.rows, self.values(edges), slope / parts.noise**2, out)
        return out

    def transition(self, parts: Parts, eps: float, out: Array | None = None) -> tuple[Array, int]:
        """P, and the first of these rows that is without mass, or −1."""
        P = self.exponent(parts, eps, out)
        if parts.log_self != 0:
            P[self.selves] += parts.log_self
        failed = [row for row in self.loop(_sparse.exponentiate_rows, self.indices, parts.log_weight, P) if row >= 0]
        return P, min(failed, default=-1)

    def centred(self, P: Array, values: Array) -> Array:
        """P ∘ (values − rowsum(P ∘ values)), in place of the values."""
        self.loop(_sparse.centre_rows, P, values)
        return values

    def collect(self, M: Array, parts: Parts, eps: float, sums: Sums) -> None:
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

    def collect_columns(self, M: Array, parts: Parts, sums: Sums) -> None:
        """Add what the ends of edges get from M, for a few rows."""
        n, lengths = parts.noise.size, np.diff(self.indptr)
        sums.log_weight += np.bincount(self.indices, M, n)
        for k, coef in enumerate(parts.coefs):
            sums.tables[k] += np.bincount(self.indices, M * np.repeat(coef[self.rows], lengths), n)


class Pattern:
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
        self.all = Rows(indptr, named, np.arange(n, dtype=np.uint32), sqdist, selves)
        self.columns = Columns.of(indptr, indices)
        self.ranges, self.runs = _threads.edge_ranges(indptr), _march.runs(indptr)
        self.t_ranges = _threads.edge_ranges(self.columns.indptr)
        self.t_heavy = _threads.edge_ranges(self.columns.indptr, 4)
        self.quads = self.t_quads = None
        if self.order is not None:  # unsorted rows have little in common
            self.quads = Quads.of(indptr, named)
            self.t_quads = Quads.of(self.columns.indptr, self.columns.indices)

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

    def collect_columns(self, M: Array, parts: Parts, sums: Sums) -> None:
        """∂l_k = Mᵀ c_k,  ∂w = column sums of M."""
        out = np.empty((len(parts.coefs) + 1, self.n))
        columns = self.columns
        by_columns = (columns.indptr, columns.indices, columns.edges)
        _threads.over(self.t_heavy, _sparse.column_sums, *by_columns, M, parts.coefs, out)
        sums.tables += out[:-1]
        sums.log_weight += out[-1]


class Chain:
    """P by rows and by columns, the first steps of all phases, and the products with them."""

    def __init__(
        self, pattern: Pattern, start: Rows, parts: Parts, fractions: tuple[float, ...], memory: Any = None
    ) -> None:
        """memory: a `Scratch` for P by rows and by columns."""
        self.pattern, self.start, self.parts, self.fractions = pattern, start, parts, fractions
        self._memory = (lambda _, *shape: np.empty(shape)) if memory is None else memory
        self.P, failed = pattern.all.transition(parts, parts.eps, self._memory("P", pattern.all.sqdist.size))
        self._check(failed)
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
            _sparse.push_one(0, mass.size, self.start.indptr, self.start.indices, P, mass, target)
        return np.ascontiguousarray(out.T)

    @cached_property
    def PT(self) -> Array:
        """P by columns, (E,)."""
        return self.pattern.columns.values(self.P, self._memory("PT", self.P.size))

    def push(self, mass: Array) -> Array:
        """Pᵀ mass, (N, F)."""
        steps = np.empty((2, *mass.shape))
        steps[0] = mass
        self.forward(steps)
        return steps[1]

    def push_onto(self, by_columns: Array, mass: Array, out: Array) -> None:
        """out += Aᵀ mass, (N, c), for any edge values given by columns."""
        columns, ranges = self.pattern.columns, self.pattern.t_ranges
        _threads.over(ranges, _sparse.pull, columns.indptr, columns.indices, by_columns, mass, out, True)

    def pull_onto(self, f: Array, out: Array) -> None:
        """out += P f, (N, c)."""
        rows = self.pattern.all
        _threads.over(self.pattern.ranges, _sparse.pull, rows.indptr, rows.indices, self.P, f, out, True)

    def forward(self, steps: Array) -> None:
        """steps[s + 1] = Pᵀ steps[s], from the first of (T, N, F) to the last."""
        _march.march(*self._by_columns, steps, back=False, onto=False)

    def backward(self, steps: Array) -> None:
        """steps[s] += P steps[s + 1], from the last of (T, N, F) to the first."""
        _march.march(*self._by_rows, steps, back=True, onto=True)

    @cached_property
    def _by_rows(self) -> tuple[_march.Matrix, NDArray[np.int64]]:
        """P for a march, and its runs."""
        pattern = self.pattern
        if pattern.quads is not None and len(self.fractions) <= 2:
            return self._in_quads(pattern.quads, "P in quads")
        return (pattern.all.indptr, pattern.all.indices, self.P), pattern.runs

    @cached_property
    def _by_columns(self) -> tuple[_march.Matrix, NDArray[np.int64]]:
        """The same of Pᵀ."""
        pattern = self.pattern
        if pattern.t_quads is not None and len(self.fractions) <= 2:
            return self._in_quads(pattern.t_quads, "PT in quads", pattern.columns.edges)
        return (pattern.columns.indptr, pattern.columns.indices, self.PT), pattern.columns.runs

    def _in_quads(self, quads: Quads, name: str, edges: Any = None) -> tuple[_march.Matrix, NDArray[np.int64]]:
        return quads.matrix(self.P, edges, self._memory(name, *quads.shape)), quads.runs
