"""Averages for drawing: means over the cells of a grid, and medians along one variable."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

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

    Returns their positions (p, 2), the vectors (p, 2), the size of the longest, and the width of a cell; both in units
    of `axis_scales`. Vectors longer than nearly all, or than 8 times the middle one, are drawn as long as these.
    """
    scale = axis_scales(Y)
    centres, mean, count = cells(Y, W, bins)
    occupied = count >= min(2, count.max())
    at = np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1)[occupied]
    vectors = mean[occupied]
    size = np.linalg.norm(vectors / scale, axis=1)
    middle, high = np.quantile(size, [0.5, 0.95])
    longest = float(min(high, 8 * middle) if middle > 0 else high) or 1.0
    vectors = vectors / np.maximum(size / longest, 1.0)[:, None]
    width = float(np.mean([np.ptp(c) / s for c, s in zip(centres, scale, strict=True)])) / bins
    return at, vectors, longest, width


def running(x: Array, *values: Array, bins: int = 30) -> list[Array]:
    """Medians of x and of each of ``values`` over groups of samples that are neighbours in x."""
    groups = np.array_split(np.argsort(x), max(1, min(bins, len(x) // 5)))
    return [np.array([np.median(v[rows]) for rows in groups]) for v in (x, *values)]


def stages(losses: Array, numbers: Any) -> list[tuple[Array, Array]]:
    """Evaluations (from 1 on) and losses above the lowest of their stage, for every stage of at least three; without
    those of a line search that went far, more than 1,000 times as high as the first."""
    out = []
    for number in np.unique(numbers):
        at = np.flatnonzero(numbers == number)
        above = losses[at] - np.nanmin(losses[at]) if np.isfinite(losses[at]).any() else np.zeros(at.size)
        kept = np.isfinite(above) & (above > 0) & (above <= 1000 * max(above[0], 1e-12))
        if at.size >= 3 and kept.any():
            out.append((at[kept] + 1, above[kept]))
    return out


def smooth_grid(Y: Array, W: Array, bins: int) -> tuple[tuple[Array, Array], Array, Any]:
    """Vectors or values W (m, c) at the points of a grid over Y (m, 2), as means over the samples around them.

    Weights are Gaussian, as wide as a cell or as the distance to the tenth sample, whichever is more. Returns the
    coordinates of the grid, the means (bins, bins, c), and where there are samples (bins, bins): not further than 1.5
    cells or twice the usual distance of near samples.
    """
    scale = axis_scales(Y)
    low, high = np.quantile(Y, [0.002, 0.998], axis=0)
    high = np.where(high > low, high, low + 1.0)
    x, y = (np.linspace(a, b, bins) for a, b in zip(low, high, strict=True))
    at = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    tree, cell = cKDTree(Y / scale), float(np.mean((high - low) / scale)) / bins
    k = min(60, len(Y))
    distance, near = tree.query(at / scale, k)
    distance, near = distance.reshape(len(at), k), near.reshape(len(at), k)
    width = np.maximum(0.7 * cell, distance[:, min(9, k - 1)])
    weight = np.exp(-0.5 * (distance / width[:, None]) ** 2) + 1e-300
    mean = np.einsum("pk,pkc->pc", weight, W[near]) / weight.sum(axis=1, keepdims=True)
    usual = float(np.quantile(tree.query(Y / scale, min(4, len(Y)))[0].reshape(len(Y), -1)[:, -1], 0.9))
    there = distance[:, 0] <= max(1.5 * cell, 2 * usual)
    return (x, y), mean.reshape(bins, bins, -1), there.reshape(bins, bins)
