"""Approximate search for the k nearest, in one of two ways.

    by lists        points are in lists around centres, by k-means of faiss; those of a list are compared to all points
                    of the nearest lists, by one matrix product
    by neighbours   faiss finds first neighbours by codes of 4 bits a coordinate, its fast scan; passes improve them:
                    the neighbours of a point's neighbours, and those that have these among theirs, are candidates

A sample of points with their exact neighbours says how many lists hold the wanted share of them. Where there are
clusters or branches these are few; where they are many, as in 30 coordinates of equal width, it goes by neighbours. The
recall that is reported is that of other points.

Threads are those of `_parallel`, each with one OpenMP thread: GNU OpenMP hangs in a child that is forked after it had
several.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordiff import _parallel, _validation
from ordiff._compiled import graph as loops
from ordiff._signals import deferred_interrupts
from ordiff._validation import Array, IntArray

Single = NDArray[np.float32]
Block = tuple[IntArray, IntArray]
Neighbors = tuple[NDArray[np.uint32], Single]

# Lists per square root of the number of points, and points per list that k-means sees, in so many rounds.
_LISTS, _TRAINING, _ROUNDS = 2.0, 64, 6
# Points that choose how much is visited, and as many that measure the recall.
_SAMPLE = 400
# Processors have vectors of 16 numbers: what is left over would be added one by one.
_WIDTH = 16
# Numbers of a product of points of a list with others: it stays in cache.
_PRODUCT = 1_000_000
# Points of lists whose comparison takes as long as a search by neighbours (benchmarks/RESULTS.md, "Search").
_MOST_VISITS = 20_000
# Codes that the first neighbours are chosen from, which takes as long as a pass; lists of codes per square root of the
# number of points, longer than those above since codes are fast to read; first neighbours, as multiples of k.
_CODES, _CODE_LISTS, _FIRST = 20_000, 0.5, 2
# The most passes. The first, which finds most, follows neighbours only; the others also go back, at twice the time.
_PASSES = 4


def has_faiss() -> bool:
    from importlib.util import find_spec

    return find_spec("faiss") is not None


@dataclass(frozen=True)
class Lists:
    """Points in lists.

    points: list by list, (m, n) in single precision, centred and scaled; order: their samples, (m,); first: where each
    list begins, and m; centres: (n_lists, n); near: all lists from the nearest of each on, (n_lists, n_lists).
    """

    points: Single
    order: NDArray[np.intp]
    first: NDArray[np.intp]
    centres: Single
    near: NDArray[np.intp]

    def of(self, samples: IntArray) -> NDArray[np.intp]:
        """The list of each sample, of the shape of samples."""
        return np.searchsorted(self.first, self.place[samples], side="right") - 1

    @property
    def place(self) -> NDArray[np.intp]:
        """Where each sample is among the points, (m,)."""
        place = np.empty_like(self.order)
        place[self.order] = np.arange(len(place))
        return place

    def visits(self, n_probe: int) -> float:
        """The points of so many lists, about."""
        return len(self.points) * n_probe / len(self.near)

    def search(self, start: int, stop: int, k: int, n_probe: int) -> NDArray[np.intp]:
        """The k nearest of the points of the lists start … stop − 1, as places, among the nearest ``n_probe`` lists of
        each, (s, k)."""

        def search(begin: int, end: int) -> list[NDArray[np.intp]]:
            return [self._nearest(start + number, k, n_probe) for number in range(begin, end)]

        work = (self.first[stop] - self.first[start]) * self.points.shape[1] * self.visits(n_probe)
        with _parallel.one_blas_thread():
            found = _parallel.over_ranges(_parallel.even_ranges(stop - start, int(work)), search)
        return np.concatenate([rows for part in found for rows in part])

    def _nearest(self, number: int, k: int, n_probe: int) -> NDArray[np.intp]:
        near = self.near[number]
        held = np.cumsum(np.diff(self.first)[near])
        probed = near[: max(n_probe, int(np.searchsorted(held, k)) + 1)]
        places = np.concatenate([np.arange(*self.first[other : other + 2]) for other in probed])
        points = self.points[places] - self.centres[number]
        halves = 0.5 * (points**2).sum(axis=1)
        own = self.points[slice(*self.first[number : number + 2])] - self.centres[number]
        found, step = np.empty((len(own), k), np.intp), max(1, _PRODUCT // len(places))
        for row in range(0, len(own), step):
            farness = halves - own[row : row + step] @ points.T
            found[row : row + step] = places[np.argpartition(farness, k - 1, axis=1)[:, :k]]
        return found

    def blocks(self, k: int, n_probe: int, step: int) -> Iterator[tuple[slice, NDArray[np.intp]]]:
        """(which places, the places of the k nearest of each) of all, a few lists at a time."""
        start = 0
        while start < len(self.near):
            stop = int(np.searchsorted(self.first, self.first[start] + step, side="right")) - 1
            stop = min(max(stop, start + 1), len(self.near))
            yield slice(self.first[start], self.first[stop]), self.search(start, stop, k, n_probe)
            start = stop


def nearest(
    X: Array, k: int, recall: float, random_state: int | None, step: int, most: float = np.inf
) -> tuple[Iterator[Block], float] | None:
    """(samples, the k nearest of each, self counted) of the centred points X, (m, n), about ``step`` at a time, and the
    recall on a sample; None if that takes as long as a comparison with more than ``most`` points of lists.

    By neighbours where lists would hold many, and by lists all the same where no pass reaches the recall.
    """
    rng = np.random.default_rng(random_state or 0)
    lists = make_lists(_single(X), rng)
    sample = rng.permutation(len(X))[: 2 * _SAMPLE]
    exact = exact_nearest(X, sample, k)
    needed = _lists_needed(lists, sample, exact)
    n_probe = _share(needed[::2], recall)
    if min(lists.visits(n_probe), _MOST_VISITS) > most:
        return None
    if lists.visits(n_probe) > _MOST_VISITS:
        place = lists.place[sample]
        near, far = first_neighbors(lists.points, k, step, rng)
        for number in range(_PASSES):
            near, far = improved(lists.points, near, far, k if number else 0)
            found = lists.order[near[place]]
            if _recall(X, sample[::2], found[::2], exact[::2]) >= recall:
                return _in_samples(X, lists.order, near, far, step), _recall(X, sample[1::2], found[1::2], exact[1::2])
    blocks = ((lists.order[some], lists.order[found]) for some, found in lists.blocks(k, n_probe, step))
    return blocks, float((needed[1::2] <= n_probe).mean())


def make_lists(points: Single, rng: np.random.Generator) -> Lists:
    """Lists of these points, (m, n)."""
    faiss = _faiss()
    m, n = points.shape
    n_lists = max(1, min(int(_LISTS * np.sqrt(m)), m // 39))
    with _one_thread(faiss):
        means = faiss.Kmeans(n, n_lists, niter=_ROUNDS, seed=int(rng.integers(2**31)),
                             min_points_per_centroid=1, max_points_per_centroid=_TRAINING)  # fmt: skip
        means.train(points)
        centres = np.asarray(means.centroids)

    assigned = np.empty(m, np.intp)

    def assign(start: int, stop: int) -> None:
        with _one_thread(faiss):
            assigned[start:stop] = means.index.search(points[start:stop], 1)[1][:, 0]

    _parallel.over_ranges(_parallel.even_ranges(m, m * n * n_lists), assign)
    order = np.argsort(assigned, kind="stable")
    first = np.searchsorted(assigned[order], np.arange(n_lists + 1))
    with _parallel.one_blas_thread():
        double = centres.astype(np.float64)
        between = 0.5 * (double**2).sum(axis=1) - double @ double.T
    np.fill_diagonal(between, -np.inf)
    return Lists(points[order], order, first, centres, np.argsort(between, axis=1, kind="stable"))


def first_neighbors(points: Single, k: int, step: int, rng: np.random.Generator) -> Neighbors:
    """About the k nearest of each point, nearest first, and their squared distances, (m, k) each: the point itself and
    infinity where there are fewer."""
    faiss = _faiss()
    m, n = points.shape
    index = _codes(faiss, points, rng)
    index.nprobe = max(1, index.nlist * _CODES // m)
    near, far = np.empty((m, k), np.uint32), np.empty((m, k), np.float32)

    def search(start: int, stop: int) -> None:
        with _one_thread(faiss):
            found = index.search(points[start:stop], _FIRST * k)[1]
        loops.nearest_candidates(start, stop, points, found, near, far)

    for begin in range(0, m, step):
        rows = min(step, m - begin)
        ranges = _parallel.even_ranges(rows, rows * n * _CODES)
        _parallel.over_ranges([(begin + start, begin + stop) for start, stop in ranges], search)
    return near, far


def _codes(faiss: Any, points: Single, rng: np.random.Generator) -> Any:
    """faiss's index of the points with one quantiser of 16 values a coordinate."""
    m, n = points.shape
    n_lists = max(1, int(_CODE_LISTS * np.sqrt(m)))
    with _one_thread(faiss):
        index = faiss.IndexIVFPQFastScan(faiss.IndexFlatL2(n), n, n_lists, n, 4)
        index.by_residual = False
        for means in (index.cp, index.pq.cp):
            means.niter, means.seed = _ROUNDS, int(rng.integers(2**31))
            means.min_points_per_centroid, means.max_points_per_centroid = 1, _TRAINING
        index.train(points[rng.permutation(m)[: _TRAINING * max(n_lists, 16)]])
        index.add(points)
    return index


def improved(points: Single, near: NDArray[np.uint32], far: Single, n_back: int) -> Neighbors:
    """A pass. Each point takes those that have it among theirs, where they are nearer than its own; then the nearest
    among the neighbours of its neighbours, and of up to ``n_back`` others that have these among theirs."""
    m = len(points)
    closer, reach = near.copy(), far.copy()
    _over_points(loops.link_back, near, far, closer, closer, reach)
    near, far = closer.copy(), reach.copy()
    back = np.empty((m, n_back), np.uint32)
    back[:] = np.arange(m, dtype=np.uint32)[:, None]
    if n_back:
        _over_points(loops.link_back, near, far, near, back, np.full(back.shape, np.inf, np.float32))
    _over_points(loops.neighbors_of_neighbors, points, near, back, closer, reach)
    return closer, reach


def _over_points(loop: Any, *args: Any) -> None:
    m, k = args[-1].shape
    _parallel.over_ranges(_parallel.even_ranges(m, m * k * k), loop, *args)


def _in_samples(X: Array, order: IntArray, near: NDArray[np.uint32], far: Single, step: int) -> Iterator[Block]:
    for start in range(0, len(near), step):
        samples, found = order[start : start + step], order[near[start : start + step]]
        short = np.flatnonzero(np.isinf(far[start : start + step, -1]))
        if short.size:
            found[short] = exact_nearest(X, samples[short], near.shape[1])
        yield samples, found


def _faiss() -> Any:
    try:
        with deferred_interrupts():
            import faiss
    except ImportError:
        raise _validation.missing_extra("faiss", "approximate", 'method="approximate"') from None
    return faiss


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


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """OpenMP on one thread for calls from this one: the number that a thread asks for is its own."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _lists_needed(lists: Lists, sample: IntArray, exact: NDArray[np.int64]) -> NDArray[np.intp]:
    """How many lists a sample must visit for each of its exact neighbours, (s, k)."""
    near = lists.near[lists.of(sample)]
    rank = np.empty_like(near)
    np.put_along_axis(rank, near, np.arange(near.shape[1])[None], axis=1)
    return np.take_along_axis(rank, lists.of(exact), axis=1) + 1


def _share(values: NDArray[np.intp], share: float) -> int:
    """The least that this share of the values does not exceed."""
    values = np.sort(values, axis=None)
    return int(values[int(np.ceil(share * values.size)) - 1])


def _recall(X: Array, samples: IntArray, found: NDArray[np.intp], exact: NDArray[np.int64]) -> float:
    """The share of those found that are no farther than the last of the exact ones."""

    def square(neighbours: IntArray) -> Array:
        return ((X[neighbours] - X[samples][:, None]) ** 2).sum(axis=2)

    last = square(exact).max(axis=1, keepdims=True)
    return float((square(found) <= last * (1 + 1e-12)).mean())
