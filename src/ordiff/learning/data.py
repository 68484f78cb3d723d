"""The snapshots: points, their times and weights, and where the process starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordiff import _check
from ordiff._check import Array
from ordiff.learning.settings import TimeDensity


@dataclass(frozen=True, eq=False)
class Snapshots:
    """Points that were each seen once, when, and where the process starts."""

    X: Array
    times: Array | None  # (m,), or (m, 2) windows; None when unknown
    weights: Array
    start: Array  # (s, n)
    start_weights: Array
    horizon: float

    @classmethod
    def of(
        cls, start: Any, design: TimeDensity, X: Array, times: ArrayLike | None, weights: ArrayLike | None
    ) -> Snapshots:
        """Those that a fit gets, checked."""
        m = len(X)
        if times is None:
            if design.density is None or design.horizon is None:
                raise ValueError(
                    "without times, give times=TimeDensity(density, horizon), with a function of an array of times or "
                    '"uniform"; or pass the times to fit(X, times).'
                )
            t, horizon = None, float(design.horizon)
        else:
            t = _check.times(times, m)
            horizon = float(t.max()) if design.horizon is None else float(design.horizon)
            _check.within_horizon(t, horizon)
        w = np.ones(m) if weights is None else _check.nodes(weights, m, "sample_weight")
        if not ((w >= 0).all() and w.any()):
            raise ValueError("sample_weight must not be negative, and not all zero.")
        _warn_of_weights(w)
        _warn_of_times(t)
        points, share = _start(start, X)
        return cls(X, t, w, points, share, horizon)

    def at(self, X: Array, times: ArrayLike | None) -> Snapshots:
        """Other points of the same process; their times are known if those of these are, and may be later."""
        if (times is None) != (self.times is None):
            raise ValueError("give times for these points just when the model was fitted with times.")
        m = len(X)
        t = None if times is None else _check.times(times, m)
        horizon = self.horizon if t is None else max(self.horizon, float(t.max()))
        return replace(self, X=X, times=t, weights=np.ones(m), horizon=horizon)

    def only(self, kept: NDArray[np.bool_]) -> Snapshots:
        """Some of them, (m,)."""
        times = None if self.times is None else self.times[kept]
        return replace(self, X=self.X[kept], times=times, weights=self.weights[kept])

    @property
    def latest(self) -> Array | None:
        """The time of each, or the end of its window, (m,); None when unknown."""
        return self.times if self.times is None or self.times.ndim == 1 else self.times.max(axis=1)

    @property
    def one_start(self) -> bool:
        """Whether the process starts at a single point."""
        return len(self.start) == 1


def _warn_of_weights(w: Array) -> None:
    mean = float(w[w > 0].mean())
    if not 0.1 <= mean <= 10:
        _check.warn(
            f"sample_weight counts samples, and these have a mean of {mean:.2g}: what is known, and how smooth the "
            "fields are, is judged as for so many samples in all. If that is not meant, scale them to a mean of 1."
        )


def _warn_of_times(t: Array | None) -> None:
    if t is not None and t.max() > t.min() > 0.5 * t.max():
        _check.warn(
            f"all samples were seen between {t.min():.6g} and {t.max():.6g}, and the start is at time 0. If the start "
            "is where the earliest samples are, count the times from there: times - times.min()."
        )


def _start(start: Any, X: Array) -> tuple[Array, Array]:
    """Points (s, n) and weights (s,) of a start: a point, index, indices, mask or mass."""
    m, n = X.shape
    if start is None:
        raise ValueError("start is None: say where the process starts (a point, a sample's index, or several).")
    array = np.atleast_1d(np.asarray(start))
    if array.dtype.kind == "b":
        rows = np.flatnonzero(array) if array.shape == (m,) else np.empty(0, int)
        if rows.size == 0:
            raise ValueError(f"start is a mask: it must have shape ({m},) and mark at least one sample.")
        return X[rows], np.full(rows.size, 1 / rows.size)
    if array.dtype.kind in "iu" and array.ndim == 1 and array.shape != (m,):
        if array.shape == (n,) and n > 1:
            raise ValueError(
                f"start = {array.tolist()} may be a point or {n} samples: write a point with decimals "
                f"({array.astype(float).tolist()}), and samples as a mask."
            )
        rows = _check.indices(array, m, "start")
        return X[rows], np.full(rows.size, 1 / rows.size)
    if array.shape == (m,) and n != m:
        mass = _check.nodes(array, m, "start")
        if not ((mass >= 0).all() and mass.any()):
            raise ValueError("start is a mass on the samples: it must not be negative, and not all 0.")
        rows = np.flatnonzero(mass)
        return X[rows], mass[rows] / mass.sum()
    point = _check.nodes(array, n, "start")
    _check.near_samples(point, X, "start")
    return point[None, :], np.ones(1)
