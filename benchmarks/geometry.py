"""Seconds of tangent spaces and densities beside the neighbour search that they rest on, in 30 coordinates."""

from __future__ import annotations

import numpy as np

import ordiff as od
from benchmarks.report import interleaved, progress, seconds, table


def points(m: int, n: int = 30) -> np.ndarray:
    """A curved surface in R^n with a little noise off it."""
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, (m, 2))
    waves = np.concatenate([np.sin(2 * u), np.cos(3 * u), u, np.sin(u[:, :1] * u[:, 1:])], axis=1)
    return waves @ rng.normal(size=(waves.shape[1], n)) / np.sqrt(n) + 0.002 * rng.normal(size=(m, n))


def run(quick: bool = False) -> str:
    m, k = 10_000 if quick else 100_000, 30
    X = points(m)
    small = od.NeighborGraph.build(X[:2000], k=k)
    for estimate in (od.TangentSpaces.fit, od.knn_density, od.balanced_density):  # compile first
        estimate(small)
    progress(f"exact search, m = {m:,}")
    graph = od.NeighborGraph.build(X, k=k, method="exact")
    searches = interleaved({"search": lambda: od.NeighborGraph.build(X, k=k, method="exact")}, 1)
    progress("estimates")
    taken = interleaved(
        {
            "`TangentSpaces.fit` (k = 20)": lambda: od.TangentSpaces.fit(graph, k=20),
            "`TangentSpaces.fit` (k = 30)": lambda: od.TangentSpaces.fit(graph, k=30),
            "`knn_density`": lambda: od.knn_density(graph, dimension=2),
            "`kernel_density`": lambda: od.kernel_density(graph, k=2, dimension=2),
            "`balanced_density`": lambda: od.balanced_density(graph, dimension=2),
            "`geodesic_order` from one sample": lambda: od.geodesic_order(graph, 0),
        },
        3,
    )
    search = searches["search"]
    rows = [["`NeighborGraph.build`, exact", seconds(search), "1"]]
    rows += [[name, seconds(value), f"{value / search:.3f}"] for name, value in taken.items()]
    return "\n\n".join(
        [
            f"m = {m:,} points in 30 coordinates, k = {k}. Goal: each below the neighbour search.",
            table(["what", "time", "in neighbour searches"], rows),
        ]
    )
