"""Processes that learning from snapshots is shown with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ordiff import _validation
from ordiff._simulation import Seed
from ordiff._validation import Array, IntArray
from ordiff.datasets._problem import Problem
from ordiff.datasets._snapshots import EndpointNormals, UniformTimes, snapshots


def ornstein_uhlenbeck(m: int = 1500, random_state: Seed = None) -> Problem:
    """dx = −Θx dt + √2 dW from (5, 5) with Θ = (1.8, 1.2), drawn from its exact law.

    Times from the mixture ½N(0, .6²) + ½N(2, .6²) cut to [0, 2]; l = −½ΣΘ_i x_i².
    """
    theta, start = np.array([1.8, 1.2]), np.array([5.0, 5.0])

    def exact(t: Array, rng: np.random.Generator) -> Array:
        decay = np.exp(-t[:, None] * theta)
        return start * decay + np.sqrt((1 - decay**2) / theta) * rng.standard_normal((t.size, 2))

    return snapshots(
        "ornstein_uhlenbeck", m, random_state,
        ordering=lambda x: -0.5 * (x**2 @ theta),
        drift=lambda x: -theta * x,
        noise=lambda x: np.full(len(x), np.sqrt(2.0)),
        start=start.tolist(), density=EndpointNormals(2.0, 0.6), exact=exact,
    )  # fmt: skip


def nonlinear(
    m: int = 2500, random_state: Seed = None, *, lift: int | None = None, lift_noise: float = 0.05
) -> Problem:
    """Escape from a maximum of the potential to the wells around it, in the plane, with a noise least at radius 2π.

    dx_i = (1.5 sin(x_i/2) + (4π²x_i − x_i³) e^{−x_i²/4}/(2π²)) dt + ½√(1 + (‖x‖ − 2π)²/8) dw_i from 0, times uniform
    on [0, 4]; l = −Σ_i [3 cos(x_i/2) + (4(π² − 1) − x_i²) e^{−x_i²/4}/π²].

    lift: put the plane into this many dimensions by a random rotation and add gaussian noise of standard deviation
    ``lift_noise`` in all of them. The points in the plane, the same as without, are then the ``coordinates``; ordering
    and noise are those of the plane, and the drift is turned with it.
    """
    rng, spread = _validation.generator(random_state), _validation.number(lift_noise, "lift_noise")
    n = 2 if lift is None else _validation.count(lift, "lift", 2)
    if spread < 0:
        raise ValueError(f"lift_noise must not be negative; got {spread:g}.")

    def ordering(x: Array) -> Array:
        bump = (4 * (np.pi**2 - 1) - x**2) * np.exp(-(x**2) / 4) / np.pi**2
        return -(3 * np.cos(x / 2) + bump).sum(axis=1)

    def drift(x: Array) -> Array:
        return 1.5 * np.sin(x / 2) + (4 * np.pi**2 * x - x**3) * np.exp(-(x**2) / 4) / (2 * np.pi**2)

    def noise(x: Array) -> Array:
        return 0.5 * np.sqrt(1 + (np.linalg.norm(x, axis=1) - 2 * np.pi) ** 2 / 8)

    flat = snapshots("nonlinear", m, rng, ordering, drift, noise, [0.0, 0.0], UniformTimes(4.0))
    if lift is None:
        return flat
    J, _ = np.linalg.qr(rng.standard_normal((n, 2)))
    return replace(
        flat, name="nonlinear, lifted", X=flat.X @ J.T + spread * rng.standard_normal((len(flat.X), n)),
        drift=flat.drift @ J.T, coordinates=flat.X, jacobian=np.broadcast_to(J, (len(flat.X), n, 2)).copy(),
        intrinsic_drift=flat.drift, start=np.zeros(n), ordering_at=lambda y: ordering(y @ J),
        noise_at=lambda y: noise(y @ J), drift_at=lambda y: drift(y @ J) @ J.T,
    )  # fmt: skip


def valley(m: int = 2000, random_state: Seed = None) -> Problem:
    """Drift along the winding valley y = sin x, with a noise that grows exponentially with x.

    l = 1.5 x − 2(y − sin x)² and ρ = ½ exp((x − 3)/6), so log ρ is linear; from 0, times uniform on [0, 4].
    """

    def drift(x: Array) -> Array:
        aside = 4 * (x[:, 1] - np.sin(x[:, 0]))
        return np.stack([1.5 + aside * np.cos(x[:, 0]), -aside], axis=1)

    return snapshots(
        "valley", m, random_state,
        ordering=lambda x: 1.5 * x[:, 0] - 2 * (x[:, 1] - np.sin(x[:, 0])) ** 2,
        drift=drift,
        noise=lambda x: 0.5 * np.exp((x[:, 0] - 3) / 6),
        start=[0.0, 0.0], density=UniformTimes(4.0),
    )  # fmt: skip


def sphere(m: int = 2000, random_state: Seed = None) -> Problem:
    """From near the south pole of the unit sphere to its north: l = z, ρ = ½√(1 − z/2), generator ∇l·∇ + ½ρ²Δ.

    The drift is e_z − z x. Times uniform on [0, 4]; the start is (0.6, 0, −0.8).
    """
    up = np.array([0.0, 0.0, 1.0])
    found = snapshots(
        "sphere", m, random_state,
        ordering=lambda x: x[:, 2].copy(),
        drift=lambda x: up - x[:, 2:] * x,
        noise=lambda x: 0.5 * np.sqrt(1 - 0.5 * x[:, 2]),
        start=[0.6, 0.0, -0.8], density=UniformTimes(4.0),
        project=lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
    )  # fmt: skip
    return replace(found, curvature=-2 * found.X)


def double_well(m: int = 2000, random_state: Seed = None) -> Problem:
    """Two fates: dx = −∇U dt + 0.8 dW, U = 2((x/2)² − 1)² + ½y², from (0, 1) beside the saddle.

    The wells are at (∓2, 0), the barrier is 2 and ½ρ² is 0.32, so that few cross it again by the last time, 3; times
    are uniform. ``fate`` is the probability of reaching x = 2 before x = −2.
    """
    rho = 0.8
    found = snapshots(
        "double_well", m, random_state,
        ordering=lambda x: -2 * (0.25 * x[:, 0] ** 2 - 1) ** 2 - 0.5 * x[:, 1] ** 2,
        drift=lambda x: -np.stack([2 * x[:, 0] * (0.25 * x[:, 0] ** 2 - 1), x[:, 1]], axis=1),
        noise=lambda x: np.full(len(x), rho),
        start=[0.0, 1.0], density=UniformTimes(3.0),
    )  # fmt: skip
    # x is independent of y: the fate is ∫ exp(U/(½ρ²)) from one well to x, over that from well to well
    nodes, weights = np.polynomial.legendre.leggauss(80)

    def integral(x: Array) -> Array:
        half = 0.5 * (x + 2)
        between = half[:, None] * (nodes + 1) - 2
        return half * (np.exp(4 * (0.25 * between**2 - 1) ** 2 / rho**2) @ weights)

    inside = np.clip(found.X[:, 0], -2, 2)
    return replace(found, fate=integral(inside) / integral(np.array([2.0])))


def limit_cycle(m: int = 2000, random_state: Seed = None) -> Problem:
    """A noisy cycle about the ring of radius 2, whose drift is no gradient: dx = τ∇θ dt + ∇c dt + 0.4 dW.

    The ``ordering`` is the difference of the phase θ, taken the shortest way round; its ``speed`` is τ = 4 + 1.6 cos θ,
    an angular speed of τ/r². The ``confinement`` c = −2(r − 2)² confines r. From (2, 0), times uniform on [0, 8];
    on the ring a turn takes 2π/√0.84 = 6.86.
    """

    def polar(x: Array) -> tuple[Array, Array]:
        return np.linalg.norm(x, axis=1), np.arctan2(x[:, 1], x[:, 0])

    def speed(theta: Array) -> Array:
        return 4 + 1.6 * np.cos(theta)

    def drift(x: Array) -> Array:
        r, theta = polar(x)
        around = np.stack([-x[:, 1], x[:, 0]], axis=1) / r[:, None] ** 2
        return speed(theta)[:, None] * around - (4 * (r - 2) / r)[:, None] * x

    found = snapshots(
        "limit_cycle", m, random_state,
        ordering=lambda x: -2 * (polar(x)[0] - 2) ** 2,
        drift=drift,
        noise=lambda x: np.full(len(x), 0.4),
        start=[2.0, 0.0], density=UniformTimes(8.0),
    )  # fmt: skip
    r, theta = polar(found.X)

    def ordering(i: IntArray, j: IntArray) -> Array:
        step = theta[j] - theta[i]
        return step - 2 * np.pi * np.round(step / (2 * np.pi))

    return replace(
        found, ordering=ordering, speed=speed(theta), phase=theta, confinement=-2 * (r - 2) ** 2, ordering_at=None,
        coordinates=np.stack([theta, r], axis=1),
        intrinsic_drift=np.stack([speed(theta) / r**2, -4 * (r - 2)], axis=1),
    )  # fmt: skip
