"""The paper's figures of what is learned: the Ornstein–Uhlenbeck process and the NL process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff._validation import Array
from ordiff.plot.curves import profile, truth
from ordiff.plot.fields import field
from ordiff.plot.style import BLUE, GREEN, ORANGE, PURPLE, RED, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ordiff.experiments import Learned


def ornstein_uhlenbeck(run: Learned) -> Figure:
    """True and learned ordering of the OU process, one against the other, and the likelihood along the noise."""
    true, learned = run.ordering
    figure = new_figure(13.4, 8)
    axes = figure.subplots(2, 2)
    field(run.model, true, axes[0, 0], label="ordering l", title="A. truth")
    field(run.model, learned, axes[0, 1], label="ordering l", title="B. learned, times unknown")
    truth(true, learned, axes[1, 0], std=run.model.ordering_std_, name="ordering l")
    axes[1, 0].set_title("C. " + axes[1, 0].get_title(), fontsize=10)
    assert run.profile is not None
    profile(run.profile, axes[1, 1], truth=float(np.sqrt(2)), label="noise ρ")
    low, high = run.profile.interval
    axes[1, 1].set_title(f"D. noise {run.profile.best:.3g}, 95% interval {low:.3g} to {high:.3g}", fontsize=10)
    figure.suptitle("Ornstein–Uhlenbeck process, times unknown")
    return figure


def nonlinear_truth(run: Learned) -> Figure:
    """The true ordering and noise of the NL process."""
    figure = new_figure(10.4, 4.2)
    left, right = figure.subplots(1, 2)
    field(run.model, run.ordering[0], left, label="ordering l", title="A. true ordering")
    field(run.model, run.problem.noise, right, label="noise ρ", title="B. true noise")
    return figure


def nonlinear_results(runs: list[Learned]) -> Figure:
    """Ordering and noise of the NL process by every setting, in columns, and all of them against the truth."""
    columns = max(2, len(runs))
    figure = new_figure(4.4 * columns, 11.5)
    grid = figure.add_gridspec(3, 2 * columns)
    rho = np.asarray(runs[0].problem.noise)
    orderings, noises = figure.add_subplot(grid[2, :columns]), figure.add_subplot(grid[2, columns:])
    for k, run in enumerate(runs):
        column = slice(2 * k, 2 * k + 2)
        field(run.model, run.ordering[1], figure.add_subplot(grid[0, column]), label="ordering l", title=run.setting)
        smoothed = "" if run.noise is run.model.noise_ else ", smoothed"
        ax = field(run.model, run.noise, figure.add_subplot(grid[1, column]), label="noise ρ",
                   title=f"{run.setting}{smoothed}")  # fmt: skip
        ax.collections[0].set_clim(rho.min(), rho.max())
    _orderings_against_truth(orderings, runs)
    _noises_against_truth(noises, runs)
    figure.suptitle("NL process, times known")
    return figure


_SETTING_COLOURS = (BLUE, ORANGE, GREEN, PURPLE)


def _orderings_against_truth(ax: Any, runs: list[Learned]) -> None:
    true = runs[0].ordering[0]
    for run, colour in zip(runs, _SETTING_COLOURS, strict=False):
        ax.scatter(true, run.ordering[1], s=2, color=colour, alpha=0.4, label=run.setting, rasterized=True)
    ax.plot([0, true.max()], [0, true.max()], "--", color=RED, label="exact")
    ax.set(xlabel="true ordering", ylabel="learned ordering")
    ax.legend(fontsize=8, markerscale=4, frameon=False)


def _noises_against_truth(ax: Any, runs: list[Learned]) -> None:
    true = runs[0].ordering[0]
    for run, colour in zip(runs, _SETTING_COLOURS, strict=False):
        ax.scatter(true, run.noise, s=2, color=colour, alpha=0.25, rasterized=True)
        ax.plot(*_polynomial(true, run.noise), color=colour, lw=2, label=run.setting)
    ax.plot(*_polynomial(true, np.asarray(runs[0].problem.noise)), color=RED, lw=2, ls="--", label="truth")
    ax.set(xlabel="true ordering", ylabel="noise ρ", title="lines: polynomials of degree 6")
    ax.legend(fontsize=8, markerscale=4, frameon=False)


def _polynomial(x: Array, y: Array, degree: int = 6) -> tuple[Array, Array]:
    """A grid over x, and the least-squares polynomial of y on it."""
    fitted = np.polynomial.Polynomial.fit(x, y, degree)
    low, high = np.quantile(x, [0.005, 0.995])
    at = np.linspace(low, high, 200)
    return at, fitted(at)
