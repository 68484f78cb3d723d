"""Seconds of the snapshot likelihood with its gradient, beside NumPy/SciPy, JAX and PyTorch.

Uniform random points in the plane, k = 100 neighbours, 100 steps, known times, samples as states, one ordering. All
get the points in the same order, which keeps neighbours together in memory, and the same neighbours; all results
are compared before anything is timed. The peers run in their own environment, in turn with ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numba
import numpy as np
import scipy.sparse as sp

import ordiff as od
from benchmarks import peers
from benchmarks.memory import _reset_peak, _status
from benchmarks.report import interleaved, progress, seconds, table, times
from ordiff import _parallel
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.observation import Observation, time_weights
from ordiff.learning.slices import Workspace

SIZES = {2_500: 5, 10_000: 3, 100_000: 3}  # and how often each is repeated
NEIGHBORS, STEPS, FLOOR = 100, 100, 1e-12
PEERS = {
    "JAX, autodiff": "jax_autodiff",
    "JAX, adjoint by hand": "jax_adjoint",
    "PyTorch, autodiff": "torch_autodiff",
}
# PyTorch keeps the gathered masses of every step, about 1.3 m k numbers
TORCH_LIMIT = 10_000
Result = tuple[float, np.ndarray]


@dataclass
class Problem:
    """The arrays of one size."""

    graph: od.NeighborGraph
    dynamics: Dynamics
    initial: np.ndarray
    moments: np.ndarray

    @classmethod
    def make(cls, m: int) -> Problem:
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(m, 2))
        graph = od.NeighborGraph.build(X, k=NEIGHBORS)
        X = X[graph.layout.order]
        graph = od.NeighborGraph.build(X, k=NEIGHBORS)
        eps = NEIGHBORS / (np.pi * m) / 9  # three standard deviations of a step reach the k-th neighbour
        noise, weight = 1 + 0.2 * np.cos(3 * X[:, 1]), 0.3 * np.sin(3 * X[:, 0])
        ordering = (np.sin(2 * X[:, 0]) + 0.3 * X[:, 1],)
        dynamics = Dynamics(eps, noise, ordering, (1 + 0.5 * X[:, 0],), log_weight=weight)
        initial = np.zeros(m)
        initial[rng.choice(m, m // 50, replace=False)] = 50 / m
        return cls(graph, dynamics, initial, rng.uniform(0, STEPS * eps, m))

    def likelihood(self) -> SnapshotLikelihood:
        W = time_weights(self.moments, np.arange(STEPS + 1) * self.dynamics.eps)
        return SnapshotLikelihood(self.graph, Observation(W, floor=FLOOR), self.initial, STEPS)

    def arrays(self) -> dict[str, np.ndarray]:
        """What the peers get: the neighbours as a rectangle, and who has whom as a neighbour, padded."""
        m, K = self.graph.n_points, NEIGHBORS + 1
        index = self.graph.indices.reshape(m, K)
        edges = np.argsort(self.graph.indices, kind="stable")
        counts = np.bincount(self.graph.indices, minlength=m)
        filled = np.arange(counts.max()) < counts[:, None]
        reverse_edge, reverse_index = np.full(filled.shape, index.size), np.zeros(filled.shape, np.int64)
        reverse_edge[filled], reverse_index[filled] = edges, edges // K
        place = self.moments / self.dynamics.eps
        left = np.minimum(place.astype(np.int64), STEPS - 1)
        return {
            "index": index,
            "sqdist": self.graph.sqdist.reshape(m, K),
            "reverse_edge": reverse_edge.astype(np.int32),
            "reverse_index": reverse_index.astype(np.int32),
            "initial": self.initial,
            "left": left,
            "share": 1 - (place - left),
            "l": self.dynamics.orderings[0],
            "slope": self.dynamics.slopes[0],
            "noise": self.dynamics.noise,
            "weight": self.dynamics.log_weight,
            "eps": np.array(self.dynamics.eps),
            "steps": np.array(STEPS),
            "floor": np.array(FLOOR),
        }


def ours(likelihood: SnapshotLikelihood, dynamics: Dynamics) -> Result:
    value, gradient = likelihood.value_and_gradient(dynamics)
    parts = (gradient.orderings[0], gradient.slopes[0], gradient.noise, gradient.log_weight)
    return value, np.concatenate(parts)


def with_scipy(problem: Problem) -> Callable[[], Result]:
    """The same adjoint in NumPy and SciPy: two sparse products a step, and Ḡ on the pattern."""
    arrays = problem.arrays()
    m, K = arrays["index"].shape
    graph, eps = problem.graph, problem.dynamics.eps
    columns, rows = arrays["index"].ravel(), np.repeat(np.arange(m), K)
    transposed = sp.csr_array((np.arange(m * K), columns, graph.indptr), shape=(m, m)).tocsc()
    l, slope, noise, weight = (arrays[name] for name in ("l", "slope", "noise", "weight"))
    left, share, at = arrays["left"], arrays["share"], np.arange(m)

    def both() -> Result:
        rise = l[arrays["index"]] - l[:, None]
        logs = (slope[:, None] * rise - arrays["sqdist"] / (2 * eps)) / noise[:, None] ** 2 + weight[arrays["index"]]
        P = np.exp(logs - logs.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        forward = sp.csr_array((P.ravel()[transposed.data], transposed.indices, transposed.indptr), shape=(m, m))
        backward = sp.csr_array((P.ravel(), columns, graph.indptr), shape=(m, m))
        slices = np.empty((STEPS + 1, m))
        slices[0] = problem.initial
        for s in range(STEPS):
            slices[s + 1] = forward @ slices[s]
        likelihood = share * slices[left, at] + (1 - share) * slices[left + 1, at] + FLOOR
        source = np.zeros_like(slices)
        source[left, at] -= share / likelihood / m
        source[left + 1, at] -= (1 - share) / likelihood / m
        later, G = source[-1], np.zeros(m * K)
        for s in reversed(range(STEPS)):
            G += slices[s][rows] * later[columns]
            later = backward @ later + source[s]
        G = G.reshape(m, K)
        M = P * (G - (P * G).sum(axis=1, keepdims=True))
        first, second = (M * rise).sum(axis=1), (M * arrays["sqdist"]).sum(axis=1)
        by_l = np.bincount(columns, (M * (slope / noise**2)[:, None]).ravel(), m)
        by_noise = (second / eps - 2 * slope * first) / noise**3
        by_weight = np.bincount(columns, M.ravel(), m)
        return -float(np.log(likelihood).mean()), np.concatenate([by_l, first / noise**2, by_noise, by_weight])

    return both


def same(name: str, found: Result, expected: Result) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10, err_msg=name)
    scale = np.abs(expected[1]).max()
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6, atol=1e-10 * scale, err_msg=name)


def triad() -> float:
    """Bytes per second of a = b + s c on all cores, 24 bytes each, arrays beyond any cache; best of ten."""
    size = 20_000_000
    a, b, c = np.zeros(size), np.ones(size), np.ones(size)
    cores = int(numba.config.NUMBA_NUM_THREADS)
    ranges = _parallel.even_ranges(size, size * 100, most=cores)

    def once() -> None:
        _parallel.over_ranges(ranges, _triad, a, b, c)

    once()
    return max(24 * size / interleaved({"triad": once}, 1)["triad"] for _ in range(10))


@numba.njit(nogil=True)
def _triad(start, stop, a, b, c):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        a[i] = b[i] + 3.0 * c[i]


def must_move(problem: Problem) -> int:
    """Bytes of the products alone: P (8) and its indices (4) once a step each way, a vector in and out of each."""
    return 2 * (STEPS - 1) * (12 * problem.graph.n_edges + 16 * problem.graph.n_points)


def rows_of(m: int, repeats: int) -> list[list[str]]:
    """The table of one size."""
    problem = Problem.make(m)
    likelihood, workspace, numpy = problem.likelihood(), Workspace(), with_scipy(problem)
    arrays = problem.arrays()
    expected = ours(likelihood, problem.dynamics)
    same("NumPy/SciPy", numpy(), expected)
    taken: dict[str, list[float]] = {}
    limits = []
    asked = {name: task for name, task in PEERS.items() if "PyTorch" not in name or m <= TORCH_LIMIT}
    for repeat in range(repeats):
        progress(f"value and gradient, m = {m:,}, repeat {repeat + 1} of {repeats}")
        limits.append(must_move(problem) / triad())
        mine = {
            "ordiff": lambda: likelihood.value_and_gradient(problem.dynamics, workspace),  # as a fit calls it
            "NumPy/SciPy": numpy,
        }
        count = 5 if m < 100_000 else 2
        once = {}
        for name, both in mine.items():
            both()  # as the peers do: a first call, then some that count
            once[name] = interleaved({name: both}, count)[name]
        for name, task in asked.items():
            result = peers.call(task, worker="_learning_worker.py", repeats=count, **arrays)
            same(name, (float(result["value"]), result["gradient"]), expected)
            once[name] = float(result["time"])
        progress(", ".join(f"{name} {seconds(value)}" for name, value in once.items()))
        for name, value in once.items():
            taken.setdefault(name, []).append(value)
    middle = {name: median(values) for name, values in taken.items()}
    rows = [[f"{m:,}", name, seconds(value), times(value / middle["ordiff"])] for name, value in middle.items()]
    rows += [[f"{m:,}", name, "not run", "–"] for name in PEERS if name not in asked]
    return [
        *rows,
        [
            f"{m:,}",
            "memory limit of ordiff's products",
            seconds(median(limits)),
            f"{median(limits) / middle['ordiff']:.0%}",
        ],
    ]


def child(m: int) -> dict[str, float]:
    """Peak resident bytes of everything from the points on, and of one value and gradient alone."""
    small = Problem.make(2_500)
    small.likelihood().value_and_gradient(small.dynamics)
    start = _reset_peak()
    problem = Problem.make(m)
    likelihood = problem.likelihood()
    ready = _reset_peak()
    likelihood.value_and_gradient(problem.dynamics)
    peak = _status("VmHWM")
    return {"start": start, "ready": ready, "peak": peak}


def memory(m: int) -> str:
    progress(f"memory, m = {m:,}")
    command = [sys.executable, "-m", "benchmarks.learning", str(m)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    found = {name: value / 1e9 for name, value in json.loads(output).items()}
    return (
        f"Peak resident memory at m = {m:,}: {found['peak']:.2f} GB, of which the graph and the likelihood hold "
        f"{found['ready'] - found['start']:.2f} GB and one value and gradient adds "
        f"{found['peak'] - found['ready']:.2f} GB. Goal: below 8 GB."
    )


def run(quick: bool = False) -> str:
    sizes = dict(list(SIZES.items())[:1]) if quick else SIZES
    peers.setup("jax", "torch")
    small = Problem.make(2_500)
    small.likelihood().value_and_gradient(small.dynamics)  # compile first
    rows = [row for m, repeats in sizes.items() for row in rows_of(m, 1 if quick else repeats)]
    theirs = peers.versions(worker="_learning_worker.py")
    return "\n\n".join(
        [
            f"One value and gradient (by the ordering, its slope, noise, weights and step), k = {NEIGHBORS}, {STEPS} "
            "steps, known times, samples as states, float64; time to run, without compiling. The peers are JAX "
            f"{theirs['jax']} and PyTorch {theirs['torch']} on the processor with numpy {theirs['numpy']}; they leave "
            "out the derivative by the step. Each is called once, then several times in a row, of which the median "
            "counts, before the next is. Ratios are times over ordiff's. Goals: NumPy/SciPy at least 4×, the "
            "faster JAX 2.5×, PyTorch 5×; at m = 100,000 at least 70% of the memory limit. The limit is the time in "
            "which a = b + s c on all cores (24 bytes each) moves what the sparse products must: matrix and indices "
            "once a step and direction. Small matrices fit the cache, so their limit is no limit. PyTorch's autodiff "
            f"keeps the gathered masses of all steps, and is not run above m = {TORCH_LIMIT:,}, where that is over "
            "10 GB. PyTorch is shown with one thread or all, whichever is faster.",
            table(["m", "what", "time", "ratio"], rows),
            memory(max(sizes)),
        ]
    )


if __name__ == "__main__":
    print(json.dumps(child(int(sys.argv[1]))))
