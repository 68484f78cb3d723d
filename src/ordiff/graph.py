"""Neighbour graphs: who is near whom, as one CSR pattern with squared distances.

The graph is the currency of the package: it fixes the sparsity pattern once, and every kernel, operator and field
is an array over its m nodes or E edges. Each sample is a neighbour of itself, at distance 0; ``k`` counts the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _check, _sparse
from ordiff._check import Array, GraphError, IntArray

# Up to this many coordinates a k-d tree beats comparing all pairs.
_TREE_DIMENSION = 15
# From this many points in more coordinates than that, approximate search beats comparing all pairs.
_APPROXIMATE_SIZE = 50_000
# Neighbours found at a time: bounds the memory of the search beside the graph itself.
_SEARCH_BLOCK = 2_000_000


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


class NeighborGraph:
    """A directed neighbour graph on m samples.

    Row i of the CSR pattern (``indptr``, ``indices``) lists the neighbours of sample i in ascending order, itself
    included; ``sqdist`` (E,) holds the squared distances. The arrays are read-only and shared by all that is built
    on them. Make one with `build` or `from_distances`.
    """

    def __init__(self, indptr: IntArray, indices: IntArray, sqdist: Array, X: Array | None = None) -> None:
        # The private arrays are writable for the compiled loops' sake (one specialisation); nothing writes to them.
        self._indptr, self._indices, self._sqdist, self._X = indptr, indices, sqdist, X
        self.indptr: IntArray = _read_only(indptr)
        self.indices: IntArray = _read_only(indices)
        self.sqdist: Array = _read_only(sqdist)
        self.X: Array | None = None if X is None else _read_only(X)

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
        return cls._build_radius(X, _check.positive(radius, "radius"))

    @classmethod
    def _build_k(cls, X: Array, k: int, method: str, random_state: int | None) -> NeighborGraph:
        m, n = X.shape
        if method == "auto":
            big = n > _TREE_DIMENSION and m > _APPROXIMATE_SIZE
            method = "approximate" if big and _has_pynndescent() else "exact"
        indptr = np.arange(0, m * (k + 1) + 1, k + 1, dtype=_sparse.index_dtype(m * (k + 1)))
        indices = np.empty(m * (k + 1), indptr.dtype)
        search = _approximate(X, k + 1, random_state) if method == "approximate" else _exact(X, k + 1)
        for start, found in search:
            indices[start * (k + 1) : start * (k + 1) + found.size] = found.ravel()
        return cls._finish(indptr, indices, X)

    @classmethod
    def _build_radius(cls, X: Array, radius: float) -> NeighborGraph:
        counts, blocks = [], []
        for found, lengths in _within(X, radius):
            counts.append(lengths)
            blocks.append(found)
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts), dtype=np.int64)])
        dtype = _sparse.index_dtype(int(indptr[-1]))
        return cls._finish(indptr.astype(dtype), np.concatenate(blocks).astype(dtype, copy=False), X)

    @classmethod
    def _finish(cls, indptr: IntArray, indices: IntArray, X: Array) -> NeighborGraph:
        """Self in every row, rows sorted, exact squared distances."""
        _sparse.over_rows(_sparse.self_and_sort, indptr, _sparse.unsigned(indices))
        sqdist = np.empty(indices.size)
        _sparse.over_rows(_sparse.square_distances, indptr, _sparse.unsigned(indices), X, sqdist)
        return cls(indptr, indices, sqdist, X)

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
        m = edges.shape[0]
        if edges.shape != (m, m) or m < 2:
            raise ValueError(f"D must be a square matrix of distances of 2 or more points; got shape {edges.shape}.")
        _check_distances(rows, columns, distance)

        absent = np.ones(m, bool)
        absent[rows[rows == columns]] = False
        selves = np.flatnonzero(absent)
        rows, columns = np.concatenate([rows, selves]), np.concatenate([columns, selves])
        distance = np.concatenate([distance, np.zeros(selves.size)]).astype(np.float64)
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
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        """The number of stored neighbours, E, selves included."""
        return int(self.indices.size)

    @cached_property
    def n_components(self) -> int:
        """The number of parts that no edge joins, edges taken in both directions."""
        return int(self._components()[0])

    def _components(self) -> tuple[int, NDArray[np.int32]]:
        from scipy.sparse.csgraph import connected_components

        return connected_components(self.matrix(np.ones(self.n_edges)), directed=True, connection="weak")

    def matrix(self, data: Array) -> sp.csr_array:
        """The sparse matrix with this pattern and these edge values, (E,); the pattern is shared, not copied."""
        return sp.csr_array((data, self.indices, self.indptr), shape=(self.n_points, self.n_points))

    def sources(self, start: int = 0, stop: int | None = None) -> NDArray[np.intp]:
        """The row number of every edge, (E,), or of the edges of rows start .. stop − 1."""
        stop = self.n_points if stop is None else stop
        return np.repeat(np.arange(start, stop), np.diff(self.indptr[start : stop + 1]))

    @cached_property
    def reach(self) -> Array:
        """The squared distance to the farthest neighbour of every sample, (m,); infinite where that is all samples."""
        farthest = np.maximum.reduceat(self.sqdist, self.indptr[:-1])
        farthest[np.diff(self.indptr) == self.n_points] = np.inf
        return farthest

    def nearest(self, k: int) -> tuple[NDArray[np.intp], Array]:
        """The k nearest others of every sample, nearest first: indices and distances, (m, k) each."""
        degrees = np.diff(self.indptr) - 1
        if degrees.min() < k:
            at = int(np.argmin(degrees))
            raise GraphError(
                f"this needs {k} neighbours per sample, but sample {at} has {degrees[at]} besides itself: "
                f"build the graph with k ≥ {k} or a larger radius."
            )
        neighbors = np.empty((self.n_points, k), np.intp)
        distances = np.empty((self.n_points, k))
        indices = _sparse.unsigned(self._indices)
        _sparse.over_rows(_sparse.nearest, self._indptr, indices, self._sqdist, k, neighbors, distances)
        return neighbors, distances

    def __repr__(self) -> str:
        where = "distances only" if self.X is None else f"{self.X.shape[1]} coordinates"
        return f"NeighborGraph({self.n_points} points, {self.n_edges} edges, {where})"


def _check_distances(rows: IntArray, columns: IntArray, distance: Array) -> None:
    bad = ~(distance >= 0) | ~np.isfinite(distance)
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(
            f"distances must be finite and not negative; D[{rows[at]}, {columns[at]}] is {distance[at]}. "
            "If D holds similarities or connectivities, pass the distances instead."
        )
    loop = (rows == columns) & (distance != 0)
    if loop.any():
        at = int(np.argmax(loop))
        raise ValueError(
            f"the distance of a point to itself must be 0; D[{rows[at]}, {rows[at]}] is {distance[at]:g}. "
            "If D holds similarities or connectivities, pass the distances instead."
        )


# ---------------------------------------------------------------------------------------------- searches


def _has_pynndescent() -> bool:
    from importlib.util import find_spec

    return find_spec("pynndescent") is not None


def _exact(X: Array, k: int) -> Iterator[tuple[int, IntArray]]:
    """(first row, indices of the k nearest including self) in blocks of rows."""
    step = max(1, _SEARCH_BLOCK // k)
    if X.shape[1] <= _TREE_DIMENSION:
        from scipy.spatial import cKDTree

        tree = cKDTree(X)
        for start in range(0, len(X), step):
            yield start, tree.query(X[start : start + step], k, workers=-1)[1]
    else:
        from sklearn.neighbors import NearestNeighbors

        search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(X)
        for start in range(0, len(X), step):
            yield start, search.kneighbors(X[start : start + step], return_distance=False)


def _approximate(X: Array, k: int, random_state: int | None) -> Iterator[tuple[int, IntArray]]:
    try:
        from pynndescent import NNDescent
    except ImportError:
        raise _check.missing_extra("pynndescent", "approximate", 'method="approximate"') from None
    # The descent finds the nearest of a list well and its tail less well: ask for more than is kept.
    index = NNDescent(X, n_neighbors=k + max(10, k // 2), random_state=random_state)
    found = index.neighbor_graph[0][:, :k]
    # −1 marks a place that the descent left empty: those rows are searched exactly
    short = np.flatnonzero((found < 0).any(axis=1))
    if short.size:
        from sklearn.neighbors import NearestNeighbors

        exact = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(X)
        found[short] = exact.kneighbors(X[short], return_distance=False)
    yield 0, found


def _within(X: Array, radius: float) -> Iterator[tuple[IntArray, IntArray]]:
    """(indices, number in each row) of all points within the radius, in blocks of rows."""
    if X.shape[1] <= _TREE_DIMENSION:
        from scipy.spatial import cKDTree

        tree = cKDTree(X)
        counts = tree.query_ball_point(X, radius, workers=-1, return_length=True)
        step = max(1, _SEARCH_BLOCK // int(counts.max()))
        for start in range(0, len(X), step):
            rows = X[start : start + step]
            most = int(counts[start : start + step].max())
            distance, found = tree.query(rows, most, distance_upper_bound=np.nextafter(radius, np.inf), workers=-1)
            kept = (distance <= radius).reshape(len(rows), -1)
            yield found.reshape(len(rows), -1)[kept].astype(np.int32), kept.sum(axis=1)
    else:
        from sklearn.neighbors import NearestNeighbors

        search = NearestNeighbors(radius=radius, algorithm="brute").fit(X)
        step = max(1, _SEARCH_BLOCK // len(X))
        for start in range(0, len(X), step):
            found = search.radius_neighbors(X[start : start + step], return_distance=False)
            # rounding may lose a point's own index when the radius is tiny
            found = [np.append(row[row != i], i) for i, row in enumerate(found, start)]
            yield np.concatenate(found).astype(np.int32), np.array([len(row) for row in found])
