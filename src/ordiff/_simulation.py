"""Simulation of stochastic differential equations, dx = μ(x) dt + ρ(x) dW (Itô)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array

Seed = int | np.random.Generator | None
FieldFunction = Callable[[Array], Array]  # of points (p, n): values (p,) or vectors (p, n)

# Steps to the last time, unless the step is given.
_STEPS = 2000


def simulate(
    drift: FieldFunction,
    noise: float | FieldFunction,
    start: ArrayLike,
    times: ArrayLike,
    *,
    step: float | None = None,
    project: FieldFunction | None = None,
    random_state: Seed = None,
) -> Array:
    """Snapshots of dx = μ(x) dt + ρ(x) dW (Itô): for each time a path of its own, observed at that time, (m, n).

    drift: (p, n) → (p, n). noise: a number, or (p, n) → (p,). start: a point (n,) or one for each path (m, n). All
    paths advance together by ``step`` (the last time / 2000 by default); the last step of each is the fraction that
    ends at its time. Euler–Maruyama, x + μh + ρ√h ξ; on a line with noise that depends on x, Milstein, which adds
    ½ρρ'h(ξ² − 1). Either way the law is right to O(h).

    project: the closest point of a manifold, (p, n) → (p, n), applied after every step. The projected steps diffuse
    by ½ρ²Δ on the manifold; their drift is the tangent part of μ.

    >>> import numpy as np, ordiff as od
    >>> X = od.datasets.simulate(lambda x: -x, 0.5, start=[1.0, 0.0], times=np.linspace(0, 2, 500), random_state=0)
    >>> X.shape, X[0].tolist()
    ((500, 2), [1.0, 0.0])
    """
    _validation.function(drift, "drift")
    if project is not None:
        _validation.function(project, "project")
    t, first = _checked(times, start)
    h = (t.max() or 1.0) / _STEPS if step is None else _validation.positive(step, "step")
    rng = _validation.generator(random_state)
    order = np.argsort(-t, kind="stable")  # the paths still under way are the first ones
    left = t[order]
    x = np.broadcast_to(first, (t.size, first.shape[1]))[order].copy()
    while left[0] > 0:
        p = int(np.count_nonzero(left > 0))
        x[:p] = _step(drift, noise, x[:p], np.minimum(left[:p], h)[:, None], rng)
        if project is not None:
            x[:p] = _evaluated(project, x[:p], "project", (p, x.shape[1]))
        left = np.where(left > h * (1 + 1e-9), left - h, 0.0)  # no last step of the size of a rounding
    if not np.isfinite(x).all():
        raise ValueError("the paths diverge to infinity: use a smaller step, or a drift that confines them.")
    out = np.empty_like(x)
    out[order] = x
    return out


def _checked(times: ArrayLike, start: ArrayLike) -> tuple[Array, Array]:
    """Times (m,), and the start (1, n) or (m, n)."""
    t = _validation.nodes(times, np.size(times), "times")
    if t.size == 0 or (t < 0).any():
        raise ValueError(f"times must be one or more numbers from 0; got {'none' if t.size == 0 else t.min()}.")
    first = np.asarray(start)
    if first.ndim == 2 and first.shape[0] != t.size:
        raise ValueError(f"start has {first.shape[0]} points, but there are {t.size} times: give one point or as many.")
    return t, _validation.points(np.atleast_2d(first), "start", 1)


def _step(drift: FieldFunction, noise: float | FieldFunction, x: Array, h: Array, rng: np.random.Generator) -> Array:
    """One step of length h (p, 1) from x (p, n): Euler–Maruyama, or Milstein on a line."""
    p, n = x.shape
    dW = np.sqrt(h) * rng.standard_normal((p, n))
    rho = _noise_at(noise, x)
    new = x + _evaluated(drift, x, "drift", (p, n)) * h + rho * dW
    if n == 1 and callable(noise):
        # ρ' by the difference to the step without drift: the derivative-free Milstein scheme, error O(h^{3/2}) a step
        ahead = _noise_at(noise, x + rho * np.sqrt(h))
        new += 0.5 * (ahead - rho) * (dW**2 - h) / np.sqrt(h)
    return new


def _noise_at(noise: float | FieldFunction, x: Array) -> Array:
    """ρ (p, 1)."""
    if not callable(noise):
        rho = np.full((len(x), 1), _validation.number(noise, "noise"))
    else:
        rho = _evaluated(noise, x, "noise", (len(x),))[:, None]
    if (rho < 0).any():
        raise ValueError(f"noise must not be negative; it is {rho.min():g} at x = {x[np.argmin(rho)].tolist()}.")
    return rho


def _evaluated(function: FieldFunction, x: Array, name: str, shape: tuple[int, ...]) -> Array:
    """function(x), of this shape and finite."""
    values = np.asarray(function(x), dtype=np.float64)
    if values.shape == () and len(shape) == 1:
        values = np.full(shape, float(values))
    if values.shape != shape:
        raise ValueError(f"{name}(x) must have shape {shape} for x of shape {x.shape}; got shape {values.shape}.")
    bad = ~np.isfinite(values if values.ndim == 1 else values.sum(axis=1))
    if bad.any():
        raise ValueError(
            f"{name}(x) is not finite at x = {x[np.argmax(bad)].tolist()}: if the paths diverge, use a smaller step."
        )
    return values
