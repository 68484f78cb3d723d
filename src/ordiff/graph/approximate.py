"""Approximate search for the k nearest by faiss, of two kinds.

    InvertedLists    points in lists around centres, of which a query visits the nearest ``n_probe``
    LayeredGraph     HNSW: a query walks along a graph, with the nearest ``breadth`` points so far as candidates

How much a query visits follows from a sample of queries with their exact neighbours, so that it finds the wanted share
of them. The recall that is reported is that of other queries. Lists are the faster while a query visits few points of
them; in many coordinates without clusters it visits half of all, and the graph, whose queries hardly depend on the
number of points, is faster from some 10⁵ points on (benchmarks/RESULTS.md, "Search").

Threads are those of `_parallel`, each with one OpenMP thread: GNU OpenMP hangs in a child that is forked after it had
several. The graph is built on one: on several it would differ from run to run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
# Links of a point in the graph, and candidates while it is built; more links make queries slower than they save.
_LINKS, _BUILD_BREADTH = 32, 80
# Candidates of a query, as multiples of k: the first and the last that are tried, and the step between two.
_LEAST_BREADTH, _MOST_BREADTH, _WIDER = 1.5, 40.0, 1.3


class ApproximateSearch(ABC):
    """An index of points, (m, n) in single precision, centred and scaled; recall: of the k nearest, self counted, on a
    sample."""

    points: Single
    recall: float

    @abstractmethod
    def search(self, samples: IntArray, k: int) -> NDArray[np.int64]:
        """Indices of the k nearest of these samples, (s, k); −1 where what was visited holds fewer."""

    def blocks(self, X: Array, k: int, step: int, order: IntArray) -> Iterator[tuple[IntArray, NDArray[np.int64]]]:
        """(samples, indices of the k nearest of each) in this order: near ones together, for the sake of the cache."""
        for start in range(0, len(order), step):
            samples = order[start : start + step]
            found = self.search(samples, k)
            short = np.flatnonzero((found < 0).any(axis=1))
            if short.size:
                found[short] = exact_nearest(X, samples[short], k)
            yield samples, found


@dataclass(frozen=True)
class InvertedLists(ApproximateSearch):
    """Points in lists, and how many of them to visit.

    index: faiss's IndexIVFFlat; lists: the list of each point, (m,); n_probe: lists that a query visits.
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

    @property
    def order(self) -> NDArray[np.intp]:
        """The points list by list, (m,)."""
        return np.argsort(self.lists, kind="stable")

    def search(self, samples: IntArray, k: int) -> NDArray[np.int64]:
        return _search(self.faiss, self.index, self.points[samples], k, self.n_probe)


@dataclass(frozen=True)
class LayeredGraph(ApproximateSearch):
    """index: faiss's IndexHNSWFlat; breadth: candidates of a query."""

    faiss: Any
    index: Any
    points: Single
    breadth: int
    recall: float

    def search(self, samples: IntArray, k: int) -> NDArray[np.int64]:
        return _search_graph(self.faiss, self.index, self.points[samples], k, self.breadth)


def has_faiss() -> bool:
    from importlib.util import find_spec

    return find_spec("faiss") is not None


def inverted_lists(X: Array, k: int, recall: float, random_state: int | None) -> InvertedLists:
    """Lists of the points X, (m, n), that are centred, for this recall of the k nearest."""
    faiss, rng, m, points = _faiss(), np.random.default_rng(random_state or 0), len(X), _single(X)
    with _one_thread(faiss):
        index = _trained(faiss, points, max(1, min(int(_LISTS * np.sqrt(m)), m // 39)), rng)
        lists = _search(faiss, index.quantizer, points, 1)[:, 0]
        index.add_core(m, faiss.swig_ptr(points), None, faiss.swig_ptr(lists))

    choosing, measuring, exact = _sampled_queries(X, k, rng)
    near = _search(faiss, index.quantizer, points[choosing], index.nlist)
    n_probe = _lists_to_visit(near, lists[exact[::2]], recall)
    found = _search(faiss, index, points[measuring], k, n_probe)
    return InvertedLists(faiss, index, points, lists, n_probe, _recall(X, measuring, found, exact[1::2]))


def layered_graph(X: Array, k: int, recall: float, random_state: int | None) -> LayeredGraph:
    """The graph of the points X, (m, n), that are centred, for this recall of the k nearest."""
    faiss, rng, points = _faiss(), np.random.default_rng(random_state or 0), _single(X)
    with _one_thread(faiss):
        index = faiss.IndexHNSWFlat(points.shape[1], _LINKS)
        index.hnsw.efConstruction = _BUILD_BREADTH
        index.hnsw.rng = faiss.RandomGenerator(int(rng.integers(2**31)))
        index.add(points)

    choosing, measuring, exact = _sampled_queries(X, k, rng)
    breadth = int(_LEAST_BREADTH * k)
    while True:
        found = _search_graph(faiss, index, points[choosing], k, breadth)
        if breadth >= _MOST_BREADTH * k or _recall(X, choosing, found, exact[::2]) >= recall:
            break
        breadth = int(np.ceil(_WIDER * breadth))
    found = _search_graph(faiss, index, points[measuring], k, breadth)
    return LayeredGraph(faiss, index, points, breadth, _recall(X, measuring, found, exact[1::2]))


def _faiss() -> Any:
    try:
        with deferred_interrupts():
            import faiss
    except ImportError:
        raise _validation.missing_extra("faiss", "approximate", 'method="approximate"') from None
    return faiss


def _sampled_queries(
    X: Array, k: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64]]:
    """Samples to choose by and others to measure with, and the k nearest of all: those of the first at even rows."""
    sample = rng.permutation(len(X))[: 2 * _SAMPLE]
    return sample[::2], sample[1::2], exact_nearest(X, sample, k)


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
    options = {} if n_probe is None else {"params": faiss.SearchParametersIVF(nprobe=n_probe)}
    visited = index.ntotal if n_probe is None else index.ntotal * n_probe // index.nlist
    return _on_threads(faiss, index, queries, k, int(visited), options)


def _search_graph(faiss: Any, index: Any, queries: Single, k: int, breadth: int) -> NDArray[np.int64]:
    options = {"params": faiss.SearchParametersHNSW(efSearch=breadth)}
    return _on_threads(faiss, index, queries, k, breadth * _LINKS, options)


def _on_threads(
    faiss: Any, index: Any, queries: Single, k: int, visited: int, options: dict[str, Any]
) -> NDArray[np.int64]:
    found = np.empty((len(queries), k), np.int64)

    def search(start: int, stop: int) -> None:
        with _one_thread(faiss):
            found[start:stop] = index.search(queries[start:stop], k, **options)[1]

    work = len(queries) * queries.shape[1] * visited * _READ
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
