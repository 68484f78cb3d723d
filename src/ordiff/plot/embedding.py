"""Where samples are drawn: their points, and a linear map of them to two coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ordiff import _validation
from ordiff._validation import Array
from ordiff.graph import NeighborGraph


@dataclass(frozen=True, eq=False)
class Embedding:
    """A linear map to two coordinates, and their names: those of the data, or the first two principal components."""

    origin: Array  # (n,)
    axes: Array  # (n, 2)
    names: tuple[str, str]

    @classmethod
    def of(cls, X: Array, names: tuple[str, ...] | None = None) -> Embedding:
        """The map for points (m, n), of n ≤ 2 coordinates themselves, whose names may be given."""
        n = X.shape[1]
        if n <= 2:
            labels = (*(names or tuple(f"$x_{k + 1}$" for k in range(n))), "")
            return cls(np.zeros(n), np.eye(n, 2), (labels[0], labels[1]))
        if names is not None and all(name.startswith("PC") for name in names):  # components already
            return cls(np.zeros(n), np.eye(n, 2), (names[0], names[1]))
        variances, vectors = np.linalg.eigh(np.cov(X.T))
        largest = vectors[np.abs(vectors).argmax(axis=0), range(n)]  # (n,), which fixes the signs
        axes = vectors[:, [-1, -2]] * np.sign(largest)[[-1, -2]]
        share = variances[[-1, -2]] / variances.sum()
        return cls(X.mean(axis=0), axes, (f"PC 1 ({share[0]:.0%} of variance)", f"PC 2 ({share[1]:.0%})"))

    @classmethod
    def prepared(cls, X: Array, names: tuple[str, ...], mean: Array, scale: Array) -> Embedding:
        """That of points (m, n) whose coordinates are columns x as (x − mean)/scale, in the units of the columns, or
        components of them: the first two when there are at most two or all are components."""
        n = X.shape[1]
        if len(mean) != n or all(name.startswith("PC") for name in names):  # components of columns
            return cls.of(X, names)
        if n > 2:
            return cls.of(X)
        return cls(
            -mean / scale,
            np.diag(scale)[:, :2] if n == 2 else scale * np.eye(1, 2),
            (names[0], names[1] if n == 2 else ""),
        )

    def points(self, X: Array) -> Array:
        """Points (p, n) to (p, 2)."""
        return (X - self.origin) @ self.axes

    def vectors(self, V: Array) -> Array:
        """Vectors (p, n) to (p, 2)."""
        return V @ self.axes

    def label(self, ax: Any) -> None:
        """Name the axes."""
        ax.set(xlabel=self.names[0], ylabel=self.names[1])


def samples_of(data: Any) -> Array:
    """The points (m, n) of a model's samples, of an operator or of a graph; points are returned as they are."""
    if hasattr(data, "samples_"):
        return np.asarray(data.samples_)
    graph_or_points = getattr(data, "graph", data)
    if isinstance(graph_or_points, NeighborGraph):
        return _validation.need_points(graph_or_points.X, "drawing")
    return _validation.points(graph_or_points, minimum=1)
