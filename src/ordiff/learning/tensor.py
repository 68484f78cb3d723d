"""Noise with a direction: diffusion ½ρ²A with a constant A = e^S, S symmetric of trace 0, so that det A = 1.

The kernel's metric is A⁻¹ (FORMULAS section 3, the direct uncoupled kernel),

    log K = −zᵀA⁻¹z/(2ερ²) + …  =  −|z|²/(2ερ²) + (1/ρ²) Σ_{a≤b} s_ab z_a z_b + …,     z = x_j − x_i,

so that the products z_a z_b are local orderings with the slopes s_ab = −(A⁻¹ − I)_ab/(2ε), twice that for a ≠ b, the
same at all states. A chain with the ordering l and the rotation w then has the drift A(∇l + w). A fit is made in
coordinates in which A is about I.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
from scipy.linalg import expm, expm_frechet

from ordiff._validation import Array
from ordiff.graph import NeighborGraph


def products(graph: NeighborGraph) -> tuple[Array, ...]:
    """z_a z_b on the edges, (E,) for each pair a ≤ b of coordinates."""
    assert graph.X is not None
    z = graph.X[graph.indices] - graph.X[graph.sources()]
    return tuple(z[:, a] * z[:, b] for a, b in pairs_of(z.shape[1]))


def metric_slopes(entries: Array, eps: float) -> tuple[Array, Array]:
    """The slopes s_ab of the entries S_ab, a ≤ b, (P,), and their derivative by them, (P, P)."""
    S, pairs = symmetric(entries), pairs_of(_dimension(entries.size))
    often = np.array([1.0 if a == b else 2.0 for a, b in pairs])

    def upper(M: Array) -> Array:
        return np.array([M[a, b] for a, b in pairs])

    derivative = np.stack([upper(expm_frechet(-S, -symmetric(unit))[1]) for unit in np.eye(len(pairs))], axis=1)
    return -often * upper(expm(-S) - np.eye(len(S))) / (2 * eps), -often[:, None] * derivative / (2 * eps)


def metric_of(slopes: Array, eps: float) -> Array:
    """A⁻¹ (d, d) of the slopes s_ab, (P,)."""
    pairs = pairs_of(_dimension(slopes.size))
    often = np.array([1.0 if a == b else 2.0 for a, b in pairs])
    return np.eye(_dimension(slopes.size)) - 2 * eps * symmetric(slopes / often)


def symmetric(entries: Array) -> Array:
    """The matrix with these entries a ≤ b, (d, d)."""
    d = _dimension(entries.size)
    out = np.zeros((d, d))
    for value, (a, b) in zip(entries, pairs_of(d), strict=True):
        out[a, b] = out[b, a] = value
    return out


def pairs_of(d: int) -> list[tuple[int, int]]:
    return list(combinations_with_replacement(range(d), 2))


def _dimension(n_pairs: int) -> int:
    """d of d(d + 1)/2 pairs."""
    return round((np.sqrt(8 * n_pairs + 1) - 1) / 2)
