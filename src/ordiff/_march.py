"""Steps of a chain by several threads, which wait for each other without coming back to Python.

A step is cut into runs of rows. Threads take the runs of all steps in turn, and one that is ahead waits until the
step before is finished. So a thread that comes late, or never, costs hardly anything: the others do its share.

The compiled loops are those of `_sparse`. Now and then they come back to Python, where an interrupt is seen.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ordiff import _sparse, _threads
from ordiff._check import Array, IntArray

# below so many edges times steps a second thread costs more than it saves
_EDGES_PER_THREAD = 120_000
# the same of one share of a step that scatters
_EDGES_PER_SHARE = 50_000
# edges times columns after which a caller comes back to Python, about 50 ms, if a run is not longer
_SPELL = 100_000_000
# edges of a run, and the most runs of a step for each thread
_RUN, _RUNS = 4_096, 8

# numbers of a function (256 KiB) that each thread sorts for itself and the caller puts back: if threads shared that,
# they would wait for each other's memory longer than it takes
_FEW = 32_768
# the order of functions that are not sorted
AS_IT_IS = np.empty(0, np.uint32)

Matrix = tuple[IntArray, NDArray[np.unsignedinteger[Any]], Array]  # indptr, indices and data


def runs(indptr: IntArray) -> NDArray[np.int64]:
    """Cuts of the rows into runs."""
    most = _RUNS * int(numba.config.NUMBA_NUM_THREADS)
    return np.array(_threads.cuts(indptr, int(np.clip(indptr[-1] // _RUN, 1, most))))


def march(matrix: Matrix, cuts: NDArray[np.int64], steps: Array, *, back: bool, onto: bool) -> None:
    """steps[s + 1] = A steps[s], from the first of (T, N, c) to the last, or ``back`` from the last to the first.

    With ``onto`` the products are added to what is there.
    """
    count = len(steps) - 1
    if count > 0:
        at, by = (count, -1) if back else (0, 1)
        edges, parts = matrix[2].size, cuts.size - 1
        spell = _spell(edges, parts, steps.shape[2])
        _threads.together(
            _sparse.march, _workers(count * edges, parts), spell, cuts, count, *matrix, steps, at, by, onto
        )


class Power:
    """f ↦ A^steps f for f (m, c); row i of the matrix is row order[i] of f, or row i if it is `AS_IT_IS`.

    Whatever does not depend on f is made ready, since a step of a small operator is as short as the way to it.
    """

    def __init__(self, matrix: Matrix, cuts: NDArray[np.int64], order: NDArray[np.uint32]) -> None:
        self._arrays = (*matrix, order)
        self._cuts, self._edges, self._parts = cuts, matrix[2].size, cuts.size - 1

    def __call__(self, f: Array, steps: int) -> Array:
        workers = _workers(steps * self._edges, self._parts)
        apart, out = f.size <= _FEW, np.empty(f.shape)
        room = np.empty((2 + apart * workers, *f.shape))
        spell = _spell(self._edges, self._parts, f.shape[1])
        _threads.together(_sparse.power, workers, spell, self._cuts, steps, *self._arrays, f, apart, room, out)
        return out


def shares(indptr: IntArray) -> NDArray[np.int64]:
    """Cuts of the rows into the shares of a step that scatters, which are few: each costs three passes over f."""
    return np.array(_threads.cuts(indptr, _threads.n_threads(int(indptr[-1]), max(_EDGES_PER_SHARE, 8 * len(indptr)))))


def transposed_power(matrix: Matrix, cuts: NDArray[np.int64], order: NDArray[np.uint32], f: Array, steps: int) -> Array:
    """(Pᵀ)^steps f. Rows are scattered in shares, each to an array of its own, which then are added.

    The shares are the same whoever does them, so the sums do not depend on the threads that came.
    """
    edges = matrix[2].size
    workers = _workers(steps * edges, cuts.size - 1)
    if workers == 1:
        cuts = cuts[[0, -1]]
    here, out, parts = np.empty(f.shape), np.empty(f.shape), np.empty((cuts.size - 1, *f.shape))
    spell = _spell(edges, cuts.size - 1, f.shape[1])
    arrays = (f, f.size <= _FEW, here, parts, out)
    _threads.together(_sparse.transposed_power, workers, spell, cuts, steps, *matrix, order, *arrays)
    return out


def _workers(edges: int, parts: int) -> int:
    return min(_threads.n_threads(edges, _EDGES_PER_THREAD), parts)


def _spell(edges: int, parts: int, columns: int) -> int:
    """The runs after which a caller comes back to Python."""
    return max(1, _SPELL * parts // max(1, edges * columns))
