"""Curved manifolds with drift and diffusion, on grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from ordiff import _validation
from ordiff._validation import Array, IntArray
from ordiff.datasets._problem import Problem


def _grid(first: Array, second: Array) -> tuple[Array, Array]:
    """All pairs, the first coordinate by rows."""
    a, b = np.meshgrid(first, second, indexing="ij")
    return a.ravel(), b.ravel()


def torus(side: int = 100, *, anisotropic: bool = False) -> Problem:
    """The flat torus in R⁴ on a side × side grid, ι = (sin θ, cos θ, sin φ, cos φ).

    Drift (2 + sin θ, 0) = ∇l for the local ordering l = 2θ − cos θ, test function f = sin θ sin 2φ. Diffusion tensor
    C = [[3 + sin φ, 1], [1, 1]] when ``anisotropic`` (noise 1, anisotropy C), else its isotropic mean, ρ² = ½ tr C.
    """
    side, anisotropic = _validation.count(side, "side", 3), _validation.flag(anisotropic, "anisotropic")
    angles = 2 * np.pi * np.arange(side) / side
    theta, phi = _grid(angles, angles)
    zero = np.zeros_like(theta)
    X = np.stack([np.sin(theta), np.cos(theta), np.sin(phi), np.cos(phi)], axis=1)
    J = np.zeros((theta.size, 4, 2))
    J[:, 0, 0], J[:, 1, 0] = np.cos(theta), -np.sin(theta)
    J[:, 2, 1], J[:, 3, 1] = np.cos(phi), -np.sin(phi)
    mu = 2 + np.sin(theta)

    def ordering(i: IntArray, j: IntArray) -> Array:
        step = theta[j] - theta[i]
        step -= 2 * np.pi * np.round(step / (2 * np.pi))
        return 2 * step - np.cos(theta[j]) + np.cos(theta[i])

    f = np.sin(theta) * np.sin(2 * phi)
    f_t, f_p = np.cos(theta) * np.sin(2 * phi), 2 * np.sin(theta) * np.cos(2 * phi)
    f_tp = 2 * np.cos(theta) * np.cos(2 * phi)
    transport, divergence = mu * f_t, np.cos(theta) * f + mu * f_t
    if anisotropic:
        # ½ Σ C_ij ∂_i∂_j f, and ½ Σ ∂_i∂_j (C_ij f): C depends on φ only in its θθ entry, so both agree
        diffusion = co_diffusion = 0.5 * ((3 + np.sin(phi)) * -f + 2 * f_tp - 4 * f)
        C = np.empty((theta.size, 2, 2))
        C[:, 0, 0], C[:, 0, 1], C[:, 1, 0], C[:, 1, 1] = 3 + np.sin(phi), 1.0, 1.0, 1.0
        noise: Any = 1.0
    else:
        # ½ρ²Δf, and ½Δ(ρ²f) with ρ² = 2 + ½ sin φ
        rho2 = 2 + 0.5 * np.sin(phi)
        diffusion = -2.5 * rho2 * f
        co_diffusion = 0.5 * (-5 * rho2 * f + np.cos(phi) * f_p - 0.5 * np.sin(phi) * f)
        C, noise = None, np.sqrt(rho2)
    return Problem(
        name="torus", X=X, ordering=ordering, speed=1.0, scale=1.0, noise=noise, drift=J[:, :, 0] * mu[:, None],
        coordinates=np.stack([theta, phi], axis=1), jacobian=J, intrinsic_drift=np.stack([mu, zero], axis=1),
        anisotropy=C, curvature=-X, test_function=f, generator=transport + diffusion, adjoint=co_diffusion - divergence,
    )  # fmt: skip


def spiral(side: int = 100) -> Problem:
    """A rolled sheet in R³, ι(u) = (u₁ cos 2πu₁, u₂, u₁ sin 2πu₁), on a side × side grid with edges.

    u₁ = √ũ with ũ on [1, 4) and u₂ on [0, 1]. The drift du₁/dt = u₁(2 − u₁) has the timing function
    t = ½ log(u₁/(2 − u₁)) as its ordering, with scale ‖∇t‖²; the noise is 2. Row 0 of the grid is the edge u₁ = 1.
    """
    side = _validation.count(side, "side", 3)
    u, v = _grid(np.sqrt(1 + 3 * np.arange(side) / side), np.linspace(0, 1, side))
    zero, angle = np.zeros_like(u), 2 * np.pi * u
    c, s = np.cos(angle), np.sin(angle)
    X = np.stack([u * c, v, u * s], axis=1)
    tangent = np.stack([c - angle * s, zero, s + angle * c], axis=1)
    length2 = 1 + angle**2
    J = np.stack([tangent, np.broadcast_to([0.0, 1.0, 0.0], tangent.shape)], axis=2)
    rate = u * (2 - u)
    factor = 4 * np.pi * (1 + 0.5 * angle**2) / length2**2
    return Problem(
        name="spiral", X=X, ordering=0.5 * np.log(u / (2 - u)), speed=1.0, scale=1 / (rate**2 * length2), noise=2.0,
        drift=rate[:, None] * tangent, coordinates=np.stack([u, v], axis=1), jacobian=J,
        intrinsic_drift=np.stack([rate, zero], axis=1),
        curvature=factor[:, None] * np.stack([-s - angle * c, zero, c - angle * s], axis=1),
    )  # fmt: skip
