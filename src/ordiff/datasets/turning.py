"""Snapshots of processes whose drift turns, or whose noise has a direction: no ordering has it for a gradient."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._simulation import FieldFunction, Seed, simulate
from ordiff._validation import Array, IntArray
from ordiff.datasets._problem import Problem
from ordiff.datasets._snapshots import UniformTimes, constant


def _turning_problem(
    name: str, X: Array, times: Array, start: Array, horizon: float, drift: FieldFunction, noise: FieldFunction
) -> Problem:
    """A problem whose ordering is local, ⟨μ(x_i), x_j − x_i⟩."""
    mu = drift(X)

    def ordering(i: IntArray, j: IntArray) -> Array:
        return np.asarray(((X[j] - X[i]) * mu[i]).sum(axis=-1))

    return Problem(
        name=name, X=X, ordering=ordering, speed=1.0, scale=1.0, noise=noise(X), drift=mu, times=times, start=start,
        horizon=horizon, time_density=UniformTimes(horizon), noise_at=noise, drift_at=drift,
    )  # fmt: skip


def _simulated(
    name: str,
    m: int,
    random_state: Seed,
    drift: FieldFunction,
    noise: FieldFunction,
    start: list[float],
    horizon: float,
) -> Problem:
    """m snapshots of dx = μ dt + ρ dW from a point, at times uniform on [0, horizon]."""
    rng = _validation.generator(random_state)
    times, x0 = UniformTimes(horizon).sample(_validation.count(m, "m", 2), rng), np.array(start)
    X = simulate(drift, noise, x0, times, random_state=rng)
    return _turning_problem(name, X, times, x0, horizon, drift, noise)


def linear(
    matrix: ArrayLike,
    covariance: ArrayLike,
    start: ArrayLike,
    times: ArrayLike | float,
    m: int = 2000,
    random_state: Seed = None,
) -> Problem:
    """dx = Mx dt + dB, B with the covariance D a unit of time, from a point, drawn from its exact law.

    With M = VΛV⁻¹ and Q = V⁻¹DV⁻ᵀ the covariance at t is V[Q_ij (e^{(λ_i+λ_j)t} − 1)/(λ_i + λ_j)]Vᵀ. ``matrix``: M,
    (n, n), with a full set of eigenvectors. ``covariance``: D, (n, n); the noise is ρ = (det D)^{1/2n} and the
    ``anisotropy`` D/ρ². ``times``: (m,), or a horizon, up to which they are uniform.

    >>> import numpy as np, ordiff as od
    >>> data = od.datasets.linear([[-1, -2], [2, -1]], 0.36 * np.eye(2), [2, 0], times=3.0, m=500, random_state=0)
    >>> bool(np.allclose(data.noise, 0.6)), data.drift_at(np.array([[1.0, 0.0]])).tolist()
    (True, [[-1.0, 2.0]])
    """
    x0, rng = _validation.nodes(start, np.size(start), "start"), _validation.generator(random_state)
    n = x0.size
    M = _validation.node_vectors(matrix, (n, n), "matrix")
    D = _validation.symmetric(np.array(_validation.as_float(covariance, "covariance"), ndmin=3), 1, n, "covariance")[0]
    if np.linalg.eigvalsh(D)[0] <= 0:
        raise ValueError(f"covariance must be positive definite; its least eigenvalue is {np.linalg.eigvalsh(D)[0]:g}.")
    t = _validation.finite(_validation.as_float(times, "times"), "times")
    if t.ndim > 1 or t.size == 0 or t.min() < 0:
        raise ValueError(f"times must be a horizon, or numbers from 0, shape (m,); got {times!r}.")
    horizon = float(t.max())
    t = UniformTimes(horizon).sample(_validation.count(m, "m", 2), rng) if t.ndim == 0 else t
    values, V = np.linalg.eig(M)
    inverse = np.linalg.inv(V)
    rates = values[:, None] + values
    Q = inverse @ D @ inverse.T
    grown = np.where(
        np.abs(rates) < 1e-12, t[:, None, None], np.expm1(rates * t[:, None, None]) / np.where(rates == 0, 1, rates)
    )
    covariances = np.real(V @ (Q * grown) @ V.T)
    means = np.real(np.einsum("ij,tj,j->ti", V, np.exp(values * t[:, None]), inverse @ x0))
    left, size, _ = np.linalg.svd(covariances)
    X = means + np.einsum("tij,tj,tj->ti", left, np.sqrt(size), rng.standard_normal(means.shape))
    rho = float(np.linalg.det(D) ** (0.5 / n))
    found = _turning_problem("linear", X, t, x0, horizon, lambda x: x @ M.T, constant(rho))
    return replace(found, anisotropy=np.broadcast_to(D / rho**2, (len(X), n, n)).copy())


def turning(m: int = 2000, random_state: Seed = None) -> Problem:
    """A damped rotation: dx = (−x − 2y, 2x − y) dt + .6 dW from (2, 0), times uniform on [0, 3], from its exact law."""
    found = linear([[-1.0, -2.0], [2.0, -1.0]], 0.36 * np.eye(2), [2.0, 0.0], 3.0, m, random_state)
    return replace(found, name="turning", anisotropy=None)


def tensor_ou(m: int = 2000, random_state: Seed = None, *, angle: float = 0.0) -> Problem:
    """Noise with a direction: dx = −(1.5x, .8y) dt + .8 A^½ dW, A = R diag(2, ½) Rᵀ turned by ``angle`` (radians).

    From (2, 2), times uniform on [0, 2.5], from its exact law.
    """
    angle = _validation.number(angle, "angle")
    c, s = np.cos(angle), np.sin(angle)
    R = np.array([[c, -s], [s, c]])
    D = 0.64 * R @ np.diag([2.0, 0.5]) @ R.T
    return replace(linear(-np.diag([1.5, 0.8]), D, [2.0, 2.0], 2.5, m, random_state), name="tensor_ou")


def van_der_pol(m: int = 2000, random_state: Seed = None) -> Problem:
    """Van der Pol's oscillator: dx = y dt + .4 dW₁, dy = ((1 − x²)y − x) dt + .4 dW₂ from (2, 0).

    Times uniform on [0, 7]; without noise a turn takes 6.66.
    """

    def drift(x: Array) -> Array:
        return np.stack([x[:, 1], (1 - x[:, 0] ** 2) * x[:, 1] - x[:, 0]], axis=1)

    return _simulated("van_der_pol", m, random_state, drift, constant(0.4), [2.0, 0.0], 7.0)


def repressilator(m: int = 3000, random_state: Seed = None) -> Problem:
    """Three repressors in a ring: dx_i = (−x_i − 2 tanh(1.5 x_{i−1})) dt + .4 dW_i from (1, 0, −1).

    x are levels about the fixed point 0, which is unstable; without noise a turn of the cycle takes about 3.6. Times
    uniform on [0, 4].
    """

    def drift(x: Array) -> Array:
        return -x - 2 * np.tanh(1.5 * np.roll(x, 1, axis=1))

    return _simulated("repressilator", m, random_state, drift, constant(0.4), [1.0, 0.0, -1.0], 4.0)


def lotka_volterra(m: int = 2000, random_state: Seed = None) -> Problem:
    """Prey and predators in logarithms: du = (1 − e^v) dt + .2 dW₁, dv = (e^u − 1) dt + .2 dW₂ from (.8, 0).

    The drift has no divergence: all of it turns. Times uniform on [0, 6]; small turns take 2π.
    """

    def drift(x: Array) -> Array:
        return np.stack([1 - np.exp(x[:, 1]), np.exp(x[:, 0]) - 1], axis=1)

    return _simulated("lotka_volterra", m, random_state, drift, constant(0.2), [0.8, 0.0], 6.0)


def toggle_switch(m: int = 2000, random_state: Seed = None) -> Problem:
    """Two genes that repress each other: dx = (3/(1 + y²) − x) dt + ρ dW₁, dy = (3/(1 + x²) − y) dt + ρ dW₂.

    A noise that grows with the levels, ρ = .3√(½(x + y)) (and at least .1). From (1.3, 1.3) near the saddle, times
    uniform on [0, 4].
    """

    def drift(x: Array) -> Array:
        return 3 / (1 + x[:, ::-1] ** 2) - x

    def noise(x: Array) -> Array:
        return 0.3 * np.sqrt(np.maximum(0.5 * x.sum(axis=1), 1 / 9))

    return _simulated("toggle_switch", m, random_state, drift, noise, [1.3, 1.3], 4.0)
