"""Whether a fit reproduces the samples: moments that it predicts per time, beside those that were observed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff.plot.style import BLUE, RED, axes_or_new, new_figure, units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ordiff.learning.check import Moment
    from ordiff.model import SnapshotSDE

# Beyond these the check does not pass.
_LIMIT = 4.0


def check(model: SnapshotSDE, *, time: str = "", moments: Sequence[Moment] | None = None) -> Figure:
    """Means and standard deviations at the times of the samples, observed and predicted, and the z of all moments.

    moments: the table of the check, when not as the model has it, but in other units or under other names.
    """
    table = model.check_.table if moments is None else moments
    means = [name for name in dict.fromkeys(row.name for row in table) if name.startswith("mean")]
    columns = len(means) + 1
    figure = new_figure(2.9 * columns + 1.2, 5.6 if means else 3.6)
    panels = figure.subplots(2 if means else 1, columns, squeeze=False)
    for k, name in enumerate(means):
        what = name.removeprefix("mean of ")
        _compare(panels[0, k], [row for row in table if row.name == name], name, time)
        rows = [row for row in table if row.name == f"variance of {what}"]
        _compare(panels[1, k], rows, f"standard deviation of {what}", time, root=True)
    check_scores(model, panels[0, -1], time=time)
    for ax in panels[1:, -1]:
        ax.axis("off")
    if means:
        panels[1, -1].legend(*panels[0, 0].get_legend_handles_labels(), loc="center", frameon=False)
    verdict = "passed" if model.check_.trusted else "NOT TRUSTED: " + model.check_.reasons[0]
    figure.suptitle(
        textwrap.fill(f"Check: {verdict}", 34 * columns), fontsize=10, color="k" if model.check_.trusted else RED
    )
    return figure


def check_scores(model: SnapshotSDE, ax: Any = None, *, time: str = "") -> Any:
    """z of all moments that were compared, against the time. Returns the Axes."""
    ax = axes_or_new(ax, 4.4, 3.4)
    table = model.check_.table
    at = _times(list(table), ax)
    z = np.array([row.z for row in table])
    ax.axhspan(-_LIMIT, _LIMIT, color="0.92", lw=0, zorder=0)
    ax.axhline(0, color="0.6", lw=0.8)
    inside = np.abs(z) <= _LIMIT
    ax.plot(at[inside], z[inside], "o", ms=3.5, color=BLUE, alpha=0.7)
    ax.plot(at[~inside], z[~inside], "o", ms=4.5, color=RED)
    largest = max(5.0, 1.1 * float(np.abs(z).max(initial=0.0)))
    ax.set(xlabel=f"time since the start{units(time)}", ylabel="z, observed − predicted", ylim=(-largest, largest))
    ax.set_title("all means and covariances" if table else "no moments were compared", fontsize=10)
    return ax


def _compare(ax: Any, rows: list[Moment], label: str, time: str, root: bool = False) -> None:
    """One moment: what was observed with two standard errors, and what is predicted."""
    at = _times(rows, ax)
    observed, predicted, z = (np.array([getattr(row, key) for row in rows]) for key in ("observed", "predicted", "z"))
    error = np.abs(np.divide(observed - predicted, z, out=np.zeros_like(z), where=z != 0))
    low, high = observed - 2 * error, observed + 2 * error
    if root:
        observed, predicted, low, high = (np.sqrt(np.maximum(v, 0.0)) for v in (observed, predicted, low, high))
    order = np.argsort(at)
    ax.plot(at[order], predicted[order], "-", color=RED, lw=1.6, label="predicted", marker="_", ms=9)
    spans = np.maximum([observed - low, high - observed], 0.0)
    ax.errorbar(at, observed, spans, fmt="o", ms=4, color=BLUE, elinewidth=1.2, label="observed, ±2 standard errors")
    ax.set(xlabel=f"time since the start{units(time)}", ylabel=label)
    ax.margins(y=0.15)


def _times(rows: list[Moment], ax: Any) -> Any:
    """Where moments are drawn; 0 when times are not known."""
    at = np.array([row.time for row in rows], dtype=np.float64)
    if at.size and np.isnan(at).all():
        ax.set_xticks([0.0], ["all times"])
    return np.nan_to_num(at)


def shortened(text: str, most: int = 140) -> str:
    """The beginning of a text that is long, and how it goes on."""
    return textwrap.shorten(text, most, placeholder=" …", break_on_hyphens=False)
