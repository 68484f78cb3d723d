"""This tree beside an earlier commit, in turn on one machine: wall and CPU seconds, and memory.

The commit is checked out into a git worktree in a temporary folder; both trees use the same environment.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.report import progress, seconds, stolen, table, times

COMMIT = "c9a9a23"  # home-made threads, vector instructions, two layouts
ROOT = Path(__file__).parent.parent
WORKER = Path(__file__).parent / "_before_worker.py"
# task, numbers, repeats in fresh processes
FITS = [
    ("default NL fit, 2,500 samples", "fit", (2_500,), 3),
    ("default NL fit, 100,000 samples", "fit", (100_000,), 1),
]
GRADIENTS = [
    (f"value and gradient, {m:,} states", "gradient", (m,), repeats)
    for m, repeats in ((2_500, 2), (10_000, 2), (100_000, 1))
]
GOALS = {FITS[0][0]: "≤ 0.55× CPU", "gradient": "≤ 1.3× wall"}
OPERATORS = [(10_000, 50), (100_000, 50), (1_000_000, 50)]


class Trees:
    """Runs tasks in both trees, in turn."""

    def __init__(self, old: Path, caches: Path) -> None:
        self.sources = {"before": old / "src", "now": ROOT / "src"}
        self.caches = caches

    def run(self, task: str, *numbers: int, repeats: int = 1, cache: str = "warm") -> dict[str, dict[str, float]]:
        """Medians of what the worker measured, for both trees; ``cache`` names a folder of compiled code."""
        found: dict[str, list[dict[str, float]]] = {name: [] for name in self.sources}
        for repeat in range(repeats):
            for name, source in self.sources.items():
                folder = self.caches / name / (cache if cache == "warm" else f"{cache}{repeat}")
                found[name].append(self._once(source, folder, task, *numbers))
        return {name: {key: median(one[key] for one in values) for key in values[0]} for name, values in found.items()}

    def _once(self, source: Path, cache: Path, task: str, *numbers: int) -> dict[str, float]:
        environment = {
            **os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache), "MALLOC_MMAP_THRESHOLD_": "65536",
        }  # fmt: skip
        command = [sys.executable, str(WORKER), task, *map(str, numbers)]
        return json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=source).stdout
        )


@contextmanager
def trees() -> Iterator[Trees]:
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(old), COMMIT], check=True)
        try:
            yield Trees(old, Path(folder) / "caches")
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)


def _spin() -> None:
    while True:
        pass


@contextmanager
def busy_core() -> Iterator[None]:
    """Another process keeps one core busy."""
    other = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    other.start()
    try:
        yield
    finally:
        other.kill()
        other.join()


def row(name: str, found: dict[str, dict[str, float]], goal: str = "") -> list[str]:
    old, new = found["before"], found["now"]
    memory = times(new["bytes"] / old["bytes"]) if "bytes" in new else ""
    return [
        name, seconds(old["wall"]), seconds(new["wall"]), times(new["wall"] / old["wall"]), seconds(old["cpu"]),
        seconds(new["cpu"]), times(new["cpu"] / old["cpu"]), memory, goal,
    ]  # fmt: skip


def step_rows(m: int, k: int, found: dict[str, dict[str, float]]) -> list[list[str]]:
    rows = []
    for name, scipy in (("backward", "P @ f"), ("forward", "P.T @ mass")):
        for many, count in (("", 1), ("20 ", 20)):
            old, new = (found[tree][many + name] / count for tree in ("before", "now"))
            gain = found["now"][scipy] / new
            label = f"{m:,}, {k}: `{name}`" + (", 20 steps a call" if count > 1 else "")
            rows.append([label, seconds(old), seconds(new), times(new / old), times(gain)])
    return rows


def run(quick: bool = False) -> str:
    rows: list[list[str]] = []
    steps: list[list[str]] = []

    def add(name: str, found: dict[str, dict[str, float]], goal: str) -> None:
        rows.append(row(name, found, goal))
        progress(" | ".join(rows[-1]))

    began = stolen()
    with trees() as both:
        both.run("first_use")  # fills the caches of compiled code
        for name, task, numbers, repeats in [FITS[0], *GRADIENTS[: 1 if quick else None]]:
            found = both.run(task, *numbers, repeats=1 if quick else repeats)
            add(name, found, GOALS.get(name, GOALS.get(task, "")))
        add("README example", both.run("readme"), "")
        with busy_core():
            add("README example, one core busy", both.run("readme"), "≤ 0.5× wall")
        for m, k in OPERATORS[: 1 if quick else None]:
            found = both.run("operator", m, k)
            add(f"operator build, m = {m:,}, k = {k}", found, "≤ 1.3× wall, ≤ 1.05× memory")
            steps += step_rows(m, k, found)
            for line in step_rows(m, k, found):
                progress(" | ".join(line))
        if not quick:
            name, task, numbers, repeats = FITS[1]
            add(name, both.run(task, *numbers, repeats=repeats), "")
        add(
            "first use: import, README example, fates; nothing compiled yet",
            both.run("first_use", cache="cold"),
            "≤ 0.8× wall",
        )
    lost, all_ = (b - a for a, b in zip(began, stolen(), strict=True))
    header = ["", "wall, before", "wall, now", "ratio", "CPU, before", "CPU, now", "ratio", "memory", "goal"]
    return "\n\n".join(
        [
            f"This tree beside commit {COMMIT}, in turn, medians over fresh processes with compiled code cached unless "
            f"said. The host took {lost / max(all_, 1.0):.1%} of the cores meanwhile. Memory: the ratio of the peaks "
            "above the start of the task; for operators that of graph and operator together.",
            table(header, rows),
            "Steps of an operator, and how many times faster they are than SciPy's products on the same matrix, in "
            "turn in one process. Goals: at most 2× the time of before; 2.5× SciPy at 100,000, 3× at 1,000,000.",
            table(["m, k", "before", "now", "ratio", "against SciPy"], steps),
        ]
    )
