"""`Kernel`: the parts put together, and the Markov operator they make on a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _check, _sparse, _threads
from ordiff._check import Array
from ordiff.geometry import balanced_density, intrinsic_dimension, knn_density, usual_neighbors
from ordiff.graph import Layout, NeighborGraph
from ordiff.kernel.bandwidth import Bandwidth
from ordiff.kernel.metric import Metric
from ordiff.kernel.ordering import Field, Ordering, Table, as_orderings
from ordiff.kernel.profile import Gaussian, Profile, as_profile
from ordiff.operator import MarkovOperator

# Neighbours of the density estimate behind density="knn": few, so that it follows the fluctuations of the sampling.
_DENSITY_NEIGHBORS = 12


@dataclass(frozen=True, eq=False)
class Kernel:
    """An ordered diffusion kernel: dx = (τ/κ)∇l dt + ρ dW from points and an ordering.

    ordering: None (no drift), one `Ordering` or its values (m,), or a list of orderings, whose drifts add.
    noise: ρ, a number or (m,); the diffusion is ½ρ² (½ρ²A with an anisotropy A), whatever the profile.
    noise_right: ρ2 of the self-tuning bandwidth b = ρ1(x) ρ2(y), with ``noise`` as ρ1.
    beta: the bandwidth is ρ(x)^{2β} ρ(y)^{2(1−β)}; not together with noise_right.
    anisotropy: A, (m, d, d) in the tangent ``basis`` (m, n, d), or (m, n, n) in ambient coordinates without one.
    normal_weight: the metric off the tangent space, as a multiple of 1/λ_max(A); "auto" is 1.
    coupled: with an anisotropy, False gives the drift μ = (τ/κ)∇l, True the paper's kernel, with drift Aμ.
    profile: "gaussian", "compact", "supergaussian", or an instance of a subclass of `Profile`.
    dimension: the intrinsic dimension, which other profiles than the gaussian and density="knn" need; estimated by
    local PCA when not given.
    """

    ordering: Any = None
    noise: ArrayLike | Bandwidth = 1.0
    noise_right: ArrayLike | None = None
    beta: float = 1.0
    anisotropy: ArrayLike | Metric | None = None
    basis: ArrayLike | None = None
    normal_weight: float | str = "auto"
    coupled: bool = False
    profile: str | Profile = "gaussian"
    dimension: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ordering", as_orderings(self.ordering))
        as_profile(self.profile)
        # copies: what is changed later outside changes nothing here
        for name in ("noise", "noise_right", "anisotropy", "basis"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Bandwidth | Metric):
                object.__setattr__(self, name, np.array(value))
        _check.number(self.beta, "beta")
        if self.noise_right is not None and self.beta != 1.0:
            raise ValueError("give noise_right or beta, not both: each defines the bandwidth at the far point.")
        if self.basis is not None and self.anisotropy is None:
            raise ValueError("basis is the frame of the anisotropy: give anisotropy too.")
        if self.normal_weight != "auto":
            _check.positive(self.normal_weight, "normal_weight")
        if self.dimension is not None:
            _check.count(self.dimension, "dimension", 1)
        if self.noise is None:
            raise ValueError("noise is None; give a positive number or an (m,) array.")

    # ------------------------------------------------------------------------------------ parts on a graph

    @property
    def normal_factor(self) -> float:
        """normal_weight as a number."""
        return 1.0 if self.normal_weight == "auto" else float(self.normal_weight)

    def metric_on(self, graph: NeighborGraph) -> Metric | None:
        """The metric at the samples; None for the Euclidean one."""
        if self.anisotropy is None or isinstance(self.anisotropy, Metric):
            return self.anisotropy
        X = _check.need_points(graph.X, "anisotropic diffusion")
        metric = Metric.make(X, self.anisotropy, self.basis, self.normal_factor)
        rank = metric.variances.shape[1]
        if rank < X.shape[1] and self.basis is None and rank < (d := self.dimension_on(graph)):
            raise ValueError(
                f"anisotropy has rank {rank}, but the data have dimension {d}: a direction without diffusion is taken "
                "for one off the data. Add a small multiple of the projector on the tangent space, or give a basis."
            )
        return metric

    def bandwidth_on(self, graph: NeighborGraph) -> Bandwidth:
        """The bandwidth at the samples."""
        if isinstance(self.noise, Bandwidth):
            return self.noise
        return Bandwidth.make(graph.n_points, self.noise, self.noise_right, self.beta)

    def widest_on(self, graph: NeighborGraph) -> Array:
        """ρ² λ_max(A), twice the diffusion along its widest direction, (m,)."""
        rho2, metric = self.bandwidth_on(graph).diffusion(), self.metric_on(graph)
        return rho2 if metric is None else rho2 * metric.variances.max(axis=1)

    @property
    def known_dimension(self) -> int | None:
        """The intrinsic dimension as given, or that of the basis."""
        if self.dimension is None and self.basis is not None:
            return int(np.shape(self.basis)[-1])
        return self.dimension

    def dimension_on(self, graph: NeighborGraph) -> int:
        """The intrinsic dimension: known, or estimated."""
        d = self.known_dimension or intrinsic_dimension(graph)
        if graph.X is not None and d > graph.X.shape[1]:
            raise ValueError(f"dimension is {d}, but the samples have only {graph.X.shape[1]} coordinates.")
        return d

    def on(self, graph: NeighborGraph) -> Kernel:
        """The same kernel with all that depends on the graph alone worked out once: decompositions and gradients."""
        metric, gaussian = self.metric_on(graph), type(as_profile(self.profile)) is Gaussian
        needs_gradient = not gaussian or (metric is not None and not self.coupled)
        for ordering in self.ordering:
            ordering.check(graph)
        return replace(
            self,
            ordering=tuple(
                o.on(graph, self.known_dimension) if needs_gradient or isinstance(o.scale, str) else o
                for o in self.ordering
            ),
            noise=self.bandwidth_on(graph),
            noise_right=None,
            beta=1.0,
            anisotropy=metric,
            dimension=self.known_dimension if gaussian else self.dimension_on(graph),
        )

    def undirected(self) -> Kernel:
        """The same kernel without its orderings."""
        return replace(self, ordering=None)

    # ------------------------------------------------------------------------------------------ operator

    def operator(
        self,
        graph: NeighborGraph,
        eps: float,
        density: ArrayLike | str | None = None,
        alpha: float = 1.0,
        weight: ArrayLike | None = None,
    ) -> MarkovOperator:
        """P_ij = K_ij q_j^−α w_j / Σ_n K_in q_n^−α w_n on the graph's pattern, for one time step ``eps``.

        density: the sampling density q up to a factor: None (uniform), (m,), "knn" (`knn_density` of 12
        neighbours), or "balanced" (`balanced_density`: the most accurate on random samples).
        alpha: 1 removes the density from the dynamics; in general the drift gains (1 − α) ρ²A ∇q/q.
        weight: w, (m,), a further positive factor at the far point (for instance the square root of a target density).
        """
        eps = _check.positive(eps, "eps")
        alpha = _check.number(alpha, "alpha")
        q = self.density_on(graph, density)
        log_weight = -alpha * np.log(q) if np.ptp(q) > 0 and alpha != 0 else _sparse.EMPTY
        if weight is not None:
            weight = _check.node_or_scalar(weight, graph.n_points, "weight", positive=True).copy()
            log_weight = np.log(weight) + (log_weight if log_weight.size else 0.0)
        kernel = self.on(graph)
        data = kernel._rows(graph, eps, log_weight, graph._layout)
        twin = _Twin(kernel, graph, eps, q.copy(), alpha, weight)
        op = MarkovOperator(graph, data, eps, q, sorted=True, kernel=kernel, twin=twin)
        kernel._warn_of_step(graph, op)
        return op

    def _warn_of_step(self, graph: NeighborGraph, op: MarkovOperator) -> None:
        """Tell when the step is too long for the graph, or too short for the sampling."""
        d = self.known_dimension or (1 if graph.X is None else intrinsic_dimension(graph))
        _check.warn_if_cut(graph.horizon, op.eps * self.widest_on(graph), op.eps, d)
        _check.warn_if_stuck(op.staying(), op.eps, graph.spacing / self.bandwidth_on(graph).diffusion())

    def density_on(self, graph: NeighborGraph, density: ArrayLike | str | None) -> Array:
        """The sampling density at the samples, up to a factor."""
        if density is None:
            return np.ones(graph.n_points)
        if isinstance(density, str):
            _check.option(density, "density", ("knn", "balanced"))
            d = self.dimension_on(graph)
            if density == "balanced":
                return balanced_density(graph, dimension=d)
            return knn_density(graph, k=usual_neighbors(graph, _DENSITY_NEIGHBORS), dimension=d)
        return _check.node_or_scalar(density, graph.n_points, "density", positive=True)

    def _rows(
        self, graph: NeighborGraph, eps: float, log_weight: Array, layout: Layout, *, strict: bool = True
    ) -> Array:
        """The edge values of P in the order of a layout, (E,), a block of rows at a time.

        A row without mass is an error or, if not ``strict``, left without probabilities: −inf or NaN.
        """
        terms, profile = _Terms.of(self, graph, eps).sorted(layout), as_profile(self.profile)
        indptr, indices = layout.pattern._indptr, _sparse.unsigned(layout.pattern._indices)
        log_weight, out = layout.sort(log_weight) if log_weight.size else log_weight, np.empty(graph.n_edges)

        def block(start: int, stop: int) -> int:
            u = np.empty(indptr[stop] - indptr[start])
            _sparse.exponents(
                start, stop, indptr, indices, layout.origins, graph._sqdist, *terms.arrays, not terms.gaussian,
                terms.edges(graph, layout, start, stop), u,
            )  # fmt: skip
            if not terms.gaussian:
                u[:] = _check.log_values(profile.log_value(u), u.size, profile)
            return int(_sparse.normalise(start, stop, indptr, indices, u, log_weight, out))

        failed = max(_threads.over_blocks(block, indptr, threaded=terms.threaded)) >= 0
        if failed and strict:
            raise _check.empty_row(_first_empty(layout, out), eps)
        return out


@dataclass(frozen=True, eq=False)
class _Terms:
    """A kernel's parts on one graph, as the arrays that the compiled loop takes."""

    # eps, X, directions, stiffness, normal, tables, select, slope, field, constant, left, right
    arrays: tuple[Any, ...]
    functions: tuple[tuple[Array, Ordering], ...]  # (τ/κ, ordering) evaluated edge by edge
    gaussian: bool  # then left is −2 left, so that what comes out is log K = −u/2

    @classmethod
    def of(cls, kernel: Kernel, graph: NeighborGraph, eps: float) -> _Terms:
        m, orderings = graph.n_points, kernel.ordering
        metric, bandwidth, profile = kernel.metric_on(graph), kernel.bandwidth_on(graph), as_profile(kernel.profile)
        gaussian = type(profile) is Gaussian
        slopes = [ordering.slope_on(graph) for ordering in orderings]

        tables: list[Array] = []
        select, slope, functions = [], [], []
        field: Array | None = None
        if metric is not None and not kernel.coupled:
            # uncoupled: Σ_k (τ_k/κ_k) ⟨A⁻¹∇l_k, y − x⟩
            for s, ordering in zip(slopes, orderings, strict=True):
                drift = s[:, None] * ordering.gradient_on(graph)
                field = drift if field is None else field + drift
            field = None if field is None else metric.raised(field, -1)
        else:
            for s, ordering in zip(slopes, orderings, strict=True):
                if isinstance(ordering.form, Table):
                    select.append(ordering.form.row + np.uint32(sum(map(len, tables))))
                    tables.append(ordering.form.values)
                    slope.append(s)
                elif isinstance(ordering.form, Field):
                    vectors = _check.node_vectors(
                        ordering.form.vectors, _check.need_points(graph.X, "a vector field").shape, "V"
                    )
                    field = s[:, None] * vectors if field is None else field + s[:, None] * vectors
                else:
                    functions.append((s, ordering))

        # The constant cancels in a row of a one-sided gaussian; elsewhere it completes the square.
        constant: Any = _sparse.EMPTY
        if gaussian and bandwidth.right is not None and orderings:
            constant = eps * sum(ordering.speed_on(graph) ** 2 for ordering in orderings)
        elif not gaussian and orderings:
            drift = sum(s[:, None] * o.gradient_on(graph) for s, o in zip(slopes, orderings, strict=True))
            constant = eps * _squared(metric, kernel.coupled, drift)
        divisor = -0.5 if gaussian else profile.second_moment(kernel.dimension_on(graph))
        needs_X = metric is not None or field is not None
        arrays = (
            eps,
            _check.need_points(graph._X, "a vector field or anisotropy") if needs_X else np.empty((0, 0)),
            np.empty((0, 0, 0)) if metric is None else metric.directions,
            np.empty((0, 0)) if metric is None else metric.stiffness(),
            _sparse.EMPTY if metric is None else metric.normal,
            np.concatenate(tables) if tables else np.empty((0, m)),
            np.array(select) if select else np.empty((0, m), np.uint32),
            np.array(slope) if slope else np.empty((0, m)),
            np.empty((0, 0)) if field is None else np.ascontiguousarray(field),
            constant,
            bandwidth.left / divisor,
            _sparse.EMPTY if bandwidth.right is None else bandwidth.right,
        )
        return cls(arrays, tuple(functions), gaussian)

    def sorted(self, layout: Layout) -> _Terms:
        """The same with the arrays in the order of a layout."""
        if layout.order is None:
            return self
        eps, X, directions, stiffness, normal, tables, select, slope, *others = self.arrays
        by_sample = (X, directions, stiffness, normal), others
        before, after = ([a[layout.order] if a.size else a for a in group] for group in by_sample)
        return replace(
            self, arrays=(eps, *before, *(np.take(a, layout.order, axis=1) for a in (tables, select, slope)), *after)
        )

    @property
    def threaded(self) -> bool:
        """A user's function is called from one thread only."""
        return all(ordering.form.pure for _, ordering in self.functions)  # type: ignore[union-attr]

    def edges(self, graph: NeighborGraph, layout: Layout, start: int, stop: int) -> Array:
        """Σ_k (τ_k/κ_k)(i) l_k(i, j) of the orderings by function, for the edges of these rows of the layout."""
        if not self.functions:
            return _sparse.EMPTY
        i, j = layout.edges(start, stop)
        try:
            return sum(s[i] * ordering.differences(graph, i, j) for s, ordering in self.functions)  # type: ignore[return-value]
        except ValueError:
            if layout.order is not None:  # name the first of the samples as they were given
                own = Layout.of(graph)
                for row in range(graph.n_points):
                    self.edges(graph, own, row, row + 1)
            raise


@dataclass(frozen=True, eq=False)
class _Twin:
    """Builds an operator's driftless twin when it is asked for."""

    kernel: Kernel
    graph: NeighborGraph
    eps: float
    density: Array
    alpha: float
    weight: ArrayLike | None

    def __call__(self) -> MarkovOperator:
        return self.kernel.undirected().operator(self.graph, self.eps, self.density, self.alpha, self.weight)


def _first_empty(layout: Layout, data: Array) -> int:
    """The first row whose sum is not 1."""
    with np.errstate(invalid="ignore"):
        sums = np.add.reduceat(data, layout.pattern.indptr[:-1])
        empty = ~(np.abs(sums - 1) < 0.5)
    rows = np.flatnonzero(empty)
    return int((rows if layout.order is None else layout.order[rows]).min())


def _squared(metric: Metric | None, coupled: bool, drift: Array) -> Array:
    """|μ|² in the metric in which the kernel completes the square: ⟨μ, A⁻¹μ⟩, or ⟨μ, Aμ⟩ when coupled."""
    other = drift if metric is None else metric.raised(drift, 1 if coupled else -1)
    return np.einsum("mi,mi->m", drift, other)
