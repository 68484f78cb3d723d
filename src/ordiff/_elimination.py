"""Elimination without subtractions, for nearly decomposable chains.

Where groups of states exchange mass with probabilities of the size of rounding errors, a factorisation loses the rates
between the groups by cancellation. The elimination of Grassmann, Taksar and Heyman (Operations Research 33, 1985,
1107–1116) has no subtraction. With B_ij ≥ 0 the probability to move from i to j ≠ i, l_i ≥ 0 that to leave the free
states, and D the row sums of B plus l, the matrix is D − B. States of a block b are eliminated by making paths through
them moves between the remaining states r:

    B_rr + B_rb M⁻¹ B_br        l_r + B_rb M⁻¹ l_b        M the block of D − B

and D is summed up anew: sums and products of numbers that are not negative, so that each is right to a few rounding
errors however rare the exchange is.
"""

from __future__ import annotations

import numpy as np

from ordiff._validation import Array

# Rows and columns that are treated at a time.
_BLOCK = 64


class GTHElimination:
    """(D − B) x = b and its transpose by elimination without subtractions (see the module).

    moves: B (N, N), which is overwritten; its diagonal is ignored. leaving: l (N,).
    After the elimination, rows and columns of a block hold M⁻¹, M⁻¹ B_br and B_rb. For b ≥ 0 every entry of x is right
    to rounding; another b is split into its positive and negative part.
    """

    def __init__(self, moves: Array, leaving: Array) -> None:
        B, l = moves, leaving.copy()
        np.fill_diagonal(B, 0.0)
        self._blocks = [(first, min(first + _BLOCK, len(B))) for first in range(0, len(B), _BLOCK)]
        for s, e in reversed(self._blocks):
            inverse = _gth_inverse(B[s:e, s:e], l[s:e] + B[s:e, :s].sum(axis=1))
            B[s:e, :s] = inverse @ B[s:e, :s]
            l[:s] += B[:s, s:e] @ (inverse @ l[s:e])
            B[:s, :s] += B[:s, s:e] @ B[s:e, :s]
            np.fill_diagonal(B[:s, :s], 0.0)
            B[s:e, s:e] = inverse
        self._B = B

    def solve(self, b: Array, transposed: bool = False) -> Array:
        scale = np.abs(b).max() or 1.0
        positive, negative = np.maximum(b, 0.0) / scale, np.maximum(-b, 0.0) / scale
        solve = self._solve_transposed if transposed else self._solve
        with np.errstate(over="ignore"):  # what is too large is infinite
            return scale * (solve(positive) - solve(negative) if negative.any() else solve(positive))

    def _solve(self, x: Array) -> Array:
        B = self._B
        for s, e in reversed(self._blocks):
            x[s:e] = B[s:e, s:e] @ x[s:e]
            x[:s] += B[:s, s:e] @ x[s:e]
        for s, e in self._blocks:
            x[s:e] += B[s:e, :s] @ x[:s]
        return x

    def _solve_transposed(self, x: Array) -> Array:
        B = self._B
        for s, e in reversed(self._blocks):
            x[:s] += B[s:e, :s].T @ x[s:e]
        for s, e in self._blocks:
            x[s:e] = B[s:e, s:e].T @ (x[s:e] + B[:s, s:e].T @ x[:s])
        return x


def _gth_inverse(moves: Array, leaving: Array) -> Array:
    """(D − B)⁻¹ of a few states, eliminated one by one."""
    B, l, X = moves.copy(), leaving.copy(), np.eye(len(moves))
    for k in reversed(range(len(B))):
        out = l[k] + B[k, :k].sum()
        B[k, :k] /= out
        X[k] /= out
        l[:k] += B[:k, k] * (l[k] / out)
        X[:k] += np.outer(B[:k, k], X[k])
        B[:k, :k] += np.outer(B[:k, k], B[k, :k])
        np.fill_diagonal(B[:k, :k], 0.0)
    for k in range(1, len(B)):
        X[k] += B[k, :k] @ X[:k]
    return X
