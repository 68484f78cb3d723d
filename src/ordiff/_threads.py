"""Work on several cores: ranges of rows, and the threads that loops over them run in.

The loops of `_sparse` hold no interpreter lock, so plain threads are enough. They wait for work between calls, and the
caller works too.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import Any

import numba
import numpy as np

from ordiff import _sparse
from ordiff._check import IntArray

Range = tuple[int, int]
Task = Callable[[IntArray], None]

# below these a second thread costs more than it saves: edges of a light loop over rows, edges of an operator that is
# built, and multiplications of a denser loop
_EDGES_PER_THREAD, _BUILT_PER_THREAD, _WORK_PER_THREAD = 400_000, 100_000, 100_000
# edges in flight per thread while an operator is built: 1 MiB, so that a block stays in cache
_BLOCK = 131_072


def n_threads(n_edges: int, per_thread: int) -> int:
    return max(1, min(int(numba.config.NUMBA_NUM_THREADS), n_edges // per_thread))


def cuts(indptr: IntArray, parts: int) -> list[int]:
    """Row numbers that cut the rows into ``parts`` ranges of about equal numbers of edges."""
    targets = np.linspace(0, indptr[-1], parts + 1)[1:-1]
    return [0, *np.searchsorted(indptr, targets).tolist(), len(indptr) - 1]


def over_rows(loop: Callable[..., Any], indptr: IntArray, *args: Any) -> list[Any]:
    """loop(start, stop, indptr, *args) over all rows, a range of rows per thread."""
    return over(edge_ranges(indptr), loop, indptr, *args)


def over_blocks(work: Callable[[int, int], Any], indptr: IntArray, *, threaded: bool) -> list[Any]:
    """work(start, stop) over blocks of rows that fit in cache, on all cores when ``threaded``."""
    blocks = list(pairwise(cuts(indptr, max(1, int(indptr[-1]) // _BLOCK))))
    workers = n_threads(int(indptr[-1]), _BUILT_PER_THREAD) if threaded else 1
    return in_threads(lambda block: work(*block), blocks, workers)


def edge_ranges(indptr: IntArray, work_per_edge: int = 0) -> list[Range]:
    """Ranges of rows of about equal numbers of edges, one per thread; for loops that do much per edge, say how much."""
    edges = int(indptr[-1])
    parts = n_threads(edges * work_per_edge, _WORK_PER_THREAD) if work_per_edge else n_threads(edges, _EDGES_PER_THREAD)
    return list(pairwise(cuts(indptr, parts)))


def even_ranges(n: int, work: int) -> list[Range]:
    """Ranges of 0 .. n − 1 of equal length, one per thread, for this much work in all."""
    parts = max(1, min(n_threads(work, _WORK_PER_THREAD), n))
    return list(pairwise(np.linspace(0, n, parts + 1).astype(int).tolist()))


def over(ranges: list[Range], loop: Callable[..., Any], *args: Any) -> list[Any]:
    """loop(start, stop, *args) for every range, a thread each."""
    if len(ranges) == 1:
        return [loop(*ranges[0], *args)]
    return in_threads(lambda rows: loop(*rows, *args), ranges)


def in_threads(work: Callable[[Any], Any], items: Sequence[Any], workers: int | None = None) -> list[Any]:
    """work(item) for each, in order of the items, on all cores (or this many).

    The caller takes items too, and does not wait for threads that come too late for one: waking a thread takes as
    long as a step of a small operator.
    """
    workers = min(len(items), int(numba.config.NUMBA_NUM_THREADS) if workers is None else workers)
    if workers <= 1 or threading.current_thread().name == _THREAD_NAME:
        return [work(item) for item in items]
    results: list[Any] = [None] * len(items)
    left = iter(range(len(items)))  # shared: the interpreter gives each number out once
    finished: SimpleQueue[BaseException | None] = SimpleQueue()

    def drain(own: IntArray) -> None:
        for at in left:
            try:
                results[at] = work(items[at])
            except BaseException as error:
                finished.put(error)
            else:
                finished.put(None)

    _helpers.call(drain, workers - 1)
    own = 0
    for at in left:
        results[at] = work(items[at])
        own += 1
    for _ in range(len(items) - own):
        if error := finished.get():
            raise error
    return results


def together(loop: Callable[..., bool], workers: int, *args: Any) -> None:
    """loop(counters, own, helpers, count, *args) in so many threads, which share its work, until all is done.

    For loops whose threads must wait for each other often: they do so by the counters, without coming back to Python.
    A loop begins with `_sparse.wake`, so that the caller wakes so many helpers when it is in compiled code: one that
    came earlier would find the interpreter lock taken, and sleep again. One that has waited or worked for long returns
    False, so that others get the core and an interrupt is seen. Threads that come too late find nothing left to do, and
    the caller does not wait for them: outside a run of theirs they must not touch its arrays.
    """
    counters = np.zeros(16, np.int64)
    job, errors = [args], list[BaseException]()

    def join(own: IntArray, helpers: IntArray, count: int) -> None:
        try:
            while (now := job[:]) and not loop(counters, own, helpers, count, *now[0]):
                time.sleep(0)
                count = 0
        except BaseException as error:
            errors.append(error)
        finally:
            job.clear()  # all is done; or one is gone, who may hold work that the others would wait for

    count = 0 if threading.current_thread().name == _THREAD_NAME else workers - 1
    try:
        if count:
            _helpers.expect(lambda own: join(own, _NOBODY, 0), count)
        join(np.zeros(_OWN, np.int64), _helpers.bells, count)
    finally:
        job.clear()
    if errors:
        raise errors[0]


_THREAD_NAME = "ordiff-loop"
# numbers that a helper has of its own, as many as a cache line holds; and the most helpers
_OWN, _MOST = 8, 1_024
_NOBODY = np.zeros((0, _OWN), np.int64)


class _Helpers:
    """Threads that wait for work: starting them anew would cost as much as a step of an operator.

    A helper sleeps at a lock of its own until its bell is rung, then looks for tasks. It sleeps in compiled code, where
    the interpreter lock does not hold it up.
    """

    def __init__(self) -> None:
        self._room = np.zeros((_MOST, _OWN), np.int64)
        self.bells = self._room[:0]  # a row for each helper: see `_sparse`
        self._starting = threading.Lock()
        self._tasks: SimpleQueue[Task] = SimpleQueue()

    def call(self, task: Task, times: int) -> None:
        """Have so many threads run the task, soon."""
        self.expect(task, times)
        _sparse.wake(self.bells, times)

    def expect(self, task: Task, times: int) -> None:
        """Have so many threads run the task when they are woken."""
        if len(self.bells) < min(times, _MOST):
            self._start(min(times, _MOST))
        for _ in range(times):
            self._tasks.put(task)

    def _start(self, count: int) -> None:
        with self._starting:
            while len(self.bells) < count:
                own = self._room[len(self.bells)]
                own[_sparse.LOCK] = _held_lock()
                threading.Thread(target=self._work, args=(own,), name=_THREAD_NAME, daemon=True).start()
                self.bells = self._room[: len(self.bells) + 1]

    def _work(self, own: IntArray) -> None:
        while True:
            own[_sparse.BELL] = _sparse.HEARD
            try:
                task = self._tasks.get_nowait()
            except Empty:
                _sparse.sleep(own)
            else:
                own[_sparse.HOLD] = 0
                task(own)
                del task  # and the arrays that it keeps


_new_lock = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", ctypes.pythonapi))
_acquire_lock = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(
    ("PyThread_acquire_lock", ctypes.pythonapi)
)


def _held_lock() -> int:
    """The address of a new lock of the interpreter, held, so that who acquires it waits until it is released."""
    lock: int | None = _new_lock()
    if lock is None:
        raise MemoryError("no lock could be made for another thread.")
    _acquire_lock(lock, 1)
    return lock


_helpers = _Helpers()
# threads do not survive a fork: a child starts its own
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.__init__)  # type: ignore[misc]
