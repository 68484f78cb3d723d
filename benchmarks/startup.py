"""Seconds to import ordiff, and to use it first, in fresh processes: with no compiled code cached, and with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from statistics import median

from benchmarks.report import progress, seconds, table

MODULES = ("numpy", "scipy.sparse", "numba", "sklearn", "ordiff")
FIRST_USE = """
import numpy as np, ordiff as od
m = {m}
X = np.random.default_rng(0).uniform(0, 1, (m, 2))
graph = od.NeighborGraph.build(X, k=50)
op = od.Kernel(od.Ordering(X[:, 0])).operator(graph, eps=1.4 / m, density="knn")
op.generator(X[:, 1])
op.adjoint(X[:, 1])
od.velocity(op)
"""
SIZES = (2_000, 20_000)  # on the larger one steps use several threads


def elapsed(code: str, **environment: str) -> float:
    """Seconds of a fresh process, the interpreter's start included."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **environment})
    return time.perf_counter() - start


def imports(repeats: int) -> list[list[str]]:
    """Rows (module, median seconds), in turn, less the bare interpreter's."""
    codes = ["pass", *(f"import {name}" for name in MODULES)]
    taken: dict[str, list[float]] = {code: [] for code in codes}
    for _ in range(repeats + 1):
        for code in codes:
            taken[code].append(elapsed(code))
    middle = [median(values[1:]) for values in taken.values()]  # the first round fills the disk cache
    return [[f"`import {name}`", seconds(value - middle[0])] for name, value in zip(MODULES, middle[1:], strict=True)]


def run(quick: bool = False) -> str:
    progress("imports")
    rows = imports(1 if quick else 5)
    progress("first use")
    for m in SIZES:
        with tempfile.TemporaryDirectory() as cache:
            first, second = (elapsed(FIRST_USE.format(m=m), NUMBA_CACHE_DIR=cache) for _ in range(2))
        rows.append([f"first use after install, {m:,} points, compile included", seconds(first)])
        rows.append([f"the same in a second process, {m:,} points", seconds(second)])
    caption = (
        "Fresh processes; imports are medians of 5 less the bare interpreter. First use: import, a graph of 50 "
        "neighbours, an operator, its generator and adjoint, and the velocity, with no compiled code cached. "
        "Goals: import under 1 s, first use under 20 s."
    )
    return f"{caption}\n\n{table(['', 'time'], rows)}"
