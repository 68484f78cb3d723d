"""Work on several cores: ranges of rows, and the threads that loops over them run in.

The loops of `_sparse` hold no interpreter lock, so plain threads are enough. They wait for work between calls, and the
caller works too.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from ordiff import _sparse
from ordiff._check import IntArray

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801
        """That of functools as it is from Python 3.12 on, without a lock.

        Before, all objects of a class share one: a process forked while another thread has it would wait for ever.
        """

        def __init__(self, make):
            self.make, self.__doc__ = make, make.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.name, self.make(instance))


Range = tuple[int, int]

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
    if workers <= 1 or _helpers.is_one():
        return [work(item) for item in items]
    results: list[Any] = [None] * len(items)
    left = iter(range(len(items)))  # shared: the interpreter gives each number out once
    finished: SimpleQueue[BaseException | None] = SimpleQueue()

    def drain() -> None:
        for at in left:
            try:
                results[at] = work(items[at])
            except BaseException as error:
                finished.put(error)
            else:
                finished.put(None)

    with _helpers.called(drain, workers - 1):
        own = 0
        for at in left:
            results[at] = work(items[at])
            own += 1
        for _ in range(len(items) - own):
            if error := finished.get():
                raise error
    return results


def together(loop: Callable[..., bool], workers: int, *args: Any) -> None:
    """loop(helpers, count, counters, *args), which is compiled, until all is done.

    For loops that call so many helpers themselves, and with them wait for each other by the counters, without coming
    back to Python. Now and then a loop comes back, False, so that an interrupt is seen: nobody is at work then.
    """
    counters = np.zeros(_sparse.COUNTERS, np.int64)
    counters[_sparse.NAP] = _helpers.nap
    bells = _helpers.bells(workers - 1)
    while not loop(bells, workers - 1, counters, *args):
        pass


# numbers that a helper has of its own, as many as a cache line holds; and the most helpers
_OWN, _MOST = 8, 1_024


class _Helpers:
    """Threads that wait for work: starting them anew would cost as much as a step of an operator.

    They wait in compiled code, where they do the jobs of compiled loops and the interpreter lock does not hold them up.
    """

    def __init__(self) -> None:
        self.nap = _held_lock()
        self._room = np.zeros((_MOST, _OWN), np.int64)
        self._bells = self._room[:0]  # a row for each helper: see `_sparse`
        self._starting = threading.Lock()
        self._own = threading.local()
        self._tasks: deque[Callable[[], None]] = deque()

    def is_one(self) -> bool:
        """Whether this thread is a helper, who calls no others."""
        return hasattr(self._own, "helps")

    def bells(self, count: int) -> IntArray:
        """Those of so many helpers or more, for `_sparse.call`; of none for one who is a helper."""
        if count <= 0 or self.is_one():
            return self._room[:0]
        if len(self._bells) < min(count, _MOST):
            self._start(min(count, _MOST))
        return self._bells

    @contextmanager
    def called(self, task: Callable[[], None], count: int) -> Iterator[None]:
        """Meanwhile so many helpers, when they have nothing else to do, run the task."""
        try:
            self._tasks.extend([task] * count)
            _sparse.call(self.bells(count), count, _sparse.TASK)
            yield
        finally:
            with suppress(ValueError):  # those who come now have come too late
                while True:
                    self._tasks.remove(task)

    def _start(self, count: int) -> None:
        with self._starting:
            while len(self._bells) < count:
                own = self._room[len(self._bells)]
                own[_sparse.LOCK] = _held_lock()
                threading.Thread(target=self._work, args=(own,), name="ordiff-loop", daemon=True).start()
                self._bells = self._room[: len(self._bells) + 1]

    def _work(self, own: IntArray) -> None:
        self._own.helps = True
        while True:
            _sparse.serve(own)
            while task := self._next():
                task()

    def _next(self) -> Callable[[], None] | None:
        try:
            return self._tasks.popleft()
        except IndexError:
            return None


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
