"""The metric |z|²_i of the kernel: Euclidean, or the inverse of an anisotropic diffusion tensor.

A tensor A_i on the tangent space is kept by its principal directions in ambient coordinates, e_a, and eigenvalues
λ_a > 0. Its lift to ambient coordinates is block diagonal, tangent against normal:

    A_amb = Σ_a λ_a e_a e_aᵀ        B = Σ_a λ_a⁻¹ e_a e_aᵀ + b_⊥ (I − Π),     b_⊥ = normal_weight / λ_max > 0

With J the tangent basis (n × d), g = JᵀJ, this is A_amb = J A Jᵀ and B = J g⁻¹A⁻¹g⁻¹Jᵀ + b_⊥(I − Π). A weight of 0
would give far points that project nearby full weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordiff import _validation
from ordiff._validation import Array

# Eigenvalues below this share of the largest are the null space of an ambient tensor: the normal directions.
_NULL = 1e-10


@dataclass(frozen=True, eq=False)
class Metric:
    """Principal ``directions`` (m, r, n), ``variances`` λ (m, r) with 0 for none, ``normal`` b_⊥ (m,)."""

    directions: Array
    variances: Array
    normal: Array

    @classmethod
    def make(cls, X: Array, A: ArrayLike, basis: ArrayLike | None, normal_weight: float) -> Metric:
        """From A (m, d, d) in a tangent basis (m, n, d), or from an ambient A (m, n, n) of one rank everywhere."""
        m, n = X.shape
        if basis is None:
            values, vectors = np.linalg.eigh(_validation.symmetric(A, m, n, "anisotropy"))
            values[np.abs(values) <= _NULL * np.abs(values).max(axis=1, keepdims=True)] = 0.0
            _check_definite(values, (values < 0).any(axis=1) | (values[:, -1] <= 0))
            rank = _common_rank(values)
            values, directions = values[:, n - rank :], vectors[:, :, n - rank :].transpose(0, 2, 1)
        else:
            Q, R = np.linalg.qr(_validation.frame(basis, X.shape, "basis"))
            tensor = R @ _validation.symmetric(A, m, R.shape[1], "anisotropy") @ R.transpose(0, 2, 1)
            values, vectors = np.linalg.eigh(0.5 * (tensor + tensor.transpose(0, 2, 1)))
            _check_definite(values, values[:, 0] <= 0)
            directions = (Q @ vectors).transpose(0, 2, 1)
        return cls(np.ascontiguousarray(directions), np.ascontiguousarray(values), normal_weight / values[:, -1])

    @property
    def smallest(self) -> Array:
        """λ_min, the smallest non-zero eigenvalue, (m,)."""
        return np.where(self.variances > 0, self.variances, np.inf).min(axis=1)

    def stiffness(self) -> Array:
        """λ_a⁻¹ − b_⊥ (m, r): what a principal direction adds to b_⊥|z|²; 0 where there is none."""
        inverse = np.divide(1.0, self.variances, out=np.zeros_like(self.variances), where=self.variances > 0)
        return np.where(self.variances > 0, inverse - self.normal[:, None], 0.0)

    def minus(self, amount: Array, normal_weight: float) -> Metric:
        """The metric of A − amount Π, with amount (m,) below λ_min."""
        variances = np.where(self.variances > 0, self.variances - amount[:, None], 0.0)
        return Metric(self.directions, variances, normal_weight / variances.max(axis=1))

    def tensor(self) -> Array:
        """A_amb, (m, n, n)."""
        return np.einsum("mai,ma,maj->mij", self.directions, self.variances, self.directions, optimize=True)

    def raised(self, V: Array, power: int) -> Array:
        """A^power applied to the tangent part of one vector a sample, (m, n): 1 raises its index, −1 lowers it."""
        along = np.einsum("mai,mi->ma", self.directions, V)
        factor = np.power(self.variances, power, out=np.zeros_like(self.variances), where=self.variances > 0)
        return np.einsum("mai,ma->mi", self.directions, factor * along)


def _check_definite(values: Array, bad: NDArray[np.bool_]) -> None:
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(
            f"anisotropy must be positive definite on the tangent space; its eigenvalues at index {at} are "
            f"{np.array2string(values[at], precision=3)}."
        )


def _common_rank(values: Array) -> int:
    ranks = (values > 0).sum(axis=1)
    rank = int(ranks.max())
    if ranks.min() < rank:
        raise ValueError(
            f"anisotropy has rank {rank} in places, but {ranks.min()} at index {int(np.argmin(ranks))}: a "
            "direction without diffusion is taken for one off the data. Add a small multiple of the projector."
        )
    return rank
