"""One task of `benchmarks.before`, run with either tree on the path; prints seconds and bytes as JSON.

It uses only what both trees have: the names of the likelihood are looked up in either.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

Measured = dict[str, float]


def timed(function: Callable[[], object], repeats: int = 1) -> Measured:
    """Median wall and CPU seconds of a call, all threads."""
    wall, cpu = [], []
    for _ in range(repeats):
        begin, began = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - began)
    return {"wall": median(wall), "cpu": median(cpu)}


def fit(m: int) -> Measured:
    """The default fit of the NL process."""
    import ordiff as od

    small, data = od.datasets.nonlinear(300, random_state=0), od.datasets.nonlinear(m, random_state=0)
    od.SnapshotSDE(small.start).fit(small.X, small.times)
    peak = _peak_above()
    found = timed(lambda: od.SnapshotSDE(data.start).fit(data.X, data.times))
    return {**found, "bytes": peak()}


def readme() -> Measured:
    """The fit of the README's example."""
    import ordiff as od

    data = od.datasets.double_well(600, random_state=0)

    def example() -> None:
        od.SnapshotSDE(start=data.start, noise="constant").fit(data.X, data.times)

    example()
    return timed(example, 3)


def gradient(m: int) -> Measured:
    """One value and gradient: k = 100, 100 steps, known times, samples as states."""
    import ordiff as od

    try:
        from ordiff.learning.likelihood import Dynamics
        from ordiff.learning.likelihood import SnapshotLikelihood as Likelihood
        from ordiff.learning.observation import Observation, time_weights
        from ordiff.learning.slices import Workspace

        options = {"workspace": Workspace()}
    except ImportError:  # the commit before
        from ordiff.inference.objective import Dynamics, Observation
        from ordiff.inference.objective import Objective as Likelihood
        from ordiff.inference.times import time_weights

        options = {}
    k, steps = 100, 100
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(m, 2))
    graph = od.NeighborGraph.build(X, k=k)
    eps = k / (np.pi * m) / 9
    dynamics = Dynamics(
        eps,
        1 + 0.2 * np.cos(3 * X[:, 1]),
        (np.sin(2 * X[:, 0]) + 0.3 * X[:, 1],),
        (1 + 0.5 * X[:, 0],),
        log_weight=0.3 * np.sin(3 * X[:, 0]),
    )
    initial = np.zeros(m)
    initial[rng.choice(m, m // 50, replace=False)] = 50 / m
    W = time_weights(rng.uniform(0, steps * eps, m), np.arange(steps + 1) * eps)
    likelihood = Likelihood(graph, Observation(W, floor=1e-12), initial, steps)

    def call() -> None:
        likelihood.value_and_gradient(dynamics, **options)

    call()
    peak = _peak_above()
    found = timed(call, 15 if m <= 10_000 else 5)
    return {**found, "bytes": peak()}


def operator(m: int, k: int) -> Measured:
    """Build, one step and twenty steps of an operator, with SciPy's products beside them."""
    from benchmarks.report import interleaved
    from benchmarks.speed import Problem, warm_up

    warm_up()
    problem = Problem.make(m, k)
    peak = _peak_above()
    graph = problem.graph()
    op = problem.operator(graph)
    held = peak()
    build = timed(lambda: problem.operator(graph), 5)
    P, mass = op.matrix, problem.q / problem.q.sum()
    repeats = max(5, 2_000_000 // m)
    steps = interleaved(
        {
            "backward": lambda: op.backward(problem.q),
            "forward": lambda: op.forward(mass),
            "20 backward": lambda: op.backward(problem.q, 20),
            "20 forward": lambda: op.forward(mass, 20),
            "P @ f": lambda: P @ problem.q,
            "P.T @ mass": lambda: P.T @ mass,
        },
        repeats,
    )
    return {**build, "bytes": held, **steps}


def first_use() -> Measured:
    """Import, and the README's example, in this fresh process."""
    begin, began = time.perf_counter(), time.process_time()
    import ordiff as od

    data = od.datasets.double_well(600, random_state=0)
    model = od.SnapshotSDE(start=data.start, noise="constant").fit(data.X, data.times)
    model.fate_probabilities({"left": data.X[:, 0] < -2, "right": data.X[:, 0] > 2})
    return {"wall": time.perf_counter() - begin, "cpu": time.process_time() - began}


def _peak_above() -> Callable[[], float]:
    """Peak resident bytes from now on, above those of now; Linux."""
    from benchmarks.memory import _reset_peak, _status

    start = _reset_peak()
    return lambda: float(_status("VmHWM") - start)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parent.parent))
    task, *numbers = sys.argv[1:]
    print(json.dumps(globals()[task](*map(int, numbers))))
