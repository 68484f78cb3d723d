"""Does the drift turn? A gradient against a general drift, by the difference of their marginal likelihoods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ordiff.learning.blocks import GivenOrderings, auto_blocks
from ordiff.learning.evidence import log_evidence
from ordiff.learning.likelihood import Dynamics
from ordiff.learning.optimise import STOPS, Evaluations, Solution, minimise, optimise, solution_at
from ordiff.learning.parameters import ParameterBlock
from ordiff.learning.rotation import (
    RotationEvidence,
    StreamFunctions,
    score_test,
    with_rotation,
    with_strengths,
    with_tensor,
)
from ordiff.learning.settings import FitSettings
from ordiff.states import States

# A rotation is worth its parameters when it is so many nats more likely; on the coarse chain, whose errors are larger,
# it is taken only if that is clear, and else tried again on the final one.
_WORTH, _CLEAR = 3.0, 12.0
# Iterations for a gradient to follow other strengths.
_GRADIENT_ITERATIONS = 60


# The fewest samples that a rotation is looked for in.
_FEWEST_SAMPLES = 100


def streams_for(
    settings: FitSettings, states: States, given: GivenOrderings, n_samples: int, coarse: bool
) -> StreamFunctions | None:
    """The stream functions of a drift that turns, if it is asked for: beside a known phase, or with few samples, only
    when it is demanded."""
    learned = settings.learn
    if settings.drift == "gradient" or "ordering" not in learned or {"eps", "density", "scale"} & learned:
        return None
    few = n_samples < _FEWEST_SAMPLES
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
) -> tuple[Solution, RotationEvidence]:
    """The solution with a rotation beside the gradient, if that is demanded or the samples ask for it."""
    demanded, worth = settings.drift == "general", _CLEAR if updates == 1 else _WORTH
    try:
        level = noise_level(solution.parameters.dynamics(solution.a))
        problem, a = with_rotation(solution.problem, streams, states, solution.a, level)
        nats, problem = score_test(problem, a, evaluations)
        if settings.smoothness.rotation != "auto":
            problem = with_strengths(problem, np.full(2, float(settings.smoothness.rotation)))
        if nats < worth and not demanded:
            return solution, RotationEvidence(nats, False)
        evaluations.restart()
        auto = auto_blocks(settings.smoothness, problem.parameters)
        solver = settings.solver
        options: dict[str, Any] = {"max_iter": solver.max_iter, "tol": solver.tol, "updates": updates}
        general = optimise(problem, a, evaluations, auto=auto, **options)
        nats = log_evidence(general) - _gradient_evidence(solution, general, evaluations, solver.tol)
        if settings.noise == "tensor":
            problem, a = with_tensor(general.problem, states, general.a)
            evaluations.restart()
            auto = auto_blocks(settings.smoothness, problem.parameters)
            general = optimise(problem, a, evaluations, auto=auto, **options)
    except STOPS:
        return replace(solution, interrupted=True), RotationEvidence(0.0, False)
    if nats < worth and not demanded:
        return solution, RotationEvidence(nats, False)
    return general, RotationEvidence(nats, True)


def _gradient_evidence(solution: Solution, general: Solution, evaluations: Evaluations, tol: float) -> float:
    """The evidence of a gradient, with its own strengths or, if it is larger, with those of the general drift, which
    have been updated more often."""
    others = (block for block in general.parameters.blocks if block.target != "rotation")
    strengths = {block.target: (block.strength, tuple(s for _, s in block.lower)) for block in others}

    def updated(block: ParameterBlock) -> ParameterBlock:
        strength, lower = strengths[block.target]
        pairs = zip(block.lower, lower, strict=True)
        return replace(block, strength=strength, lower=tuple((A, s) for (A, _), s in pairs))

    p = solution.parameters
    problem = replace(solution.problem, parameters=replace(p, blocks=tuple(updated(block) for block in p.blocks)))
    evaluations.restart()
    matrix = problem.curvature(solution.fisher, solution.a)
    a, loss = minimise(problem, solution.a, matrix, evaluations, _GRADIENT_ITERATIONS, tol)
    again = solution_at(problem, a, evaluations, loss)
    return max(log_evidence(solution), log_evidence(again))
