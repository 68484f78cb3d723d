"""Pictures. matplotlib is imported in this file only, and without its global state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _check
from ordiff._check import Array
from ordiff.experiments import Learned, Spiral, TorusRow
from ordiff.fields import velocity
from ordiff.geometry import TangentSpaces
from ordiff.graph import NeighborGraph
from ordiff.operator import MarkovOperator
from ordiff.tuning import StepChoice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ordiff.model import Profile, SnapshotSDE

SEQUENTIAL, DIVERGING = "viridis", "PuOr"
# Okabe–Ito, safe for colour-blind readers
BLUE, RED, GREEN, ORANGE, PURPLE = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7"
COLOURS = {"displacement": RED, "symmetric": ORANGE, "projected": PURPLE, "covariance": BLUE}


def require() -> type[Figure]:
    """matplotlib's Figure, or an error that says what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise _check.missing_extra("matplotlib", "plot", "drawing") from None
    return Figure


def _figure(width: float, height: float) -> Figure:
    return require()(figsize=(width, height), layout="constrained", dpi=130)


# ------------------------------------------------------------------------- a model, or an operator, on its samples


@dataclass(frozen=True, eq=False)
class Embedding:
    """A linear map to two coordinates, and their names: those of the data, or the first two principal components."""

    origin: Array  # (n,)
    axes: Array  # (n, 2)
    names: tuple[str, str]

    @classmethod
    def of(cls, X: Array, names: tuple[str, ...] | None = None) -> Embedding:
        n = X.shape[1]
        if n <= 2:
            labels = (*(names or tuple(f"$x_{k + 1}$" for k in range(n))), "")
            return cls(np.zeros(n), np.eye(n, 2), (labels[0], labels[1]))
        centre = X.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(X.T))
        axes = vectors[:, [-1, -2]] * np.sign(vectors[np.abs(vectors).argmax(axis=0), range(n)])[[-1, -2]]
        if names is not None and all(name.startswith("PC") for name in names):  # components already
            return cls(np.zeros(n), np.eye(n, 2), (names[0], names[1]))
        share = values[[-1, -2]] / values.sum()
        return cls(centre, axes, (f"PC 1 ({share[0]:.0%} of variance)", f"PC 2 ({share[1]:.0%})"))

    def points(self, X: Array) -> Array:
        return (X - self.origin) @ self.axes

    def vectors(self, V: Array) -> Array:
        return V @ self.axes

    def label(self, ax: Any) -> None:
        ax.set(xlabel=self.names[0], ylabel=self.names[1])


def samples_of(thing: Any) -> Array:
    """The points that a model, an operator or a graph is about; points are themselves."""
    if hasattr(thing, "states_"):
        return np.asarray(thing._samples)
    network = getattr(thing, "graph", thing)
    if isinstance(network, NeighborGraph):
        return _check.need_points(network.X, "drawing")
    return _check.points(network, minimum=1)


def units(*parts: str) -> str:
    """' (a b)' of the parts that are given."""
    text = " ".join(part for part in parts if part)
    return f" ({text})" if text else ""


def _noise_unit(length: str, time: str) -> str:
    return f" ({length or '1'}/√{time})" if time else units(length)


def field(
    thing: Any,
    values: ArrayLike | str = "ordering",
    ax: Any = None,
    *,
    label: str = "",
    title: str = "",
    cmap: str = SEQUENTIAL,
    embedding: Embedding | None = None,
) -> Any:
    """Values at the samples of a model, operator or graph, or at points (m, n), as colours. Returns the Axes.

    values: one for each sample, or the name of a model's result: "ordering", "noise", "ordering_std", "noise_std".
    """
    X = samples_of(thing)
    name = values if isinstance(values, str) else ""
    v = np.asarray(getattr(thing, f"{name}_")) if name else np.asarray(values, dtype=np.float64)
    if v.shape != (len(X),):
        raise ValueError(f"values must have shape ({len(X)},), one for each sample; got {v.shape}.")
    ax = _figure(5.2, 4.2).subplots() if ax is None else ax
    place = embedding or Embedding.of(X)
    Y = place.points(X)
    known = v[np.isfinite(v)]
    low, high = np.quantile(known, [0.005, 0.995]) if known.size else (0.0, 1.0)  # one outlier must not take it all
    dots = ax.scatter(*Y.T, c=v, s=_size(len(Y)), cmap=cmap, vmin=low, vmax=high, linewidths=0, rasterized=True)
    ax.figure.colorbar(dots, ax=ax, label=label or name.replace("_", " "))
    place.label(ax)
    ax.set_title(title, fontsize=10)
    return ax


def _size(m: int) -> float:
    return float(np.clip(12000 / m, 1.5, 14))


def drift(
    thing: SnapshotSDE | MarkovOperator,
    ax: Any = None,
    *,
    kind: str = "arrows",
    bins: int = 20,
    colour: str = "k",
    samples: bool = True,
    length: str = "",
    time: str = "",
    embedding: Embedding | None = None,
) -> Any:
    """The drift over two coordinates, as "arrows" or "streamlines": its mean in each cell of a grid. Returns the Axes.

    Of a model what it learned; of an operator its displacement against that of its symmetric part.
    """
    _check.option(kind, "kind", ("arrows", "streamlines"))
    X = samples_of(thing)
    V = velocity(thing, "symmetric") if isinstance(thing, MarkovOperator) else thing.drift_
    ax = _figure(5.2, 4.2).subplots() if ax is None else ax
    place = embedding or Embedding.of(X)
    Y, W = place.points(X), place.vectors(V)
    if samples:
        ax.scatter(*Y.T, s=_size(len(Y)), color="0.8", linewidths=0, zorder=0, rasterized=True)
    centres, mean, count = cells(Y, W, bins)
    if kind == "streamlines":
        u = np.ma.masked_where(count == 0, mean[..., 0]).T
        v = np.ma.masked_where(count == 0, mean[..., 1]).T
        ax.streamplot(*centres, u, v, color=colour, linewidth=0.8, density=1.3, arrowsize=0.8)
    else:
        there = count >= min(2, count.max())
        at = np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1)[there]
        step = mean[there]
        width = float(np.mean([np.ptp(c) for c in centres])) / bins
        longest = float(np.quantile(np.linalg.norm(step, axis=1), 0.95)) or 1.0
        edge = {} if colour == "k" else {"edgecolor": "k", "linewidth": 0.4}
        ax.quiver(*at.T, *step.T, color=colour, angles="xy", scale_units="xy", scale=longest / (1.7 * width),
                  width=0.0045 if edge else 0.0035, zorder=3, **edge)  # fmt: skip
        unit = f" {length or '1'}/{time}" if time else f" {length}"
        ax.annotate(f"longest arrows {longest:.2g}{unit}".rstrip(), (0.98, 0.02), xycoords="axes fraction", ha="right",
                    fontsize=7, bbox={"facecolor": "w", "alpha": 0.8, "lw": 0, "pad": 1.5}, zorder=4)  # fmt: skip
    place.label(ax)
    return ax


def cells(Y: Array, W: Array, bins: int) -> tuple[tuple[Array, Array], Array, Any]:
    """Centres of a grid over Y (m, 2), the mean of W (m, 2) in each cell, and how many samples it holds."""
    low, high = Y.min(axis=0), Y.max(axis=0)
    high = np.where(high > low, high, low + 1.0)
    edges = [np.linspace(a, b, bins + 1) for a, b in zip(low, high, strict=True)]
    at = np.clip(((Y - low) / (high - low) * bins).astype(int), 0, bins - 1)
    flat = at[:, 0] * bins + at[:, 1]
    count = np.bincount(flat, minlength=bins**2)
    total = np.stack([np.bincount(flat, weights=w, minlength=bins**2) for w in W.T], axis=1)
    mean = total / np.maximum(count, 1)[:, None]
    x, y = (0.5 * (e[1:] + e[:-1]) for e in edges)
    return (x, y), mean.reshape(bins, bins, 2), count.reshape(bins, bins)


def landscape(
    model: SnapshotSDE, ax: Any = None, *, levels: int = 18, unit: str = "", embedding: Embedding | None = None
) -> Any:
    """The potential −l over two coordinates: low where the drift leads. Returns the Axes.

    In two dimensions filled contours over the states; in more, the mean over the samples of each cell.
    """
    ax = _figure(5.2, 4.2).subplots() if ax is None else ax
    X = samples_of(model)
    place = embedding or Embedding.of(X)
    if X.shape[1] == 2:
        from matplotlib.tri import Triangulation

        Y = place.points(model.states_.points)
        potential = -model.predict(model.states_.points)
        mesh = Triangulation(*Y.T)
        corners = Y[mesh.triangles]
        sides = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
        mesh.set_mask(sides > 3 * np.median(sides))  # not across gaps
        drawn = ax.tricontourf(mesh, potential, levels=levels, cmap="cividis")
    else:
        Y = place.points(X)
        (x, y), mean, count = cells(Y, -np.repeat(model.ordering_[:, None], 2, axis=1), 40)
        drawn = ax.pcolormesh(x, y, np.ma.masked_where(count == 0, mean[..., 0]).T, cmap="cividis", rasterized=True)
    ax.figure.colorbar(drawn, ax=ax, label=f"potential −l{units(unit)}")
    place.label(ax)
    return ax


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
    """The noise against the ordering (or ``against``), its band of ±2 standard deviations, and the truth if known."""
    ax = _figure(5.2, 4.2).subplots() if ax is None else ax
    x = model.ordering_ if against is None else _check.nodes(against, len(model.noise_), "against")
    ax.scatter(x, model.noise_, s=_size(len(x)), color=BLUE, alpha=0.35, linewidths=0, rasterized=True)
    log = np.log(model.noise_)
    spread = model.log_noise_std_
    if np.isfinite(spread).all() and (spread > 0).any():
        at, low, middle, high = running(x, np.exp(log - 2 * spread), model.noise_, np.exp(log + 2 * spread))
        ax.fill_between(at, low, high, color=BLUE, alpha=0.2, lw=0, label="±2 standard deviations")
    else:
        at, middle = running(x, model.noise_)
    ax.plot(at, middle, color=BLUE, lw=1.8, label="learned, median")
    if truth is not None:
        line = running(x, _check.nodes(truth, len(x), "truth"))
        ax.plot(*line, color=RED, lw=1.6, ls="--", label="truth")
    ax.set(xlabel=xlabel, ylabel=f"noise ρ{_noise_unit(length, time)}", ylim=(0, None))
    ax.legend(fontsize=7, frameon=False)
    return ax


def running(x: Array, *values: Array, bins: int = 30) -> list[Array]:
    """Medians over groups of samples that are neighbours in x."""
    groups = np.array_split(np.argsort(x), max(1, min(bins, len(x) // 5)))
    return [np.array([np.median(v[rows]) for rows in groups]) for v in (x, *values)]


def history(model: SnapshotSDE, ax: Any = None) -> Any:
    """The loss over the evaluations. It jumps where states or smoothness are chosen anew; steps of a search that went
    far are left out. Returns the Axes."""
    ax = _figure(5.2, 3.6).subplots() if ax is None else ax
    loss = np.asarray(model.history_, dtype=np.float64)
    ax.set(xlabel="evaluation", ylabel="loss (nats per sample)")
    if loss.size:
        low, high = np.nanmin(loss), np.nanquantile(loss, 0.9)
        margin = 0.1 * (high - low) or 1e-3
        shown = np.where(loss <= high + margin, loss, np.nan)
        ax.plot(np.arange(1, len(loss) + 1), shown, ".-", color=BLUE, lw=1, ms=3)
        ax.set_ylim(low - margin, high + margin)
    ax.set_title(f"{len(loss)} evaluations, {'converged' if model.converged_ else 'NOT converged'}", fontsize=10)
    ax.grid(alpha=0.3)
    return ax


def profile(result: Profile, ax: Any = None, *, truth: float | None = None, label: str = "noise level") -> Any:
    """The likelihood along one parameter, with its 95% interval. Returns the Axes."""
    ax = _figure(5.2, 3.8).subplots() if ax is None else ax
    ax.plot(result.levels, result.nats, "o-", color=BLUE, lw=1.5, ms=4, label="all else learned again")
    ax.axhline(1.92, color="0.5", ls=":", label="1.92 nats: ends of the 95% interval")
    low, high = result.interval
    ax.axvspan(max(low, result.levels[0]), min(high, result.levels[-1]), color=BLUE, alpha=0.12, lw=0)
    ax.axvline(result.best, color=BLUE, lw=1)
    if truth is not None:
        ax.axvline(truth, color=RED, ls="--", label="truth")
    ax.set(xlabel=label, ylabel="nats below the best", ylim=(min(-0.2, float(result.nats.min())), None))
    ax.legend(fontsize=7, frameon=False)
    return ax


def truth(true: ArrayLike, estimate: ArrayLike, ax: Any = None, *, std: ArrayLike | None = None, name: str = "") -> Any:
    """True against estimated values, with the diagonal. Returns the Axes."""
    ax = _figure(4.4, 4.2).subplots() if ax is None else ax
    x = np.asarray(true, dtype=np.float64)
    y = _check.nodes(estimate, len(x), "estimate")
    if std is not None:
        ax.errorbar(x, y, 2 * np.asarray(std), fmt="none", ecolor=BLUE, alpha=0.12, elinewidth=0.6, rasterized=True)
    ax.scatter(x, y, s=_size(len(x)), color=BLUE, alpha=0.5, linewidths=0, rasterized=True)
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    ax.plot(ends, ends, color=RED, ls="--", lw=1.2, label="exact")
    size = float(np.sqrt(np.mean(x**2)))
    off = float(np.sqrt(np.mean((y - x) ** 2))) / size if size > 0 else float("nan")
    ax.set(xlabel=f"true {name}".strip(), ylabel=f"learned {name}".strip())
    ax.set_title(f"relative error {off:.1%}, correlation {_correlation(x, y):.4f}", fontsize=10)
    ax.legend(fontsize=7, frameon=False)
    return ax


def _correlation(x: Array, y: Array) -> float:
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) > 0 and np.ptp(y) > 0 else float("nan")


def overview(
    model: SnapshotSDE, *, times: Array | None = None, length: str = "", time: str = "",
    names: tuple[str, ...] | None = None,
) -> Figure:  # fmt: skip
    """One picture of a fit: times or ordering, potential and drift, noise on the samples and against the ordering."""
    figure = _figure(13, 7.4)
    axes = figure.subplots(2, 3)
    X = samples_of(model)
    place = Embedding.of(X, names)
    if times is None:
        field(model, "ordering", axes[0, 0], title="ordering", embedding=place)
    else:
        field(X, times, axes[0, 0], label=f"time{units(time)}", title="the samples and their times", embedding=place)
    field(model, "ordering", axes[0, 1], label="ordering l", title="learned ordering (0 at the start)", embedding=place)
    landscape(model, axes[0, 2], embedding=place)
    drift(model, axes[0, 2], colour="w", samples=False, length=length, time=time, embedding=place)
    axes[0, 2].set_title("learned potential and drift", fontsize=10)
    field(model, "noise", axes[1, 0], label=f"noise ρ{_noise_unit(length, time)}", title="learned noise",
          embedding=place)  # fmt: skip
    noise(model, axes[1, 1], length=length, time=time)
    axes[1, 1].set_title("noise along the ordering", fontsize=10)
    history(model, axes[1, 2])
    return figure


# --------------------------------------------------------------------------------------------------- known truth


def demo(run: Learned) -> Figure:
    """The NL process learned from snapshots: what was seen, what was learned, and how it compares with the truth."""
    model, p = run.model, run.problem
    figure = _figure(13.4, 8)
    axes = figure.subplots(2, 3)
    true, _ = run.ordering
    radius = np.linalg.norm(p.X, axis=1)
    assert p.times is not None
    field(model, p.times, axes[0, 0], label="time", title=f"1. What is given: {len(p.X)} points, each seen once")
    axes[0, 0].plot(*np.asarray(p.start), "*", color=RED, ms=12, mec="w", label="start")
    axes[0, 0].legend(fontsize=8, loc="upper center")
    landscape(model, axes[0, 1])
    drift(model, axes[0, 1], colour="w", samples=False)
    axes[0, 1].set_title("2. Learned potential −l and drift ∇l", fontsize=10)
    truth(true, model.ordering_, axes[0, 2], std=model.ordering_std_, name="ordering l")
    axes[0, 2].set_title(f"3. Ordering: {run.scores()['ordering, relative error']:.1%} off the truth", fontsize=10)
    field(
        model, "noise", axes[1, 0], label="noise ρ", title="4. Learned noise: large at the start, small in the hollows"
    )
    noise(model, axes[1, 1], against=radius, xlabel="distance from the start", truth=p.noise)
    axes[1, 1].set_title("5. Noise, with what the data leave open", fontsize=10)
    history(model, axes[1, 2])
    axes[1, 2].set_title("6. Fit: " + axes[1, 2].get_title(), fontsize=10)
    figure.suptitle("dx = ∇l dt + ρ dW, learned from snapshots of the NL process", fontsize=12)
    return figure


def spiral_velocity(result: Spiral) -> Figure:
    """Components of the velocity along the sheet, and the intrinsic velocity by three estimates."""
    p, u, middle = result.problem, *_along(result)
    figure = _figure(13, 4)
    axes = figure.subplots(1, 3)
    for ax, c in zip(axes, (0, 2), strict=False):
        for kind in ("displacement", "symmetric", "covariance"):
            ax.plot(u, result.velocities[kind][middle, c], color=COLOURS[kind], label=kind, lw=1.5)
        ax.plot(u, p.drift[middle, c], "k--", label="truth", lw=1.2)
        low, high = p.drift[middle, c].min(), p.drift[middle, c].max()
        ax.set(xlabel="$u_1$", ylabel=f"velocity, component {c + 1}",
               ylim=(low - 0.4 * (high - low), high + 0.4 * (high - low)))  # fmt: skip
        ax.legend(fontsize=7, frameon=False)
    for (kind, estimate), colour in zip(result.intrinsic.items(), (BLUE, RED, ORANGE), strict=True):
        axes[2].plot(u, estimate[middle], color=colour, label=kind, lw=1.5)
    axes[2].plot(u, p.intrinsic_drift[middle, 0], "k--", label="truth", lw=1.2)
    axes[2].set(xlabel="$u_1$", ylabel="intrinsic velocity, $du_1/dt$", ylim=(-0.6, 1.8))
    axes[2].legend(fontsize=7, frameon=False)
    figure.suptitle("Spiral: velocity, and intrinsic velocity")
    return figure


def _along(result: Spiral) -> tuple[Array, Any]:
    """u₁ along the middle of the sheet, and those samples."""
    rows = np.arange(result.side) * result.side + result.side // 2
    return result.problem.coordinates[rows, 0], rows


def spiral_curvature(result: Spiral) -> Figure:
    """Components of the mean curvature vector along the sheet, and it and the velocity as arrows."""
    p, u, middle = result.problem, *_along(result)
    assert p.curvature is not None
    figure = _figure(13.5, 4.4)
    grid = figure.add_gridspec(1, 3, width_ratios=[1, 1, 1.4])
    inside = result.interior[middle]
    for k, c in enumerate((0, 2)):
        ax = figure.add_subplot(grid[k])
        ax.plot(u, result.curvature[middle, c], color=RED, ls=":", lw=1, label="near an edge")
        ax.plot(u[inside], result.curvature[middle, c][inside], color=RED, lw=2, label="estimate")
        ax.plot(u, p.curvature[middle, c], "k--", lw=1.2, label="truth")
        ax.set(xlabel="$u_1$", ylabel=f"mean curvature vector, component {c + 1}", ylim=(-1.6, 1.6))
        ax.legend(fontsize=7, frameon=False)
    ax = figure.add_subplot(grid[2], projection="3d")
    every = np.arange(0, result.side, max(1, result.side // 25))
    some = (every[:, None] * result.side + every[None, :]).ravel()
    for vectors, scale, cmap, name in (
        (result.velocities["symmetric"], 0.025, "Blues", "velocity × 0.025"),
        (result.curvature, 0.2, "Reds", "mean curvature × 0.2"),
    ):
        sizes = np.linalg.norm(vectors, axis=1)
        shown = some[sizes[some] < 1.1 * sizes[result.interior].max()]  # at the edges some are off the scale
        size = sizes[shown] / sizes[shown].max()
        colours = _shades(cmap, 0.35 + 0.65 * size)
        ax.quiver(*p.X[shown].T[[0, 2, 1]], *(scale * vectors[shown]).T[[0, 2, 1]], colors=colours, lw=0.7)
        ax.plot([], [], color=colours[size.argmax()], label=name)
    ax.set_box_aspect((1, 1, 0.5), zoom=1.15)
    ax.view_init(elev=48, azim=-60)
    ax.legend(fontsize=7)
    ax.set(xlabel="$x_1$", ylabel="$x_3$", zlabel="$x_2$")
    figure.suptitle("Spiral: mean curvature and velocity")
    return figure


def _shades(cmap: str, at: Array) -> Any:
    from matplotlib import colormaps

    return colormaps[cmap](at)


def ornstein_uhlenbeck(run: Learned) -> Figure:
    """True and learned ordering of the OU process, one against the other, and the likelihood along the noise."""
    true, learned = run.ordering
    figure = _figure(13.4, 8)
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
    figure = _figure(10.4, 4.2)
    left, right = figure.subplots(1, 2)
    field(run.model, run.ordering[0], left, label="ordering l", title="A. true ordering")
    field(run.model, run.problem.noise, right, label="noise ρ", title="B. true noise")
    return figure


def nonlinear_results(runs: list[Learned]) -> Figure:
    """Ordering and noise of the NL process by every setting, in columns, and all of them against the truth."""
    figure = _figure(4.4 * max(2, len(runs)), 11.5)
    grid = figure.add_gridspec(3, 2 * max(2, len(runs)))
    colours = (BLUE, ORANGE, GREEN, PURPLE)
    true, rho = runs[0].ordering[0], np.asarray(runs[0].problem.noise)
    half = max(2, len(runs))
    last = [figure.add_subplot(grid[2, :half]), figure.add_subplot(grid[2, half:])]
    for k, (run, colour) in enumerate(zip(runs, colours, strict=False)):
        place = slice(2 * k, 2 * k + 2)
        field(run.model, run.ordering[1], figure.add_subplot(grid[0, place]), label="ordering l", title=run.setting)
        ax = field(run.model, run.noise, figure.add_subplot(grid[1, place]), label="noise ρ",
                   title=f"{run.setting}{', smoothed' if run.noise is not run.model.noise_ else ''}")  # fmt: skip
        ax.collections[0].set_clim(rho.min(), rho.max())
        last[0].scatter(true, run.ordering[1], s=2, color=colour, alpha=0.4, label=run.setting, rasterized=True)
        last[1].scatter(true, run.noise, s=2, color=colour, alpha=0.25, rasterized=True)
        last[1].plot(*_polynomial(true, run.noise), color=colour, lw=2, label=run.setting)
    last[0].plot([0, true.max()], [0, true.max()], "--", color=RED, label="exact")
    last[1].plot(*_polynomial(true, rho), color=RED, lw=2, ls="--", label="truth")
    last[0].set(xlabel="true ordering", ylabel="learned ordering")
    last[1].set(xlabel="true ordering", ylabel="noise ρ", title="lines: polynomials of degree 6")
    for ax in last:
        ax.legend(fontsize=8, markerscale=4, frameon=False)
    figure.suptitle("NL process, times known")
    return figure


def _polynomial(x: Array, y: Array, degree: int = 6) -> tuple[Array, Array]:
    fitted = np.polynomial.Polynomial.fit(x, y, degree)
    low, high = np.quantile(x, [0.005, 0.995])
    at = np.linspace(low, high, 200)
    return at, fitted(at)


def torus(row: TorusRow) -> Figure:
    """The generator and its adjoint on the torus: truth, estimate, and error, over the two angles."""
    p = row.problem
    side = round(np.sqrt(len(p.X)))
    figure = _figure(11, 6.2)
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    cases = (
        ("generator $\\mathcal{L}f$", p.generator, row.generator),
        ("adjoint $\\mathcal{L}^*f$", p.adjoint, row.adjoint),
    )
    for line, (name, truth, estimate) in zip(axes, cases, strict=True):
        assert truth is not None
        peak = float(np.abs(truth).max())
        error = estimate - truth
        off = float(np.abs(error).max())
        panels = (
            (f"{name}: truth", truth, peak),
            ("estimate", estimate, peak),
            (f"error, rms {np.sqrt(np.mean(error**2)):.2g}", error, off),
        )
        for ax, (title, values, limit) in zip(line, panels, strict=True):
            image = ax.imshow(
                values.reshape(side, side).T, origin="lower", extent=(0, 2 * np.pi, 0, 2 * np.pi), cmap=DIVERGING,
                vmin=-limit, vmax=limit,
            )  # fmt: skip
            ax.set_title(title, fontsize=10)
            ax.set_xticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
            ax.set_yticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
            figure.colorbar(image, ax=ax, shrink=0.85)
        line[0].set_ylabel("φ")
    for ax in axes[-1]:
        ax.set_xlabel("θ")
    figure.suptitle(f"Torus, {side} × {side} points: {row.scheme}, ε = {row.eps:g}")
    return figure


def spiral(result: Spiral) -> Figure:
    """The rolled sheet with its velocity and curvature, and the error of each kind of velocity along it."""
    p, side = result.problem, result.side
    figure = _figure(12, 4.6)
    grid = figure.add_gridspec(1, 3, width_ratios=[1, 1, 1.15])
    speed = np.linalg.norm(result.velocities["covariance"], axis=1)
    _arrows(figure, grid[0], p.X, result.velocities["covariance"], speed, side, 0.06, "velocity (covariance)", "speed")
    bend = np.linalg.norm(result.curvature, axis=1)
    inside = np.where(result.interior[:, None], result.curvature, np.nan)
    bend = np.minimum(bend, bend[result.interior].max())  # at the edges it is off the scale
    _arrows(figure, grid[1], p.X, inside, bend, side, 0.35, "mean curvature vector H (edges cut off)", "|H|")

    ax = figure.add_subplot(grid[2])
    truth = np.linalg.norm(p.drift, axis=1).reshape(side, side)
    middle = side // 2
    u = p.coordinates[:, 0].reshape(side, side)[:, middle]
    for kind, estimate in result.velocities.items():
        error = np.linalg.norm(estimate - p.drift, axis=1).reshape(side, side)
        ax.semilogy(u, error[:, middle], color=COLOURS[kind], label=kind, lw=1.8)
    ax.semilogy(u, truth[:, middle], color="0.3", ls=":", label="true speed")
    ax.set(xlabel="position along the spiral, $u_1$", ylabel="error of the velocity")
    ax.set_title("along the sheet, edge to edge", fontsize=10)
    ax.legend(fontsize=8, frameon=False, ncols=2)
    ax.grid(alpha=0.3)
    figure.suptitle(f"Spiral, {side} × {side} points: velocity and curvature read off one operator")
    return figure


def step_choice(choice: StepChoice, ax: Any = None) -> Any:
    """The curves behind a choice of the time step: limits, error and semigroup error against ε. Returns the Axes."""
    if ax is None:
        ax = _figure(6.4, 4.2).subplots()
    error = np.hypot(choice.roughness, choice.bias)
    ax.loglog(choice.steps, error, color="#0072B2", lw=2, label="estimated error of L f")
    ax.loglog(choice.steps, choice.roughness, color="#0072B2", ls=":", label="its roughness")
    ax.loglog(choice.steps, choice.bias, color="#0072B2", ls="--", label="its bias")
    ax.loglog(choice.steps, choice.semigroup_error, color="#CC79A7", label="semigroup error")
    ax.loglog(choice.steps, choice.p_max, color="#D55E00", label="p_max, 90% of samples below")
    ax.loglog(choice.steps, 1 - choice.resolution + 1e-6, color="#009E73", label="mass beyond the graph, 90% below")
    if choice.valid:
        ends = (max(choice.low, choice.steps[0]), min(choice.high, choice.steps[-1]))
        ax.axvspan(*ends, color="0.9", zorder=0, label="valid steps")
    ax.axvline(choice.eps, color="k", lw=1)
    ax.annotate(f" ε = {choice.eps:.3g}", (choice.eps, 1), xycoords=("data", "axes fraction"), va="top")
    ax.set(xlabel="time step ε", ylabel="", ylim=(1e-4, None), title="choice of the time step")
    ax.legend(fontsize=7, framealpha=0.9)
    return ax


def graph(network: NeighborGraph, values: Array | None = None, ax: Any = None, label: str = "") -> Any:
    """The edges of a neighbour graph over the first two coordinates, samples coloured by values. Returns the Axes."""
    from matplotlib.collections import LineCollection

    X = _check.need_points(network.X, "drawing a graph")
    if ax is None:
        ax = _figure(5, 4.2).subplots()
    i, j = network.sources(), network.indices
    once = i < j
    lines = list(np.stack([X[i[once], :2], X[j[once], :2]], axis=1))
    ax.add_collection(LineCollection(lines, colors="0.55", lw=0.5, zorder=0))
    if values is None:
        ax.scatter(X[:, 0], X[:, 1], color="k", s=2)
    else:
        dots = ax.scatter(X[:, 0], X[:, 1], c=values, s=4, cmap=SEQUENTIAL)
        ax.figure.colorbar(dots, ax=ax, label=label)
    ax.set_aspect("equal")
    return ax


def tangents(spaces: TangentSpaces, ax: Any = None, every: int = 10, length: float = 0.1) -> Any:
    """The leading tangent directions at every few samples, over three coordinates. Returns the Axes."""
    if ax is None:
        ax = _figure(5, 4.2).add_subplot(projection="3d")
    X, some = spaces.X[:, :3], slice(None, None, every)
    ax.scatter(*X.T, s=1, color="0.6", alpha=0.4)
    for direction, colour in zip(spaces.frames().transpose(2, 0, 1), ("#0072B2", "#D55E00", "#009E73"), strict=False):
        start, step = X[some], length * direction[some, :3]
        ax.quiver(*(start - step).T, *(2 * step).T, color=colour, lw=0.8, arrow_length_ratio=0)
    return ax


def _arrows(
    figure: Figure, place: Any, X: Array, vectors: Array, colour: Array, side: int, length: float, title: str, unit: str
) -> None:
    """Points of the sheet, and every few an arrow."""
    ax = figure.add_subplot(place, projection="3d")
    dots = ax.scatter(
        *X.T[[0, 2, 1]],
        c=colour,
        s=1.5,
        cmap=SEQUENTIAL,
        alpha=0.5,
        plotnonfinite=True,
    )
    rows, columns = np.meshgrid(np.arange(0, side, 4), np.arange(side // 10, side, side // 5), indexing="ij")
    some = (rows * side + columns).ravel()
    some = some[np.isfinite(vectors[some]).all(axis=1)]
    ax.quiver(*X[some].T[[0, 2, 1]], *(length * vectors[some]).T[[0, 2, 1]], color="k", lw=0.7)
    ax.set_title(title, fontsize=10)
    ax.set_box_aspect((1, 1, 0.5), zoom=1.2)
    ax.view_init(elev=48, azim=-60)
    ax.tick_params(labelsize=7)
    figure.colorbar(dots, ax=ax, shrink=0.6, label=unit, pad=0.12)
