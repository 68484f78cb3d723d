"""The intrinsic dimension of the samples of a neighbour graph, by local principal component analysis."""

from __future__ import annotations

import numpy as np

from ordiff._validation import Array, IntArray

# A gap is clear when the variance falls this many times from one direction to the next; shares of the variance below
# the second are not told apart.
_GAP, _LEAST_SHARE = 5.0, 0.01
# Samples at which a spectrum is taken.
_SAMPLES = 1000


def dimension(X: Array, indptr: IntArray, indices: IntArray, sqdist: Array, counts: list[int]) -> int:
    """The number of directions before the widest gap in the spectra of so many neighbours, if any gap is clear.

    Otherwise the median number of directions that hold 90% of the variance of the last count of neighbours.
    """
    spectra = [_local_spectra(X, indptr, indices, sqdist, k) for k in counts]
    width, d = max(_widest_gap(np.median(spectrum, axis=0)) for spectrum in spectra)
    if width < _GAP:
        return int(np.median(1 + np.sum(np.cumsum(spectra[-1], axis=1)[:, :-1] <= 0.9, axis=1)))
    return d


def _local_spectra(X: Array, indptr: IntArray, indices: IntArray, sqdist: Array, k: int) -> Array:
    """Shares of the variance of k neighbours along their principal directions, (samples, min(k, n)), descending."""
    most = max(50, min(_SAMPLES, 20_000_000 // (k * X.shape[1])))
    some = np.unique(np.linspace(0, len(X) - 1, most).astype(int))
    offsets = np.zeros((some.size, k, X.shape[1]))
    for n, i in enumerate(some):
        row = slice(indptr[i], indptr[i + 1])
        near = np.argsort(sqdist[row], kind="stable")[1 : k + 1]
        offsets[n, : near.size] = X[indices[row][near]] - X[i]
    offsets -= offsets.mean(axis=1, keepdims=True)  # the sample itself may lie off the manifold
    other = offsets.transpose(0, 2, 1)
    squares = np.linalg.eigvalsh(other @ offsets if X.shape[1] <= k else offsets @ other)[:, ::-1]
    squares = np.maximum(squares[squares.sum(axis=1) > 0], 0.0)
    if len(squares) == 0:
        return np.ones((1, 1))
    return squares / squares.sum(axis=1, keepdims=True)


def _widest_gap(spectrum: Array) -> tuple[float, int]:
    """The largest ratio of a share of variance to the next, and how many come before it."""
    if spectrum.size == 1:
        return np.inf, 1
    floored = np.maximum(spectrum, _LEAST_SHARE)
    ratios = floored[:-1] / floored[1:]
    at = int(np.argmax(ratios))
    return float(ratios[at]), at + 1
