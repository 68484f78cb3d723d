"""Smooth functions on flat states, natural polyharmonic splines, and their roughness.

With knots c_k and the order s = 4, the functions

    f(x) = Σ_k w_k φ(|x − c_k|) + polynomial of degree 3,     φ(r) = r^{2s−d}, times log r for even d

whose weights w are orthogonal to the polynomials minimise ∫|D⁴f|² among all with the same values at the knots (Duchon).
At the edge of the data they go on as polynomials, so that a potential there costs no more than elsewhere. Roughness is
measured at the knots: |D⁴f|² + π²|D³f|², lengths in units of the width of a uniform distribution as wide as the states;
quadratic functions are free of it.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement
from math import factorial, pi, prod

import numpy as np
from scipy.linalg import eigh, qr, solve_triangular

from ordiff._validation import Array
from ordiff.states import States, thinned

# The order of the splines, and the most knots.
_ORDER, _KNOTS = 4, 400
# The highest dimension in which φ has the derivatives that roughness needs.
MOST_DIMENSIONS = 3


class SplineBasis:
    """Functions that are orthonormal under the states' volumes, the first constant, then from smooth to rough.

    functions: (N, K). rows: (R, K), weighted derivatives at the states ``at`` (R,): Σ_r (rows a)_r² is the mean
    roughness of functions @ a, of which the first ``n_free`` functions have none. lower: (K, K) each, the quadratic
    forms of the mean |Df|² and |D²f|². width: the unit of length of all these. `gradients` has their exact
    derivatives at the states.
    """

    def __init__(self, states: States, n_functions: int) -> None:
        X, v, d = states.points, states.volumes, states.dimension
        centre = np.average(X, axis=0, weights=v)
        width = float(np.sqrt(12 * np.average((X - centre) ** 2, axis=0, weights=v).mean()))
        z = (X - centre) / width
        knots = thinned(states, _KNOTS)
        weights = _spline_weights(z[knots])
        share = np.sqrt(v[knots] / v[knots].sum())[:, None, None]
        first, second, third, fourth = (
            share * _derivatives(z[knots], z[knots], weights, order) for order in (1, 2, 3, 4)
        )
        rough = np.concatenate([fourth, pi * third], axis=1)
        F = np.hstack([_polynomials(z), _radial(z, z[knots]) @ weights])
        R = qr(np.sqrt(v / v.sum())[:, None] * F, mode="r", check_finite=False)[0][: F.shape[1]]

        def orthonormal(M: Array) -> Array:
            return np.asarray(solve_triangular(R, M.reshape(-1, F.shape[1]).T, trans=1).T[:, 1:])

        rows = orthonormal(rough)
        smoothest = eigh(rows.T @ rows)[1][:, : n_functions - 1]
        self.n_free = (d + 1) * (d + 2) // 2
        self.functions = np.hstack([np.ones((len(z), 1)), orthonormal(F) @ smoothest])
        self.rows = _after_a_constant(rows @ smoothest)
        self.rows[:, : self.n_free] = 0.0
        self.at = np.repeat(knots, rough.shape[1])
        self.lower = tuple(_gram(_after_a_constant(orthonormal(low) @ smoothest)) for low in (first, second))
        self._second = orthonormal(second) @ smoothest
        self._z, self._knots, self._weights, self.width = z, z[knots], weights, width
        self._combination = solve_triangular(R, np.vstack([np.zeros((1, smoothest.shape[1])), smoothest]))

    def hessians(self) -> Array:
        """∂²φ_k/∂x_a∂x_b at the knots, times the roots of their shares of the volume, (d, d, knots, K)."""
        d = self._z.shape[1]
        found = _after_a_constant(self._second).reshape(len(self._knots), -1, self._second.shape[1] + 1)
        out = np.empty((d, d, len(self._knots), found.shape[2]))
        for place, (a, b) in enumerate(_multi_indices(d, 2)):
            out[a, b] = out[b, a] = found[:, place] / (1.0 if a == b else np.sqrt(2))
        return out

    def gradients(self) -> Array:
        """∂φ_k/∂x_c at the states, (d, N, K)."""
        found = _derivatives(self._z, self._knots, self._weights, 1) @ self._combination / self.width
        return np.stack([_after_a_constant(found[:, c]) for c in range(found.shape[1])])


def _after_a_constant(rows: Array) -> Array:
    """The rows with a first column of 0 for the constant."""
    return np.hstack([np.zeros((len(rows), 1)), rows])


def _gram(rows: Array) -> Array:
    return rows.T @ rows


def _multi_indices(d: int, degree: int) -> list[tuple[int, ...]]:
    """The coordinates of every partial derivative, or monomial, of this degree."""
    return list(combinations_with_replacement(range(d), degree))


def _monomials(d: int) -> list[tuple[int, ...]]:
    return [a for degree in range(_ORDER) for a in _multi_indices(d, degree)]


def _product(z: Array, a: tuple[int, ...]) -> Array:
    out = np.ones(z.shape[:-1])
    for c in a:
        out *= z[..., c]
    return out


def _polynomials(z: Array) -> Array:
    """All monomials up to degree 3, (N, terms), the constant first."""
    return np.stack([_product(z, a) for a in _monomials(z.shape[1])], axis=1)


def _spline_weights(knots: Array) -> Array:
    """Weights of the radial functions orthogonal to polynomials, (knots, functions), those of smooth ones first."""
    T = _polynomials(knots)
    Q = qr(T, check_finite=False)[0][:, T.shape[1] :]
    values, vectors = eigh(Q.T @ _radial(knots, knots) @ Q)
    order = np.argsort(-np.abs(values))
    order = order[np.abs(values[order]) > 1e-12 * np.abs(values).max()]
    return Q @ (vectors[:, order] / np.abs(values[order]))


def _radial(z: Array, knots: Array) -> Array:
    """φ of the distances, (N, knots)."""
    return _by_square(((z[:, None, :] - knots) ** 2).sum(axis=2), z.shape[1], 0)


def _by_square(s: Array, d: int, order: int) -> Array:
    """A derivative of φ by the squared distance s: φ = s^{4 − d/2} for odd d, ½ s³ log s for d = 2."""
    s = np.maximum(s, 1e-30)
    if d == 2:
        logarithm, constant = ((0.5, 0.0), (1.5, 0.5), (3.0, 2.5), (3.0, 5.5), (0.0, 3.0))[order]
        return s ** (3 - order) * (logarithm * np.log(s) + constant)
    p = _ORDER - 0.5 * d
    return prod(p - j for j in range(order)) * s ** (p - order)


def _derivatives(at: Array, knots: Array, weights: Array, order: int) -> Array:
    """All partial derivatives of an order from 1 to 4 of polynomials and splines at points, each times the root of how
    often it occurs in |D^order f|², (points, rows, functions).

    With φ = g(s), s = |z|²: ∂_a φ = Σ_p 2^{n−p} g^{(n−p)} Π z, over the ways to pick p disjoint pairs of equal
    coordinates of the n in a, the product over those that are left.
    """
    d = knots.shape[1]
    z = at[:, None, :] - knots
    s = (z**2).sum(axis=2)
    g = [2**n * _by_square(s, d, n) for n in range(order + 1)]
    out = []
    for a in _multi_indices(d, order):
        radial = np.zeros_like(s)
        for left, times in Counter(_without_pairs(a)).items():
            radial += times * g[(order + len(left)) // 2] * _product(z, left)
        often = factorial(order) / prod(factorial(a.count(c)) for c in range(d))
        polynomial = np.stack([_monomial_derivative(at, b, a) for b in _monomials(d)], axis=1)
        out.append(np.sqrt(often) * np.hstack([polynomial, radial @ weights]))
    return np.stack(out, axis=1)


def _without_pairs(a: tuple[int, ...]) -> list[tuple[int, ...]]:
    """What is left of the coordinates after taking out disjoint pairs of equal ones, in every way."""
    if len(a) < 2:
        return [a]
    first, rest = a[0], a[1:]
    out = [(first, *left) for left in _without_pairs(rest)]
    for k, other in enumerate(rest):
        if other == first:
            out += _without_pairs(rest[:k] + rest[k + 1 :])
    return out


def _monomial_derivative(z: Array, b: tuple[int, ...], a: tuple[int, ...]) -> Array:
    """∂_a of the monomial b, (N,)."""
    out = np.ones(len(z))
    for c in range(z.shape[1]):
        power, times = b.count(c), a.count(c)
        if times > power:
            return np.zeros(len(z))
        out = out * prod(range(power - times + 1, power + 1)) * z[:, c] ** (power - times)
    return out
