"""Strengths of smoothness by empirical Bayes.

With H = m(F + 2λA) the posterior precision of the coefficients, Fellner–Schall sets each strength to

    λ ← (rank A − 2λm tr(H⁻¹A)) / (2m aᵀA a)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ordiff._validation import Array
from ordiff.learning.parameters import Parameters

# Up to this many coefficients the penalty matrix is dense.
_MOST_DENSE = 6_000
# A strength changes by at most this factor in one update; a change of all by less than the second is none.
_LARGEST_CHANGE, _SMALLEST_CHANGE = 30.0, 0.05


def penalty_matrix(parameters: Parameters) -> Array:
    """2λA over all coefficients, (K, K), or (K,) when it is diagonal or too large."""
    p = parameters
    dense = p.size <= _MOST_DENSE and any(b.penalty is not None and b.penalty.ndim == 2 for b in p.blocks)
    out = np.zeros((p.size, p.size)) if dense else np.zeros(p.size)
    for block, part in zip(p.blocks, p.slices, strict=True):
        A = block.penalty
        if A is None:
            continue
        if dense:
            full = np.diag(A) if A.ndim == 1 else (A.toarray() if hasattr(A, "toarray") else A)
            out[part, part] = 2 * block.strength * full
        else:
            out[part] = 2 * block.strength * (A if A.ndim == 1 else A.diagonal())
    return out


def updated_strengths(
    parameters: Parameters, a: Array, covariance: Array | None, n_samples: float, auto: tuple[bool, ...]
) -> Parameters:
    """The parameters after one Fellner–Schall update of the ``auto`` blocks. Where all strengths would change by less
    than 5% they stay, since the optimum that was found is theirs: then the same parameters come back."""
    assert covariance is not None
    p, m, changed, blocks = parameters, n_samples, False, []
    for block, part, free in zip(p.blocks, p.slices, auto, strict=True):
        if free and block.penalty is not None:
            A = block.penalty
            used = np.count_nonzero(A) - 2 * block.strength * m * float(np.diag(covariance)[part] @ A)
            wanted = max(used, 0.1) / (2 * m * max(block.roughness(a[part])[0], 1e-300))
            wanted = float(np.clip(wanted, block.strength / _LARGEST_CHANGE, block.strength * _LARGEST_CHANGE))
            changed |= abs(np.log(wanted / block.strength)) > _SMALLEST_CHANGE
            block = replace(block, strength=wanted)
        blocks.append(block)
    return replace(p, blocks=tuple(blocks)) if changed else p
