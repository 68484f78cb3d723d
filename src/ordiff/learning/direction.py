"""Does the noise have a direction? Which, as a coarse chain sees it, and whether the samples ask for it.

A fit with a noise of direction A is made in coordinates z = A^{-½}x, in which it has nearly none. Whether there is one
is a difference of marginal likelihoods of coarse chains: one with S = log A beside one noise and a drift that may turn,
since a gradient is none in other coordinates; and the better of the same with S = 0 and of one with a noise field. The
prior of S is N(0, I), a ratio of variances of about e either way: it adds −½|S|² to the evidence of the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import sqrtm

from ordiff._validation import Array
from ordiff.learning.choice import FEWEST_SAMPLES, WORTH
from ordiff.learning.data import Snapshots
from ordiff.learning.evidence import log_evidence
from ordiff.learning.fit import look
from ordiff.learning.optimise import Evaluations, Report, Solution, minimise, solution_at
from ordiff.learning.result import FitResult
from ordiff.learning.settings import DesignedStates, FitSettings
from ordiff.learning.splines import MOST_DIMENSIONS

# Iterations for all else to follow when there is no direction.
_ITERATIONS = 60


@dataclass(frozen=True, eq=False)
class NoiseDirection:
    """The settings to learn with; the root A^½ (d, d) of the direction that a coarse chain sees, None without one; by
    how many nats it is more likely than a scalar noise, None when that was not asked."""

    settings: FitSettings
    root: Array | None = None
    nats: float | None = None

    @classmethod
    def of(cls, settings: FitSettings, data: Snapshots, report: Report | None = None) -> NoiseDirection:
        """The direction that is demanded (noise="tensor"), or that the samples ask for (noise="auto")."""
        if settings.noise == "tensor":
            return cls(settings, _root(look(settings, data, report)))
        if settings.noise != "auto":
            return cls(settings)
        scalar = replace(settings, noise="field")
        if not _can_have_one(settings, data):
            return cls(scalar)
        tensor = replace(settings, noise="tensor", drift="general")
        field, found = look(scalar, data, report).solution, look(tensor, data, report)
        if field.interrupted or found.solution.interrupted:
            return cls(scalar)
        without = _without_direction(found.solution, settings.solver.tol)
        nats = _log_evidence(found) - max(log_evidence(field), log_evidence(without))
        return cls(tensor, _root(found), nats) if nats > WORTH else cls(scalar, None, nats)


def _can_have_one(settings: FitSettings, data: Snapshots) -> bool:
    """Whether a direction can be learned: where a drift may turn."""
    d = settings.dimension
    flat = 2 <= data.X.shape[1] <= MOST_DIMENSIONS and d in (None, data.X.shape[1])
    plain = settings.ordering is None and settings.learn == {"ordering", "noise"} and settings.drift != "gradient"
    enough = len(data.X) >= FEWEST_SAMPLES and settings.smoothness.basis is not None
    return flat and plain and enough and isinstance(settings.states, DesignedStates)


def _log_evidence(result: FitResult) -> float:
    """The evidence of a chain with a direction, with the prior of S."""
    solution = result.solution
    found = solution.parameters.part("tensor")
    assert found is not None
    S = solution.a[found[1]]
    return log_evidence(solution) - 0.5 * float(S @ S)


def _without_direction(solution: Solution, tol: float) -> Solution:
    """The optimum with S = 0, and strengths of smoothness as they are."""
    p = solution.parameters
    found = p.part("tensor")
    assert found is not None
    parameters = replace(p, blocks=tuple(block for block in p.blocks if block.target != "tensor"))
    problem, a = replace(solution.problem, parameters=parameters), np.delete(solution.a, found[1])
    evaluations = Evaluations()
    a, loss = minimise(problem, a, problem.curvature(problem.information(a), a), evaluations, _ITERATIONS, tol)
    return solution_at(problem, a, evaluations, loss)


def _root(result: FitResult) -> Array:
    """A^½ of a coarse chain, (d, d), of determinant 1."""
    metric = result.chain.metric
    assert metric is not None
    return np.asarray(sqrtm(np.linalg.inv(metric)).real, dtype=np.float64)
