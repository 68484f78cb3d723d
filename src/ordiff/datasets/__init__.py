"""Problems whose dynamics are known, to test and show what operators and learning do; `simulate` makes others.

Lengths and times are plain numbers: a drift is in lengths per time, a noise in lengths per √time, an ordering whose
gradient is the drift in lengths² per time.

`manifolds` has curved spaces on grids; `processes`, `wells`, `landscapes` and `turning` have processes observed by
snapshots.
"""

from ordiff._simulation import simulate
from ordiff.datasets._problem import Problem
from ordiff.datasets.landscapes import bent_valley, far_start, fast_slow, mueller_brown, ring, saddle
from ordiff.datasets.manifolds import spiral, torus
from ordiff.datasets.processes import double_well, limit_cycle, nonlinear, ornstein_uhlenbeck, sphere, valley
from ordiff.datasets.turning import (
    linear,
    lotka_volterra,
    repressilator,
    tensor_ou,
    toggle_switch,
    turning,
    van_der_pol,
)
from ordiff.datasets.wells import (
    noise_switch,
    three_wells,
    tilted_well,
    unequal_wells,
    well_1d,
    well_ou,
    well_snapshots,
    wide_start,
)

__all__ = [
    "Problem", "bent_valley", "double_well", "far_start", "fast_slow", "limit_cycle", "linear", "lotka_volterra",
    "mueller_brown", "noise_switch", "nonlinear", "ornstein_uhlenbeck", "repressilator", "ring", "saddle", "simulate",
    "sphere", "spiral", "tensor_ou", "three_wells", "tilted_well", "toggle_switch", "torus", "turning", "unequal_wells",
    "valley", "van_der_pol", "well_1d", "well_ou", "well_snapshots", "wide_start",
]  # fmt: skip
