"""What a fit would be with an infinitely short step, by Richardson extrapolation.

Fields f_ε that are read off a chain of step ε are off by O(ε). On the same states, with the same functions and the same
smoothness, a few iterations find the optimum of the chain of twice the step; since both see the same samples, their
difference is the error of the step alone, and

    f = f_ε + (f_ε − f_2ε)

is off by O(ε²), at a few hundredths of the cost of the fit. (Half the step would need closer states.) The noise
stays as it is read: the difference of two noise fields is mostly what samples do not tell. It is at the optimum of its
marginal likelihood, where the slope g of the joint one is not 0; at twice the step the optimum of loss − g·a is looked
for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ordiff._validation import Array
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.optimise import Evaluations, Solution, minimise
from ordiff.learning.result import FittedChain
from ordiff.states import States

# Iterations of L-BFGS: the optimum is near, and its curvature is known.
_ITERATIONS = 15
# The largest change of a drift by extrapolation, as a share of its size: beyond it a series in ε has no meaning.
_LARGEST = 0.5


def extrapolated(
    chain: FittedChain,
    solution: Solution,
    likelihood: SnapshotLikelihood,
    evaluations: Evaluations,
    tol: float,
    read: Callable[[Dynamics], FittedChain],
) -> tuple[FittedChain, float]:
    """The chain with its fields extrapolated to ε = 0, and how much that changes the ordering.

    likelihood: of the same samples on the same states, with half as many steps. read: from dynamics to a chain. The
    change is the relative rms of the ordering's differences from its mean. The chain itself stays.
    """
    problem, a = solution.problem, solution.a
    parameters = replace(problem.parameters, base=replace(problem.parameters.base, eps=2 * chain.dynamics.eps))
    twice = replace(problem, likelihood=likelihood, parameters=parameters, slope=solution.gradient)
    a, _ = minimise(twice, a, problem.curvature(solution.fisher, a), evaluations.aside(), _ITERATIONS, tol)
    coarser = read(parameters.dynamics(a))
    by_ordering = chain.ordering - coarser.ordering
    w, coarser_w = chain.rotation, coarser.rotation
    if w is None or coarser_w is None:
        change = _relative(by_ordering, chain.ordering, chain.states.volumes)
    else:
        change = _relative_drift(chain.states, by_ordering, w - coarser_w, chain.ordering, w)
    share = min(1.0, _LARGEST / max(change, np.finfo(float).tiny))
    turned = None if w is None or coarser_w is None else w + share * (w - coarser_w)
    ordering = chain.ordering + share * by_ordering
    return replace(chain, ordering=ordering, rotation=turned), change


def _relative_drift(states: States, by_ordering: Array, by_rotation: Array, ordering: Array, rotation: Array) -> float:
    """The rms of a change of a drift with a rotation in that of the drift, over the states."""
    changed, drift = states.derivatives(by_ordering)[0] + by_rotation, states.derivatives(ordering)[0] + rotation
    squares = [float((states.volumes @ field**2).sum()) for field in (changed, drift)]
    return float(np.sqrt(squares[0] / max(squares[1], np.finfo(float).tiny)))


def _relative(f: Array, g: Array, volumes: Array) -> float:
    """The standard deviation of f in that of g, over the states."""
    w = volumes / volumes.sum()
    deviations = [np.sqrt(max(w @ (h - w @ h) ** 2, np.finfo(float).tiny)) for h in (f, g)]
    return float(deviations[0] / deviations[1])
