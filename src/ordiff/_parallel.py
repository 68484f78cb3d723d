"""Work on several cores: ranges of rows, a stock thread pool, and one BLAS thread around fits.

The loops of `_compiled` release the interpreter lock, so threads of `concurrent.futures` are enough. Work is cut into
pieces by its size alone, never by the number of threads, so that results have the same bits on any number of them.
Threads are used where a piece takes longer than waking a thread: below `_PIECE` all is done by the caller.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np
from threadpoolctl import ThreadpoolController

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

# Multiply-adds of one piece of work, about 0.3 ms: several times what it takes to wake a thread.
_PIECE = 400_000
# The most pieces: enough for 16 threads, few enough that handing them out costs nothing.
_MOST_PIECES = 16

_thread = threading.local()


def n_threads() -> int:
    """How many threads may work: `numba.set_num_threads`, or NUMBA_NUM_THREADS; 1 inside one of our own threads."""
    if getattr(_thread, "is_worker", False):
        return 1
    try:
        numba.threading_layer()
    except ValueError:  # numba has started no threads, so nobody has set their number
        return int(numba.config.NUMBA_NUM_THREADS)
    return int(numba.get_num_threads())


def _mark_worker() -> None:
    _thread.is_worker = True


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="ordiff", initializer=_mark_worker)


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: a child makes a pool of its own
    os.register_at_fork(after_in_child=_pool.cache_clear)


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """[work(item) for item in items], on several threads. When it ends, by an exception too, no work goes on."""
    workers = n_threads()
    if min(workers, len(items)) <= 1:
        return [work(item) for item in items]
    futures: list[Future[Result]] = []
    try:
        for item in items:
            futures.append(_submit(_pool(workers), work, item))
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


def _submit(pool: ThreadPoolExecutor, work: Callable[[Item], Result], item: Item) -> Future[Result]:
    try:
        return pool.submit(work, item)
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
    # the interpreter ends and takes no more work for its pools, but waits for the thread that we are called by
    done: Future[Result] = Future()
    done.set_result(work(item))
    return done


def row_ranges(indptr: Any, work_per_edge: int = 1) -> list[Range]:
    """Ranges of rows with about equal numbers of edges, one a piece of work."""
    return cut_rows(indptr, _pieces(int(indptr[-1]) * work_per_edge))


def cut_rows(indptr: Any, parts: int) -> list[Range]:
    """So many ranges of rows with about equal numbers of edges."""
    if parts == 1:
        return [(0, len(indptr) - 1)]
    cuts = np.searchsorted(indptr, np.linspace(0, indptr[-1], parts + 1)[1:-1])
    return list(pairwise([0, *cuts.tolist(), len(indptr) - 1]))


def even_ranges(n: int, work: int, most: int = _MOST_PIECES) -> list[Range]:
    """Ranges of 0 … n − 1 of equal length, for this much work in all; at most so many."""
    pieces = max(1, min(_pieces(work), n, most))
    return list(pairwise(np.linspace(0, n, pieces + 1).astype(int).tolist()))


def _pieces(work: int) -> int:
    return max(1, min(_MOST_PIECES, work // _PIECE))


def over_ranges(ranges: list[Range], loop: Callable[..., Any], *args: Any) -> list[Any]:
    """loop(start, stop, *args) for every range."""
    if len(ranges) == 1:
        return [loop(*ranges[0], *args)]
    return parallel_map(lambda rows: loop(*rows, *args), ranges)


def over_rows(loop: Callable[..., Any], indptr: Any, *args: Any) -> list[Any]:
    """loop(start, stop, indptr, *args) over all rows."""
    return over_ranges(row_ranges(indptr), loop, indptr, *args)


# Held while the threads of BLAS are counted and limited, or the limit restored; and by who forks, so that nobody else
# holds it in the child for ever.
_blas_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_blas_lock.acquire, after_in_parent=_blas_lock.release, after_in_child=_blas_lock.release
    )


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread: on the small products of a fit its threads spend more time waiting than working.

    Where another fit has limited it already nothing is done, so that none restores the limit of another.
    """
    with _blas_lock:
        blas = ThreadpoolController().select(user_api="blas")
        limited = all(library["num_threads"] == 1 for library in blas.info())
        limit: Any = nullcontext() if limited else blas.limit(limits=1)
        limit.__enter__()
    try:
        yield
    finally:
        with _blas_lock:
            limit.__exit__(None, None, None)
