"""What was seen: points, their times, and where the process starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _check
from ordiff._check import Array


@dataclass(frozen=True, eq=False)
class Seen:
    """What was seen: points, times, and where it all began."""

    X: Array
    times: Array | None  # (m,), or (m, 2) windows; None when unknown
    weights: Array
    start: Array  # (s, n)
    start_weights: Array
    horizon: float

    @classmethod
    def make(
        cls,
        settings: Any,
        X: Array,
        times: ArrayLike | None,
        weights: ArrayLike | None,
        start: tuple[Array, Array] | None = None,
        horizon: float | None = None,
    ) -> Seen:
        """Checked; ``start`` and ``horizon`` as they were fitted, or else from the settings."""
        m = len(X)
        horizon = settings.horizon if horizon is None else horizon
        if times is None:
            if settings.time_density is None or horizon is None:
                raise ValueError(
                    "without times, give time_density (a function of an array of times) and horizon; "
                    "or pass the times to fit(X, times)."
                )
            t = None
            horizon = _check.positive(horizon, "horizon")
        else:
            t = _check.times(times, m)
            if start is not None and horizon is not None:
                horizon = max(horizon, float(t.max()))  # a fitted chain can go on
            horizon = float(t.max()) if horizon is None else _check.positive(horizon, "horizon")
            _check.within_horizon(t, horizon)
        w = np.ones(m) if weights is None else _check.nodes(weights, m, "sample_weight")
        if not ((w >= 0).all() and w.any()):
            raise ValueError("sample_weight must not be negative, and not all zero.")
        if start is None:
            _warn_of_weights(w)
            _warn_of_times(t)
        points, share = _start(settings.start, X) if start is None else start
        return cls(X, t, w, points, share, horizon)


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
