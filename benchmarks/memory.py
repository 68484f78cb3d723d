"""Peak resident memory of building a graph and an operator, in units of one CSR matrix.

Each size runs in a fresh process, which first builds a small operator (so that compiled code is loaded) and makes
the points; what the peak rises above the resident memory at that moment counts. The unit is E(8 + 4) + 4(m + 1) bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.report import progress, table, times

SIZES = [(10_000, 50), (10_000, 100), (100_000, 100), (1_000_000, 50)]


def _status(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def _reset_peak() -> int:
    """Make the peak the resident memory of now, which is returned."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def child(m: int, k: int) -> dict[str, float]:
    """Bytes above the start: graph and operator together, also after steps, and the operator alone."""
    from benchmarks.speed import Problem, warm_up

    warm_up()
    problem = Problem.make(m, k)
    start = _reset_peak()
    graph = problem.graph()
    searched = _status("VmHWM") - start
    operator = problem.operator(graph)
    together = _status("VmHWM") - start
    operator.forward(operator.backward(problem.q))
    stepped = _status("VmHWM") - start
    del operator
    start = _reset_peak()
    problem.operator(graph)
    alone = _status("VmHWM") - start
    unit = graph.n_edges * 12 + 4 * (m + 1)
    return {"graph": searched, "together": together, "stepped": stepped, "operator": alone, "unit": unit}


def run(quick: bool = False) -> str:
    rows = []
    for m, k in SIZES[: 1 if quick else None]:
        progress(f"memory, m = {m:,}, k = {k}")
        command = [sys.executable, "-m", "benchmarks.memory", str(m), str(k)]
        # a fixed threshold makes the C library give freed arrays back, so that the warm-up does not hide in the start
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
        output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
        found = json.loads(output)
        unit = found.pop("unit")
        rows.append([f"{m:,}, {k}", f"{unit / 1e6:.1f} MB", *(times(value / unit) for value in found.values())])
    caption = (
        "Peak resident memory above that after import and making the points, in units of one CSR matrix. "
        "Goal: under 2.5×. The result itself (graph with distances, its pattern in two orders, and P) is 2×."
    )
    header = [
        "m, k",
        "one CSR matrix",
        "building the graph",
        "graph and operator",
        "and a step back and forward",
        "operator on a graph that exists",
    ]
    return f"{caption}\n\n{table(header, rows)}"


if __name__ == "__main__":
    print(json.dumps(child(*map(int, sys.argv[1:]))))
