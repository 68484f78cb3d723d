"""The order in which operators on a graph keep its samples in memory: neighbours together, so that a step finds what it
needs in cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ordiff import _parallel
from ordiff._compiled import csr
from ordiff._compiled import graph as loops
from ordiff._parallel import cached_property
from ordiff._validation import Array, IntArray

Indices = NDArray[np.unsignedinteger[Any]]


def as_columns(f: Array) -> Array:
    """One function (m,) or several (m, c), as (m, c) in one piece."""
    return np.ascontiguousarray(f).reshape(len(f), -1)


def offsets(counts: IntArray) -> IntArray:
    """indptr from the number of entries in each row."""
    ends = np.cumsum(counts, dtype=np.int64)
    return np.concatenate([[0], ends]).astype(csr.index_dtype(int(ends[-1])))


@dataclass(frozen=True, eq=False)
class Layout:
    """A graph's pattern with its samples in another order: row r is sample order[r].

    Functions (m,) or (m, c) and edge values (E,) are sorted into this order and back. Within a row edges keep theirs.
    """

    indptr: IntArray
    indices: Indices  # unsigned, in the new names
    order: NDArray[np.uint32]
    graph_indptr: IntArray

    @classmethod
    def of(cls, indptr: IntArray, indices: IntArray, order: NDArray[np.uint32]) -> Layout:
        rank = _rank(order)
        sorted_indptr, renamed = (
            offsets(np.diff(indptr)[order]).astype(indptr.dtype),
            csr.unsigned(np.empty_like(indices)),
        )
        named = csr.unsigned(indices)
        _parallel.over_rows(loops.renamed_rows, indptr, named, rank, sorted_indptr[rank], renamed)
        return cls(sorted_indptr, renamed, order, indptr)

    @property
    def n_points(self) -> int:
        return self.order.size

    @cached_property
    def rank(self) -> NDArray[np.uint32]:
        """The row that each sample is, (m,)."""
        return _rank(self.order)

    @cached_property
    def begins(self) -> IntArray:
        """Where the row of each sample begins here, (m,)."""
        return self.indptr[self.rank]

    @cached_property
    def origins(self) -> IntArray:
        """Where each row begins in the graph, (m,)."""
        return self.graph_indptr[self.order]

    @cached_property
    def rows(self) -> NDArray[np.uint32]:
        """0 … m − 1: the rows, as the loops take them."""
        return np.arange(self.order.size, dtype=np.uint32)

    @cached_property
    def transpose(self) -> TransposedPattern:
        return TransposedPattern.of(self.indptr, self.indices)

    def edges(self, start: int, stop: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Both ends, as the graph names them, of the edges in these rows."""
        names = self.order.astype(np.intp)
        j = self.indices[self.indptr[start] : self.indptr[stop]]
        return np.repeat(names[start:stop], np.diff(self.indptr[start : stop + 1])), names[j]

    def sort(self, f: Array) -> Array:
        return self._reordered(csr.gather_rows, f)

    def unsort(self, f: Array) -> Array:
        return self._reordered(csr.scatter_rows, f)

    def sort_edges(self, values: Any) -> Any:
        return self._moved(values, self.graph_indptr[:-1], self.begins)

    def unsort_edges(self, values: Any) -> Any:
        return self._moved(values, self.begins, self.graph_indptr[:-1])

    def _reordered(self, loop: Callable[..., None], f: Array) -> Array:
        many = as_columns(f)
        out = np.empty(many.shape)
        _parallel.over_ranges(_parallel.even_ranges(len(f), f.size // 2), loop, self.order, many, out)
        return out.reshape(f.shape)

    def _moved(self, values: Any, source: IntArray, target: IntArray) -> Any:
        out = np.empty_like(values)
        _parallel.over_rows(csr.copy_rows, self.graph_indptr, source, target, values, out)
        return out


@dataclass(frozen=True, eq=False)
class TransposedPattern:
    """A pattern by columns: for each sample those that have it as a neighbour, and by which edge."""

    indptr: IntArray
    indices: Indices
    edges: Indices

    @classmethod
    def of(cls, indptr: IntArray, indices: Any) -> TransposedPattern:
        n, signed = len(indptr) - 1, indices.view(indptr.dtype)
        numbers = np.arange(indices.size, dtype=indptr.dtype)
        columns = sp.csr_array((numbers, signed, indptr), shape=(n, n)).tocsc()
        return cls(columns.indptr, csr.unsigned(columns.indices), csr.unsigned(columns.data))

    def values(self, data: Array, out: Array | None = None) -> Array:
        """Edge values, by columns, (E,)."""
        out = np.empty_like(data) if out is None else out
        _parallel.over_ranges(_parallel.even_ranges(data.size, data.size), csr.take, self.edges, data, out)
        return out


def _rank(order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size, dtype=order.dtype)
    return rank
