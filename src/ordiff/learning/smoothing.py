"""Strengths of smoothness by empirical Bayes.

With H = m(F + 2λA) the posterior precision of the coefficients, Fellner–Schall sets each strength to

    λ ← (rank A − 2λm tr(H⁻¹A)) / (2m aᵀA a)

A strength relative to the noise is set several times in the quadratic approximation of one optimum.
With several penalties on the same coefficients, S = Σ λ_j A_j, the rank is λ_j tr(S⁺A_j) for each of them.
A rotation, whose prior is proper, takes the strengths of the largest evidence at once: see `best_strengths`.
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
# Updates of an ordering's strength at one optimum, and what the strengths of lower derivatives stay below.
_REPEATS, _MOST_LOWER = 2, 1e4
# Strengths of a rotation's roughness and of its |Dw|²: to begin with, and the least and the most.
FIRST_ROTATION = np.array([1e-8, 1e-5])
_LEAST_ROTATION, _MOST_ROTATION = np.array([1e-13, 1e-9]), np.array([1e-3, 1e-1])


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
    """The parameters with the strengths of the ``auto`` blocks updated. Where all would change by less than 5% (15% for
    a rotation) they stay, since the optimum that was found is theirs: then the same parameters come back."""
    assert covariance is not None
    p, m, changed, blocks = parameters, n_samples, False, []
    for block, part, free in zip(p.blocks, p.slices, auto, strict=True):
        if free and (block.penalty is not None or block.relative is not None):
            old, x, C = block.strengths, a[part], covariance[part, part]
            least = _SMALLEST_CHANGE
            if block.target == "rotation":
                new, least = _rotation_strengths(block, x, C, m), 3 * _SMALLEST_CHANGE
            elif block.relative is not None:
                new = _repeated_update(block, x, p.noise(a), C, m)
            else:
                new = _one_update(block, x, p.noise(a), C, m, old)
            changed |= bool((np.abs(np.log(new / old)) > least).any())
            block = block.with_strengths(new)
        blocks.append(block)
    return replace(p, blocks=tuple(blocks)) if changed else p


def _one_update(block: ParameterBlock, a: Array, noise: Array, C: Array, m: float, old: Array) -> Array:
    """Fellner–Schall, for a block with the posterior mean a and covariance C; within a factor of the ``old``."""
    rank, roughness, trace = _roughness_of(block, a, noise, C)
    used = rank - 2 * block.strength * m * trace
    new = [max(used, 0.1) / (2 * m * max(roughness, 1e-300)), *_lower_strengths(block, a, C, m)]
    return np.clip(new, old / _LARGEST_CHANGE, old * _LARGEST_CHANGE)


def _repeated_update(block: ParameterBlock, a: Array, noise: Array, C: Array, m: float) -> Array:
    """Some updates with the likelihood's quadratic form at a, each with the mean and covariance that the one before
    leads to: one alone is often far from the strength of the largest evidence."""
    assert block.relative is not None
    J, old = block.relative.relative_rows(noise), block.strengths
    A = J.T @ J
    h, S = _quadratic(a, C, 2 * m * block.strength * A)
    values, vectors = np.linalg.eigh(S)  # below 0 where the noise, on which the roughness depends, is not known
    S = (vectors * np.maximum(values, 1e-9 * values[-1])) @ vectors.T
    for repeat in range(_REPEATS):
        if repeat > 0:
            C = np.asarray(np.linalg.inv(S + 2 * m * block.strength * A), dtype=np.float64)
            a = C @ h
        block = block.with_strengths(_one_update(block, a, noise, C, m, old))
    return block.strengths


def _quadratic(a: Array, C: Array, prior: Array) -> tuple[Array, Array]:
    """h and S of the log likelihood hᵀb − ½bᵀS b whose posterior has the mean a and the covariance C."""
    precision = np.linalg.inv(C)
    S = precision - prior
    return precision @ a, 0.5 * (S + S.T)


def _roughness_of(block: ParameterBlock, a: Array, noise: Array, C: Array) -> tuple[float, float, float]:
    """The rank of A, aᵀA a and tr(C A) of one block."""
    if block.relative is None:
        A = block.penalty
        rank = float(np.count_nonzero(A))
        if block.lower:
            rank = float(np.diag(_prior_inverse(block)) @ A) * block.strength
        return rank, block.roughness(a)[0], float(np.diag(C) @ A)
    J = block.relative.relative_rows(noise)
    y = J @ a
    return float(a.size - block.relative.n_free), float(y @ y), float(np.einsum("rk,kl,rl->", J, C, J, optimize=True))


def _rotation_strengths(block: ParameterBlock, a: Array, C: Array, m: float) -> Array:
    """The strengths of the largest evidence, at an optimum a with the posterior covariance C."""
    old = block.strengths
    h, S = _quadratic(a, C, 2 * m * sum(s * A for s, A in zip(old, block.forms, strict=True)))
    new, _ = best_strengths(block, h, S, m, old)
    return np.maximum(new, old / _LARGEST_CHANGE)


def best_strengths(block: ParameterBlock, h: Array, S: Array, m: float, first: Array) -> tuple[Array, float]:
    """The strengths λ that maximise the evidence of coefficients with the log likelihood hᵀb − ½bᵀS b,

        ½ hᵀ(S + P)⁻¹h − ½ log det(S + P) + ½ log det P,     P = 2m Σ λ_j A_j,

    and that evidence against b = 0, in nats. The search begins with the strengths ``first``.
    """
    from scipy.optimize import minimize

    least, most = np.log(_LEAST_ROTATION), np.log(np.minimum(_MOST_ROTATION, [np.inf, block.most_lower]))

    def loss(logs: Array) -> float:
        P = 2 * m * sum(np.exp(x) * A for x, A in zip(np.clip(logs, least, most), block.forms, strict=True))
        try:
            factor = cho_factor(S + P)
        except np.linalg.LinAlgError:
            return 1e9
        gain = 0.5 * float(h @ cho_solve(factor, h))
        return float(np.log(np.diag(factor[0])).sum() - 0.5 * np.linalg.slogdet(P)[1] - gain)

    options = {"maxiter": 200, "xatol": 0.1, "fatol": 0.05, "initial_simplex": np.log(first) + 3 * np.eye(3, 2, k=-1)}
    best = minimize(loss, np.log(first), method="Nelder-Mead", options=options)
    return np.exp(np.clip(best.x, least, most)), -float(best.fun)


def _prior_inverse(block: ParameterBlock) -> Array:
    """The pseudo-inverse of the prior precision λA + Σ λ_j A_j, (K, K)."""
    precision = np.diag(block.strength * block.penalty) + sum(s * A for A, s in block.lower)
    return np.asarray(np.linalg.pinv(precision, hermitian=True, rcond=1e-14), dtype=np.float64)


def _lower_strengths(block: ParameterBlock, a: Array, C: Array, m: float) -> list[float]:
    """One Fellner–Schall update of the strengths of several penalties on the same coefficients."""
    if not block.lower:
        return []
    inverse, out = _prior_inverse(block), []
    for A, strength in block.lower:
        used = strength * float(np.sum(inverse * A)) - 2 * strength * m * float(np.sum(C * A))
        out.append(min(max(used, 1e-2) / (2 * m * max(float(a @ A @ a), 1e-300)), _MOST_LOWER))
    return out
