"""How a process becomes a chain: the step, the spacing of the states and the radius of their graph.

They follow from how large noise and drift are, which a coarse chain has found: a step short against the rate at which
the drift changes, states closer than a step where the noise is low, a graph wider than a step where it is high.
"""

from __future__ import annotations

from contextlib import suppress
from math import lgamma
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from ordiff import _validation
from ordiff._validation import Array, GraphError
from ordiff.graph.search import query_tree
from ordiff.learning.blocks_elsewhere import ChainView
from ordiff.learning.data import Snapshots
from ordiff.learning.likelihood import SnapshotLikelihood
from ordiff.learning.observation import Observation, known_time_weights, time_quadrature
from ordiff.learning.result import FittedChain
from ordiff.learning.settings import FitSettings
from ordiff.states import States

# The spacing of states in standard deviations of a step where the noise is low, in two dimensions.
_SPACING = 1.05
# The spacing of states in standard deviations of the narrowest density that the drift can hold together; no less than
# half of what the step asks for.
_WIDTH = 0.6
# The graph's radius in standard deviations of a step where the noise is high, and the most neighbours it may have.
REACH, _MOST_NEIGHBORS = 4.0, 400
# A chain is designed for noise up to this factor below and above its median: on real data single regions ask for more,
# and states for them would take minutes. The check of the fit tells.
NOISE_RANGE = 2.5
# The most edges times time slices of a chain: with more a fit takes minutes.
_MOST_WORK = 5e7
# States of the coarse chain; steps within the horizon of either chain.
_COARSE_STATES = 400
_COARSE_STEPS, STEPS, _FEWEST_STEPS, _MOST_STEPS = 20, 40, 8, 80
# Where many samples are early, the step is short enough to keep all but this share of them, up to so many steps.
_EARLY, _EARLY_STEPS = 0.1, 400
# The step times the rate at which the drift changes, at most.
_TURN = 0.35
# A step is too long from so many times the one that the drift asks for.
_LONGER = 1.4
# How much wider than the noise asks for the spacing may be to bridge a gap between the start and the samples.
_WIDER = (1.0, 1.5, 2.2, 3.3, 5.0)
# A density below this share of a uniform one is as good as none.
DENSITY_FLOOR = 2.5e-3
# A chain of more steps is a matter of wrong units.
_MOST_STEPS_OF_A_CHAIN = 100_000
# Two phases: half a step apart.
_FRACTIONS = (0.5, 1.0)


def likelihood_on(
    settings: FitSettings,
    data: Snapshots,
    states: States,
    eps: float,
    local: tuple[Array, ...] = (),
    metric: tuple[Array, ...] = (),
) -> SnapshotLikelihood:
    """The likelihood of snapshots on these states, with local orderings and forms of a metric on their edges."""
    if data.horizon > _MOST_STEPS_OF_A_CHAIN * eps:
        raise ValueError(
            f"up to time {data.horizon:g} there are {data.horizon / eps:.3g} steps of {eps:g}, more than "
            f"{_MOST_STEPS_OF_A_CHAIN:,}: check the units of the times, the horizon, and eps."
        )
    steps = max(1, int(np.ceil(data.horizon / eps - 1e-9)))
    fractions = (1.0,) if states.are_samples else _FRACTIONS
    slices = np.concatenate([[0.0], ((np.arange(steps)[:, None] + np.array(fractions)) * eps).ravel()])
    W = _time_matrix(settings, data, slices, 0 if states.are_samples else 1)  # a start is no density
    if states.are_samples and data.X is states.points:
        observation = Observation(W, floor=1e-12 / len(data.X))
    else:
        floor = DENSITY_FLOOR / states.volumes.sum()
        elsewhere = None if data.elsewhere is None else data.elsewhere.observed(ChainView(states, slices, 1, floor))
        observation = Observation(W, states.observe(data.X), states.volumes, floor, elsewhere)
    return SnapshotLikelihood(
        states.graph, observation, states.start, steps, fractions, sample_weight=data.weights, local=local,
        metric=metric,
    )  # fmt: skip


def _time_matrix(settings: FitSettings, data: Snapshots, slices: Array, first: int) -> sp.csr_array:
    """W (m, T) of known times, windows or their density; no weight before the time slice ``first``."""
    if data.times is None:
        w = time_quadrature(settings.times.at, slices)
        w[first] += w[:first].sum()
        w[:first] = 0.0
        return sp.csr_array(np.broadcast_to(w, (len(data.X), w.size)))
    return known_time_weights(data.times, slices, first)


def first_noise(settings: FitSettings, data: Snapshots, d: int) -> float:
    """A first guess of the noise: what spreads the earliest samples, or, without times, half of what spreads all."""
    if not isinstance(settings.noise, str):
        return settings.noise
    origin = data.start_weights @ data.start
    if data.times is None:
        away = ((data.X - origin) ** 2).sum(axis=1)
        return float(0.5 * np.sqrt(np.median(away) / (d * data.horizon / 2)))
    t = np.asarray(data.times, dtype=float).reshape(len(data.X), -1).mean(axis=1)
    later = np.flatnonzero(t > 1e-3 * data.horizon)
    first = later[np.argsort(t[later], kind="stable")[: max(30, len(later) // 10)]]
    first = later[t[later] <= t[first].max()]  # all that were seen with the last of them
    centred = data.X[first] - data.X[first].mean(axis=0)
    shift = t[first] - t[first].mean()
    if shift.any():
        centred -= np.outer(shift, shift @ centred / (shift @ shift))  # moved by a drift
    before = (data.start_weights @ ((data.start - origin) ** 2)).sum()
    spread = (centred**2).sum(axis=1).mean()
    return float(np.sqrt(max(spread - before, 0.1 * spread) / (d * t[first].mean())))


# ------------------------------------------------------------------------------------------ the coarse chain


def coarse_design(settings: FitSettings, data: Snapshots) -> tuple[States, float, float]:
    """States, step, and a first guess of the noise."""
    states = _about(settings, data, _COARSE_STATES)
    eps = _before_the_samples(data, data.horizon / _COARSE_STEPS)
    rho = first_noise(settings, data, states.dimension)
    # a step must leave its state: on few states it has to be long
    eps = float(np.clip((states.spacing / (_spacing_factor(states.dimension) * rho)) ** 2, eps, data.horizon / 8))
    return states.with_radius(_radius(settings, states, eps, 2 * rho, 0.0)), eps, rho


def _about(settings: FitSettings, data: Snapshots, n_states: int) -> States:
    """Designed states, about this many."""
    spacing = States.spacing_for(n_states, data.X, settings.dimension)
    for _ in range(4):
        states = _states(settings, data, spacing)
        ratio = len(states.points) / n_states
        if 0.7 < ratio < 1.4:
            break
        spacing = states.spacing * ratio ** (1 / states.dimension)
    return states


# ------------------------------------------------------------------------------------------ the final chain


def design(settings: FitSettings, data: Snapshots, coarse: FittedChain) -> tuple[States, float]:
    """States and step for noise and drift of the size that a chain has found."""
    low, high, drift = levels(data, coarse)
    d, eps = coarse.states.dimension, _step(settings, data, coarse)
    spacing = _spacing(settings, data, coarse, eps, low)
    refined = _refined(settings, data, coarse, spacing, low)
    if settings.spacing == "auto":
        least = _affordable(data, coarse, eps, REACH * np.sqrt(eps) * high + eps * drift)
        least = min(least, coarse.states.spacing)
        spacing, refined = max(spacing, least), max(refined, least)
    try:
        states = _states(settings, data, refined, widen=False)
    except GraphError:  # a gap, which wider states may bridge
        states = _states(settings, data, spacing)
    if states.spacing > 1.01 * spacing:
        _validation.warn(
            f"few samples lie between the start and the others: to bridge the gap the states are {states.spacing:.3g} "
            f"apart, where the noise asks for {spacing:.3g}. The noise may come out too large; samples that fill the "
            "gap would mend it, or the earliest samples as the start (a mask)."
        )
    if settings.solver.eps == settings.spacing == "auto":
        longer = (states.spacing / (_spacing_factor(d) * low)) ** 2
        eps = float(np.clip(longer, eps, data.horizon / _FEWEST_STEPS))
    return states.with_radius(_radius(settings, states, eps, high, drift)), eps


def is_resolved(settings: FitSettings, data: Snapshots, chain: FittedChain) -> bool:
    """Whether spacing and radius fit the noise that was found, and the step the drift."""
    low, high, drift = levels(data, chain)
    states, eps = chain.states, chain.dynamics.eps
    spaced = (states.spacing / (_spacing_factor(states.dimension) * low)) ** 2
    if eps > _LONGER * max(_step(settings, data, chain), spaced):
        return False
    fine = states.spacing < 2.0 * _spacing_factor(states.dimension) * np.sqrt(eps) * low
    smallest = len(states.points) > 0.7 * _most_states(settings, data)
    return bool((fine or smallest) and states.radius > 0.8 * _radius(settings, states, eps, high, drift))


def levels(data: Snapshots, chain: FittedChain) -> tuple[float, float, float]:
    """Low and high noise over the samples, within a factor of the median, and a high drift."""
    B = chain.states.observe(data.X)
    low, middle, high = np.quantile(np.exp(B @ np.log(chain.dynamics.noise)), [0.1, 0.5, 0.95])
    drift = np.quantile(np.linalg.norm(chain.drift(data.X), axis=1), 0.95)
    return float(max(low, middle / NOISE_RANGE)), float(min(high, middle * NOISE_RANGE)), float(drift)


def _step(settings: FitSettings, data: Snapshots, coarse: FittedChain) -> float:
    if settings.solver.eps != "auto":
        return float(settings.solver.eps)
    eps = float(np.clip(_TURN / _fastest(data, coarse), data.horizon / _MOST_STEPS, data.horizon / STEPS))
    return _before_the_samples(data, eps)


def _spacing(settings: FitSettings, data: Snapshots, coarse: FittedChain, eps: float, low: float) -> float:
    if settings.spacing != "auto":
        return float(settings.spacing)
    states, d = coarse.states, coarse.states.dimension
    finest = states.spacing * (len(states.points) / _most_states(settings, data)) ** (1 / d)
    coarsest = max(finest, states.spacing * (len(states.points) / 200) ** (1 / d))
    return float(np.clip(wanted_spacing(d, eps, low), finest, coarsest))


def _refined(settings: FitSettings, data: Snapshots, coarse: FittedChain, spacing: float, low: float) -> float:
    """A spacing that also resolves the narrowest density that the drift can hold together."""
    if settings.spacing != "auto":
        return spacing
    states, d = coarse.states, coarse.states.dimension
    finest = states.spacing * (len(states.points) / _most_states(settings, data)) ** (1 / d)
    width = low / np.sqrt(2 * _fastest(data, coarse))
    return float(np.clip(_WIDTH * width, min(spacing, max(finest, 0.5 * spacing)), spacing))


def _affordable(data: Snapshots, coarse: FittedChain, eps: float, radius: float) -> float:
    """The spacing at which states with neighbours up to the radius have the most work: both grow as spacing^−d."""
    states, d = coarse.states, coarse.states.dimension
    neighbors = np.exp(_log_ball(d)) * radius**d / states.volumes.mean()
    slices = len(_FRACTIONS) * data.horizon / eps
    work = len(states.points) * neighbors * slices
    return float(states.spacing * (work / _MOST_WORK) ** (0.5 / d))


def _most_states(settings: FitSettings, data: Snapshots) -> int:
    return min(settings.max_states, max(_COARSE_STATES, 2 * len(data.distinct)))


def _before_the_samples(data: Snapshots, eps: float) -> float:
    """A step that is no longer than the times of most samples: those seen before the first one do not count."""
    latest = data.latest
    if latest is None or not data.one_start:
        return eps
    later = latest[(latest > 1e-3 * eps) & (data.weights > 0)]
    if later.size == 0:
        return eps
    return max(min(eps, float(np.quantile(later, _EARLY))), data.horizon / _EARLY_STEPS)


def _fastest(data: Snapshots, chain: FittedChain) -> float:
    """How fast the drift changes in space, 1/time: its difference to the 10th neighbour, high over the samples."""
    X = data.distinct
    X = X if len(X) <= 5000 else X[:: len(X) // 5000]
    distance, near = query_tree(cKDTree(X), X, min(11, len(X)))
    drift = chain.drift(X)
    change = np.linalg.norm(drift[near[:, -1]] - drift, axis=1)
    return float(np.quantile(change / np.maximum(distance[:, -1], np.finfo(float).tiny), 0.9))


def _states(settings: FitSettings, data: Snapshots, spacing: float, widen: bool = True) -> States:
    """Designed states, so far apart, or, if the spacing is ours to choose, as far as it takes to reach the start; on
    the way between snapshots too."""

    def attempt(spacing: float, support: Array) -> States:
        return States.design(
            support, spacing, data.start, start_weights=data.start_weights, dimension=settings.dimension,
            random_state=settings.random_state,
        )  # fmt: skip

    if len(data.way):
        with suppress(GraphError):
            states = attempt(spacing, np.concatenate([data.support, data.way]))
            if states.dimension == states.points.shape[1]:  # straight ways leave a curved manifold
                return states
    *first, last = _WIDER if widen and settings.spacing == "auto" else (1.0,)
    for wider in first:
        with suppress(GraphError):
            return attempt(spacing * wider, data.support)
    return attempt(spacing * last, data.support)


def wanted_spacing(d: int, eps: float, noise: float) -> float:
    """The spacing that a step with this noise asks for."""
    return float(_spacing_factor(d) * np.sqrt(eps) * noise)


def _spacing_factor(d: int) -> float:
    return float(_SPACING * np.sqrt(d / 2))


def _log_ball(d: int) -> float:
    """The logarithm of the volume of the unit ball."""
    return float(0.5 * d * np.log(np.pi) - lgamma(0.5 * d + 1))


def _radius(settings: FitSettings, states: States, eps: float, rho: float, drift: float) -> float:
    """Four standard deviations and the drift of a step, within bounds on the number of neighbours; or that of as many
    neighbours as the settings say."""
    d, r = states.dimension, states.spacing

    def holding(neighbors: Any) -> float:
        return r * float(np.exp((np.log(neighbors / 0.65) - _log_ball(d)) / d))

    if settings.n_neighbors != "auto":
        return max(holding(settings.n_neighbors), 3 * r)
    return float(np.clip(REACH * np.sqrt(eps) * rho + eps * drift, 3 * r, max(holding(_MOST_NEIGHBORS), 3 * r)))
