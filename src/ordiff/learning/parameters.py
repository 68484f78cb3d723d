"""What is learned: fields on the states, each by its coefficients.

A `ParameterBlock` is one learned quantity. Its coefficients a give z = U a on the states (U the identity, a column of
ones, or a basis), and z gives the quantity: z itself for an ordering, exp(z) for what is positive (noise, speed, scale,
eps, density), with z kept within a limit of its centre by a smooth limiter, √(exp(2z) + floor²) for a noise field that
the states do not resolve below a floor, and exp(centre + z)/Σ exp(centre + z) for the masses of a start. `Parameters`
puts the blocks together: from one vector of coefficients to `Dynamics`, and from its gradient back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ordiff._validation import Array
from ordiff.learning.likelihood import Dynamics, DynamicsGradient
from ordiff.learning.penalties import RelativeRoughness
from ordiff.learning.scores import Directions
from ordiff.learning.tensor import metric_slopes

# log of what is positive stays within a limit of where it started, unless said a factor of 30; the limiter
# z/(1 + (z/limit)^p)^{1/p} hardly changes what is well within.
_LIMIT, _SHARPNESS = float(np.log(30.0)), 8


@dataclass(frozen=True, eq=False)
class ParameterBlock:
    """One learned quantity: ``target`` (and which of several, ``index``) by coefficients in a basis.

    basis: U (N, K), (d N, K) of a rotation; None for values, one coefficient a state. ``centre`` (a number or (N,)) is
    the logarithm of what a positive quantity is near, ``limit`` how far its logarithm may be from there, ``floor`` what
    it stays above. penalty: (K, K) or (K,), the quadratic form A of the regulariser aᵀA a; or ``relative``, that of an
    ordering relative to the noise. unit: the size of a coefficient that makes a difference, ρ² for an ordering.
    """

    target: str
    basis: Array | None
    index: int = 0
    centre: Any = 0.0
    penalty: Any = None
    strength: float = 0.0
    unit: float = 1.0
    floor: float = 0.0
    limit: float = _LIMIT
    relative: RelativeRoughness | None = None
    lower: tuple[tuple[Array, float], ...] = ()  # further quadratic forms (K, K), with their strengths
    most_lower: float = np.inf  # what those of a rotation stay below

    @property
    def positive(self) -> bool:
        return self.target not in ("ordering", "rotation", "tensor", "start")

    def size(self, n_states: int) -> int:
        return n_states if self.basis is None else self.basis.shape[1]

    @property
    def forms(self) -> list[Array]:
        """All quadratic forms of a block with a diagonal penalty, (K, K) each."""
        return [np.diag(self.penalty), *(A for A, _ in self.lower)]

    @property
    def strengths(self) -> Array:
        """Those of all quadratic forms, (1 + number of lower ones,)."""
        return np.array([self.strength, *(strength for _, strength in self.lower)])

    def with_strengths(self, strengths: Array) -> ParameterBlock:
        """The block with these strengths of its forms."""
        first, *others = (float(strength) for strength in strengths)
        return replace(self, strength=first, lower=tuple((A, s) for (A, _), s in zip(self.lower, others, strict=True)))

    def field(self, a: Array) -> tuple[Array, Array]:
        """The quantity on the states, (N,) or (d N,), and its derivative by z."""
        z = a if self.basis is None else self.basis @ a
        if self.target == "start":
            mass = np.exp(self.centre + z - np.max(self.centre + z))
            return mass / mass.sum(), mass / mass.sum()
        if not self.positive:
            return z, np.ones_like(z)
        away = z - self.centre
        beyond = 1 + (away / self.limit) ** _SHARPNESS
        value = np.exp(self.centre + away * beyond ** (-1 / _SHARPNESS))
        above = np.hypot(value, self.floor)
        return above, beyond ** (-1 - 1 / _SHARPNESS) * value * (value / above)

    def exponent(self, value: Array) -> Array:
        """The z of a positive quantity, where it is above its floor; else that of a quantity a little above it."""
        return 0.5 * np.log(np.maximum(value**2 - self.floor**2, (0.3 * self.floor) ** 2))

    def pull(self, d_field: Array, slope: Array) -> Array:
        """The derivative by the coefficients, from that by the quantity."""
        d_z = d_field * slope
        return d_z if self.basis is None else self.basis.T @ d_z

    def directions(self, slope: Array) -> Array:
        """∂(quantity)/∂a, (N, K)."""
        return np.diag(slope) if self.basis is None else self.basis * slope[:, None]

    def roughness(self, a: Array) -> tuple[float, Array]:
        """The regulariser aᵀA a without its strength, and its derivative."""
        if self.penalty is None:
            return 0.0, np.zeros_like(a)
        y = self.penalty * a if self.penalty.ndim == 1 else self.penalty @ a
        return float(a @ y), 2.0 * y


@dataclass(frozen=True, eq=False)
class Parameters:
    """The learned blocks over a base of dynamics that stay as they are."""

    blocks: tuple[ParameterBlock, ...]
    base: Dynamics
    alpha: float = 1.0

    @property
    def slices(self) -> list[slice]:
        ends = np.cumsum([0, *(block.size(self.base.noise.size) for block in self.blocks)])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    @property
    def size(self) -> int:
        return self.slices[-1].stop

    @property
    def units(self) -> Array:
        """The unit of every coefficient, (K,)."""
        return np.repeat([block.unit for block in self.blocks], [part.stop - part.start for part in self.slices])

    def with_strengths(self, strengths: tuple[Array, ...]) -> Parameters:
        """The same with these strengths of each block's penalties."""
        pairs = zip(self.blocks, strengths, strict=True)
        return replace(self, blocks=tuple(block.with_strengths(strength) for block, strength in pairs))

    def dynamics(self, a: Array) -> Dynamics:
        """The dynamics of these coefficients."""
        new: dict[str, Any] = {
            "orderings": list(self.base.orderings),
            "slopes": list(self.base.slopes),
            "local_slopes": list(self.base.local_slopes),
        }
        for block, part in zip(self.blocks, self.slices, strict=True):
            value, _ = block.field(a[part])
            match block.target:
                case "ordering":
                    new["orderings"][block.index] = value
                case "noise":
                    new["noise"] = value
                case "start":
                    new["initial"] = value
                case "speed":
                    new["slopes"][block.index] = new["slopes"][block.index] * value
                case "scale":
                    new["slopes"][block.index] = new["slopes"][block.index] / value
                case "local_speed":
                    new["local_slopes"][block.index] = self.base.local_slopes[block.index] * value
                case "rotation":
                    for c, slope in enumerate(value.reshape(-1, self.base.noise.size)):
                        new["local_slopes"][block.index + c] = slope
                case "tensor":
                    for k, slope in enumerate(metric_slopes(value, self.base.eps)[0], block.index):
                        new["local_slopes"][k] = np.full(self.base.noise.size, slope)
                case "eps":
                    new["eps"] = float(value[0])
                case "density":
                    new["log_weight"] = -self.alpha * np.log(value)
        for name in ("orderings", "slopes", "local_slopes"):
            new[name] = tuple(new[name])
        return replace(self.base, **new)

    def gradient(self, a: Array, by: DynamicsGradient) -> Array:
        """The derivative by the coefficients, from that by the dynamics."""
        dynamics = self.dynamics(a)
        out = np.empty(self.size)
        for block, part in zip(self.blocks, self.slices, strict=True):
            value, slope = block.field(a[part])
            out[part] = block.pull(self._by_field(block, value, dynamics, by), slope)
        return out

    def _by_field(self, block: ParameterBlock, value: Array, dynamics: Dynamics, by: DynamicsGradient) -> Array:
        k = block.index
        match block.target:
            case "ordering":
                return by.orderings[k]
            case "noise":
                return by.noise
            case "start":
                return by.initial - value @ by.initial
            case "speed":
                return by.slopes[k] * dynamics.slopes[k] / value
            case "scale":
                return -by.slopes[k] * dynamics.slopes[k] / value
            case "local_speed":
                return by.local_slopes[k] * self.base.local_slopes[k]
            case "rotation":
                return np.concatenate(by.local_slopes[k : k + value.size // self.base.noise.size])
            case "tensor":
                sums = np.array([slope.sum() for slope in by.local_slopes[k : k + value.size]])
                return metric_slopes(value, self.base.eps)[1].T @ sums
            case "eps":
                out = np.zeros_like(value)
                out[0] = by.eps
                return out
            case _:
                return -self.alpha * by.log_weight / value

    def directions(self, a: Array, without: str = "") -> Directions:
        """∂(dynamics)/∂a; ``without`` the blocks of one target."""
        base = self.base
        found: dict[str, list[Array | None]] = {
            "orderings": [None] * len(base.orderings),
            "slopes": [None] * len(base.slopes),
            "local_slopes": [None] * len(base.local_slopes),
        }
        noise: Array | None = None
        initial: Array | None = None
        together: list[tuple[int, Array]] = []
        dynamics = self.dynamics(a)
        for block, part in zip(self.blocks, self.slices, strict=True):
            if block.target == without:
                continue
            value, slope = block.field(a[part])
            U, k = block.directions(slope), block.index
            match block.target:
                case "ordering":
                    found["orderings"][k] = U
                case "noise":
                    noise = U
                case "start":
                    initial = U - value[:, None] * U.sum(axis=0)
                case "speed":
                    found["slopes"][k] = U * (dynamics.slopes[k] / value)[:, None]
                case "local_speed":
                    found["local_slopes"][k] = U * base.local_slopes[k][:, None]
                case "rotation":
                    together.append((k, U.reshape(-1, base.noise.size, U.shape[1])))
                case "tensor":
                    changes = metric_slopes(value, base.eps)[1] @ U
                    together.append((k, np.repeat(changes[:, None, :], base.noise.size, axis=1)))
                case _:
                    raise ValueError(f"scores by {block.target} are not available.")
        return Directions(
            noise=noise,
            initial=initial,
            together=tuple(together),
            **{name: tuple(parts) for name, parts in found.items()},
        )

    def roughness(self, a: Array) -> tuple[float, Array]:
        """All regularisers with their strengths, and the derivative by the coefficients."""
        value, out = 0.0, np.zeros_like(a)
        for block, part in zip(self.blocks, self.slices, strict=True):
            for A, strength in block.lower:
                value += strength * float(a[part] @ A @ a[part])
                out[part] += 2 * strength * (A @ a[part])
            if block.relative is None:
                R, d = block.roughness(a[part])
            else:
                R, d, by_noise = block.relative.value_and_gradient(a[part], self.noise(a))
                found = self.part("noise")
                if found is not None:
                    noise_block, noise_part = found
                    slope = noise_block.field(a[noise_part])[1]
                    out[noise_part] += block.strength * noise_block.pull(by_noise, slope)
            value += block.strength * R
            out[part] += block.strength * d
        return value, out

    def noise(self, a: Array) -> Array:
        """The noise of these coefficients, (N,)."""
        found = self.part("noise")
        return self.base.noise if found is None else found[0].field(a[found[1]])[0]

    def part(self, target: str) -> tuple[ParameterBlock, slice] | None:
        """The first block of a target, and its coefficients."""
        pairs = zip(self.blocks, self.slices, strict=True)
        return next(((block, part) for block, part in pairs if block.target == target), None)
