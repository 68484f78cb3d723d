"""The linear subspace that data lie in, up to measurement noise, and coordinates on it.

Columns that are constant or copies of others are left out as they are. Of the others, leading principal components are
kept when the rest is noise: much smaller, of about the same variance in all directions, not shared by samples that are
neighbours in what is kept (a curved surface would be), and no smaller early than late (a process that starts at a point
would be). Where the last cannot be told, as of a wide start, what is left out must be smaller still, or of several
directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc

from ordiff._polynomials import kd_tree
from ordiff._validation import Array
from ordiff.graph.search import query_tree

# Variances below this share of the largest are rounding errors.
_ROUNDING = 1e-10
# Noise has less than this share of the variance of the last direction that is kept; less than the second where its
# dependence on time is not known and it has fewer directions than the third.
_NOISE, _STRICT, _SEVERAL = 0.1, 0.015, 3
# The largest variance of noise over the mean, beyond what sampling does to it.
_FLAT = 2.5
# The share of noise in a direction that samples near each other may have in common.
_SHARED = 0.25
# Neighbours that may share it, and samples that are asked, at most.
_NEIGHBORS, _ASKED = 10, 2000
# The shares of samples that are early, the least variance of noise there in units of that of the later half, and the
# probability with which noise may be smaller by chance; the standard errors that its mean may be apart.
_EARLY, _LEAST_EARLY, _CHANCE, _SHIFTED = (0.02, 0.05, 0.1, 0.2), 0.8, 0.002, 5.0
# The same where that probability says little, as of few directions and samples: then rather a direction too many.
_LEAST_OF_FEW = 0.5
# Bins of time in which noise must have the same variance.
_TIMES = 8


@dataclass(frozen=True, eq=False)
class LinearCoordinates:
    """Coordinates z = (x − centre) forward of points x ≈ centre + z back; the data's own when the maps are None."""

    centre: Array | None = None  # (n,)
    forward: Array | None = None  # (n, q)
    back: Array | None = None  # (q, n)

    @classmethod
    def of(cls, X: Array, times: Array | None = None, least: int = 1, one_start: bool = True) -> LinearCoordinates:
        """Those of the samples X (m, n), at least ``least`` of them.

        times: (m,), or None when they are not known. one_start: whether the process starts at a single point.
        """
        n = X.shape[1]
        kept, copy_of = _distinct_columns(X)
        if kept.size == 0:
            return cls()
        axes = _principal_axes(X[:, kept], times, min(least, kept.size), one_start)
        if axes is None and kept.size == n:
            return cls()
        axes = np.eye(kept.size) if axes is None else axes
        forward, back = np.zeros((n, axes.shape[1])), np.zeros((axes.shape[1], n))
        forward[kept] = axes
        varies = copy_of >= 0
        back[:, varies] = axes.T[:, copy_of[varies]]
        # constants are no part of the coordinates, and columns that are kept as they are keep their origin
        centre = np.where(varies, 0.0, X[0]) if axes.shape[0] == axes.shape[1] else X.mean(axis=0)
        return cls(centre, forward, back)

    @property
    def reduced(self) -> bool:
        """Whether they are fewer than the data's own."""
        return self.forward is not None and self.forward.shape[0] != self.forward.shape[1]

    def stretched(self, root: Array, n: int) -> LinearCoordinates:
        """These coordinates z of n-dimensional data as z root⁻¹, for a symmetric root (q, q)."""
        forward, back, centre = self.forward, self.back, self.centre
        if forward is None or back is None or centre is None:
            forward, back, centre = np.eye(n), np.eye(n), np.zeros(n)
        return LinearCoordinates(centre, forward @ np.linalg.inv(root), root @ back)

    def transform(self, X: Array) -> Array:
        """Points (p, n) in these coordinates, (p, q)."""
        if self.forward is None or self.centre is None:
            return X
        return np.ascontiguousarray((X - self.centre) @ self.forward)

    def inverse(self, Z: Array) -> Array:
        """Points (…, q) of these coordinates in the data's, (…, n)."""
        return Z if self.back is None or self.centre is None else self.centre + Z @ self.back

    def vectors(self, V: Array) -> Array:
        """Vectors (…, q) in these coordinates in the data's, (…, n)."""
        return V if self.back is None else V @ self.back

    def names(self, given: Sequence[str], n: int) -> list[str]:
        """What these coordinates are called where those of the data, n of them, have the names that are given, if any:
        the same where they are some of the data's, else components."""
        if self.forward is None:
            return [str(name) for name in given]
        called = given or [f"x{k + 1}" for k in range(n)]
        columns = list(self.forward.T)
        if all(np.count_nonzero(column) == 1 for column in columns):
            return [str(called[int(np.argmax(column != 0))]) for column in columns]
        return [f"component {k + 1}" for k in range(len(columns))]

    def field(self, process: Any, name: str, vectors: bool, X: Array) -> Array:
        """A field of a process in these coordinates, by its name, at points X (p, n) of the data's: (p,) or (p, n)."""
        values = getattr(process, name)(self.transform(X))
        return self.vectors(values) if vectors else values


def distinct_rows(X: Array) -> Array:
    """X without the copies of earlier rows."""
    first = np.unique(X, axis=0, return_index=True)[1]
    return X if first.size == len(X) else X[np.sort(first)]


def is_noise_in_time(R: Array, times: Array | None, one_start: bool = True) -> bool | None:
    """Whether the earliest rows of R (m, c) are distributed as the later ones; None when it cannot be told, as where
    they are, but the start is wide: a process may stay as wide as it was.

    A direction in which the process relaxes fast differs for a short while only, so that several shares of the samples
    are early in turn, each compared with the later half: their mean, and their variance by the χ² distribution.
    Noise has the same variance at all times, too.
    """
    if times is None:
        return None
    if not _is_steady(R, times):
        return False
    later = times > np.quantile(times, 0.5)
    early = [times <= np.quantile(times, share) for share in _EARLY]
    early = [rows for rows in early if rows.sum() >= 10]
    if not early or later.sum() < 10:
        return None
    centre, scale = R[later].mean(axis=0), np.maximum(R[later].std(axis=0), np.finfo(float).tiny)
    for rows in early:
        z = (R[rows] - centre) / scale
        ratio, freedom = float(z.var(axis=0, ddof=1).mean()), (rows.sum() - 1) * R.shape[1]
        smaller = ratio < _LEAST_EARLY and chdtr(freedom, ratio * freedom) < _CHANCE
        smaller |= ratio < _LEAST_OF_FEW and R.shape[1] < _SEVERAL
        larger = not one_start and ratio > 1 / _LEAST_EARLY and chdtrc(freedom, ratio * freedom) < _CHANCE
        shift, chance = np.abs(z.mean(axis=0)).max(), _SHIFTED / np.sqrt(rows.sum())
        if smaller or larger or shift > max(0.5, chance):
            return False
    return True if one_start else None


def _is_steady(R: Array, times: Array) -> bool:
    """Whether the rows of R (m, c) have the same variance at all times, by Bartlett's test with Box's correction for
    the kurtosis, or one that differs little."""
    bins = [rows for rows in np.array_split(np.argsort(times, kind="stable"), _TIMES) if rows.size >= 10]
    if len(bins) < 2:
        return True
    variance = np.array([R[rows].var(axis=0, ddof=1) for rows in bins])
    scale = np.maximum(variance.mean(axis=0), np.finfo(float).tiny)
    v = (variance / scale).mean(axis=1)
    freedom = np.array([(rows.size - 1) * R.shape[1] for rows in bins])
    z = np.concatenate(
        [(R[rows] - R[rows].mean(axis=0)) / np.sqrt(variance[k] + 1e-300) for k, rows in enumerate(bins)]
    )
    excess = 0.5 * max(float((z**4).mean()) - 1, 2.0)
    statistic = float(freedom @ (np.log(np.average(v, weights=freedom)) - np.log(v))) / excess
    return bool(v.min() > _LEAST_EARLY * v.max() or chdtrc(len(bins) - 1, statistic) > _CHANCE)


def _distinct_columns(X: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The columns that are neither constant nor a copy of an earlier one; and which of these each column is, or −1."""
    spread = np.ptp(X, axis=0)
    varies = spread > np.sqrt(_ROUNDING) * spread.max()
    varies &= spread > 1e-12 * np.abs(X).max(axis=0)  # nor are large numbers that differ by rounding
    first: dict[bytes, int] = {}
    leader = np.array([first.setdefault((column + 0.0).tobytes(), k) for k, column in enumerate(X.T)])  # −0 is 0
    kept = np.unique(leader[varies])
    return kept, np.where(varies, np.searchsorted(kept, leader), -1)


def _principal_axes(X: Array, times: Array | None, least: int, one_start: bool) -> Array | None:
    """The leading principal directions (n, q) besides which there is only noise; None when that is none or all."""
    n = X.shape[1]
    centred = X - X.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(X))
    values, vectors = values[::-1], vectors[:, ::-1]
    rank = max(least, int((values > _ROUNDING * values[0]).sum()))
    parts = centred @ vectors[:, :rank]
    for q in range(least, rank):
        if _is_small_and_flat(values[:rank], q, len(X)) and _is_noise(values[:rank], parts, q, times, one_start):
            return vectors[:, :q]
    return vectors[:, :rank] if rank < n else None


def _is_small_and_flat(values: Array, q: int, m: int) -> bool:
    """Whether the variances after the first q are small beside these, and about the same."""
    rest = values[q:]
    sampling = (1 + np.sqrt(rest.size / m)) ** 2  # the largest of equal ones (Marchenko and Pastur)
    return bool(rest[0] < sampling * min(_NOISE * values[q - 1], _FLAT * rest.mean()))


def _is_noise(values: Array, parts: Array, q: int, times: Array | None, one_start: bool) -> bool:
    """Whether the principal components after the first q are noise."""
    in_time = is_noise_in_time(parts[:, q:], times, one_start)
    if in_time is None:
        in_time = len(values) - q >= _SEVERAL or values[q] < _STRICT * values[q - 1]
    return bool(in_time) and not _is_shared(parts[:, :q], parts[:, q:])


def _is_shared(Z: Array, R: Array) -> bool:
    """Whether neighbours in Z (m, q) have much of R (m, c) in common, in one direction at least."""
    step = -(-len(Z) // _ASKED)
    k = min(_NEIGHBORS + 1, len(Z))
    near = query_tree(kd_tree(Z), Z[::step], k)[1][:, 1:]
    common = (R[::step] * R[near].mean(axis=1)).mean(axis=0)
    return bool((common > _SHARED * R.var(axis=0)).any())
