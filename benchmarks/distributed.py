"""Learning from more samples than one asks of memory: NL in the plane in blocks on two local workers of 3 GB each.

Samples are simulated into files of 250,000 rows, which workers read. "Blocks" are the processor seconds that the
workers need for one evaluation of the loss and its gradient, all blocks one after the other in their own processes;
"evaluation" is what an evaluation costs on workers and client together, sending and adding included. Errors are
relative, over 20,000 samples that no fit has seen: of ρ, ‖ρ̂ − ρ‖/‖ρ‖, and of the drift at the central 90% of them.

    python -m benchmarks.distributed [samples ...]               100,000 and 1,000,000 without
    python -m benchmarks.distributed operators [points ...]      500,000 and 5,000,000 without
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np

import ordiff as od
from benchmarks.report import progress, table

ROWS, HORIZON, STEP = 250_000, 4.0, 0.002
SIZES = (100_000, 1_000_000)
# points, coordinates and neighbours of the operators, and the steps that are measured
POINTS, COORDINATES, NEIGHBORS, STEPS = (500_000, 5_000_000), 10, 30, 20
REACH = 2.5  # deviations of a step to the farthest neighbour
HELD_OUT = 20_000


@numba.njit(nogil=True)  # the scheduler in this process goes on meanwhile
def nonlinear(rng: np.random.Generator, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (m, 2) and times (m,) of NL, as `ordiff.datasets.nonlinear`: Euler–Maruyama with steps of 0.002."""
    X, times = np.zeros((m, 2)), np.empty(m)
    for i in range(m):
        t = times[i] = HORIZON * rng.random()
        a, b = 0.0, 0.0
        while t > 0:
            h = min(t, STEP)
            rho = 0.5 * np.sqrt((1 + (np.sqrt(a * a + b * b) - 2 * np.pi) ** 2 / 8) * h)
            p = 1.5 * np.sin(a / 2) + (4 * np.pi**2 * a - a**3) * np.exp(-(a**2) / 4) / (2 * np.pi**2)
            q = 1.5 * np.sin(b / 2) + (4 * np.pi**2 * b - b**3) * np.exp(-(b**2) / 4) / (2 * np.pi**2)
            a, b = a + h * p + rho * rng.standard_normal(), b + h * q + rho * rng.standard_normal()
            t -= h
        X[i, 0], X[i, 1] = a, b
    return X, times


def stored(folder: Path, m: int) -> tuple[Any, Any]:
    """Dask arrays of points and times, in files."""
    import dask.array as da
    from dask import delayed

    points, times = [], []
    for k, first in enumerate(range(0, m, ROWS)):
        rows, path = min(ROWS, m - first), folder / f"{k}.npy"
        if not path.exists():
            X, t = nonlinear(np.random.default_rng(1000 + k), ROWS)
            np.save(path, np.column_stack([X, t]))
        block = da.from_delayed(delayed(np.load)(str(path)), (ROWS, 3), float)[:rows]
        points.append(block[:, :2])
        times.append(block[:, 2])
    return da.concatenate(points), da.concatenate(times)


def seconds_of(client: Any) -> float:
    """Processor seconds of the workers and of this process so far."""
    return sum(client.run(time.process_time).values()) + time.process_time()


def of_evaluation(client: Any, model: od.SnapshotSDE) -> tuple[float, float]:
    """Processor seconds of an evaluation, and of its blocks alone."""
    from ordiff.learning.blocks_elsewhere import ObservedBlock

    problem = model._result.solution.problem
    a, likelihood = model._result.solution.a, problem.likelihood
    problem.value_and_gradient(a)  # places the blocks
    before = seconds_of(client)
    for _ in range(3):
        problem.value_and_gradient(a)
    whole = (seconds_of(client) - before) / 3
    placed = model._data.elsewhere.session.placed
    masses = np.ones((likelihood.schedule.steps, likelihood.schedule.n, likelihood.schedule.phases)) / 100
    spent = client.map(timed, placed.blocks, [masses] * len(placed.blocks), function=ObservedBlock.sums, pure=False)
    return whole, sum(client.gather(spent))


def timed(block: Any, masses: np.ndarray, function: Any) -> float:
    start = time.process_time()
    function(block, masses, 1.0)
    return time.process_time() - start


def errors(model: od.SnapshotSDE) -> tuple[float, float]:
    X, _ = nonlinear(np.random.default_rng(7), HELD_OUT)
    truth = od.datasets.nonlinear(20, random_state=0)
    X = X[model.states_.distance(X) < 2 * model.states_.spacing]
    rho, drift = truth.noise_at(X), truth.drift_at(X)
    central = np.linalg.norm(X - np.median(X, axis=0), axis=1)
    central = central <= np.quantile(central, 0.9)
    off = model.predict_drift(X)[central] - drift[central]
    noise = model.predict_noise(X)
    return float(np.linalg.norm(noise - rho) / np.linalg.norm(rho)), float(
        np.linalg.norm(off) / np.linalg.norm(drift[central])
    )


def row(client: Any, folder: Path, m: int) -> list[str]:
    progress(f"{m:,} samples: simulated")
    X, times = stored(folder, m)
    progress(f"{m:,} samples: fit")
    before, clock = seconds_of(client), time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        model = od.SnapshotSDE(np.zeros(2)).fit(X, times)
    spent, clock = seconds_of(client) - before, time.perf_counter() - clock
    memory = max(client.run(peak).values())
    whole, blocks = of_evaluation(client, model)
    noise, drift = errors(model)
    progress(str(model.check_))
    return [
        f"{m:,}", f"{len(model.states_.points):,}", str(model.n_iter_), f"{spent:.0f} ({clock:.0f})", f"{whole:.2f}",
        f"{blocks:.2f}", f"{memory / 1e9:.2f}", f"{100 * noise:.2f}", f"{100 * drift:.2f}",
        "yes" if model.check_.trusted else "no",
    ]  # fmt: skip


def peak() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


HEADER = ("samples", "states", "evaluations", "fit, CPU s (clock)", "evaluation, CPU s", "blocks, CPU s",
          "peak of a worker, GB", "ρ error %", "drift error %", "trusted")  # fmt: skip


# ------------------------------------------------------------------------------------------ operators


def cells_of_a_tree(seed: int, m: int) -> np.ndarray:
    """Points (m, 10) along a tree that branches into two arms, and each of these into two, with noise in all
    coordinates. The first, from 0 to 3, is how far along the tree they are; the signs of the second and third say on
    which of the four tips, which are equally likely.
    """
    rng = np.random.default_rng(seed)
    along, first, second = 3 * rng.random(m), *rng.choice([-1.0, 1.0], (2, m))
    X = 0.1 * rng.standard_normal((m, COORDINATES)) / np.sqrt(np.arange(1, COORDINATES + 1))
    X[:, 0] += along
    X[:, 1] += first * np.clip(along - 1, 0, None)
    X[:, 2] += second * np.clip(along - 2, 0, None)
    return X


def operator_row(client: Any, m: int) -> list[str]:
    """Graph, operator, steps and fates of so many points, each with its processor seconds."""
    import dask.array as da
    from dask import delayed

    from ordiff import distributed

    parts = [(k, min(ROWS, m - first)) for k, first in enumerate(range(0, m, ROWS))]
    blocks = [da.from_delayed(delayed(cells_of_a_tree)(k, rows), (rows, COORDINATES), float) for k, rows in parts]
    X, spent, clock = da.concatenate(blocks), [seconds_of(client)], time.perf_counter()

    def done(what: str) -> None:
        spent.append(seconds_of(client))
        progress(f"{m:,} points, {what}: {spent[-1] - spent[-2]:.0f} CPU s, {memory_of(client)}")

    graph = distributed.build_graph(X, NEIGHBORS, method="approximate")
    done(f"graph (recall {graph.recall_:.3f}, halo {graph.halo / m:.2f})")
    along, first, second = X[:, :3].compute().T
    kernel = od.Kernel(od.Ordering(4 * along), noise=1.0, dimension=2)
    eps = (np.median(graph.radius(NEIGHBORS)) / REACH) ** 2  # noise 1: the farthest is so many deviations away
    op = distributed.operator(kernel, graph, eps, density="knn")
    done(f"operator (eps {eps:.2g})")
    op.backward(along, steps=STEPS)
    done(f"{STEPS} steps")
    tips = {f"{a:+d}{b:+d}": (along > 2.8) & (a * first > 0) & (b * second > 0) for a in (-1, 1) for b in (-1, 1)}
    fates = distributed.fate_probabilities(op, tips)
    done("fates")
    clock = time.perf_counter() - clock
    off = np.abs(fates[along < 0.5] - 0.25).max()  # the truth, by symmetry
    each = [f"{after - before:.0f}" for before, after in pairwise(spent)]
    return [f"{m:,}", str(len(graph.blocks)), f"{graph.recall_:.3f}", f"{graph.halo / m:.2f}", *each, f"{clock:.0f}",
            memory_of(client), f"{off:.3f}"]  # fmt: skip


def memory_of(client: Any) -> str:
    """The largest memory of the workers and of this process, in all."""
    return f"{(sum(client.run(peak).values()) + peak()) / 1e9:.1f} GB"


OPERATOR_HEADER = ("points", "blocks", "recall", "halo / points", "graph, CPU s", "operator, CPU s",
                   f"{STEPS} steps, CPU s", "fates, CPU s", "in all, clock s", "peaks of all, GB",
                   "fates of the root, off by")  # fmt: skip


def operators(points: tuple[int, ...] = POINTS) -> str:
    """Graphs and operators in blocks on two local workers, one thread each."""
    with two_workers("4GB") as client:
        rows = [operator_row(client, m) for m in points]
    return table(OPERATOR_HEADER, rows)


@contextmanager
def two_workers(memory: str) -> Iterator[Any]:
    from dask.distributed import Client, LocalCluster

    os.environ |= {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    options = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": memory, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


def run(quick: bool = False, sizes: tuple[int, ...] = SIZES) -> str:
    rows = []
    with tempfile.TemporaryDirectory() as folder, two_workers("3GB") as client:
        for m in (20_000,) if quick else sizes:
            rows.append(row(client, Path(folder), m))
            progress(" | ".join(rows[-1]))
    return (__doc__ or "").split("\n\n")[1] + "\n\n" + table(HEADER, rows)


if __name__ == "__main__":
    numbers = tuple(int(word) for word in sys.argv[1:] if word.isdigit())
    print(operators(numbers or POINTS) if "operators" in sys.argv else run(sizes=numbers or SIZES), flush=True)
