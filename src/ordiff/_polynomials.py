"""Local polynomials: a function at a point by weighted least squares through the points around it.

On a manifold the polynomial is in tangent coordinates, the leading principal directions of the offsets.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from ordiff._validation import Array
from ordiff.graph.search import query_tree

# Up to this dimension local polynomials are quadratic, beyond it linear.
_MAX_QUADRATIC = 3
# The largest Σ_j |B_ij|: beyond it a local polynomial extrapolates, and one of lower degree is taken.
_MAX_WEIGHT = 3.0
# Numbers gathered at a time: bounds the temporaries.
_BATCH_NUMBERS = 1_000_000
# Neighbours for the local surface that a point is projected on.
_PROJECTION_NEIGHBORS = 30


def kd_tree(points: Array) -> Any:
    from scipy.spatial import cKDTree  # here: `import ordiff` does without

    return cKDTree(points)


def batches(count: int, numbers: int) -> list[slice]:
    """Ranges of ``count`` rows, each of which takes so many numbers."""
    step = max(1, _BATCH_NUMBERS // numbers)
    return [slice(first, first + step) for first in range(0, count, step)]


def degree_for(d: int) -> int:
    return 2 if d <= _MAX_QUADRATIC else 1


def n_terms(d: int, degree: int) -> int:
    """The number of monomials."""
    return 1 + d if degree == 1 else (d + 1) * (d + 2) // 2


def _monomials(u: Array, degree: int) -> Array:
    """1, u_a, u_a u_b: (…, terms)."""
    d = u.shape[-1]
    terms = [np.ones_like(u[..., 0]), *(u[..., a] for a in range(d))]
    if degree == 2:
        terms += [u[..., a] * u[..., b] for a, b in combinations_with_replacement(range(d), 2)]
    return np.stack(terms, axis=-1)


def frames_of(offsets: Array, d: int) -> Array | None:
    """The leading d principal directions of each set of offsets (M, k, n), (M, n, d); None when they span all."""
    if offsets.shape[2] == d:
        return None
    centred = offsets - offsets.mean(axis=1, keepdims=True)
    if offsets.shape[2] <= offsets.shape[1]:
        return np.linalg.eigh(centred.transpose(0, 2, 1) @ centred)[1][:, :, : -d - 1 : -1]
    U = np.linalg.eigh(centred @ centred.transpose(0, 2, 1))[1][:, :, : -d - 1 : -1]
    V = centred.transpose(0, 2, 1) @ U
    return V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), np.finfo(float).tiny)


def local_polynomial(u: Array, distances: Array, degree: int) -> tuple[Array, Array]:
    """Weights (M, k) of the value at 0, and (M, k, d) of the gradient, of weighted least squares in u (M, k, d)."""
    scale = np.maximum(distances[:, -1:], np.finfo(float).tiny)
    weight = np.exp(-2.0 * (distances / scale) ** 2)
    value, slope = _least_squares(u / scale[:, :, None], weight, degree)
    large = np.abs(value).sum(axis=1) > _MAX_WEIGHT
    if large.any():
        if degree > 1:
            value[large], slope[large] = _least_squares((u / scale[:, :, None])[large], weight[large], degree - 1)
            large = np.abs(value).sum(axis=1) > _MAX_WEIGHT
        value[large] = weight[large] / weight[large].sum(axis=1, keepdims=True)
    return value, slope / scale[:, :, None]


def _least_squares(u: Array, weight: Array, degree: int) -> tuple[Array, Array]:
    """Weights of the value (M, k) and of the gradient (M, k, d) at 0 of a weighted polynomial fit in u (M, k, d)."""
    d, coefficients = u.shape[2], coefficients_of(u, weight, degree)
    return coefficients[:, 0], coefficients[:, 1 : d + 1].transpose(0, 2, 1)


def coefficients_of(u: Array, weight: Array, degree: int) -> Array:
    """Weights (M, terms, k) of the coefficients of a weighted polynomial fit in u (M, k, d)."""
    Phi = _monomials(u, degree)
    weighted = Phi * weight[:, :, None]
    A = Phi.transpose(0, 2, 1) @ weighted
    ridge = 1e-9 * np.trace(A, axis1=1, axis2=2)[:, None, None] * np.eye(A.shape[1])
    ridge[:, 0, 0] = 0.0  # constants are reproduced exactly
    return np.linalg.solve(A + ridge, weighted.transpose(0, 2, 1))


def projected(X: Array, Y: Array, d: int) -> Array:
    """The points Y projected on the data: on a local polynomial surface through the nearest samples X."""
    tree, k, out = kd_tree(X), min(_PROJECTION_NEIGHBORS, len(X)), np.empty_like(Y)
    degree = 2 if d <= 2 else 1
    for rows in batches(len(Y), k * X.shape[1]):
        distances, near = query_tree(tree, Y[rows], k)
        offsets = X[near] - Y[rows, None, :]
        weight = np.exp(-2.0 * (distances / distances[:, -1:]) ** 2)
        frames = frames_of(offsets, d)
        assert frames is not None
        scale = distances[:, -1][:, None, None]
        value, _ = _least_squares((offsets @ frames) / scale, weight, degree)
        out[rows] = Y[rows] + np.einsum("mk,mkn->mn", value, offsets)
    return out
