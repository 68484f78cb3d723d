"""Four dimensions and more: what `SnapshotSDE` learns by moments, against the truth.

3,000 samples each, ρ = .6, horizon 3, times uniform or at 6 snapshots. "well × OU" is the double well 2x − 2x³ in one
coordinate and −1.5y in all others; "OU" is −1.5x from (1, 0, …), "OU, rates" has the rates .5 to 3. The others are
there to see what happens where the form that is assumed, a quadratic form and functions of few directions, holds less
well or not at all: a double well along no axis, a ring of coupled double wells, a ring-shaped valley, a noise that
changes along x, and a drift that is no gradient. The drift error is the relative rms of the drift at the central 90% of
the samples, the scale that of a regression through 0 of the learned drift on the true one; "covered" is the share of
the samples' drifts within two standard deviations; seconds are those of the processor. Medians over seeds, with the
worst drift error in brackets.

To see some of it: python -m benchmarks.dimensions [PROCESS ...] [seed ...].
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import ordiff as od
from benchmarks.learned import central, relative_error
from benchmarks.report import progress, table

# none of these seeds was looked at while settings were chosen
SEEDS = range(10, 13)
SAMPLES, HORIZON, NOISE = 3000, 3.0, 0.6
HEADER = ("process", "dimension", "times", "drift error (worst)", "scale", "ρ error %", "drift covered", "ρ covered",
          "trusted", "seconds")  # fmt: skip
Field = Callable[[np.ndarray], np.ndarray]


def well(x: np.ndarray) -> np.ndarray:
    return np.concatenate([2 * x[:, :1] - 2 * x[:, :1] ** 3, -1.5 * x[:, 1:]], axis=1)


def rotation(d: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(5).normal(size=(d, d)))[0]


def coupled(x: np.ndarray) -> np.ndarray:
    return 2 * x - 2 * x**3 + 0.5 * (np.roll(x, 1, axis=1) + np.roll(x, -1, axis=1) - 2 * x)


def ring(x: np.ndarray) -> np.ndarray:
    radius = (x[:, :2] ** 2).sum(axis=1, keepdims=True)
    return np.concatenate([2 * x[:, :2] * (1 - radius), -1.5 * x[:, 2:]], axis=1)


def turning(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x[:, :2] @ np.array([[-1.0, 2.0], [-2.0, -1.0]]), -1.5 * x[:, 2:]], axis=1)


def process(name: str, d: int) -> tuple[Field, Any, np.ndarray]:
    """Drift, noise and start."""
    saddle, off = 0.05 * np.eye(d)[0], np.eye(d)[0]
    if name == "rotated well × OU":
        Q = rotation(d)
        return (lambda x: well(x @ Q) @ Q.T), NOISE, Q @ saddle
    return {
        "well × OU": (well, NOISE, saddle),
        "OU": (lambda x: -1.5 * x, NOISE, off),
        "OU, rates": (lambda x: -np.linspace(0.5, 3, d) * x, NOISE, off),
        "coupled wells": (coupled, NOISE, saddle),
        "ring × OU": (ring, NOISE, saddle),
        "well × OU, noise varies": (well, lambda x: NOISE + 0.25 * np.tanh(x[:, 0]), saddle),
        "turning": (turning, NOISE, off),
    }[name]


CASES = [
    *((name, d, design) for name in ("well × OU", "OU") for d in (4, 5, 10, 20) for design in ("uniform", "6")),
    ("OU, rates", 10, "uniform"),
    *((name, 5, "uniform") for name in ("rotated well × OU", "coupled wells", "ring × OU", "well × OU, noise varies",
                                        "turning")),
]  # fmt: skip


def measure(name: str, d: int, design: str, seed: int) -> list[float]:
    """Drift error, scale, ρ error in %, coverage of drift and ρ, trusted, seconds."""
    drift, noise, start = process(name, d)
    rng = np.random.default_rng(1000 + seed)
    t = rng.uniform(0, HORIZON, SAMPLES) if design == "uniform" else HORIZON * (1 + np.arange(SAMPLES) % 6) / 6
    X = od.datasets.simulate(drift, noise, start, t, step=0.005, random_state=rng)
    rho = noise(X) if callable(noise) else np.full(len(X), noise)
    began = time.process_time()
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        model = od.SnapshotSDE(start).fit(X, t)
    seconds = time.process_time() - began
    inner, true = central(X), drift(X)
    learned = model.drift_
    return [
        relative_error(learned[inner], true[inner]),
        float(np.sum(learned[inner] * true[inner]) / np.sum(true[inner] ** 2)),
        100 * relative_error(model.noise_, rho),
        float(np.mean(np.abs(learned - true) <= 2 * model.drift_std_)),
        float(np.mean(np.abs(np.log(model.noise_ / rho)) <= 2 * model.log_noise_std_)),
        float(model.check_.trusted),
        seconds,
    ]


def row(name: str, d: int, design: str, seeds: Iterable[int]) -> list[str]:
    results = []
    for seed in seeds:
        progress(f"dimensions: {name}, {d}, {design}, seed {seed}")
        results.append(measure(name, d, design, seed))
    middle, worst, shares = np.median(results, axis=0), np.max(results, axis=0), np.mean(results, axis=0)
    return [
        name, str(d), design if design == "uniform" else "6 snapshots", f"{middle[0]:.3f} ({worst[0]:.3f})",
        f"{middle[1]:.2f}", f"{middle[2]:.1f}", f"{middle[3]:.2f}", f"{shares[4]:.2f}", f"{shares[5]:.2f}",
        f"{middle[6]:.0f}",
    ]  # fmt: skip


def run(*, quick: bool = False, names: Iterable[str] = (), seeds: Iterable[int] = SEEDS) -> str:
    rows = []
    for case in CASES:
        if (names and case[0] not in names) or (quick and case[1] > 5):
            continue
        rows.append(row(*case, list(seeds)[: 1 if quick else None]))
        print("| " + " | ".join(rows[-1]) + " |", flush=True)
    return __doc__.split("\n\n")[1] + "\n\n" + table(HEADER, rows)


def main() -> None:
    words = sys.argv[1:]
    names, seeds = [word for word in words if not word.isdigit()], [int(word) for word in words if word.isdigit()]
    print("\n" + run(names=names, seeds=seeds or SEEDS))


if __name__ == "__main__":
    main()
