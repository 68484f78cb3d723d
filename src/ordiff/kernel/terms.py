"""From the parts of a kernel to rows of a transition matrix: the terms of u_ij as arrays, log K, and its row softmax.

`KernelTerms` are the arrays that the compiled log-kernel takes. They are made from a `Kernel` (`terms_on`) or, by
learning, from the parameters of a chain; `PatternRows` say on which rows of a graph's layout they are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ordiff import _parallel, _validation
from ordiff._compiled import transition as loops
from ordiff._compiled.csr import EMPTY
from ordiff._validation import Array, IntArray, ResolutionError
from ordiff.graph import NeighborGraph
from ordiff.graph.layout import Indices, Layout
from ordiff.kernel.metric import Metric
from ordiff.kernel.ordering import Field, Ordering, Tabulated
from ordiff.kernel.profile import Gaussian, as_profile

if TYPE_CHECKING:
    from ordiff.kernel.kernel import Kernel

# Edges of a block of rows whose log K is in flight: 1 MiB, so that it stays in cache.
_BLOCK = 131_072

NO_TABLE = np.empty((0, 0))


def _empty() -> Array:
    return EMPTY


def _no_table() -> Array:
    return NO_TABLE


def _no_vectors() -> Array:
    return np.empty((0, 0, 0))


def _no_select() -> NDArray[np.uint32]:
    return np.empty((0, 0), np.uint32)


@dataclass(frozen=True, eq=False)
class PatternRows:
    """Rows of a sorted pattern: row r is sample rows[r] of the layout; its distances begin at sqdist[begins[r]]."""

    indptr: IntArray
    indices: Indices
    rows: NDArray[np.uint32]
    begins: IntArray
    sqdist: Array

    @classmethod
    def of(cls, graph: NeighborGraph) -> PatternRows:
        layout = graph.layout
        return cls(layout.indptr, layout.indices, layout.rows, layout.origins, graph._sqdist)

    def blocks(self) -> list[_parallel.Range]:
        """Ranges of rows whose edges stay in cache."""
        return _parallel.cut_rows(self.indptr, max(1, int(self.indptr[-1]) // _BLOCK))


@dataclass(frozen=True, eq=False)
class KernelTerms:
    """u_ij = [ |x_j − x_i|²_i / ε − 2 Σ_k s_k(i) Δl_k(i,j) + c(i) ] / (left_i right_j), as the compiled loop takes it.

    What is absent has size 0. With left = −2ρ² the loop gives log K of the gaussian kernel; else u, at least 0.
    """

    eps: float
    left: Array  # (m,)
    right: Array = field(default_factory=_empty)
    constant: Array = field(default_factory=_empty)  # c, (m,)
    tables: Array = field(default_factory=_no_table)  # (T, m) values of orderings
    select: NDArray[np.uint32] = field(default_factory=_no_select)  # (K, m) the table of each ordering
    slope: Array = field(default_factory=_no_table)  # (K, m)
    vectors: Array = field(default_factory=_no_table)  # (m, n), a vector field
    X: Array = field(default_factory=_no_table)  # (m, n), where field or metric are
    frame: Array = field(default_factory=_no_vectors)  # (m, d, n)
    stiffness: Array = field(default_factory=_no_table)  # (m, d)
    normal: Array = field(default_factory=_empty)  # (m,)
    clamp: bool = False

    def sorted(self, layout: Layout) -> KernelTerms:
        """The same with all arrays in the order of a layout."""
        by_sample = ("left", "right", "constant", "vectors", "X", "frame", "stiffness", "normal")
        by_table = ("tables", "select", "slope")
        changes: dict[str, Any] = {}
        for axis, names in enumerate((by_sample, by_table)):
            changes |= {name: np.take(a, layout.order, axis) for name in names if (a := getattr(self, name)).size}
        return replace(self, **changes)

    def log_kernel(self, rows: PatternRows, start: int, stop: int, edges: Array = EMPTY) -> Array:
        """u, or log K, on the edges of these rows; ``edges`` are further Σ_k s_k Δl_k on them."""
        out = np.empty(rows.indptr[stop] - rows.indptr[start])
        loops.log_kernel(
            start, stop, rows.indptr, rows.indices, rows.rows, rows.begins, rows.sqdist, self.eps, self.X, self.frame,
            self.stiffness, self.normal, self.tables, self.select, self.slope, self.vectors, self.constant, self.left,
            self.right, self.clamp, edges, out,
        )  # fmt: skip
        return out


def softmax(
    log_kernel: Callable[[int, int], Array],
    rows: PatternRows,
    log_weight: Array,
    *,
    log_self: float = 0.0,
    out: Array | None = None,
    log_sum: Array = EMPTY,
    threaded: bool = True,
) -> tuple[Array, int]:
    """P on these rows, (E,), and the first row without mass, or −1.

    log_kernel(start, stop) gives log K of a block of rows. ``log_weight``: of the far samples, (m,) or empty.
    ``log_self``: added at a sample itself. ``log_sum`` gets the logarithms of the row sums, if it has room for them.
    """
    out = np.empty(int(rows.indptr[-1])) if out is None else out

    def block(bounds: _parallel.Range) -> int:
        start, stop = bounds
        logs = log_kernel(start, stop)
        args = (rows.rows, logs, log_weight, log_self, out, log_sum)
        return int(loops.softmax_rows(start, stop, rows.indptr, rows.indices, *args))

    failed = _parallel.parallel_map(block, rows.blocks()) if threaded else [block(bounds) for bounds in rows.blocks()]
    return out, min((row for row in failed if row >= 0), default=-1)


# ------------------------------------------------------------------------------------------ terms of a kernel


@dataclass(frozen=True, eq=False)
class _OrderTerms:
    """The orderings as tables, as one vector field, and as functions that are evaluated edge by edge."""

    tables: Array = field(default_factory=_no_table)
    select: NDArray[np.uint32] = field(default_factory=_no_select)
    slope: Array = field(default_factory=_no_table)
    vectors: Array | None = None
    functions: tuple[tuple[Array, Ordering], ...] = ()  # (τ/κ, ordering)


Functions = tuple[tuple[Array, Ordering], ...]


def terms_on(kernel: Kernel, graph: NeighborGraph, eps: float) -> tuple[KernelTerms, Functions]:
    """The terms of a kernel on a graph, in the order of its samples, and the orderings that are functions of pairs."""
    metric, bandwidth, profile = kernel.metric_on(graph), kernel.bandwidth_on(graph), as_profile(kernel.profile)
    gaussian = type(profile) is Gaussian
    slopes = [ordering.slope_on(graph) for ordering in kernel.ordering]
    if metric is not None and not kernel.coupled:
        order = _uncoupled_order(kernel, graph, metric, slopes)
    else:
        order = _coupled_order(kernel, graph, slopes)
    divisor = -0.5 if gaussian else profile.second_moment(kernel.dimension_on(graph))
    needs_X = metric is not None or order.vectors is not None
    terms = KernelTerms(
        eps,
        left=bandwidth.left / divisor,
        right=EMPTY if bandwidth.right is None else bandwidth.right,
        constant=_constant(kernel, graph, eps, metric, slopes, gaussian),
        tables=order.tables,
        select=order.select,
        slope=order.slope,
        vectors=NO_TABLE if order.vectors is None else np.ascontiguousarray(order.vectors),
        X=_validation.need_points(graph._X, "a vector field or anisotropy") if needs_X else NO_TABLE,
        clamp=not gaussian,
    )
    if metric is not None:
        terms = replace(terms, frame=metric.directions, stiffness=metric.stiffness(), normal=metric.normal)
    return terms, order.functions


def _uncoupled_order(kernel: Kernel, graph: NeighborGraph, metric: Metric, slopes: list[Array]) -> _OrderTerms:
    """Σ_k (τ_k/κ_k) ⟨A⁻¹∇l_k, y − x⟩: drift μ beside an anisotropy."""
    if not slopes:
        return _OrderTerms()
    return _OrderTerms(vectors=metric.raised(_drift(kernel, graph, slopes), -1))


def _coupled_order(kernel: Kernel, graph: NeighborGraph, slopes: list[Array]) -> _OrderTerms:
    """Σ_k (τ_k/κ_k) Δl_k, each in the cheapest form that it has."""
    tables: list[Array] = []
    select, slope, functions = [], [], []
    vectors: Array | None = None
    for s, ordering in zip(slopes, kernel.ordering, strict=True):
        if isinstance(ordering.form, Tabulated):
            select.append(ordering.form.row + np.uint32(sum(map(len, tables))))
            tables.append(ordering.form.values)
            slope.append(s)
        elif isinstance(ordering.form, Field):
            shape = _validation.need_points(graph.X, "a vector field").shape
            one = s[:, None] * _validation.node_vectors(ordering.form.vectors, shape, "V")
            vectors = one if vectors is None else vectors + one
        else:
            functions.append((s, ordering))
    if not tables:
        return _OrderTerms(vectors=vectors, functions=tuple(functions))
    return _OrderTerms(np.concatenate(tables), np.array(select), np.array(slope), vectors, tuple(functions))


def _constant(
    kernel: Kernel, graph: NeighborGraph, eps: float, metric: Metric | None, slopes: list[Array], gaussian: bool
) -> Array:
    """The term that completes the square; it cancels in a row of a one-sided gaussian."""
    if not slopes or (gaussian and kernel.bandwidth_on(graph).right is None):
        return EMPTY
    if gaussian:
        return np.asarray(eps * sum(ordering.speed_on(graph) ** 2 for ordering in kernel.ordering))
    # ⟨μ, A⁻¹μ⟩, or ⟨μ, Aμ⟩ when coupled
    drift = _drift(kernel, graph, slopes)
    other = drift if metric is None else metric.raised(drift, 1 if kernel.coupled else -1)
    return eps * np.einsum("mi,mi->m", drift, other)


def _drift(kernel: Kernel, graph: NeighborGraph, slopes: list[Array]) -> Array:
    """μ = Σ_k (τ_k/κ_k) ∇l_k, (m, n)."""
    return np.asarray(sum(s[:, None] * o.gradient_on(graph) for s, o in zip(slopes, kernel.ordering, strict=True)))


def edge_terms(functions: Functions, graph: NeighborGraph, start: int, stop: int) -> Array:
    """Σ_k (τ_k/κ_k)(i) l_k(i, j) of the orderings by function, for the edges of these rows of the layout."""
    if not functions:
        return EMPTY
    try:
        return _edge_sum(functions, graph, *graph.layout.edges(start, stop))
    except ValueError:
        for i in range(graph.n_points):  # name the first pair in the order of the samples
            j = graph.indices[graph.indptr[i] : graph.indptr[i + 1]].astype(np.intp)
            _edge_sum(functions, graph, np.full(j.size, i), j)
        raise


def _edge_sum(functions: Functions, graph: NeighborGraph, i: Any, j: Any) -> Array:
    return np.asarray(sum(s[i] * ordering.differences(graph, i, j) for s, ordering in functions))


def empty_row(index: int, eps: float) -> ResolutionError:
    return ResolutionError(
        f"row {index} of the kernel has no finite mass at eps = {eps:g}: with these dynamics sample {index} "
        "reaches none of its neighbours. Use a larger eps or noise, more neighbours, a smaller speed, "
        'or the "gaussian" profile, which never vanishes.'
    )
