"""A fit from samples to dynamics, in four stages.

*Look*: a coarse chain of few states and constant noise finds how large noise and drift are. *Design*: the step, the
spacing of the states and the radius of their graph follow from them. *Learn*: maximum likelihood on these states, with
smoothness by empirical Bayes. *Read*: the fields, corrected for the length of the step, and their covariance.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import lgamma
from typing import Any

import numpy as np
import scipy.sparse as sp

from ordiff import _check
from ordiff._check import Array, GraphError
from ordiff.geometry import TangentSpaces, usual_neighbors
from ordiff.inference.blocks import parametrise
from ordiff.inference.fitted import Fitted
from ordiff.inference.objective import Dynamics, Objective, Observation
from ordiff.inference.optimise import Problem, Report, Solution, first_metric, metric, optimise, settle, settle_field
from ordiff.inference.parameters import TARGETS
from ordiff.inference.regularise import Action
from ordiff.inference.seen import Seen
from ordiff.inference.times import time_quadrature, time_weights
from ordiff.states import States

# The spacing of states in standard deviations of a step where the noise is low, in two dimensions.
_SPACING = 1.05
# The graph's radius in standard deviations of a step where the noise is high, and the most neighbours it may have.
_REACH, _MOST_NEIGHBORS = 4.0, 400
# States of the coarse chain, and the most of the final one; steps within the horizon of either.
_COARSE_STATES, _MOST_STATES = 400, 4000
_COARSE_STEPS, _STEPS, _FEWEST_STEPS, _MOST_STEPS = 20, 40, 8, 80
# Where many samples are early, the step is short enough to keep all but this share of them, up to so many steps.
_EARLY, _EARLY_STEPS = 0.1, 400
# The step times the rate at which the drift changes, at most.
_TURN = 0.35
_COARSE_BASIS = 25
# How much wider than the noise asks for the spacing may be to bridge a gap between the start and the samples.
_WIDER = (1.0, 1.5, 2.2, 3.3, 5.0)
# The fewest samples that a chain is learned from, when others come too early for it or lie apart.
_FEWEST_SAMPLES = 5
# A density below this share of a uniform one is as good as none.
_FLOOR = 2.5e-3
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
        if attempt or fitted.solution.interrupted or settings.spacing != "auto" or _resolved(settings, seen, fitted):
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
        if "noise" not in settings.learn:
            raise ValueError(f"the noise is neither given (noise=1.4) nor learned; learn is {settings.learn!r}.")
    else:
        _check.positive(settings.noise, "noise")
        if set(settings.learn) == {"noise"}:
            raise ValueError(f"the noise is given as {settings.noise:g}: nothing is left to learn.")
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
    eps = _before_the_samples(seen, seen.horizon / _COARSE_STEPS)
    rho = _first_noise(settings, seen, states.dimension)
    # a step must leave its state: on few states it has to be long
    eps = float(np.clip((states.spacing / (_spacing_factor(states.dimension) * rho)) ** 2, eps, seen.horizon / 8))
    states = states.with_radius(_radius(settings, states, eps, 2 * rho, 0.0))
    coarse = clone_settings(settings, basis=_COARSE_BASIS, max_iter=60, n_starts=1)
    return _learn(coarse, seen, states, eps, None, report, rho=rho, updates=1)


def _before_the_samples(seen: Seen, eps: float) -> float:
    """A step that is no longer than the times of most samples: those seen before the first one do not count."""
    if seen.times is None or len(seen.start) > 1:
        return eps
    latest = seen.times if seen.times.ndim == 1 else seen.times.max(axis=1)
    later = latest[(latest > 1e-3 * eps) & (seen.weights > 0)]
    if later.size == 0:
        return eps
    return max(min(eps, float(np.quantile(later, _EARLY))), seen.horizon / _EARLY_STEPS)


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


def _states(settings: Any, seen: Seen, spacing: float) -> States:
    """Designed states, so far apart, or, if the spacing is ours to choose, as far as it takes to reach the start."""

    def design(spacing: float) -> States:
        return States.design(
            seen.X, spacing, seen.start, start_weights=seen.start_weights, dimension=settings.dimension,
            random_state=settings.random_state,
        )  # fmt: skip

    *first, last = _WIDER if settings.spacing == "auto" else (1.0,)
    for wider in first:
        with suppress(GraphError):
            return design(spacing * wider)
    return design(spacing * last)


def _spacing_factor(d: int) -> float:
    return _SPACING * np.sqrt(d / 2)


def _radius(settings: Any, states: States, eps: float, rho: float, drift: float) -> float:
    """Four standard deviations and the drift of a step, within bounds on the number of neighbours; or that of as many
    neighbours as the settings say."""
    d, r = states.dimension, states.spacing
    log_ball = 0.5 * d * np.log(np.pi) - lgamma(0.5 * d + 1)

    def holding(neighbors: int) -> float:
        return r * float(np.exp((np.log(neighbors / 0.65) - log_ball) / d))

    if settings.n_neighbors != "auto":
        return max(holding(_check.count(settings.n_neighbors, "n_neighbors", 5)), 3 * r)
    return float(np.clip(_REACH * np.sqrt(eps) * rho + eps * drift, 3 * r, max(holding(_MOST_NEIGHBORS), 3 * r)))


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
        eps = _before_the_samples(seen, eps)
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
    states = _states(settings, seen, spacing)
    if states.spacing > 1.01 * spacing:
        _check.warn(
            f"few samples lie between the start and the others: to bridge the gap the states are {states.spacing:.3g} "
            f"apart, where the noise asks for {spacing:.3g}. The noise may come out too large; samples that fill the "
            "gap would mend it, or the earliest samples as the start (a mask)."
        )
    if settings.eps == settings.spacing == "auto":
        longer = (states.spacing / (_spacing_factor(d) * low)) ** 2
        eps = float(np.clip(longer, eps, horizon / _FEWEST_STEPS))
    return states.with_radius(_radius(settings, states, eps, high, drift)), eps


def _resolved(settings: Any, seen: Seen, fitted: Fitted) -> bool:
    """Whether spacing and radius fit the noise that was found."""
    low, high, drift = _levels(seen, fitted)
    states, eps = fitted.states, fitted.dynamics.eps
    fine = states.spacing < 2.0 * _spacing_factor(states.dimension) * np.sqrt(eps) * low
    smallest = len(states.points) > 0.7 * min(_MOST_STATES, max(_COARSE_STATES, 2 * len(seen.X)))
    return (fine or smallest) and states.radius > 0.8 * _radius(settings, states, eps, high, drift)


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
        far[:], early[:], kept[:] = False, False, True
    if far.sum() > 0.2 * len(far):
        raise GraphError(
            f"{far.sum()} of {len(far)} samples lie apart from the start, the first at index {int(np.argmax(far))}: "
            "the process cannot reach them by small steps. Check the start and the units, or use a larger spacing."
        )
    if kept.sum() < _FEWEST_SAMPLES:
        raise ValueError(
            f"only {kept.sum()} samples were seen later than one step (eps = {eps:g}) and do not lie apart: use a "
            "smaller eps, or check the units of the times."
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
    parameters, a, given = parametrise(settings, seen, states, eps, before, rho)
    problem = Problem(objective, parameters, some.weights, report=report)
    if settings.action > 0:
        tangents = TangentSpaces.fit(states.graph, usual_neighbors(states.graph, 12), dimension=states.dimension)
        problem.action, problem.action_strength = Action(tangents), float(settings.action)
    auto = tuple(
        (settings.smooth_noise if b.target == "noise" else settings.smooth_ordering) == "auto"
        and b.penalty is not None
        and b.penalty.ndim == 1  # that of values is the paper's
        for b in parameters.blocks
    )
    nowhere = np.log(1e-11 / len(kept) if states.are_samples else 2 * _FLOOR / states.volumes.sum())
    if before is not None:
        a = _within_reach(problem, a, nowhere)
    solution, converged = _optimum(settings, problem, a, auto, updates)
    dynamics = solution.parameters.dynamics(solution.a)
    log_likelihood = objective.per_sample(dynamics)
    objective.release()
    lost = np.flatnonzero(kept)[log_likelihood < nowhere]
    unreached = np.sort(np.concatenate([np.flatnonzero(far), lost]))
    if updates > 1 and lost.size == kept.sum() and not solution.interrupted:
        raise ValueError(
            f"the process reaches none of the {lost.size} samples: check the start, the units of the times, and that "
            "they are counted from the start."
        )
    ordering = dynamics.orderings[0] if dynamics.orderings else np.zeros(len(states.points))
    if "ordering" in settings.learn and not given:
        ordering = ordering + _half_step(states, dynamics)
    return Fitted(
        states, dynamics, solution, given, ordering - states.start @ ordering, solution.loss, problem.history.losses,
        converged, unreached, np.flatnonzero(early & ~far & (len(seen.start) == 1)),
        _sampled(objective, some.weights), float(settings.alpha), problem,
    )  # fmt: skip


def _sampled(objective: Objective, weights: Array) -> Array:
    """How much the samples see of each state, on average, (N,)."""
    places = objective.observation.places
    return np.asarray(weights if places is None else weights @ places) / weights.sum()


def _within_reach(problem: Problem, a: Array, nowhere: float) -> Array:
    """Coefficients from which most samples are reached: what was learned on other states, or that with a flatter
    ordering. From where nothing is reached, nothing shows the way; few functions may carry an ordering that badly."""
    p, best = problem.parameters, (np.inf, a)
    orderings = [part for block, part in zip(p.blocks, p.slices, strict=True) if block.target == "ordering"]
    if not orderings:
        return a
    for share in (1.0, 0.5, 0.25, 0.0):
        b = a.copy()
        for part in orderings:
            b[part] *= share
        log_likelihood = problem.objective.per_sample(p.dynamics(b))
        if problem.weights @ (log_likelihood < nowhere) < 0.5 * problem.n_samples:
            return b
        best = min(best, (-float(problem.weights @ log_likelihood), b), key=lambda one: one[0])
    return best[1]


def _optimum(settings: Any, problem: Problem, a: Array, auto: tuple[bool, ...], updates: int) -> tuple[Solution, bool]:
    """The optimum, and whether it is one. An interrupt leaves the best so far."""
    parameters = problem.parameters
    small = parameters.size <= 1500 and not {"eps", "density", "scale"} & set(settings.learn)
    solution = optimise(
        problem, a, auto=auto, max_iter=settings.max_iter, tol=settings.tol, updates=updates, curvature=small
    )
    converged = solution.decrement < 0.5 and not solution.interrupted
    if solution.interrupted or updates == 1 or parameters.size == 1:
        return solution, converged
    try:
        if converged and settings.n_starts > 1:
            solution, converged = _confirmed(problem, solution, settings, small)
            if solution.interrupted:
                return solution, False
        for block, part in zip(parameters.blocks, parameters.slices, strict=True):
            if block.target != "noise" or block.basis is None or not small:
                continue
            if block.basis.shape[1] == 1:
                solution = settle(problem, solution, part.start, settings.tol)
            elif block.strength > 0:  # without smoothness much of a field is not known at all
                solution = settle_field(problem, solution, part, settings.tol)
            converged = converged and solution.decrement < 0.5
    except KeyboardInterrupt:
        solution, converged = replace(solution, interrupted=True), False
    return solution, converged


def _confirmed(problem: Problem, solution: Solution, settings: Any, curvature: bool) -> tuple[Solution, bool]:
    """The best optimum of several starts, and whether all of them end at the same."""
    rng = np.random.default_rng(settings.random_state)
    matrix = metric(problem, solution.a) if curvature else first_metric(problem)
    losses, best, same = problem.history.losses.copy(), solution, True
    for _ in range(settings.n_starts - 1):
        a = solution.a.copy()
        for block, part in zip(solution.parameters.blocks, solution.parameters.slices, strict=True):
            if block.target == "ordering":
                a[part] *= rng.uniform(0.3, 0.7)
            elif block.basis is not None:
                a[part.start] += rng.choice([-0.4, 0.4])
        a, loss = problem.minimise(a, matrix, settings.max_iter, settings.tol)
        same = same and problem.n_samples * abs(loss - solution.loss) < 1.0
        if problem.n_samples * (best.loss - loss) > 1.0:
            best = optimise(problem, a, max_iter=settings.max_iter, tol=settings.tol, curvature=curvature)
            losses = problem.history.losses.copy()
        if best.interrupted:
            return best, False
        problem.history.losses = losses.copy()  # another start is not part of the way to the optimum
    return best, same


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
