"""Curves of a fitted model: noise, loss and likelihood along one variable, and estimates against the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline

from ordiff import _validation
from ordiff._validation import Array
from ordiff.plot.binning import running, stages
from ordiff.plot.branches import branches
from ordiff.plot.embedding import samples_of
from ordiff.plot.style import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    axes_or_new,
    marker_size,
    new_figure,
    noise_unit,
    units,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ordiff.learning.uncertainty import LikelihoodProfile
    from ordiff.model import SnapshotSDE

COLOURS_OF_BRANCHES = (BLUE, RED, GREEN, PURPLE, ORANGE)


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
    """The noise against the ordering (or ``against``), and the truth if known. Returns the Axes.

    Medians and bands of ±2 standard deviations, branch by branch; a noise that is the same everywhere is a number with
    its interval.
    """
    if is_constant(model):
        return _one_noise(model, ax, truth, units(noise_unit(length, time)))
    ax = axes_or_new(ax)
    m = len(model.noise_)
    x = model.ordering_ if against is None else _validation.nodes(against, m, "against")
    std = model.log_noise_std_
    known = bool(np.isfinite(std).all() and (std > 0).any())
    band = np.where(known, std, 0.0)
    low, high = model.noise_ * np.exp(-2 * band), model.noise_ * np.exp(2 * band)
    ends: list[float] = []
    for rows, colour, name in by_branch(model, against is None):
        ax.scatter(x[rows], model.noise_[rows], s=marker_size(len(x)), color=colour, alpha=0.25, linewidths=0,
                   rasterized=True)  # fmt: skip
        at, below, middle, above = running(x[rows], low[rows], model.noise_[rows], high[rows])
        if known:
            ax.fill_between(at, below, above, color=colour, alpha=0.15, lw=0)
        ax.plot(at, middle, color=colour, lw=1.8, label=f"learned{name}")
        ends += [float(middle.max()), min(float(np.max(above)), 2 * float(middle.max()))]
    if known:
        ax.fill_between([], [], [], color="0.5", alpha=0.25, lw=0, label="±2 standard deviations")
    if truth is not None:
        line = running(x, _validation.nodes(truth, len(x), "truth"))
        ax.plot(*line, color="k", lw=1.6, ls="--", label="truth, median")
        ends.append(float(line[1].max()))
    first, last = np.quantile(x, [0.002, 0.998])  # not the range of one outlier, here as above
    margin = 0.03 * (last - first)
    ax.set(xlabel=xlabel, ylabel=f"noise ρ{units(noise_unit(length, time))}", ylim=(0, 1.1 * max(ends)),
           xlim=(first - margin, last + margin))  # fmt: skip
    ax.legend(fontsize=7, framealpha=0.7)
    return ax


def by_branch(model: SnapshotSDE, apart: bool = True) -> list[tuple[Any, str, str]]:
    """Samples, a colour and a name of each branch; of all samples when there is one, or they are not ``apart``."""
    label = branches(samples_of(model), model.ordering_) if apart else np.zeros(len(model.ordering_), int)
    n = min(int(label.max()) + 1, len(COLOURS_OF_BRANCHES))
    if n == 1:
        return [(np.arange(label.size), BLUE, "")]
    return [(np.flatnonzero(label == k), COLOURS_OF_BRANCHES[k], f", branch {k + 1}") for k in range(n)]


def trends(
    model: SnapshotSDE,
    values: ArrayLike,
    names: Sequence[str] | None = None,
    *,
    weights: Mapping[str, ArrayLike] | None = None,
    xlabel: str = "ordering l",
    bins: int = 25,
) -> Figure:
    """How quantities of the samples, such as genes, change along the ordering: a panel each. Returns the Figure.

    Parameters
    ----------
    model : SnapshotSDE
        A fitted model.
    values : array of shape (m, q)
        The quantities at the samples.
    names : sequence of str
        Of the quantities.
    weights : mapping of str to array of shape (m,)
        How much a sample counts for each curve, such as its fate probabilities by name. By default a curve for each
        branch of the ordering.
    xlabel : str
        The label of the ordering.
    bins : int
        Groups of samples along the ordering. A curve is their weighted mean, its band ±2 standard errors.
    """
    V = np.asarray(values, dtype=np.float64)
    V = V[:, None] if V.ndim == 1 else V
    m = len(model.ordering_)
    if V.ndim != 2 or len(V) != m or not np.isfinite(V).all():
        raise ValueError(f"values must be finite numbers of shape ({m}, quantities); got {V.shape}.")
    titles = [f"quantity {k + 1}" for k in range(V.shape[1])] if names is None else list(names)
    if len(titles) != V.shape[1]:
        raise ValueError(f"there are {V.shape[1]} quantities and {len(titles)} names.")
    curves = _curve_weights(model, weights)
    rows, columns = -(-V.shape[1] // 3), min(3, V.shape[1])
    figure = new_figure(4.2 * columns, 3.1 * rows)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    groups = np.array_split(np.argsort(model.ordering_, kind="stable"), max(1, min(bins, m // 10)))
    at = np.array([np.median(model.ordering_[group]) for group in groups])
    for ax, v, title in zip(axes, V.T, titles, strict=False):
        for (name, w), colour in zip(curves.items(), COLOURS_OF_BRANCHES, strict=False):
            mean, error = _weighted_means(v, w, groups)
            ax.fill_between(at, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.2, lw=0)
            ax.plot(at, mean, color=colour, lw=1.8, label=name)
        ax.set_title(title, fontsize=10)
        ax.set(xlabel=xlabel)
    for ax in axes[V.shape[1] :]:
        ax.axis("off")
    if len(curves) > 1:
        axes[0].legend(fontsize=7, frameon=False)
    return figure


def _curve_weights(model: SnapshotSDE, weights: Mapping[str, ArrayLike] | None) -> dict[str, Array]:
    """The weight of every sample in every curve."""
    m = len(model.ordering_)
    if weights is not None:
        return {name: _validation.nodes(w, m, f"weights[{name!r}]") for name, w in weights.items()}
    parts = by_branch(model, apart=True)
    return {name.removeprefix(", ") or "all": np.isin(np.arange(m), rows).astype(float) for rows, _, name in parts}


def _weighted_means(v: Array, w: Array, groups: list[Any]) -> tuple[Array, Array]:
    """The weighted mean in each group and its standard error; NaN where less than three samples count."""
    mean, error = np.full(len(groups), np.nan), np.full(len(groups), np.nan)
    for k, group in enumerate(groups):
        total, squares = w[group].sum(), (w[group] ** 2).sum()
        if total > 0 and total**2 / squares >= 3:
            mean[k] = w[group] @ v[group] / total
            error[k] = np.sqrt(w[group] @ (v[group] - mean[k]) ** 2 / total * squares) / total
    return mean, error


def is_constant(model: SnapshotSDE) -> bool:
    """Whether the noise is the same at all samples, but for 2%: less than a map could show."""
    low, high = np.quantile(model.noise_, [0.01, 0.99])
    return bool(high <= 1.02 * low)


def one_noise(model: SnapshotSDE) -> tuple[float, float, float]:
    """A noise that is the same everywhere, and the ends of its 95% interval: NaN when it was given."""
    value, std = float(np.median(model.noise_)), float(np.median(model.log_noise_std_))
    if not (np.isfinite(std) and std > 0):
        return value, np.nan, np.nan
    return value, value * float(np.exp(-1.96 * std)), value * float(np.exp(1.96 * std))


def _one_noise(model: SnapshotSDE, ax: Any, truth: ArrayLike | None, unit: str) -> Any:
    """One number on a line, with its 95% interval."""
    ax = axes_or_new(ax, 5.2, 2.2)
    value, low, high = one_noise(model)
    known = np.isfinite(low)
    low, high = (low, high) if known else (value, value)
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
    """What the optimiser minimised, above its minimum: one line for each choice of the strengths of smoothness, since
    another choice is another function. Of the final chain. Returns the Axes."""
    ax = axes_or_new(ax, 5.2, 3.6)
    lines = stages(np.asarray(model.history_, dtype=np.float64), model.history_stages_)
    for k, (at, above) in enumerate(lines):
        ax.semilogy(at, above, ".-", color=COLOURS_OF_BRANCHES[k % len(COLOURS_OF_BRANCHES)], lw=1, ms=3)
    ax.set(xlabel="evaluation, on the final states" if hasattr(model, "states_") else "evaluation",
           ylabel=f"{loss_label(model)}, above its minimum")  # fmt: skip
    ended = "interrupted" if model.interrupted_ else "converged" if model.converged_ else "NOT converged"
    ax.set_title(f"{model.n_iter_} evaluations in all, {ended}", fontsize=10)
    if len(lines) > 1:
        ax.annotate("a line for each strength of smoothness", (0.02, 0.03), xycoords="axes fraction", fontsize=7)
    ax.grid(alpha=0.3)
    return ax


def profile(
    result: LikelihoodProfile, ax: Any = None, *, truth: float | None = None, label: str = "noise level"
) -> Any:
    """The likelihood along one parameter, with its 95% interval. Returns the Axes."""
    ax = axes_or_new(ax, 5.2, 3.8)
    x, curve, points = _profile_curve(result)
    ax.plot(x, curve, "-", color=BLUE, lw=1.5)
    ax.plot(result.levels, points, "o", color=BLUE, ms=4, label="all other parameters refitted")
    ax.axhline(1.92, color="0.5", ls=":", label="1.92 nats: ends of the 95% interval")
    low, high = result.interval
    ax.axvspan(max(low, result.levels[0]), min(high, result.levels[-1]), color=BLUE, alpha=0.12, lw=0)
    ax.axvline(result.best, color=BLUE, lw=1)
    if truth is not None:
        ax.axvline(truth, color=RED, ls="--", label="truth")
    top = min(float(curve.max()), 12.0)  # what is further off does not count
    near = x[curve <= 1.05 * top]
    ends = [near.min(), near.max(), *([] if truth is None else [truth])]
    margin = 0.05 * (max(ends) - min(ends))
    ax.set(xlabel=label, ylabel="nats below the maximum", xlim=(min(ends) - margin, max(ends) + margin),
           ylim=(-0.03 * top, 1.05 * top))  # fmt: skip
    ax.legend(fontsize=7, framealpha=0.8, loc="upper center")
    return ax


def _profile_curve(result: LikelihoodProfile) -> tuple[Array, Array, Array]:
    """Levels, the curve through the profile at them, from which its interval was read, and the values at its own."""
    order = np.argsort(result.levels)
    levels, nats = result.levels[order], result.nats[order]
    fine = np.geomspace(levels[0], levels[-1], 401)
    if levels.size < 4:
        curve = np.interp(np.log(fine), np.log(levels), nats)
    else:
        curve = CubicSpline(np.log(levels), nats)(np.log(fine))
    lowest = min(float(curve.min()), float(nats.min()))
    return fine, curve - lowest, result.nats - lowest


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
