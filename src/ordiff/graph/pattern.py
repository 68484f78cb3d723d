"""Is a sparse pattern what it says? The checks of arrays that come from outside, before a compiled loop reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordiff import _validation
from ordiff._compiled import csr
from ordiff._validation import Array, IntArray


def checked_pattern(indptr: ArrayLike, indices: ArrayLike, sqdist: ArrayLike) -> tuple[IntArray, IntArray, Array]:
    """The arrays of a neighbour graph, as the loops take them.

    Of each row the neighbours ascend, each is there once and is a sample, and the row's own sample is among them, at
    distance 0; squared distances are finite and not negative.
    """
    pointers, columns = _whole(indptr, "indptr"), _whole(indices, "indices")
    m = pointers.size - 1
    if m < 1 or pointers[0] != 0 or pointers[-1] != columns.size:
        raise ValueError(
            f"indptr must go from 0 to the number of indices, {columns.size}, with one more entry than there are "
            f"samples; got {_ends(pointers)}."
        )
    if (pointers[1:] <= pointers[:-1]).any():
        at = int(np.argmax(pointers[1:] <= pointers[:-1]))
        raise ValueError(f"indptr must ascend: row {at} has no neighbour, not even itself.")
    bad = (columns < 0) | (columns >= m)
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"indices must be 0..{m - 1}, there are {m} samples; it is {columns[at]} at index {at}.")
    ascends = columns[1:] > columns[:-1]
    ascends[pointers[1:-1] - 1] = True  # from one row to the next
    if not ascends.all():
        raise ValueError(f"the indices of a row must ascend, each once; at index {int(np.argmin(ascends)) + 1} not.")
    own = np.flatnonzero(columns == np.repeat(np.arange(m), np.diff(pointers)))
    if own.size < m:
        rows = np.searchsorted(pointers, own, side="right") - 1
        missing = int(np.setdiff1d(np.arange(m), rows)[0])
        raise ValueError(f"every sample must be a neighbour of itself; sample {missing} is not.")
    squares = _validation.node_vectors(sqdist, (columns.size,), "sqdist")
    if (squares < 0).any() or squares[own].any():
        raise ValueError("sqdist must not be negative, and 0 from each sample to itself.")
    dtype = csr.index_dtype(columns.size)
    return _own(pointers, dtype), _own(columns, dtype), squares


def sparse_arrays(D: Any) -> None:
    """Raise unless a SciPy matrix is sound: its own checks leave out those that take a pass over the entries."""
    try:
        if D.format in ("csr", "csc", "bsr"):
            D.check_format(full_check=True)
        elif D.format == "coo":
            for axis, size in zip(D.coords, D.shape, strict=True):
                if axis.size and not 0 <= axis.min() <= axis.max() < size:
                    raise ValueError(f"indices must be from 0 to {size - 1}")
    except ValueError as error:
        raise ValueError(f"D is not a sound sparse matrix: {error}.") from None


def _whole(values: ArrayLike, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers, (n,); got {array.dtype} of shape {array.shape}.")
    return array


def _own(array: NDArray[Any], dtype: Any) -> IntArray:
    """For the loops: in one piece and writable, a copy where it is not."""
    return np.require(array, dtype, ["C", "W", "A"])


def _ends(pointers: NDArray[Any]) -> str:
    return f"{pointers[0]} to {pointers[-1]} in {pointers.size} entries" if pointers.size else "no entries"
