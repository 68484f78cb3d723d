"""Curves of a fitted model: noise, loss and likelihood along one variable, and estimates against the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array
from ordiff.plot.binning import loss_range, running, without_spikes
from ordiff.plot.style import BLUE, RED, axes_or_new, marker_size, noise_unit, units

if TYPE_CHECKING:
    from ordiff.learning.uncertainty import LikelihoodProfile
    from ordiff.model import SnapshotSDE


def noise(
    model: SnapshotSDE,
    ax: Any = None,
    *,
    against: ArrayLike | None = None,
    xlabel: str = "ordering l",
    truth: ArrayLike | None = None,
    length: str = "",
    time: str = "",
) -> Any:
    """The noise against the ordering (or ``against``), its band of ±2 standard deviations, and the truth if known; a
    noise that is the same everywhere as a number with its interval. Returns the Axes."""
    if is_constant(model):
        return _one_noise(model, ax, truth, units(noise_unit(length, time)))
    ax = axes_or_new(ax)
    x = model.ordering_ if against is None else _validation.nodes(against, len(model.noise_), "against")
    ax.scatter(x, model.noise_, s=marker_size(len(x)), color=BLUE, alpha=0.35, linewidths=0, rasterized=True)
    log = np.log(model.noise_)
    std = model.log_noise_std_
    if np.isfinite(std).all() and (std > 0).any():
        at, low, middle, high = running(x, np.exp(log - 2 * std), model.noise_, np.exp(log + 2 * std))
        ax.fill_between(at, low, high, color=BLUE, alpha=0.2, lw=0, label="±2 standard deviations")
    else:
        at, middle = running(x, model.noise_)
    ax.plot(at, middle, color=BLUE, lw=1.8, label="learned, median")
    if truth is not None:
        line = running(x, _validation.nodes(truth, len(x), "truth"))
        ax.plot(*line, color=RED, lw=1.6, ls="--", label="truth")
    top = 1.15 * float(max(np.quantile(model.noise_, 0.995), middle.max()))  # not the range of one outlier
    if truth is not None:
        top = max(top, 1.05 * float(line[1].max()))
    ax.set(xlabel=xlabel, ylabel=f"noise ρ{units(noise_unit(length, time))}", ylim=(0, top))
    ax.legend(fontsize=7, frameon=False)
    return ax


def is_constant(model: SnapshotSDE) -> bool:
    """Whether the noise is the same at all samples."""
    return bool(np.ptp(model.noise_) <= 1e-9 * model.noise_.max())


def _one_noise(model: SnapshotSDE, ax: Any, truth: ArrayLike | None, unit: str) -> Any:
    """One number on a line, with its 95% interval."""
    ax = axes_or_new(ax, 5.2, 2.2)
    value, std = float(model.noise_[0]), float(model.log_noise_std_[0])
    known = np.isfinite(std) and std > 0
    low, high = (value * np.exp(-1.96 * std), value * np.exp(1.96 * std)) if known else (value, value)
    ax.plot([low, high], [0, 0], color=BLUE, lw=5, alpha=0.35, solid_capstyle="butt", label="95% interval")
    ax.plot(value, 0, "o", color=BLUE, ms=8, label="learned" if isinstance(model.noise, str) else "given")
    ends = [low, high]
    if truth is not None:
        true = float(np.mean(_validation.nodes(truth, len(model.noise_), "truth")))
        ax.axvline(true, color=RED, ls="--", lw=1.6, label="truth")
        ends.append(true)
    margin = 0.6 * max(max(ends) - min(ends), 0.1 * value)
    ax.set(
        xlabel=f"noise ρ{unit}, the same everywhere",
        yticks=[],
        ylim=(-1, 1.6),
        xlim=(min(ends) - margin, max(ends) + margin),
    )
    interval = f", 95% interval {low:.4g} to {high:.4g}" if known else ""
    ax.set_title(f"ρ = {value:.4g}{interval}", fontsize=10)
    ax.legend(fontsize=7, frameon=False, ncols=3, loc="upper center")
    return ax


def loss_label(model: SnapshotSDE) -> str:
    """What the optimiser minimised, in words."""
    return "loss (nats per sample)" if hasattr(model, "states_") else "misfit of the moments"


def history(model: SnapshotSDE, ax: Any = None) -> Any:
    """The loss over the evaluations. It jumps where states or smoothness are chosen anew; steps of a line search that
    went far are left out. Returns the Axes."""
    ax = axes_or_new(ax, 5.2, 3.6)
    loss = np.asarray(model.history_, dtype=np.float64)
    ax.set(xlabel="evaluation", ylabel=loss_label(model))
    if loss.size:
        low, high = loss_range(loss)
        shown = np.flatnonzero(without_spikes(loss) <= high)
        ax.plot(shown + 1, loss[shown], ".-", color=BLUE, lw=1, ms=3)
        ax.set_ylim(low, high)
    ax.set_title(f"{len(loss)} evaluations, {'converged' if model.converged_ else 'NOT converged'}", fontsize=10)
    ax.grid(alpha=0.3)
    return ax


def profile(
    result: LikelihoodProfile, ax: Any = None, *, truth: float | None = None, label: str = "noise level"
) -> Any:
    """The likelihood along one parameter, with its 95% interval. Returns the Axes."""
    ax = axes_or_new(ax, 5.2, 3.8)
    ax.plot(result.levels, result.nats, "o-", color=BLUE, lw=1.5, ms=4, label="all other parameters refitted")
    ax.axhline(1.92, color="0.5", ls=":", label="1.92 nats: ends of the 95% interval")
    low, high = result.interval
    ax.axvspan(max(low, result.levels[0]), min(high, result.levels[-1]), color=BLUE, alpha=0.12, lw=0)
    ax.axvline(result.best, color=BLUE, lw=1)
    if truth is not None:
        ax.axvline(truth, color=RED, ls="--", label="truth")
    ax.set(xlabel=label, ylabel="nats below the maximum", ylim=(min(-0.2, float(result.nats.min())), None))
    ax.legend(fontsize=7, frameon=False)
    return ax


def truth(true: ArrayLike, estimate: ArrayLike, ax: Any = None, *, std: ArrayLike | None = None, name: str = "") -> Any:
    """True against estimated values, with the diagonal. Returns the Axes."""
    ax = axes_or_new(ax, 4.4, 4.2)
    x = np.asarray(true, dtype=np.float64)
    y = _validation.nodes(estimate, len(x), "estimate")
    if std is not None:
        ax.errorbar(x, y, 2 * np.asarray(std), fmt="none", ecolor=BLUE, alpha=0.12, elinewidth=0.6, rasterized=True)
    ax.scatter(x, y, s=marker_size(len(x)), color=BLUE, alpha=0.5, linewidths=0, rasterized=True)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    ax.plot(ends, ends, color=RED, ls="--", lw=1.2, label="exact")
    size = float(np.sqrt(np.mean(x**2)))
    error = float(np.sqrt(np.mean((y - x) ** 2))) / size if size > 0 else float("nan")
    ax.set(xlabel=f"true {name}".strip(), ylabel=f"learned {name}".strip())
    ax.set_title(f"relative error {error:.1%}, correlation {_correlation(x, y):.4f}", fontsize=10)
    ax.legend(fontsize=7, frameon=False)
    return ax


def _correlation(x: Array, y: Array) -> float:
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) > 0 and np.ptp(y) > 0 else float("nan")
