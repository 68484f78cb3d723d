"""How likely is a rotation that was not learned, and what does it leave unknown?

At an optimum of all other coefficients the log likelihood of a rotation's coefficients b is hᵀb − ½bᵀSb, while the
others follow by Fb. A prior of b is N(0, P⁻¹), P = 2mλ(rA + B) with the forms of its roughness A and of |Dw|², B. The
sizes of |Dw|, from an eighth of that of the gradient's drift to as large, and the shares r of roughness are equally
likely before any sample is seen. The evidence of each against b = 0 is

    e = ½ hᵀ(S + P)⁻¹h − ½ log det(S + P) + ½ log det P

The mean of exp e is the Bayes factor of a drift that turns. With exp e as weights, and a gradient as likely as each of
the sizes, E bbᵀ is the mean square of a rotation that is left out: it is added to the variances of a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ordiff._validation import Array
from ordiff.learning.optimise import Evaluations, PenalisedLikelihood
from ordiff.learning.parameters import ParameterBlock
from ordiff.learning.rotation import LeftOut, with_strengths
from ordiff.learning.smoothing import FIRST_ROTATION, best_strengths

# |Dw| in units of that of the gradient, and r.
_SIZES, _ROUGHNESS = (0.125, 0.25, 0.5, 1.0), (1e-4, 1e-3, 1e-2, 1e-1)
# The least |D²l| that is compared with, in units of |Dw| of bᵀBb = 1: of a constant ordering it is 0.
_LEAST = 1e-3
# The largest e is at most so many nats above the logarithm of the Bayes factor.
MOST_ABOVE = float(np.log(len(_SIZES) * len(_ROUGHNESS)))


@dataclass(frozen=True, eq=False)
class RotationScore:
    """h (K,) and S (K, K) of a rotation's ``block``, F (P, K) of the P other coefficients; m samples; the Fisher
    information of all coefficients, (P + K, P + K)."""

    block: ParameterBlock
    slope: Array
    curvature: Array
    follow: Array
    m: float
    information: Array

    @classmethod
    def at(cls, problem: PenalisedLikelihood, a: Array, evaluations: Evaluations) -> RotationScore:
        """That of a problem with a rotation which is 0 at a, an optimum of all else."""
        p, m = problem.parameters, problem.n_samples
        found = p.part("rotation")
        assert found is not None
        block, part = found
        others = np.ones(a.size, bool)
        others[part] = False
        free, information = with_strengths(problem, np.zeros(1 + len(block.lower))), problem.information(a)
        H = m * free.curvature(information, a)
        slope = -m * evaluations(problem, a)[1][part]
        follow = -np.linalg.solve(H[np.ix_(others, others)], H[others][:, part])
        S = H[part, part] + H[part][:, others] @ follow
        return cls(block, slope, 0.5 * (S + S.T), follow, m, information)

    def best(self) -> tuple[Array, float]:
        """The strengths that promise most, and how many nats."""
        return best_strengths(self.block, self.slope, self.curvature, self.m, FIRST_ROTATION)

    def left_out(self, gradient: float, unit: float) -> LeftOut:
        """What leaving it out leaves unknown; ``gradient``: the rms of |D²l|, ``unit``: that of |Dw| for bᵀBb = 1."""
        rough, (bend, _) = np.diag(self.block.penalty), self.block.lower[0]
        evidence, squares, gradient = [], [], max(gradient, _LEAST * unit)
        for size, r in product(_SIZES, _ROUGHNESS):
            form = r * rough + bend
            expected = float(np.trace(np.linalg.solve(form, bend)))  # of bᵀBb with P = form
            e, square = self._under(form * expected * (unit / (size * gradient)) ** 2)
            evidence.append(e)
            squares.append(square)
        weights = np.exp(np.clip(evidence, None, 300.0))
        nats = float(np.log(weights.mean()))
        square = np.einsum("k,kij->ij", weights / (weights.sum() + len(_ROUGHNESS)), np.array(squares))
        assert self.block.basis is not None
        both = np.vstack([self.follow, np.eye(len(square))])
        return LeftOut(nats, self.block.basis, both @ square @ both.T)

    def _under(self, P: Array) -> tuple[float, Array]:
        """e and E bbᵀ of one prior."""
        factor = cho_factor(self.curvature + P)
        b = cho_solve(factor, self.slope)
        volume = float(np.log(np.diag(factor[0])).sum()) - 0.5 * float(np.linalg.slogdet(P)[1])
        return 0.5 * float(self.slope @ b) - volume, cho_solve(factor, np.eye(len(P))) + np.outer(b, b)
