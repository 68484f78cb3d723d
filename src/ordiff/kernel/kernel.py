"""`Kernel`: the parts put together, and the Markov operator they make on a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._compiled.csr import EMPTY
from ordiff._validation import Array
from ordiff.geometry import balanced_density, intrinsic_dimension, knn_density, usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.kernel.bandwidth import Bandwidth
from ordiff.kernel.metric import Metric
from ordiff.kernel.ordering import as_orderings
from ordiff.kernel.profile import Gaussian, Profile, as_profile, checked_log_values
from ordiff.kernel.resolution import warn_if_cut, warn_if_stuck
from ordiff.kernel.terms import PatternRows, edge_terms, empty_row, softmax, terms_on
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
                object.__setattr__(self, name, _validation.as_float(value, name).copy())
        _validation.number(self.beta, "beta")
        _validation.flag(self.coupled, "coupled")
        if self.noise_right is not None and self.beta != 1.0:
            raise ValueError("give noise_right or beta, not both: each defines the bandwidth at the far point.")
        if self.basis is not None and self.anisotropy is None:
            raise ValueError("basis is the frame of the anisotropy: give anisotropy too.")
        if self.normal_weight != "auto":
            _validation.positive(self.normal_weight, "normal_weight")
        if self.dimension is not None:
            _validation.count(self.dimension, "dimension", 1)
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
        X = _validation.need_points(graph.X, "anisotropic diffusion")
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
        self_weight: float = 1.0,
    ) -> MarkovOperator:
        """P_ij = K_ij q_j^−α w_j / Σ_n K_in q_n^−α w_n on the graph's pattern, for one time step ``eps``.

        density: the sampling density q up to a factor: None (uniform), (m,), "knn" (`knn_density` of 12
        neighbours), or "balanced" (`balanced_density`: the most accurate on random samples).
        alpha: 1 removes the density from the dynamics; in general the drift gains (1 − α) ρ²A ∇q/q.
        weight: w, (m,), a further positive factor at the far point (for instance the square root of a target density).
        self_weight: a positive factor on K_ii: below 1, a chain on few samples stays put less often.
        """
        _validation.instance(graph, "graph", NeighborGraph)
        eps = _validation.positive(eps, "eps")
        alpha = _validation.number(alpha, "alpha")
        self_weight = _validation.positive(self_weight, "self_weight")
        q = self.density_on(graph, density)
        log_weight = -alpha * np.log(q) if np.ptp(q) > 0 and alpha != 0 else EMPTY
        if weight is not None:
            weight = _validation.node_or_scalar(weight, graph.n_points, "weight", positive=True).copy()
            log_weight = np.log(weight) + (log_weight if log_weight.size else 0.0)
        kernel = self.on(graph)
        data = kernel.transition(graph, eps, log_weight, self_weight)
        undirected = partial(_undirected, kernel, graph, eps, q.copy(), alpha, weight, self_weight)
        op = MarkovOperator._make(graph, data, eps, q, kernel, undirected)
        kernel._warn_of_step(graph, op)
        return op

    def _warn_of_step(self, graph: NeighborGraph, op: MarkovOperator) -> None:
        """Tell when the step is too long for the graph, or too short for the sampling."""
        d = self.known_dimension or (1 if graph.X is None else intrinsic_dimension(graph))
        warn_if_cut(graph.horizon, op.eps * self.widest_on(graph), op.eps, d)
        warn_if_stuck(op.staying(), op.eps, graph.spacing / self.bandwidth_on(graph).diffusion())

    def density_on(self, graph: NeighborGraph, density: ArrayLike | str | None) -> Array:
        """The sampling density at the samples, up to a factor."""
        if density is None:
            return np.ones(graph.n_points)
        if isinstance(density, str):
            _validation.option(density, "density", ("knn", "balanced"))
            d = self.dimension_on(graph)
            if density == "balanced":
                return balanced_density(graph, dimension=d)
            return knn_density(graph, k=usual_neighbors(graph, _DENSITY_NEIGHBORS), dimension=d)
        return _validation.node_or_scalar(density, graph.n_points, "density", positive=True)

    def transition(
        self, graph: NeighborGraph, eps: float, log_weight: Array, self_weight: float = 1.0, *, strict: bool = True
    ) -> Array:
        """The edge values of P in the order of the graph's layout, (E,).

        A row without mass is an error or, if not ``strict``, left without probabilities: −inf or NaN.
        """
        terms, functions = terms_on(self, graph, eps)
        terms, profile, rows = terms.sorted(graph.layout), as_profile(self.profile), PatternRows.of(graph)

        def log_kernel(start: int, stop: int) -> Array:
            u = terms.log_kernel(rows, start, stop, edge_terms(functions, graph, start, stop))
            if terms.clamp:
                u[:] = checked_log_values(profile.log_value(u), u.size, profile)
            return u

        P, failed = softmax(
            log_kernel,
            rows,
            graph.layout.sort(log_weight) if log_weight.size else log_weight,
            log_self=float(np.log(self_weight)),
            threaded=all(ordering.form.pure for _, ordering in functions),  # type: ignore[union-attr]
        )
        if failed >= 0 and strict:
            raise empty_row(_first_empty(graph, P), eps)
        return P


def _undirected(
    kernel: Kernel, graph: NeighborGraph, eps: float, q: Array, alpha: float, weight: Any, self_weight: float
) -> MarkovOperator:
    """The same operator without orderings, built when it is asked for."""
    return kernel.undirected().operator(graph, eps, q, alpha, weight, self_weight)


def _first_empty(graph: NeighborGraph, data: Array) -> int:
    """The first sample whose row does not sum to 1."""
    with np.errstate(invalid="ignore"):
        sums = np.add.reduceat(data, graph.layout.indptr[:-1])
        empty = ~(np.abs(sums - 1) < 0.5)
    return int(graph.layout.order[empty].min())
