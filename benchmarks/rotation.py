"""Drift that turns and noise with a direction, learned with defaults; and gradients, which must not be taken for one.

The drift error is the relative rms of the drift at the central 90% of the samples, with the worst seed in brackets. The
turning rate is that of the best linear fit to the drift there, ½(∂₁μ₂ − ∂₂μ₁), in % of the true one's (in 3 dimensions
the length of the curl). "ρ error" is ‖ρ̂ − ρ‖/‖ρ‖ over all samples; "nats" by how much a drift that turns is more likely
than a gradient, "taken" the share of seeds that take it. Seconds are those of the processor, and "× gradient" their
ratio to a fit with drift="gradient". Medians over seeds.

To see some rows: python -m benchmarks.rotation NAME ... [seed ...].
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import combinations

import numpy as np

import ordiff as od
from benchmarks.learned import cell, central, compile_loops, fitted, relative_error, trusted
from benchmarks.report import progress, table

# none of these seeds was looked at while settings were chosen
SEEDS = range(10, 13)
TURNING = ("turning", "limit_cycle", "van_der_pol", "lotka_volterra", "toggle_switch", "repressilator")
GRADIENT = (
    "tilted_well", "well_ou", "three_wells", "noise_switch", "unequal_wells", "wide_start", "ring", "saddle",
    "bent_valley", "fast_slow", "ornstein_uhlenbeck", "nonlinear", "valley", "double_well",
)  # fmt: skip
HEADER = ("process", "drift error (worst)", "turning rate %", "ρ error %", "drift covered", "nats", "taken", "trusted",
          "seconds", "× gradient")  # fmt: skip


def turning_rate(X: np.ndarray, drift: np.ndarray) -> float:
    """The length of the antisymmetric part of the best linear fit to a drift."""
    M = np.linalg.lstsq(np.c_[X, np.ones(len(X))], drift, rcond=None)[0][:-1].T
    return float(np.sqrt(sum((0.5 * (M[b, a] - M[a, b])) ** 2 for a, b in combinations(range(X.shape[1]), 2))))


def measure(problem: od.datasets.Problem, compare: bool) -> dict[str, float]:
    """One fit against its truth, and its time beside that of a gradient."""
    model, seconds = fitted(problem)
    if model is None:
        return {"drift error": np.inf, "seconds": seconds}
    inner = central(problem.X)
    X, learned, true = problem.X[inner], model.drift_[inner], problem.drift[inner]
    beside = fitted(problem, drift="gradient")[1] if compare else np.nan
    nats = np.nan if model.rotation_nats_ is None else model.rotation_nats_
    return {
        "drift error": relative_error(learned, true),
        "rate": 100 * turning_rate(X, learned) / turning_rate(X, true),
        "ρ error": 100 * relative_error(model.noise_, np.broadcast_to(problem.noise, len(problem.X))),
        "covered": float(np.mean(np.abs(model.drift_ - problem.drift) <= 2 * model.drift_std_)),
        "nats": nats,
        "taken": float(bool(model.rotation_.any())),
        "trusted": trusted(model),
        "seconds": seconds,
        "ratio": seconds / beside,
    }


def row(name: str, seeds: Iterable[int], compare: bool) -> list[str]:
    found = []
    for seed in seeds:
        progress(f"rotation: {name}, seed {seed}")
        found.append(measure(getattr(od.datasets, name)(random_state=seed), compare))
    errors = [one["drift error"] for one in found]

    def middle(key: str, digits: int, over=np.median) -> str:  # type: ignore[no-untyped-def]
        return cell(float(over([one.get(key, np.nan) for one in found])), digits)

    rate = middle("rate", 0) if name in TURNING else "–"
    return [
        name, f"{cell(float(np.median(errors)), 3)} ({max(errors):.3f})", rate, middle("ρ error", 1),
        middle("covered", 2), middle("nats", 0), middle("taken", 2, np.mean), middle("trusted", 2, np.mean),
        middle("seconds", 1), middle("ratio", 1),
    ]  # fmt: skip


def rows(names: Iterable[str], seeds: Iterable[int], compare: bool = True) -> str:
    """The named processes; each row is printed when it is done."""
    out = []
    compile_loops()
    for name in names:
        out.append(row(name, seeds, compare))
        print("| " + " | ".join(out[-1]) + " |", flush=True)
    return table(HEADER, out)


def run(quick: bool = False) -> str:
    """All tables."""
    if quick:
        return rows(("turning",), [0])
    return rows((*TURNING, *GRADIENT), SEEDS)


if __name__ == "__main__":
    chosen = [name for name in sys.argv[1:] if not name.isdigit()]
    rows(chosen or (*TURNING, *GRADIENT), [int(one) for one in sys.argv[1:] if one.isdigit()] or SEEDS, compare=False)
