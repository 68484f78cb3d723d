"""Neighbour graphs: who is near whom, as one CSR pattern with squared distances.

The graph is the currency of the package: it fixes the sparsity pattern once, and every kernel, operator and field
is an array over its m nodes or E edges. Each sample is a neighbour of itself, at distance 0; ``k`` counts the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _check, _march, _sparse, _threads, neighbors
from ordiff._check import Array, GraphError, IntArray
from ordiff._threads import cached_property

# From this many edges on operators are sorted for locality: below, to sort a function and back costs what it saves.
_MANY_EDGES = 200_000


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


class NeighborGraph:
    """A directed neighbour graph on m samples.

    Row i of the CSR pattern (``indptr``, ``indices``) lists the neighbours of sample i in ascending order, each once,
    itself included; ``sqdist`` (E,) holds the squared distances. The arrays are read-only and shared by all that is
    built on them. Make one with `build` or `from_distances`.
    """

    def __init__(
        self,
        indptr: IntArray,
        indices: IntArray,
        sqdist: Array,
        X: Array | None = None,
        order: NDArray[np.uint32] | None = None,
    ) -> None:
        # The private arrays are writable for the compiled loops' sake (one specialisation); nothing writes to them.
        self._indptr, self._indices, self._sqdist, self._X = indptr, indices, sqdist, X
        self._order = order  # one that keeps neighbours together, where it is known
        self.indptr: IntArray = _read_only(indptr)
        self.indices: IntArray = _read_only(indices)
        self.sqdist: Array = _read_only(sqdist)
        self.X: Array | None = None if X is None else _read_only(X)
        self.dimension: int | None = None  # once `geometry.intrinsic_dimension` has estimated it

    @classmethod
    def build(
        cls,
        X: ArrayLike,
        k: int | None = None,
        radius: float | None = None,
        method: str = "auto",
        random_state: int | None = None,
    ) -> NeighborGraph:
        """The graph of the ``k`` nearest others, or of all within ``radius``.

        method: "exact" (k-d tree in up to 15 coordinates, all pairs in blocks beyond), "approximate" (pynndescent,
        nearest-neighbour descent, seeded by ``random_state``; needs the extra ``approximate``; only with ``k``), or
        "auto": exact, except for more than 50,000 points in more than 15 coordinates when pynndescent is installed.

        >>> import numpy as np, ordiff as od
        >>> graph = od.NeighborGraph.build(np.arange(5.0).reshape(-1, 1), k=2)
        >>> graph.indices[graph.indptr[0] : graph.indptr[1]]
        array([0, 1, 2], dtype=int32)
        """
        X = _check.points(X).copy()
        if (k is None) == (radius is None):
            raise ValueError("give either k (neighbours per point) or radius, not both or neither.")
        _check.option(method, "method", ("auto", "exact", "approximate"))
        if k is not None:
            k = _check.count(k, "k", 1, len(X) - 1, f"There are only {len(X)} points.")
            return cls._build_k(X, k, method, random_state)
        if method == "approximate":
            raise ValueError('method="approximate" finds k neighbours; with a radius the search is exact.')
        return cls._build_radius(X, np.full(len(X), _check.positive(radius, "radius")))

    @classmethod
    def _build_k(cls, X: Array, k: int, method: str, random_state: int | None) -> NeighborGraph:
        m, order = len(X), neighbors.along_curve(X)
        indptr = np.arange(0, m * (k + 1) + 1, k + 1, dtype=_sparse.index_dtype(m * (k + 1)))
        indices: Any = np.empty((m, k + 1), indptr.dtype)
        for samples, found in neighbors.nearest(X, k + 1, method, random_state, order):
            indices[samples] = found
        return cls._finish(indptr, indices.ravel(), X, order)

    @classmethod
    def _build_radius(cls, X: Array, radius: Array) -> NeighborGraph:
        # the search may round either way at the rim, so it finds a little more, and exact distances decide
        order, counts = neighbors.along_curve(X), np.empty(len(X), np.int64)
        blocks = list(neighbors.within(X, radius, order))
        for samples, _, lengths in blocks:
            counts[samples] = lengths
        indptr = _offsets(counts)
        indices = np.empty(int(indptr[-1]), indptr.dtype)
        for samples, found, lengths in blocks:
            here = _offsets(lengths)
            _threads.over_rows(_sparse.copy_rows, here, here, indptr[samples], found, indices)
        graph = cls._finish(indptr, indices, X, order)
        limit = radius[0] ** 2 if np.ptp(radius) == 0 else (radius**2)[graph.sources()]
        return graph._only(graph._sqdist <= limit)

    def _only(self, kept: NDArray[np.bool_]) -> NeighborGraph:
        """The graph with these edges, and each sample's own."""
        kept[self.selves] = True
        if kept.all():
            return self
        indptr = _offsets(np.add.reduceat(kept, self._indptr[:-1], dtype=np.int64)).astype(self._indptr.dtype)
        return NeighborGraph(indptr, self._indices[kept], self._sqdist[kept], self._X, self._order)

    @classmethod
    def _finish(
        cls, indptr: IntArray, indices: IntArray, X: Array, order: NDArray[np.uint32] | None = None
    ) -> NeighborGraph:
        """Self in every row, rows sorted, exact squared distances."""
        assert indices.max() < len(X)
        assert (np.diff(indptr) > 0).all()
        distinct = _threads.over_rows(_sparse.self_and_sort, indptr, _sparse.unsigned(indices))
        assert all(distinct)
        sqdist, m = np.empty(indices.size), len(X)
        summary = np.empty(m, np.intp), np.empty(m), np.empty(m)
        _threads.over_rows(_sparse.measure, indptr, _sparse.unsigned(indices), X, sqdist, *summary)
        graph = cls(indptr, indices, sqdist, X, order)
        graph.__dict__["_summary"] = summary
        return graph

    @classmethod
    def from_distances(cls, D: Any, X: ArrayLike | None = None) -> NeighborGraph:
        """A graph from distances that you have: scikit-learn's or scanpy's neighbour graph, or a full matrix.

        D: sparse (every stored entry is an edge, also a stored 0) or dense (every finite entry is an edge). The
        diagonal may be present (0) or absent. D need not be symmetric: row i lists the neighbours of i.
        X: the coordinates, (m, n), needed by vector fields, anisotropy, tangent spaces and velocities.
        """
        if sp.issparse(D):
            edges = sp.coo_array(D)
            rows, columns, distance = edges.row, edges.col, edges.data
        else:
            dense = np.asarray(D, dtype=np.float64)
            if dense.ndim != 2:
                raise ValueError(f"D must be a square matrix of distances; got shape {dense.shape}.")
            edges = dense
            rows, columns = np.nonzero(dense != np.inf)
            distance = dense[rows, columns]
            if np.count_nonzero(distance == 0) > 0.5 * dense.size > 4:
                raise ValueError(
                    "most entries of the dense D are 0, which would make those points coincide: pass a neighbour graph "
                    "as a sparse matrix, or mark missing distances by infinity."
                )
        m = edges.shape[0]
        if edges.shape != (m, m) or m < 2:
            raise ValueError(f"D must be a square matrix of distances of 2 or more points; got shape {edges.shape}.")
        _check_distances(rows, columns, distance)

        absent = np.ones(m, bool)
        absent[rows[rows == columns]] = False
        selves = np.flatnonzero(absent)
        rows, columns = np.concatenate([rows, selves]), np.concatenate([columns, selves])
        distance = np.concatenate([distance, np.zeros(selves.size)]).astype(np.float64)
        distance[rows == columns] = 0.0  # rounding of scikit-learn's euclidean_distances
        order = np.lexsort((columns, rows))
        rows, columns = rows[order], columns[order]
        twice = (np.diff(rows) == 0) & (np.diff(columns) == 0)
        if twice.any():
            at = int(np.argmax(twice))
            raise ValueError(f"D stores the distance from {rows[at]} to {columns[at]} more than once.")
        dtype = _sparse.index_dtype(rows.size)
        indptr = np.searchsorted(rows, np.arange(m + 1)).astype(dtype)
        if X is not None:
            X = _check.points(X).copy()
            if len(X) != m:
                raise ValueError(f"X has {len(X)} points, but D is {m} by {m}.")
        return cls(indptr, columns.astype(dtype), distance[order] ** 2, X)

    @property
    def n_points(self) -> int:
        """The number of samples, m."""
        return len(self._indptr) - 1

    @property
    def n_edges(self) -> int:
        """The number of stored neighbours, E, selves included."""
        return self._indices.size

    @cached_property
    def components(self) -> NDArray[np.int32]:
        """The part that each sample is in, (m,), edges taken in both directions; 0 is the largest part."""
        from scipy.sparse.csgraph import connected_components

        _, part = connected_components(self.matrix(np.ones(self.n_edges)), directed=True, connection="weak")
        order = np.argsort(-np.bincount(part), kind="stable")
        return np.argsort(order)[part].astype(np.int32)

    @property
    def n_components(self) -> int:
        """The number of parts that no edge joins."""
        return int(self.components.max()) + 1

    def geodesic(self, sources: ArrayLike, weights: ArrayLike | None = None) -> Array:
        """The expected graph distance Σ_s w_s d(s, j) of every sample j from the ``sources`` (indices), (m,).

        Edges are taken in both directions. ``weights`` default to equal ones; they are scaled to sum to 1.
        """
        from scipy.sparse.csgraph import dijkstra

        sources = _check.indices(sources, self.n_points, "sources")
        w = np.ones(sources.size) if weights is None else _check.nodes(weights, sources.size, "weights")
        if not ((w >= 0).all() and w.sum() > 0):
            raise ValueError("weights must not be negative, and not all 0.")
        lengths = self.matrix(np.sqrt(self._sqdist))
        total = np.zeros(self.n_points)
        for source, share in zip(sources[w > 0], w[w > 0] / w.sum(), strict=True):
            total += share * dijkstra(lengths, directed=False, indices=source)
        lost = ~np.isfinite(total)
        if lost.any():
            raise GraphError(
                f"{lost.sum()} of {self.n_points} samples cannot be reached from the start, the first at index "
                f"{int(np.argmax(lost))}: the graph has {_parts(self)}. Use more neighbours, or a rule that joins the "
                "parts; `threshold_graph` says which."
            )
        return total

    def matrix(self, data: Array) -> sp.csr_array:
        """The sparse matrix with this pattern and these edge values, (E,); the pattern is shared, not copied."""
        return sp.csr_array((data, self.indices, self.indptr), shape=(self.n_points, self.n_points))

    def sources(self, start: int = 0, stop: int | None = None) -> NDArray[np.intp]:
        """The row number of every edge, (E,), or of the edges of rows start .. stop − 1."""
        stop = self.n_points if stop is None else stop
        return np.repeat(np.arange(start, stop), np.diff(self.indptr[start : stop + 1]))

    @cached_property
    def _summary(self) -> tuple[NDArray[np.intp], Array, Array]:
        m = self.n_points
        selves, spacing, reach = np.empty(m, np.intp), np.empty(m), np.empty(m)
        indices = _sparse.unsigned(self._indices)
        _threads.over_rows(_sparse.row_summary, self._indptr, indices, self._sqdist, selves, spacing, reach)
        return selves, spacing, reach

    @property
    def selves(self) -> NDArray[np.intp]:
        """Where in the edges each sample is its own neighbour, (m,)."""
        return self._summary[0]

    @property
    def spacing(self) -> Array:
        """The squared distance to the nearest other neighbour, (m,); infinite where there is none."""
        return self._summary[1]

    @property
    def reach(self) -> Array:
        """The squared distance to the farthest neighbour, (m,)."""
        return self._summary[2]

    @property
    def horizon(self) -> Array:
        """The squared distance at which the graph cuts off, (m,): the reach, or infinite where all are neighbours."""
        return np.where(np.diff(self.indptr) == self.n_points, np.inf, self.reach)

    @cached_property
    def local_order(self) -> tuple[NDArray[np.uint32], IntArray, IntArray, IntArray]:
        """The samples in an order that keeps neighbours together in memory, and the pattern in that order.

        Returns the order, indptr, indices and, for each entry, the edge that it was. Along a Morton curve of the
        leading three principal coordinates; without coordinates, breadth first along the edges.
        """
        local = self._local
        assert local.order is not None
        edges = local.sort_edges(np.arange(self.n_edges, dtype=self._indices.dtype))
        return local.order, local.pattern._indptr, local.pattern._indices, edges

    @property
    def _layout(self) -> Layout:
        """How operators on this graph are kept in memory."""
        if self.n_edges < _MANY_EDGES:
            return Layout.of(self)
        return self._local

    @cached_property
    def _local(self) -> Layout:
        m, order = self.n_points, self._order
        if order is None and self._X is not None:
            order = neighbors.along_curve(self._X)
        elif order is None:
            order = np.empty(m, np.uint32)
            _sparse.breadth_first(self._indptr, _sparse.unsigned(self._indices), np.zeros(m, bool), order)
        rank = np.empty(m, np.uint32)
        rank[order] = np.arange(m)
        indptr, indices = _offsets(np.diff(self._indptr)[order]), np.empty_like(self._indices)
        begins, (old, new) = indptr[rank], map(_sparse.unsigned, (self._indices, indices))
        _threads.over_rows(_sparse.renamed_rows, self._indptr, old, rank, begins, new)
        return Layout(NeighborGraph(indptr, indices, _sparse.EMPTY), self._indptr, begins, order)

    @cached_property
    def _runs(self) -> NDArray[np.int64]:
        """The rows in the runs of a march."""
        return _march.runs(self._indptr)

    @cached_property
    def _shares(self) -> NDArray[np.int64]:
        """The rows in the shares of a step that scatters."""
        return _march.shares(self._indptr)

    @cached_property
    def _columns(self) -> Columns:
        """The pattern by columns."""
        return Columns.of(self._indptr, self._indices)

    def nearest(self, k: int, pad: bool = False) -> tuple[NDArray[np.intp], Array]:
        """The k nearest others of every sample, nearest first: indices and distances, (m, k) each.

        A sample with fewer is an error, or, with ``pad``, is filled up with itself at distance 0.
        """
        self._check_degrees(0 if pad else k)
        found = np.tile(np.arange(self.n_points)[:, None], (1, k))
        distances = np.zeros((self.n_points, k))
        indices = _sparse.unsigned(self._indices)
        _threads.over_rows(_sparse.nearest, self._indptr, indices, self._sqdist, k, found, distances)
        return found, distances

    def radius(self, k: int, pad: bool = False) -> Array:
        """The distance r_k to the k-th nearest other of every sample, (m,).

        A sample with fewer is an error, or, with ``pad``, has that to its last; 0 if it has none.
        """
        self._check_degrees(0 if pad else k)
        out, indices = np.empty(self.n_points), _sparse.unsigned(self._indices)
        _threads.over_rows(_sparse.kth_nearest, self._indptr, indices, self._sqdist, k, out)
        return np.sqrt(out)

    def _check_degrees(self, k: int) -> None:
        degrees = np.diff(self.indptr) - 1
        if degrees.min() < k:
            at = int(np.argmin(degrees))
            raise GraphError(
                f"this needs {k} neighbours per sample, but sample {at} has {degrees[at]} besides itself: "
                f"build the graph with k ≥ {k} or a larger radius."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return NeighborGraph, (self._indptr, self._indices, self._sqdist, self._X)

    def __repr__(self) -> str:
        where = "distances only" if self.X is None else f"{self.X.shape[1]} coordinates"
        return f"NeighborGraph({self.n_points} points, {self.n_edges} edges, {where})"


def side_by_side(f: Array) -> Array:
    """One function (m,) or several (m, c), as (m, c) in one piece."""
    return np.ascontiguousarray(f).reshape(len(f), -1)


@dataclass(frozen=True, eq=False)
class Layout:
    """The order in which operators on a graph keep its samples in memory: their own, or, where there are many, one
    that keeps neighbours together, so that a step finds what it needs in cache.

    Functions (m,) or (m, c) and edge values (E,) are sorted into this order and back; in the samples' own order both
    do nothing.
    """

    pattern: NeighborGraph  # the graph in this order; its distances may be missing
    indptr: IntArray  # of the graph
    begins: IntArray  # where each row of the graph begins in the pattern, (m,)
    order: NDArray[np.uint32] | None = None

    @classmethod
    def of(cls, graph: NeighborGraph) -> Layout:
        """The samples' own order."""
        return cls(graph, graph._indptr, graph._indptr[:-1])

    @cached_property
    def origins(self) -> IntArray:
        """Where each row of the pattern begins in the graph, (m,)."""
        return self.begins if self.order is None else self.indptr[self.order]

    def edges(self, start: int, stop: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Both ends, as the graph names them, of the edges in these rows of the pattern."""
        pattern, names = self.pattern, self._names
        j = pattern.indices[pattern.indptr[start] : pattern.indptr[stop]]
        return np.repeat(names[start:stop], np.diff(pattern.indptr[start : stop + 1])), names[j]

    @cached_property
    def _names(self) -> NDArray[np.intp]:
        """The sample that each row of the pattern is."""
        return np.arange(self.pattern.n_points) if self.order is None else self.order.astype(np.intp)

    def sort(self, f: Array) -> Array:
        return self._reordered(_sparse.sort_run, f)

    def unsort(self, f: Array) -> Array:
        return self._reordered(_sparse.unsort_run, f)

    def sort_edges(self, values: Any) -> Any:
        return self._moved(values, self.indptr[:-1], self.begins)

    def unsort_edges(self, values: Any) -> Any:
        return self._moved(values, self.begins, self.indptr[:-1])

    def _reordered(self, loop: Callable[..., None], f: Array) -> Array:
        if self.order is None:
            return f
        many = side_by_side(f)
        out = np.empty(many.shape)
        _threads.over(_threads.even_ranges(len(f), f.size // 2), loop, self.order, many, out)
        return out.reshape(f.shape)

    def _moved(self, values: Any, source: IntArray, target: IntArray) -> Any:
        if self.order is None:
            return values
        out = np.empty_like(values)
        _threads.over_rows(_sparse.copy_rows, self.indptr, source, target, values, out)
        return out


@dataclass(frozen=True, eq=False)
class Columns:
    """A pattern by columns: for each sample those that have it as a neighbour, and by which edge."""

    indptr: IntArray
    indices: NDArray[np.unsignedinteger[Any]]
    edges: NDArray[np.unsignedinteger[Any]]
    runs: NDArray[np.int64]  # the columns in the runs of a march

    @classmethod
    def of(cls, indptr: IntArray, indices: IntArray) -> Columns:
        n, numbers = len(indptr) - 1, np.arange(indices.size, dtype=indices.dtype)
        columns = sp.csr_array((numbers, indices, indptr), shape=(n, n)).tocsc()
        named, edges = map(_sparse.unsigned, (columns.indices, columns.data))
        return cls(columns.indptr, named, edges, _march.runs(columns.indptr))

    def values(self, data: Array, out: Array | None = None) -> Array:
        """Edge values, by columns, (E,)."""
        out = np.empty_like(data) if out is None else out
        _threads.over(_threads.even_ranges(data.size, data.size), _sparse.take, self.edges, data, out)
        return out


def _offsets(counts: IntArray) -> IntArray:
    """indptr from the number of entries in each row."""
    ends = np.cumsum(counts, dtype=np.int64)
    return np.concatenate([[0], ends]).astype(_sparse.index_dtype(int(ends[-1])))


def _check_distances(rows: IntArray, columns: IntArray, distance: Array) -> None:
    bad = ~(distance >= 0) | ~np.isfinite(distance)
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(
            f"distances must be finite and not negative; D[{rows[at]}, {columns[at]}] is {distance[at]}. "
            "If D holds similarities or connectivities, pass the distances instead."
        )
    loop = (rows == columns) & (distance > 1e-6 * distance.max(initial=0.0))
    if loop.any():
        at = int(np.argmax(loop))
        raise ValueError(
            f"the distance of a point to itself must be 0; D[{rows[at]}, {rows[at]}] is {distance[at]:g}. "
            "If D holds similarities or connectivities, pass the distances instead."
        )


def _parts(graph: NeighborGraph) -> str:
    """ "3 parts of 120, 40 and 2 samples"."""
    sizes = np.bincount(graph.components)
    shown = [str(size) for size in sizes[:5]] + (["…"] if sizes.size > 5 else [])
    listed = ", ".join(shown[:-1]) + " and " + shown[-1] if len(shown) > 1 else shown[0]
    return f"{sizes.size} part{'s' if sizes.size > 1 else ''} of {listed} samples"


# ------------------------------------------------------------------------------------------ threshold graphs

RULES = ("knn", "and", "or", "cknn")
# Edges of the graph in which the value that would join the parts is looked for.
_JOIN_EDGES = 20_000_000


def threshold_graph(X: ArrayLike, k: int = 10, rule: str = "cknn", delta: float = 1.0) -> NeighborGraph:
    """The graph of all pairs closer than a threshold made of r_k, the distance to the k-th other sample.

    rule: "knn" d ≤ r_k(i), which is not symmetric; "and" d ≤ min(r_k(i), r_k(j)); "or" d ≤ max(r_k(i), r_k(j)); "cknn",
    the continuous k-nearest-neighbour graph, d ≤ δ √(r_k(i) r_k(j)), which follows the density and keeps the topology.
    Of samples tied at r_k(i) the first three keep as many as make k. A graph in several parts is warned of, with the
    smallest k (or δ) that joins them.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(0, 1, 50).reshape(-1, 1)
    >>> od.threshold_graph(x, k=3).n_components
    1
    """
    X = _check.points(X).copy()
    k = _check.count(k, "k", 1, len(X) - 1, f"There are only {len(X)} points.")
    delta = _check.positive(delta, "delta")
    _check.option(rule, "rule", RULES)
    graph = _by_rule(X, k, rule, delta)
    if graph.n_components > 1:
        _check.warn(f"the graph has {_parts(graph)}. {_what_joins(X, k, rule, graph)}")
    return graph


def _by_rule(X: Array, k: int, rule: str, delta: float) -> NeighborGraph:
    near = NeighborGraph._build_k(X, k, "auto", None)
    if rule == "knn":
        return near
    if rule in ("and", "or"):
        pattern = near.matrix(np.ones(near.n_edges))
        pattern = sp.csr_array(pattern.multiply(pattern.T) if rule == "and" else pattern + pattern.T)
        return NeighborGraph._finish(pattern.indptr, pattern.indices, X, near._order)
    # r_k is 1-Lipschitz, so d ≤ δ√(r_i r_j) implies d ≤ δ√(r_i (r_i + d)), that is d ≤ c r_i
    r = _check.apart(near.radius(k), k, "threshold is 0")
    c = 0.5 * (delta**2 + np.sqrt(delta**4 + 4 * delta**2))
    wide = NeighborGraph._build_radius(X, c * r * (1 + 1e-12))
    # with room for the rounding of √, so that mutual k-th neighbours are kept
    return wide._only(wide._sqdist <= delta**2 * (1 + 1e-12) * r[wide.sources()] * r[wide._indices])


def _what_joins(X: Array, k: int, rule: str, graph: NeighborGraph) -> str:
    """The smallest k, or δ, whose graph is connected: the longest edge of a minimum spanning tree in that measure."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    m = len(X)
    most = max(k, min(m - 1, _JOIN_EDGES // m))
    wide = NeighborGraph._build_k(X, most, "auto", None)
    by_row = wide.sqdist.reshape(m, most + 1)
    if rule == "cknn":
        r = np.sqrt(np.partition(by_row, k, axis=1)[:, k])
        cost = np.sqrt(wide.sqdist / np.maximum(r[wide.sources()] * r[wide.indices], np.finfo(float).tiny))
    else:
        cost = np.argsort(np.argsort(by_row, axis=1, kind="stable"), axis=1).ravel().astype(float)
    edges = wide.matrix(np.maximum(cost, np.finfo(float).tiny))  # a stored 0 would be no edge
    if rule == "and":
        both = wide.matrix(np.ones(wide.n_edges))
        edges = edges.maximum(edges.T).multiply(both.multiply(both.T))
    tree = minimum_spanning_tree(sp.csr_array(edges))  # takes the smaller of the two directions of an edge
    if tree.nnz < m - 1:
        what = "threshold" if rule == "cknn" else "k"
        return (
            f"No {what} joins them within {most} neighbours of each sample: they lie far apart. Treat the parts "
            "separately (graph.components), or remove the outliers."
        )
    longest = float(tree.data.max())
    if rule == "cknn":
        return f"The smallest delta that joins them is {np.ceil(longest * 1000) / 1000:.3f} (at k = {k})."
    return f"The smallest k that joins them is {round(longest)}."


# ------------------------------------------------------------------------------------------- geodesic order


def geodesic_order(graph: NeighborGraph, start: ArrayLike) -> Array:
    """The distance from the start along the graph, (m,): an ordering where none is known.

    start: a sample's index, several indices, a point (n,) of decimal numbers (the nearest sample is taken), or an
    initial mass on the samples (m,), for which it is the expected distance. Use a graph of short edges, such as that
    of `threshold_graph`.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(0, 1, 50).reshape(-1, 1)
    >>> l = od.geodesic_order(od.threshold_graph(x, k=3), start=0)
    >>> bool(np.allclose(l, x[:, 0]))
    True
    """
    array = np.atleast_1d(np.asarray(start))
    n = None if graph.X is None else graph.X.shape[1]
    if array.dtype.kind in "iu" and array.shape != (graph.n_points,):
        if array.shape == (n,) and array.size > 1:
            raise ValueError(
                f"start = {array.tolist()} may be a point or {n} samples: write a point with decimals "
                f"({array.astype(float).tolist()}), and use graph.geodesic for indices."
            )
        return graph.geodesic(array)
    if array.shape == (graph.n_points,) and n != graph.n_points:
        mass = _check.nodes(array, graph.n_points, "start")
        if not mass.any():
            raise ValueError("start is a mass of 0 at every sample.")
        return graph.geodesic(np.flatnonzero(mass), mass[mass != 0])
    X = _check.need_points(graph.X, "a start given by its coordinates")
    point = _check.nodes(array, X.shape[1], "start")
    distance = np.linalg.norm(X - point, axis=1)
    nearest = int(np.argmin(distance))
    typical = float(np.sqrt(np.median(graph.reach)))
    if distance[nearest] > 10 * typical:
        raise ValueError(
            f"the start is {distance[nearest]:.3g} from the nearest sample ({nearest}), more than ten times the reach "
            f"of the graph ({typical:.3g}): check its coordinates and units."
        )
    return graph.geodesic(nearest)
