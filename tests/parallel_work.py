"""What test_parallel_process.py runs in processes of their own: the same work here, in threads, in other processes."""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache

import joblib
import numpy as np

import ordiff as od
from ordiff import _parallel

SHARED, PIECE = 20_000, 5_000  # small work is shared among threads too

Results = dict[str, np.ndarray]


@cache
def operator() -> od.MarkovOperator:
    """With steps that are shared by threads; one for all threads of a process."""
    X = np.random.default_rng(0).normal(size=(2000, 2))
    op = od.Kernel(X[:, 0], noise=0.5 + 0.1 * np.tanh(X[:, 1])).operator(od.NeighborGraph.build(X, k=50), 0.01)
    assert len(_parallel.row_ranges(op.graph.indptr)) > 10
    return op


def work() -> Results:
    """Steps of one and several functions, and a fit."""
    _parallel._SHARED, _parallel._PIECE = SHARED, PIECE  # in every process that does the work
    warnings.simplefilter("ignore", od.OrdiffWarning)  # a few iterations do not converge
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
    data = od.datasets.ornstein_uhlenbeck(200, random_state=0)
    model = od.SnapshotSDE(
        data.start,
        states=od.States.design(data.X, 0.5, data.start),
        smoothness=od.Smoothness(0.1, 1.0, basis=10),
        solver=od.Solver(eps=0.15, max_iter=10, n_starts=1),
    ).fit(data.X, data.times)
    learned = ("ordering_", "noise_", "drift_", "ordering_std_", "loss_")
    return steps | {name: np.asarray(getattr(model, name)) for name in learned}


def in_process(method: str) -> list[Results]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        return [pool.submit(work).result()]


def threads() -> list[Results]:
    """Four threads at once, all of them at their first step of one operator."""
    operator.cache_clear()
    operator()
    with ThreadPoolExecutor(4) as pool:
        return [future.result() for future in [pool.submit(work) for _ in range(4)]]


def with_joblib(backend: str) -> list[Results]:
    return joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(work)() for _ in range(2))


WAYS: dict[str, Callable[[], list[Results]]] = {
    "here": lambda: [work()],
    "forked": lambda: in_process("fork") if "fork" in multiprocessing.get_all_start_methods() else [],
    "spawned": lambda: in_process("spawn"),
    "four threads": threads,
    "joblib, loky": lambda: with_joblib("loky"),
    "joblib, threading": lambda: with_joblib("threading"),
}


def main() -> None:
    """One way after the other in this process: "here" first, so that a forked child finds threads in use."""
    path, *ways = sys.argv[1:]
    found = {}
    for way in ways:
        print(way, flush=True)  # of one that hangs, its name is the last
        for number, result in enumerate(WAYS[way]()):
            found |= {f"{way}, run {number}/{name}": a for name, a in result.items()}
    np.savez(path, **found)
