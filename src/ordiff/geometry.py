"""Geometry of the sampled manifold: tangent spaces, gradients, sampling density, length scales.

All of it is estimated from the neighbour graph; ``k`` counts the nearest others of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log, pi

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordiff import _parallel, _validation
from ordiff._compiled import csr, transition
from ordiff._validation import Array
from ordiff.graph import NeighborGraph
from ordiff.graph.layout import as_columns

# Numbers gathered at a time for local PCA: bounds the temporaries.
_BATCH_NUMBERS = 1_000_000


@dataclass(frozen=True, eq=False)
class TangentSpaces:
    """Tangent spaces by local principal component analysis.

    With δX (k, n) the rows x_j − x_i over the k nearest neighbours and δX = U S Vᵀ, d_i is the least rank that holds
    more than ``variance`` of the sum of S², and the gradient of f at i is V G_i δf with G_i = S⁻¹Uᵀ (d_i × k).

    >>> import numpy as np, ordiff as od
    >>> X = od.datasets.torus(40).X
    >>> tangents = od.TangentSpaces.fit(od.NeighborGraph.build(X, k=20))
    >>> tangents.dimension, tangents.basis(0).shape
    (2, (4, 2))
    """

    X: Array  # (m, n)
    neighbors: NDArray[np.intp]  # (m, k)
    dimensions: NDArray[np.intp]  # (m,)  d_i
    dimension: int  # the median of d_i
    axes: Array  # (m, n, r)  V, orthonormal columns, the longest direction first; r is the largest d_i
    squares: Array  # (m, r)  S²

    @classmethod
    def fit(
        cls, graph: NeighborGraph, k: int = 20, variance: float = 0.9, dimension: int | None = None
    ) -> TangentSpaces:
        """Tangent spaces at every sample of the graph from its k nearest neighbours (all, where there are fewer).

        dimension: the dimension when it is known, then the same at every sample that has neighbours.
        """
        _validation.instance(graph, "graph", NeighborGraph)
        X = _validation.need_points(graph.X, "local principal component analysis")
        k = _validation.count(k, "k", 1)
        variance = _validation.positive(variance, "variance")
        if variance >= 1:
            raise ValueError(f"variance must be below 1; got {variance:g}.")
        neighbors, _ = graph.nearest(k, pad=True)  # a sample with fewer counts itself, an offset of 0
        batches = _batches(X, k)

        def pca(rows: slice, rank: int) -> tuple[NDArray[np.intp], Array, Array]:
            return _local_pca(X[neighbors[rows]] - X[rows, None, :], variance, rank)

        most = min(k, X.shape[1])
        rank = 1 if dimension is None else _validation.count(dimension, "dimension", 1, most, f"k is {k}.")
        with _parallel.one_blas_thread():  # threads of BLAS treble the time of small matrices
            parts = _parallel.parallel_map(lambda rows: pca(rows, rank), batches)
            widest = max(part[2].shape[1] for part in parts)
            narrow = [n for n, part in enumerate(parts) if part[2].shape[1] < widest]
            again = _parallel.parallel_map(lambda n: pca(batches[n], widest), narrow)
        for n, part in zip(narrow, again, strict=True):
            parts[n] = part
        dimensions, axes, squares = (np.concatenate([part[which] for part in parts]) for which in (0, 1, 2))
        if dimension is not None:
            dimensions = np.where(dimensions > 0, dimension, 0)
        return cls(X, neighbors, dimensions, dimension or max(1, int(np.median(dimensions))), axes, squares)

    def basis(self, i: int) -> Array:
        """An orthonormal basis of the tangent space at sample i, (n, d_i)."""
        i = _validation.count(i, "i", 0, len(self.X) - 1)
        return self.axes[i, :, : self.dimensions[i]]

    def frames(self, dimension: int | None = None) -> Array:
        """The leading principal directions of every sample, as many as the (median) dimension, (m, n, d)."""
        most = self.axes.shape[2]
        d = _validation.count(self.dimension if dimension is None else dimension, "dimension", 1, most)
        return self.axes[:, :, :d]

    def project(self, V: ArrayLike) -> Array:
        """The tangent part of one vector a sample, (m, n)."""
        V = _validation.node_vectors(V, self.X.shape, "V")
        kept = np.arange(self.squares.shape[1]) < self.dimensions[:, None]
        along = np.where(kept, np.einsum("mnr,mn->mr", self.axes, V), 0.0)
        return np.einsum("mnr,mr->mn", self.axes, along)

    def gradient(self, f: ArrayLike) -> Array:
        """The gradient of a function on the samples, in ambient coordinates, (m, n)."""
        f = _validation.nodes(f, len(self.neighbors), "f")
        return self.gradient_from(f[self.neighbors] - f[:, None])

    def gradient_norm(self, f: ArrayLike) -> Array:
        """The norm of the gradient, (m,)."""
        return np.linalg.norm(self.gradient(f), axis=1)

    def gradient_from(self, differences: Array) -> Array:
        """The gradient, (m, n), of a function known only by its differences to the neighbours, (m, k)."""
        kept = (np.arange(self.squares.shape[1]) < self.dimensions[:, None]) & (self.squares > 0)
        inverse = np.divide(1.0, self.squares, out=np.zeros_like(self.squares), where=kept)

        def batch(rows: slice) -> Array:
            # V S⁻¹Uᵀ δf = V S⁻² Vᵀ δXᵀ δf
            offsets = self.X[self.neighbors[rows]] - self.X[rows, None, :]
            moment = np.einsum("mkn,mk->mn", offsets, differences[rows])
            along = np.einsum("mnr,mn->mr", self.axes[rows], moment)
            return np.einsum("mnr,mr->mn", self.axes[rows], inverse[rows] * along)

        return np.concatenate(_parallel.parallel_map(batch, _batches(self.X, self.neighbors.shape[1])))


def _batches(X: Array, k: int) -> list[slice]:
    m, n = X.shape
    step = max(1, _BATCH_NUMBERS // (k * n))
    return [slice(start, min(start + step, m)) for start in range(0, m, step)]


def _local_pca(offsets: Array, variance: float, rank: int) -> tuple[NDArray[np.intp], Array, Array]:
    """d_i, V and S² up to the largest d_i, or to ``rank``, of offsets (·, k, n): by the smaller of δXᵀδX and δXδXᵀ."""
    _, k, n = offsets.shape
    flip = slice(None, None, -1)
    if n <= k:
        squares, V = np.linalg.eigh(offsets.transpose(0, 2, 1) @ offsets)
        V = V[:, :, flip]
    else:
        squares, U = np.linalg.eigh(offsets @ offsets.transpose(0, 2, 1))
        V = offsets.transpose(0, 2, 1) @ U[:, :, flip]
        size = np.linalg.norm(V, axis=1, keepdims=True)
        V = np.divide(V, size, out=np.zeros_like(V), where=size > 0)
    squares = np.maximum(squares[:, flip], 0.0)
    energy = np.cumsum(squares, axis=1)
    d = 1 + np.sum(energy[:, :-1] <= variance * energy[:, -1:], axis=1)
    d = np.where(energy[:, -1] > 0, d, 0)
    rank = min(max(rank, int(d.max())), squares.shape[1])
    return d, V[:, :, :rank].copy(), squares[:, :rank].copy()


def intrinsic_dimension(graph: NeighborGraph) -> int:
    """The dimension of the data, by local PCA at up to 1,000 samples spread over all; see `NeighborGraph.dimension`."""
    return graph.dimension


def usual_neighbors(graph: NeighborGraph, most: int) -> int:
    """How many neighbours an estimate may use on this graph: ``most``, or what the median sample has."""
    return graph.usual_degree(most)


def knn_density(graph: NeighborGraph, k: int = 16, dimension: int | None = None) -> Array:
    """Sampling density q_i = (k − 1) / ((m − 1) V_d r_k(i)^d), with respect to the d-dimensional volume.

    r_k is the distance to the k-th other sample and V_d the volume of the unit ball; d is the intrinsic dimension,
    estimated when not given.
    """
    _validation.instance(graph, "graph", NeighborGraph)
    k = _validation.count(k, "k", 2)
    d = _dimension(graph, dimension)
    return ball_density(_positive_radius(graph, k), k, graph.n_points, d)


def ball_density(radius: Array, k: int, m: int, d: int) -> Array:
    """(k − 1) / ((m − 1) V_d r^d) for the distances r to the k-th other of m samples."""
    log_ball = 0.5 * d * log(pi) - lgamma(0.5 * d + 1)
    return np.exp(np.log((k - 1) / (m - 1)) - log_ball - d * np.log(radius))


def balanced_density(
    graph: NeighborGraph, k: int | None = None, dimension: int | None = None, iterations: int = 20
) -> Array:
    """Sampling density from quadrature weights: w > 0 with which sums over samples are nearly integrals, q = 1/(m w).

    With K_ij = exp(−|x_j − x_i|²/(2c s_i s_j)), c = 0.4 and s the radius r_k smoothed over up to 35 neighbours, some
    iterations towards Σ_j K_ij w_j = (2πc)^{d/2} s_i^d at every sample: w ← w (target/Kw), each factor kept within ½
    and 2. They are few on purpose: they correct for the fluctuations of the sampling, and more would fit those of K.

    It is the most accurate density for operators on random samples, given a graph of 50 neighbours or more (k is 16, or
    a quarter of the graph's neighbours if those are fewer than 64). It is a quadrature weight first: as a density it
    is as rough as the sampling, and its level some 20% high. At an edge of the data it counts the missing side to the
    samples at the edge.
    """
    _validation.instance(graph, "graph", NeighborGraph)
    d = _dimension(graph, dimension)
    iterations = _validation.count(iterations, "iterations", 1)
    if k is None:
        k = max(1, min(16, usual_neighbors(graph, 64) // 4))
    s = smooth(graph, _positive_radius(graph, k), k=usual_neighbors(graph, 35))
    c = 0.4
    K = gaussian_weights(graph, c * s, s)
    target = (2 * pi * c) ** (d / 2) * s**d
    w = target / over_neighbors(graph, K, np.ones(graph.n_points))
    for _ in range(iterations - 1):
        w *= np.clip(target / over_neighbors(graph, K, w), 0.5, 2.0)
    return 1.0 / (graph.n_points * w)


def kernel_density(
    graph: NeighborGraph, k: int = 15, bandwidth: float | None = None, dimension: int | None = None
) -> Array:
    """Gaussian kernel density: q_i = (1/m) Σ_j (2π h_j²)^{−d/2} exp(−|x_i − x_j|²/(2h_j²)).

    The width h_j belongs to the sample, r_k(j), unless one ``bandwidth`` for all is given. The graph must reach beyond
    2.5 widths: for r_15 on a surface, some 100 neighbours.
    """
    _validation.instance(graph, "graph", NeighborGraph)
    d = _dimension(graph, dimension)
    if bandwidth is None:
        h = _positive_radius(graph, _validation.count(k, "k", 1))
    else:
        h = np.full(graph.n_points, _validation.positive(bandwidth, "bandwidth"))
    reach = float(np.median(np.sqrt(graph.horizon) / h))
    if reach < 2.5:
        _validation.warn(
            f"the graph reaches {reach:.2g} bandwidths at the median sample, so the density is too low: use a graph "
            f"with about {2.5 / reach:.1f} times the radius, or a smaller bandwidth."
        )
    weights = gaussian_weights(graph, np.ones(graph.n_points), h**2)
    return over_neighbors(graph, weights, h**-d) / (graph.n_points * (2 * pi) ** (d / 2))


def _positive_radius(graph: NeighborGraph, k: int) -> Array:
    return _validation.apart(length_scale(graph, k), k, "density is infinite")


def _dimension(graph: NeighborGraph, dimension: int | None) -> int:
    return intrinsic_dimension(graph) if dimension is None else _validation.count(dimension, "dimension", 1)


def length_scale(graph: NeighborGraph, k: int = 16, kind: str = "radius") -> Array:
    """A local length at every sample, (m,): "radius" r_k, or "geometric", the geometric mean of r_1 .. r_k."""
    _validation.instance(graph, "graph", NeighborGraph)
    _validation.option(kind, "kind", ("radius", "geometric"))
    k = _validation.count(k, "k", 1)
    if kind == "radius":
        return graph.radius(k)
    with np.errstate(divide="ignore"):
        return np.exp(np.log(graph.nearest(k)[1]).mean(axis=1))


def smooth(graph: NeighborGraph, f: ArrayLike, k: int = 35) -> Array:
    """f̄_i = Σ_j w_ij f_j / Σ_j w_ij with w_ij = exp(−|x_j − x_i|²/(2 r_k(i)²)), over the neighbours in the graph."""
    _validation.instance(graph, "graph", NeighborGraph)
    f = _validation.functions(f, graph.n_points)
    scale = np.maximum(length_scale(graph, k), np.sqrt(np.finfo(float).tiny))
    weights = gaussian_weights(graph, scale**2, np.ones(graph.n_points))
    total = over_neighbors(graph, weights, np.ones(graph.n_points))
    return over_neighbors(graph, weights, f) / (total if f.ndim == 1 else total[:, None])


def gaussian_weights(graph: NeighborGraph, left: Array, right: Array) -> Array:
    """exp(−|x_j − x_i|²/(2 left_i right_j)) on the edges, (E,)."""
    out = np.empty(graph.n_edges)
    indices = csr.unsigned(graph._indices)
    _parallel.over_rows(transition.gaussian, graph._indptr, indices, graph._sqdist, left, right, out)
    return out


def over_neighbors(graph: NeighborGraph, weights: Array, f: Array) -> Array:
    """Σ_j w_ij f_j, for edge weights (E,) and one function (m,) or several (m, c)."""
    many = as_columns(f)
    out = np.empty_like(many)
    _parallel.over_rows(csr.multiply, graph._indptr, csr.unsigned(graph._indices), weights, many, out)
    return out.reshape(f.shape)
