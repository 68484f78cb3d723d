"""Where samples are drawn: their points in two coordinates, and vectors there.

`Embedding` is a linear map of the data. `LocalEmbedding` is any layout of the samples (UMAP, SPRING, ...): around
each point the layout is taken as an affine function of the data, by local linear regression,

    y ≈ a + B(x' − x),     a, B minimise  Σ_j w_j |y_j − a − B(x_j − x)|²,

over the samples x_j near x, so that a vector v at x becomes Bv. Samples that the layout has torn away from those
nearest to x do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.neighbors import NearestNeighbors

from ordiff import _validation
from ordiff._validation import Array
from ordiff.graph import NeighborGraph

# Neighbours of a local regression for each coordinate of the data, and the least and the most of them.
_PER_COORDINATE, _FEWEST, _MOST = 8, 30, 200
# Neighbours are torn away when they are so many times as far from the nearest, in the layout, as this share of them:
# in d coordinates without a tear the farthest of k is (1/share)^(1/d) times as far.
_TORN, _NEAR_SHARE = 4.0, 0.3
# Ridge of the regression, in the mean variance of the neighbours: directions in which they do not differ have no image.
_RIDGE = 0.01
# Covariances below this share of the variances: coordinates are principal components already.
_UNCORRELATED = 1e-6


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
        covariance = np.cov(X.T)
        variances, vectors = np.linalg.eigh(covariance)
        if _are_components(covariance):  # of more coordinates, whose variance is not known here
            return cls(np.zeros(n), np.eye(n, 2), ("component 1", "component 2"))
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
        """Points (..., n) to (..., 2)."""
        return (X - self.origin) @ self.axes

    def vectors(self, X: Array, V: Array) -> Array:
        """Vectors V (p, n) at points X (p, n) to (p, 2)."""
        return V @ self.axes

    def label(self, ax: Any) -> None:
        """Name the axes."""
        ax.set(xlabel=self.names[0], ylabel=self.names[1])


def _are_components(covariance: Array) -> bool:
    """Whether coordinates are uncorrelated and in order of their variances, as principal components are."""
    variances = np.diag(covariance)
    scale = np.sqrt(np.outer(variances, variances))
    off = np.abs(covariance - np.diag(variances)) <= _UNCORRELATED * np.maximum(scale, np.finfo(float).tiny)
    return bool(off.all() and (np.diff(variances) <= 0).all())


class LocalEmbedding:
    """Any two coordinates of the samples, carried to other points, and to vectors, by local linear regression.

    Parameters
    ----------
    X, Y : array of shape (m, n) and (m, 2)
        The samples in the data, and where they are drawn.
    names : tuple of str
        Of the two coordinates.
    """

    def __init__(self, X: ArrayLike, Y: ArrayLike, names: tuple[str, str] = ("embedding 1", "embedding 2")) -> None:
        self.X, self.Y, self.names = _validation.points(X), np.asarray(Y, dtype=np.float64), names
        if self.Y.shape != (len(self.X), 2) or not np.isfinite(self.Y).all():
            raise ValueError(
                f"an embedding must be finite numbers of shape ({len(self.X)}, 2), a row for each sample; got "
                f"{self.Y.shape}."
            )
        m, n = self.X.shape
        self._k = min(m, int(np.clip(_PER_COORDINATE * (n + 1), _FEWEST, _MOST)))
        self._search = NearestNeighbors(n_neighbors=self._k).fit(self.X)

    def points(self, X: Array) -> Array:
        """Points (..., n) to (..., 2): samples to where they are, others to the mean of the samples around them."""
        if X is self.X or (X.shape == self.X.shape and np.array_equal(X, self.X)):
            return self.Y
        flat = X.reshape(-1, X.shape[-1])
        distance, near = self._search.kneighbors(flat, min(5, self._k))
        weight = 1 / np.maximum(distance, 1e-9 * max(float(distance.mean()), np.finfo(float).tiny))
        weight /= weight.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("pk,pkc->pc", weight, self.Y[near])).reshape(*X.shape[:-1], 2)

    def vectors(self, X: Array, V: Array) -> Array:
        """Vectors V (p, n) at points X (p, n) to (p, 2)."""
        out = np.empty((len(X), 2))
        for rows in np.array_split(np.arange(len(X)), max(1, len(X) // 2000)):
            distance, near = self._search.kneighbors(X[rows])
            w = np.exp(-0.5 * (distance / np.maximum(distance[:, -1:] / 2, np.finfo(float).tiny)) ** 2)
            x, y = self.X[near], self.Y[near]
            w *= _on_this_side(y)
            w /= w.sum(axis=1, keepdims=True)
            x = x - np.einsum("pk,pkn->pn", w, x)[:, None]
            y = y - np.einsum("pk,pkc->pc", w, y)[:, None]
            C = np.einsum("pk,pkn,pkl->pnl", w, x, x, optimize=True)
            ridge = _RIDGE * np.trace(C, axis1=1, axis2=2) / C.shape[1] + np.finfo(float).tiny
            C = C + ridge[:, None, None] * np.eye(C.shape[1])
            slopes = np.linalg.solve(C, np.einsum("pk,pkn,pkc->pnc", w, x, y, optimize=True))
            out[rows] = np.einsum("pn,pnc->pc", V[rows], slopes)
        return out

    def label(self, ax: Any) -> None:
        """Name the axes; their numbers mean nothing."""
        ax.set(xlabel=self.names[0], ylabel=self.names[1], xticks=[], yticks=[])


def _on_this_side(y: Array) -> Array:
    """Which of the neighbours y (p, k, 2) in a layout, the nearest one first, are not torn away from it, (p, k)."""
    distance = np.linalg.norm(y - y[:, :1], axis=2)
    usual = np.quantile(distance, _NEAR_SHARE, axis=1, keepdims=True)
    return np.asarray(distance <= np.where(usual > 0, _TORN * usual, np.inf))


AnyEmbedding = Embedding | LocalEmbedding
# What the functions of this package take: an embedding, an array (m, 2) of any layout, or the usual one.
Layout = AnyEmbedding | ArrayLike | None


def as_embedding(embedding: Layout, X: Array) -> AnyEmbedding:
    """Where samples X (m, n) are drawn: by default their coordinates or first two principal components; an array (m, 2)
    is any layout of them."""
    if embedding is None:
        return Embedding.of(X)
    return embedding if isinstance(embedding, Embedding | LocalEmbedding) else LocalEmbedding(X, embedding)


def samples_of(data: Any) -> Array:
    """The points (m, n) of a model's samples, of an operator or of a graph; points are returned as they are."""
    if hasattr(data, "samples_"):
        return np.asarray(data.samples_)
    graph_or_points = getattr(data, "graph", data)
    if isinstance(graph_or_points, NeighborGraph):
        return _validation.need_points(graph_or_points.X, "drawing")
    return _validation.points(graph_or_points, minimum=1)
