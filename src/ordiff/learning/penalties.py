"""Penalties: what a function costs for being rough, with the derivative of that cost.

    GradientPenalty     Σ_i w_i ‖∇f‖²            f on the samples (or states)
    LaplacianPenalty    Σ_i w_i (L f)²
    ActionPenalty       Σ_i w_i ‖(τ/κ)∇l‖²/ρ²    of a drift and a noise together (Onsager–Machlup)
    RelativeRoughness   Σ_r (D_r a)²/ρ_r⁴        of the coefficients of an ordering, relative to the local noise

The weights w of the samples are 1/m unless given: then R = ∫ … q dx. With the volumes of the states as weights it is
∫ … dx. The first two are quadratic, R(f) = ‖B f‖² = fᵀA f with a sparse ``root`` B and ``matrix`` A. Multiplying by
a strength is left to the penalised likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _validation
from ordiff._parallel import cached_property
from ordiff._validation import Array
from ordiff.geometry import TangentSpaces
from ordiff.operator import MarkovOperator


@dataclass(frozen=True, eq=False)
class QuadraticPenalty:
    """R(f) = ‖B f‖² with a sparse B, (rows, N)."""

    root: sp.csr_array

    def value_and_gradient(self, f: Array) -> tuple[float, Array]:
        """R(f), and 2 BᵀB f, (N,)."""
        y = self.root @ f
        return float(y @ y), 2.0 * (self._transposed @ y)

    @cached_property
    def matrix(self) -> sp.csr_array:
        """A = BᵀB, symmetric: R(f) = fᵀA f."""
        return sp.csr_array(self._transposed @ self.root)

    @cached_property
    def _transposed(self) -> sp.csr_array:
        return sp.csr_array(self.root.T)


class GradientPenalty(QuadraticPenalty):
    """R(f) = Σ_i w_i ‖G_i δ_i f‖², δ_i f = f_j − f_i over the neighbours j of i and G_i as in `TangentSpaces`."""

    def __init__(self, tangents: TangentSpaces, weights: ArrayLike | None = None) -> None:
        B = _gradients(tangents)
        w = _weights(weights, B.shape[1])
        super().__init__(_scaled(B, np.repeat(np.sqrt(w), B.shape[0] // w.size)))


class LaplacianPenalty(QuadraticPenalty):
    """R(f) = Σ_i w_i (L f)_i² with L = (P − I)/ε of a chain without an ordering, so that L tends to ½Δ.

    >>> import numpy as np, ordiff as od
    >>> from ordiff.learning.penalties import LaplacianPenalty
    >>> x = np.linspace(0, 1, 100).reshape(-1, 1)
    >>> P = od.Kernel().operator(od.NeighborGraph.build(x, k=99), eps=0.001)
    >>> value, gradient = LaplacianPenalty(P).value_and_gradient(np.ones(100))
    >>> bool(value < 1e-18)
    True
    """

    def __init__(self, operator: MarkovOperator, weights: ArrayLike | None = None) -> None:
        P, m = operator.matrix, operator.graph.n_points
        L = sp.csr_array((P - sp.eye_array(m, format="csr")) / operator.eps)
        super().__init__(_scaled(L, np.sqrt(_weights(weights, m))))


@dataclass(frozen=True, eq=False, init=False)
class ActionPenalty:
    """The Onsager–Machlup action of a drift, R(l, ρ, s) = Σ_i w_i s_i² ‖∇l‖_i² / ρ_i² with the slope s = τ/κ."""

    gradients: sp.csr_array  # (m r, m): r rows G_i δ_i a sample
    weights: Array  # (m,)

    def __init__(self, tangents: TangentSpaces, weights: ArrayLike | None = None) -> None:
        B = _gradients(tangents)
        object.__setattr__(self, "gradients", B)
        object.__setattr__(self, "weights", _weights(weights, B.shape[1]))

    def value_and_gradient(self, ordering: Array, noise: Any, slope: Any = 1.0) -> tuple[float, tuple[Array, Any, Any]]:
        """R, and its derivatives by the ordering (m,), the noise and the slope: numbers for numbers, (m,) for (m,)."""
        y = self.gradients @ ordering
        m = self.weights.size
        square = np.square(y).reshape(m, -1).sum(axis=1)  # ‖∇l‖²
        factor = self.weights * (slope / noise) ** 2
        cost = factor * square
        by_ordering = 2.0 * (self._transposed @ (np.repeat(factor, y.size // m) * y))
        by_noise, by_slope = -2.0 * cost / noise, 2.0 * self.weights * slope * square / np.square(noise)
        return float(cost.sum()), (by_ordering, _like(noise, by_noise), _like(slope, by_slope))

    @cached_property
    def _transposed(self) -> sp.csr_array:
        return sp.csr_array(self.gradients.T)


@dataclass(frozen=True, eq=False)
class RelativeRoughness:
    """R(a, ρ) = Σ_r (D a)_r²/ρ_r⁴, the roughness of an ordering in units of the noise where it is.

    In a well the samples show l/ρ² alone. A roughness of l itself would pull l down there, and ρ² with it.
    """

    rows: Array  # D (R, K): weighted derivatives of the functions
    at: NDArray[np.intp]  # (R,) the state of each row
    n_free: int  # so many of the first functions are without roughness

    def relative_rows(self, noise: Array) -> Array:
        """D/ρ², (R, K)."""
        return self.rows / noise[self.at, None] ** 2

    def value_and_gradient(self, a: Array, noise: Array) -> tuple[float, Array, Array]:
        """R, and its derivatives by the coefficients (K,) and by the noise (N,)."""
        rho = noise[self.at]
        y = (self.rows @ a) / rho**2
        by_noise = np.asarray(np.bincount(self.at, -4 * y**2 / rho, noise.size), dtype=np.float64)
        return float(y @ y), 2.0 * (self.rows.T @ (y / rho**2)), by_noise

    def jacobian(self, a: Array, noise: Array, noise_directions: Array | None) -> tuple[Array, Array | None]:
        """∂y/∂a (R, K) of y = D a/ρ², and ∂y/∂b (R, K_b) for changes ``noise_directions`` (N, K_b) of the noise."""
        J = self.relative_rows(noise)
        if noise_directions is None:
            return J, None
        return J, (-2 * (J @ a) / noise[self.at])[:, None] * noise_directions[self.at]

    def log_volume(self, noise: Array) -> float:
        """½ log det JᵀJ of the functions with roughness."""
        J = self.relative_rows(noise)[:, self.n_free :]
        return 0.5 * float(np.linalg.slogdet(J.T @ J)[1])


def _like(value: Any, derivative: Array) -> Any:
    return float(derivative.sum()) if np.ndim(value) == 0 else derivative


def _weights(weights: ArrayLike | None, m: int) -> Array:
    if weights is None:
        return np.full(m, 1.0 / m)
    w = _validation.nodes(weights, m, "weights")
    if (w < 0).any():
        raise ValueError(f"weights must not be negative; it is {w.min():g} at index {int(np.argmin(w))}.")
    return w


def _scaled(B: sp.csr_array, rows: Array) -> sp.csr_array:
    return sp.csr_array(sp.diags_array(rows) @ B)


def _gradients(tangents: TangentSpaces) -> sp.csr_array:
    """f ↦ G_i δ_i f at every sample, (m r, m), r the largest dimension: G_i = S⁻¹Uᵀ = S⁻²Vᵀ δXᵀ, 0 beyond d_i."""
    m, k = tangents.neighbors.shape
    r = tangents.squares.shape[1]
    kept = (np.arange(r) < tangents.dimensions[:, None]) & (tangents.squares > 0)
    inverse = np.divide(1.0, tangents.squares, out=np.zeros((m, r)), where=kept)
    G = np.empty((m, r, k + 1))
    for rows in np.array_split(np.arange(m), max(1, m * k * tangents.X.shape[1] // 1_000_000)):
        offsets = tangents.X[tangents.neighbors[rows]] - tangents.X[rows, None, :]
        G[rows, :, 1:] = inverse[rows, :, None] * np.einsum("mnr,mkn->mrk", tangents.axes[rows], offsets)
    G[:, :, 0] = -G[:, :, 1:].sum(axis=2)  # at the sample itself
    columns = np.column_stack([np.arange(m), tangents.neighbors])
    columns = np.repeat(columns, r, axis=0)
    indptr = np.arange(0, m * r * (k + 1) + 1, k + 1)
    B = sp.csr_array((G.ravel(), columns.ravel(), indptr), shape=(m * r, m))
    B.sum_duplicates()  # a sample with fewer neighbours lists itself
    B.eliminate_zeros()
    return B
