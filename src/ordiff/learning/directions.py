"""Directions along which samples are not distributed as the particles of a fitted process.

Of the coordinate v = w·u along a direction w, the third and fourth powers are compared, each less its regression on 1,
v and v² over the particles, since means and variances were fitted. Their sums over the samples, early and late ones
apart, are compared with those of the particles by χ² of four degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from ordiff._validation import Array

# Powers are of coordinates no larger than this, in standard deviations.
_LARGEST = 3.5
# The probability to find any direction where there is none: to learn a function of it costs little.
_CHANCE = 0.01
# Powers that are compared.
_POWERS = 2
# Directions whose cosine is larger are not taken together.
_COSINE = 0.3
# Pairs of so many directions are tried.
_PAIRED = 8


@dataclass(frozen=True, eq=False)
class UnexplainedDirections:
    """Directions (c, d) and their χ², the largest first."""

    directions: Array
    statistics: Array

    def n_significant(self, chance: float) -> int:
        """How many there are, if the probability to find any where there is none shall be this."""
        return int((self.statistics > chi2.isf(chance / max(len(self.statistics), 1), _POWERS * 2)).sum())

    def independent(self, taken: Array) -> Array:
        """The significant ones, each but the first only if it is nearly orthogonal to those before it; none that was
        taken already."""
        found: list[Array] = []
        for w in self.directions[: self.n_significant(_CHANCE)]:
            if len(taken) and np.abs(taken @ w).max() > 0.95:
                continue
            if not found or np.abs(np.array(found) @ w).max() < _COSINE:
                found.append(w)
        return np.array(found).reshape(-1, self.directions.shape[1])


def candidates(principal: Array, taken: Array) -> Array:
    """Directions (c, d): the coordinates, the principal directions (d, d), and between pairs of those that matter."""
    d = principal.shape[1]
    singles = np.concatenate([np.eye(d), principal])
    between = [taken[:_PAIRED]] if len(taken) else []
    paired = np.concatenate([*between, principal[:_PAIRED]])
    j, k = np.triu_indices(len(paired), 1)
    apart = np.abs((paired[j] * paired[k]).sum(axis=1)) < 0.7
    pairs = np.concatenate([paired[j] + paired[k], paired[j] - paired[k]])[np.tile(apart, 2)]
    return _distinct(np.concatenate([singles, pairs / np.linalg.norm(pairs, axis=1, keepdims=True)]))


def _distinct(directions: Array) -> Array:
    """Without those that are nearly the same as an earlier one."""
    kept: list[Array] = []
    for w in directions:
        if not kept or np.abs(np.array(kept) @ w).max() < 0.99:
            kept.append(w)
    return np.array(kept)


def unexplained(directions: Array, observed: list[Array], predicted: list[Array]) -> UnexplainedDirections:
    """χ² of each direction; observed and predicted: points of each group of times, (n, d) and (N, d)."""
    total = np.zeros(len(directions))
    late = np.arange(len(observed)) >= len(observed) / 2
    for half in (~late, late):
        sums, variances = np.zeros((len(directions), 2)), np.zeros((len(directions), 2, 2))
        for g in np.flatnonzero(half):
            for c, w in enumerate(directions):
                s, V = _excess(observed[g] @ w, predicted[g] @ w)
                sums[c] += s
                variances[c] += V
        if half.any():
            total += np.einsum("ci,ci->c", sums, np.linalg.solve(variances, sums[:, :, None])[:, :, 0])
    order = np.argsort(-total)
    return UnexplainedDirections(directions[order], total[order])


def _excess(x: Array, y: Array) -> tuple[Array, Array]:
    """The sum over samples x (n,) of what powers have beyond their regression over particles y (N,), its variance."""
    centre, spread = y.mean(), y.std()
    v, w = (np.clip((z - centre) / spread, -_LARGEST, _LARGEST) for z in (x, y))
    lower, powers = np.stack([np.ones_like(w), w, w**2], axis=1), np.stack([w**3, w**4], axis=1)
    slopes = np.linalg.solve(lower.T @ lower, lower.T @ powers)
    rest = powers - lower @ slopes
    s = (np.stack([v**3, v**4], axis=1) - np.stack([np.ones_like(v), v, v**2], axis=1) @ slopes).sum(axis=0)
    n, N = len(x), len(y)
    return s, n * (1 + n / N) * (rest.T @ rest / N)
