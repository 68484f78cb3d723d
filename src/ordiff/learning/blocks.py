"""Which quantities a fit learns, in which functions, and where they start from: a builder for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import dijkstra

from ordiff import _validation
from ordiff._validation import Array
from ordiff.geometry import TangentSpaces, usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.ordering import Ordering, Tabulated, as_orderings
from ordiff.learning.data import Snapshots
from ordiff.learning.discretise import NOISE_RANGE
from ordiff.learning.likelihood import Dynamics
from ordiff.learning.parameters import ParameterBlock, Parameters
from ordiff.learning.penalties import GradientPenalty, LaplacianPenalty, RelativeRoughness
from ordiff.learning.result import FittedChain
from ordiff.learning.settings import FitSettings, Smoothness
from ordiff.learning.splines import MOST_DIMENSIONS, SplineBasis
from ordiff.spectral import smooth_functions
from ordiff.states import States

# Functions of a basis.
_BASIS = 120
# Roughness is Σ μ³a², μ the eigenvalues of −Δ: the third derivatives squared. By μ² a drift would be expected to jump
# in two dimensions and three.
_POWER = 3
# Smoothness to start from, in units of the support's size and of the noise.
_START_ORDERING, _START_NOISE = 9e-10, 4.5e-8
# The same of splines, whose units are their own; and of the lower derivatives of the noise: first nearly constant.
_START_SPLINE_ORDERING, _START_SPLINE_NOISE, _START_LOWER = 1e-10, 1e-9, 1e-2
# A field from other states may be off by so much of its deviation, for it to be smooth.
_MOST_SMOOTHED = 0.05
# The least noise that states resolve: a step of this many spacings. With less the chain would stay where it is.
_RESOLVED = 1 / 5
# Regularisation of values on the samples: the paper's.
_PAPER_ORDERING, _PAPER_NOISE = 0.03, 12.5
# A chain on samples stays put too often: this factor on P_ii.
_SELF_WEIGHT = 0.5

# The logarithm of a noise field stays within this of where it started: a factor of 10, more than samples tell.
_FIELD_LIMIT = float(np.log(10.0))

Built = tuple[ParameterBlock, Array]  # a block, and the coefficients that it starts from


@dataclass(frozen=True, eq=False)
class GivenOrderings:
    """Orderings that the user gave, on the states: values (N,) of global ones, and local ones."""

    tables: tuple[Array, ...] = ()
    local: tuple[Ordering, ...] = ()

    def differences(self, graph: NeighborGraph) -> tuple[Array, ...]:
        """Δl of the local ones on the edges, (E,) each."""
        return tuple(ordering.edge_differences(graph) for ordering in self.local)

    @classmethod
    def of(cls, settings: FitSettings, data: Snapshots, states: States) -> GivenOrderings:
        ordering = settings.ordering
        if ordering is None:
            if "ordering" not in settings.learn:
                raise ValueError('the ordering is neither given (ordering=...) nor learned (learn=("ordering", ...)).')
            return cls()
        if callable(ordering):
            found = as_orderings(ordering(states.points))
        elif isinstance(ordering, Ordering) or (isinstance(ordering, list) and isinstance(ordering[0], Ordering)):
            if not states.are_samples:
                raise ValueError(
                    'an Ordering is known at the samples only: use states="samples", or give a function of points '
                    "that returns the Ordering on them."
                )
            found = as_orderings(ordering)
        else:
            values = _validation.nodes(ordering, len(data.X), "ordering")
            return cls((values if states.are_samples else states.from_samples(data.X, values),))
        tables, local = [], []
        for one in found:
            plain = isinstance(one.form, Tabulated) and len(one.form.values) == 1 and not isinstance(one.scale, str)
            if plain and "ordering" not in settings.learn:
                tables.append(one.form.values[0])  # type: ignore[union-attr]
            else:
                local.append(one)
        return cls(tuple(tables), tuple(local))


@dataclass(frozen=True, eq=False)
class _Basis:
    """Smooth functions on the states, (N, K), the first constant, and the roughness of each, (K,)."""

    functions: Array
    penalty: Array
    spline: SplineBasis | None = None

    @classmethod
    def on(cls, settings: FitSettings, states: States, coarse: bool) -> _Basis | None:
        N, basis = len(states.points), settings.smoothness.basis
        if basis is None:
            return None
        flat = states.points.shape[1] == states.dimension <= MOST_DIMENSIONS and not states.are_samples
        K = min(_BASIS, N // 3 if flat else max(4, N // 5)) if basis == "auto" else basis
        if flat and not coarse and 2 * (states.dimension + 1) * (states.dimension + 2) <= K:
            spline = SplineBasis(states, min(K, N - 2))
            return cls(spline.functions, (spline.rows**2).sum(axis=0), spline)
        found = smooth_functions(short_edges(states), min(K, N - 2), states.volumes, states.dimension)
        return cls(found.functions, found.values**_POWER)


@dataclass(frozen=True, eq=False)
class _Builder:
    """Builds the blocks of one fit. ``rho``: a first guess of the noise; ``base``: the dynamics to start from;
    ``speeds``: the mean speeds that were learned before, of global and of local orderings."""

    settings: FitSettings
    states: States
    base: Dynamics
    basis: _Basis | None
    rho: float
    speeds: Array | None = None

    @property
    def size(self) -> float:
        """The length of the support."""
        return float(self.states.volumes.sum() ** (1 / self.states.dimension))

    @property
    def ones(self) -> Array:
        return np.ones((len(self.states.points), 1))

    def strength(self, name: str, first: float, paper: float) -> float:
        """The strength of a penalty as it is set, or the one to start from: in a basis, or of values."""
        value = getattr(self.settings.smoothness, name)
        return (first if self.basis is not None else paper) if value == "auto" else float(value)

    def ordering(self) -> Built:
        l, v, unit = self.base.orderings[0], self.states.volumes, self.rho**2
        strength = self.strength("ordering", _START_ORDERING * self.size ** (2 * _POWER) / self.rho**4, _PAPER_ORDERING)
        if self.basis is None:
            penalty = _gradient_matrix(self.states)
            return ParameterBlock("ordering", None, penalty=penalty, strength=strength, unit=unit), l - l.mean()
        if self.basis.spline is not None:
            return self._spline_ordering(self.basis.spline, l - np.average(l, weights=v))
        extra = _quadratics(self.states)
        U = np.hstack([self.basis.functions[:, 1:], extra])
        penalty = np.concatenate([self.basis.penalty[1:], np.zeros(extra.shape[1])])
        block = ParameterBlock("ordering", U, penalty=penalty, strength=strength, unit=unit)
        return block, _coefficients(U, l - np.average(l, weights=v), v, penalty)  # U has no constant

    def _spline_ordering(self, spline: SplineBasis, l: Array) -> Built:
        D = spline.rows[:, 1:]
        relative = RelativeRoughness(D, spline.at, spline.n_free - 1)
        strength = self.strength("ordering", _START_SPLINE_ORDERING, _PAPER_ORDERING)
        U = spline.functions[:, 1:]
        block = ParameterBlock("ordering", U, strength=strength, unit=self.rho**2, relative=relative)
        return block, _coefficients(U, l, self.states.volumes, (D**2).sum(axis=0))

    def speed(self, target: str, index: int) -> Built:
        """Of a given ordering, global ("speed") or local ("local_speed")."""
        constant = self.settings.smoothness.speed == "constant" or self.basis is None
        U = self.ones if constant else self.basis.functions  # type: ignore[union-attr]
        penalty = None if constant else self.basis.penalty  # type: ignore[union-attr]
        strength = _START_NOISE * self.size ** (2 * _POWER)
        first = np.zeros(U.shape[1])
        if self.speeds is not None:
            slopes = (*self.base.slopes, *self.base.local_slopes)
            k = index + (len(self.base.slopes) if target == "local_speed" else 0)
            ratio = float(self.speeds[k] / np.average(slopes[k], weights=self.states.volumes))
            first[0] = np.log(ratio) if 0 < ratio < np.inf else 0.0
        return ParameterBlock(target, U, index, penalty=penalty, strength=strength), first

    def scale(self) -> Built:
        return ParameterBlock("scale", self.ones), np.zeros(1)

    def noise(self) -> Built:
        rho, states = self.base.noise, self.states
        centre = float(np.log(rho).mean())
        if self.settings.noise == "constant":
            return ParameterBlock("noise", self.ones, centre=centre), np.array([centre])
        first = _START_NOISE * self.size ** (2 * _POWER)
        if self.basis is not None and self.basis.spline is not None:
            first = _START_SPLINE_NOISE
        strength = self.strength("noise", first, _PAPER_NOISE)
        if self.basis is None:
            penalty = _laplacian_matrix(states, self.base.eps)
            return ParameterBlock("noise", None, centre=centre, penalty=penalty, strength=strength), np.log(rho)
        floor = 0.0 if states.are_samples else _RESOLVED * states.spacing / np.sqrt(self.base.eps)
        U, penalty = self.basis.functions, self.basis.penalty
        lower: tuple[tuple[Array, float], ...] = ()
        if self.basis.spline is not None and self.settings.smoothness.noise == "auto":
            # on a line the samples tell more of the noise: what suits planes would flatten it there
            forms = self.basis.spline.lower[: 1 if states.dimension == 1 else 2]
            lower = tuple((A, _START_LOWER) for A in forms)
        block = ParameterBlock(
            "noise", U, centre=centre, penalty=penalty, strength=strength, floor=floor, limit=_FIELD_LIMIT, lower=lower
        )
        form = sum(s * A for s, A in zip(block.strengths, block.forms, strict=True))
        return block, _coefficients(U, block.exponent(rho), states.volumes, form)

    def eps(self) -> Built:
        log_eps = float(np.log(self.base.eps))
        return ParameterBlock("eps", self.ones, centre=log_eps), np.array([log_eps])

    def density(self) -> Built:
        log_q = -np.log(self.states.volumes)
        return ParameterBlock("density", None, centre=log_q), log_q

    def all(self, n_tables: int, n_local: int) -> list[Built]:
        """Everything that is learned."""
        learned, found = self.settings.learn, []
        if "ordering" in learned:
            found.append(self.ordering())
        if "speed" in learned:
            if "ordering" not in learned:
                found += [self.speed("speed", k) for k in range(n_tables)]
            found += [self.speed("local_speed", k) for k in range(n_local)]
        return found + [getattr(self, name)() for name in ("scale", "noise", "eps", "density") if name in learned]


def parametrise(
    settings: FitSettings,
    data: Snapshots,
    states: States,
    eps: float,
    given: GivenOrderings,
    before: FittedChain | None,
    rho: float,
    coarse: bool,
    start: ParameterBlock | None = None,
) -> tuple[Parameters, Array]:
    """The blocks to be learned, that of the ``start`` first, and their first coefficients; from what was learned
    ``before``, or a guess ``rho``."""
    base = _base_dynamics(settings, data, states, eps, given, before, rho)
    speeds = None if before is None else before.speeds()
    builder = _Builder(settings, states, base, _Basis.on(settings, states, coarse), rho, speeds)
    built = builder.all(len(base.orderings), len(given.local))
    if start is not None:
        built.insert(0, (start, np.zeros(start.size(len(states.points)))))
    blocks, starts = zip(*built, strict=True)
    return Parameters(blocks, base, settings.alpha), np.concatenate(starts)


def auto_blocks(smoothness: Smoothness, parameters: Parameters) -> tuple[bool, ...]:
    """Whether the strength of each block is to be chosen; that of values is the paper's."""
    own = {"noise": smoothness.noise, "rotation": smoothness.rotation}
    return tuple(
        own.get(block.target, smoothness.ordering) == "auto"
        and (block.relative is not None or (block.penalty is not None and block.penalty.ndim == 1))
        for block in parameters.blocks
    )


def _base_dynamics(
    settings: FitSettings,
    data: Snapshots,
    states: States,
    eps: float,
    given: GivenOrderings,
    before: FittedChain | None,
    rho: float,
) -> Dynamics:
    """The dynamics to start from; what is not learned of them stays."""
    N, tables, learned = len(states.points), list(given.tables), settings.learn
    if "ordering" in learned and not tables:
        tables = [_first_ordering(states, data.horizon)]
    noise = np.full(N, rho)
    if before is not None:
        B = before.states.observe(states.points)
        noise = _bounded(np.exp(B @ np.log(before.dynamics.noise)))
        if "ordering" in learned and before.dynamics.orderings:
            tables[0] = B @ before.dynamics.orderings[0]
    if not isinstance(settings.noise, str):
        noise = np.full(N, settings.noise)
    base = Dynamics(
        eps,
        noise,
        tuple(tables),
        tuple(np.ones(N) for _ in tables),
        tuple(ordering.slope_on(states.graph) for ordering in given.local),
        settings.alpha * np.log(states.volumes),
        _SELF_WEIGHT if states.are_samples else 1.0,
    )
    base.check(N, len(given.local))
    return base


def _bounded(noise: Array) -> Array:
    """A noise within a factor of its median: from an extreme one of a coarse chain an optimiser may not come back."""
    middle = float(np.median(noise))
    return np.clip(noise, middle / NOISE_RANGE, middle * NOISE_RANGE)


def _first_ordering(states: States, horizon: float) -> Array:
    """The distance from the start along the states, as a drift that crosses most of them within the horizon; where the
    start is in several parts, from the start of each."""
    graph = short_edges(states)
    if graph.n_components == 1:
        distance = graph.geodesic(np.flatnonzero(states.start > 0.1 * states.start.max()))
    else:
        lengths, sources = graph.matrix(np.sqrt(graph.sqdist)), np.flatnonzero(states.start > 0)
        distance = dijkstra(lengths, directed=False, indices=sources, min_only=True)
        distance[~np.isfinite(distance)] = 0.0
    far = float(np.quantile(distance, 0.95))
    return distance * far / horizon


def short_edges(states: States) -> NeighborGraph:
    """A graph of short edges that holds the states together."""
    k = min(len(states.points) - 1, 30 if states.dimension <= 2 else 60)
    return NeighborGraph.build(states.points, k=k)


def _quadratics(states: States) -> Array:
    """Linear and quadratic functions of flat coordinates, which smooth functions with free edges lack."""
    X, d = states.points, states.dimension
    if X.shape[1] != d or d > 3 or states.are_samples:
        return np.empty((len(X), 0))
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    pairs = [z[:, a] * z[:, b] for a in range(d) for b in range(a, d)]
    return np.stack([*z.T, *pairs], axis=1)


def _coefficients(U: Array, f: Array, v: Array, penalty: Array) -> Array:
    """The smoothest that are little further from f, in the mean square, than the nearest: what was interpolated from
    other states is rough."""
    w = v / v.sum()
    A, b = U.T @ (w[:, None] * U), U.T @ (w * f)
    A += 1e-8 * np.trace(A) / len(A) * np.eye(len(A))
    form = np.diag(penalty) if penalty.ndim == 1 else penalty
    form = form / max(form.max(), 1e-300)
    allowed = _MOST_SMOOTHED**2 * float(w @ (f - w @ f) ** 2)
    nearest, out = np.inf, np.zeros(len(A))
    for strength in np.logspace(-12, 4, 33):
        a = np.linalg.solve(A + strength * form, b)
        off = float(w @ (U @ a - f) ** 2)
        nearest = min(nearest, off)
        if off > nearest + allowed:
            break
        out = a
    return out


def _gradient_matrix(states: States) -> Any:
    tangents = TangentSpaces.fit(states.graph, usual_neighbors(states.graph, 20), dimension=states.dimension)
    return GradientPenalty(tangents).matrix


def _laplacian_matrix(states: States, eps: float) -> Any:
    with _validation.silent():
        op = Kernel(dimension=states.dimension).operator(states.graph, eps, density=1 / states.volumes)
    return LaplacianPenalty(op).matrix
