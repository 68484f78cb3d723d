"""Maximum likelihood: preconditioned L-BFGS, and strengths of smoothness by empirical Bayes.

    Loss = −mean log likelihood + Σ_b λ_b a_bᵀA_b a_b

In coordinates y with a = C y, CCᵀ = (F + 2λA + c)⁻¹, F the Fisher information from exact per-sample scores, the
problem is round and L-BFGS needs few steps; c is small, in the units of the coefficients. With H = m(F + 2λA) the
posterior covariance is H⁻¹, and Fellner–Schall sets each strength to λ ← (rank A − 2λm tr(H⁻¹A)) / (2m aᵀA a).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from ordiff._check import Array
from ordiff.inference.objective import Objective
from ordiff.inference.parameters import Block, Parameters

# Fisher information from at most this many samples.
_MOST_SAMPLES = 20_000
# Up to this many coefficients the information matrix is dense.
_MOST_DENSE = 6_000
# A Newton step would gain fewer nats than this, over all samples: the optimum is reached.
_NATS = 0.05
# Directions in which a field is moved to the optimum of its marginal likelihood.
_LOOSEST = 8


@dataclass
class History:
    """The loss after every evaluation, and the best coefficients so far."""

    losses: list[float] = field(default_factory=list)
    best: Array | None = None
    lowest: float = np.inf


@dataclass(frozen=True, eq=False)
class Solution:
    """Where the optimiser stopped."""

    a: Array
    parameters: Parameters  # with the strengths that were used
    loss: float  # with regularisers
    covariance: Array | None  # posterior, (K, K)
    decrement: float  # the nats that a Newton step would still gain
    interrupted: bool = False


Report = Callable[[int, float], None]


class Problem:
    """An objective, its parameters and their regularisers as one function of the coefficients."""

    def __init__(
        self,
        objective: Objective,
        parameters: Parameters,
        weights: Array,
        *,
        action: Any = None,
        action_strength: float = 0.0,
        report: Report | None = None,
    ) -> None:
        self.objective, self.parameters, self.weights = objective, parameters, weights
        self.action, self.action_strength = action, action_strength
        self.history, self.report = History(), report

    @property
    def n_samples(self) -> float:
        return float(self.weights.sum())

    def value_and_gradient(self, a: Array) -> tuple[float, Array]:
        """The regularised loss and its derivative by the coefficients."""
        p = self.parameters
        dynamics = p.dynamics(a)
        value, by = self.objective.value_and_gradient(dynamics)
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
        gradient = p.gradient(a, by)
        for block, part in zip(p.blocks, p.slices, strict=True):
            R, d = block.roughness(a[part])
            value += block.strength * R
            gradient[part] += block.strength * d
        h = self.history
        h.losses.append(float(value))
        if value < h.lowest:
            h.lowest, h.best = float(value), a.copy()
        if self.report is not None:
            self.report(len(h.losses), h.lowest)
        return float(value), gradient

    def penalty(self) -> Array:
        """2λA over all coefficients, (K, K), or (K,) when it is diagonal or too large."""
        p = self.parameters
        dense = p.size <= _MOST_DENSE and any(b.penalty is not None and b.penalty.ndim == 2 for b in p.blocks)
        out = np.zeros((p.size, p.size)) if dense else np.zeros(p.size)
        for block, part in zip(p.blocks, p.slices, strict=True):
            if block.penalty is None:
                continue
            A = block.penalty
            if dense:
                full = np.diag(A) if A.ndim == 1 else (A.toarray() if hasattr(A, "toarray") else A)
                out[part, part] = 2 * block.strength * full
            else:
                out[part] = 2 * block.strength * (A if A.ndim == 1 else A.diagonal())
        return out

    def information(self, a: Array, free: NDArray[np.bool_] | None = None) -> Array:
        """F, the Fisher information a sample, (K, K): the mean outer product of the exact scores. Or that of the
        ``free`` coefficients alone, in half the time when the noise is not among them."""
        m, rows = self.weights.size, None
        if m > _MOST_SAMPLES:
            rows = np.sort(np.random.default_rng(0).choice(m, _MOST_SAMPLES, replace=False))
        p = self.parameters
        directions, free = p.directions(a), np.ones(p.size, bool) if free is None else free
        last, part = p.blocks[-1], p.slices[-1]
        if last.target == "noise" and not free[part].any():
            directions["noise"], free = None, free[: part.start]
        J = self.objective.scores(p.dynamics(a), **directions, rows=rows)[:, free]
        w = self.weights if rows is None else self.weights[rows]
        return np.asarray(J.T @ (J * (w / w.sum())[:, None]))

    def minimise(
        self, a: Array, matrix: Array, max_iter: int, tol: float, free: NDArray[np.bool_] | None = None
    ) -> tuple[Array, float]:
        """L-BFGS from a, in coordinates in which ``matrix`` (K, K) or (K,) is the identity; others than the ``free``
        coefficients stay."""
        from scipy.optimize import minimize

        free = np.ones(a.size, bool) if free is None else free
        matrix = matrix[free] if matrix.ndim == 1 else matrix[np.ix_(free, free)]
        chart = _Diagonal(matrix) if matrix.ndim == 1 else _Dense(matrix)
        full = a.copy()

        def fun(y: Array) -> tuple[float, Array]:
            full[free] = chart.a(y)
            value, gradient = self.value_and_gradient(full)
            return value, chart.pull(gradient[free])

        options = {"maxiter": max_iter, "ftol": tol, "gtol": 1e-9, "maxcor": 20}
        result = minimize(fun, chart.y(a[free]), jac=True, method="L-BFGS-B", options=options)
        full[free] = chart.a(result.x)
        return full, float(result.fun)


class _Diagonal:
    """Coordinates y = D^½ a."""

    def __init__(self, matrix: Array) -> None:
        self.scale = 1 / np.sqrt(matrix)

    def a(self, y: Array) -> Array:
        return self.scale * y

    def y(self, a: Array) -> Array:
        return a / self.scale

    pull = a


class _Dense:
    """Coordinates y = Lᵀa with LLᵀ the matrix."""

    def __init__(self, matrix: Array) -> None:
        self.L = cholesky(matrix, lower=True)

    def a(self, y: Array) -> Array:
        return np.asarray(solve_triangular(self.L, y, trans=1, lower=True))

    def y(self, a: Array) -> Array:
        return np.asarray(self.L.T @ a)

    def pull(self, gradient: Array) -> Array:
        return np.asarray(solve_triangular(self.L, gradient, lower=True))


def optimise(
    problem: Problem,
    a: Array,
    *,
    auto: tuple[bool, ...] = (),
    max_iter: int = 300,
    tol: float = 1e-9,
    updates: int = 3,
    curvature: bool = True,
) -> Solution:
    """The optimum from a; ``auto`` says of each block whether its strength is to be chosen.

    curvature: use the Fisher information (False: penalties alone, for values in their thousands).
    """
    interrupted, covariance, decrement, loss = False, None, np.inf, np.inf
    try:
        matrix = first_metric(problem)
        rounds = (updates if any(auto) else 0) + (2 if curvature else 1)
        for round_ in range(rounds):
            # the first metric knows only the penalties: no need to go all the way in it
            a, loss = problem.minimise(a, matrix, min(max_iter, 100) if round_ == 0 and curvature else max_iter, tol)
            if not curvature:
                break
            F, penalty = problem.information(a), problem.penalty()
            covariance, decrement = _posterior(problem, a, F, penalty)
            changed = False
            if any(auto) and round_ < rounds - 2:
                changed = _update_strengths(problem, a, covariance, auto)
            if changed:
                problem.history.lowest = np.inf  # another function from here on
            matrix = _rounded(problem, _square(problem.penalty()) + F)
            if not changed and decrement < _NATS:
                break
        if not curvature:
            _, g = problem.value_and_gradient(a)
            decrement = 0.5 * problem.n_samples * float(g @ (g / matrix if matrix.ndim == 1 else _solve(matrix, g)))
    except KeyboardInterrupt:
        interrupted = True
        if problem.history.best is not None:
            a, loss = problem.history.best, problem.history.lowest
    return Solution(a, problem.parameters, loss, covariance, decrement, interrupted)


def log_volume(problem: Problem, a: Array, free: NDArray[np.bool_]) -> float:
    """½ log det of the curvature of the free coefficients: with it a joint likelihood becomes, by Laplace's method, a
    marginal one, but for a constant.

    Coefficients of an ordering without a penalty are measured in units of ρ²: near a steady state only l/ρ² can be
    seen, and a measure that knows nothing of ρ would then prefer any larger noise.
    """
    p, penalty = problem.parameters, _square(problem.penalty())[np.ix_(free, free)]
    curvature = _rounded(problem, penalty + problem.information(a, free), free)
    volume = 0.5 * float(np.linalg.slogdet(curvature)[1])
    level = float(np.log(p.dynamics(a).noise).mean())
    unpenalised = sum(
        np.count_nonzero(block.penalty == 0)
        for block in p.blocks
        if block.target == "ordering" and block.penalty is not None and block.penalty.ndim == 1
    )
    return volume + 2 * unpenalised * level


def settle(problem: Problem, solution: Solution, at: int, tol: float) -> Solution:
    """The solution with coefficient ``at`` at the optimum of its marginal likelihood, all others learned again.

    At the joint optimum many coefficients of an ordering take up part of the noise, so that the noise comes out too
    low; integrating them out mends it, as restricted maximum likelihood does for a variance.
    """
    from scipy.optimize import minimize_scalar

    free = np.ones(solution.a.size, bool)
    free[at] = False
    matrix = metric(problem, solution.a)
    found: dict[float, Array] = {}

    def marginal(x: float) -> float:
        a = found[min(found, key=lambda y: abs(y - x))].copy() if found else solution.a.copy()
        a[at] = x
        a, loss = problem.minimise(a, matrix, 60, tol, free)
        found[x] = a
        return problem.n_samples * loss + log_volume(problem, a, free)

    here = float(solution.a[at])
    problem.history.lowest = np.inf
    best = minimize_scalar(marginal, bounds=(here - 0.4, here + 0.6), options={"xatol": 0.02, "maxiter": 9})
    return _settled(problem, solution, found[float(best.x)], free)


def settle_field(problem: Problem, solution: Solution, part: slice, tol: float) -> Solution:
    """The same for the coefficients ``part`` of a field: one Newton step on their marginal likelihood.

    Its curvature is C⁻¹, C their posterior covariance, and its slope at the joint optimum that of `log_volume`, by
    differences along the `_LOOSEST` directions in which the field is known least and the others follow it. A step that
    gains nothing is made shorter, and at last not at all.
    """
    C = solution.covariance
    assert C is not None
    values, vectors = np.linalg.eigh(C[part, part])
    loosest = np.argsort(values)[::-1][:_LOOSEST]
    variances, V = values[loosest], vectors[:, loosest]
    follow = C[:, part] @ (V / variances)  # (K, directions); V itself in the rows of the part
    free = np.ones(solution.a.size, bool)
    free[part] = False
    deviations = np.sqrt(variances)
    here, ahead = log_volume(problem, solution.a, free), 0.3 * deviations
    volumes = [log_volume(problem, solution.a + h * along, free) for along, h in zip(follow.T, ahead, strict=True)]
    slopes = (np.array(volumes) - here) / ahead
    step = np.clip(-variances * slopes, -2 * deviations, 2 * deviations)
    problem.history.lowest = np.inf
    matrix = metric(problem, solution.a)
    for share in (1.0, 0.5, 0.25):
        a, loss = problem.minimise(solution.a + share * follow @ step, matrix, 60, tol, free)
        if problem.n_samples * (solution.loss - loss) + here - log_volume(problem, a, free) > 0:
            return _settled(problem, solution, a, free)
    return solution


def _settled(problem: Problem, solution: Solution, a: Array, free: NDArray[np.bool_]) -> Solution:
    """The solution at other coefficients, an optimum of those that are ``free``."""
    F, penalty = problem.information(a), problem.penalty()
    covariance, _ = _posterior(problem, a, F, penalty)
    loss, g = problem.value_and_gradient(a)
    g = problem.n_samples * g[free]
    H = problem.n_samples * (_square(penalty) + F)[np.ix_(free, free)]
    decrement = 0.5 * float(g @ np.linalg.solve(_ridged(H, problem.parameters.units[free]), g))
    return replace(solution, a=a, loss=loss, covariance=covariance, decrement=decrement)


def metric(problem: Problem, a: Array) -> Array:
    """The curvature of the loss at a, (K, K): Fisher information and penalties."""
    return _rounded(problem, _square(problem.penalty()) + problem.information(a))


def first_metric(problem: Problem) -> Array:
    """A guess of the curvature: penalties, and a little by each coefficient. That by the logarithm of a whole field is
    known to be about 1, and a first step that is too long for it would lose all samples."""
    out = 0.05 / problem.parameters.units**2
    for block, part in zip(problem.parameters.blocks, problem.parameters.slices, strict=True):
        if block.positive and block.basis is not None:
            out[part] = np.mean(block.basis**2, axis=0)
    return _plus(problem.penalty(), out)


def _rounded(problem: Problem, curvature: Array, free: NDArray[np.bool_] | None = None) -> Array:
    """A curvature (K, K) with a little more in every direction, so that none is without: 10⁻⁴ in its units."""
    units = problem.parameters.units if free is None else problem.parameters.units[free]
    return _plus(curvature, 1e-4 / units**2)


def _ridged(H: Array, units: Array) -> Array:
    """H (K, K) with so little more that only what is singular changes."""
    return _plus(H, 1e-10 * np.maximum(np.diag(H), 1e-10 / units**2))


def _plus(matrix: Array, c: Array) -> Array:
    return matrix + (c if matrix.ndim == 1 else np.diag(c))


def _square(matrix: Array) -> Array:
    return np.diag(matrix) if matrix.ndim == 1 else matrix


def _solve(matrix: Array, g: Array) -> Array:
    return np.asarray(cho_solve(cho_factor(matrix), g))


def _posterior(problem: Problem, a: Array, F: Array, penalty: Array) -> tuple[Array, float]:
    """H⁻¹, and the nats that a Newton step would gain."""
    covariance = np.linalg.inv(problem.n_samples * _ridged(_square(penalty) + F, problem.parameters.units))
    _, g = problem.value_and_gradient(a)
    g = problem.n_samples * g
    return 0.5 * (covariance + covariance.T), 0.5 * float(g @ covariance @ g)


def _update_strengths(problem: Problem, a: Array, covariance: Array, auto: tuple[bool, ...]) -> bool:
    """One Fellner–Schall step, each strength by a factor of at most 30. Where all would change by less than 5% they
    stay, since the optimum that was found is theirs, and the answer is False."""
    p, m, changed = problem.parameters, problem.n_samples, False
    blocks: list[Block] = []
    for block, part, free in zip(p.blocks, p.slices, auto, strict=True):
        if free and block.penalty is not None:
            A = block.penalty
            rank = np.count_nonzero(A)
            used = rank - 2 * block.strength * m * float(np.diag(covariance)[part] @ A)
            wanted = max(used, 0.1) / (2 * m * max(block.roughness(a[part])[0], 1e-300))
            wanted = float(np.clip(wanted, block.strength / 30, block.strength * 30))
            changed |= abs(np.log(wanted / block.strength)) > 0.05
            block = replace(block, strength=wanted)
        blocks.append(block)
    if changed:
        problem.parameters = replace(p, blocks=tuple(blocks))
    return changed
