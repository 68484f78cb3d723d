"""The time of one step, given or chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from ordiff import _validation, tuning
from ordiff._validation import Array
from ordiff.geometry import usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.kernel.kernel import Kernel


def choose_step(
    kernel: Kernel,
    graph: NeighborGraph,
    density: Array,
    eps: Any = "auto",
    *,
    alpha: float = 1.0,
    random_state: int | None = 0,
) -> tuple[float, dict[str, Any]]:
    """The step ε and its settings; for "auto" these hold the interval of valid steps and the reason.

    If no step is valid, a chain that moves is preferred to steps of the right size: ε becomes at least
    min(ε_low, ε_half), with ε_low the least step at which cells move, and ε_half = median_i r_i²/b_i the one that
    reaches half of the neighbours (r_i the median distance to the neighbours of cell i, b_i its bandwidth).
    """
    if not isinstance(eps, str):
        step = _validation.positive(eps, "eps")
        return step, {"eps": step}
    _validation.option(eps, "eps", ("auto",))
    with _validation.silent():
        choice = tuning.choose_eps(kernel, graph, density, alpha, random_state=random_state)
    step = choice.eps
    if not choice.valid:
        _, distances = graph.nearest(usual_neighbors(graph, graph.n_points), pad=True)
        half = np.median(distances, axis=1) ** 2 / kernel.bandwidth_on(graph).diffusion()
        step = max(step, min(choice.low, float(np.median(half))))
        _validation.warn(
            f"{choice.message} The least step at which cells move is taken, eps = {step:.3g}: directions are those of "
            "the ordering, sizes are too small. Raise n_neighbors, or take fewer coordinates (n_pcs)."
        )
    return step, {"eps": step, "eps_low": choice.low, "eps_high": choice.high, "eps_reason": choice.message}
