"""Snapshots of processes in landscapes of other shapes than wells: dx = ∇l dt + ρ dW."""

from __future__ import annotations

import numpy as np

from ordiff._simulation import Seed
from ordiff._validation import Array
from ordiff.datasets._problem import Problem
from ordiff.datasets._snapshots import LinearLaw, UniformTimes, constant, snapshots

# The Müller–Brown surface, U = Σ_k A_k exp(a_k u² + b_k uv + c_k v²) with u = x − x_k, v = y − y_k.
_HEIGHT = np.array([-200.0, -100.0, -170.0, 15.0])
_FORM = np.array([[-1.0, 0.0, -10.0], [-1.0, 0.0, -10.0], [-6.5, 11.0, -6.5], [0.7, 0.6, 0.7]])  # a, b, c
_CENTER = np.array([[1.0, 0.0], [0.0, 0.5], [-0.5, 1.5], [-1.0, 1.0]])


def ring(m: int = 2000, random_state: Seed = None) -> Problem:
    """A ring of minima of the potential, radius 1.5: l = −.2(r² − 2.25)², ρ = .6 + .1 tanh x.

    Drift −.8(r² − 2.25)x, with rate 3.6 across the ring and 0 along it. From (1.5, 0), times uniform on [0, 5].
    """

    def excess(x: Array) -> Array:
        return (x**2).sum(axis=1) - 1.5**2

    return snapshots(
        "ring", m, random_state,
        ordering=lambda x: -0.2 * excess(x) ** 2,
        drift=lambda x: -0.8 * excess(x)[:, None] * x,
        noise=lambda x: 0.6 + 0.1 * np.tanh(x[:, 0]),
        start=[1.5, 0.0], density=UniformTimes(5.0),
    )  # fmt: skip


def mueller_brown(m: int = 2000, random_state: Seed = None) -> Problem:
    """Bent valleys of three unequal wells: l = −U/50 for the surface U of Müller and Brown (1979), ρ = .7.

    From the upper saddle (−.822, .624), times uniform on [0, .5]. The steepest rate is about 80, so the step is 2·10⁻⁴.
    """

    def terms(x: Array) -> tuple[Array, Array, Array]:
        """A_k e^{…} (p, 4), and u, v (p, 4)."""
        u, v = (x[:, [axis]] - _CENTER[:, axis] for axis in (0, 1))
        a, b, c = _FORM.T
        return _HEIGHT * np.exp(a * u**2 + b * u * v + c * v**2), u, v

    def drift(x: Array) -> Array:
        value, u, v = terms(x)
        a, b, c = _FORM.T
        return -np.stack([(value * (2 * a * u + b * v)).sum(axis=1), (value * (b * u + 2 * c * v)).sum(axis=1)], 1) / 50

    return snapshots(
        "mueller_brown", m, random_state,
        ordering=lambda x: -terms(x)[0].sum(axis=1) / 50,
        drift=drift,
        noise=constant(0.7),
        start=[-0.822, 0.624], density=UniformTimes(0.5), step=2e-4,
    )  # fmt: skip


def saddle(m: int = 2000, random_state: Seed = None) -> Problem:
    """Away from a saddle: l = .6(x² − y²), drift (1.2x, −1.2y), ρ = .5, drawn from its exact law.

    From 0, times uniform on [0, 1.2], when the standard deviation along x is 1.33.
    """
    law = LinearLaw([0.0, 0.0], [-1.2, 1.2], 0.5)
    return snapshots(
        "saddle", m, random_state, law.ordering, law.drift, constant(law.rho),
        start=law.start, density=UniformTimes(1.2), exact=law,
    )  # fmt: skip


def bent_valley(m: int = 2000, random_state: Seed = None) -> Problem:
    """Down a valley shaped like a banana: l = −4(y − ½x²)² − ½x², ρ = .5.

    Drift (8x(y − ½x²) − x, −8(y − ½x²)), with rate 8(1 + x²) across the valley. From (2, 2), times uniform on [0, 4].
    """

    def drift(x: Array) -> Array:
        aside = 8 * (x[:, 1] - 0.5 * x[:, 0] ** 2)
        return np.stack([(aside - 1) * x[:, 0], -aside], axis=1)

    return snapshots(
        "bent_valley", m, random_state,
        ordering=lambda x: -4 * (x[:, 1] - 0.5 * x[:, 0] ** 2) ** 2 - 0.5 * x[:, 0] ** 2,
        drift=drift,
        noise=constant(0.5),
        start=[2.0, 2.0], density=UniformTimes(4.0), step=1e-3,
    )  # fmt: skip


def far_start(m: int = 2000, random_state: Seed = None) -> Problem:
    """From far away to a well in three dimensions: l = −4 Σ_i √(1 + x_i²), drift −4x_i/√(1 + x_i²), ρ = .8.

    From (4, −3, 3) at a speed of 4 in each coordinate, then the rate is 4: after 1 of 3 units of time, over which
    times are uniform, most samples are about 0.
    """
    return snapshots(
        "far_start", m, random_state,
        ordering=lambda x: -4 * np.sqrt(1 + x**2).sum(axis=1),
        drift=lambda x: -4 * x / np.sqrt(1 + x**2),
        noise=constant(0.8),
        start=[4.0, -3.0, 3.0], density=UniformTimes(3.0),
    )  # fmt: skip


def fast_slow(m: int = 2000, random_state: Seed = None) -> Problem:
    """Two rates, ten times apart: drift (−8x, −.8y), l = −4x² − .4y², ρ = .8, drawn from its exact law.

    From (1, 2), times uniform on [0, 2.5].
    """
    law = LinearLaw([1.0, 2.0], [8.0, 0.8], 0.8)
    return snapshots(
        "fast_slow", m, random_state, law.ordering, law.drift, constant(law.rho),
        start=law.start, density=UniformTimes(2.5), exact=law,
    )  # fmt: skip
