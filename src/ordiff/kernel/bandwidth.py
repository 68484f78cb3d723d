"""Bandwidths: how far one step reaches, b(i,j) = left_i right_j.

    one-sided    b = ρ_i²                           diffusion ½ρ²
    self-tuning  b = ρ1_i ρ2_j                      diffusion ½ρ1ρ2, and a drift (d+2) ½ρ1ρ2 ∇ρ2/ρ2
    β-form       b = ρ_i^{2β} ρ_j^{2(1−β)}          diffusion ½ρ², and a drift (1−β)(d+2) ρ∇ρ

β = 1 is the one-sided form; β = 1 − 1/(2(d+2)) gives the Stratonovich generator ½ρ∇·(ρ∇f).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array


@dataclass(frozen=True, eq=False)
class Bandwidth:
    """``left`` (m,), and ``right`` (m,) or None for 1."""

    left: Array
    right: Array | None

    @classmethod
    def make(cls, m: int, noise: ArrayLike, noise_right: ArrayLike | None, beta: float) -> Bandwidth:
        rho = _validation.node_or_scalar(noise, m, "noise", positive=True)
        if noise_right is not None:
            return cls(rho, _validation.node_or_scalar(noise_right, m, "noise_right", positive=True))
        if beta == 1.0 or np.ptp(rho) == 0.0:
            return cls(rho**2, None)
        return cls(rho ** (2 * beta), rho ** (2 * (1 - beta)))

    def diffusion(self) -> Array:
        """b on the diagonal: ρ², twice the diffusion coefficient, (m,)."""
        return self.left if self.right is None else self.left * self.right
