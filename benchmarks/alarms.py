"""How often the check of a fit tells of a fault where there is none.

600 samples of processes within what is learned, defaults but for a constant noise, 25 seeds each. A fit is right where
two standard deviations cover the true drift at 80% of the samples or more; a false alarm is a right fit that is not
trusted, a silent one is not right and trusted.
"""

from __future__ import annotations

import sys

import numpy as np

import ordiff as od
from benchmarks.learned import compile_loops, fitted, relative_error
from benchmarks.report import progress, table

# none of these seeds was looked at while the check was made
SEEDS = range(200, 225)
PROCESSES = ("ornstein_uhlenbeck", "double_well", "three_wells", "unequal_wells", "saddle", "far_start", "fast_slow",
             "wide_start")  # fmt: skip
SAMPLES = 600
RIGHT = 0.8
HEADER = ("process", "fits", "right", "false alarms", "silent", "drift error (median)")


def row(name: str, seeds: range) -> tuple[list[str], list[int]]:
    """One process: its row, and the counts of fits, right ones, false alarms and silent ones."""
    fits = right = alarms = silent = 0
    errors = []
    for seed in seeds:
        progress(f"alarms: {name}, seed {seed}")
        problem = getattr(od.datasets, name)(SAMPLES, random_state=seed)
        model, _ = fitted(problem, noise="constant")
        fits += 1
        if model is None:
            continue
        covered = np.mean(np.abs(model.drift_ - problem.drift) <= 2 * model.drift_std_) >= RIGHT
        right += int(covered)
        alarms += int(covered and not model.check_.trusted)
        silent += int(not covered and model.check_.trusted)
        errors.append(relative_error(model.drift_, problem.drift))
        if not model.check_.trusted:
            progress(f"  not trusted: {model.check_.reasons[0]}")
    counts = [fits, right, alarms, silent]
    return [name, *map(str, counts), f"{np.median(errors):.3f}" if errors else "–"], counts


def run(*, quick: bool = False) -> str:
    rows, total = [], np.zeros(4, int)
    compile_loops()
    for name in PROCESSES[:1] if quick else PROCESSES:
        line, counts = row(name, SEEDS[:2] if quick else SEEDS)
        rows.append(line)
        total += counts
        print("| " + " | ".join(line) + " |", flush=True)
    rows.append(["all", *map(str, total), ""])
    return "\n\n".join([__doc__.split("\n\n", 1)[1].strip(), table(HEADER, rows)])


if __name__ == "__main__":
    print(run(quick="--quick" in sys.argv))
