"""Maximum likelihood by preconditioned L-BFGS.

    Loss = −mean log likelihood + Σ_b λ_b a_bᵀA_b a_b

In coordinates y with a = C y, CCᵀ = (F + 2λA + c)⁻¹, F the Fisher information from exact per-sample scores, the
problem is round and L-BFGS needs few steps; c is small, in the units of the coefficients. With H = m(F + 2λA) the
posterior covariance is H⁻¹.

PenalisedLikelihood    the loss as a function of the coefficients: the problem, immutable
Evaluations            the evaluations of a run so far: its state
Solution               where the optimiser stopped: its result
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from ordiff._validation import Array
from ordiff.learning.checkpoint import Checkpoint, Round
from ordiff.learning.likelihood import SnapshotLikelihood
from ordiff.learning.parameters import Parameters
from ordiff.learning.progress import EvaluationCount
from ordiff.learning.scores import scores
from ordiff.learning.slices import Workspace
from ordiff.learning.smoothing import penalty_matrix, updated_strengths

# Fisher information from at most this many samples.
_MOST_SAMPLES = 20_000
# A Newton step would gain fewer nats than this, over all samples: the optimum is reached.
_NATS = 0.05

# What ends a fit with the best so far: an interrupt, or the loss of the workers that have the samples.
STOPS = (KeyboardInterrupt, ConnectionError)

Report = EvaluationCount
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PenalisedLikelihood:
    """A likelihood, its parameters and their penalties as one function of the coefficients.

    weights: of the samples, (m,). action: an `ActionPenalty` of drift and noise, with its strength. slope: g (K,) of a
    linear term −g·a.
    """

    likelihood: SnapshotLikelihood
    parameters: Parameters
    weights: Array
    action: Any = None
    action_strength: float = 0.0
    slope: Array | None = None

    @property
    def n_samples(self) -> float:
        return float(self.weights.sum())

    def value_and_gradient(self, a: Array, workspace: Workspace | None = None) -> tuple[float, Array]:
        """The penalised loss and its derivative by the coefficients."""
        p = self.parameters
        dynamics = p.dynamics(a)
        value, by = self.likelihood.value_and_gradient(dynamics, workspace)
        if self.action_strength > 0:
            R, (d_l, d_rho, d_slope) = self.action.value_and_gradient(
                dynamics.orderings[0], dynamics.noise, dynamics.slopes[0]
            )
            s = self.action_strength
            value += s * R
            by = replace(
                by,
                orderings=(by.orderings[0] + s * d_l, *by.orderings[1:]),
                slopes=(by.slopes[0] + s * d_slope, *by.slopes[1:]),
                noise=by.noise + s * d_rho,
            )
        roughness, d_roughness = p.roughness(a)
        value, gradient = value + roughness, p.gradient(a, by) + d_roughness
        if self.slope is not None:
            value, gradient = value - float(self.slope @ a), gradient - self.slope
        return float(value), gradient

    def penalty(self, a: Array) -> Array:
        """2λA over all coefficients, (K, K), or (K,) when it is diagonal or too large."""
        return penalty_matrix(self.parameters, a)

    def information(self, a: Array, without: str = "") -> Array:
        """F, the Fisher information a sample, (K, K): the mean outer product of the exact scores; ``without`` the
        coefficients of one target, which must be the last."""
        m, rows = self.weights.size, None
        if m > _MOST_SAMPLES:
            rows = np.sort(np.random.default_rng(0).choice(m, _MOST_SAMPLES, replace=False))
        p = self.parameters
        J = scores(self.likelihood, p.dynamics(a), p.directions(a, without), rows)
        w = self.weights if rows is None else self.weights[rows]
        return np.asarray(J.T @ (J * (w / w.sum())[:, None]))

    def curvature(self, F: Array, a: Array) -> Array:
        """F and the penalties at a, (K, K), with 10⁻⁴ more in the units of every coefficient: none is without."""
        return _plus(as_square(self.penalty(a)) + F, 1e-4 / self.parameters.units**2)


class Evaluations:
    """The evaluations of a run: the losses, the best coefficients so far, and memory to use again.

    stages: the number of the function that each loss is of: it changes with the strengths of smoothness; ``stage`` is
    that of the next.
    """

    def __init__(self, report: Report | None = None) -> None:
        self.losses: list[float] = []
        self.stages: list[int] = []
        self.stage = 0
        self.best: Array | None = None
        self.lowest = np.inf
        self.report, self.workspace = report, Workspace()
        self._last: tuple[PenalisedLikelihood, Array, float, Array] | None = None

    def __call__(self, problem: PenalisedLikelihood, a: Array) -> tuple[float, Array]:
        """The value and gradient of a problem; at the point of the call before they are at hand."""
        if self._last is not None and self._last[0] is problem and np.array_equal(self._last[1], a):
            return self._last[2], self._last[3].copy()
        value, gradient = problem.value_and_gradient(a, self.workspace)
        self._last = (problem, a.copy(), value, gradient.copy())
        self.losses.append(value)
        self.stages.append(self.stage)
        if value < self.lowest:
            self.lowest, self.best = value, a.copy()
        if self.report is not None:
            self.report(self.lowest)
        return value, gradient

    def restart(self) -> None:
        """Another function from here on: what was best before is not compared with it."""
        self.lowest, self.best = np.inf, None
        self.stage += 1

    def go_on_from(self, before: Round) -> None:
        """Where a run that was ended was; what is best is found again."""
        self.lowest, self.best = np.inf, None
        self.losses[:], self.stages[:], self.stage = before.losses.tolist(), before.stages.tolist(), before.stage
        if self.report is not None:
            self.report.go_on_from(before.count)

    def join(self, other: Evaluations) -> None:
        """Go on with the losses of a run beside this one."""
        self.stages += [self.stage + 1 + stage for stage in other.stages]
        self.losses += other.losses
        self.stage += other.stage + 1

    def aside(self) -> Evaluations:
        """Those of a run beside this one, with losses of its own."""
        other = Evaluations(self.report)
        other.workspace = self.workspace
        return other


@dataclass(frozen=True, eq=False)
class Solution:
    """Where the optimiser stopped."""

    a: Array
    problem: PenalisedLikelihood  # with the strengths that were used
    loss: float  # with penalties
    information: Array | None = None  # Fisher information at a, (K, K)
    covariance: Array | None = None  # posterior, (K, K)
    gradient: Array | None = None  # of the loss at a, (K,)
    decrement: float = np.inf  # the nats that a Newton step would still gain
    interrupted: bool = False

    @property
    def parameters(self) -> Parameters:
        return self.problem.parameters

    @property
    def fisher(self) -> Array:
        """The Fisher information at a; evaluated if it was not needed before."""
        return self.problem.information(self.a) if self.information is None else self.information


def minimise(
    problem: PenalisedLikelihood,
    a: Array,
    matrix: Array,
    evaluations: Evaluations,
    max_iter: int,
    tol: float,
    free: Mask | None = None,
) -> tuple[Array, float]:
    """L-BFGS from a, in coordinates in which ``matrix`` (K, K) or (K,) is the identity; others than the ``free``
    coefficients stay. The coefficients and the loss there."""
    from scipy.optimize import minimize

    free = np.ones(a.size, bool) if free is None else free
    matrix = matrix[free] if matrix.ndim == 1 else matrix[np.ix_(free, free)]
    chart = _DiagonalChart(matrix) if matrix.ndim == 1 else _DenseChart(matrix)
    full = a.copy()

    def fun(y: Array) -> tuple[float, Array]:
        full[free] = chart.a(y)
        value, gradient = evaluations(problem, full)
        return value, chart.pull(gradient[free])

    options = {"maxiter": max_iter, "ftol": tol, "gtol": 1e-9, "maxcor": 20}
    result = minimize(fun, chart.y(a[free]), jac=True, method="L-BFGS-B", options=options)
    full[free] = chart.a(result.x)
    return full, float(result.fun)


class _DiagonalChart:
    """Coordinates y = D^½ a."""

    def __init__(self, matrix: Array) -> None:
        self.scale = 1 / np.sqrt(matrix)

    def a(self, y: Array) -> Array:
        return self.scale * y

    def y(self, a: Array) -> Array:
        return a / self.scale

    pull = a


class _DenseChart:
    """Coordinates y = Lᵀa with LLᵀ the matrix."""

    def __init__(self, matrix: Array) -> None:
        self.L = cholesky(matrix, lower=True)

    def a(self, y: Array) -> Array:
        return np.asarray(solve_triangular(self.L, y, trans=1, lower=True, check_finite=False))

    def y(self, a: Array) -> Array:
        return np.asarray(self.L.T @ a)

    def pull(self, gradient: Array) -> Array:
        return np.asarray(solve_triangular(self.L, gradient, lower=True, check_finite=False))


def optimise(
    problem: PenalisedLikelihood,
    a: Array,
    evaluations: Evaluations,
    *,
    auto: tuple[bool, ...] = (),
    max_iter: int = 300,
    tol: float = 1e-9,
    updates: int = 3,
    curvature: bool = True,
    information: Array | None = None,
    checkpoint: Checkpoint | None = None,
) -> Solution:
    """The optimum from a; ``auto`` says of each block whether its strength is to be chosen, by so many updates.

    curvature: use the Fisher information (False: penalties alone, for values in their thousands).
    information: that at a, where it is known: else the first round knows the penalties alone. Without use when a run is
    gone on with.
    checkpoint: where every round is kept, and gone on from.
    """
    solution, first = Solution(a, problem, np.inf), 0
    before = None if checkpoint is None else checkpoint.next_stage()
    try:
        if not curvature:
            return _first_order_optimum(problem, a, evaluations, max_iter, tol, checkpoint, before)
        n_updates = updates if any(auto) else 0
        if before is None:
            matrix = first_metric(problem, a)
            if information is not None:
                matrix = as_square(matrix) + information
        else:
            a, first = before.a, before.number
            problem = replace(problem, parameters=problem.parameters.with_strengths(before.strengths))
            solution = solution_at(problem, a, evaluations.aside())
            evaluations.go_on_from(before)
            if before.done:
                return solution
            matrix = problem.curvature(solution.fisher, a)
        for round_ in range(first, n_updates + 2):
            # no need to go all the way in the first metric
            a, loss = minimise(problem, a, matrix, evaluations, min(max_iter, 100) if round_ == 0 else max_iter, tol)
            solution = solution_at(problem, a, evaluations, loss)
            changed = False
            if round_ < n_updates:
                parameters = updated_strengths(problem.parameters, a, solution.covariance, problem.n_samples, auto)
                changed = parameters is not problem.parameters
                problem = replace(problem, parameters=parameters)
            done = round_ == n_updates + 1 or (not changed and solution.decrement < _NATS)
            if changed:
                evaluations.restart()
            if checkpoint is not None:
                checkpoint.keep(_round(round_ + 1, a, problem, evaluations, done))
            if done and not changed:
                break
            matrix = problem.curvature(solution.fisher, a)
        return solution
    except STOPS:
        best = solution if evaluations.best is None else replace(solution, a=evaluations.best, loss=evaluations.lowest)
        return replace(best, problem=problem, information=None, interrupted=True)


def _round(number: int, a: Array, problem: PenalisedLikelihood, evaluations: Evaluations, done: bool) -> Round:
    """What a checkpoint keeps."""
    strengths = tuple(block.strengths for block in problem.parameters.blocks)
    count = 0 if evaluations.report is None else evaluations.report.n
    losses, stages = np.array(evaluations.losses), np.array(evaluations.stages, dtype=np.int64)
    return Round(number, a, strengths, losses, stages, evaluations.stage, count, done)


def _first_order_optimum(
    problem: PenalisedLikelihood,
    a: Array,
    evaluations: Evaluations,
    max_iter: int,
    tol: float,
    checkpoint: Checkpoint | None,
    before: Round | None,
) -> Solution:
    """The optimum in one round, with the strengths as they are."""
    matrix = first_metric(problem, a)
    if before is None:
        a, loss = minimise(problem, a, matrix, evaluations, max_iter, tol)
        _, g = evaluations(problem, a)
        if checkpoint is not None:
            checkpoint.keep(_round(1, a, problem, evaluations, done=True))
    else:
        a = before.a
        loss, g = evaluations.aside()(problem, a)
        evaluations.go_on_from(before)
    newton = g / matrix if matrix.ndim == 1 else np.asarray(cho_solve(cho_factor(matrix), g))
    return Solution(a, problem, loss, decrement=0.5 * problem.n_samples * float(g @ newton))


def solution_at(
    problem: PenalisedLikelihood,
    a: Array,
    evaluations: Evaluations,
    loss: float | None = None,
    information: Array | None = None,
    free: Mask | None = None,
) -> Solution:
    """The solution at coefficients a, an optimum of those that are ``free`` (all)."""
    F = problem.information(a) if information is None else information
    H = problem.n_samples * _ridged(as_square(problem.penalty(a)) + F, problem.parameters.units)
    inverse = np.linalg.inv(H)
    covariance = 0.5 * (inverse + inverse.T)
    value, g = evaluations(problem, a)
    slope, g = g, problem.n_samples * g
    if free is None:
        decrement = 0.5 * float(g @ covariance @ g)
    else:
        decrement = 0.5 * float(g[free] @ np.linalg.solve(H[np.ix_(free, free)], g[free]))
    return Solution(a, problem, value if loss is None else loss, F, covariance, slope, decrement)


def first_metric(problem: PenalisedLikelihood, a: Array) -> Array:
    """A guess of the curvature: penalties, and a little by each coefficient. That by the logarithm of a whole field is
    known to be about 1, and a first step that is too long for it would lose all samples."""
    p = problem.parameters
    out = 0.05 / p.units**2
    for block, part in zip(p.blocks, p.slices, strict=True):
        if block.positive and block.basis is not None:
            out[part] = np.mean(block.basis**2, axis=0)
    return _plus(problem.penalty(a), out)


def _ridged(H: Array, units: Array) -> Array:
    """H (K, K) with so little more that only what is singular changes."""
    return _plus(H, 1e-10 * np.maximum(np.diag(H), 1e-10 / units**2))


def _plus(matrix: Array, c: Array) -> Array:
    return matrix + (c if matrix.ndim == 1 else np.diag(c))


def as_square(matrix: Array) -> Array:
    """A diagonal (K,) as a matrix."""
    return np.diag(matrix) if matrix.ndim == 1 else matrix
