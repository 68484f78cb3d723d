"""What is to be learned on some states, and from where: the samples that count, the function of the coefficients, and
the coefficients to begin with.

FitTask          all of it
UsableSamples    which samples lie apart, were seen before the first step, and are used
smoothed         coefficients that come from other states, made smooth
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ordiff._validation import Array, GraphError
from ordiff.geometry import TangentSpaces, usual_neighbors
from ordiff.learning.blocks import GivenOrderings, parametrise
from ordiff.learning.choice import noise_level, streams_for
from ordiff.learning.data import Snapshots
from ordiff.learning.discretise import DENSITY_FLOOR, first_noise, likelihood_on
from ordiff.learning.optimise import Evaluations, PenalisedLikelihood, Solution
from ordiff.learning.penalties import ActionPenalty
from ordiff.learning.result import FitResult
from ordiff.learning.rotation import StreamFunctions, strengths_of, with_rotation, with_tensor
from ordiff.learning.settings import FitSettings
from ordiff.learning.start import start_density
from ordiff.states import States

# The fewest samples that a chain is learned from, when others come too early for it or lie apart.
_FEWEST_SAMPLES = 5


@dataclass(frozen=True, eq=False)
class FitTask:
    """``problem`` as a function of the coefficients, ``a`` to begin with. ``data``: the samples that are used.
    ``streams``: stream functions of a drift that may turn; ``turns``: there is a rotation in the problem already.
    ``nowhere``: below this log likelihood a sample is not reached."""

    states: States
    usable: UsableSamples
    data: Snapshots
    given: GivenOrderings
    problem: PenalisedLikelihood
    a: Array
    streams: StreamFunctions | None
    turns: bool
    nowhere: float

    @classmethod
    def of(
        cls,
        settings: FitSettings,
        data: Snapshots,
        states: States,
        eps: float,
        *,
        before: FitResult | None,
        rho: float | None,
        coarse: bool,
    ) -> FitTask:
        """From what was learned ``before``, or a first noise ``rho``."""
        usable = UsableSamples.of(data, states, eps)
        used = data.only(usable.kept, usable.farthest, usable.earliest)
        density = None if isinstance(settings.states, States) else start_density(states, data)
        if density is not None:
            states = replace(states, start=density.mass)
        given = GivenOrderings.of(settings, data, states)
        likelihood = likelihood_on(settings, used, states, eps, given.differences(states.graph))
        rho = first_noise(settings, data, states.dimension) if rho is None else rho
        chain = None if before is None else before.chain
        start = None if density is None else density.block(float(used.weights.sum()))
        parameters, a = parametrise(settings, data, states, eps, given, chain, rho, coarse, start)
        problem = PenalisedLikelihood(likelihood, parameters, used.weights)
        streams = streams_for(settings, states, given, len(used.X), coarse)
        turns = streams is not None and before is not None and before.chain.rotation is not None
        if streams is not None and before is not None and turns:
            problem, a = _turning(settings, problem, a, streams, states, before)
        if settings.smoothness.action > 0:
            tangents = TangentSpaces.fit(states.graph, usual_neighbors(states.graph, 12), dimension=states.dimension)
            strength = float(settings.smoothness.action)
            problem = replace(problem, action=ActionPenalty(tangents), action_strength=strength)
        nowhere = _log_density_of_nowhere(states, len(data.X))
        if before is not None:
            a = within_reach(problem, a, nowhere)
        return cls(states, usable, used, given, problem, a, streams, turns, nowhere)

    @property
    def sampled(self) -> Array:
        """How much the samples see of each state, on average, (N,)."""
        places, weights = self.problem.likelihood.observation.places, self.data.weights
        return np.asarray(weights if places is None else weights @ places) / weights.sum()

    def lost(self, solution: Solution) -> NDArray[np.intp]:
        """The numbers of the samples that the process does not reach."""
        log_likelihood = solution.problem.likelihood.per_sample(solution.parameters.dynamics(solution.a))
        return np.flatnonzero(self.usable.kept)[log_likelihood < self.nowhere]


def _turning(
    settings: FitSettings,
    problem: PenalisedLikelihood,
    a: Array,
    streams: StreamFunctions,
    states: States,
    before: FitResult,
) -> tuple[PenalisedLikelihood, Array]:
    """The problem with the rotation that was learned before, and its coefficients."""
    w = before.chain.states.observe(states.points) @ before.chain.own_rotation
    problem, a = with_rotation(problem, streams, states, a, noise_level(problem.parameters.base), w)
    problem = strengths_of(problem, before.solution.parameters)
    return with_tensor(problem, states, a) if settings.noise == "tensor" else (problem, a)


@dataclass(frozen=True, eq=False)
class UsableSamples:
    """Which samples lie apart, were seen before the first step, and are used; (m,) each."""

    far: NDArray[np.bool_]
    early: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    farthest: float = np.inf  # the largest distance from the states, and the earliest time, of those that are used
    earliest: float = -np.inf

    @classmethod
    def of(cls, data: Snapshots, states: States, eps: float) -> UsableSamples:
        m, latest = len(data.X), data.latest
        if states.are_samples:
            return cls(np.zeros(m, bool), np.zeros(m, bool), np.ones(m, bool))
        distance = states.distance(data.X)  # noise across a manifold is in it too
        farthest = float(2.5 * states.spacing + 4 * np.median(distance))
        earliest = eps if data.one_start else 1e-9 * data.horizon
        far = distance > farthest
        early = np.zeros(m, bool) if latest is None else latest < earliest
        kept = ~(far | early) & (data.weights > 0)
        if far.sum() > 0.2 * m:
            raise GraphError(
                f"{far.sum()} of {m} samples lie apart from the start, the first at index {int(np.argmax(far))}: "
                "the process cannot reach them by small steps. Check the start and the units, or use a larger spacing."
            )
        if kept.sum() < _FEWEST_SAMPLES:
            raise ValueError(
                f"only {kept.sum()} samples were seen later than one step (eps = {eps:g}) and do not lie apart: use a "
                "smaller eps, or check the units of the times."
            )
        return cls(far, early, kept, farthest, earliest)


def _log_density_of_nowhere(states: States, m: int) -> float:
    """Below this log likelihood a sample is not reached."""
    return float(np.log(1e-11 / m if states.are_samples else 2 * DENSITY_FLOOR / states.volumes.sum()))


def within_reach(problem: PenalisedLikelihood, a: Array, nowhere: float) -> Array:
    """Coefficients from which most samples are reached: what was learned on other states, or that with a flatter
    ordering, or without one and with more noise. From where nothing is reached, nothing shows the way; few functions
    may carry an ordering that badly, and across a gap others so roughly that reaching nothing has the lower loss."""
    p, best = problem.parameters, (np.inf, a)
    orderings = [part for block, part in zip(p.blocks, p.slices, strict=True) if block.target == "ordering"]
    noise = p.part("noise")
    if not orderings:
        return a
    for share, factor in ((1.0, 1.0), (0.5, 1.0), (0.25, 1.0), (0.0, 1.0), (0.0, 2.0), (0.0, 4.0)):
        b = a.copy()
        for part in orderings:
            b[part] *= share
        if noise is not None and noise[0].basis is not None:
            b[noise[1].start] += np.log(factor)
        log_likelihood = problem.likelihood.per_sample(p.dynamics(b))
        loss = p.roughness(b)[0] - float(problem.weights @ log_likelihood) / problem.n_samples
        if problem.weights @ (log_likelihood < nowhere) < 0.3 * problem.n_samples and loss < -nowhere:
            return b
        best = min(best, (loss, b), key=lambda one: one[0])
    return best[1]


def smoothed(problem: PenalisedLikelihood, a: Array, information: Array, evaluations: Evaluations) -> Array:
    """Coefficients after a Newton step of all but the noise, if it gains: fields that come from other states are rough
    on these, and a descent would rather raise the noise, to which roughness is relative, than smooth them."""
    found, free = problem.parameters.part("noise"), np.ones(a.size, bool)
    if found is not None:
        free[found[1]] = False
    loss, slope = evaluations(problem, a)
    b = a.copy()
    b[free] -= np.linalg.solve(problem.curvature(information, a)[np.ix_(free, free)], slope[free])
    return b if evaluations(problem, b)[0] < loss else a
