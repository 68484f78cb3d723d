"""Neighbour graphs and tangent spaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from ordiff import _validation
from ordiff._validation import Array
from ordiff.geometry import TangentSpaces
from ordiff.graph import NeighborGraph
from ordiff.plot.style import BLUE, GREEN, RED, SEQUENTIAL, axes_or_new, new_figure


def graph(neighbor_graph: NeighborGraph, values: Array | None = None, ax: Any = None, label: str = "") -> Any:
    """The edges of a neighbour graph over the first two coordinates, samples coloured by values. Returns the Axes."""
    X = _validation.need_points(neighbor_graph.X, "drawing a graph")
    ax = axes_or_new(ax, 5, 4.2)  # says what to install when there is no matplotlib
    from matplotlib.collections import LineCollection

    i, j = neighbor_graph.sources(), neighbor_graph.indices
    once = i < j
    lines = list(np.stack([X[i[once], :2], X[j[once], :2]], axis=1))
    ax.add_collection(LineCollection(lines, colors="0.55", lw=0.5, zorder=0))
    if values is None:
        ax.scatter(X[:, 0], X[:, 1], color="k", s=2)
    else:
        dots = ax.scatter(X[:, 0], X[:, 1], c=values, s=4, cmap=SEQUENTIAL)
        ax.figure.colorbar(dots, ax=ax, label=label)
    ax.set_aspect("equal")
    return ax


def tangents(spaces: TangentSpaces, ax: Any = None, every: int = 10, length: float = 0.1) -> Any:
    """The leading tangent directions at every few samples, over three coordinates. Returns the Axes."""
    if ax is None:
        ax = new_figure(5, 4.2).add_subplot(projection="3d")
    X, some = spaces.X[:, :3], slice(None, None, every)
    ax.scatter(*X.T, s=1, color="0.6", alpha=0.4)
    for direction, colour in zip(spaces.frames().transpose(2, 0, 1), (BLUE, RED, GREEN), strict=False):
        start, step = X[some], length * direction[some, :3]
        ax.quiver(*(start - step).T, *(2 * step).T, color=colour, lw=0.8, arrow_length_ratio=0)
    return ax
