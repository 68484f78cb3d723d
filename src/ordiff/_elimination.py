"""Systems of slow chains, solved by taking out states without a subtraction, after Grassmann, Taksar and Heyman.

A chain moves from i to j with probability B_ij, i ≠ j, and leaves for good with l_i; nothing is negative. With D the
row sums of B plus l, D − B is the matrix of its fates, passage times and occupancies. Where the chain may stay in a few
states for longer than 10¹⁶ steps, a factorisation loses how it gets out of them to cancellation. To take out a block b
of states, let ways through it be moves of the others, r:

    B_rr + B_rb M⁻¹ B_br        l_r + B_rb M⁻¹ l_b        M the block of D − B

and sum up D again: every number is a sum of products of what is not negative, hence right to some rounding errors.
"""

from __future__ import annotations

import numpy as np

from ordiff._check import Array

_BLOCK = 64


class Elimination:
    """The solutions of (D − B) x = b, and of its transpose. The moves, (N, N), are overwritten.

    In the rows and columns of a block its inverse, what it does to the rows of states not yet taken out, and the moves
    into it are kept. For b ≥ 0 each entry of x is right to rounding; others are split.
    """

    def __init__(self, moves: Array, leaving: Array) -> None:
        B, l = moves, leaving.copy()
        np.fill_diagonal(B, 0.0)
        self._blocks = [(first, min(first + _BLOCK, len(B))) for first in range(0, len(B), _BLOCK)]
        for s, e in reversed(self._blocks):
            inverse = _inverse(B[s:e, s:e], l[s:e] + B[s:e, :s].sum(axis=1))
            B[s:e, :s] = inverse @ B[s:e, :s]
            l[:s] += B[:s, s:e] @ (inverse @ l[s:e])
            B[:s, :s] += B[:s, s:e] @ B[s:e, :s]
            np.fill_diagonal(B[:s, :s], 0.0)
            B[s:e, s:e] = inverse
        self._B = B

    def solve(self, b: Array, transposed: bool = False) -> Array:
        size = np.abs(b).max() or 1.0
        above, below = np.maximum(b, 0.0) / size, np.maximum(-b, 0.0) / size
        way = self._back if transposed else self._there
        with np.errstate(over="ignore"):  # what is too large is infinite
            return size * (way(above) - way(below) if below.any() else way(above))

    def _there(self, x: Array) -> Array:
        B = self._B
        for s, e in reversed(self._blocks):
            x[s:e] = B[s:e, s:e] @ x[s:e]
            x[:s] += B[:s, s:e] @ x[s:e]
        for s, e in self._blocks:
            x[s:e] += B[s:e, :s] @ x[:s]
        return x

    def _back(self, x: Array) -> Array:
        B = self._B
        for s, e in reversed(self._blocks):
            x[:s] += B[s:e, :s].T @ x[s:e]
        for s, e in self._blocks:
            x[s:e] = B[s:e, s:e].T @ (x[s:e] + B[:s, s:e].T @ x[:s])
        return x


def _inverse(moves: Array, leaving: Array) -> Array:
    """(D − B)⁻¹ of a few states, taken out one by one."""
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
