"""What `SnapshotSDE` learns, against the truth and beside the paper's figures, over five seeds.

First, all processes with defaults. The drift error is the relative rms of the drift at the central 90% of the samples,
with the worst seed in brackets; the drift scale is that of a regression through 0 of the learned drift on the true one
there (1 is right). Errors of l, 0 at the start, and of ρ are ‖l̂ − l‖/‖l‖ over all samples. "Covered" is the share of
samples within two standard deviations of the truth; seconds are those of the processor; "trusted" is the share of seeds
whose fit passes its own check. Medians over seeds.

Then other settings and sizes, with errors as the paper measures them: as above, ρ not smoothed afterwards unless the
row says so, with their range. Seconds are those of the clock.

To see some of the first table: python -m benchmarks.learned NAME ... [seed ...].
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

import ordiff as od
from benchmarks.report import progress, table

# none of these seeds was looked at while settings were chosen
SEEDS = range(100, 105)
# functions of ordiff.datasets
PROCESSES = (
    "tilted_well", "well_1d", "well_snapshots", "well_ou", "three_wells", "noise_switch", "unequal_wells", "wide_start",
    "ring", "mueller_brown", "saddle", "bent_valley", "far_start", "fast_slow", "ornstein_uhlenbeck", "nonlinear",
    "valley", "double_well",
)  # fmt: skip
# the share of the samples at which the drift is compared, those nearest to their median
CENTRAL = 0.9
DRIFT_HEADER = (
    "process", "samples", "drift error (worst)", "drift scale", "l error %", "ρ error %", "l covered", "ρ covered",
    "drift covered", "seconds", "trusted",
)  # fmt: skip
# radii where the noise of NL is least, and beyond
RISE = ((5.5, 6.6), (8.0, 9.5))
HEADER = ("", "l Pearson", "l error %", "mean l %", "ρ Pearson", "ρ error %", "l covered", "ρ covered", "seconds")


def fitted(problem: od.datasets.Problem, **settings: Any) -> tuple[od.SnapshotSDE | None, float]:
    """A fit with known times, None if it refuses the samples, and its processor seconds."""
    began = time.process_time()
    model = None
    try:
        with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
            model = od.SnapshotSDE(problem.start, **settings).fit(problem.X, problem.times)
    except ValueError as error:
        progress(f"{problem.name} failed: {error}")
    return model, time.process_time() - began


def compile_loops() -> None:
    """A fit that is not measured: the first of a process compiles."""
    fitted(od.datasets.tilted_well(300, random_state=0))


def trusted(model: od.SnapshotSDE) -> float:
    """Whether the fit passes its own check, 1 or 0; nan where it has none."""
    check = getattr(model, "check_", None)
    return np.nan if check is None else float(check.trusted)


def central(X: np.ndarray, share: float = CENTRAL) -> np.ndarray:
    """The samples nearest to their median, (m,) bool: ‖(x − median)/s‖, s the median of |x − median| by coordinate."""
    away = np.abs(X - np.median(X, axis=0))
    distance = np.linalg.norm(away / np.median(away, axis=0), axis=1)
    return distance <= np.quantile(distance, share)


def relative_error(found: np.ndarray, truth: np.ndarray) -> float:
    """‖found − truth‖/‖truth‖."""
    return float(np.sqrt(np.sum((found - truth) ** 2) / np.sum(truth**2)))


def measure_drift(problem: od.datasets.Problem, model: od.SnapshotSDE) -> dict[str, float]:
    """A fit against its truth; nan for what the model does not have."""
    inner = central(problem.X)
    learned, true = model.drift_[inner], problem.drift[inner]
    first = problem.X[problem.start] if problem.start.dtype == bool else problem.start[None, :]
    l = problem.ordering - problem.ordering_at(first).mean()
    rho = np.broadcast_to(problem.noise, l.shape)
    deviation = getattr(model, "drift_std_", None)
    within = np.nan if deviation is None else np.mean(np.abs(model.drift_ - problem.drift) <= 2 * deviation)
    return {
        "drift error": relative_error(learned, true),
        "drift scale": float(np.sum(learned * true) / np.sum(true**2)),
        "l error": 100 * relative_error(model.ordering_, l),
        "ρ error": 100 * relative_error(model.noise_, rho),
        "l covered": float(np.mean(np.abs(model.ordering_ - l) <= 2 * model.ordering_std_)),
        "ρ covered": float(np.mean(np.abs(np.log(model.noise_ / rho)) <= 2 * model.log_noise_std_)),
        "drift covered": float(within),
        "trusted": trusted(model),
    }


def cell(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "–"


def drift_row(name: str, seeds: Iterable[int]) -> list[str]:
    """Medians over the seeds of one process; the error of a fit that failed is infinite, and it is in no other one."""
    found, taken, failed = [], [], 0
    for seed in seeds:
        progress(f"learned: {name}, seed {seed}")
        problem = getattr(od.datasets, name)(random_state=seed)
        model, seconds = fitted(problem)
        taken.append(seconds)
        if model is None:
            failed += 1
        else:
            found.append(measure_drift(problem, model))
    if not found:
        return [name, str(len(problem.X)), "all fits fail", *["–"] * (len(DRIFT_HEADER) - 3)]
    errors = [one["drift error"] for one in found] + [np.inf] * failed
    worst = f"{failed} of {len(errors)} fail" if failed else f"{max(errors):.3f}"
    digits = {"drift scale": 2, "l error": 1, "ρ error": 1, "l covered": 2, "ρ covered": 2, "drift covered": 2}
    middle = [cell(float(np.median([one[key] for one in found])), d) for key, d in digits.items()]
    share = cell(float(np.mean([one["trusted"] for one in found])), 2)
    return [
        name, str(len(problem.X)), f"{cell(float(np.median(errors)), 3)} ({worst})", *middle,
        cell(float(np.median(taken)), 1), share,
    ]  # fmt: skip


def drift_table(names: Iterable[str], seeds: Iterable[int]) -> str:
    """The named processes with defaults; each row is printed when it is done."""
    rows = []
    compile_loops()
    for name in names:
        rows.append(drift_row(name, seeds))
        print("| " + " | ".join(rows[-1]) + " |", flush=True)
    return table(DRIFT_HEADER, rows)


def measure(data: od.datasets.Problem, known: bool = True, smooth: bool = False, **settings: Any) -> list[float]:
    """One fit against its truth; ``smooth``: the noise as the paper shows it, a mean over 35 neighbours."""
    if not known:
        settings |= {"times": od.TimeDensity(data.time_density, data.horizon)}
    began = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        model = od.SnapshotSDE(data.start, **settings).fit(data.X, data.times if known else None)
    taken = time.perf_counter() - began
    l = data.ordering - data.ordering_at(np.atleast_2d(data.start))[0]
    rho = np.broadcast_to(data.noise, l.shape)
    noise = od.smooth(od.NeighborGraph.build(data.X, k=35), model.noise_, k=35) if smooth else model.noise_
    return [
        float(np.corrcoef(model.ordering_, l)[0, 1]),
        100 * float(np.sqrt(np.mean((model.ordering_ - l) ** 2) / np.mean(l**2))),
        100 * float(model.ordering_.mean() / l.mean() - 1),
        float(np.corrcoef(noise, rho)[0, 1]) if np.ptp(rho) > 0 and np.ptp(noise) > 0 else np.nan,
        100 * float(np.sqrt(np.mean((noise - rho) ** 2) / np.mean(rho**2))),
        float(np.mean(np.abs(model.ordering_ - l) <= 2 * model.ordering_std_)),
        float(np.mean(np.abs(np.log(noise / rho)) <= 2 * model.log_noise_std_)),
        taken,
    ]


def row(name: str, results: list[list[float]]) -> list[str]:
    """The median over seeds, with the range of the errors."""
    middle = np.median(results, axis=0)
    low, high = np.min(results, axis=0), np.max(results, axis=0)
    digits = (5, 2, 2, 3, 1, 2, 2, 0)
    cells = [f"{value:.{d}f}" if np.isfinite(value) else "–" for value, d in zip(middle, digits, strict=True)]
    for place in (1, 4):
        if len(results) > 1:
            cells[place] += f" ({low[place]:.{digits[place]}f}–{high[place]:.{digits[place]}f})"
    return [name, *cells]


def intervals(seeds: range) -> str:
    """How often the interval for the noise holds the truth when times are unknown, and how wide it is."""
    found = []
    for seed in seeds:
        progress(f"learned: interval, seed {seed}")
        data = od.datasets.ornstein_uhlenbeck(random_state=seed)
        times = od.TimeDensity(data.time_density, data.horizon)
        with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
            model = od.SnapshotSDE(data.start, noise="constant", times=times).fit(data.X)
            found.append(model.profile().interval)
    covered = sum(low <= np.sqrt(2) <= high for low, high in found)
    listed = ", ".join(f"{low:.2f}–{high:.2f}" for low, high in found)
    return f"OU, times unknown: the interval for ρ covers √2 = 1.41 in {covered} of {len(found)} seeds: {listed}."


def rise(seeds: range) -> str:
    """How much the learned noise of NL rises beyond the radius 2π, where it is least."""
    found, truth = [], []
    for seed in seeds:
        progress(f"learned: rise of the noise, seed {seed}")
        data = od.datasets.nonlinear(random_state=seed)
        with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
            model = od.SnapshotSDE(data.start).fit(data.X, data.times)
        radius = np.linalg.norm(data.X, axis=1)
        for noise, ratios in ((model.noise_, found), (data.noise, truth)):
            least, outside = (noise[(radius > a) & (radius < b)].mean() for a, b in RISE)
            ratios.append(outside / least - 1)
    listed = ", ".join(f"{value:+.0%}" for value in found)
    return (
        "NL, times known: rise of the mean noise from radius 5.5–6.6 to 8–9.5: "
        f"{listed}; the truth {np.mean(truth):+.0%}."
    )


def run(*, quick: bool = False) -> str:
    seeds = SEEDS[:1] if quick else SEEDS
    processes = drift_table(PROCESSES[:2] if quick else PROCESSES, seeds)
    cases: list[tuple[str, Any, dict[str, Any], int]] = [
        ("NL, 2,500, times known", lambda s: od.datasets.nonlinear(random_state=s), {}, 5),
        ("NL lifted to 10 dimensions with noise", lambda s: od.datasets.nonlinear(random_state=s, lift=10), {}, 3),
        ("OU, 1,500, times known, constant noise", lambda s: od.datasets.ornstein_uhlenbeck(random_state=s),
         {"noise": "constant"}, 5),
        ("OU, 1,500, times unknown, constant noise", lambda s: od.datasets.ornstein_uhlenbeck(random_state=s),
         {"noise": "constant", "known": False}, 5),
        ("sphere, 2,000", lambda s: od.datasets.sphere(random_state=s), {}, 3),
    ]  # fmt: skip
    if not quick:
        paper = {"smooth": True, "states": "samples", "solver": od.Solver(eps=0.1, max_iter=150)}
        nonlinear = lambda s: od.datasets.nonlinear(random_state=s)  # noqa: E731
        cases += [
            ("NL, 100,000, times known", lambda s: od.datasets.nonlinear(100_000, random_state=s), {}, 1),
            ("NL, samples as states, values, .03 and 12.5, ρ smoothed", nonlinear,
             paper | {"smoothness": od.Smoothness(basis=None)}, 2),
            ("NL, samples as states, eigenbasis 250, ρ smoothed", nonlinear,
             paper | {"smoothness": od.Smoothness(ordering=0.0, noise=0.0, basis=250)}, 2),
        ]  # fmt: skip
    rows = []
    for name, make, settings, most in cases:
        results = []
        for seed in list(seeds)[:most]:
            progress(f"learned: {name}, seed {seed}")
            results.append(measure(make(seed), **settings))
        rows.append(row(f"{name} ({len(results)} seeds)", results))
        print("| " + " | ".join(rows[-1]) + " |", flush=True)
    rows += [
        ["the paper, NL, regularised (ρ smoothed)", ".999", "6.67", "6.1", ".903", "13.0", "–", "–", "–"],
        ["the paper, NL, eigenbasis (ρ smoothed)", ".999", "5.88", "5.5", ".921", "11.9", "–", "–", "–"],
    ]
    _, of_processes, of_settings, _ = __doc__.split("\n\n")
    others = table(HEADER, rows)
    return "\n\n".join([of_processes, processes, of_settings, others, rise(seeds), intervals(seeds)])


def main() -> None:
    names = [word for word in sys.argv[1:] if not word.isdigit()]
    unknown = set(names) - set(PROCESSES)
    if unknown or not names:
        sys.exit(f"python -m benchmarks.learned NAME ... [seed ...], with names out of: {', '.join(PROCESSES)}.")
    seeds = [int(word) for word in sys.argv[1:] if word.isdigit()] or SEEDS
    print("\n" + drift_table(names, seeds))


if __name__ == "__main__":
    main()
