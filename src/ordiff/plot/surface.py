"""The potential as a surface in three dimensions, with paths that run down on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff._validation import Array
from ordiff.plot.binning import smooth_grid
from ordiff.plot.embedding import Layout, as_embedding, samples_of
from ordiff.plot.style import BLUE, ORANGE, RED, new_figure, units

if TYPE_CHECKING:
    from ordiff.model import SnapshotSDE

# How far above the surface paths are drawn, as a share of its span.
_LIFTED = 0.02


def landscape_3d(
    model: SnapshotSDE,
    points: ArrayLike | None = None,
    ax: Any = None,
    *,
    most: int = 15,
    unit: str = "",
    embedding: Layout = None,
) -> Any:
    """The potential −l over two coordinates as a surface, low where the drift leads. Returns the Axes.

    Parameters
    ----------
    model : SnapshotSDE
        A fitted model of two coordinates or more.
    points : array of shape (paths, T, n)
        Paths, as `SnapshotSDE.simulate` returns them, of which at most ``most`` are drawn, at their own potential.
    ax : Axes
        Of three dimensions, such as figure.add_subplot(projection="3d").
    unit : str
        Of the potential, for its label.
    embedding : Embedding, LocalEmbedding or array of shape (m, 2)
        The two coordinates.
    """
    X = samples_of(model)
    if X.shape[1] == 1:
        raise ValueError("a surface needs two coordinates: use plot.landscape, a curve in one dimension.")
    if ax is None:
        ax = new_figure(6.4, 5.2).add_subplot(projection="3d")
    embedding = as_embedding(embedding, X)
    (x, y), z = potential_surface(embedding.points(X), -model.ordering_)
    ax.plot_surface(
        *np.meshgrid(x, y, indexing="ij"), z, cmap="cividis", lw=0, rcount=len(x), ccount=len(y), alpha=0.85
    )
    lift = _LIFTED * float(np.nanmax(z) - np.nanmin(z))
    if points is not None:
        paths = np.asarray(points, dtype=np.float64)[:most]
        at = embedding.points(paths)
        heights = -model.predict(paths.reshape(-1, paths.shape[-1])).reshape(paths.shape[:2])
        heights = np.clip(heights, np.nanmin(z), np.nanmax(z)) + lift
        for line, height in zip(at, heights, strict=True):
            ax.plot(*line.T, height, color=BLUE, lw=0.8, alpha=0.8, zorder=5)
        ax.plot(*at[:, -1].T, heights[:, -1], "o", ms=3, color=ORANGE, mec="k", mew=0.3, zorder=6, label="ends")
    start = np.average(embedding.points(model.start_points_), axis=0, weights=model.start_weights_)
    ax.plot(*start[:, None], [lift], "*", color=RED, ms=12, mec="w", zorder=7, label="start")
    ax.legend(fontsize=7)
    ax.set(xlabel=embedding.names[0], ylabel=embedding.names[1], zlabel=f"potential −l{units(unit)}")
    ax.view_init(elev=50, azim=-65)
    ax.tick_params(labelsize=7)
    return ax


def potential_surface(Y: Array, potential: Array, bins: int = 50) -> tuple[tuple[Array, Array], Array]:
    """A grid over samples (m, 2) and their potential (m,) on it, smoothed: (bins, bins), NaN where no samples are, and
    within the range of nearly all samples."""
    grid, mean, there = smooth_grid(Y, potential[:, None], bins)
    low, high = np.quantile(potential, [0.005, 0.995])
    return grid, np.where(there, np.clip(mean[..., 0], low, high), np.nan)
