"""Steps of a chain by several threads, which wait for each other without coming back to Python.

A step is cut into runs of rows. Threads take the runs of all steps in turn, and one that is ahead waits until the
step before is finished. So a thread that comes late, or never, costs nothing: the others do its share.

    counters    runs taken and, a cache line further on, runs finished; shared
    hold        the run that a thread has taken and not yet done, or −1; each thread's own

The loops return whether all is finished; if not, they have waited for long and should be called again.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ordiff import _atomic, _sparse, _threads
from ordiff._check import Array, IntArray

_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})

_TAKEN, _FINISHED = 0, 8
# how often a thread looks whether the others are ready before it lets them have its core: about 100 µs
_PATIENCE = 200_000
# below so many edges times steps a second thread costs more than it saves
_EDGES_PER_THREAD = 400_000
# the same of one part of a step that scatters
_EDGES_PER_PART = 50_000
# edges of a run, and the most runs of a step
_RUN, _RUNS = 4_096, 64

Matrix = tuple[IntArray, NDArray[np.unsignedinteger[Any]], Array]  # indptr, indices and data


def runs(indptr: IntArray) -> NDArray[np.int64]:
    """Cuts of the rows into runs."""
    return np.array(_threads.cuts(indptr, int(np.clip(indptr[-1] // _RUN, 1, _RUNS))))


def march(matrix: Matrix, cuts: NDArray[np.int64], steps: Array, *, back: bool, onto: bool) -> None:
    """steps[s + 1] = A steps[s], from the first of (T, N, c) to the last, or ``back`` from the last to the first.

    With ``onto`` the products are added to what is there.
    """
    count = len(steps) - 1
    if count > 0:
        at, by = (count, -1) if back else (0, 1)
        _together(_march, count * matrix[2].size, cuts, count, *matrix, steps, at, by, onto)


def power(matrix: Matrix, cuts: NDArray[np.int64], f: Array, order: NDArray[np.uint32], steps: int) -> Array:
    """P^steps f for f (m, c); row i of the matrix is row order[i] of f, or i if the order is empty."""
    ring, out = np.empty((2, *f.shape)), np.empty(f.shape)
    _together(_power, steps * matrix[2].size, cuts, steps, *matrix, order, f, ring, out)
    return out


def transposed_power(matrix: Matrix, f: Array, order: NDArray[np.uint32], steps: int) -> Array:
    """(Pᵀ)^steps f. Rows are scattered in a few parts, each to an array of its own, which then are added.

    The parts are the same whoever does them, so the sums do not depend on the threads that came.
    """
    threads = _threads.n_threads(steps * matrix[2].size, _EDGES_PER_THREAD)
    parts = _threads.n_threads(matrix[2].size, _EDGES_PER_PART) if threads > 1 else 1
    cuts = np.array(_threads.cuts(matrix[0], parts))
    here, out, scattered = np.empty(f.shape), np.empty(f.shape), np.empty((parts, *f.shape))
    _together(_transposed_power, steps * matrix[2].size, cuts, steps, *matrix, order, f, here, scattered, out)
    return out


def _together(loop: Any, work: int, *args: Any) -> None:
    _threads.together(loop, _threads.n_threads(work, _EDGES_PER_THREAD), *args)


# ----------------------------------------------------------------------------------------------- compiled


@_jit
def _take(counters, hold, runs, steps):  # type: ignore[no-untyped-def]
    """The step and the run to do next, once all steps before are finished.

    The step is ``steps`` when all are, and −1 after a long wait.
    """
    if hold[0] < 0:
        hold[0] = _atomic.add(counters, _TAKEN, 1)
    step = min(hold[0] // runs, steps)
    waited = 0
    while _atomic.read(counters, _FINISHED) < step * runs:
        waited += 1
        if waited > _PATIENCE:
            return -1, 0
    return step, hold[0] - step * runs


@_jit
def _finish(counters, hold):  # type: ignore[no-untyped-def]
    hold[0] = -1
    _atomic.add(counters, _FINISHED, 1)


@_jit
def _march(counters, hold, cuts, steps, indptr, indices, data, f, at, by, onto):  # type: ignore[no-untyped-def]
    """f[at + by] = A f[at], f[at + 2 by] = A f[at + by], …"""
    runs = cuts.size - 1
    while True:
        step, run = _take(counters, hold, runs, steps)
        if step < 0 or step == steps:
            return step == steps
        source, target = f[at + by * step], f[at + by * (step + 1)]
        _sparse.pull(cuts[run], cuts[run + 1], indptr, indices, data, source, target, onto)
        _finish(counters, hold)


@_jit
def _power(counters, hold, cuts, steps, indptr, indices, data, order, f, ring, out):  # type: ignore[no-untyped-def]
    """Step 0 sorts f into the ring; the last one also puts its rows where they belong."""
    runs = cuts.size - 1
    while True:
        step, run = _take(counters, hold, runs, steps + 1)
        if step < 0 or step > steps:
            return step > steps
        a, b, here = cuts[run], cuts[run + 1], ring[step % 2]
        if step == 0:
            _sort(a, b, order, f, here)
        else:
            _sparse.pull(a, b, indptr, indices, data, ring[(step + 1) % 2], here, False)
        if step == steps:
            _unsort(a, b, order, here, out)
        _finish(counters, hold)


@_jit
def _transposed_power(  # type: ignore[no-untyped-def]
    counters, hold, cuts, steps, indptr, indices, data, order, f, here, parts, out
):
    """Stage 0 sorts f; then each step is two stages: the parts are scattered, and added."""
    runs = cuts.size - 1
    stages = 1 + 2 * steps
    while True:
        stage, run = _take(counters, hold, runs, stages)
        if stage < 0 or stage == stages:
            return stage == stages
        a, b = cuts[run], cuts[run + 1]
        if stage == 0:
            _sort(a, b, order, f, here)
        elif stage % 2 == 1:
            parts[run][:] = 0.0
            _sparse.push(a, b, indptr, indices, data, here, parts[run])
        else:
            _add(a, b, parts, here)
        if stage == stages - 1:
            _unsort(a, b, order, here, out)
        _finish(counters, hold)


@_jit
def _add(start, stop, parts, out):  # type: ignore[no-untyped-def]
    """out = Σ_p parts_p; one long loop for each part, also if there is one column."""
    columns = out.shape[1]
    target = out.reshape(-1)[start * columns : stop * columns]
    target[:] = parts[0].reshape(-1)[start * columns : stop * columns]
    for p in range(1, parts.shape[0]):
        source = parts[p].reshape(-1)[start * columns : stop * columns]
        for e in range(target.size):
            target[e] += source[e]


@_jit
def _sort(start, stop, order, f, out):  # type: ignore[no-untyped-def]
    """out_i = f_order[i]."""
    columns = f.shape[1]
    if order.size == 0:
        out.reshape(-1)[start * columns : stop * columns] = f.reshape(-1)[start * columns : stop * columns]
    elif columns == 1:
        _sparse.gather(start, stop, order, f.reshape(-1), out.reshape(-1))
    else:
        _sparse.gather(start, stop, order, f, out)


@_jit
def _unsort(start, stop, order, f, out):  # type: ignore[no-untyped-def]
    """out_order[i] = f_i."""
    columns = f.shape[1]
    if order.size == 0:
        out.reshape(-1)[start * columns : stop * columns] = f.reshape(-1)[start * columns : stop * columns]
    elif columns == 1:
        _sparse.scatter(start, stop, order, f.reshape(-1), out.reshape(-1))
    else:
        _sparse.scatter(start, stop, order, f, out)
