"""What test_parallel_process.py runs in processes of their own: the same work here, in threads, in other processes."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache

import joblib
import numpy as np

import ordiff as od

Results = dict[str, np.ndarray]


@cache
def operator() -> od.MarkovOperator:
    """On more than two million edges, so that steps are shared by threads; one for all threads of a process."""
    X = np.random.default_rng(0).normal(size=(42_000, 2))
    op = od.Kernel(X[:, 0], noise=0.5 + 0.1 * np.tanh(X[:, 1])).operator(od.NeighborGraph.build(X, k=50), 0.01)
    assert op.graph.n_edges > 2_000_000
    return op


def work() -> Results:
    """Steps of one and several functions, and a fit."""
    op = operator()
    f = np.random.default_rng(1).normal(size=(op.graph.n_points, 3))
    steps = {
        "backward": op.backward(f[:, 0], 3),
        "backward, several": op.backward(f, 3),
        "forward": op.forward(f[:, 0], 3),
        "forward, several": op.forward(f, 3),
        "generator": op.generator(f),
        "adjoint": op.adjoint(f),
        "transition probabilities": op.matrix.data,
    }
    data = od.datasets.ornstein_uhlenbeck(300, random_state=0)
    settings = {"smoothness": od.Smoothness(basis=10), "solver": od.Solver(n_starts=1)}
    model = od.SnapshotSDE(data.start, noise="constant", **settings).fit(data.X, data.times)
    learned = ("ordering_", "noise_", "drift_", "ordering_std_", "loss_")
    return steps | {name: np.asarray(getattr(model, name)) for name in learned}


def in_process(method: str) -> list[Results]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        return [pool.submit(work).result()]


def threads() -> list[Results]:
    """Four threads at once, all of them at their first step of one operator."""
    operator()
    with ThreadPoolExecutor(4) as pool:
        return [future.result() for future in [pool.submit(work) for _ in range(4)]]


def with_joblib(backend: str) -> list[Results]:
    return joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(work)() for _ in range(2))


WAYS: dict[str, Callable[[], list[Results]]] = {
    "here": lambda: [work()],
    "here, then forked": lambda: [work(), *in_process("fork")],  # the child finds threads in use
    "spawned": lambda: in_process("spawn"),
    "four threads": threads,
    "joblib, loky": lambda: with_joblib("loky"),
    "joblib, threading": lambda: with_joblib("threading"),
}


def main() -> None:
    way, path = sys.argv[1:]
    results = WAYS[way]()
    np.savez(path, **{f"{name}/{number}": a for number, result in enumerate(results) for name, a in result.items()})
