"""Strengths of smoothness by empirical Bayes.

With H = m(F + 2λA) the posterior precision of the coefficients, Fellner–Schall sets each strength to

    λ ← (rank A − 2λm tr(H⁻¹A)) / (2m aᵀA a)

A rotation, and the noise but for its level, whose priors are proper, have two penalties each, and take the strengths of
the largest evidence at once: see `best_strengths`. So a rotation can vanish, and the noise become constant.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ordiff._validation import Array
from ordiff.learning.parameters import ParameterBlock, Parameters

# Up to this many coefficients the penalty matrix is dense.
_MOST_DENSE = 6_000
# A strength changes by at most this factor in one update; a change of all by less than the second is none.
_LARGEST_CHANGE, _SMALLEST_CHANGE = 30.0, 0.05
# Strengths of a rotation's roughness and of its |Dw|²: to begin with, and the least and the most.
FIRST_ROTATION = np.array([1e-8, 1e-5])
_LEAST_ROTATION, _MOST_ROTATION = np.array([1e-13, 1e-9]), np.array([1e-3, 1e-1])
# The same of the noise's roughness and its |D log ρ|².
_LEAST_NOISE, _MOST_NOISE = np.array([1e-13, 1e-6]), np.array([1e-3, 1e2])


def penalty_matrix(parameters: Parameters, a: Array) -> Array:
    """2λA over all coefficients, (K, K), or (K,) when it is diagonal or too large.

    For a roughness relative to the noise it is 2λJᵀJ, J the derivative of its terms by all coefficients, at a.
    """
    p = parameters
    dense = p.size <= _MOST_DENSE and any(
        b.relative is not None or b.lower or (b.penalty is not None and b.penalty.ndim == 2) for b in p.blocks
    )
    out = np.zeros((p.size, p.size)) if dense else np.zeros(p.size)
    for block, part in zip(p.blocks, p.slices, strict=True):
        A = block.penalty
        if block.relative is not None:
            out += _relative_matrix(p, block, part, a)
        for lower, strength in block.lower:
            out[part, part] += 2 * strength * lower
        if A is None:
            continue
        if dense:
            full = np.diag(A) if A.ndim == 1 else (A.toarray() if hasattr(A, "toarray") else A)
            out[part, part] += 2 * block.strength * full
        else:
            out[part] = 2 * block.strength * (A if A.ndim == 1 else A.diagonal())
    return out


def _relative_matrix(p: Parameters, block: ParameterBlock, part: slice, a: Array) -> Array:
    """2λJᵀJ over all coefficients, (K, K)."""
    assert block.relative is not None
    found, noise = p.part("noise"), p.noise(a)
    J, columns = np.zeros((len(block.relative.rows), p.size)), None
    if found is not None:
        noise_block, noise_part = found
        columns = noise_block.directions(noise_block.field(a[noise_part])[1])
    J[:, part], by_noise = block.relative.jacobian(a[part], noise, columns)
    if found is not None:
        J[:, found[1]] = by_noise
    return 2 * block.strength * (J.T @ J)


def updated_strengths(
    parameters: Parameters, a: Array, covariance: Array | None, n_samples: float, auto: tuple[bool, ...]
) -> Parameters:
    """The parameters after one Fellner–Schall update of the ``auto`` blocks. Where all strengths would change by less
    than 5% they stay, since the optimum that was found is theirs: then the same parameters come back."""
    assert covariance is not None
    p, m, changed, blocks = parameters, n_samples, False, []
    for block, part, free in zip(p.blocks, p.slices, auto, strict=True):
        if free and block.lower:
            new = _evident_strengths(block, a[part], covariance[part, part], m)
            old = np.array([block.strength, *(strength for _, strength in block.lower)])
            changed |= bool((np.abs(np.log(new / old)) > 3 * _SMALLEST_CHANGE).any())
            block = block.with_strengths(new)
        elif free and (block.penalty is not None or block.relative is not None):
            rank, roughness, trace = _roughness_of(block, a[part], p.noise(a), covariance[part, part])
            used = rank - 2 * block.strength * m * trace
            wanted = max(used, 0.1) / (2 * m * max(roughness, 1e-300))
            wanted = float(np.clip(wanted, block.strength / _LARGEST_CHANGE, block.strength * _LARGEST_CHANGE))
            changed |= abs(np.log(wanted / block.strength)) > _SMALLEST_CHANGE
            block = replace(block, strength=wanted)
        blocks.append(block)
    return replace(p, blocks=tuple(blocks)) if changed else p


def _roughness_of(block: ParameterBlock, a: Array, noise: Array, C: Array) -> tuple[float, float, float]:
    """The rank of A, aᵀA a and tr(C A) of one block."""
    if block.relative is None:
        A = block.penalty
        return float(np.count_nonzero(A)), block.roughness(a)[0], float(np.diag(C) @ A)
    J = block.relative.relative_rows(noise)
    y = J @ a
    return float(a.size - block.relative.n_free), float(y @ y), float(np.einsum("rk,kl,rl->", J, C, J, optimize=True))


def _evident_strengths(block: ParameterBlock, a: Array, C: Array, m: float) -> Array:
    """The strengths of the largest evidence, at an optimum a with the posterior covariance C."""
    old = np.array([block.strength, *(strength for _, strength in block.lower)])
    first = 1 if block.positive else 0  # the level of the noise has no prior
    forms = [A[first:, first:] for A in block.forms]
    precision = np.linalg.inv(C[first:, first:])
    S = precision - 2 * m * sum(s * A for s, A in zip(old, forms, strict=True))
    least, most = strength_bounds(block)
    new, _ = best_strengths(forms, precision @ a[first:], 0.5 * (S + S.T), m, old, least, most)
    return np.maximum(new, old / _LARGEST_CHANGE)


def strength_bounds(block: ParameterBlock) -> tuple[Array, Array]:
    """The least and the most strengths of a block with two penalties."""
    if block.positive:
        return _LEAST_NOISE, _MOST_NOISE
    return _LEAST_ROTATION, np.minimum(_MOST_ROTATION, [np.inf, block.most_lower])


def best_strengths(
    forms: list[Array], h: Array, S: Array, m: float, first: Array, least: Array, most: Array
) -> tuple[Array, float]:
    """The strengths λ that maximise the evidence of coefficients with the log likelihood hᵀb − ½bᵀS b,

        ½ hᵀ(S + P)⁻¹h − ½ log det(S + P) + ½ log det P,     P = 2m Σ λ_j A_j,

    and that evidence against b = 0, in nats. The search begins with the strengths ``first``, and with the most.
    """
    from scipy.optimize import minimize

    low, high = np.log(least), np.log(most)

    def loss(logs: Array) -> float:
        P = 2 * m * sum(np.exp(x) * A for x, A in zip(np.clip(logs, low, high), forms, strict=True))
        try:
            factor = cho_factor(S + P)
        except np.linalg.LinAlgError:
            return 1e9
        gain = 0.5 * float(h @ cho_solve(factor, h))
        return float(np.log(np.diag(factor[0])).sum() - 0.5 * np.linalg.slogdet(P)[1] - gain)

    found = []
    for start in (np.log(first), high):
        simplex = start + (3 if start is not high else -3) * np.eye(3, 2, k=-1)
        options = {"maxiter": 200, "xatol": 0.1, "fatol": 0.05, "initial_simplex": simplex}
        found.append(minimize(loss, start, method="Nelder-Mead", options=options))
    best = min(found, key=lambda one: one.fun)
    return np.exp(np.clip(best.x, low, high)), -float(best.fun)
