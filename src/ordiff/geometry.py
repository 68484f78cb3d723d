"""Geometry of the sampled manifold: tangent spaces, gradients, sampling density, length scales.

All of it is estimated from the neighbour graph; ``k`` counts the nearest others of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log, pi

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordiff import _check, _sparse
from ordiff._check import Array
from ordiff.graph import NeighborGraph

# Samples whose local PCA is taken at a time: bounds the temporaries.
_BATCH_NUMBERS = 4_000_000


@dataclass(frozen=True, eq=False)
class TangentSpaces:
    """Tangent spaces by local principal component analysis.

    With δX (k, n) the rows x_j − x_i over the k nearest neighbours and δX = U S Vᵀ, d_i is the least rank that holds
    more than ``variance`` of the sum of S², and the gradient of f at i is V G_i δf with G_i = S⁻¹Uᵀ (d_i × k).
    """

    neighbors: NDArray[np.intp]  # (m, k)
    dimensions: NDArray[np.intp]  # (m,)  d_i
    dimension: int  # the median of d_i
    axes: Array  # (m, n, r)  V, orthonormal columns, the longest direction first
    weights: Array  # (m, r, k)  G; row a is 0 where a ≥ d_i

    @classmethod
    def fit(cls, graph: NeighborGraph, k: int = 20, variance: float = 0.9) -> TangentSpaces:
        """Tangent spaces at every sample of the graph from its k nearest neighbours."""
        X = _check.need_points(graph.X, "local principal component analysis")
        k = _check.count(k, "k", 1)
        variance = _check.positive(variance, "variance")
        if variance >= 1:
            raise ValueError(f"variance must be below 1; got {variance:g}.")
        m, n = X.shape
        neighbors, _ = graph.nearest(k)
        rank = min(k, n)
        dimensions = np.empty(m, np.intp)
        axes, weights = np.empty((m, n, rank)), np.empty((m, rank, k))
        step = max(1, _BATCH_NUMBERS // (k * n))
        for start in range(0, m, step):
            rows = slice(start, start + step)
            offsets = X[neighbors[rows]] - X[rows, None, :]
            U, S, Vt = np.linalg.svd(offsets, full_matrices=False)
            energy = np.cumsum(S**2, axis=1)
            d = 1 + np.sum(energy[:, :-1] <= variance * energy[:, -1:], axis=1)
            dimensions[rows] = np.where(energy[:, -1] > 0, d, 0)
            kept = np.arange(rank) < dimensions[rows, None]
            axes[rows] = Vt.transpose(0, 2, 1)
            inverse = np.divide(1.0, S, out=np.zeros_like(S), where=kept & (S > 0))
            weights[rows] = inverse[:, :, None] * U.transpose(0, 2, 1)
        dimension = max(1, int(np.median(dimensions)))
        return cls(neighbors, dimensions, dimension, axes, weights)

    def basis(self, i: int) -> Array:
        """An orthonormal basis of the tangent space at sample i, (n, d_i)."""
        return self.axes[i, :, : self.dimensions[i]]

    def frames(self, dimension: int | None = None) -> Array:
        """The leading principal directions of every sample, as many as the (median) dimension, (m, n, d)."""
        return self.axes[:, :, : self.dimension if dimension is None else dimension]

    def gradient(self, f: ArrayLike) -> Array:
        """The gradient of a function on the samples, in ambient coordinates, (m, n)."""
        f = _check.nodes(f, len(self.neighbors), "f")
        return self.gradient_from(f[self.neighbors] - f[:, None])

    def gradient_norm(self, f: ArrayLike) -> Array:
        """The norm of the gradient, (m,)."""
        return np.linalg.norm(self.gradient(f), axis=1)

    def gradient_from(self, differences: Array) -> Array:
        """The gradient, (m, n), of a function known only by its differences to the neighbours, (m, k)."""
        return np.einsum("mna,mak,mk->mn", self.axes, self.weights, differences, optimize=True)


def intrinsic_dimension(graph: NeighborGraph) -> int:
    """The median dimension of local PCA on up to 20 neighbours."""
    return TangentSpaces.fit(graph, k=tangent_neighbors(graph)).dimension


def tangent_neighbors(graph: NeighborGraph, most: int = 20) -> int:
    """How many neighbours local PCA may use at every sample of this graph: 20, or all where there are fewer."""
    return max(1, min(most, int(np.diff(graph.indptr).min()) - 1))


def knn_density(graph: NeighborGraph, k: int = 16, dimension: int | None = None) -> Array:
    """Sampling density q_i = (k − 1) / ((m − 1) V_d r_k(i)^d), with respect to the d-dimensional volume.

    r_k is the distance to the k-th other sample and V_d the volume of the unit ball; d is the intrinsic dimension,
    estimated when not given.
    """
    k = _check.count(k, "k", 2)
    d = intrinsic_dimension(graph) if dimension is None else _check.count(dimension, "dimension", 1)
    radius = _positive_radius(graph, k)
    log_ball = 0.5 * d * log(pi) - lgamma(0.5 * d + 1)
    return np.exp(np.log((k - 1) / (graph.n_points - 1)) - log_ball - d * np.log(radius))


def balanced_density(graph: NeighborGraph, k: int = 16, dimension: int | None = None, iterations: int = 20) -> Array:
    """Sampling density from quadrature weights: w > 0 with which sums over the samples are integrals, q = 1/(m w).

    With K_ij = exp(−|x_j − x_i|²/(2c s_i s_j)), c = 0.4 and s the radius r_k smoothed over 35 neighbours, w solves
    Σ_j K_ij w_j = (2πc)^{d/2} s_i^d at every sample, by w ← w (Kw/target)^−1.6 repeated a few times. It follows the
    fluctuations of the sampling closely, which makes it the most accurate for operators on random samples. At an edge
    of the data it counts the missing side to the samples at the edge.
    """
    d = intrinsic_dimension(graph) if dimension is None else _check.count(dimension, "dimension", 1)
    iterations = _check.count(iterations, "iterations", 1)
    s = smooth(graph, _positive_radius(graph, k), k=tangent_neighbors(graph, most=35))
    c = 0.4
    K = gaussian_weights(graph, c * s, s)
    target = (2 * pi * c) ** (d / 2) * s**d
    w = target / over_neighbors(graph, K, np.ones(graph.n_points))
    for _ in range(iterations - 1):
        w *= (over_neighbors(graph, K, w) / target) ** -1.6
    return 1.0 / (graph.n_points * w)


def _positive_radius(graph: NeighborGraph, k: int) -> Array:
    radius = length_scale(graph, k)
    if not (radius > 0).all():
        at = int(np.argmin(radius))
        raise _check.GraphError(
            f"sample {at} coincides with its {k} nearest neighbours, so its density is infinite: "
            "remove duplicate samples or use a larger k."
        )
    return radius


def length_scale(graph: NeighborGraph, k: int = 16, kind: str = "radius") -> Array:
    """A local length at every sample, (m,): "radius" r_k, or "geometric", the geometric mean of r_1 .. r_k."""
    _check.option(kind, "kind", ("radius", "geometric"))
    _, distances = graph.nearest(_check.count(k, "k", 1))
    if kind == "radius":
        return distances[:, -1].copy()
    with np.errstate(divide="ignore"):
        return np.exp(np.log(distances).mean(axis=1))


def smooth(graph: NeighborGraph, f: ArrayLike, k: int = 35) -> Array:
    """f̄_i = Σ_j w_ij f_j / Σ_j w_ij with w_ij = exp(−|x_j − x_i|²/(2 r_k(i)²)), over the neighbours in the graph."""
    f = _check.functions(f, graph.n_points)
    scale = np.maximum(length_scale(graph, k), np.sqrt(np.finfo(float).tiny))
    weights = gaussian_weights(graph, scale**2, np.ones(graph.n_points))
    total = over_neighbors(graph, weights, np.ones(graph.n_points))
    return over_neighbors(graph, weights, f) / (total if f.ndim == 1 else total[:, None])


def gaussian_weights(graph: NeighborGraph, left: Array, right: Array) -> Array:
    """exp(−|x_j − x_i|²/(2 left_i right_j)) on the edges, (E,)."""
    out = np.empty(graph.n_edges)
    indices = _sparse.unsigned(graph._indices)
    _sparse.over_rows(_sparse.gaussian, graph._indptr, indices, graph._sqdist, left, right, out)
    return out


def over_neighbors(graph: NeighborGraph, weights: Array, f: Array) -> Array:
    """Σ_j w_ij f_j, for edge weights (E,) and one function (m,) or several (m, c)."""
    out = np.empty_like(f)
    loop = _sparse.pull if f.ndim == 1 else _sparse.pull_many
    _sparse.over_rows(loop, graph._indptr, _sparse.unsigned(graph._indices), weights, f, out)
    return out
