"""Does the noise have a direction? Which, as a coarse chain sees it, and whether the samples ask for it.

A fit with a noise of direction A is made in coordinates z = A^{-½}x, in which it has nearly none. Whether there is one
is a difference of marginal likelihoods of two coarse chains: one with a scalar noise, and one with S = log A beside a
drift that may turn, since a gradient is none in other coordinates. The prior of S is N(0, I), a ratio of variances of
about e either way: with k = d(d + 1)/2 − 1 free entries it adds −½|S|² to the evidence of the second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import sqrtm

from ordiff._validation import Array
from ordiff.learning.choice import CLEAR, FEWEST_SAMPLES
from ordiff.learning.data import Snapshots
from ordiff.learning.evidence import log_evidence
from ordiff.learning.fit import look
from ordiff.learning.optimise import Report
from ordiff.learning.result import FitResult
from ordiff.learning.settings import DesignedStates, FitSettings
from ordiff.learning.splines import MOST_DIMENSIONS


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
        without, found = look(scalar, data, report), look(tensor, data, report)
        if without.solution.interrupted or found.solution.interrupted:
            return cls(scalar)
        nats = _log_evidence(found) - log_evidence(without.solution)
        return cls(tensor, _root(found), nats) if nats > CLEAR else cls(scalar, None, nats)


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


def _root(result: FitResult) -> Array:
    """A^½ of a coarse chain, (d, d), of determinant 1."""
    metric = result.chain.metric
    assert metric is not None
    return np.asarray(sqrtm(np.linalg.inv(metric)).real, dtype=np.float64)
