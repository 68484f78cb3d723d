"""How well a fit is known: the likelihood along the noise, and resampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline

from ordiff import _validation
from ordiff._validation import Array
from ordiff.learning.likelihood import SnapshotLikelihood
from ordiff.learning.marginal import profile_nats
from ordiff.learning.optimise import Evaluations, PenalisedLikelihood, Solution, minimise


@dataclass(frozen=True, eq=False)
class LikelihoodProfile:
    """The marginal likelihood along one parameter, in nats below that of the fitted level."""

    levels: Array
    nats: Array
    best: float
    interval: tuple[float, float]  # 0 or infinity where the grid does not reach an end


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """One standard deviation at the samples: of the ordering (against the start), and of the logarithm of the noise."""

    ordering: Array
    log_noise: Array


def noise_profile(solution: Solution, grid: ArrayLike | None, tol: float) -> LikelihoodProfile:
    """The marginal likelihood with the level of the noise held at each of the grid; ½ to 2 times the fitted one."""
    found = solution.parameters.part("noise")
    if found is None or found[0].basis is None:
        raise ValueError("a profile needs a model that was fitted with a noise in a basis or constant.")
    at = found[1].start
    best = float(np.exp(solution.a[at]))
    levels = best * np.geomspace(0.5, 2.0, 9)
    if grid is not None:
        levels = np.unique(_validation.positive_numbers(grid, "grid"))
        if levels.size == 0:
            raise ValueError("grid has no level of the noise: give at least one.")
    nats = profile_nats(solution, at, np.log(levels), Evaluations(), tol)
    return LikelihoodProfile(levels, nats, *_interval(levels, nats, best))


def _interval(levels: Array, nats: Array, fitted: float) -> tuple[float, tuple[float, float]]:
    """The best level, and where the likelihood is 1.92 nats lower on both sides of it."""
    apart = np.abs(np.log(levels / fitted)) > 1e-3
    x = np.concatenate([np.log(levels[apart]), [np.log(fitted)]])
    y = np.concatenate([nats[apart], [0.0]])
    order = np.argsort(x)
    x, y = x[order], y[order]
    fine = np.linspace(x[0], x[-1], 2001)
    curve = np.interp(fine, x, y) if x.size < 4 else CubicSpline(x, y)(fine)
    curve = curve - curve.min()
    inside = np.flatnonzero(curve <= 1.92)
    low = 0.0 if inside[0] == 0 else float(np.exp(fine[inside[0]]))
    high = float("inf") if inside[-1] == fine.size - 1 else float(np.exp(fine[inside[-1]]))
    return float(np.exp(fine[np.argmin(curve)])), (low, high)


def bootstrap(
    solution: Solution, start: Array, B: sp.csr_array, n_boot: int, rng: np.random.Generator, tol: float
) -> Uncertainty:
    """Standard deviations at observations B over so many resampled data sets, with states and smoothness as they are.

    start: the initial mass (N,), against which the ordering is measured.
    """
    matrix = solution.problem.curvature(solution.fisher, solution.a)
    orderings, noises = [], []
    for _ in range(n_boot):
        problem = _resampled(solution.problem, start, rng)
        a, _ = minimise(problem, solution.a, matrix, Evaluations(), 100, tol)
        dynamics = problem.parameters.dynamics(a)
        l = dynamics.orderings[0] if dynamics.orderings else np.zeros(dynamics.noise.size)
        orderings.append(B @ (l - start @ l))
        noises.append(B @ np.log(dynamics.noise))
    return Uncertainty(np.std(orderings, axis=0, ddof=1), np.std(noises, axis=0, ddof=1))


def _resampled(problem: PenalisedLikelihood, start: Array, rng: np.random.Generator) -> PenalisedLikelihood:
    """The problem with samples drawn with replacement."""
    weights, old = problem.weights, problem.likelihood
    counts = rng.multinomial(weights.size, weights / weights.sum()).astype(float)
    likelihood = SnapshotLikelihood(
        old.graph, old.observation, start, old.steps, old.fractions, sample_weight=counts, local=old.local,
        metric=old.metric,
    )  # fmt: skip
    return PenalisedLikelihood(likelihood, problem.parameters, counts)
