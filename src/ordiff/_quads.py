"""Sparse patterns in quads: four adjacent rows that share one list of columns.

Where neighbouring rows have most columns in common, as those of a graph sorted for locality do, a product then loads
half as much, and a matrix in cache is twice as fast. Entries that only some of the four rows have are 0 in the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordiff import _march, _sparse, _threads
from ordiff._check import Array, IntArray
from ordiff._vector import GROUP, ROWS

# The largest share of entries that are 0 for want of an edge, and the bytes of a matrix that stays in cache.
_MOST_EMPTY, _CACHE = 0.5, 24_000_000
# Bytes of an edge, number and index, in rows; of a column of four entries in quads.
_EDGE_BYTES, _COLUMN_BYTES = 12, 36


@dataclass(frozen=True, eq=False)
class Quads:
    """The pattern: quad q has the columns indptr[q] .. indptr[q + 1], in whole groups; edge e of the rows is entry
    place[e] of the data (C, 4), flattened."""

    indptr: NDArray[np.int64]
    columns: NDArray[np.unsignedinteger[Any]]
    place: NDArray[np.unsignedinteger[Any]]
    rows: IntArray  # indptr of the rows
    runs: NDArray[np.int64]
    ranges: list[_threads.Range]

    @classmethod
    def of(cls, indptr: IntArray, indices: NDArray[np.unsignedinteger[Any]]) -> Quads | None:
        """The pattern of these rows; None where quads would not pay: too many empty entries, or more to read than in
        rows and too much for the cache."""
        n, edges = len(indptr) - 1, int(indptr[-1])
        counts, seen = np.empty(-(-n // ROWS), np.int64), np.full(n, -1)
        _sparse.count_quad_columns(indptr, indices, seen, counts)
        counts = -(-counts // GROUP) * GROUP
        ends = np.concatenate([[0], np.cumsum(counts)])
        total = int(ends[-1])
        if edges < (1 - _MOST_EMPTY) * ROWS * total or total * _COLUMN_BYTES > max(_EDGE_BYTES * edges, _CACHE):
            return None
        columns = np.empty(total, indices.dtype)
        place = csr.unsigned(np.empty(edges, csr.index_dtype(ROWS * total)))
        seen[:] = -1
        _sparse.place_in_quads(indptr, indices, ends, seen, np.empty(n, np.int64), columns, place)
        return cls(ends, columns, place, indptr, _march.runs(ROWS * ends), _threads.edge_ranges(ROWS * ends, 4))

    @property
    def shape(self) -> tuple[int, int]:
        """That of the data, (C, 4)."""
        return self.columns.size, ROWS

    def matrix(self, values: Array, edges: Any = None, out: Array | None = None) -> _march.Matrix:
        """The matrix with these edge values, or with values[edges]."""
        data = np.empty(self.shape) if out is None else out
        which = self.place[:0] if edges is None else edges
        _threads.over(self.ranges, _sparse.fill_quads, self.indptr, self.rows, self.place, values, which, data)
        return self.indptr, self.columns, data
