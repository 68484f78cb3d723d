"""What samples see of a chain: the weights W (m, T) of its time slices, and the states around each sample.

A row of W for a known time interpolates between two time slices, one for unknown times holds the quadrature of their
density.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _validation
from ordiff._validation import Array


@dataclass(frozen=True)
class Observation:
    """What m samples see of the chain.

    times: W (m, T) sparse, the weight of every time slice for every sample; see `time_weights` and `time_quadrature`.
    places: B (m, N) sparse, the states around every sample; None: sample i is state i.
    volumes: v (N,) for the log-linear form, None for the linear one.
    floor: δ ≥ 0.
    elsewhere: all samples, in blocks on workers, of which these are some: the loss and its derivative are then sums
    over the blocks, see `blocks_elsewhere`.

        linear        likelihood_i = Σ_r W_ir Σ_j B_ij p_r(j) + δ
        log-linear    likelihood_i = Σ_r W_ir exp( Σ_j B_ij log(p_r(j)/v_j + δ) )
    """

    times: Any
    places: Any = None
    volumes: Array | None = None
    floor: float = 0.0
    elsewhere: Any = None

    def time_matrix(self, n_slices: int) -> sp.csr_array:
        """W, checked."""
        W = sparse_rows(self.times, (self.times.shape[0], n_slices), "times")
        if (W.data < 0).any():
            raise ValueError("times must hold weights that are not negative.")
        lengths = np.diff(W.indptr)
        if (lengths == 0).any():
            raise ValueError(f"row {int(np.argmin(lengths))} of times has no time slice with a positive weight.")
        return W


def sparse_rows(matrix: Any, shape: tuple[int, int], name: str) -> sp.csr_array:
    """A copy in CSR form, checked, with sorted indices and without stored zeros."""
    rows = sp.csr_array(matrix, dtype=np.float64, copy=True)
    if rows.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got {rows.shape}.")
    if not np.isfinite(rows.data).all():
        raise ValueError(f"{name} has values that are NaN or infinite.")
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows


def place_matrix(places: Any, shape: tuple[int, int], rank: NDArray[np.uint32]) -> sp.csr_array:
    """B (m, N), checked, with the states in their inner order: state j is named rank[j]."""
    B = sparse_rows(places, shape, "places")
    B = sp.csr_array((B.data, rank[B.indices].astype(B.indices.dtype), B.indptr), shape=B.shape)
    B.sort_indices()
    if (np.diff(B.indptr) == 0).any():
        raise ValueError(f"row {int(np.argmin(np.diff(B.indptr)))} of places is empty: that sample is nowhere.")
    return B


def known_time_weights(times: Array, slices: Array, first: int) -> sp.csr_array:
    """W (m, T) of known times (m,) or windows (m, 2); no weight before the time slice ``first``."""
    if times.ndim == 2:
        return window_weights(times, slices, first=first)
    return time_weights(np.minimum(times, slices[-1]), slices, first=first)


def time_weights(times: ArrayLike, slice_times: ArrayLike, *, first: int = 0) -> sp.csr_array:
    """W (m, T) for known times: linear interpolation between the time slices before and after each.

    first: the earliest time slice that may be used. Samples before it are put wholly on it, because the first slices
    from a delta are unreliable.

    >>> time_weights([0.25, 1.0], [0.0, 1.0, 2.0]).toarray()
    array([[0.75, 0.25, 0.  ],
           [0.  , 1.  , 0.  ]])
    """
    slices = _ascending(slice_times)
    first = _validation.count(first, "first", 0, slices.size - 1)
    t = np.atleast_1d(_validation.functions(times, np.size(times), "times"))
    outside = (t < 0) | (t > slices[-1] * (1 + 1e-12))
    if outside.any():
        at = int(np.argmax(outside))
        raise ValueError(f"times must be within [0, {slices[-1]:g}]; it is {t[at]:g} at index {at}.")
    t = np.clip(t, slices[first], slices[-1])
    right = np.clip(np.searchsorted(slices, t), min(first + 1, slices.size - 1), None)
    left = np.maximum(right - 1, first)
    gap = np.where(right > left, slices[right] - slices[left], 1.0)
    share = (t - slices[left]) / gap
    rows = np.arange(t.size)
    entries = (np.concatenate([1 - share, share]), (np.concatenate([rows, rows]), np.concatenate([left, right])))
    weights = sp.csr_array(entries, shape=(t.size, slices.size))
    weights.eliminate_zeros()
    return weights


def time_quadrature(density: Callable[[Array], ArrayLike], slice_times: ArrayLike) -> Array:
    """Weights (T,) for unknown times: ∫ r(t) hat_s(t) dt, hat_s linear between the time slices, scaled to sum to 1.

    density: r, up to a factor, on an array of times. By Gauss–Legendre quadrature with 5 points per interval.

    >>> time_quadrature(lambda t: np.ones_like(t), [0.0, 1.0, 2.0])
    array([0.25, 0.5 , 0.25])
    """
    slices = _ascending(slice_times)
    node, weight = np.polynomial.legendre.leggauss(5)
    share = 0.5 * (node + 1)  # the place in an interval, from 0 to 1
    gap = np.diff(slices)[:, None]
    t = slices[:-1, None] + gap * share
    r = np.broadcast_to(np.asarray(density(t), dtype=float), t.shape)
    if not (np.isfinite(r).all() and (r >= 0).all() and r.any()):
        raise ValueError("the density of times must be finite, not negative, and not 0 everywhere.")
    mass = 0.5 * gap * weight * r
    out = np.zeros(slices.size)
    out[:-1] += (mass * (1 - share)).sum(axis=1)
    out[1:] += (mass * share).sum(axis=1)
    return out / out.sum()


def window_weights(windows: Array, slice_times: ArrayLike, *, first: int = 0) -> sp.csr_array:
    """W (m, T) for times uniform within windows (m, 2): 16 times in each, interpolated."""
    share = (np.arange(16) + 0.5) / 16
    last = _ascending(slice_times)[-1]
    W: Any = None
    for s in share:
        t = windows[:, 0] + s * (windows[:, 1] - windows[:, 0])
        one = time_weights(np.minimum(t, last), slice_times, first=first)
        W = one if W is None else W + one
    return sp.csr_array(W / share.size)


def _ascending(slice_times: ArrayLike) -> Array:
    slices = np.atleast_1d(_validation.functions(slice_times, np.size(slice_times), "slice_times"))
    if slices.size < 2 or not (np.diff(slices) > 0).all():
        raise ValueError("slice_times must be two or more ascending numbers.")
    return slices
