"""Approximate search for the k nearest by faiss: points in lists around centres, of which a query visits the nearest.

How many lists a query visits, ``n_probe``, follows from a sample of queries with their exact neighbours: the nearest
lists that hold the wanted share of them. The recall that is reported is that of other queries.

Threads are those of `_parallel`, each with one OpenMP thread: GNU OpenMP hangs in a child that is forked after it had
several. HNSW, the graph of faiss, is left out: built on several threads it differs from run to run, and on one it is
slower than the lists wherever these are worth while (benchmarks/RESULTS.md, "Search").
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordiff import _parallel, _validation
from ordiff._signals import deferred_interrupts
from ordiff._validation import Array, IntArray

Single = NDArray[np.float32]

# Lists per square root of the number of points, and points per list that k-means sees, in so many rounds.
_LISTS, _TRAINING, _ROUNDS = 2.0, 64, 6
# Queries that choose how many lists are visited, and as many that measure the recall.
_SAMPLE = 400
# faiss has vectors of 16 numbers: what is left over would be added one by one.
_WIDTH = 16
# Multiply-adds a number read: points of a list are not reused as those of a matrix product are.
_READ = 4


@dataclass(frozen=True)
class InvertedLists:
    """Points in lists, and how many of them to visit.

    index: faiss's IndexIVFFlat of the points, (m, n) in single precision, centred and scaled; lists: the list of each
    point, (m,); n_probe: lists that a query visits; recall: of the k nearest, self counted, on a sample.
    """

    faiss: Any
    index: Any
    points: Single
    lists: NDArray[np.int64]
    n_probe: int
    recall: float

    @property
    def share(self) -> float:
        """The share of the lists that a query visits."""
        return self.n_probe / int(self.index.nlist)

    def search(self, samples: IntArray, k: int) -> NDArray[np.int64]:
        """Indices of the k nearest of these samples, (s, k); −1 where the lists that were visited hold fewer."""
        return _search(self.faiss, self.index, self.points[samples], k, self.n_probe)

    def blocks(self, X: Array, k: int, step: int) -> Iterator[tuple[IntArray, NDArray[np.int64]]]:
        """(samples, indices of the k nearest of each), list by list, so that what is visited is in cache."""
        order = np.argsort(self.lists, kind="stable")
        for start in range(0, len(order), step):
            samples = order[start : start + step]
            found = self.search(samples, k)
            short = np.flatnonzero((found < 0).any(axis=1))
            if short.size:
                found[short] = exact_nearest(X, samples[short], k)
            yield samples, found


def has_faiss() -> bool:
    from importlib.util import find_spec

    return find_spec("faiss") is not None


def inverted_lists(X: Array, k: int, recall: float, random_state: int | None) -> InvertedLists:
    """Lists of the points X, (m, n), that are centred, for this recall of the k nearest."""
    try:
        with deferred_interrupts():
            import faiss
    except ImportError:
        raise _validation.missing_extra("faiss", "approximate", 'method="approximate"') from None
    rng, m, points = np.random.default_rng(random_state or 0), len(X), _single(X)
    with _one_thread(faiss):
        index = _trained(faiss, points, max(1, min(int(_LISTS * np.sqrt(m)), m // 39)), rng)
        lists = _search(faiss, index.quantizer, points, 1)[:, 0]
        index.add_core(m, faiss.swig_ptr(points), None, faiss.swig_ptr(lists))

    sample = rng.permutation(m)[: 2 * _SAMPLE]
    exact = exact_nearest(X, sample, k)
    choosing, measuring = sample[::2], sample[1::2]
    near = _search(faiss, index.quantizer, points[choosing], index.nlist)
    n_probe = _lists_to_visit(near, lists[exact[::2]], recall)
    found = _search(faiss, index, points[measuring], k, n_probe)
    return InvertedLists(faiss, index, points, lists, n_probe, _recall(X, measuring, found, exact[1::2]))


def exact_nearest(X: Array, samples: IntArray, k: int) -> NDArray[np.int64]:
    """Indices of the k nearest of these samples by comparison with all, (s, k)."""
    with deferred_interrupts():
        from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(X)
    return np.asarray(search.kneighbors(X[samples], return_distance=False))


def _single(X: Array) -> Single:
    """X in single precision, scaled so that no square overflows, with zeros up to the width of vectors."""
    largest = abs(X).max()
    points = np.zeros((len(X), X.shape[1] + -X.shape[1] % _WIDTH), np.float32)
    np.divide(X, largest if largest > 0 else 1.0, out=points[:, : X.shape[1]], casting="same_kind")
    return points


def _trained(faiss: Any, points: Single, n_lists: int, rng: np.random.Generator) -> Any:
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(points.shape[1]), points.shape[1], n_lists)
    index.cp.niter, index.cp.seed = _ROUNDS, int(rng.integers(2**31))
    index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 1, _TRAINING
    index.train(points)
    return index


def _search(faiss: Any, index: Any, queries: Single, k: int, n_probe: int | None = None) -> NDArray[np.int64]:
    """Indices of the k nearest in a faiss index, (s, k), on threads of `_parallel`."""
    found = np.empty((len(queries), k), np.int64)
    options = {} if n_probe is None else {"params": faiss.SearchParametersIVF(nprobe=n_probe)}

    def search(start: int, stop: int) -> None:
        with _one_thread(faiss):
            found[start:stop] = index.search(queries[start:stop], k, **options)[1]

    visited = index.ntotal if n_probe is None else index.ntotal * n_probe // index.nlist
    work = len(queries) * queries.shape[1] * int(visited) * _READ
    _parallel.over_ranges(_parallel.even_ranges(len(queries), work), search)
    return found


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """OpenMP on one thread for calls from this one: the number that a thread asks for is its own."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _lists_to_visit(near: NDArray[np.int64], lists: NDArray[np.int64], recall: float) -> int:
    """The number of nearest lists that hold this share of the exact neighbours.

    near: all lists of each query, nearest first, (s, n_lists); lists: those of its exact neighbours, (s, k).
    """
    rank = np.empty_like(near)
    np.put_along_axis(rank, near, np.arange(near.shape[1])[None], axis=1)
    needed = np.sort(np.take_along_axis(rank, lists, axis=1), axis=None)
    return int(needed[int(np.ceil(recall * needed.size)) - 1]) + 1


def _recall(X: Array, samples: IntArray, found: NDArray[np.int64], exact: NDArray[np.int64]) -> float:
    """The share of those found that are no farther than the last of the exact ones."""

    def square(neighbours: NDArray[np.int64]) -> Array:
        return ((X[neighbours] - X[samples][:, None]) ** 2).sum(axis=2)

    last = square(exact).max(axis=1, keepdims=True)
    return float(((square(found) <= last * (1 + 1e-12)) & (found >= 0)).mean())
