"""The public benchmark of nn-APPEX: potentials learned from three snapshots a hundredth of a unit of time apart.

dx = −∇Ψ dt + σ dW in the plane with σ² = .2, 2,000 particles at each of the times 0, .01, .02. The rows of "same" see
the same particles at all three times, shuffled, as the benchmark generates them; those of "others" see new particles
each time, which hardly tell σ² apart, since σ√dt = .045 is below the distances between the samples. A drift error is
mean |learned − true| over mean |true| at the samples; the cosine is that of their angle, its mean over the samples;
"trusted" is the share of seeds whose fit passes its own check. Noise is constant, other settings are defaults. Medians
over seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

import ordiff as od
from benchmarks.learned import cell, compile_loops, fitted, trusted
from benchmarks.report import progress, table

Array = np.ndarray

SEEDS = range(100, 103)
SIGMA2 = 0.2
PARTICLES = 2000
TIMES = (0.0, 0.01, 0.02)
# of the simulation between the snapshots, and towards the Gibbs distribution
STEP, LONG_STEP, LONG = 1e-4, 1e-3, 5.0
HEADER = ("potential", "start", "particles", "drift error", "cosine", "σ² error %", "seconds", "trusted")


@dataclass(frozen=True)
class Potential:
    """Ψ (p, 2) → (p,), and its gradient (p, 2) → (p, 2)."""

    value: Callable[[Array], Array]
    gradient: Callable[[Array], Array]

    def drift(self, x: Array) -> Array:
        return -self.gradient(x)


POTENTIALS = {
    # 5 Σ x²
    "quadratic": Potential(lambda x: 5 * (x**2).sum(axis=1), lambda x: 10 * x),
    # ½ Σ (x⁴ − 16x² + 5x)
    "Styblinski–Tang": Potential(
        lambda x: 0.5 * (x**4 - 16 * x**2 + 5 * x).sum(axis=1), lambda x: 2 * x**3 - 16 * x + 2.5
    ),
    # 5 Σ (sin x + cos x + x² + x)
    "Oakley–O'Hagan": Potential(
        lambda x: 5 * (np.sin(x) + np.cos(x) + x**2 + x).sum(axis=1), lambda x: 5 * (np.cos(x) - np.sin(x) + 2 * x + 1)
    ),
    # Σ (cos πx + ½x⁴ − 3x² + 1)
    "wavy plateau": Potential(
        lambda x: (np.cos(np.pi * x) + 0.5 * x**4 - 3 * x**2 + 1).sum(axis=1),
        lambda x: -np.pi * np.sin(np.pi * x) + 2 * x**3 - 6 * x,
    ),
    # (x² − 2)² + 2y²
    "double well": Potential(
        lambda x: (x[:, 0] ** 2 - 2) ** 2 + 2 * x[:, 1] ** 2,
        lambda x: 4 * np.stack([x[:, 0] * (x[:, 0] ** 2 - 2), x[:, 1]], axis=1),
    ),
}


class Mixture:
    """An isotropic gaussian mixture of 1 to 5 parts, means uniform on [−3, 3]², variances on [.5, 1]."""

    def __init__(self, potential: Potential, rng: np.random.Generator) -> None:
        parts = rng.integers(1, 6)
        self.means, self.variances = rng.uniform(-3, 3, (parts, 2)), rng.uniform(0.5, 1, parts)

    def __call__(self, m: int, rng: np.random.Generator) -> Array:
        part = rng.integers(0, len(self.means), m)
        return self.means[part] + np.sqrt(self.variances[part])[:, None] * rng.standard_normal((m, 2))


class Uniform:
    """Uniform on [−4, 4]²."""

    def __init__(self, potential: Potential, rng: np.random.Generator) -> None:
        pass

    def __call__(self, m: int, rng: np.random.Generator) -> Array:
        return rng.uniform(-4, 4, (m, 2))


class Gibbs:
    """The Gibbs density e^{−2Ψ/σ²} within each well, whose mass is that of the uniform points that run into it."""

    def __init__(self, potential: Potential, rng: np.random.Generator) -> None:
        self.potential = potential

    def __call__(self, m: int, rng: np.random.Generator) -> Array:
        return moved(self.potential, rng.uniform(-4, 4, (m, 2)), LONG, LONG_STEP, rng)


STARTS = {"gaussian mixture": Mixture, "uniform": Uniform, "Gibbs": Gibbs}


def moved(potential: Potential, x: Array, duration: float, step: float, rng: np.random.Generator) -> Array:
    """The particles x (m, 2) after a time."""
    times = np.full(len(x), duration)
    return od.datasets.simulate(potential.drift, np.sqrt(SIGMA2), x, times, step=step, random_state=rng)


def snapshots(potential: str, start: str, same: bool, seed: int, particles: int = PARTICLES) -> od.datasets.Problem:
    """Three snapshots with their truth; the mask ``start`` marks the first."""
    psi, rng = POTENTIALS[potential], np.random.default_rng(seed)
    draw = STARTS[start](psi, rng)
    slices = [draw(particles, rng)]
    for before, now in pairwise(TIMES):
        x, since = (slices[-1], before) if same else (draw(particles, rng), 0.0)
        slices.append(moved(psi, x, now - since, STEP, rng))
    X, times = np.concatenate([rng.permutation(x) for x in slices]), np.repeat(TIMES, particles)
    return od.datasets.Problem(
        name=f"{potential}, {start}", X=X, ordering=-psi.value(X), speed=1.0, scale=1.0,
        noise=np.full(len(X), np.sqrt(SIGMA2)), drift=psi.drift(X), times=times, start=times == 0,
        horizon=TIMES[-1], ordering_at=lambda x: -psi.value(x), drift_at=psi.drift,
    )  # fmt: skip


def measure(problem: od.datasets.Problem, model: od.SnapshotSDE) -> dict[str, float]:
    """The benchmark's measures of a fit."""
    learned, true = model.drift_, problem.drift
    length = lambda v: np.linalg.norm(v, axis=1)  # noqa: E731
    both = np.maximum(length(learned) * length(true), np.finfo(float).tiny)
    return {
        "drift error": float(length(learned - true).mean() / length(true).mean()),
        "cosine": float(np.mean((learned * true).sum(axis=1) / both)),
        "σ² error": 100 * float(np.mean(model.noise_**2) / SIGMA2 - 1),
        "trusted": trusted(model),
    }


def row(potential: str, start: str, same: bool, seeds: range) -> list[str]:
    """Medians over the seeds of one case."""
    found, taken = [], []
    name = [potential, start, "same" if same else "others"]
    for seed in seeds:
        progress(f"appex: {', '.join(name)}, seed {seed}")
        problem = snapshots(potential, start, same, seed)
        model, seconds = fitted(problem, noise="constant")
        if model is not None:
            found.append(measure(problem, model))
            taken.append(seconds)
    if not found:
        return [*name, "all fits fail", "–", "–", "–", "–"]
    middle = [
        cell(float(np.median([one[key] for one in found])), digits)
        for key, digits in (("drift error", 3), ("cosine", 3), ("σ² error", 0))
    ]
    if len(found) < len(seeds):
        middle[0] += f" ({len(seeds) - len(found)} of {len(seeds)} fail)"
    share = cell(float(np.mean([one["trusted"] for one in found])), 2)
    return [*name, *middle, cell(float(np.median(taken)), 1), share]


def run(*, quick: bool = False) -> str:
    cases = [(potential, start, same) for potential in POTENTIALS for start in STARTS for same in (True, False)]
    seeds = SEEDS[:1] if quick else SEEDS
    rows = []
    compile_loops()
    for potential, start, same in cases[:2] if quick else cases:
        rows.append(row(potential, start, same, seeds))
        print("| " + " | ".join(rows[-1]) + " |", flush=True)
    return "\n\n".join([__doc__.split("\n\n", 1)[1].strip(), table(HEADER, rows)])
