"""Designed states: where a learned chain lives when it does not live on the samples themselves.

Samples are dense where the process is slow and rare where it is fast; a chain on them inherits both. Designed states
are quasi-uniform on the support of the data instead, each with the volume it stands for, and a function is read off at
a sample by a local polynomial in the states around it. Four stages:

    candidates    samples with jittered copies along their tangent spaces, projected back onto the data
    thinning      Poisson-disk sampling: no two states nearer than the spacing
    relaxation    Lloyd's algorithm: every state to the centre of the candidates nearest to it
    weights       volumes with which sums over states are integrals
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _validation
from ordiff._compiled import graph as graph_loops
from ordiff._coordinates import LinearCoordinates, distinct_rows
from ordiff._parallel import cached_property
from ordiff._polynomials import (
    batches,
    coefficients_of,
    degree_for,
    frames_of,
    kd_tree,
    local_polynomial,
    n_terms,
    projected,
)
from ordiff._starts import CONNECTED, initial_mass, origins_of
from ordiff._validation import Array, GraphError
from ordiff.geometry import (
    balanced_density,
    gaussian_weights,
    intrinsic_dimension,
    kernel_density,
    knn_density,
    over_neighbors,
)
from ordiff.graph import NeighborGraph
from ordiff.graph.search import count_within, query_tree

# Jittered copies of a sample, at least and per volume of a spacing, and their standard deviation in units of the
# distance to the 8th neighbour: in all of space, and on a manifold within it, where the tangent spaces are estimated.
_MIN_COPIES, _COPIES_PER_CELL, _JITTER, _JITTER_ON_MANIFOLD = 8, 16.0, 0.7, 0.5
# Neighbours for tangent spaces, at least.
_TANGENT_NEIGHBORS = 12
# The largest dimension of designed states: their number grows with its power.
_MAX_DIMENSION = 6
# Samples that the dimension is estimated from, at most.
_DIMENSION_SAMPLES = 10_000
# Iterations of Lloyd's algorithm: more change little.
_LLOYD_ITERATIONS = 5
# Densities of samples that are states.
_DENSITIES: dict[str, Callable[..., Array]] = {
    "kernel": kernel_density, "knn": knn_density, "balanced": balanced_density,
}  # fmt: skip
# Spacings up to which a sample is near a state.
_NEAR = 2.0
# The least share of a start that sets of states apart from each other must hold: a start may be in several wells.
_SHARE_OF_START = 0.05


@dataclass(frozen=True, eq=False)
class States:
    """States of a chain: points, their volumes and initial mass, and the weights of functions at other points."""

    points: Array  # (N, n)
    volumes: Array  # (N,)
    spacing: float
    dimension: int
    start: Array  # (N,) initial mass
    radius: float
    are_samples: bool = False
    prebuilt_graph: NeighborGraph | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        points = _validation.points(self.points, "points", minimum=1)
        N, n = points.shape
        start = _validation.nodes(self.start, N, "start")
        if not ((start >= 0).all() and abs(start.sum() - 1) < 1e-6):
            raise ValueError("start must be masses on the states that sum to 1, none of them negative.")
        checked = {
            "points": points,
            "volumes": _validation.node_or_scalar(self.volumes, N, "volumes", positive=True),
            "start": start,
            "spacing": _validation.positive(self.spacing, "spacing"),
            "radius": _validation.positive(self.radius, "radius"),
            "dimension": _validation.count(self.dimension, "dimension", 1, n),
        }
        graph = self.prebuilt_graph
        if graph is not None and _validation.instance(graph, "prebuilt_graph", NeighborGraph).n_points != N:
            raise ValueError(f"prebuilt_graph has {graph.n_points} points, but there are {N} states.")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def design(
        cls,
        X: ArrayLike,
        spacing: float | None = None,
        start: ArrayLike | None = None,
        *,
        start_weights: ArrayLike | None = None,
        radius: float | None = None,
        dimension: int | None = None,
        random_state: int | None = 0,
    ) -> States:
        """Quasi-uniform states on the support of the samples X (m, n).

        spacing: about the least distance between two states; by default that of about as many states as samples.
        start: where the process starts: a point (n,), which becomes state 0, or several (s, n), with ``start_weights``.
        radius: states this near are neighbours in ``graph``; by default 8 spacings.
        """
        X = distinct_rows(_validation.points(X, minimum=10))
        n = X.shape[1]
        rng = _validation.generator(random_state)
        d = estimated_dimension(X, rng) if dimension is None else _validation.count(dimension, "dimension", 1, n)
        _check_dimension(d, n)
        r8 = _eighth_distances(X)
        spacing = _default_spacing(r8, d) if spacing is None else _validation.positive(spacing, "spacing")
        r8 = np.minimum(r8, 2 * np.quantile(r8, 0.95))  # outliers are no support
        origins, weights = (None, None) if start is None else origins_of(start, start_weights, n)
        cloud = X if n == d else projected(X, X, d)
        points = _quasi_uniform(X, _candidates(X, cloud, r8, d, spacing, rng), d, spacing, origins)
        points = _on_support(points, cloud, r8, spacing, origins)
        points = _connected(points, spacing, origins, weights)
        radius = 8 * spacing if radius is None else _validation.positive(radius, "radius")
        volumes = _volumes(points, d, spacing)
        return cls(points, volumes, spacing, d, initial_mass(points, volumes, origins, weights, spacing), radius)

    @staticmethod
    def spacing_for(n_states: int, X: Array, dimension: int | None = None, random_state: int | None = 0) -> float:
        """The spacing with which the samples X (m, n) have about this many states, or as many as samples."""
        X, rng = distinct_rows(X), np.random.default_rng(random_state)
        d = estimated_dimension(X, rng) if dimension is None else dimension
        _check_dimension(d, X.shape[1])
        some = X if len(X) <= n_states else X[rng.choice(len(X), n_states, replace=False)]
        return _default_spacing(_eighth_distances(some), d)

    @classmethod
    def samples(
        cls,
        X: Array,
        start: Array,
        start_weights: Array,
        *,
        radius: float,
        k: int | None = None,
        density: ArrayLike | str = "kernel",
        dimension: int | None = None,
    ) -> States:
        """The samples themselves as states, the start the nearest of them; volumes are 1/(m q)."""
        graph = NeighborGraph.build(X, k=k) if k is not None else NeighborGraph.build(X, radius=radius)
        d = intrinsic_dimension(graph) if dimension is None else dimension
        near = NeighborGraph.build(X, k=min(100, len(X) - 1))
        estimate = _DENSITIES.get(density) if isinstance(density, str) else None
        if estimate is None:
            q = _validation.node_or_scalar(density, len(X), "density", positive=True)
        else:
            q = estimate(near, dimension=d)
        mass = np.bincount(kd_tree(X).query(start)[1], weights=start_weights, minlength=len(X))
        spacing = float(np.median(np.sqrt(near.spacing)))
        points = _validation.need_points(graph._X, "states")
        return cls(points, 1 / (len(X) * q), spacing, d, mass / mass.sum(), radius, True, graph)

    @cached_property
    def graph(self) -> NeighborGraph:
        """The neighbour graph of the states."""
        if self.prebuilt_graph is not None:
            return self.prebuilt_graph
        return NeighborGraph.build(self.points, radius=self.radius)

    @cached_property
    def _tree(self) -> Any:
        return kd_tree(self.points)

    def observe(self, X: ArrayLike) -> sp.csr_array:
        """B (m, N): Σ_j B_ij f_j is f at x_i, by a local polynomial through the nearest states; rows sum to 1."""
        X = _validation.points(X, minimum=1)
        if self.are_samples and np.array_equal(X, self.points):
            return sp.eye_array(len(X), format="csr")
        return self.polynomials(X)[0]

    def distance(self, X: Array) -> Array:
        """The distance to the nearest state, (m,)."""
        return np.asarray(query_tree(self._tree, X, 1)[0])

    def nearest(self, X: Array) -> NDArray[np.intp]:
        """The nearest state of every point, (m,)."""
        return np.asarray(query_tree(self._tree, X, 1)[1])

    def from_samples(self, X: Array, f: Array) -> Array:
        """A function f (m,) on samples X (m, n) at the states, (N,): local polynomials through the nearest samples."""
        X, first = np.unique(X, axis=0, return_index=True)  # copies would take the place of neighbours
        f, degree = f[first], degree_for(self.dimension)
        k, tree, out = min(len(X), 4 * n_terms(self.dimension, degree)), kd_tree(X), np.empty(len(self.points))
        for rows in batches(len(out), k * X.shape[1]):
            distances, near = query_tree(tree, self.points[rows], k)
            offsets = X[near] - self.points[rows, None, :]
            frames = frames_of(offsets, self.dimension)
            weights, _ = local_polynomial(offsets if frames is None else offsets @ frames, distances, degree)
            out[rows] = (weights * f[near]).sum(axis=1)
        return out

    def with_radius(self, radius: float) -> States:
        """The same states with neighbours up to this distance."""
        return replace(self, radius=radius, prebuilt_graph=None)

    def derivatives(self, f: Array) -> tuple[Array, Array]:
        """Gradient (N, d) and Hessian (N, d, d) of a function f (N,) at the states, by local quadratic polynomials in
        tangent coordinates."""
        N, d = len(self.points), self.dimension
        k = min(N, 2 * n_terms(d, 2))
        gradient, hessian = np.empty((N, d)), np.empty((N, d, d))
        for rows in batches(N, k * max(self.points.shape[1], n_terms(d, 2))):
            distances, near = query_tree(self._tree, self.points[rows], k)
            offsets = self.points[near] - self.points[rows, None, :]
            frames = frames_of(offsets, d)
            u = offsets if frames is None else offsets @ frames
            scale = distances[:, -1]
            weight = np.exp(-2.0 * (distances / scale[:, None]) ** 2)
            c = np.einsum("mtk,mk->mt", coefficients_of(u / scale[:, None, None], weight, 2), f[near])
            gradient[rows] = c[:, 1 : d + 1] / scale[:, None]
            for place, (a, b) in enumerate(combinations_with_replacement(range(d), 2)):
                second = c[:, d + 1 + place] * (2 if a == b else 1) / scale**2
                hessian[rows, a, b] = hessian[rows, b, a] = second
        return gradient, hessian

    def polynomials(self, X: Array) -> tuple[sp.csr_array, list[sp.csr_array]]:
        """B (m, N) of `observe`, and of the derivative along each coordinate, n matrices (m, N)."""
        m, n = X.shape
        N, d = len(self.points), self.dimension
        degree = degree_for(d)
        k = min(N, 2 * n_terms(d, degree))
        values, slopes, columns = np.empty((m, k)), np.empty((m, k, n)), np.empty((m, k), np.int64)
        for rows in batches(m, k * max(n, n_terms(d, degree))):
            distances, near = query_tree(self._tree, X[rows], k)
            offsets = self.points[near] - X[rows, None, :]
            frames = frames_of(offsets, d)
            u = offsets if frames is None else offsets @ frames
            value, slope = local_polynomial(u, distances, degree)
            values[rows], columns[rows] = value, near
            slopes[rows] = slope if frames is None else np.einsum("mkd,mnd->mkn", slope, frames)
        indptr = np.arange(0, m * k + 1, k)

        def matrix(data: Array) -> sp.csr_array:
            return sp.csr_array((data.ravel(), columns.ravel(), indptr), shape=(m, N))

        return matrix(values), [matrix(slopes[:, :, c]) for c in range(n)]


def estimated_dimension(X: Array, rng: np.random.Generator) -> int:
    """The dimension of the data, without noise across a subspace, from some of the samples where there are many."""
    return local_dimension(LinearCoordinates.of(X).transform(X), rng)


def local_dimension(X: Array, rng: np.random.Generator) -> int:
    """The dimension of the data, from some of the samples where there are many."""
    some = X if len(X) <= _DIMENSION_SAMPLES else X[rng.choice(len(X), _DIMENSION_SAMPLES, replace=False)]
    return intrinsic_dimension(NeighborGraph.build(some, k=min(max(20, min(100, len(some) // 10)), len(some) - 1)))


def _check_dimension(d: int, n: int) -> None:
    if d > _MAX_DIMENSION:
        raise ValueError(
            f"the samples have {n} coordinates and are {d}-dimensional, and states can be spread over up to "
            f"{_MAX_DIMENSION} dimensions: reduce X to a few principal components, or, if the process has fewer "
            "dimensions and the rest is noise, say how many (dimension=, a member of DesignedStates)."
        )


def _eighth_distances(X: Array) -> Array:
    """The distance to the 8th neighbour, (m,)."""
    k = min(8, len(X) - 1)
    return NeighborGraph.build(X, k=k).radius(k)


def _default_spacing(r8: Array, d: int) -> float:
    """The spacing of about as many states as there are samples with these distances to the 8th neighbour."""
    return float(np.median(r8)) * (1.2 / 8 ** (1 / d))


# --------------------------------------------------------------------------------------------- design of states


def _candidates(X: Array, cloud: Array, r8: Array, d: int, spacing: float, rng: np.random.Generator) -> Array:
    """Points that cover the support densely, in random order; ``cloud`` are the samples projected on the data."""
    rows = _one_per_cell(cloud, spacing / 4, rng)
    copies = _jittered(cloud, rows, r8, d, spacing, rng)
    if X.shape[1] > d:
        copies = projected(X, projected(X, copies, d), d)
    candidates = np.concatenate([cloud[rows], copies])
    return candidates[rng.permutation(_one_per_cell(candidates, spacing / 4, rng))]


def _quasi_uniform(X: Array, candidates: Array, d: int, spacing: float, origins: Array | None) -> Array:
    """States thinned out of the candidates and relaxed; a single origin is the first of them and stays in place."""
    fixed = int(origins is not None and len(origins) == 1)
    if fixed:
        candidates = np.concatenate([origins, candidates])
    points = _lloyd(_poisson_disk(candidates, spacing), candidates, fixed)
    if X.shape[1] > d:
        points[fixed:] = projected(X, points[fixed:], d)
        points = _poisson_disk(points, 0.7 * spacing)
    return points


def _one_per_cell(X: Array, width: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """One sample of each occupied cell of a grid."""
    cells = np.floor((X - X.min(axis=0)) / width).astype(np.int64)
    order = rng.permutation(len(X))
    sizes = cells.max(axis=0) + 1
    if np.log2(sizes.astype(float)).sum() < 62:  # a number for each cell
        cells = np.ravel_multi_index(tuple(cells.T), tuple(sizes))[:, None]
    return order[np.unique(cells[order], axis=0, return_index=True)[1]]


def _jittered(X: Array, rows: NDArray[np.intp], r8: Array, d: int, spacing: float, rng: np.random.Generator) -> Array:
    """Gaussian copies of these samples along their tangent spaces, enough to cover the space between them."""
    n = X.shape[1]
    std = (_JITTER if n == d else _JITTER_ON_MANIFOLD) * r8[rows]
    copies = np.clip(_COPIES_PER_CELL * (std / spacing) ** d, _MIN_COPIES, 50 * _MIN_COPIES).astype(int)
    which = np.repeat(np.arange(len(rows)), copies)
    z = rng.standard_normal((len(which), d)) * std[which, None]
    if n > d:
        near = query_tree(kd_tree(X), X[rows], min(_TANGENT_NEIGHBORS + 1, len(X)))[1]
        frames = frames_of(X[near] - X[rows, None, :], d)
        assert frames is not None
        z = np.einsum("md,mnd->mn", z, frames[which])
    return X[rows][which] + z


def _poisson_disk(candidates: Array, spacing: float) -> Array:
    """The candidates, in their order, that are no nearer than ``spacing`` to one taken before."""
    return candidates[_taken_apart(candidates, spacing)]


def _taken_apart(candidates: Array, spacing: float) -> NDArray[np.bool_]:
    """Which of the candidates `_poisson_disk` takes, (m,)."""
    tree = kd_tree(candidates)
    near = tree.query_pairs(spacing, output_type="ndarray")
    m = len(candidates)
    A = sp.csr_array((np.ones(len(near), bool), (near[:, 1], near[:, 0])), shape=(m, m))  # earlier ones of each
    taken = np.ones(m, bool)
    graph_loops.take_greedily(A.indptr, A.indices, taken)
    return taken


def thinned(states: States, most: int) -> NDArray[np.intp]:
    """About as many of the states as ``most``, or fewer, spread evenly."""
    N = len(states.points)
    if most >= N:
        return np.arange(N)
    order = np.random.default_rng(0).permutation(N)
    spacing = states.spacing * (N / most) ** (1 / states.dimension)
    while True:
        taken = np.sort(order[_taken_apart(states.points[order], spacing)])
        if len(taken) <= most:
            return np.asarray(taken)
        spacing *= 1.05


def _lloyd(points: Array, candidates: Array, fixed: int) -> Array:
    """Lloyd's algorithm: every state, all but the ``fixed`` first, moves to the mean of the candidates nearest to it.

    States that are only kept apart leave holes: where a step is hardly longer than the spacing, a chain on them moves
    too little, and the noise that is learned comes out too large.
    """
    points = points.copy()
    for _ in range(_LLOYD_ITERATIONS):
        nearest = query_tree(kd_tree(points), candidates, 1)[1]
        count = np.bincount(nearest, minlength=len(points))
        centres = np.stack([np.bincount(nearest, x, len(points)) for x in candidates.T], axis=1)
        moved = count > 0
        moved[:fixed] = False
        points[moved] = centres[moved] / count[moved, None]
    return points


def _on_support(points: Array, X: Array, r8: Array, spacing: float, origins: Array | None) -> Array:
    """The states near a sample or the start, or else near another state and within the 8th neighbour of a sample.

    Around outliers the copies are too few to cover the space, and a chain cannot leave a state far from all others.
    """
    near = _NEAR * spacing
    distance, sample = query_tree(kd_tree(X), points, 1)
    others = count_within(kd_tree(points), points, near) - 1
    kept = (distance < near) | ((distance <= r8[sample]) & (others >= 1))
    if origins is not None:
        kept |= query_tree(kd_tree(origins), points, 1)[0] < near
    return points[kept]


def _connected(points: Array, spacing: float, origins: Array | None, weights: Array | None) -> Array:
    """The largest connected set of states, where most of the start must be; and other sets that much of it is in."""
    from scipy.sparse.csgraph import connected_components

    m = len(points)
    near = kd_tree(points).query_pairs(CONNECTED * spacing, output_type="ndarray")
    n_sets, label = connected_components(sp.csr_array((np.ones(len(near)), (near[:, 0], near[:, 1])), shape=(m, m)))
    largest = np.bincount(label).argmax()
    kept = np.arange(n_sets) == largest
    if origins is not None:
        w = np.ones(len(origins)) if weights is None else weights
        w = w / w.sum()
        gap, nearest = kd_tree(points).query(origins)
        share = np.bincount(label[nearest], w * (gap <= CONNECTED * spacing), n_sets)
        if share[largest] >= _SHARE_OF_START:
            kept |= share >= _SHARE_OF_START
        if share[kept].sum() < 0.9:
            gap = kd_tree(points[kept[label]]).query(origins)[0]
            raise GraphError(
                f"the start lies {gap.max():.3g} away from the samples, and the states between which the process moves "
                f"are {spacing:.3g} apart: there are no samples between. Take the earliest samples as the start (a "
                "mask), check its coordinates and units, or use a larger spacing."
            )
    return points[kept[label]]


def _volumes(points: Array, d: int, spacing: float, iterations: int = 3) -> Array:
    """Volumes v with Σ_j K_ij v_j ≈ ∫K for a gaussian K of width 0.8 spacings, by a few steps v ← v/(Kv)."""
    h = 0.8 * spacing
    graph = NeighborGraph.build(points, radius=4 * h)
    K = gaussian_weights(graph, np.full(len(points), h), np.full(len(points), h))
    target = (2 * np.pi) ** (d / 2) * h**d
    v = target / over_neighbors(graph, K, np.ones(len(points)))
    for _ in range(iterations - 1):
        v *= np.clip(target / over_neighbors(graph, K, v), 0.5, 2.0)
    return v
