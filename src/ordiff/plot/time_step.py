"""The curves behind the choice of a time step."""

from __future__ import annotations

from typing import Any

import numpy as np

from ordiff.plot.style import BLUE, GREEN, PURPLE, RED, axes_or_new
from ordiff.tuning import StepChoice


def step_choice(choice: StepChoice, ax: Any = None) -> Any:
    """The curves behind a choice of the time step: limits, error and semigroup error against ε. Returns the Axes."""
    ax = axes_or_new(ax, 7.6, 4.2)
    error = np.hypot(choice.roughness, choice.bias)
    curves = (
        (error, {"color": BLUE, "lw": 2, "label": "estimated error of L f"}),
        (choice.roughness, {"color": BLUE, "ls": ":", "label": "its roughness"}),
        (choice.bias, {"color": BLUE, "ls": "--", "label": "its bias"}),
        (choice.semigroup_error, {"color": PURPLE, "label": "semigroup error"}),
        (choice.p_max, {"color": RED, "label": "p_max, 90% quantile"}),
        (1 - choice.resolution + 1e-6, {"color": GREEN, "label": "mass beyond the graph, 90% quantile"}),
    )
    for values, line in curves:
        ax.loglog(choice.steps, values, **line)
    if choice.valid:
        ends = (max(choice.low, choice.steps[0]), min(choice.high, choice.steps[-1]))
        ax.axvspan(*ends, color="0.9", zorder=0, label="valid steps")
    ax.axvline(choice.eps, color="k", lw=1)
    ax.annotate(f" ε = {choice.eps:.3g}", (choice.eps, 0.98), xycoords=("data", "axes fraction"), va="top")
    ax.set(xlabel="time step ε", ylabel="", ylim=(1e-4, None), title="choice of the time step")
    ax.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))
    return ax
