"""Neighbour graphs: who is near whom, as one CSR pattern with squared distances.

The graph is the currency of the package: it fixes the sparsity pattern once, and every kernel, operator and field
is an array over its m nodes or E edges. Each sample is a neighbour of itself, at distance 0; ``k`` counts the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _parallel, _validation
from ordiff._compiled import csr
from ordiff._compiled import graph as loops
from ordiff._parallel import cached_property
from ordiff._validation import Array, GraphError, IntArray
from ordiff.graph import search
from ordiff.graph.dimension import dimension
from ordiff.graph.layout import Layout, offsets
from ordiff.graph.pattern import checked_pattern, sparse_arrays

# More neighbours than samples may be asked for with ``pad``, up to this many.
_MOST_PADDED = 1000
RowSummary = tuple[NDArray[np.intp], Array, Array]  # of each row: its own edge, the nearest and the farthest square


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


class NeighborGraph:
    """A directed neighbour graph on m samples.

    Row i of the CSR pattern (``indptr``, ``indices``) lists the neighbours of sample i in ascending order, each once,
    itself included; ``sqdist`` (E,) holds the squared distances, and ``recall_`` is the share of the k nearest that the
    search found: 1 if it was exact, else measured on a sample. The arrays are read-only and shared by all that is
    built on them. Make one with `build` or `from_distances`; arrays of your own are checked.
    """

    def __init__(self, indptr: ArrayLike, indices: ArrayLike, sqdist: ArrayLike, X: ArrayLike | None = None) -> None:
        pointers, columns, squares = checked_pattern(indptr, indices, sqdist)
        points = None if X is None else _validation.points(X, minimum=1)
        if points is not None and len(points) != len(pointers) - 1:
            raise ValueError(f"X has {len(points)} points, but the graph has {len(pointers) - 1}.")
        self._set(pointers, columns, squares, points)

    @classmethod
    def _make(
        cls,
        indptr: IntArray,
        indices: IntArray,
        sqdist: Array,
        X: Array | None = None,
        order: NDArray[np.uint32] | None = None,
        summary: RowSummary | None = None,
        recall: float = 1.0,
    ) -> NeighborGraph:
        """A graph of arrays that are known to be right."""
        graph = cls.__new__(cls)
        graph._set(indptr, indices, sqdist, X, order, summary, recall)
        return graph

    def _set(
        self,
        indptr: IntArray,
        indices: IntArray,
        sqdist: Array,
        X: Array | None,
        order: NDArray[np.uint32] | None = None,
        summary: RowSummary | None = None,
        recall: float = 1.0,
    ) -> None:
        # The private arrays are writable for the compiled loops' sake (one specialisation); nothing writes to them.
        self._indptr, self._indices, self._sqdist, self._X = indptr, indices, sqdist, X
        self._order, self._known_summary = order, summary  # where they are known from the search
        self.indptr: IntArray = _read_only(indptr)
        self.indices: IntArray = _read_only(indices)
        self.sqdist: Array = _read_only(sqdist)
        self.X: Array | None = None if X is None else _read_only(X)
        self.recall_ = recall

    @classmethod
    def build(
        cls,
        X: ArrayLike,
        k: int | None = None,
        radius: float | None = None,
        method: str = "auto",
        random_state: int | None = None,
        recall: float = 0.99,
    ) -> NeighborGraph:
        """The graph of the ``k`` nearest others, or of all within ``radius``.

        method: "exact" (k-d tree in up to 15 coordinates, all pairs in blocks beyond), "approximate" (faiss: lists of
        points or, where these would be many, neighbours of neighbours; seeded by ``random_state``; needs the extra
        ``approximate``; only with ``k``), or "auto": exact, except for more than 20,000 points in more than 6
        coordinates when faiss is installed and its search is faster.
        recall: the share of the k nearest that an approximate search aims at, from 0.98 to 1; ``recall_`` of the graph
        is the share that it found, of a sample. Distances are exact in any case.

        >>> import numpy as np, ordiff as od
        >>> graph = od.NeighborGraph.build(np.arange(5.0).reshape(-1, 1), k=2)
        >>> graph.indices[graph.indptr[0] : graph.indptr[1]]
        array([0, 1, 2], dtype=int32)
        """
        X = _validation.points(X).copy()
        if (k is None) == (radius is None):
            raise ValueError("give either k (neighbours per point) or radius, not both or neither.")
        _validation.option(method, "method", ("auto", "exact", "approximate"))
        if not 0.98 <= _validation.number(recall, "recall") <= 1:
            raise ValueError(f"recall must be from 0.98 to 1; got {recall}.")
        _validation.generator(random_state)
        if k is not None:
            k = _validation.count(k, "k", 1, len(X) - 1, f"There are only {len(X)} points.")
            return cls._build_k(X, k, method, random_state, recall)
        if method == "approximate":
            raise ValueError('method="approximate" finds k neighbours; with a radius the search is exact.')
        return cls._build_radius(X, np.full(len(X), _validation.positive(radius, "radius")))

    @classmethod
    def _build_k(cls, X: Array, k: int, method: str, random_state: int | None, recall: float = 0.99) -> NeighborGraph:
        m, order = len(X), search.along_curve(X)
        indptr = np.arange(0, m * (k + 1) + 1, k + 1, dtype=csr.index_dtype(m * (k + 1)))
        indices: Any = np.empty((m, k + 1), indptr.dtype)
        blocks, recall = search.nearest(X, k + 1, method, random_state, order, recall)
        for samples, found in blocks:
            indices[samples] = found
        return cls._finish(indptr, indices.ravel(), X, order, recall)

    @classmethod
    def _build_radius(cls, X: Array, radius: Array) -> NeighborGraph:
        # the search may round either way at the rim, so it finds a little more, and exact distances decide
        order, counts = search.along_curve(X), np.empty(len(X), np.int64)
        blocks = list(search.within(X, radius, order))
        for samples, _, lengths in blocks:
            counts[samples] = lengths
        indptr = offsets(counts)
        indices = np.empty(int(indptr[-1]), indptr.dtype)
        for samples, found, lengths in blocks:
            here = offsets(lengths)
            _parallel.over_rows(csr.copy_rows, here, here, indptr[samples], found, indices)
        graph = cls._finish(indptr, indices, X, order)
        limit = radius[0] ** 2 if np.ptp(radius) == 0 else (radius**2)[graph.sources()]
        return graph._only(graph._sqdist <= limit)

    def _only(self, kept: NDArray[np.bool_]) -> NeighborGraph:
        """The graph with these edges, and each sample's own."""
        kept[self.selves] = True
        if kept.all():
            return self
        indptr = offsets(np.add.reduceat(kept, self._indptr[:-1], dtype=np.int64)).astype(self._indptr.dtype)
        kept_parts = indptr, self._indices[kept], self._sqdist[kept]
        return NeighborGraph._make(*kept_parts, self._X, self._order, None, self.recall_)

    @classmethod
    def _finish(
        cls,
        indptr: IntArray,
        indices: IntArray,
        X: Array,
        order: NDArray[np.uint32] | None = None,
        recall: float = 1.0,
    ) -> NeighborGraph:
        """Self in every row, rows sorted, exact squared distances."""
        assert indices.max() < len(X)
        assert (np.diff(indptr) > 0).all()
        distinct = _parallel.over_rows(loops.self_and_sort, indptr, csr.unsigned(indices))
        assert all(distinct)
        sqdist, m = np.empty(indices.size), len(X)
        summary = np.empty(m, np.intp), np.empty(m), np.empty(m)
        _parallel.over_rows(loops.measure, indptr, csr.unsigned(indices), X, sqdist, *summary)
        return cls._make(indptr, indices, sqdist, X, order, summary, recall)

    @classmethod
    def from_distances(cls, D: Any, X: ArrayLike | None = None) -> NeighborGraph:
        """A graph from distances that you have: scikit-learn's or scanpy's neighbour graph, or a full matrix.

        D: sparse (every stored entry is an edge, also a stored 0) or dense (every finite entry is an edge). The
        diagonal may be present (0) or absent. D need not be symmetric: row i lists the neighbours of i.
        X: the coordinates, (m, n), needed by vector fields, anisotropy, tangent spaces and velocities.
        """
        if sp.issparse(D):
            sparse_arrays(D)
            edges = sp.coo_array(D)
            rows, columns, distance = edges.row, edges.col, _validation.as_float(edges.data, "D")
        else:
            dense = _validation.as_float(D, "D")
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
        dtype = csr.index_dtype(rows.size)
        indptr = np.searchsorted(rows, np.arange(m + 1)).astype(dtype)
        if X is not None:
            X = _validation.points(X).copy()
            if len(X) != m:
                raise ValueError(f"X has {len(X)} points, but D is {m} by {m}.")
        return cls._make(indptr, columns.astype(dtype), distance[order] ** 2, X)

    @property
    def n_points(self) -> int:
        """The number of samples, m."""
        return len(self._indptr) - 1

    @property
    def n_edges(self) -> int:
        """The number of stored neighbours, E, selves included."""
        return self._indices.size

    def usual_degree(self, most: int) -> int:
        """How many neighbours an estimate may use: ``most``, or what the median sample has."""
        return max(1, min(most, int(np.median(np.diff(self._indptr))) - 1))

    @cached_property
    def dimension(self) -> int:
        """The dimension of the data, by local PCA at up to 1,000 samples spread over all.

        Where the spectra of 20 neighbours, or of 100 if the graph has them, have a clear gap, it is the number of
        directions before the widest: noise across a manifold fills small neighbourhoods, its curvature large ones.
        Without a gap it is the median number of directions that hold 90% of the variance.
        """
        X = _validation.need_points(self.X, "the intrinsic dimension")
        counts = sorted({self.usual_degree(k) for k in (20, 100)})
        return dimension(X, self._indptr, self._indices, self._sqdist, counts)

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

        sources = _validation.indices(sources, self.n_points, "sources")
        w = np.ones(sources.size) if weights is None else _validation.nodes(weights, sources.size, "weights")
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
                f"{int(np.argmax(lost))}: the graph has {describe_components(self)}. Use more neighbours, or a rule "
                "that joins the parts; `threshold_graph` says which."
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
    def _summary(self) -> RowSummary:
        if self._known_summary is not None:
            return self._known_summary
        m = self.n_points
        summary = np.empty(m, np.intp), np.empty(m), np.empty(m)
        _parallel.over_rows(loops.row_summary, self._indptr, csr.unsigned(self._indices), self._sqdist, *summary)
        return summary

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
    def layout(self) -> Layout:
        """The order in which operators on this graph are kept in memory: along a Morton curve of the leading three
        principal coordinates; without coordinates, breadth first along the edges."""
        m, order = self.n_points, self._order
        if order is None and self._X is not None:
            order = search.along_curve(self._X)
        elif order is None:
            order = np.empty(m, np.uint32)
            loops.breadth_first(self._indptr, csr.unsigned(self._indices), np.zeros(m, bool), order)
        return Layout.of(self._indptr, self._indices, order)

    def nearest(self, k: int, pad: bool = False) -> tuple[NDArray[np.intp], Array]:
        """The k nearest others of every sample, nearest first: indices and distances, (m, k) each.

        A sample with fewer is an error, or, with ``pad``, is filled up with itself at distance 0.
        """
        k = self._checked_count(k, pad)
        found = np.tile(np.arange(self.n_points)[:, None], (1, k))
        distances = np.zeros((self.n_points, k))
        indices = csr.unsigned(self._indices)
        _parallel.over_rows(loops.nearest, self._indptr, indices, self._sqdist, k, found, distances)
        return found, distances

    def radius(self, k: int, pad: bool = False) -> Array:
        """The distance r_k to the k-th nearest other of every sample, (m,).

        A sample with fewer is an error, or, with ``pad``, has that to its last; 0 if it has none.
        """
        k = self._checked_count(k, pad)
        out, indices = np.empty(self.n_points), csr.unsigned(self._indices)
        _parallel.over_rows(loops.kth_nearest, self._indptr, indices, self._sqdist, k, out)
        return np.sqrt(out)

    def _checked_count(self, k: int, pad: bool) -> int:
        """k, if every sample has so many neighbours, or with ``pad`` a number that needs no more memory than they."""
        pad = _validation.flag(pad, "pad")
        k = _validation.count(k, "k", 1, max(self.n_points, _MOST_PADDED) if pad else None)
        degrees = np.diff(self.indptr) - 1
        if degrees.min() < k and not pad:
            at = int(np.argmin(degrees))
            raise GraphError(
                f"this needs {k} neighbours per sample, but sample {at} has {degrees[at]} besides itself: "
                f"build the graph with k ≥ {k} or a larger radius."
            )
        return k

    def __reduce__(self) -> tuple[Any, ...]:
        return NeighborGraph._make, (self._indptr, self._indices, self._sqdist, self._X, None, None, self.recall_)

    def __repr__(self) -> str:
        where = "distances only" if self.X is None else f"{self.X.shape[1]} coordinates"
        return f"NeighborGraph({self.n_points} points, {self.n_edges} edges, {where})"


def _check_distances(rows: IntArray, columns: IntArray, distance: Array) -> None:
    bad = ~(distance >= 0) | ~np.isfinite(distance)
    lost = (distance > _validation.LARGEST_SPAN) | ((distance > 0) & (distance < 1 / _validation.LARGEST_SPAN))
    if lost.any() and not bad.any():
        at = int(np.argmax(lost))
        raise ValueError(
            f"D[{rows[at]}, {columns[at]}] is {distance[at]:g}, whose square is no number of double precision: use "
            "another unit of length."
        )
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


def describe_components(graph: NeighborGraph) -> str:
    """ "3 parts of 120, 40 and 2 samples"."""
    sizes = np.bincount(graph.components)
    shown = [str(size) for size in sizes[:5]] + (["…"] if sizes.size > 5 else [])
    listed = ", ".join(shown[:-1]) + " and " + shown[-1] if len(shown) > 1 else shown[0]
    return f"{sizes.size} part{'s' if sizes.size > 1 else ''} of {listed} samples"
