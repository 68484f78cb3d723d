"""The marginal likelihood of a fit: all coefficients integrated out by Laplace's method.

With H = m(F + 2λA) the posterior precision and P = 2mλA that of the prior,

    log evidence = −m Loss − ½ log det H + ½ log det⁺ P,

but for what fits with the same free functions have in common, so that the difference of two is the logarithm of a Bayes
factor.
"""

from __future__ import annotations

import numpy as np

from ordiff._validation import Array
from ordiff.learning.optimise import Solution
from ordiff.learning.parameters import ParameterBlock


def log_evidence(solution: Solution) -> float:
    """The logarithm of the marginal likelihood of a fit with its strengths, in nats, up to a constant."""
    assert solution.covariance is not None
    p, m = solution.parameters, solution.problem.n_samples
    noise = p.noise(solution.a)
    prior = sum(_log_precision(block, m, noise) for block in p.blocks)
    return -m * solution.loss + 0.5 * float(np.linalg.slogdet(solution.covariance)[1]) + prior


def _log_precision(block: ParameterBlock, m: float, noise: Array) -> float:
    """½ log det⁺ of the prior precision of one block."""
    if block.relative is not None:
        rank = block.relative.rows.shape[1] - block.relative.n_free
        return 0.5 * rank * float(np.log(2 * m * block.strength)) + block.relative.log_volume(noise)
    if block.penalty is None or block.strength == 0:
        return 0.0
    A = block.penalty
    if not block.lower:
        values = A if A.ndim == 1 else np.linalg.eigvalsh(A)
        least = 1e-14 * values.max()
        return 0.5 * float(np.log(2 * m * block.strength * values[values > least]).sum())
    forms = [(np.diag(A), block.strength), *block.lower]
    rank = int(np.linalg.matrix_rank(sum(form / np.trace(form) for form, _ in forms), hermitian=True))
    values = np.linalg.eigvalsh(2 * m * sum(strength * form for form, strength in forms))[-rank:]
    return 0.5 * float(np.log(np.maximum(values, np.finfo(float).tiny)).sum())
