"""Snapshots of processes with wells, from a barrier or from a distribution: dx = ∇l dt + ρ dW.

The well of most is that of l = x² − ½x⁴, drift 2x − 2x³: wells at ∓1, the barrier ½ between them at 0.
"""

from __future__ import annotations

import numpy as np

from ordiff import _validation
from ordiff._simulation import Seed
from ordiff._validation import Array
from ordiff.datasets._problem import Problem
from ordiff.datasets._snapshots import UniformTimes, cloud_snapshots, constant, snapshots

# Times after the start at which `well_snapshots` is observed.
_SNAPSHOTS = 6


def _well(x: Array, tilt: float = 0.0, rate: float = 1.5) -> Array:
    """l = x_0² − ½x_0⁴ + tilt x_0 − ½ rate Σ_{k>0} x_k², (p,)."""
    first, others = x[:, 0], x[:, 1:]
    return first**2 - 0.5 * first**4 + tilt * first - 0.5 * rate * (others**2).sum(axis=1)


def _well_drift(x: Array, tilt: float = 0.0, rate: float = 1.5) -> Array:
    """Its gradient (2x_0 − 2x_0³ + tilt, −rate x_k), (p, n)."""
    slope = -rate * x
    slope[:, 0] = 2 * x[:, 0] - 2 * x[:, 0] ** 3 + tilt
    return slope


def _tilted_noise(x: Array) -> Array:
    """ρ = .45 + .15 tanh x_0."""
    return 0.45 + 0.15 * np.tanh(x[:, 0])


def tilted_well(m: int = 2000, random_state: Seed = None) -> Problem:
    """A double well, one side deeper and noisier: drift (2x − 2x³ + .3, −1.5y), ρ = .45 + .15 tanh x.

    l = x² − ½x⁴ + .3x − .75y²; from (.05, 0), times uniform on [0, 3].
    """
    return snapshots(
        "tilted_well", m, random_state,
        ordering=lambda x: _well(x, 0.3),
        drift=lambda x: _well_drift(x, 0.3),
        noise=_tilted_noise,
        start=[0.05, 0.0], density=UniformTimes(3.0),
    )  # fmt: skip


def well_1d(m: int = 2000, random_state: Seed = None) -> Problem:
    """A tilted double well on a line: drift 2x − 2x³ + .2, ρ = .6 + .2 tanh x.

    l = x² − ½x⁴ + .2x; from 0, times uniform on [0, 2.5].
    """
    return snapshots(
        "well_1d", m, random_state,
        ordering=lambda x: _well(x, 0.2),
        drift=lambda x: _well_drift(x, 0.2),
        noise=lambda x: 0.6 + 0.2 * np.tanh(x[:, 0]),
        start=[0.0], density=UniformTimes(2.5),
    )  # fmt: skip


def well_snapshots(m: int = 2000, random_state: Seed = None) -> Problem:
    """The process of `tilted_well` from N((.05, 0), .15²I), seen at the times ½, 1, … 3 only.

    A seventh of the samples is that of the start, at time 0, which ``start`` marks; each time has about as many.
    """

    def schedule(m: int, _: np.random.Generator) -> Array:
        return np.asarray(0.5 * np.sort(np.arange(m) % (_SNAPSHOTS + 1)), dtype=np.float64)

    return cloud_snapshots(
        "well_snapshots", m, random_state,
        ordering=lambda x: _well(x, 0.3),
        drift=lambda x: _well_drift(x, 0.3),
        noise=_tilted_noise,
        mean=[0.05, 0.0], deviation=0.15, schedule=schedule, least=_SNAPSHOTS + 1,
    )  # fmt: skip


def well_ou(m: int = 2000, random_state: Seed = None, *, dimension: int = 3) -> Problem:
    """A double well in one coordinate, Ornstein–Uhlenbeck in all others: drift (2x − 2x³, −1.5y_k), ρ = .6.

    l = x² − ½x⁴ − .75 Σ_k y_k²; from (.05, 0, …), times uniform on [0, 3]. ``dimension``: of all coordinates.
    """
    n = _validation.count(dimension, "dimension", 1)
    return snapshots(
        "well_ou", m, random_state,
        ordering=_well,
        drift=_well_drift,
        noise=constant(0.6),
        start=[0.05] + [0.0] * (n - 1), density=UniformTimes(3.0),
    )  # fmt: skip


def three_wells(m: int = 2000, random_state: Seed = None) -> Problem:
    """Three wells about a maximum of the potential: l = ⅔(x³ − 3xy²) + ½r² − ½r⁴, ρ = .6.

    Drift (2(x² − y²) + (1 − 2r²)x, −4xy + (1 − 2r²)y). The wells are at radius 1.37 and the angles 0, ±120°, the
    barriers of height .87 at radius .37 between them. From 0, times uniform on [0, 3].
    """

    def ordering(x: Array) -> Array:
        r2 = (x**2).sum(axis=1)
        return 2 / 3 * (x[:, 0] ** 3 - 3 * x[:, 0] * x[:, 1] ** 2) + 0.5 * r2 - 0.5 * r2**2

    def drift(x: Array) -> Array:
        r2 = (x**2).sum(axis=1, keepdims=True)
        cubic = np.stack([2 * (x[:, 0] ** 2 - x[:, 1] ** 2), -4 * x[:, 0] * x[:, 1]], axis=1)
        return cubic + (1 - 2 * r2) * x

    return snapshots(
        "three_wells", m, random_state,
        ordering=ordering,
        drift=drift,
        noise=constant(0.6),
        start=[0.0, 0.0], density=UniformTimes(3.0),
    )  # fmt: skip


def noise_switch(m: int = 2000, random_state: Seed = None) -> Problem:
    """A double well on a line whose sides differ only by their noise: drift 2x − 2x³, ρ = .6 + .25 tanh 2x.

    l = x² − ½x⁴; the noise is .36 in the left well and .84 in the right. From 0, times uniform on [0, 2.5].
    """
    return snapshots(
        "noise_switch", m, random_state,
        ordering=_well,
        drift=_well_drift,
        noise=lambda x: 0.6 + 0.25 * np.tanh(2 * x[:, 0]),
        start=[0.0], density=UniformTimes(2.5),
    )  # fmt: skip


def unequal_wells(m: int = 2000, random_state: Seed = None) -> Problem:
    """A narrow and a wide well: l = 1.6 e^{−‖x−a‖²/(2·.5²)} + 1.2 e^{−‖x−b‖²/2} − .05‖x‖², ρ = .55.

    a = (−1.2, 0), b = (1.3, .4); the rates at their bottoms are about 6.4 and 1.2. From (−.1, 0) between them, times
    uniform on [0, 4].
    """
    centers, heights, widths = np.array([[-1.2, 0.0], [1.3, 0.4]]), (1.6, 1.2), (0.5, 1.0)

    def bumps(x: Array) -> list[Array]:
        """Both of them at x, (p, 1) each."""
        return [
            height * np.exp(-((x - center) ** 2).sum(axis=1, keepdims=True) / (2 * width**2))
            for center, height, width in zip(centers, heights, widths, strict=True)
        ]

    def ordering(x: Array) -> Array:
        return np.sum(bumps(x), axis=0)[:, 0] - 0.05 * (x**2).sum(axis=1)

    def drift(x: Array) -> Array:
        pulls = zip(bumps(x), centers, widths, strict=True)
        return np.sum([bump * (center - x) / width**2 for bump, center, width in pulls], axis=0) - 0.1 * x

    return snapshots(
        "unequal_wells", m, random_state,
        ordering=ordering,
        drift=drift,
        noise=constant(0.55),
        start=[-0.1, 0.0], density=UniformTimes(4.0),
    )  # fmt: skip


def wide_start(m: int = 2000, random_state: Seed = None) -> Problem:
    """One well, from a distribution wider than it: drift (−1.5x, −.7y), ρ = .6, from N((1, −.5), 1.2²I).

    l = −.75x² − .35y². A quarter of the samples is that of the start, at time 0, which ``start`` marks; the times of
    the others are uniform on [0, 2].
    """
    rates = np.array([1.5, 0.7])

    def schedule(m: int, rng: np.random.Generator) -> Array:
        times = rng.uniform(0, 2.0, m)
        times[: m // 4] = 0.0
        return times

    return cloud_snapshots(
        "wide_start", m, random_state,
        ordering=lambda x: -0.5 * (x**2 @ rates),
        drift=lambda x: -rates * x,
        noise=constant(0.6),
        mean=[1.0, -0.5], deviation=1.2, schedule=schedule, least=4,
    )  # fmt: skip
