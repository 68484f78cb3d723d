"""Drift that turns and noise with a direction, learned with defaults; and gradients, which must not be taken for one.

First, processes that turn, or whose noise has a direction (the last two, with noise="tensor"). The drift error is the
relative rms of the drift at the central 90% of the samples, with the worst seed in brackets. The turning rate is that
of the best linear fit to the drift there, ½(∂₁μ₂ − ∂₂μ₁), in % of the true one's (in 3 dimensions the curl's length).
"ρ error" is ‖ρ̂ − ρ‖/‖ρ‖ over all samples, "tensor error" that of ρ²A, by Frobenius norms; "nats" by how much a drift
that turns is more likely than a gradient, "taken" the share of seeds that take it; "trusted" the share whose fit passes
its own check. Seconds are those of the processor. Medians over seeds, which are all done for one seed before the next.

Then gradients of few samples: the share of seeds in which a rotation is switched off, the drift error with the default
and with drift="gradient", and how much longer the default takes (for the first seeds, on which both are fitted).

Last, linear systems: dx = Mx dt + dB with random M and D = cov B, see `linear_system`, from the samples of some
snapshots, with drift="general" and noise="tensor"; "flagged" counts the systems whose fit fails its own check. M is
read off by regression of the learned drift on x, at the samples; errors are ‖M̂ − M‖/‖M‖ and ‖D̂ − D‖/‖D‖ by Frobenius
norms.

To see parts: python -m benchmarks.rotation [gradients | linear [2d] [3d] | NAME ...] [seed ...].
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

import ordiff as od
from benchmarks.learned import cell, central, compile_loops, fitted, relative_error, trusted
from benchmarks.report import progress, table

# none of these seeds was looked at while settings were chosen
SEEDS = range(100, 105)
TURNING = {
    name: getattr(od.datasets, name)
    for name in ("turning", "limit_cycle", "van_der_pol", "lotka_volterra", "toggle_switch", "repressilator")
}
TENSORS = {"tensor, diagonal": od.datasets.tensor_ou, "tensor, rotated": partial(od.datasets.tensor_ou, angle=0.6)}
HEADER = ("process", "seeds", "drift error (worst)", "turning rate %", "ρ error %", "tensor error %", "drift covered",
          "nats", "taken", "trusted", "seconds")  # fmt: skip
# gradients, with so many samples, on so many seeds
GRADIENTS = {"ornstein_uhlenbeck": 600, "tilted_well": 800, "double_well": 800, "three_wells": 1000, "saddle": 800}
GRADIENT_SEEDS = range(300, 310)
# seeds of which a gradient is fitted too, even if it is the same
TIMED = 3
GRADIENT_HEADER = ("process", "samples", "seeds", "switched off", "drift error", 'with drift="gradient"',
                   "drift covered", "with it", "seconds", "× gradient")  # fmt: skip
# samples in a snapshot, and snapshots after the start
PER_SNAPSHOT, SNAPSHOTS = 500, (5, 10)
LINEAR_HEADER = ("coordinates", "snapshots", "systems", "M error % (worst)", "D error % (worst)", "drift error (worst)",
                 "drift covered", "flagged", "seconds")  # fmt: skip

Record = dict[str, float]


def turning_rate(X: np.ndarray, drift: np.ndarray) -> float:
    """The length of the antisymmetric part of the best linear fit to a drift."""
    M = slope(X, drift)
    return float(np.sqrt(sum((0.5 * (M[b, a] - M[a, b])) ** 2 for a, b in combinations(range(X.shape[1]), 2))))


def slope(X: np.ndarray, drift: np.ndarray) -> np.ndarray:
    """M (n, n) of the best linear fit Mx + c to a drift."""
    return np.asarray(np.linalg.lstsq(np.c_[X, np.ones(len(X))], drift, rcond=None)[0][:-1].T)


def measure(problem: od.datasets.Problem, **settings: Any) -> Record:
    """One fit against its truth."""
    model, seconds = fitted(problem, **settings)
    if model is None:
        return {"drift error": np.inf, "seconds": seconds, "failed": 1.0}
    inner = central(problem.X)
    X, learned, true = problem.X[inner], model.drift_[inner], problem.drift[inner]
    found = {
        "drift error": relative_error(learned, true),
        "ρ error": 100 * relative_error(model.noise_, np.broadcast_to(problem.noise, len(problem.X))),
        "covered": float(np.mean(np.abs(model.drift_ - problem.drift) <= 2 * model.drift_std_)),
        "nats": np.nan if model.rotation_nats_ is None else model.rotation_nats_,
        "taken": float(bool(model.rotation_.any())),
        "trusted": trusted(model),
        "seconds": seconds,
    }
    if problem.anisotropy is None:
        return found | {"rate": 100 * turning_rate(X, learned) / turning_rate(X, true)}
    D = np.median(problem.noise) ** 2 * problem.anisotropy[0]
    A = np.eye(len(D)) if model.noise_tensor_ is None else model.noise_tensor_
    return found | {
        "tensor error": 100 * relative_error(np.median(model.noise_) ** 2 * A, D),
        "matrix error": 100 * relative_error(slope(problem.X, model.drift_), slope(problem.X, problem.drift)),
    }


def middle(found: list[Record], key: str, digits: int, over: Any = np.nanmedian) -> str:
    values = np.array([one.get(key, np.nan) for one in found])
    return cell(float(over(values)), digits) if np.isfinite(values).any() else "–"


def with_worst(found: list[Record], key: str, digits: int) -> str:
    """The median, and the largest in brackets."""
    return f"{middle(found, key, digits)} ({middle(found, key, digits, np.nanmax)})"


# ------------------------------------------------------------------------------------------ what turns


def turning_table(names: Iterable[str], seeds: Iterable[int]) -> str:
    """The named processes; all of them are printed after every seed."""
    makers = {name: (TURNING | TENSORS)[name] for name in names}
    found: dict[str, list[Record]] = {name: [] for name in makers}
    compile_loops()
    for seed in seeds:
        for name, make in makers.items():
            settings = {"noise": "tensor"} if name in TENSORS else {}
            found[name].append(measure(make(random_state=seed), **settings))
            progress(f"rotation: {name}, seed {seed}: " + ", ".join(f"{k} {v:.3g}" for k, v in found[name][-1].items()))
        print(_turning(found) + "\n", flush=True)
    return _turning(found)


def _turning(found: dict[str, list[Record]]) -> str:
    rows = [
        [
            name, len(some), with_worst(some, "drift error", 3), middle(some, "rate", 0), middle(some, "ρ error", 1),
            middle(some, "tensor error", 1), middle(some, "covered", 2), middle(some, "nats", 0),
            middle(some, "taken", 2, np.nanmean), middle(some, "trusted", 2, np.nanmean), middle(some, "seconds", 1),
        ]
        for name, some in found.items()
    ]  # fmt: skip
    return table(HEADER, rows)


# ------------------------------------------------------------------------------------------ what does not


def gradient_table(seeds: Iterable[int]) -> str:
    """Gradients of few samples, with the default and with drift="gradient"."""
    found: dict[str, list[Record]] = {name: [] for name in GRADIENTS}
    compile_loops()
    for seed in seeds:
        for name, m in GRADIENTS.items():
            problem = getattr(od.datasets, name)(m, random_state=seed)
            auto = measure(problem)
            # without a rotation it is the same fit: that of a gradient is made for its time
            again = auto["taken"] or len(found[name]) < TIMED
            plain = measure(problem, drift="gradient") if again else auto | {"seconds": np.nan, "covered": np.nan}
            found[name].append(
                {
                    "off": 1 - auto["taken"], "error": auto["drift error"], "plain": plain["drift error"],
                    "covered": auto["covered"], "plain covered": plain["covered"], "nats": auto["nats"],
                    "seconds": auto["seconds"], "ratio": auto["seconds"] / plain["seconds"],
                }
            )  # fmt: skip
            progress(
                f"gradients: {name}, seed {seed}: " + ", ".join(f"{k} {v:.3g}" for k, v in found[name][-1].items())
            )
        print(_gradients(found) + "\n", flush=True)
    return _gradients(found)


def _gradients(found: dict[str, list[Record]]) -> str:
    rows = [
        [
            name, GRADIENTS[name], len(some), middle(some, "off", 2, np.mean), middle(some, "error", 3),
            middle(some, "plain", 3), middle(some, "covered", 2), middle(some, "plain covered", 2),
            middle(some, "seconds", 1), middle(some, "ratio", 2),
        ]
        for name, some in found.items()
    ]  # fmt: skip
    return table(GRADIENT_HEADER, rows)


# ------------------------------------------------------------------------------------------ linear systems


def linear_system(d: int, n_snapshots: int, seed: int) -> od.datasets.Problem:
    """A random stable system, and PER_SNAPSHOT particles at each of so many times after the start.

    M has entries uniform in [−2, 2], drawn again until all its eigenvalues have real parts from −3 to −.3. D = GGᵀ with
    G lower triangular, its diagonal uniform in [.4, .8], the other entries in [−.4, .4]. The start is a point 3 from
    the origin, in a random direction; the times are k/n_snapshots of a horizon of 1.5.
    """
    rng = np.random.default_rng([seed, d])
    while True:
        M = rng.uniform(-2, 2, (d, d))
        rates = np.linalg.eigvals(M).real
        if rates.min() > -3 and rates.max() < -0.3:
            break
    G = np.tril(rng.uniform(-0.4, 0.4, (d, d)), -1) + np.diag(rng.uniform(0.4, 0.8, d))
    start = rng.standard_normal(d)
    times = np.repeat(1.5 * np.arange(1, n_snapshots + 1) / n_snapshots, PER_SNAPSHOT)
    return od.datasets.linear(M, G @ G.T, 3 * start / np.linalg.norm(start), times, random_state=rng)


def linear_table(seeds: Iterable[int], dimensions: Iterable[int] = (2, 3)) -> str:
    """Random linear systems, with a general drift and a noise with a direction."""
    kinds = [(d, n) for d in dimensions for n in SNAPSHOTS]
    found: dict[tuple[int, int], list[Record]] = {kind: [] for kind in kinds}
    compile_loops()
    for seed in seeds:
        for kind in kinds:
            found[kind].append(measure(linear_system(*kind, seed), drift="general", noise="tensor"))
            progress(f"linear: {kind}, seed {seed}: " + ", ".join(f"{k} {v:.3g}" for k, v in found[kind][-1].items()))
        print(_linear(found) + "\n", flush=True)
    return _linear(found)


def _linear(found: dict[tuple[int, int], list[Record]]) -> str:
    rows = [
        [
            d, n, len(some), with_worst(some, "matrix error", 1), with_worst(some, "tensor error", 1),
            with_worst(some, "drift error", 3), middle(some, "covered", 2),
            str(sum(1 - int(one.get("trusted", 0)) for one in some)), middle(some, "seconds", 1),
        ]
        for (d, n), some in found.items()
    ]  # fmt: skip
    return table(LINEAR_HEADER, rows)


def run(quick: bool = False) -> str:
    """All tables."""
    if quick:
        return turning_table(("turning",), [0])
    tables = (turning_table(TURNING | TENSORS, SEEDS), gradient_table(GRADIENT_SEEDS), linear_table(SEEDS))
    return "\n\n".join(tables)


if __name__ == "__main__":
    chosen = [name for name in sys.argv[1:] if not name.isdigit()]
    seeds = [int(one) for one in sys.argv[1:] if one.isdigit()]
    if "gradients" in chosen:
        gradient_table(seeds or GRADIENT_SEEDS)
    elif "linear" in chosen:
        linear_table(seeds or SEEDS, [int(name[0]) for name in chosen if name in ("2d", "3d")] or (2, 3))
    else:
        turning_table([name for name in chosen if name != "all"] or TURNING | TENSORS, seeds or SEEDS)
