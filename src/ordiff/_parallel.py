"""Work on several cores: ranges of rows, a stock thread pool, and one BLAS thread around fits.

The loops of `_compiled` release the interpreter lock, so threads of `concurrent.futures` are enough. Work is cut into
pieces by its size alone, never by the number of threads, so that results have the same bits on any number of them.
Threads are used where work takes longer than waking them: below `_SHARED` all is done by the caller.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from ordiff._signals import deferred_interrupts

with deferred_interrupts():
    import numba

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801
        """`functools.cached_property` as it is from Python 3.12 on: without the lock that a fork may leave held."""

        def __init__(self, function):
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.name, self.function(instance))


Range = tuple[int, int]
Item = TypeVar("Item")
Result = TypeVar("Result")

# Multiply-adds from which work is shared, about 2 ms, ten times what it takes to hand some of it to a thread, and those
# of a piece; the most pieces: enough for 16 threads.
_SHARED, _PIECE, _MOST_PIECES = 2_500_000, 400_000, 16

_thread = threading.local()


def n_threads() -> int:
    """How many threads may work: `numba.set_num_threads`, or NUMBA_NUM_THREADS; 1 inside one of our own threads."""
    if getattr(_thread, "is_worker", False):
        return 1
    try:
        numba.threading_layer()
    except ValueError:  # numba has started no threads, so their number was not set
        return int(numba.config.NUMBA_NUM_THREADS)
    return int(numba.get_num_threads())


def _mark_worker() -> None:
    _thread.is_worker = True


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="ordiff", initializer=_mark_worker)


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """[work(item) for item in items], on several threads of which the caller is one.

    When it ends, by an exception too, no work goes on. Threads that come too late for an item are not waited for.
    """
    threads = n_threads()
    workers = min(threads, len(items))
    if workers <= 1:
        return [work(item) for item in items]
    results: list[Any] = [None] * len(items)
    left: SimpleQueue[int] = SimpleQueue()
    for at in range(len(items)):
        left.put(at)

    def drain() -> None:
        try:
            while True:
                at = left.get_nowait()
                results[at] = work(items[at])
        except Empty:
            return
        except BaseException:
            _empty(left)  # the others need not go on
            raise

    futures: list[Future[None]] = []
    _thread.is_worker = True  # what the caller's share calls runs serially, as in the others
    try:
        for _ in range(workers - 1):
            with suppress(RuntimeError):  # no more threads to be had, as when the interpreter ends: the caller does all
                futures.append(_pool(threads - 1).submit(drain))
        drain()
        for future in futures:
            if not future.cancel():
                future.result()
    finally:
        _thread.is_worker = False
        _empty(left)
        wait([future for future in futures if not future.cancel()])
    return results


def _empty(queue: SimpleQueue[int]) -> None:
    with suppress(Empty):
        while True:
            queue.get_nowait()


def row_ranges(indptr: Any, work_per_edge: int = 1) -> list[Range]:
    """Ranges of rows with about equal numbers of edges, one a piece of work."""
    return cut_rows(indptr, _pieces(int(indptr[-1]) * work_per_edge))


def cut_rows(indptr: Any, parts: int) -> list[Range]:
    """So many ranges of rows with about equal numbers of edges."""
    if parts == 1:
        return [(0, len(indptr) - 1)]
    cuts = np.searchsorted(indptr, np.linspace(0, indptr[-1], parts + 1)[1:-1])
    return list(pairwise([0, *cuts.tolist(), len(indptr) - 1]))


def even_ranges(n: int, work: int, most: int | None = None) -> list[Range]:
    """Ranges of 0 … n − 1 of equal length, for this much work in all; at most so many, if it is said."""
    pieces = max(1, min(_pieces(work), n, _MOST_PIECES if most is None else most))
    if pieces == 1:
        return [(0, n)]
    return list(pairwise(np.linspace(0, n, pieces + 1).astype(int).tolist()))


def _pieces(work: int) -> int:
    return 1 if work < _SHARED else min(_MOST_PIECES, work // _PIECE)


def over_ranges(ranges: list[Range], loop: Callable[..., Any], *args: Any) -> list[Any]:
    """loop(start, stop, *args) for every range."""
    if len(ranges) == 1:
        return [loop(*ranges[0], *args)]
    return parallel_map(lambda rows: loop(*rows, *args), ranges)


def over_rows(loop: Callable[..., Any], indptr: Any, *args: Any) -> list[Any]:
    """loop(start, stop, indptr, *args) over all rows."""
    return over_ranges(row_ranges(indptr), loop, indptr, *args)


@cache
def _blas() -> Any:
    """The BLAS libraries, found once, and before a fork: one that cuts a search leaves a lock held in the child."""
    import scipy.linalg  # noqa: F401  it has one of its own

    return ThreadpoolController().select(user_api="blas")


def _no_blas_users() -> SimpleQueue[tuple[int, ExitStack]]:
    """A queue of one item: how many ask for one BLAS thread now, and what restores the number there was. The thread
    that has taken the item out is the only one that can change it."""
    queue: SimpleQueue[tuple[int, ExitStack]] = SimpleQueue()
    queue.put((0, ExitStack()))
    return queue


_blas_users = _no_blas_users()


def _after_fork() -> None:
    """Threads do not survive a fork: a child makes a pool of its own, and counts anew."""
    global _blas_users
    _pool.cache_clear()
    _blas_users = _no_blas_users()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_blas, after_in_child=_after_fork)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread: on the small products of a fit its threads spend more time waiting than working.

    The number is one for the whole process: the first of several callers sets it, the last restores it.
    """
    _change_blas_users(+1)
    try:
        yield
    finally:
        _change_blas_users(-1)


def _change_blas_users(change: int) -> None:
    with deferred_interrupts():  # else the item might be lost, and all that come after would wait for it
        queue = _blas_users
        users, restore = queue.get()
        try:
            if users == 0:
                blas = _blas()
                several = [library["filepath"] for library in blas.info() if library["num_threads"] > 1]
                if several:
                    restore.enter_context(blas.select(filepath=several).limit(limits=1))
            users = max(0, users + change)  # a child forked inside leaves what it did not enter
            if users == 0:
                restore.close()
        finally:
            queue.put((users, restore))
