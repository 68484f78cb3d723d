"""Averages for drawing: means over the cells of a grid, and medians along one variable."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.ndimage import median_filter

from ordiff._validation import Array


def cells(Y: Array, W: Array, bins: int) -> tuple[tuple[Array, Array], Array, Any]:
    """Centres of a grid over Y (m, 2), the mean of W (m, 2) in each cell, and how many samples it holds."""
    low, high = Y.min(axis=0), Y.max(axis=0)
    high = np.where(high > low, high, low + 1.0)
    edges = [np.linspace(a, b, bins + 1) for a, b in zip(low, high, strict=True)]
    cell = np.clip(((Y - low) / (high - low) * bins).astype(int), 0, bins - 1)
    flat = cell[:, 0] * bins + cell[:, 1]
    count = np.bincount(flat, minlength=bins**2)
    total = np.stack([np.bincount(flat, weights=w, minlength=bins**2) for w in W.T], axis=1)
    mean = total / np.maximum(count, 1)[:, None]
    x, y = (0.5 * (e[1:] + e[:-1]) for e in edges)
    return (x, y), mean.reshape(bins, bins, 2), count.reshape(bins, bins)


def axis_scales(Y: Array) -> Array:
    """By how much two coordinates are to be divided for lengths on a screen, (2,): by nothing, unless one of them
    spreads more than five times as far as the other."""
    spread = np.ptp(np.quantile(Y, [0.01, 0.99], axis=0), axis=0)
    if not spread.min() > 0 or spread.max() <= 5 * spread.min():
        return np.ones(2)
    return np.asarray(spread / spread.mean())


def grid_arrows(Y: Array, W: Array, bins: int) -> tuple[Array, Array, float, float]:
    """Mean vectors of W at the grid's cells that hold samples.

    Returns their positions (p, 2), the vectors (p, 2), the size that nearly all stay below, and the width of a cell;
    both in units of `axis_scales`.
    """
    scale = axis_scales(Y)
    centres, mean, count = cells(Y, W, bins)
    occupied = count >= min(2, count.max())
    at = np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1)[occupied]
    vectors = mean[occupied]
    longest = float(np.quantile(np.linalg.norm(vectors / scale, axis=1), 0.95)) or 1.0
    width = float(np.mean([np.ptp(c) / s for c, s in zip(centres, scale, strict=True)])) / bins
    return at, vectors, longest, width


def running(x: Array, *values: Array, bins: int = 30) -> list[Array]:
    """Medians of x and of each of ``values`` over groups of samples that are neighbours in x."""
    groups = np.array_split(np.argsort(x), max(1, min(bins, len(x) // 5)))
    return [np.array([np.median(v[rows]) for rows in groups]) for v in (x, *values)]


def without_spikes(loss: Array) -> Array:
    """The losses of a fit, NaN where a step of a line search went far: well above those around it."""
    around = median_filter(np.nan_to_num(loss, nan=np.inf), size=5, mode="nearest")
    low, high = np.nanmin(loss), np.nanquantile(loss, 0.9)
    return np.where(loss <= around + 0.03 * (high - low) + 1e-12, loss, np.nan)


def loss_range(loss: Array) -> tuple[float, float]:
    """Limits of an axis for the losses of a fit that leave out the steps of a line search that went far."""
    low, high = np.nanmin(loss), np.nanquantile(loss, 0.9)
    margin = 0.1 * (high - low) or 1e-3
    return low - margin, high + margin
