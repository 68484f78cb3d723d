"""Orderings in many dimensions: a quadratic form, and functions of single directions.

    l(u) = b·u + ½ uᵀAu + Σ_r f_r(w_r·u),        u = x − centre,

with f_r'' a linear spline whose values on its knots have mean 0, constant beyond the last ones, so that the drift ∇l
grows linearly far from the data. A polynomial of degree p in two coordinates is a sum of functions of p + 1 directions
in their plane: with enough directions nothing smooth is left out, with few the form can be learned in any dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordiff._parallel import cached_property
from ordiff._validation import Array

# Knots of a function of one direction, and the share of the samples beyond the last ones.
KNOTS, _BEYOND = 9, 0.005


@dataclass(frozen=True, eq=False)
class RidgeBasis:
    """The functions that an ordering is a sum of; parameters are ordered as linear, squares, products, ridges."""

    centre: Array  # (d,)
    directions: Array  # (R, d) unit vectors
    knots: Array  # (R, K) evenly spaced

    @classmethod
    def of(cls, centre: Array, directions: Array, u: Array) -> RidgeBasis:
        """With knots over the range of the samples u (m, d) along each direction."""
        along = u @ directions.T
        low, high = np.quantile(along, [_BEYOND, 1 - _BEYOND], axis=0) if len(directions) else np.empty((2, 0))
        return cls(centre, directions, np.linspace(low, high, KNOTS, axis=1).reshape(len(directions), KNOTS))

    @property
    def dimension(self) -> int:
        return self.centre.size

    @property
    def n_ridges(self) -> int:
        return len(self.directions)

    @property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns of the products u_j u_k, j < k."""
        j, k = np.triu_indices(self.dimension, 1)
        return j.astype(np.intp), k.astype(np.intp)

    @property
    def first_ridge(self) -> int:
        d = self.dimension
        return 2 * d + d * (d - 1) // 2

    @property
    def size(self) -> int:
        """The number of functions."""
        return self.first_ridge + self.n_ridges * (KNOTS - 1)

    def ridge(self, r: int) -> slice:
        """The coefficients of one direction."""
        first = self.first_ridge + r * (KNOTS - 1)
        return slice(first, first + KNOTS - 1)

    def transform(self, X: Array) -> Array:
        return np.asarray(X - self.centre)

    @cached_property
    def contrasts(self) -> Array:
        """(K + 1, K − 1): from coefficients of f'' to those of 1 and the ramps (v − knot)_+, with differences of
        neighbouring values as coefficients, in units of the knots' distance."""
        K = KNOTS
        values = np.tril(np.ones((K, K - 1)), -1)  # differences to values
        values -= values.mean(axis=0)
        slopes = np.diff(values, axis=0)  # (K − 1, K − 1)
        ramps = np.zeros((K + 1, K - 1))
        ramps[0] = values[0]
        ramps[1:K] = slopes
        ramps[2 : K + 1] -= slopes
        return ramps

    def ridge_functions(self, r: int, u: Array, order: int) -> Array:
        """The functions of one direction or their derivatives of this order (0, 1, 2) at u (N, d): (N, K − 1)."""
        v, knots = u @ self.directions[r], self.knots[r]
        width = knots[1] - knots[0]
        t = np.maximum(v[:, None] - knots, 0.0)
        ramps = np.empty((len(v), KNOTS + 1))
        ramps[:, 0] = (v**2 / 2, v, np.ones_like(v))[order]
        ramps[:, 1:] = t
        for power in range(order, 2):  # t³/6, t²/2 or t
            ramps[:, 1:] *= t / (3 - power)
        ramps[:, 1:] /= width
        return np.asarray(ramps @ self.contrasts)

    def values(self, u: Array) -> Array:
        """All functions at u (N, d): (N, p)."""
        j, k = self.pairs
        parts = [u, 0.5 * u**2, u[:, j] * u[:, k], *(self.ridge_functions(r, u, 0) for r in range(self.n_ridges))]
        return np.concatenate(parts, axis=1)

    def gradients(self, u: Array) -> Array:
        """Of all functions: (N, d, p)."""
        d, (j, k) = self.dimension, self.pairs
        out, diagonal, pairs = np.zeros((len(u), d, self.size)), np.arange(d), np.arange(j.size)
        out[:, diagonal, diagonal] = 1.0
        out[:, diagonal, d + diagonal] = u
        out[:, j, 2 * d + pairs] = u[:, k]
        out[:, k, 2 * d + pairs] = u[:, j]
        for r, w in enumerate(self.directions):
            out[:, :, self.ridge(r)] = w[:, None] * self.ridge_functions(r, u, 1)[:, None, :]
        return out

    def penalised(self) -> list[slice]:
        """The groups of coefficients that are drawn to 0, each by a strength of its own: products; each direction."""
        d = self.dimension
        return [slice(2 * d, self.first_ridge), *(self.ridge(r) for r in range(self.n_ridges))]


@dataclass(frozen=True, eq=False)
class RidgeOrdering:
    """l = Σ_k a_k φ_k, of functions of a `RidgeBasis`."""

    basis: RidgeBasis
    coefficients: Array  # (p,)

    @cached_property
    def form(self) -> Array:
        """A (d, d)."""
        basis, d = self.basis, self.basis.dimension
        A = np.zeros((d, d))
        A[basis.pairs] = self.coefficients[2 * d : basis.first_ridge]
        return A + A.T + np.diag(self.coefficients[d : 2 * d])

    def gradient(self, u: Array) -> Array:
        """∇l at u (N, d), in these coordinates: (N, d)."""
        out = self.coefficients[: u.shape[1]] + u @ self.form
        for r, w in enumerate(self.basis.directions):
            out += self._spline(r, u @ w, 1)[:, None] * w
        return np.asarray(out)

    def hessian(self, u: Array) -> Array:
        """(N, d, d)."""
        out = np.broadcast_to(self.form, (len(u), *self.form.shape)).copy()
        for r, w in enumerate(self.basis.directions):
            out += self._spline(r, u @ w, 2)[:, None, None] * np.outer(w, w)
        return out

    @cached_property
    def _tables(self) -> list[tuple[Array, Array, Array]]:
        """Of each direction, left of, between and beyond the knots: f', f'' and f''' where an interval begins."""
        found = []
        for r in range(self.basis.n_ridges):
            knots, basis = self.basis.knots[r], self.basis
            w = basis.directions[r]
            a = self.coefficients[basis.ridge(r)]
            at = np.concatenate([knots[:1], knots])[:, None] * w  # w·w = 1
            first, second = (basis.ridge_functions(r, at, order) @ a for order in (1, 2))
            third = np.zeros(KNOTS + 1)
            third[1:-1] = np.diff(second[1:]) / (knots[1] - knots[0])
            found.append((first, second, third))
        return found

    def _spline(self, r: int, v: Array, order: int) -> Array:
        """f_r' (order 1) or f_r'' (order 2) at v (N,)."""
        knots, (first, second, third) = self.basis.knots[r], self._tables[r]
        at = np.clip(np.floor((v - knots[0]) / (knots[1] - knots[0])).astype(int), -1, KNOTS - 1)
        t, at = v - knots[np.maximum(at, 0)], at + 1
        if order == 1:
            return np.asarray(first[at] + t * (second[at] + 0.5 * t * third[at]))
        return np.asarray(second[at] + t * third[at])
