"""Problems whose dynamics are known, to test and show what operators and learning do; `simulate` makes others.

Lengths and times are plain numbers: a drift is in lengths per time, a noise in lengths per √time, an ordering whose
gradient is the drift in lengths² per time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._simulation import FieldFunction, Seed
from ordiff._simulation import simulate as simulate
from ordiff._validation import Array, IntArray


@dataclass(frozen=True, eq=False)
class Problem:
    """Samples of a process whose dynamics are known. What a problem does not have is None.

    ordering: the values l (m,), for ``Ordering``; or, where no global one exists, a function (i, j) of index arrays,
    for ``Ordering.local``. With ``speed`` τ, ``scale`` κ and ``noise`` ρ the process is
    dx = (τ/κ)∇l dt + ρ dW, or with diffusion ½ρ²A for an ``anisotropy`` A in the basis ``jacobian``; a ``confinement``
    c is a second ordering, and adds ∇c dt.
    The snapshots of a process that starts at ``start`` were taken at ``times``, drawn from ``time_density`` on
    [0, horizon]. ``ordering_at``, ``noise_at`` and ``drift_at`` give the truth at any points (p, n).
    """

    name: str
    X: Array  # (m, n)
    ordering: Array | Callable[[IntArray, IntArray], Array]
    speed: Any  # number or (m,)
    scale: Any
    noise: Any
    drift: Array  # (m, n) the drift in ambient coordinates
    coordinates: Any = None  # (m, d) intrinsic coordinates u, or None
    jacobian: Any = None  # (m, n, d) ∂x/∂u, or None
    intrinsic_drift: Any = None  # (m, d) du/dt of the drift, or None
    anisotropy: Array | None = None  # (m, d, d) in the basis `jacobian`
    curvature: Array | None = None  # (m, n) mean curvature vector
    test_function: Array | None = None  # (m,) f
    generator: Array | None = None  # (m,) 𝓛 f
    adjoint: Array | None = None  # (m,) 𝓛* f
    times: Array | None = None  # (m,)
    start: Array | None = None  # (n,)
    horizon: float | None = None
    time_density: Callable[[Array], Array] | None = None  # integrates to 1 over [0, horizon]
    confinement: Array | None = None  # (m,) a second, global ordering with speed and scale 1
    phase: Array | None = None  # (m,) radians
    fate: Array | None = None  # (m,) the probability of reaching the second of two fates first
    ordering_at: FieldFunction | None = None
    noise_at: FieldFunction | None = None
    drift_at: FieldFunction | None = None


def _grid(first: Array, second: Array) -> tuple[Array, Array]:
    """All pairs, the first coordinate by rows."""
    a, b = np.meshgrid(first, second, indexing="ij")
    return a.ravel(), b.ravel()


def torus(side: int = 100, *, anisotropic: bool = False) -> Problem:
    """The flat torus in R⁴ on a side × side grid, ι = (sin θ, cos θ, sin φ, cos φ).

    Drift (2 + sin θ, 0) = ∇l for the local ordering l = 2θ − cos θ, test function f = sin θ sin 2φ. Diffusion tensor
    C = [[3 + sin φ, 1], [1, 1]] when ``anisotropic`` (noise 1, anisotropy C), else its isotropic mean, ρ² = ½ tr C.
    """
    side = _validation.count(side, "side", 3)
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


# ------------------------------------------------------------------------ processes observed by snapshots


@dataclass(frozen=True)
class _Uniform:
    """The density of times that are uniform on [0, horizon]."""

    horizon: float

    def __call__(self, t: ArrayLike) -> Array:
        t = np.asarray(t, dtype=np.float64)
        return np.where((t >= 0) & (t <= self.horizon), 1 / self.horizon, 0.0)

    def sample(self, m: int, rng: np.random.Generator) -> Array:
        return rng.uniform(0, self.horizon, m)


@dataclass(frozen=True)
class _EndpointNormals:
    """The mixture ½N(0, width²) + ½N(horizon, width²), truncated to [0, horizon]."""

    horizon: float
    width: float

    def __call__(self, t: ArrayLike) -> Array:
        from scipy.special import ndtr

        t = np.asarray(t, dtype=np.float64)
        inside = ndtr(self.horizon / self.width) - 0.5
        z = np.stack([t, self.horizon - t]) / self.width
        both = np.exp(-0.5 * z**2).sum(axis=0) / np.sqrt(2 * np.pi)
        return np.where((t >= 0) & (t <= self.horizon), 0.5 * both / (self.width * inside), 0.0)

    def sample(self, m: int, rng: np.random.Generator) -> Array:
        from scipy.special import ndtr, ndtri

        t = self.width * ndtri(rng.uniform(0.5, ndtr(self.horizon / self.width), m))
        return np.where(rng.random(m) < 0.5, t, self.horizon - t)


def _snapshots(
    name: str,
    m: int,
    random_state: Seed,
    ordering: FieldFunction,
    drift: FieldFunction,
    noise: FieldFunction,
    start: list[float],
    density: _Uniform | _EndpointNormals,
    exact: Callable[[Array, np.random.Generator], Array] | None = None,
    project: FieldFunction | None = None,
) -> Problem:
    """m snapshots of dx = ∇l dt + ρ dW at times drawn from the density, by ``exact`` draws or by simulation."""
    m = _validation.count(m, "m", 2)
    rng = np.random.default_rng(random_state)
    x0 = np.array(start)
    times = density.sample(m, rng)
    X = simulate(drift, noise, x0, times, project=project, random_state=rng) if exact is None else exact(times, rng)
    return Problem(
        name=name, X=X, ordering=ordering(X), speed=1.0, scale=1.0, noise=noise(X), drift=drift(X), times=times,
        start=x0, horizon=density.horizon, time_density=density, ordering_at=ordering, noise_at=noise, drift_at=drift,
    )  # fmt: skip


def ornstein_uhlenbeck(m: int = 1500, random_state: Seed = None) -> Problem:
    """dx = −Θx dt + √2 dW from (5, 5) with Θ = (1.8, 1.2), drawn from its exact law.

    Times from the mixture ½N(0, .6²) + ½N(2, .6²) cut to [0, 2]; l = −½ΣΘ_i x_i².
    """
    theta, start = np.array([1.8, 1.2]), np.array([5.0, 5.0])

    def exact(t: Array, rng: np.random.Generator) -> Array:
        decay = np.exp(-t[:, None] * theta)
        return start * decay + np.sqrt((1 - decay**2) / theta) * rng.standard_normal((t.size, 2))

    return _snapshots(
        "ornstein_uhlenbeck", m, random_state,
        ordering=lambda x: -0.5 * (x**2 @ theta),
        drift=lambda x: -theta * x,
        noise=lambda x: np.full(len(x), np.sqrt(2.0)),
        start=start.tolist(), density=_EndpointNormals(2.0, 0.6), exact=exact,
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
    rng = np.random.default_rng(random_state)

    def ordering(x: Array) -> Array:
        bump = (4 * (np.pi**2 - 1) - x**2) * np.exp(-(x**2) / 4) / np.pi**2
        return -(3 * np.cos(x / 2) + bump).sum(axis=1)

    def drift(x: Array) -> Array:
        return 1.5 * np.sin(x / 2) + (4 * np.pi**2 * x - x**3) * np.exp(-(x**2) / 4) / (2 * np.pi**2)

    def noise(x: Array) -> Array:
        return 0.5 * np.sqrt(1 + (np.linalg.norm(x, axis=1) - 2 * np.pi) ** 2 / 8)

    flat = _snapshots("nonlinear", m, rng, ordering, drift, noise, [0.0, 0.0], _Uniform(4.0))
    if lift is None:
        return flat
    n = _validation.count(lift, "lift", 2)
    spread = _validation.number(lift_noise, "lift_noise")
    if spread < 0:
        raise ValueError(f"lift_noise must not be negative; got {spread:g}.")
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

    return _snapshots(
        "valley", m, random_state,
        ordering=lambda x: 1.5 * x[:, 0] - 2 * (x[:, 1] - np.sin(x[:, 0])) ** 2,
        drift=drift,
        noise=lambda x: 0.5 * np.exp((x[:, 0] - 3) / 6),
        start=[0.0, 0.0], density=_Uniform(4.0),
    )  # fmt: skip


def sphere(m: int = 2000, random_state: Seed = None) -> Problem:
    """From near the south pole of the unit sphere to its north: l = z, ρ = ½√(1 − z/2), generator ∇l·∇ + ½ρ²Δ.

    The drift is e_z − z x. Times uniform on [0, 4]; the start is (0.6, 0, −0.8).
    """
    up = np.array([0.0, 0.0, 1.0])
    found = _snapshots(
        "sphere", m, random_state,
        ordering=lambda x: x[:, 2].copy(),
        drift=lambda x: up - x[:, 2:] * x,
        noise=lambda x: 0.5 * np.sqrt(1 - 0.5 * x[:, 2]),
        start=[0.6, 0.0, -0.8], density=_Uniform(4.0),
        project=lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
    )  # fmt: skip
    return replace(found, curvature=-2 * found.X)


def double_well(m: int = 2000, random_state: Seed = None) -> Problem:
    """Two fates: dx = −∇U dt + 0.8 dW, U = 2((x/2)² − 1)² + ½y², from (0, 1) beside the saddle.

    The wells are at (∓2, 0), the barrier is 2 and ½ρ² is 0.32, so that few cross it again by the last time, 3; times
    are uniform. ``fate`` is the probability of reaching x = 2 before x = −2.
    """
    rho = 0.8
    found = _snapshots(
        "double_well", m, random_state,
        ordering=lambda x: -2 * (0.25 * x[:, 0] ** 2 - 1) ** 2 - 0.5 * x[:, 1] ** 2,
        drift=lambda x: -np.stack([2 * x[:, 0] * (0.25 * x[:, 0] ** 2 - 1), x[:, 1]], axis=1),
        noise=lambda x: np.full(len(x), rho),
        start=[0.0, 1.0], density=_Uniform(3.0),
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

    found = _snapshots(
        "limit_cycle", m, random_state,
        ordering=lambda x: -2 * (polar(x)[0] - 2) ** 2,
        drift=drift,
        noise=lambda x: np.full(len(x), 0.4),
        start=[2.0, 0.0], density=_Uniform(8.0),
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
