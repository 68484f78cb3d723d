"""What is not known of a noise field because it is not known how much the noise varies.

The strengths of smoothness of log ρ are those of the largest evidence, and where samples are few that may be strengths
under which the noise is the same everywhere, and known well. Others may be about as likely. With the log likelihood
hᵀb − ½bᵀSb of the field's coefficients b, all others following, and priors N(0, P⁻¹) under which log ρ varies by more
or less over the samples, and more or less smoothly, the evidence of each is

    e = ½ hᵀ(S + P)⁻¹h − ½ log det(S + P) + ½ log det P

and the covariance of b is that of the mixture with the weights exp e, about the coefficients that were learned.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ordiff._validation import Array
from ordiff.learning.optimise import Solution
from ordiff.learning.parameters import ParameterBlock

# Standard deviations of log ρ over the samples, and shares of roughness beside |D log ρ|²: equally likely. That the
# noise does not vary is as likely as one of the first.
_SIZES, _ROUGHNESS = (0.05, 0.1, 0.2, 0.4), (1e-4, 1e-3, 1e-2, 1e-1)
# The precision of a level of which nothing is known before, as a share of what is known after.
_NOTHING = 1e-6


def with_possible_variation(solution: Solution, seen: Array) -> Solution:
    """The solution with the covariance of the mixture. seen: how much the samples see of each state, (N,)."""
    found, C = solution.parameters.part("noise"), solution.covariance
    if found is None or C is None or not found[0].lower:
        return solution
    block, part = found
    a, own = solution.a[part], C[part, part]
    precision = np.asarray(np.linalg.inv(own), dtype=np.float64)
    prior = 2 * solution.problem.n_samples * sum(
        strength * form
        for strength, form in ((block.strength, np.diag(block.penalty)), *((s, form) for form, s in block.lower))
    )  # fmt: skip
    S, h = _positive(precision - prior), precision @ a
    means, covariances, evidence = zip(*(_under(S, h, P) for P in _priors(block, seen, precision)), strict=True)
    weights = np.exp(np.array(evidence) - max(evidence))
    weights[0] *= len(_ROUGHNESS)  # the first is that of no variation
    weights /= weights.sum()
    away = np.array(means) - a
    mixture = np.einsum("k,kij->ij", weights, np.array(covariances)) + (away * weights[:, None]).T @ away
    follow = C[:, part] @ precision
    return replace(solution, covariance=C + follow @ _positive(mixture - own) @ follow.T)


def _priors(block: ParameterBlock, seen: Array, precision: Array) -> list[Array]:
    """Prior precisions P (K, K): of no variation, and of more and more, each more or less smooth."""
    assert block.basis is not None
    U = block.basis[:, 1:]
    U = U - seen @ U / seen.sum()
    spread = (U * (seen / seen.sum())[:, None]).T @ U
    level = _NOTHING * precision[0, 0]
    out = [np.diag(np.r_[level, np.full(U.shape[1], 1e6 * np.diag(precision).max())])]
    for size, r in product(_SIZES, _ROUGHNESS):
        form = (block.lower[0][0] + r * np.diag(block.penalty))[1:, 1:]
        P = np.zeros_like(precision)
        P[0, 0] = level
        P[1:, 1:] = form * float(np.trace(np.linalg.solve(form, spread))) / size**2
        out.append(P)
    return out


def _under(S: Array, h: Array, P: Array) -> tuple[Array, Array, float]:
    """Mean, covariance and evidence under one prior."""
    factor = cho_factor(S + P)
    b = cho_solve(factor, h)
    volume = float(np.log(np.diag(factor[0])).sum()) - 0.5 * float(np.linalg.slogdet(P)[1])
    return b, cho_solve(factor, np.eye(len(P))), 0.5 * float(h @ b) - volume


def _positive(A: Array) -> Array:
    """The positive semidefinite matrix nearest to A (K, K)."""
    values, vectors = np.linalg.eigh(0.5 * (A + A.T))
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
