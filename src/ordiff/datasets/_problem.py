"""A process whose dynamics are known, and samples of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ordiff._simulation import FieldFunction
from ordiff._validation import Array, IntArray


@dataclass(frozen=True, eq=False)
class Problem:
    """Samples of a process whose dynamics are known. What a problem does not have is None.

    ordering: the values l (m,), for ``Ordering``; or, where no global one exists, a function (i, j) of index arrays,
    for ``Ordering.local``. With ``speed`` τ, ``scale`` κ and ``noise`` ρ the process is
    dx = (τ/κ)∇l dt + ρ dW, or with diffusion ½ρ²A for an ``anisotropy`` A in the basis ``jacobian``; a ``confinement``
    c is a second ordering, and adds ∇c dt.
    The snapshots of a process that starts at ``start`` were taken at ``times``, drawn from ``time_density`` on
    [0, horizon]. Where the process starts from a distribution, ``start`` marks the samples of it, which are in X with
    time 0, and the times as a whole have no density.
    ``ordering_at``, ``noise_at`` and ``drift_at`` give the truth at any points (p, n).
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
    start: Any = None  # a point (n,), or a mask (m,) of the samples at time 0
    horizon: float | None = None
    time_density: Callable[[Array], Array] | None = None  # integrates to 1 over [0, horizon]
    confinement: Array | None = None  # (m,) a second, global ordering with speed and scale 1
    phase: Array | None = None  # (m,) radians
    fate: Array | None = None  # (m,) the probability of reaching the second of two fates first
    ordering_at: FieldFunction | None = None
    noise_at: FieldFunction | None = None
    drift_at: FieldFunction | None = None
