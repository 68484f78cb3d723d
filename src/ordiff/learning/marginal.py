"""The noise at the optimum of its marginal likelihood: all other coefficients integrated out by Laplace's method.

At the joint optimum many coefficients of an ordering take up part of the noise, so that the noise comes out too low;
integrating them out mends it, as restricted maximum likelihood does for a variance.
"""

from __future__ import annotations

import numpy as np

from ordiff._validation import Array
from ordiff.learning.optimise import Evaluations, Mask, PenalisedLikelihood, Solution, minimise, solution_at

# Directions in which a field is moved to the optimum of its marginal likelihood.
_LOOSEST = 7
# Iterations of L-BFGS for the other coefficients: they follow from a point near their optimum.
_ITERATIONS = 60


def log_volume(problem: PenalisedLikelihood, a: Array, free: Mask, information: Array | None = None) -> float:
    """½ log det of the curvature of the free coefficients: with it a joint likelihood becomes, by Laplace's method, a
    marginal one, but for a constant. ``information``: the Fisher information of all coefficients at a, where known.

    Coefficients of an ordering without a penalty are measured in units of ρ²: near a steady state only l/ρ² can be
    seen, and a measure that knows nothing of ρ would then prefer any larger noise.
    """
    p = problem.parameters
    F = _information(problem, a, free) if information is None else information
    curvature = problem.curvature(F, a)[np.ix_(free, free)]
    volume = 0.5 * float(np.linalg.slogdet(curvature)[1])
    level, noise = float(np.log(p.dynamics(a).noise).mean()), p.noise(a)
    for block in p.blocks:
        if block.relative is not None:
            volume += 2 * block.relative.n_free * level - block.relative.log_volume(noise)
        elif block.target == "ordering" and block.penalty is not None and block.penalty.ndim == 1:
            volume += 2 * np.count_nonzero(block.penalty == 0) * level
    return volume


def _information(problem: PenalisedLikelihood, a: Array, free: Mask) -> Array:
    """F (K, K) of the free coefficients, in half the time when the noise, the last block, is not among them."""
    p = problem.parameters
    last, part = p.blocks[-1], p.slices[-1]
    if last.target != "noise" or free[part].any():
        return problem.information(a)
    F = np.zeros((p.size, p.size))
    F[: part.start, : part.start] = problem.information(a, without="noise")
    return F


def maximize_marginal(
    solution: Solution, at: int, evaluations: Evaluations, tol: float, max_iter: int = _ITERATIONS
) -> Solution:
    """The solution with coefficient ``at`` at the optimum of its marginal likelihood, all others learned again."""
    from scipy.optimize import minimize_scalar

    problem, free = solution.problem, np.ones(solution.a.size, bool)
    free[at] = False
    matrix = problem.curvature(solution.fisher, solution.a)
    found: dict[float, Array] = {}
    best = (np.inf, solution)

    def marginal(x: float) -> float:
        nonlocal best
        a = found[min(found, key=lambda y: abs(y - x))].copy() if found else solution.a.copy()
        a[at] = x
        a, loss = minimise(problem, a, matrix, evaluations, min(_ITERATIONS, max_iter), tol, free)
        found[x] = a
        here = solution_at(problem, a, evaluations, loss, free=free)
        total = problem.n_samples * loss + log_volume(problem, a, free, here.fisher)
        best = min(best, (total, here), key=lambda one: one[0])
        return total

    here = float(solution.a[at])
    evaluations.restart()
    minimize_scalar(marginal, bounds=(here - 0.4, here + 0.6), options={"xatol": 0.02, "maxiter": 9})
    return best[1]


def marginal_newton_step(
    solution: Solution, part: slice, evaluations: Evaluations, tol: float, max_iter: int = _ITERATIONS
) -> Solution:
    """The same for the coefficients ``part`` of a field: one Newton step on their marginal likelihood.

    Its curvature is C⁻¹, C their posterior covariance, and its slope at the joint optimum that of `log_volume`, by
    differences along the field's level, its first coefficient, and the `_LOOSEST` directions in which it is known
    least; all others follow. A step that gains nothing is made shorter, and at last not at all.
    """
    problem, C, F = solution.problem, solution.covariance, solution.fisher
    assert C is not None
    values, vectors = np.linalg.eigh(C[part, part])
    precision = (vectors / values) @ vectors.T
    loosest = vectors[:, np.argsort(values)[::-1][: min(_LOOSEST, len(values) - 1)]]
    V, R = np.linalg.qr(np.hstack([np.eye(len(values))[:, :1], loosest]))
    V = V[:, np.abs(np.diag(R)) > 1e-6]
    follow = C[:, part] @ (precision @ V)  # (K, directions); V itself in the rows of the part
    S = np.linalg.inv(V.T @ precision @ V)  # covariance of the field restricted to these directions
    free = np.ones(solution.a.size, bool)
    free[part] = False
    deviations = np.sqrt(np.diag(S))
    here, ahead = log_volume(problem, solution.a, free, F), 0.3 * deviations
    volumes = [log_volume(problem, solution.a + h * along, free) for along, h in zip(follow.T, ahead, strict=True)]
    slopes = (np.array(volumes) - here) / ahead
    step = np.clip(-S @ slopes, -2 * deviations, 2 * deviations)
    evaluations.restart()
    matrix = problem.curvature(F, solution.a)
    for share in (1.0, 0.5, 0.25):
        start = solution.a + share * follow @ step
        a, loss = minimise(problem, start, matrix, evaluations, min(_ITERATIONS, max_iter), tol, free)
        there = problem.information(a)
        if problem.n_samples * (solution.loss - loss) + here - log_volume(problem, a, free, there) > 0:
            return solution_at(problem, a, evaluations, information=there, free=free)
    return solution


def profile_nats(solution: Solution, at: int, values: Array, evaluations: Evaluations, tol: float) -> Array:
    """Minus the marginal log likelihood with coefficient ``at`` held at each of the values, above that of the solution.

    From the solution outwards, each from its neighbour.
    """
    problem, free = solution.problem, np.ones(solution.a.size, bool)
    free[at] = False
    F = solution.fisher
    matrix, width = problem.curvature(F, solution.a), log_volume(problem, solution.a, free, F)
    nats, known = np.empty(values.size), {float(solution.a[at]): solution.a}
    for place in np.argsort(np.abs(values - solution.a[at])):
        x = float(values[place])
        a = known[min(known, key=lambda other: abs(other - x))].copy()
        a[at] = x
        a, loss = minimise(problem, a, matrix, evaluations, _ITERATIONS, tol, free)
        known[x] = a
        nats[place] = problem.n_samples * (loss - solution.loss) + log_volume(problem, a, free) - width
    return nats
