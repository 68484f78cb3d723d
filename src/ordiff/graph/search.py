"""Neighbour search: the k nearest or all within a radius, exact or approximate, a block of rows at a time.

Each search yields indices only; `graph` computes the distances, so that they are exact whatever found the neighbours.
A tree is asked for the samples along a curve, which takes half the time of a random order: what it visits is in cache.
All queries of k-d trees go through `query_tree` and `count_within`, on threads of `_parallel`: those of SciPy
(``workers``) go on reading freed memory after an interrupt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordiff import _parallel
from ordiff._signals import deferred_interrupts
from ordiff._validation import Array, IntArray
from ordiff.graph import approximate

# Up to this many coordinates a k-d tree beats comparing all pairs.
_TREE_DIMENSION = 15
# From more points in more coordinates than these, an approximate search beats a tree. It beats comparing all pairs if
# it takes no longer than comparing this share of them in lists (benchmarks/RESULTS.md, "Search").
_APPROXIMATE_DIMENSION, _APPROXIMATE_SIZE, _MOST_COMPARED = 6, 20_000, 0.4
# Neighbours (or pairs compared) at a time: bounds the memory of the search beside the graph itself.
_BLOCK = 2_000_000


# Multiply-adds that a visit of a tree takes, about.
_VISIT = 50


def query_tree(tree: Any, X: Array, k: Any, bound: float = np.inf) -> tuple[Array, NDArray[np.intp]]:
    """Distances and indices of the k nearest points of a SciPy cKDTree, as its ``query`` has them; k: a number, or a
    list of ranks."""
    width = len(k) if isinstance(k, list) else k
    shape = (len(X), width) if isinstance(k, list) or k > 1 else (len(X),)
    distances, indices = np.empty(shape), np.empty(shape, np.intp)

    def query(start: int, stop: int) -> None:
        found = tree.query(X[start:stop], k, distance_upper_bound=bound)
        distances[start:stop], indices[start:stop] = found

    _parallel.over_ranges(_parallel.even_ranges(len(X), len(X) * width * _VISIT), query)
    return distances, indices


def count_within(tree: Any, X: Array, radius: Any) -> NDArray[np.intp]:
    """How many points of a SciPy cKDTree are within the radius, a number or (m,), of each of X, (m,)."""
    radius = np.broadcast_to(radius, len(X))

    def count(rows: tuple[int, int]) -> NDArray[np.intp]:
        some = slice(*rows)
        return np.asarray(tree.query_ball_point(X[some], radius[some], return_length=True))

    return np.concatenate(_parallel.parallel_map(count, _parallel.even_ranges(len(X), len(X) * 20 * _VISIT)))


# Searches by |x|² − 2xy + |y|² or in single precision want coordinates without an offset.
def _centred(X: Array) -> Array:
    return X - X.mean(axis=0)


def along_curve(X: Array) -> NDArray[np.uint32]:
    """The samples along a Morton curve of their leading three principal coordinates, 20 bits each, (m,)."""
    Y = X - X.mean(axis=0)
    if Y.shape[1] > 3:
        Y = Y @ np.linalg.eigh(Y.T @ Y)[1][:, -3:]
    low, span = Y.min(axis=0), np.ptp(Y, axis=0).max()
    code = np.zeros(len(X), np.uint64)
    for axis in range(Y.shape[1]):
        cell = ((Y[:, axis] - low[axis]) * ((2**20 - 1) / span if span > 0 else 0.0)).astype(np.uint64)
        # two zeros between any two bits
        for shift, mask in _SPREAD:
            cell = (cell | (cell << np.uint64(shift))) & np.uint64(mask)
        code |= cell << np.uint64(axis)
    return np.argsort(code, kind="stable").astype(np.uint32)


_SPREAD = (
    (32, 0x001F00000000FFFF), (16, 0x001F0000FF0000FF), (8, 0x100F00F00F00F00F), (4, 0x10C30C30C30C30C3),
    (2, 0x1249249249249249),
)  # fmt: skip


def nearest(
    X: Array, k: int, method: str, random_state: int | None, order: IntArray, recall: float
) -> tuple[Iterator[tuple[IntArray, IntArray]], float]:
    """(samples, indices of the k nearest of each, self counted) in blocks, and the recall: 1, or that of a sample.

    Coincident points may crowd a sample's self out. order: all samples, so that near ones follow each other; recall:
    what an approximate search aims at.
    """
    m, n = X.shape
    big = n > _APPROXIMATE_DIMENSION and m > _APPROXIMATE_SIZE
    if method == "approximate" or (method == "auto" and big and approximate.has_faiss()):
        most = _MOST_COMPARED * m if method == "auto" and n > _TREE_DIMENSION else np.inf
        found = approximate.nearest(_centred(X), k, recall, random_state, max(1, _BLOCK // k), most)
        if found is not None:
            return found
    return (_tree(X, k, order) if n <= _TREE_DIMENSION else _all_pairs(_centred(X), k)), 1.0


def nearest_among(X: Array, queries: Array, k: int) -> tuple[IntArray, Array]:
    """The k nearest of X to other points: indices and distances, (q, k) each; exact."""
    if X.shape[1] <= _TREE_DIMENSION:
        from scipy.spatial import cKDTree

        order = along_curve(queries)
        found, distances = np.empty((len(queries), k), np.intp), np.empty((len(queries), k))
        distances[order], found[order] = query_tree(cKDTree(X), queries[order], [*range(1, k + 1)])
        return found, distances
    with deferred_interrupts():
        from sklearn.neighbors import NearestNeighbors

    centre = X.mean(axis=0)
    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(X - centre)
    found = search.kneighbors(queries - centre, return_distance=False)
    distances, step = np.empty(found.shape), max(1, _BLOCK // (k * X.shape[1]))
    for start in range(0, len(queries), step):  # those of the search are off by rounding of |x|² − 2xy + |y|²
        rows = slice(start, start + step)
        distances[rows] = np.sqrt(((X[found[rows]] - queries[rows, None]) ** 2).sum(axis=2))
    return found, distances


def within(X: Array, radius: Array, order: IntArray) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """(samples, indices, number of each sample) of all points within the radius (m,) of each, and perhaps a few at the
    rim, where rounding decides; self included; in blocks of samples. order: as for `nearest`."""
    radius = radius * (1 + 1e-9)
    return _tree_within(X, radius, order) if X.shape[1] <= _TREE_DIMENSION else _all_pairs_within(_centred(X), radius)


def _tree(X: Array, k: int, order: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    from scipy.spatial import cKDTree

    tree = cKDTree(X)
    step = max(1, _BLOCK // k)
    for start in range(0, len(X), step):
        samples = order[start : start + step]
        yield samples, query_tree(tree, X[samples], k)[1]


def _all_pairs(X: Array, k: int) -> Iterator[tuple[IntArray, IntArray]]:
    step = max(1, _BLOCK // k)
    for start in range(0, len(X), step):
        samples = np.arange(start, min(start + step, len(X)))
        yield samples, approximate.exact_nearest(X, samples, k)


def _tree_within(X: Array, radius: Array, order: IntArray) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    from scipy.spatial import cKDTree

    tree = cKDTree(X)
    counts = count_within(tree, X[order], radius[order])
    start = 0
    while start < len(X):
        # as many rows as fit, each as wide as the widest
        widest = np.maximum.accumulate(counts[start:])
        step = max(1, int(np.searchsorted(widest * np.arange(1, widest.size + 1), _BLOCK, side="right")))
        samples, most = order[start : start + step], int(counts[start : start + step].max())
        # the bound is strict and its square must not underflow, or a sample would not find even itself
        reach = max(np.nextafter(radius[samples].max(), np.inf), 1e-150)
        distance, found = query_tree(tree, X[samples], [*range(1, most + 1)], reach)
        kept = distance <= radius[samples, None]
        yield samples, found[kept].astype(np.int32), kept.sum(axis=1)
        start += step


def _all_pairs_within(X: Array, radius: Array) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    with deferred_interrupts():
        from sklearn.metrics.pairwise import euclidean_distances

    step = max(1, _BLOCK // len(X))
    squares = (X**2).sum(axis=1)
    for start in range(0, len(X), step):
        rows = np.arange(start, min(start + step, len(X)))
        square = euclidean_distances(X[rows], X, squared=True, X_norm_squared=squares[rows], Y_norm_squared=squares)
        kept = square <= radius[rows, None] ** 2 + 1e-12 * squares.max()
        kept[rows - start, rows] = True  # which rounding may lose when the radius is tiny
        yield rows, np.nonzero(kept)[1].astype(np.int32), kept.sum(axis=1)
