"""The paper's figures of given operators: generator and adjoint on the torus, velocity and curvature on the spiral."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff._validation import Array
from ordiff.plot.style import BLUE, COLOURS, DIVERGING, ORANGE, RED, SEQUENTIAL, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ordiff.experiments import Spiral, TorusRow

# ------------------------------------------------------------------------------------------------- torus


def torus(row: TorusRow) -> Figure:
    """The generator and its adjoint on the torus: truth, estimate, and error, over the two angles."""
    p = row.problem
    side = round(np.sqrt(len(p.X)))
    figure = new_figure(11, 6.2)
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    cases = (
        ("generator $\\mathcal{L}f$", p.generator, row.generator),
        ("adjoint $\\mathcal{L}^*f$", p.adjoint, row.adjoint),
    )
    for line, (name, truth, estimate) in zip(axes, cases, strict=True):
        assert truth is not None
        peak, error = float(np.abs(truth).max()), estimate - truth
        _over_angles(line[0], truth, peak, f"{name}: truth")
        _over_angles(line[1], estimate, peak, "estimate")
        _over_angles(line[2], error, float(np.abs(error).max()), f"error, rms {np.sqrt(np.mean(error**2)):.2g}")
        line[0].set_ylabel("φ")
    for ax in axes[-1]:
        ax.set_xlabel("θ")
    figure.suptitle(f"Torus, {side} × {side} points: {row.scheme}, ε = {row.eps:g}")
    return figure


def _over_angles(ax: Any, values: Array, limit: float, title: str) -> None:
    """Values (side²,) as an image, its colours from −limit to limit."""
    side = round(np.sqrt(len(values)))
    image = ax.imshow(
        values.reshape(side, side).T, origin="lower", extent=(0, 2 * np.pi, 0, 2 * np.pi), cmap=DIVERGING,
        vmin=-limit, vmax=limit,
    )  # fmt: skip
    ax.set_title(title, fontsize=10)
    ax.set_xticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
    ax.set_yticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
    ax.figure.colorbar(image, ax=ax, shrink=0.85)


# ------------------------------------------------------------------------------------------------- spiral


def spiral(result: Spiral) -> Figure:
    """The rolled sheet with its velocity and curvature, and the error of each kind of velocity along it."""
    p, side = result.problem, result.side
    figure = new_figure(12, 4.6)
    grid = figure.add_gridspec(1, 3, width_ratios=[1, 1, 1.15])
    ax = figure.add_subplot(grid[0], projection="3d")
    v = result.velocities["covariance"]
    _points_and_arrows(ax, p.X, np.linalg.norm(v, axis=1), 0.06 * v, side, "velocity (covariance)", "speed")
    ax = figure.add_subplot(grid[1], projection="3d")
    H = np.where(result.interior[:, None], result.curvature, np.nan)
    size = np.linalg.norm(result.curvature, axis=1)
    size = np.minimum(size, size[result.interior].max())  # it is far larger at the edges
    _points_and_arrows(ax, p.X, size, 0.35 * H, side, "mean curvature vector H (clipped at the edges)", "|H|")
    _velocity_errors(figure.add_subplot(grid[2]), result)
    figure.suptitle(f"Spiral, {side} × {side} points: velocity and curvature from one operator")
    return figure


def _points_and_arrows(
    ax: Any, X: Array, colour: Array, vectors: Array, side: int, title: str, colour_label: str
) -> None:
    """Points of the sheet, and every few an arrow."""
    dots = ax.scatter(*X.T[[0, 2, 1]], c=colour, s=1.5, cmap=SEQUENTIAL, alpha=0.5, plotnonfinite=True)
    rows, columns = np.meshgrid(np.arange(0, side, 4), np.arange(side // 10, side, side // 5), indexing="ij")
    some = (rows * side + columns).ravel()
    some = some[np.isfinite(vectors[some]).all(axis=1)]
    ax.quiver(*X[some].T[[0, 2, 1]], *vectors[some].T[[0, 2, 1]], color="k", lw=0.7)
    ax.set_title(title, fontsize=10)
    ax.set_box_aspect((1, 1, 0.5), zoom=1.2)
    ax.view_init(elev=48, azim=-60)
    ax.tick_params(labelsize=7)
    ax.figure.colorbar(dots, ax=ax, shrink=0.6, label=colour_label, pad=0.12)


def _velocity_errors(ax: Any, result: Spiral) -> None:
    """The error of each kind of velocity along the middle of the sheet."""
    u, middle = _middle_line(result)
    drift = result.problem.drift[middle]
    for kind, estimate in result.velocities.items():
        error = np.linalg.norm(estimate[middle] - drift, axis=1)
        ax.semilogy(u, error, color=COLOURS[kind], label=kind, lw=1.8)
    ax.semilogy(u, np.linalg.norm(drift, axis=1), color="0.3", ls=":", label="true speed")
    ax.set(xlabel="position along the spiral, $u_1$", ylabel="error of the velocity")
    ax.set_title("along the sheet, edge to edge", fontsize=10)
    ax.legend(fontsize=8, frameon=False, ncols=2)
    ax.grid(alpha=0.3)


def _middle_line(result: Spiral) -> tuple[Array, Any]:
    """u₁ along the middle of the sheet, and the indices of those samples."""
    rows = np.arange(result.side) * result.side + result.side // 2
    return result.problem.coordinates[rows, 0], rows


def spiral_velocity(result: Spiral) -> Figure:
    """Components of the velocity along the sheet, and the intrinsic velocity by three estimates."""
    p, u, middle = result.problem, *_middle_line(result)
    figure = new_figure(13, 4)
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


def spiral_curvature(result: Spiral) -> Figure:
    """Components of the mean curvature vector along the sheet, and it and the velocity as arrows."""
    figure = new_figure(13.5, 4.4)
    grid = figure.add_gridspec(1, 3, width_ratios=[1, 1, 1.4])
    for k, component in enumerate((0, 2)):
        _curvature_component(figure.add_subplot(grid[k]), result, component)
    ax = figure.add_subplot(grid[2], projection="3d")
    _shaded_arrows(ax, result, result.velocities["symmetric"], 0.025, "Blues", "velocity × 0.025")
    _shaded_arrows(ax, result, result.curvature, 0.2, "Reds", "mean curvature × 0.2")
    ax.set_box_aspect((1, 1, 0.5), zoom=1.15)
    ax.view_init(elev=48, azim=-60)
    ax.legend(fontsize=7)
    ax.set(xlabel="$x_1$", ylabel="$x_3$", zlabel="$x_2$")
    figure.suptitle("Spiral: mean curvature and velocity")
    return figure


def _curvature_component(ax: Any, result: Spiral, component: int) -> None:
    """One component along the middle of the sheet; near the edges it is biased."""
    u, middle = _middle_line(result)
    truth = result.problem.curvature
    assert truth is not None
    estimate, inside = result.curvature[middle, component], result.interior[middle]
    ax.plot(u, estimate, color=RED, ls=":", lw=1, label="near an edge")
    ax.plot(u[inside], estimate[inside], color=RED, lw=2, label="estimate")
    ax.plot(u, truth[middle, component], "k--", lw=1.2, label="truth")
    ax.set(xlabel="$u_1$", ylabel=f"mean curvature vector, component {component + 1}", ylim=(-1.6, 1.6))
    ax.legend(fontsize=7, frameon=False)


def _shaded_arrows(ax: Any, result: Spiral, vectors: Array, scale: float, cmap: str, label: str) -> None:
    """Vectors (m, 3) at a grid of about 25 × 25 samples, the longer the darker."""
    from matplotlib import colormaps

    every = np.arange(0, result.side, max(1, result.side // 25))
    some = (every[:, None] * result.side + every[None, :]).ravel()
    sizes = np.linalg.norm(vectors, axis=1)
    shown = some[sizes[some] < 1.1 * sizes[result.interior].max()]  # some at the edges are far larger
    size = sizes[shown] / sizes[shown].max()
    colours = colormaps[cmap](0.35 + 0.65 * size)
    ax.quiver(*result.problem.X[shown].T[[0, 2, 1]], *(scale * vectors[shown]).T[[0, 2, 1]], colors=colours, lw=0.7)
    ax.plot([], [], color=colours[size.argmax()], label=label)
