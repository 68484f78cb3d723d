"""Search for the 50 nearest: k-d tree, all pairs, the approximate search, nearest-neighbour descent."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from scipy.spatial import cKDTree

import ordiff as od
from benchmarks.report import progress, table
from ordiff.graph import approximate, search

K = 50
QUERIES = 1_000
LARGEST_TREE = 50_000  # beyond, a query visits most of the points
LARGEST_PAIRS = 300_000
Search = Callable[[np.ndarray, np.ndarray], tuple[float, float | None]]


def gaussian(m: int, n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(m, n))


def decaying(m: int, n: int) -> np.ndarray:
    """The j-th coordinate has the standard deviation 1/√j."""
    return gaussian(m, n) / np.sqrt(np.arange(1, n + 1))


def branches(m: int, n: int) -> np.ndarray:
    """Points along twelve segments of a tree, with noise; both decay as above."""
    rng, spread = np.random.default_rng(0), 1 / np.sqrt(np.arange(1, n + 1))
    starts, ends = [], [np.zeros(n)]
    for _ in range(12):
        starts.append(ends[rng.integers(len(ends))])
        ends.append(starts[-1] + 3 * rng.normal(size=n) * spread)
    branch, along = rng.integers(12, size=m), rng.uniform(size=m)[:, None]
    middle = (1 - along) * np.array(starts)[branch] + along * np.array(ends[1:])[branch]
    return middle + 0.3 * rng.normal(size=(m, n)) * spread


DATA = {"gaussian": gaussian, "decaying": decaying, "branches": branches}


def scaled(X, samples, query) -> float:
    """Processor seconds of the queries of all points, from those of the samples."""
    start = time.process_time()
    query(X[samples])
    return (time.process_time() - start) * len(X) / len(samples)


def tree(X, samples):
    index = cKDTree(X)
    return scaled(X, samples, lambda some: search.query_tree(index, some, K + 1)), None


def all_pairs(X, samples):
    return scaled(X, samples, lambda some: approximate.exact_nearest(X, samples, K + 1)), None


def ordiff(X, samples):
    start = time.process_time()
    graph = od.NeighborGraph.build(X, K, method="approximate", recall=0.98, random_state=0)
    seconds = time.process_time() - start
    return seconds, recall(graph.indices.reshape(-1, K + 1)[samples], X, samples)


def descent(X, samples):
    from pynndescent import NNDescent

    start = time.process_time()
    found = NNDescent(X.astype(np.float32), n_neighbors=K + 1 + K // 2, random_state=0).neighbor_graph[0]
    seconds = time.process_time() - start
    return seconds, recall(found[samples, : K + 1], X, samples)


METHODS: dict[str, Search] = {
    "k-d tree": tree,
    "all pairs": all_pairs,
    "approximate": ordiff,
    "pynndescent": descent,
}
NEEDS = {"approximate": "faiss", "pynndescent": "pynndescent"}


def available() -> dict[str, Search]:
    return {name: run for name, run in METHODS.items() if name not in NEEDS or find_spec(NEEDS[name])}


def recall(found: np.ndarray, X: np.ndarray, samples: np.ndarray) -> float:
    exact = approximate.exact_nearest(X, samples, K + 1)
    return float(np.mean([np.isin(row, there).mean() for row, there in zip(exact, found, strict=True)]))


def row(kind: str, m: int, n: int, methods: dict[str, Search]) -> list[str]:
    X = DATA[kind](m, n)
    samples = np.random.default_rng(1).choice(m, min(m, QUERIES), replace=False)
    cells = [kind, f"{m:,} × {n}"]
    for name, run in methods.items():
        if m > {"k-d tree": LARGEST_TREE, "all pairs": LARGEST_PAIRS}.get(name, m):
            cells.append("–")
            continue
        progress(f"{kind}, {m:,} × {n}, {name}")
        seconds, share = run(X, samples)
        cells.append(f"{seconds:.1f}" + ("" if share is None else f" ({share:.3f})"))
    return cells


def run(quick: bool = False) -> str:
    methods = available()
    for name in NEEDS.keys() & methods.keys():
        methods[name](gaussian(2_000, 10), np.arange(10))  # compiles
    sizes = [(20_000, 10), (20_000, 30)] + ([] if quick else [(100_000, 30), (300_000, 30), (1_000_000, 30)])
    note = (
        f"The {K} nearest of every point: processor seconds, and the recall in brackets. Exact searches are estimated "
        f"from {QUERIES:,} queries. The approximate one is all of `NeighborGraph.build` with recall=0.98."
    )
    rows = [row(kind, m, n, methods) for m, n in sizes for kind in DATA]
    return note + "\n\n" + table(["data", "points", *methods], rows)
