"""Profiles: the radial function h of K = h(u), and how much diffusion it makes.

A profile is one small class with the logarithm of h. To add one, subclass `Profile`, write `log_value`, and pass an
instance as ``Kernel(profile=...)``; give it a name in `PROFILES` to make the name work too. `noise` means the same
for each of them: the kernel divides u by the second-moment factor σ_h².
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import exp, lgamma

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array


class Profile(ABC):
    """A radial function h(u), decreasing to 0; u ≥ 0 is the squared distance over ε b."""

    @abstractmethod
    def log_value(self, u: Array) -> Array:
        """log h(u), elementwise; −inf where h is 0. ``u`` may be overwritten."""

    def second_moment(self, dimension: int) -> float:
        """σ_h² = (1/d) ∫ r^{d+1} h(r²) dr / ∫ r^{d−1} h(r²) dr, by quadrature unless a profile knows it."""
        from scipy.integrate import quad

        def moment(power: int) -> float:
            # full_output: a failure is returned, not warned of
            value, error, *_ = quad(
                lambda r: r**power * np.exp(self.log_value(np.array([r * r]))[0]),
                0,
                np.inf,
                epsabs=0.0,
                limit=200,
                full_output=1,
            )
            if not (0 < value < np.inf and error < 1e-6 * value):
                raise ValueError(
                    f"{type(self).__name__} has no finite second moment in dimension {dimension}: it must decay faster."
                )
            return float(value)

        return moment(dimension + 1) / moment(dimension - 1) / dimension


@dataclass(frozen=True)
class Gaussian(Profile):
    """h(u) = exp(−u/2), σ_h² = 1."""

    def log_value(self, u: Array) -> Array:
        u *= -0.5
        return u

    def second_moment(self, dimension: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Compact(Profile):
    """h(u) = (1 − u)₊^p, zero beyond u = 1; σ_h² = 1/(d + 2p + 2)."""

    power: float = 3.0

    def __post_init__(self) -> None:
        _validation.positive(self.power, "power")

    def log_value(self, u: Array) -> Array:
        with np.errstate(divide="ignore"):
            return self.power * np.log(np.maximum(1.0 - u, 0.0))

    def second_moment(self, dimension: int) -> float:
        return 1.0 / (dimension + 2 * self.power + 2)


@dataclass(frozen=True)
class SuperGaussian(Profile):
    """h(u) = exp(−u²), flatter inside and steeper outside; σ_h² = Γ((d+2)/4) / (d Γ(d/4))."""

    def log_value(self, u: Array) -> Array:
        return -(u * u)

    def second_moment(self, dimension: int) -> float:
        return exp(lgamma((dimension + 2) / 4) - lgamma(dimension / 4)) / dimension


PROFILES: dict[str, Profile] = {"gaussian": Gaussian(), "compact": Compact(), "supergaussian": SuperGaussian()}


def as_profile(profile: str | Profile) -> Profile:
    """A profile by its name, or as it is."""
    if isinstance(profile, Profile):
        return profile
    return PROFILES[_validation.option(profile, "profile", tuple(PROFILES))]


def checked_log_values(values: ArrayLike, size: int, profile: object) -> Array:
    """What a profile makes of an array of this size."""
    array = np.asarray(values)
    if array.shape != (size,) or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{type(profile).__name__}.log_value must return one real number for each of u, shape ({size},); got "
            f"shape {array.shape} of {array.dtype}."
        )
    return array
