"""Draws what prepares a kernel: graphs, orders, tangent planes, the choice of the time step.

.venv/bin/python examples/gallery.py [FOLDER]
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import ordiff as od
from ordiff import plot


def branching(m: int = 600, seed: int = 0) -> np.ndarray:
    """Samples of a tree with one root and two ends, denser near the root."""
    rng = np.random.default_rng(seed)
    t = rng.beta(1, 1.3, m)
    side = np.where(rng.uniform(size=m) < 0.5, 1, -1)
    after = np.maximum(t - 0.45, 0)
    return np.stack([t, 1.2 * side * after], 1) + 0.02 * rng.normal(size=(m, 2))


def graphs() -> Figure:
    X = branching(200)
    figure = Figure(figsize=(8.4, 8), layout="constrained", dpi=130)
    for ax, rule in zip(figure.subplots(2, 2).flat, ("knn", "and", "or", "cknn"), strict=True):
        with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):  # the title says the parts
            network = od.threshold_graph(X, k=6, rule=rule)
        plot.graph(network, ax=ax)
        ax.set_title(f'rule "{rule}": {network.n_edges - network.n_points} edges, {network.n_components} part(s)')
    figure.suptitle("Threshold graphs, k = 6")
    return figure


def orders() -> Figure:
    X = branching()
    network = od.threshold_graph(X, k=12)
    figure = Figure(figsize=(11, 4.2), layout="constrained", dpi=130)
    left, right = figure.subplots(1, 2)
    plot.graph(network, od.geodesic_order(network, np.array([0.0, 0.0])), left, "geodesic order from the root")
    root = (X[:, 0] < 0.1).astype(float)
    plot.graph(network, od.geodesic_order(network, root / root.sum()), right, "from a mass on the early samples")
    return figure


def planes() -> Figure:
    X = od.datasets.spiral(60).X
    figure = Figure(figsize=(6, 5), layout="constrained", dpi=130)
    ax = figure.add_subplot(projection="3d")
    spaces = od.TangentSpaces.fit(od.NeighborGraph.build(X, k=30), k=30)
    plot.tangents(spaces, ax, every=37, length=0.12)
    ax.set_title(f"tangent planes by local PCA: dimension {spaces.dimension}")
    return figure


def steps() -> Figure:
    figure = Figure(figsize=(12, 4.4), layout="constrained", dpi=130)
    left, right = figure.subplots(1, 2)
    p = od.datasets.torus(100)
    network = od.NeighborGraph.build(p.X, radius=0.6)
    choice = od.tuning.choose_eps(od.Kernel(od.Ordering.local(p.ordering), noise=p.noise), network)
    choice.plot(left).set_title("torus, 100 × 100 grid")
    X = np.random.default_rng(0).normal(size=(2000, 2))
    network = od.NeighborGraph.build(X, k=500)
    kernel = od.Kernel(od.Ordering(-0.5 * (X**2).sum(axis=1)), noise=np.sqrt(2))
    choice = od.tuning.choose_eps(kernel, network, density="balanced")
    choice.plot(right).set_title("2,000 gaussian samples, k = 500")
    print(choice)
    return figure


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "gallery")
    folder.mkdir(parents=True, exist_ok=True)
    for draw in (graphs, orders, planes, steps):
        path = folder / f"{draw.__name__}.png"
        draw().savefig(path)
        print(path)


if __name__ == "__main__":
    main()
