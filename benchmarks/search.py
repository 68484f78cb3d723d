"""Search for the 50 nearest: k-d tree, all pairs, inverted lists and HNSW of faiss, nearest-neighbour descent."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.report import progress, table
from ordiff.graph import approximate, search

K = 50
QUERIES = 2_000
LARGEST_TREE = 100_000  # beyond, a query visits most of the points
Search = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]


def cloud(m: int, n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(m, n))


def scaled(X, samples, build, query) -> tuple[float, np.ndarray]:
    """Processor seconds of the building and of the queries of all points, from those of the samples; what was found."""
    start = time.process_time()
    index = build()
    built = time.process_time()
    found = query(index)
    end = time.process_time()
    return built - start + (end - built) * len(X) / len(samples), found


def tree(X, samples):
    return scaled(X, samples, lambda: cKDTree(X), lambda index: search.query_tree(index, X[samples], K + 1)[1])


def all_pairs(X, samples):
    return scaled(X, samples, lambda: None, lambda _: approximate.exact_nearest(X, samples, K + 1))


def faiss_lists(X, samples):
    def query(lists):
        order = np.argsort(lists.lists[samples], kind="stable")
        found = np.empty((len(samples), K + 1), np.int64)
        found[order] = lists.search(samples[order], K + 1)
        return found

    return scaled(X, samples, lambda: approximate.inverted_lists(X, K + 1, 0.99, 0), query)


def faiss_graph(X, samples):
    return scaled(
        X,
        samples,
        lambda: approximate.layered_graph(X, K + 1, 0.99, 0),
        lambda graph: graph.search(samples, K + 1),
    )


def descent(X, samples):
    from pynndescent import NNDescent

    start = time.process_time()
    found = NNDescent(X, n_neighbors=K + 1 + K // 2, random_state=0).neighbor_graph[0][:, : K + 1]
    return time.process_time() - start, found[samples]


METHODS: dict[str, Search] = {
    "k-d tree": tree,
    "all pairs": all_pairs,
    "faiss": faiss_lists,
    "faiss HNSW": faiss_graph,
    "pynndescent": descent,
}


def available() -> dict[str, Search]:
    return {
        name: run for name, run in METHODS.items() if name in ("k-d tree", "all pairs") or find_spec(name.split()[0])
    }


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.mean([np.isin(row, there).mean() for row, there in zip(exact, found, strict=True)]))


def row(m: int, n: int, methods: dict[str, Search]) -> list[str]:
    X = cloud(m, n)
    samples = np.random.default_rng(1).choice(m, min(m, QUERIES), replace=False)
    exact = approximate.exact_nearest(X, samples, K + 1)
    cells = [f"{m:,} × {n}"]
    for name, run in methods.items():
        if name == "k-d tree" and m > LARGEST_TREE:
            cells.append("–")
            continue
        progress(f"{m:,} × {n}, {name}")
        seconds, found = run(X, samples)
        cells.append(f"{seconds:.1f} ({recall(found, exact):.3f})")
    return cells


def run(quick: bool = False) -> str:
    methods = available()
    if "pynndescent" in methods:
        descent(cloud(2_000, 10), np.arange(10))  # compiles
    sizes = [(50_000, 10), (50_000, 30)] + ([] if quick else [(100_000, 30), (300_000, 30), (1_000_000, 30)])
    note = (
        f"The {K} nearest of every point of a gaussian cloud: processor seconds, and the recall in brackets. Those of "
        f"all but the last are those of building and of {QUERIES:,} queries, scaled to all points."
    )
    return note + "\n\n" + table(["points", *methods], [row(m, n, methods) for m, n in sizes])
