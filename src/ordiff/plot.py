"""Pictures. matplotlib is imported in this file only, and without its global state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff import _check
from ordiff._check import Array
from ordiff.experiments import Spiral, TorusRow
from ordiff.geometry import TangentSpaces
from ordiff.graph import NeighborGraph
from ordiff.tuning import StepChoice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEQUENTIAL, DIVERGING = "viridis", "PuOr"
# Okabe–Ito, safe for colour-blind readers
COLOURS = {"displacement": "#D55E00", "symmetric": "#E69F00", "projected": "#CC79A7", "covariance": "#0072B2"}


def require() -> type[Figure]:
    """matplotlib's Figure, or an error that says what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise _check.missing_extra("matplotlib", "plot", "drawing") from None
    return Figure


def _figure(width: float, height: float) -> Figure:
    return require()(figsize=(width, height), layout="constrained", dpi=130)


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
