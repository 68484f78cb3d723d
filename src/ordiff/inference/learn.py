"""A fit from samples to dynamics, in four stages.

*Look*: a coarse chain of few states and constant noise finds how large noise and drift are. *Design*: the step, the
spacing of the states and the radius of their graph follow from them. *Learn*: maximum likelihood on these states, with
smoothness by empirical Bayes. *Read*: the fields, corrected for the length of the step, and their covariance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import lgamma
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _check
from ordiff._check import Array, GraphError
from ordiff.geometry import TangentSpaces, usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.inference.objective import Dynamics, Objective, Observation, time_quadrature, time_weights
from ordiff.inference.optimise import Problem, Report, Solution, metric, optimise, settle
from ordiff.inference.parameters import TARGETS, Block, Parameters
from ordiff.inference.regularise import Action, Gradient, Laplacian
from ordiff.kernel.compose import Kernel
from ordiff.kernel.ordering import Ordering, Table, as_orderings
from ordiff.operator import MarkovOperator
from ordiff.spectral import smooth_basis
from ordiff.states import States

# The spacing of states in standard deviations of a step where the noise is low, in two dimensions.
_SPACING = 1.05
# The graph's radius in standard deviations of a step where the noise is high, and the most neighbours it may have.
_REACH, _MOST_NEIGHBORS = 4.0, 400
# States of the coarse chain, and the most of the final one; steps within the horizon of either.
_COARSE_STATES, _MOST_STATES = 400, 4000
_COARSE_STEPS, _STEPS, _FEWEST_STEPS, _MOST_STEPS = 20, 40, 8, 80
# The step times the rate at which the drift changes, at most.
_TURN = 0.35
_COARSE_BASIS, _BASIS = 25, 120
# A density below this share of a uniform one is as good as none.
_FLOOR = 2.5e-3
# Smoothness to start from, in units of the support's size and of the noise.
_START_ORDERING, _START_NOISE = 1.5e-7, 7.5e-6
# Regularisation of values on the samples: the paper's.
_PAPER_ORDERING, _PAPER_NOISE = 0.03, 12.5
# Two phases: half a step apart.
_FRACTIONS = (0.5, 1.0)


@contextmanager
def progress_bar(show: bool) -> Iterator[Report | None]:
    """A bar that counts evaluations and shows the loss."""
    if not show:
        yield None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        raise _check.missing_extra("tqdm", "progress", "a progress bar") from None
    with tqdm(unit=" evaluations", desc="learning") as bar:

        def report(_: int, loss: float) -> None:
            bar.update(1)
            bar.set_postfix_str(f"loss {loss:.5f}", refresh=False)

        yield report


# ------------------------------------------------------------------------------------------- the samples


@dataclass(frozen=True, eq=False)
class Seen:
    """What was seen: points, times, and where it all began."""

    X: Array
    times: Array | None  # (m,), or (m, 2) windows; None when unknown
    weights: Array
    start: Array  # (s, n)
    start_weights: Array
    horizon: float

    @classmethod
    def make(
        cls,
        settings: Any,
        X: Array,
        times: ArrayLike | None,
        weights: ArrayLike | None,
        start: tuple[Array, Array] | None = None,
        horizon: float | None = None,
    ) -> Seen:
        """Checked; ``start`` and ``horizon`` as they were fitted, or else from the settings."""
        m = len(X)
        horizon = settings.horizon if horizon is None else horizon
        if times is None:
            if settings.time_density is None or horizon is None:
                raise ValueError(
                    "without times, give time_density (a function of an array of times) and horizon; "
                    "or pass the times to fit(X, times)."
                )
            t = None
            horizon = _check.positive(horizon, "horizon")
        else:
            t = _check.times(times, m)
            if start is not None and horizon is not None:
                horizon = max(horizon, float(t.max()))  # a fitted chain can go on
            horizon = float(t.max()) if horizon is None else _check.positive(horizon, "horizon")
            _check.within_horizon(t, horizon)
        w = np.ones(m) if weights is None else _check.nodes(weights, m, "sample_weight")
        if not ((w >= 0).all() and w.any()):
            raise ValueError("sample_weight must not be negative, and not all zero.")
        points, share = _start(settings.start, X) if start is None else start
        return cls(X, t, w, points, share, horizon)


def _start(start: Any, X: Array) -> tuple[Array, Array]:
    """Points (s, n) and weights (s,) of a start: a point, index, indices, mask or mass."""
    m, n = X.shape
    if start is None:
        raise ValueError("start is None: say where the process starts (a point, a sample's index, or several).")
    array = np.atleast_1d(np.asarray(start))
    if array.dtype.kind == "b":
        rows = np.flatnonzero(array) if array.shape == (m,) else np.empty(0, int)
        if rows.size == 0:
            raise ValueError(f"start is a mask: it must have shape ({m},) and mark at least one sample.")
        return X[rows], np.full(rows.size, 1 / rows.size)
    if array.dtype.kind in "iu" and array.ndim == 1 and array.shape != (m,):
        if array.shape == (n,) and n > 1:
            raise ValueError(
                f"start = {array.tolist()} may be a point or {n} samples: write a point with decimals "
                f"({array.astype(float).tolist()}), and samples as a mask."
            )
        rows = _check.indices(array, m, "start")
        return X[rows], np.full(rows.size, 1 / rows.size)
    if array.shape == (m,) and n != m:
        mass = _check.nodes(array, m, "start")
        if not ((mass >= 0).all() and mass.any()):
            raise ValueError("start is a mass on the samples: it must not be negative, and not all 0.")
        rows = np.flatnonzero(mass)
        return X[rows], mass[rows] / mass.sum()
    point = _check.nodes(array, n, "start")
    _check.near_samples(point, X, "start")
    return point[None, :], np.ones(1)


# ------------------------------------------------------------------------------------------- the chain


def make_objective(settings: Any, seen: Seen, states: States, eps: float) -> Objective:
    """The likelihood of what was seen, on these states."""
    steps = max(1, int(np.ceil(seen.horizon / eps - 1e-9)))
    fractions = (1.0,) if states.are_samples else _FRACTIONS
    records = np.concatenate([[0.0], ((np.arange(steps)[:, None] + np.array(fractions)) * eps).ravel()])
    m, first = len(seen.X), 0 if states.are_samples else 1  # a start is no density
    if seen.times is None:
        w = time_quadrature(lambda t: settings.time_density(np.minimum(t, seen.horizon)) * (t <= seen.horizon), records)
        w[first] += w[:first].sum()
        w[:first] = 0.0
        W = sp.csr_array(np.broadcast_to(w, (m, w.size)))
    elif seen.times.ndim == 2:
        W = _windows(seen.times, records, first)
    else:
        W = time_weights(np.minimum(seen.times, records[-1]), records, first=first)
    if states.are_samples and seen.X is states.points:
        observation = Observation(W, floor=1e-12 / m)
    else:
        floor = _FLOOR / states.volumes.sum()
        observation = Observation(W, states.observe(seen.X), states.volumes, floor)
    return Objective(states.graph, observation, states.start, steps, fractions, sample_weight=seen.weights)


def _windows(times: Array, records: Array, first: int) -> sp.csr_array:
    """W (m, R) for times uniform within windows (m, 2): 16 times in each, interpolated."""
    share = (np.arange(16) + 0.5) / 16
    W: Any = None
    for s in share:
        t = times[:, 0] + s * (times[:, 1] - times[:, 0])
        one = time_weights(np.minimum(t, records[-1]), records, first=first)
        W = one if W is None else W + one
    return sp.csr_array(W / share.size)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A chain that was learned."""

    states: States
    dynamics: Dynamics
    solution: Solution
    given: tuple[Ordering, ...]  # the local orderings
    ordering: Array  # (N,) corrected for the length of the step, 0 at the start
    loss: float
    history: list[float]
    converged: bool
    unreached: NDArray[np.intp]
    alpha: float = 1.0
    problem: Problem | None = None  # not kept in a file
    stored_deviation: float | None = None

    @classmethod
    def stored(
        cls, states: States, dynamics: Dynamics, given: tuple[Ordering, ...], ordering: Array, meta: dict[str, Any]
    ) -> Fitted:
        """What a file holds of a fit: without the coefficients."""
        none = Solution(np.empty(0), Parameters((), dynamics), meta["fitted"]["loss_"], None, 0.0)
        return cls(states, dynamics, none, given, ordering, meta["fitted"]["loss_"], [], meta["fitted"]["converged_"],
                   np.empty(0, np.intp), meta["alpha"], None, meta["level_deviation"])  # fmt: skip

    def operator(self) -> MarkovOperator:
        """P on the states."""
        d = self.dynamics
        orderings = [Ordering(l, speed=s) for l, s in zip(d.orderings, d.slopes, strict=True)]
        orderings += [
            Ordering._make(o.form, o.n_points, s, 1.0, o.gradient)
            for o, s in zip(self.given, d.local_slopes, strict=True)
        ]
        kernel = Kernel(orderings, noise=d.noise, dimension=self.states.dimension)
        with _check.silent():
            return kernel.operator(self.states.graph, d.eps, density=1 / self.states.volumes, alpha=self.alpha)

    def drift(self, X: Array) -> Array:
        """The drift at points, (p, n)."""
        states, d = self.states, self.dynamics
        B, slopes = states.polynomials(X)
        total = np.zeros(X.shape)
        for k, (l, s) in enumerate(zip(d.orderings, d.slopes, strict=True)):
            values = self.ordering if k == 0 else l
            total += (B @ s)[:, None] * np.stack([G @ values for G in slopes], axis=1)
        for o, s in zip(self.given, d.local_slopes, strict=True):
            total += B @ (s[:, None] * o.gradient_on(states.graph, states.dimension))
        return total

    def speeds(self) -> Array:
        """The mean speed of every ordering."""
        v = self.states.volumes
        return np.array([np.average(s, weights=v) for s in (*self.dynamics.slopes, *self.dynamics.local_slopes)])

    def block(self, target: str) -> tuple[Block, slice] | None:
        p = self.solution.parameters
        return next(((b, s) for b, s in zip(p.blocks, p.slices, strict=True) if b.target == target), None)

    def strength(self, target: str) -> float | None:
        found = self.block(target)
        return None if found is None else found[0].strength

    def level_deviation(self) -> float:
        """The posterior standard deviation of the noise's mean logarithm; NaN when it is not known."""
        found, C = self.block("noise"), self.solution.covariance
        if found is None or self.stored_deviation is not None:
            return self.stored_deviation or 0.0
        if C is None or found[0].basis is None:
            return float("nan")
        return float(np.sqrt(C[found[1].start, found[1].start]))

    def deviations(self, B: sp.csr_array) -> tuple[Array, Array]:
        """Posterior standard deviations at observations B: of the ordering against the start, and of log noise."""
        out = []
        for target in ("ordering", "noise"):
            found, C = self.block(target), self.solution.covariance
            if found is None or C is None or found[0].basis is None:
                out.append(np.full(B.shape[0], 0.0 if found is None else np.nan))
                continue
            U = found[0].basis
            R = B @ U
            if target == "ordering":
                R = R - self.states.start @ U
            part = C[found[1], found[1]]
            out.append(np.sqrt(np.maximum(np.einsum("ij,ij->i", R @ part, R), 0.0)))
        return out[0], out[1]


# ------------------------------------------------------------------------------------------- the stages


def learn(settings: Any, seen: Seen, report: Report | None) -> Fitted:
    """All four stages."""
    _check_settings(settings)
    if isinstance(settings.states, States):
        states = settings.states
        eps = seen.horizon / _STEPS if settings.eps == "auto" else _check.positive(settings.eps, "eps")
        return _learn(settings, seen, states, eps, None, report)
    if settings.states == "samples":
        return _learn_on_samples(settings, seen, report)
    coarse = _look(settings, seen, report)
    if coarse.solution.interrupted:
        return coarse
    for attempt in range(2):
        states, eps = _design(settings, seen, coarse)
        fitted = _learn(settings, seen, states, eps, coarse, report)
        if attempt or fitted.solution.interrupted or settings.spacing != "auto" or _resolved(seen, fitted):
            break
        coarse = fitted
    return fitted


def _check_settings(settings: Any) -> None:
    unknown = set(settings.learn) - set(TARGETS)
    if unknown or not settings.learn:
        raise ValueError(f"learn must name one or more of {', '.join(TARGETS)}; got {settings.learn!r}.")
    if isinstance(settings.states, str):
        _check.option(settings.states, "states", ("designed", "samples"))
    if isinstance(settings.noise, str):
        _check.option(settings.noise, "noise", ("field", "constant"))
    elif settings.noise is None or "noise" not in settings.learn:
        _check.positive(settings.noise, "noise")
    _check.option(settings.speed, "speed", ("constant", "field"))
    for name in ("eps", "spacing"):
        if getattr(settings, name) != "auto":
            _check.positive(getattr(settings, name), name)
    _check.count(settings.max_iter, "max_iter", 1)
    _check.count(settings.n_starts, "n_starts", 1)
    for name in ("smooth_ordering", "smooth_noise"):
        value = getattr(settings, name)
        if value != "auto" and _check.number(value, name) < 0:
            raise ValueError(f"{name} must not be negative; got {value!r}.")


def _look(settings: Any, seen: Seen, report: Report | None) -> Fitted:
    """A coarse chain."""
    states = _near_count(settings, seen, _COARSE_STATES)
    eps = seen.horizon / _COARSE_STEPS
    rho = _first_noise(settings, seen, states.dimension)
    # a step must leave its state: on few states it has to be long
    eps = float(np.clip((states.spacing / (_spacing_factor(states.dimension) * rho)) ** 2, eps, seen.horizon / 8))
    states = states.with_radius(_radius(states, eps, 2 * rho, 0.0))
    coarse = clone_settings(settings, basis=_COARSE_BASIS, max_iter=60, n_starts=1)
    return _learn(coarse, seen, states, eps, None, report, rho=rho, updates=1)


class _Settings:
    """The settings of an estimator, some of them changed."""

    def __init__(self, settings: Any, **changes: Any) -> None:
        self._settings = settings
        self.__dict__.update(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_settings"], name)


def clone_settings(settings: Any, **changes: Any) -> Any:
    return _Settings(settings, **changes)


def _first_noise(settings: Any, seen: Seen, d: int) -> float:
    """A first guess of the noise: what spreads the earliest samples, or, without times, half of what spreads all."""
    if not isinstance(settings.noise, str):
        return float(settings.noise)
    origin = seen.start_weights @ seen.start
    if seen.times is None:
        away = ((seen.X - origin) ** 2).sum(axis=1)
        return float(0.5 * np.sqrt(np.median(away) / (d * seen.horizon / 2)))
    t = np.asarray(seen.times, dtype=float).reshape(len(seen.X), -1).mean(axis=1)
    later = np.flatnonzero(t > 1e-3 * seen.horizon)
    first = later[np.argsort(t[later], kind="stable")[: max(30, len(later) // 10)]]
    first = later[t[later] <= t[first].max()]  # all that were seen with the last of them
    centred = seen.X[first] - seen.X[first].mean(axis=0)
    shift = t[first] - t[first].mean()
    if shift.any():
        centred -= np.outer(shift, shift @ centred / (shift @ shift))  # moved by a drift
    before = (seen.start_weights @ ((seen.start - origin) ** 2)).sum()
    spread = (centred**2).sum(axis=1).mean()
    return float(np.sqrt(max(spread - before, 0.1 * spread) / (d * t[first].mean())))


def _near_count(settings: Any, seen: Seen, n_states: int) -> States:
    """Designed states, about this many."""
    spacing = States.spacing_for(n_states, seen.X, settings.dimension)
    for _ in range(4):
        states = _states(settings, seen, spacing)
        ratio = len(states.points) / n_states
        if 0.7 < ratio < 1.4:
            break
        spacing = states.spacing * ratio ** (1 / states.dimension)
    return states


def _states(settings: Any, seen: Seen, spacing: float | None, radius: float | None = None) -> States:
    return States.design(
        seen.X, spacing, seen.start, start_weights=seen.start_weights, radius=radius, dimension=settings.dimension,
        random_state=settings.random_state,
    )  # fmt: skip


def _spacing_factor(d: int) -> float:
    return _SPACING * np.sqrt(d / 2)


def _radius(states: States, eps: float, rho: float, drift: float) -> float:
    """Four standard deviations and the drift of a step, within bounds on the number of neighbours."""
    d, r = states.dimension, states.spacing
    log_ball = 0.5 * d * np.log(np.pi) - lgamma(0.5 * d + 1)
    most = r * float(np.exp((np.log(_MOST_NEIGHBORS / 0.65) - log_ball) / d))
    return float(np.clip(_REACH * np.sqrt(eps) * rho + eps * drift, 3 * r, max(most, 3 * r)))


def _levels(seen: Seen, fitted: Fitted) -> tuple[float, float, float]:
    """Low and high noise over the samples, and a high drift."""
    B = fitted.states.observe(seen.X)
    low, high = np.quantile(np.exp(B @ np.log(fitted.dynamics.noise)), [0.1, 0.95])
    drift = np.quantile(np.linalg.norm(fitted.drift(seen.X), axis=1), 0.95)
    return float(low), float(high), float(drift)


def _fastest(seen: Seen, fitted: Fitted) -> float:
    """How fast the drift changes in space, 1/time: its difference to the 10th neighbour, high over the samples."""
    from scipy.spatial import cKDTree

    X = seen.X if len(seen.X) <= 5000 else seen.X[:: len(seen.X) // 5000]
    distance, near = cKDTree(X).query(X, min(11, len(X)), workers=-1)
    drift = fitted.drift(X)
    change = np.linalg.norm(drift[near[:, -1]] - drift, axis=1)
    return float(np.quantile(change / np.maximum(distance[:, -1], np.finfo(float).tiny), 0.9))


def _design(settings: Any, seen: Seen, coarse: Fitted) -> tuple[States, float]:
    """States and step for noise and drift of this size."""
    low, high, drift = _levels(seen, coarse)
    d, horizon = coarse.states.dimension, seen.horizon
    if settings.eps == "auto":
        eps = float(np.clip(_TURN / _fastest(seen, coarse), horizon / _MOST_STEPS, horizon / _STEPS))
    else:
        eps = _check.positive(settings.eps, "eps")
    if settings.spacing != "auto":
        spacing = _check.positive(settings.spacing, "spacing")
    else:
        spacing = _spacing_factor(d) * np.sqrt(eps) * low
        most = min(_MOST_STATES, max(_COARSE_STATES, 2 * len(seen.X)))
        finest = coarse.states.spacing * (len(coarse.states.points) / most) ** (1 / d)
        coarsest = coarse.states.spacing * (len(coarse.states.points) / 200) ** (1 / d)
        spacing = float(np.clip(spacing, finest, coarsest))
        if settings.eps == "auto":
            longer = (spacing / (_spacing_factor(d) * low)) ** 2
            eps = float(np.clip(longer, eps, horizon / _FEWEST_STEPS))
    states = _states(settings, seen, spacing)
    return states.with_radius(_radius(states, eps, high, drift)), eps


def _resolved(seen: Seen, fitted: Fitted) -> bool:
    """Whether spacing and radius fit the noise that was found."""
    low, high, drift = _levels(seen, fitted)
    states, eps = fitted.states, fitted.dynamics.eps
    fine = states.spacing < 1.4 * _spacing_factor(states.dimension) * np.sqrt(eps) * low
    smallest = len(states.points) > 0.7 * min(_MOST_STATES, max(_COARSE_STATES, 2 * len(seen.X)))
    return (fine or smallest) and states.radius > 0.8 * _radius(states, eps, high, drift)


def _learn(
    settings: Any,
    seen: Seen,
    states: States,
    eps: float,
    before: Fitted | None,
    report: Report | None,
    *,
    rho: float | None = None,
    updates: int = 3,
) -> Fitted:
    """Maximum likelihood on these states, from what was learned before."""
    distance = states.distance(seen.X)  # noise across a manifold is in it too
    far = distance > 2.5 * states.spacing + 4 * np.median(distance)
    early = np.zeros(len(far), bool)
    if seen.times is not None:
        latest = seen.times if seen.times.ndim == 1 else seen.times.max(axis=1)
        early = latest < (eps if len(seen.start) == 1 else 1e-9 * seen.horizon)
    kept = ~(far | early) & (seen.weights > 0)
    if states.are_samples:
        far[:], kept[:] = False, True
    if far.sum() > 0.2 * len(far):
        raise GraphError(
            f"{far.sum()} of {len(far)} samples lie apart from the start, the first at index {int(np.argmax(far))}: "
            "the process cannot reach them by small steps. Check the start and the units, or use a larger spacing."
        )
    if kept.sum() < 10:
        raise ValueError(
            f"only {kept.sum()} samples were seen later than one step (eps = {eps:g}): use a smaller eps, or check "
            "the units of the times."
        )
    some = (
        seen
        if kept.all()
        else replace(
            seen, X=seen.X[kept], weights=seen.weights[kept], times=None if seen.times is None else seen.times[kept]
        )
    )
    objective = make_objective(settings, some, states, eps)
    if rho is None:
        rho = _first_noise(settings, seen, states.dimension)
    parameters, a, given = _parametrise(settings, seen, states, eps, before, rho)
    problem = Problem(objective, parameters, some.weights, report=report)
    if settings.action > 0:
        tangents = TangentSpaces.fit(states.graph, usual_neighbors(states.graph, 12), dimension=states.dimension)
        problem.action, problem.action_strength = Action(tangents), float(settings.action)
    auto = tuple(
        (settings.smooth_noise if b.target == "noise" else settings.smooth_ordering) == "auto" and b.penalty is not None
        for b in parameters.blocks
    )
    solution, converged = _optimum(settings, problem, a, auto, updates)
    dynamics = solution.parameters.dynamics(solution.a)
    log_likelihood = objective.per_sample(dynamics)
    nowhere = 1e-11 / len(kept) if states.are_samples else 2 * _FLOOR / states.volumes.sum()
    lost = np.flatnonzero(kept)[log_likelihood < np.log(nowhere)]
    unreached = np.sort(np.concatenate([np.flatnonzero(far), lost]))
    ordering = dynamics.orderings[0] if dynamics.orderings else np.zeros(len(states.points))
    if dynamics.orderings and not given:
        ordering = ordering + _half_step(states, dynamics)
    return Fitted(
        states, dynamics, solution, given, ordering - states.start @ ordering, solution.loss, problem.history.losses,
        converged, unreached, float(settings.alpha), problem,
    )  # fmt: skip


def _optimum(settings: Any, problem: Problem, a: Array, auto: tuple[bool, ...], updates: int) -> tuple[Solution, bool]:
    """The optimum, and whether it is one. An interrupt leaves the best so far."""
    parameters = problem.parameters
    small = parameters.size <= 1500 and not {"eps", "density", "scale"} & set(settings.learn)
    solution = optimise(
        problem, a, auto=auto, max_iter=settings.max_iter, tol=settings.tol, updates=updates, curvature=small
    )
    free = np.ones(parameters.size, bool)
    try:
        for block, part in zip(parameters.blocks, parameters.slices, strict=True):
            constant = block.target == "noise" and part.stop - part.start == 1
            if constant and parameters.size > 1 and updates > 1 and small and not solution.interrupted:
                solution = settle(problem, solution, part.start, settings.tol)
                free[part] = False
        converged = solution.decrement < 0.5 and not solution.interrupted
        if converged and settings.n_starts > 1:
            converged = _confirmed(problem, solution, settings, free)
    except KeyboardInterrupt:
        solution, converged = replace(solution, interrupted=True), False
    return solution, converged


def _confirmed(problem: Problem, solution: Solution, settings: Any, free: NDArray[np.bool_]) -> bool:
    """Whether other starts end at the same optimum of the coefficients that are ``free``."""
    rng = np.random.default_rng(settings.random_state)
    matrix = metric(problem, solution.a)
    for _ in range(settings.n_starts - 1):
        a = solution.a.copy()
        for block, part in zip(solution.parameters.blocks, solution.parameters.slices, strict=True):
            if block.target == "ordering":
                a[part] *= rng.uniform(0.3, 0.7)
            elif block.basis is not None and free[part.start]:
                a[part.start] += rng.choice([-0.4, 0.4])
        _, loss = problem.minimise(a, matrix, settings.max_iter, settings.tol, free)
        if problem.n_samples * abs(loss - solution.loss) > 1.0:
            return False
    return True


def _half_step(states: States, dynamics: Dynamics) -> Array:
    """½ρ² log(Z/Z_0): the kernel is an implicit Euler step, so that a fitted l is off by about ½ε‖∇l‖²/2; see
    FORMULAS section 8, the line. Z and Z_0 are the row sums of the kernel with and without the ordering."""
    graph, rho2 = states.graph, dynamics.noise**2
    i = graph.sources()
    base = -0.5 * graph.sqdist / (dynamics.eps * rho2[i]) + np.log(states.volumes)[graph.indices]
    l = dynamics.orderings[0]
    tilt = (dynamics.slopes[0] / rho2)[i] * (l[graph.indices] - l[i])

    def log_sum(u: Array) -> Array:
        top = np.maximum.reduceat(u, graph.indptr[:-1])
        return top + np.log(np.add.reduceat(np.exp(u - top[i]), graph.indptr[:-1]))

    return 0.5 * rho2 * (log_sum(base + tilt) - log_sum(base)) / dynamics.slopes[0]


# ------------------------------------------------------------------------------------------- parameters


def _parametrise(
    settings: Any, seen: Seen, states: States, eps: float, before: Fitted | None, rho: float
) -> tuple[Parameters, Array, tuple[Ordering, ...]]:
    """The blocks to be learned, their first coefficients, and the given local orderings."""
    N, v, graph = len(states.points), states.volumes, states.graph
    learned, basis = set(settings.learn), settings.basis
    tables, given = _given(settings, seen, states)
    if "ordering" in learned and not tables:
        tables = [_first_ordering(states, seen.horizon)]
    rho0 = np.full(N, rho)
    if before is not None:
        B = before.states.observe(states.points)
        rho0 = np.exp(B @ np.log(before.dynamics.noise))
        if "ordering" in learned and before.dynamics.orderings:
            tables[0] = B @ before.dynamics.orderings[0]
    if not isinstance(settings.noise, str):
        rho0 = np.full(N, float(settings.noise))
    local = tuple(o.differences(graph, graph.sources(), graph.indices.astype(np.intp)) for o in given)
    base = Dynamics(
        eps, rho0, tuple(tables), tuple(np.ones(N) for _ in tables), local,
        tuple(o.slope_on(graph) for o in given), float(settings.alpha) * np.log(v),
        0.5 if states.are_samples else 1.0,
    )  # fmt: skip
    size = v.sum() ** (1 / states.dimension)
    functions = None
    if basis is not None:
        K = min(_BASIS, max(4, N // 5)) if basis == "auto" else _check.count(basis, "basis", 2)
        functions = smooth_basis(_short(states), min(K, N - 2), v, dimension=states.dimension)
    blocks: list[Block] = []
    starts: list[Array] = []
    ones = np.ones((N, 1))

    def strength(name: str, first: float, paper: float) -> float:
        value = getattr(settings, name)
        return (first if basis is not None else paper) if value == "auto" else float(value)

    if "ordering" in learned:
        l_strength = strength("smooth_ordering", _START_ORDERING * size**4 / rho**4, _PAPER_ORDERING)
        if functions is None:
            blocks.append(Block("ordering", None, penalty=_gradient_matrix(states), strength=l_strength))
            starts.append(tables[0] - tables[0].mean())
        else:
            U, penalty = functions.functions[:, 1:], functions.values[1:] ** 2
            extra = _quadratics(states)
            U, penalty = np.hstack([U, extra]), np.concatenate([penalty, np.zeros(extra.shape[1])])
            blocks.append(Block("ordering", U, penalty=penalty, strength=l_strength))
            starts.append(_coefficients(U, tables[0], v, penalty))
    for target, k in [("speed", k) for k in range(len(tables))] + [("local_speed", k) for k in range(len(given))]:
        if "speed" in learned and not (target == "speed" and "ordering" in learned):
            U = ones if settings.speed == "constant" or functions is None else functions.functions
            rough = None if U is ones else functions.values**2  # type: ignore[union-attr]
            blocks.append(Block(target, U, k, penalty=rough, strength=_START_NOISE * size**4))
            starts.append(np.zeros(U.shape[1]))
    if "scale" in learned:
        blocks.append(Block("scale", ones))
        starts.append(np.zeros(1))
    if "noise" in learned:
        centre = float(np.log(rho0).mean())
        if settings.noise == "constant" or not isinstance(settings.noise, str):
            blocks.append(Block("noise", ones, centre=centre))
            starts.append(np.array([centre]))
        elif functions is None:
            s = strength("smooth_noise", 0.0, _PAPER_NOISE)
            blocks.append(Block("noise", None, centre=centre, penalty=_laplacian_matrix(states, eps), strength=s))
            starts.append(np.log(rho0))
        else:
            s = strength("smooth_noise", _START_NOISE * size**4, _PAPER_NOISE)
            U, penalty = functions.functions, functions.values**2
            blocks.append(Block("noise", U, centre=centre, penalty=penalty, strength=s))
            starts.append(_coefficients(U, np.log(rho0), v, penalty))
    if "eps" in learned:
        blocks.append(Block("eps", ones, centre=float(np.log(eps))))
        starts.append(np.array([np.log(eps)]))
    if "density" in learned:
        blocks.append(Block("density", None, centre=-np.log(v)))
        starts.append(-np.log(v))
    return Parameters(tuple(blocks), base, float(settings.alpha)), np.concatenate(starts), given


def _given(settings: Any, seen: Seen, states: States) -> tuple[list[Array], tuple[Ordering, ...]]:
    """The given orderings on the states: values of global ones, and local ones."""
    ordering = settings.ordering
    if ordering is None:
        if "ordering" not in settings.learn:
            raise ValueError('the ordering is neither given (ordering=...) nor learned (learn=("ordering", ...)).')
        return [], ()
    if callable(ordering):
        found = as_orderings(ordering(states.points))
    elif isinstance(ordering, Ordering) or (isinstance(ordering, list) and isinstance(ordering[0], Ordering)):
        if not states.are_samples:
            raise ValueError(
                'an Ordering is known at the samples only: use states="samples", or give a function of points that '
                "returns the Ordering on them."
            )
        found = as_orderings(ordering)
    else:
        values = _check.nodes(ordering, len(seen.X), "ordering")
        return [values if states.are_samples else states.from_samples(seen.X, values)], ()
    tables, local = [], []
    for one in found:
        plain = isinstance(one.form, Table) and len(one.form.values) == 1 and not isinstance(one.scale, str)
        if plain and "ordering" not in settings.learn:
            tables.append(one.form.values[0])  # type: ignore[union-attr]
        else:
            local.append(one)
    return tables, tuple(local)


def _first_ordering(states: States, horizon: float) -> Array:
    """The distance from the start along the states, as a drift that crosses most of them within the horizon."""
    graph = _short(states)
    distance = graph.geodesic(np.flatnonzero(states.start > 0.1 * states.start.max()))
    far = float(np.quantile(distance, 0.95))
    return distance * far / horizon


def _short(states: States) -> NeighborGraph:
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
    """Least squares with a little smoothness."""
    w = v / v.sum()
    A = U.T @ (w[:, None] * U)
    A += 1e-4 * np.diag(penalty / max(penalty.max(), 1e-300)) + 1e-8 * np.eye(len(A))
    return np.linalg.solve(A, U.T @ (w * (f - w @ f if penalty[0] > 1e-12 else f)))


def _gradient_matrix(states: States) -> Any:
    tangents = TangentSpaces.fit(states.graph, usual_neighbors(states.graph, 20), dimension=states.dimension)
    return Gradient(tangents).matrix


def _laplacian_matrix(states: States, eps: float) -> Any:
    with _check.silent():
        op = Kernel(dimension=states.dimension).operator(states.graph, eps, density=1 / states.volumes)
    return Laplacian(op).matrix


def _learn_on_samples(settings: Any, seen: Seen, report: Report | None) -> Fitted:
    """The paper's setting: the samples are the states."""
    eps = seen.horizon / _STEPS if settings.eps == "auto" else _check.positive(settings.eps, "eps")
    designed = clone_settings(
        settings, states="designed", ordering=None, learn=("ordering", "noise"), smooth_ordering="auto",
        smooth_noise="auto", noise="field" if isinstance(settings.noise, str) else settings.noise,
    )  # fmt: skip
    coarse = _look(designed, seen, report)
    if coarse.solution.interrupted:
        return coarse
    _, high, drift = _levels(seen, coarse)
    radius = _REACH * np.sqrt(eps) * high + eps * drift
    k = None if settings.n_neighbors == "auto" else _check.count(settings.n_neighbors, "n_neighbors", 5)
    states = States.samples(
        seen.X, seen.start, seen.start_weights, radius=radius, k=k, density=settings.density,
        dimension=settings.dimension,
    )  # fmt: skip
    return _learn(settings, replace(seen, X=states.points), states, eps, coarse, report)
