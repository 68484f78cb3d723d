"""The transition matrix of a likelihood: P by rows and by columns, products with it, derivatives by its parameters.

ChainPattern             the graph's edges in the order of its layout, by rows and by columns
ChainRows                some rows of it: log K, P, and what their parameters get from ∂/∂ log K
TransitionParameters     step, noise, orderings, slopes and weights, in the order of the layout
TransitionMatrix         P for one set of parameters, with the first steps of all phases
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordiff import _parallel
from ordiff._compiled import csr
from ordiff._compiled import transition as loops
from ordiff._parallel import cached_property
from ordiff._validation import Array
from ordiff.graph import NeighborGraph
from ordiff.graph.layout import Layout, TransposedPattern
from ordiff.kernel.terms import KernelTerms, PatternRows, empty_row, softmax
from ordiff.learning.slices import Workspace


@dataclass(frozen=True, eq=False)
class TransitionParameters:
    """The parameters of P, with states in the order of the layout."""

    eps: float
    noise: Array  # (N,)
    tables: Array  # (K, N) values of the orderings
    slopes: Array  # (K, N)
    local_slopes: Array  # (L, N)
    log_weight: Array  # (N,)
    log_self: float

    @cached_property
    def coefs(self) -> Array:
        """slope_k/ρ², (K, N)."""
        return self.slopes / self.noise**2

    def terms(self, eps: float) -> KernelTerms:
        """log K = −|x_j − x_i|²/(2ερ_i²) + (1/ρ_i²) Σ_k slope_k(i) Δl_k(i,j)."""
        return self._order_terms(eps, self.tables, self.slopes)

    def slope_terms(self, k: int) -> KernelTerms:
        """∂ log K/∂slope_k = Δl_k/ρ²: no distance (an infinite step), and a slope of 1."""
        return self._order_terms(np.inf, self.tables[k : k + 1], np.ones((1, self.noise.size)))

    def _order_terms(self, eps: float, tables: Array, slopes: Array) -> KernelTerms:
        select = np.repeat(np.arange(len(tables), dtype=np.uint32)[:, None], self.noise.size, axis=1)
        return KernelTerms(eps, left=-2.0 * self.noise**2, tables=tables, select=select, slope=slopes)


@dataclass
class GradientSums:
    """The derivative by each of the parameters while it is added up."""

    noise: Array
    tables: Array
    slopes: Array
    local_slopes: Array
    log_weight: Array
    initial: Array
    eps: float = 0.0

    @classmethod
    def zeros(cls, like: TransitionParameters) -> GradientSums:
        new, p = np.zeros_like, like
        return cls(new(p.noise), new(p.tables), new(p.slopes), new(p.local_slopes), new(p.log_weight), new(p.noise))


@dataclass(frozen=True, eq=False)
class ChainRows:
    """Rows of the pattern, with the differences of the local orderings on their edges, (E,) each.

    The last ``n_metric`` of them are of the metric: as the squared distance, they are divided by the length of a step,
    so that their slopes are those of a whole one.
    """

    pattern: PatternRows
    local: tuple[Array, ...]
    edges: NDArray[np.intp] | None = None  # where these edges are among all; None: these are all
    n_metric: int = 0

    @cached_property
    def ranges(self) -> list[_parallel.Range]:
        return _parallel.row_ranges(self.pattern.indptr, 4)

    @cached_property
    def lengths(self) -> NDArray[np.intp]:
        """The number of edges of each row."""
        return np.diff(self.pattern.indptr)

    def only(self, rows: NDArray[np.intp]) -> ChainRows:
        """Some of all rows."""
        all_, lengths = self.pattern, self.lengths[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(all_.indptr.dtype)
        edges = np.repeat(all_.indptr[rows] - indptr[:-1], lengths).astype(np.intp) + np.arange(indptr[-1])
        pattern = PatternRows(indptr, all_.indices[edges], rows.astype(np.uint32), indptr[:-1], all_.sqdist[edges])
        return ChainRows(pattern, tuple(values[edges] for values in self.local), edges, self.n_metric)

    def values(self, edges: Array) -> Array:
        """Values on all edges, on those of these rows."""
        return edges if self.edges is None else edges[self.edges]

    def spread(self, values: Array) -> Array:
        """Values of the rows' own states, (N,), on the edges of these rows."""
        return np.repeat(values[self.pattern.rows], self.lengths)

    def per_step(self, k: int, parameters: TransitionParameters, eps: float) -> float:
        """What the slope of a local ordering is multiplied by in a step of length ``eps``."""
        return parameters.eps / eps if k >= len(self.local) - self.n_metric else 1.0

    def loop(self, loop: Callable[..., Any], *args: Any) -> None:
        _parallel.over_ranges(self.ranges, loop, self.pattern.indptr, *args)

    def log_kernel(self, parameters: TransitionParameters, eps: float) -> Callable[[int, int], Array]:
        """log K of blocks of these rows."""
        terms, indptr = parameters.terms(eps), self.pattern.indptr
        local = csr.EMPTY
        if self.local:
            parts = enumerate(zip(parameters.local_slopes, self.local, strict=True))
            local = np.asarray(
                sum(self.spread(self.per_step(k, parameters, eps) * slope) * values for k, (slope, values) in parts)
            )

        def block(start: int, stop: int) -> Array:
            some = local[indptr[start] : indptr[stop]] if local.size else local
            return terms.log_kernel(self.pattern, start, stop, some)

        return block

    def transition(
        self, parameters: TransitionParameters, eps: float, out: Array | None = None, log_sum: Array = csr.EMPTY
    ) -> tuple[Array, int]:
        """P, and the first of these rows that is without mass, or −1."""
        p = parameters
        log_kernel = self.log_kernel(p, eps)
        return softmax(log_kernel, self.pattern, p.log_weight, log_self=p.log_self, out=out, log_sum=log_sum)

    def by_noise(self, parameters: TransitionParameters, eps: float) -> Array:
        """∂ log K_ij/∂ρ_i = −2/ρ_i log K_ij, (E,)."""
        return self._all(self.log_kernel(parameters, eps)) * self.spread(-2 / parameters.noise)

    def by_slope(self, k: int, parameters: TransitionParameters, eps: float) -> Array:
        """∂ log K_ij/∂slope_k(i), (E,)."""
        terms = parameters.slope_terms(k)
        return self._all(lambda start, stop: terms.log_kernel(self.pattern, start, stop))

    def by_local_slope(self, k: int, parameters: TransitionParameters, eps: float) -> Array:
        """∂ log K_ij/∂local_slope_k(i) = Δl_k(i,j)/ρ_i², (E,)."""
        return self.local[k] * self.spread(self.per_step(k, parameters, eps) * parameters.noise**-2)

    def _all(self, log_kernel: Callable[[int, int], Array]) -> Array:
        blocks = self.pattern.blocks()
        return np.concatenate(_parallel.parallel_map(lambda bounds: log_kernel(*bounds), blocks))

    def centred(self, P: Array, values: Array) -> Array:
        """P ∘ (values − rowsum(P ∘ values)), in place of the values."""
        self.loop(loops.centre_rows, P, values)
        return values

    def collect(self, M: Array, parameters: TransitionParameters, eps: float, sums: GradientSums) -> None:
        """Add what a row's own parameters get from M = ∂/∂ log K; ``eps`` is the step of these rows, θε."""
        rows, p = self.pattern.rows, parameters
        rho = p.noise[rows]
        second, first = np.empty(rows.size), np.empty(rows.size)
        self.loop(csr.row_dots, M, self.pattern.sqdist, second)
        order = np.zeros(rows.size)  # Σ_j M_ij Σ_k slope_k Δl_k
        for k, table in enumerate(p.tables):
            self.loop(csr.row_differences, self.pattern.indices, rows, M, table, first)
            sums.slopes[k, rows] += first / rho**2
            order += p.slopes[k, rows] * first
        for k, values in enumerate(self.local):
            self.loop(csr.row_dots, M, values, first)
            first *= self.per_step(k, p, eps)
            sums.local_slopes[k, rows] += first / rho**2
            order += p.local_slopes[k, rows] * first
        sums.noise[rows] += (second / eps - 2 * order) / rho**3
        sums.eps += float(np.sum(second / rho**2)) / (2 * eps * p.eps)

    def collect_columns(self, M: Array, parameters: TransitionParameters, sums: GradientSums) -> None:
        """Add what the ends of edges get from M, for a few rows."""
        n = parameters.noise.size
        sums.log_weight += np.bincount(self.pattern.indices, M, n)
        for k, coef in enumerate(parameters.coefs):
            sums.tables[k] += np.bincount(self.pattern.indices, M * self.spread(coef), n)


class ChainPattern:
    """The edges of a graph in the order of its layout, by rows and by columns; local orderings are (E,) on them, the
    last ``n_metric`` of the metric."""

    def __init__(self, graph: NeighborGraph, local: tuple[Array, ...] = (), n_metric: int = 0) -> None:
        self.layout: Layout = graph.layout
        layout, sqdist = self.layout, self.layout.sort_edges(graph._sqdist)
        pattern = PatternRows(layout.indptr, layout.indices, layout.rows, layout.indptr[:-1], sqdist)
        self.rows = ChainRows(pattern, tuple(layout.sort_edges(values) for values in local), n_metric=n_metric)
        self.transpose: TransposedPattern = layout.transpose

    @property
    def n(self) -> int:
        return self.layout.n_points

    def inner(self, values: Array) -> Array:
        """(N, …) in the order of the layout."""
        return values[self.layout.order]

    def outer(self, values: Array) -> Array:
        """(N, …) in the caller's order."""
        return values[self.layout.rank]

    def collect_columns(self, M: Array, parameters: TransitionParameters, sums: GradientSums) -> None:
        """∂l_k = Mᵀ c_k,  ∂w = column sums of M."""
        out, by = np.empty((len(parameters.coefs) + 1, self.n)), self.transpose
        ranges = _parallel.row_ranges(by.indptr, 4)
        _parallel.over_ranges(ranges, csr.column_sums, by.indptr, by.indices, by.edges, M, parameters.coefs, out)
        sums.tables += out[:-1]
        sums.log_weight += out[-1]


class TransitionMatrix:
    """P by rows and by columns, the first steps of all phases, and the products with them.

    Phase f begins with a step of length θ_f ε from the rows ``start`` that the initial mass is on, ``start_mass``.
    """

    def __init__(
        self,
        pattern: ChainPattern,
        start: ChainRows,
        start_mass: Array,
        parameters: TransitionParameters,
        fractions: tuple[float, ...],
        workspace: Workspace,
    ) -> None:
        self.pattern, self.start, self.parameters, self.fractions = pattern, start, parameters, fractions
        self.start_mass = start_mass
        n_edges = pattern.rows.pattern.sqdist.size
        self.P, failed = pattern.rows.transition(parameters, parameters.eps, workspace("P", n_edges))
        self._check(failed)
        self.PT = pattern.transpose.values(self.P, workspace("PT", n_edges))
        self.firsts = [self._first(theta) for theta in fractions]

    def _first(self, theta: float) -> Array:
        """The rows of P_θε that the initial mass needs."""
        if theta == 1.0:
            return self.start.values(self.P)
        P, failed = self.start.transition(self.parameters, theta * self.parameters.eps)
        self._check(int(self.start.pattern.rows[failed]) if failed >= 0 else -1)
        return P

    def _check(self, failed: int) -> None:
        if failed >= 0:
            raise empty_row(int(self.pattern.layout.order[failed]), self.parameters.eps)

    @property
    def initial(self) -> Array:
        """The initial mass on all states, (N,)."""
        out = np.zeros(self.pattern.n)
        out[self.start.pattern.rows] = self.start_mass
        return out

    def launch(self, mass: Array) -> Array:
        """The first step of every phase from a mass on the rows of the start, (N, F)."""
        return np.concatenate([self.launch_with(P, mass[:, None]) for P in self.firsts], axis=1)

    def launch_with(self, data: Array, mass: Array) -> Array:
        """Aᵀ mass, (N, K), from a mass (s, K) on the rows of the start, for any values of their edges."""
        out, rows = np.zeros((self.pattern.n, mass.shape[1])), self.start.pattern
        csr.multiply_transposed_add(0, rows.rows.size, rows.indptr, rows.indices, data, mass, out)
        return out

    def start_times(self, data: Array, f: Array) -> Array:
        """A f on the rows of the start, (s, K)."""
        rows = self.start.pattern
        out = np.zeros((rows.rows.size, f.shape[1]))
        csr.multiply_add(0, rows.rows.size, rows.indptr, rows.indices, data, f, out)
        return out

    def push(self, mass: Array, out: Array) -> None:
        """out = Pᵀ mass, (N, F)."""
        by = self.pattern.transpose
        ranges = _parallel.row_ranges(by.indptr, mass.shape[1])
        _parallel.over_ranges(ranges, csr.multiply, by.indptr, by.indices, self.PT, mass, out)

    def pull(self, f: Array, out: Array) -> None:
        """out = P f, (N, F)."""
        rows = self.pattern.rows.pattern
        ranges = _parallel.row_ranges(rows.indptr, f.shape[1])
        _parallel.over_ranges(ranges, csr.multiply, rows.indptr, rows.indices, self.P, f, out)

    def forward(self, steps: Array) -> None:
        """steps[s + 1] = Pᵀ steps[s], from the first of (T, N, F) to the last."""
        for s in range(len(steps) - 1):
            self.push(steps[s], steps[s + 1])

    def backward(self, steps: Array) -> None:
        """steps[s] += P steps[s + 1], from the last of (T, N, F) to the first."""
        product = np.empty(steps.shape[1:])
        for s in reversed(range(len(steps) - 1)):
            self.pull(steps[s + 1], product)
            steps[s] += product
