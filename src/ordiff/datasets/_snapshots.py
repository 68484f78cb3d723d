"""Snapshots of processes: when they are taken, and where each begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._simulation import FieldFunction, Seed, simulate
from ordiff._validation import Array
from ordiff.datasets._problem import Problem


@dataclass(frozen=True)
class UniformTimes:
    """The density of times that are uniform on [0, horizon]."""

    horizon: float

    def __call__(self, t: ArrayLike) -> Array:
        t = np.asarray(t, dtype=np.float64)
        return np.where((t >= 0) & (t <= self.horizon), 1 / self.horizon, 0.0)

    def sample(self, m: int, rng: np.random.Generator) -> Array:
        return rng.uniform(0, self.horizon, m)


@dataclass(frozen=True)
class EndpointNormals:
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


def snapshots(
    name: str,
    m: int,
    random_state: Seed,
    ordering: FieldFunction,
    drift: FieldFunction,
    noise: FieldFunction,
    start: list[float],
    density: UniformTimes | EndpointNormals,
    exact: Callable[[Array, np.random.Generator], Array] | None = None,
    project: FieldFunction | None = None,
    step: float | None = None,
) -> Problem:
    """m snapshots of dx = ∇l dt + ρ dW from a point, at times drawn from the density: ``exact`` draws, or simulated."""
    m = _validation.count(m, "m", 2)
    rng = _validation.generator(random_state)
    x0 = np.array(start)
    times = density.sample(m, rng)
    if exact is None:
        X = simulate(drift, noise, x0, times, step=step, project=project, random_state=rng)
    else:
        X = exact(times, rng)
    return Problem(
        name=name, X=X, ordering=ordering(X), speed=1.0, scale=1.0, noise=noise(X), drift=drift(X), times=times,
        start=x0, horizon=density.horizon, time_density=density, ordering_at=ordering, noise_at=noise, drift_at=drift,
    )  # fmt: skip


def cloud_snapshots(
    name: str,
    m: int,
    random_state: Seed,
    ordering: FieldFunction,
    drift: FieldFunction,
    noise: FieldFunction,
    mean: list[float],
    deviation: float,
    schedule: Callable[[int, np.random.Generator], Array],
    least: int,
) -> Problem:
    """m snapshots of dx = ∇l dt + ρ dW from N(mean, deviation²I), at the times of a schedule (m, rng) → (m,).

    Some times of a schedule for ``least`` samples or more are 0: the samples that ``start`` marks.
    """
    m = _validation.count(m, "m", least)
    rng = _validation.generator(random_state)
    times = schedule(m, rng)
    first = np.array(mean) + deviation * rng.standard_normal((m, len(mean)))
    X = simulate(drift, noise, first, times, random_state=rng)
    return Problem(
        name=name, X=X, ordering=ordering(X), speed=1.0, scale=1.0, noise=noise(X), drift=drift(X), times=times,
        start=times == 0, horizon=float(times.max()), ordering_at=ordering, noise_at=noise, drift_at=drift,
    )  # fmt: skip


@dataclass(frozen=True)
class LinearLaw:
    """Draws from the law of dx_i = −θ_i x_i dt + ρ dw_i: N(x_i(0) e^{−θ_i t}, ρ²(1 − e^{−2θ_i t})/(2θ_i)), θ_i ≠ 0."""

    start: list[float]
    rates: list[float]
    rho: float

    def __call__(self, t: Array, rng: np.random.Generator) -> Array:
        theta = np.array(self.rates)
        decay = np.exp(-t[:, None] * theta)
        deviation = self.rho * np.sqrt((1 - decay**2) / (2 * theta))
        return np.array(self.start) * decay + deviation * rng.standard_normal(decay.shape)

    def ordering(self, x: Array) -> Array:
        return -0.5 * (x**2 @ np.array(self.rates))

    def drift(self, x: Array) -> Array:
        return -np.array(self.rates) * x


def constant(rho: float) -> FieldFunction:
    """The noise that is ρ everywhere."""
    return lambda x: np.full(len(x), rho)
