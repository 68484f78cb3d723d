"""Does the drift turn? A gradient against a general drift, by the difference of their marginal likelihoods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ordiff._validation import Array
from ordiff.learning.blocks import GivenOrderings, auto_blocks
from ordiff.learning.checkpoint import Checkpoint
from ordiff.learning.evidence import log_evidence
from ordiff.learning.likelihood import Dynamics
from ordiff.learning.optimise import (
    STOPS,
    Evaluations,
    PenalisedLikelihood,
    Solution,
    minimise,
    optimise,
    solution_at,
)
from ordiff.learning.parameters import ParameterBlock
from ordiff.learning.possible import MOST_ABOVE, RotationScore
from ordiff.learning.rotation import (
    LeftOut,
    RotationEvidence,
    StreamFunctions,
    with_rotation,
    with_strengths,
    with_tensor,
)
from ordiff.learning.settings import FitSettings
from ordiff.states import States

# A rotation is worth its parameters when it is so many nats more likely; on the coarse chain, whose errors count with
# every sample, it is taken only if that is clear, in all and for each sample, and else tried again on the final one.
WORTH, _CLEAR, _CLEAR_EACH = 3.0, 30.0, 0.1
# Iterations for a gradient to follow other strengths.
_GRADIENT_ITERATIONS = 60
# The fewest samples that a rotation is looked for in.
FEWEST_SAMPLES = 100


def streams_for(
    settings: FitSettings, states: States, given: GivenOrderings, n_samples: int, coarse: bool
) -> StreamFunctions | None:
    """The stream functions of a drift that turns, if it is asked for: beside a known phase, or with few samples, only
    when it is demanded."""
    learned = settings.learn
    if settings.drift == "gradient" or "ordering" not in learned or {"eps", "density", "scale"} & learned:
        return None
    few = n_samples < FEWEST_SAMPLES
    if settings.drift == "auto" and (few or given.local or settings.smoothness.basis is None):
        return None
    streams = StreamFunctions.on(states, coarse)
    if streams is None and settings.drift == "general" and states.dimension > 1:
        raise ValueError(
            f'drift="general" needs designed states in 2 or 3 flat dimensions; these have {states.points.shape[1]} '
            f'coordinates and dimension {states.dimension}: use drift="gradient", a given Ordering.local or '
            "Ordering.field, or fewer components."
        )
    return streams


def noise_level(dynamics: Dynamics) -> float:
    """The geometric mean of the noise."""
    return float(np.exp(np.log(dynamics.noise).mean()))


def with_rotation_if_worth(
    settings: FitSettings,
    solution: Solution,
    streams: StreamFunctions,
    states: States,
    evaluations: Evaluations,
    updates: int,
    first: Array,
    checkpoint: Checkpoint | None = None,
) -> tuple[Solution, RotationEvidence]:
    """The solution with a rotation beside the gradient, if that is demanded or the samples ask for it.

    first: the coefficients that the gradient was learned from. ``updates`` is 1 on a coarse chain.
    """
    demanded, worth = settings.drift == "general", WORTH
    if updates == 1:
        worth = max(_CLEAR, _CLEAR_EACH * solution.problem.n_samples)
    solver = settings.solver
    options: dict[str, Any] = {"max_iter": solver.max_iter, "tol": solver.tol, "updates": updates}
    options["checkpoint"] = checkpoint

    def optimum(problem: PenalisedLikelihood, a: Array, information: Array | None = None) -> Solution:
        evaluations.restart()
        auto = auto_blocks(settings.smoothness, problem.parameters)
        return optimise(problem, a, evaluations, auto=auto, information=information, **options)

    def turning(problem: PenalisedLikelihood, a: Array) -> tuple[PenalisedLikelihood, Array]:
        level = noise_level(problem.parameters.dynamics(a))
        problem, a = with_rotation(problem, streams, states, a, level)
        given = settings.smoothness.rotation
        return problem if given == "auto" else with_strengths(problem, np.full(2, float(given))), a

    try:
        problem, a = turning(solution.problem, solution.a)
        score = RotationScore.at(problem, a, evaluations)
        strengths, nats = score.best()
        left_out = None if demanded or updates == 1 else _left_out(score, solution, streams, states)
        if left_out is not None:
            nats = left_out.nats
        if nats < (worth if left_out is None else worth - MOST_ABOVE) and not demanded:
            return solution, RotationEvidence(nats, False, left_out)
        if settings.smoothness.rotation == "auto":
            problem = with_strengths(problem, strengths)
        general = optimum(problem, a, score.information)
        nats = log_evidence(general) - _gradient_evidence(solution, general, evaluations, solver.tol)
        if nats < worth and not demanded:
            return solution, RotationEvidence(nats, False, left_out)
        if updates == 1:
            general = optimum(*turning(*_with_one_noise(solution.problem, first)))
        if settings.noise == "tensor":
            general = optimum(*with_tensor(general.problem, states, general.a))
    except STOPS:
        return replace(solution, interrupted=True), RotationEvidence(0.0, False)
    return general, RotationEvidence(nats, True)


def _left_out(score: RotationScore, solution: Solution, streams: StreamFunctions, states: States) -> LeftOut:
    """What leaving a rotation out of a solution leaves unknown."""
    dynamics = solution.parameters.dynamics(solution.a)
    second = dynamics.slopes[0][:, None, None] * states.derivatives(dynamics.orderings[0])[1]
    bent = float(np.sqrt(np.average((second**2).sum(axis=(1, 2)), weights=states.volumes)))
    return score.left_out(bent, noise_level(dynamics) ** 2 / streams.width**2)


def _with_one_noise(problem: PenalisedLikelihood, a: Array) -> tuple[PenalisedLikelihood, Array]:
    """The problem with the same noise everywhere, and its coefficients.

    Where the drift turns, the noise of a gradient is several times too large in places, and the few steps of a coarse
    chain leave it so: from such a noise no chain can be designed.
    """
    p = problem.parameters
    found = p.part("noise")
    if found is None:
        return problem, a
    part, level = found[1], np.log(noise_level(p.dynamics(a)))
    one = ParameterBlock("noise", np.ones((p.base.noise.size, 1)), centre=level)
    blocks = tuple(one if block.target == "noise" else block for block in p.blocks)
    a = np.concatenate([a[: part.start], [level], a[part.stop :]])
    return replace(problem, parameters=replace(p, blocks=blocks)), a


def _gradient_evidence(solution: Solution, general: Solution, evaluations: Evaluations, tol: float) -> float:
    """The evidence of a gradient, with its own strengths or, if it is larger, with those of the general drift, which
    have been updated more often."""
    others = (block for block in general.parameters.blocks if block.target != "rotation")
    strengths = {block.target: block.strengths for block in others}
    p = solution.parameters
    updated = p.with_strengths(tuple(strengths[block.target] for block in p.blocks))
    problem = replace(solution.problem, parameters=updated)
    evaluations.restart()
    matrix = problem.curvature(solution.fisher, solution.a)
    a, loss = minimise(problem, solution.a, matrix, evaluations, _GRADIENT_ITERATIONS, tol)
    again = solution_at(problem, a, evaluations, loss)
    return max(log_evidence(solution), log_evidence(again))
