"""Fields over two coordinates of the samples: values as colours, the drift as arrows, the potential as contours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array
from ordiff.fields import velocity
from ordiff.operator import MarkovOperator
from ordiff.plot.binning import axis_scales, grid_arrows, smooth_grid
from ordiff.plot.embedding import AnyEmbedding, Embedding, Layout, as_embedding, samples_of
from ordiff.plot.style import BLUE, ORANGE, RED, SEQUENTIAL, axes_or_new, drift_unit, marker_size, units

if TYPE_CHECKING:
    from ordiff.model import SnapshotSDE


def field(
    data: Any,
    values: ArrayLike | str = "ordering",
    ax: Any = None,
    *,
    label: str = "",
    title: str = "",
    cmap: str = SEQUENTIAL,
    embedding: Layout = None,
) -> Any:
    """Values at the samples of a model, operator or graph, or at points (m, n), as colours. Returns the Axes.

    values: one for each sample, or the name of a model's result: "ordering", "noise", "ordering_std", "noise_std".
    """
    X = samples_of(data)
    name = values if isinstance(values, str) else ""
    v = np.asarray(getattr(data, f"{name}_")) if name else np.asarray(values, dtype=np.float64)
    if v.shape != (len(X),):
        raise ValueError(f"values must have shape ({len(X)},), one for each sample; got {v.shape}.")
    ax = axes_or_new(ax)
    embedding = as_embedding(embedding, X)
    finite = v[np.isfinite(v)]
    low, high = np.quantile(finite, [0.005, 0.995]) if finite.size else (0.0, 1.0)  # not the range of one outlier
    if X.shape[1] == 1:
        return _against(ax, data, embedding, v, label or name.replace("_", " "), title)
    dots = ax.scatter(*embedding.points(X).T, c=v, s=marker_size(len(X)), cmap=cmap, vmin=low, vmax=high, linewidths=0,
                      rasterized=True)  # fmt: skip
    ax.figure.colorbar(dots, ax=ax, label=label or name.replace("_", " "))
    mark_start(ax, data, embedding)
    embedding.label(ax)
    equal_axes(ax, embedding.points(X))
    ax.set_title(title, fontsize=10)
    return ax


def equal_axes(ax: Any, Y: Array) -> None:
    """One scale for both axes, unless one of them spreads far more than the other."""
    if (axis_scales(Y) == 1).all():
        ax.set_aspect("equal", adjustable="datalim")


def _against(ax: Any, data: Any, embedding: AnyEmbedding, values: Array, label: str, title: str = "") -> Any:
    """Values at the samples over their only coordinate, with a line at the start."""
    if hasattr(data, "start_points_"):
        start = np.average(embedding.points(data.start_points_)[:, 0], weights=data.start_weights_)
        ax.axvline(start, color=RED, lw=1, ls=":", label="start")
        ax.legend(fontsize=7, loc="best", framealpha=0.7)
    ax.plot(embedding.points(samples_of(data))[:, 0], values, ".", ms=3, color=BLUE, alpha=0.5, rasterized=True)
    embedding.label(ax)
    ax.set(ylabel=label)
    ax.set_title(title, fontsize=10)
    return ax


def mark_start(ax: Any, model: Any, embedding: AnyEmbedding) -> None:
    """A star where the process of a model starts; of several points at their mean."""
    if not hasattr(model, "start_points_") or any(line.get_gid() == "start" for line in ax.lines):
        return
    points, weights = embedding.points(model.start_points_), model.start_weights_
    label = "start" if len(points) == 1 else f"start (mean of {len(points)})"
    ax.plot(*np.average(points, axis=0, weights=weights), "*", color=RED, ms=12, mec="w", zorder=5, label=label,
            gid="start")  # fmt: skip
    ax.legend(fontsize=7, loc="best", framealpha=0.7)


def drift(
    model: SnapshotSDE | MarkovOperator,
    ax: Any = None,
    *,
    kind: str = "arrows",
    part: str = "all",
    bins: int = 20,
    colour: str = "k",
    samples: bool = True,
    length: str = "",
    time: str = "",
    embedding: Layout = None,
) -> Any:
    """The drift over two coordinates, as "arrows" or "streamlines": its mean in each cell of a grid. Returns the Axes.

    Of a model what it learned, or one ``part`` of it: the "gradient" of the ordering, or the "rotation" beside it. Of
    an operator its displacement against that of its symmetric part.
    """
    _validation.option(kind, "kind", ("arrows", "streamlines"))
    _validation.option(part, "part", ("all", "gradient", "rotation"))
    X = samples_of(model)
    V = velocity(model, "symmetric") if isinstance(model, MarkovOperator) else _part_of_drift(model, part)
    ax = axes_or_new(ax)
    embedding = as_embedding(embedding, X)
    Y, W = embedding.points(X), embedding.vectors(X, V)
    if X.shape[1] == 1:
        ax.axhline(0, color="0.7", lw=0.8)
        return _against(ax, model, embedding, W[:, 0], f"drift{units(drift_unit(length, time))}")
    if samples:
        ax.scatter(*Y.T, s=marker_size(len(Y)), color="0.8", linewidths=0, zorder=0, rasterized=True)
    if kind == "streamlines":
        _streamlines(ax, Y, W, bins, colour)
    else:
        _arrows(ax, Y, W, bins, colour, drift_unit(length, time))
    mark_start(ax, model, embedding)
    embedding.label(ax)
    equal_axes(ax, Y)
    return ax


def _part_of_drift(model: SnapshotSDE, part: str) -> Array:
    if part == "all":
        return model.drift_
    return model.rotation_ if part == "rotation" else model.drift_ - model.rotation_


def rotation_share(model: SnapshotSDE) -> Array:
    """The share of the drift that turns at each sample, ‖w‖²/(‖w‖² + ‖∇l‖²), (m,), 0 where there is no drift."""
    turning, along = ((_part_of_drift(model, part) ** 2).sum(axis=1) for part in ("rotation", "gradient"))
    total = turning + along
    return np.asarray(np.divide(turning, total, out=np.zeros_like(total), where=total > 0))


def _streamlines(ax: Any, Y: Array, W: Array, bins: int, colour: str) -> None:
    grid, mean, there = smooth_grid(Y, W, 2 * bins)
    u, v = (np.ma.masked_where(~there, mean[..., c]).T for c in (0, 1))
    speed = np.ma.hypot(u / axis_scales(Y)[0], v / axis_scales(Y)[1])
    width = 0.4 + 0.9 * np.sqrt(speed.filled(0.0) / max(float(speed.max()), 1e-300))
    ax.streamplot(*grid, u, v, color=colour, linewidth=width, density=1.6, arrowsize=0.8, zorder=3)  # fmt: skip


def _arrows(ax: Any, Y: Array, W: Array, bins: int, colour: str, unit: str) -> None:
    at, vectors, longest, width = grid_arrows(Y, W, bins)
    edge = {} if colour == "k" else {"edgecolor": "k", "linewidth": 0.4}
    ax.quiver(*at.T, *vectors.T, color=colour, angles="xy", scale_units="xy", scale=longest / (1.7 * width),
              width=0.0045 if edge else 0.0035, zorder=3, **edge)  # fmt: skip
    if (axis_scales(Y) != 1).any():  # no length fits both axes
        return
    said = f"longest arrows {longest:.2g} {unit}".rstrip() + " or more"
    ax.annotate(said, (0.98, 0.02), xycoords="axes fraction", ha="right", fontsize=7,
                bbox={"facecolor": "w", "alpha": 0.8, "lw": 0, "pad": 1.5}, zorder=4)  # fmt: skip


def landscape(
    model: SnapshotSDE,
    ax: Any = None,
    *,
    levels: int = 18,
    unit: str = "",
    embedding: Layout = None,
) -> Any:
    """The potential −l over two coordinates: low where the drift leads. Returns the Axes.

    In two dimensions filled contours over the states; in more, the mean over the samples of each cell.
    """
    ax = axes_or_new(ax)
    X = samples_of(model)
    embedding = as_embedding(embedding, X)
    if X.shape[1] == 1:
        return _against(ax, model, embedding, -model.ordering_, f"potential −l{units(unit)}")
    if isinstance(embedding, Embedding) and X.shape[1] == 2 and model.states_.points.shape[1] == 2:
        potential = _contours(ax, model, embedding, levels)
    else:
        potential = _cell_means(ax, embedding.points(X), -model.ordering_)
    ax.figure.colorbar(potential, ax=ax, label=f"potential −l{units(unit)}")
    mark_start(ax, model, embedding)
    embedding.label(ax)
    equal_axes(ax, embedding.points(X))
    return ax


def paths(
    model: SnapshotSDE, times: ArrayLike, points: ArrayLike, ax: Any = None, *, most: int = 50, time: str = "",
    embedding: Layout = None,
) -> Any:  # fmt: skip
    """Simulated paths over two coordinates, as `SnapshotSDE.simulate` returns them, on the samples. Returns the Axes.

    times: (T,); points: (n, T, coordinates), of which at most ``most`` are drawn; their ends are dots. In one dimension
    against the time.
    """
    ax = axes_or_new(ax)
    X, P, t = samples_of(model), np.asarray(points, dtype=np.float64), np.asarray(times, dtype=np.float64)
    embedding = as_embedding(embedding, X)
    Y = embedding.points(P[:most])
    if X.shape[1] == 1:
        ax.plot(t, Y[:, :, 0].T, color=BLUE, lw=0.7, alpha=0.5)
        ax.set(xlabel=f"time since the start{units(time)}", ylabel=embedding.names[0])
    else:
        ax.scatter(*embedding.points(X).T, s=marker_size(len(X)), color="0.85", linewidths=0, zorder=0, rasterized=True)
        for path in Y:
            ax.plot(*path.T, color=BLUE, lw=0.6, alpha=0.4)
        ax.plot(*Y[:, -1].T, "o", ms=3, color=ORANGE, mec="k", mew=0.3, zorder=4, label="ends")
        embedding.label(ax)
        mark_start(ax, model, embedding)
        equal_axes(ax, embedding.points(X))
    ax.set_title(f"{len(Y)} simulated paths until {t[-1]:.4g} {time}".rstrip(), fontsize=10)
    return ax


def _contours(ax: Any, model: SnapshotSDE, embedding: AnyEmbedding, levels: int) -> Any:
    from matplotlib.ticker import MaxNLocator
    from matplotlib.tri import Triangulation

    points = model.states_.points
    triangles = Triangulation(*points.T).triangles  # in the coordinates of the fit, whose units are alike
    corners = points[triangles]
    sides = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    mesh = Triangulation(*embedding.points(points).T, triangles, mask=sides > 3 * np.median(sides))  # not across gaps
    potential = -model.predict(points)
    low, high = np.quantile(-model.ordering_, [0.01, 0.99])  # not the range of edges that no sample is near
    low, high = (max(potential.min(), 1.5 * low - 0.5 * high), min(potential.max(), 1.5 * high - 0.5 * low))
    if not high > low:
        return ax.tricontourf(mesh, potential, levels=levels, cmap="cividis")
    at = MaxNLocator(levels + 1).tick_values(low, high)
    below, above = potential.min() < at[0], potential.max() > at[-1]
    beyond = "both" if below and above else "min" if below else "max" if above else "neither"
    return ax.tricontourf(mesh, potential, levels=at, cmap="cividis", extend=beyond)


def _cell_means(ax: Any, Y: Array, values: Array) -> Any:
    grid, mean, there = smooth_grid(Y, values[:, None], 60)
    shown = np.ma.masked_where(~there, mean[..., 0])
    low, high = np.quantile(shown.compressed(), [0.01, 0.99])  # not the range of one outlier
    return ax.pcolormesh(*grid, shown.T, cmap="cividis", vmin=low, vmax=high, rasterized=True)
