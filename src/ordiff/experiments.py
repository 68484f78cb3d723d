"""The cases of the paper, run on the public functions only: what was estimated, beside the truth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from ordiff import datasets
from ordiff._validation import Array
from ordiff.datasets import Problem
from ordiff.fields import mean_curvature, velocity
from ordiff.geometry import smooth
from ordiff.graph import NeighborGraph
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.ordering import Ordering
from ordiff.kernel.schemes import richardson, strang
from ordiff.learning.settings import Smoothness, Solver, TimeDensity
from ordiff.learning.uncertainty import LikelihoodProfile
from ordiff.model import SnapshotSDE
from ordiff.operator import Generator
from ordiff.spectral import eigenbasis


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@dataclass(frozen=True, eq=False)
class TorusRow:
    """One scheme on the torus: the generator and its adjoint on the test function, and their rms errors."""

    scheme: str
    eps: float
    problem: Problem
    generator: Array
    adjoint: Array

    @property
    def errors(self) -> tuple[float, float]:
        assert self.problem.generator is not None
        assert self.problem.adjoint is not None
        return _rms(self.generator - self.problem.generator), _rms(self.adjoint - self.problem.adjoint)


def torus(side: int = 100) -> Iterator[TorusRow]:
    """The schemes of the operator table, one after the other, on the torus of side × side samples."""
    plain, tensor = datasets.torus(side), datasets.torus(side, anisotropic=True)
    # far enough for the widest step, six standard deviations of the Richardson splitting
    graph = NeighborGraph.build(plain.X, radius=1.1)
    order = Ordering.local(plain.ordering)  # type: ignore[arg-type]
    isotropic = Kernel(order, noise=plain.noise)
    split = Kernel(order, noise=tensor.noise, anisotropy=tensor.anisotropy, basis=tensor.jacobian)
    direct = Kernel(
        Ordering.field(tensor.drift), noise=tensor.noise, anisotropy=tensor.anisotropy, basis=tensor.jacobian
    )

    def row(scheme: str, op: Generator, problem: Problem) -> TorusRow:
        f = problem.test_function
        assert f is not None
        return TorusRow(scheme, op.eps, problem, op.generator(f), op.adjoint(f))

    yield row("isotropic", isotropic.operator(graph, 0.0013), plain)
    yield row("isotropic, Richardson", richardson(isotropic, graph, 0.002), plain)
    yield row("anisotropic, Strang", strang(split, graph, 0.0063), tensor)
    flat = replace(split, normal_weight=1e-3)  # the metric of the tangent space alone, as the paper has it
    yield row("anisotropic, Strang, as the paper", strang(flat, graph, 0.0063), tensor)
    yield row("anisotropic, Strang, Richardson", richardson(split, graph, 0.01, scheme=strang), tensor)
    yield row("anisotropic, direct", direct.operator(graph, 0.0021), tensor)
    yield row("anisotropic, direct, Richardson", richardson(direct, graph, 0.003), tensor)


@dataclass(frozen=True, eq=False)
class Spiral:
    """Velocities by kind (m, 3), du₁/dt by kind (m,), the mean curvature (m, 3), which samples are far from edges."""

    side: int
    problem: Problem
    velocities: dict[str, Array]
    curvature: Array
    interior: Array
    intrinsic: dict[str, Array]

    def errors(self, kind: str) -> tuple[float, float]:
        """Mean error over the mean speed: in the interior, and on the first row of the grid, which is an edge."""
        error = np.linalg.norm(self.velocities[kind] - self.problem.drift, axis=1)
        speed = np.linalg.norm(self.problem.drift, axis=1)
        edge = slice(0, self.side)
        return (
            float(error[self.interior].mean() / speed[self.interior].mean()),
            float(error[edge].mean() / speed[edge].mean()),
        )

    @property
    def curvature_error(self) -> float:
        """Mean relative error of the mean curvature vector in the interior."""
        assert self.problem.curvature is not None
        error = np.linalg.norm(self.curvature - self.problem.curvature, axis=1)
        size = np.linalg.norm(self.problem.curvature, axis=1)
        return float((error / size)[self.interior].mean())


def spiral(side: int = 100, eps: float = 0.0015) -> Spiral:
    """Every kind of velocity, and the curvature, on the spiral of side × side samples."""
    p = datasets.spiral(side)
    graph = NeighborGraph.build(p.X, radius=0.5)
    op = Kernel(Ordering(p.ordering, scale=p.scale), noise=p.noise).operator(graph, eps)  # type: ignore[arg-type]
    velocities = {kind: velocity(op, kind) for kind in ("displacement", "symmetric", "projected", "covariance")}
    reach = 5 * p.noise * np.sqrt(eps)
    u, v = p.coordinates.T
    from_edge = np.minimum(u - u.min(), u.max() - u) * 2 * np.pi * u.min()  # at least this far in arclength
    interior = (from_edge > reach) & (v > reach) & (v < 1 - reach)
    intrinsic = {
        "embedding known": velocity(op, "intrinsic", jacobian=p.jacobian)[:, 0],
        "symmetric, of the coordinates": velocity(op, "intrinsic", coordinates=p.coordinates)[:, 0],
        "kernel on the coordinates": _on_coordinates(p, eps),
    }
    return Spiral(side, p, velocities, mean_curvature(graph, eps, p.noise), interior, intrinsic)


# The arclength of the spiral, ∫√(1 + 4π²u²) du over [1, 2].
ARCLENGTH = float(np.mean(np.sqrt(1 + (2 * np.pi * np.linspace(1, 2, 100_001)) ** 2)))


def _on_coordinates(p: Problem, eps: float) -> Array:
    """du₁/dt by a kernel on the sheet's own coordinates, with the noise 2/arclength."""
    u = p.coordinates
    noise, rate = 2.0 / ARCLENGTH, u[:, 0] * (2 - u[:, 0])
    graph = NeighborGraph.build(u, radius=6 * noise * np.sqrt(eps))
    kernel = Kernel(Ordering(p.ordering, scale=1 / rate**2), noise=noise)  # type: ignore[arg-type]
    return kernel.operator(graph, eps, density=u[:, 0]).generator(u)[:, 0]  # the grid is that dense in u₁


# ------------------------------------------------------------------------------------------- learning

# The settings of the paper for the NL process, and ours.
SETTINGS: dict[str, dict[str, Any]] = {
    "designed states": {},
    "paper, regularised": {
        "states": "samples",
        "solver": Solver(eps=0.1),
        "smoothness": Smoothness(ordering=0.03, noise=12.5, basis=None),
    },
    "paper, eigenbasis": {"states": "samples", "solver": Solver(eps=0.1), "smoothness": Smoothness(basis=250)},
}


@dataclass(frozen=True, eq=False)
class Learned:
    """A model of a problem whose truth is known. The noise of the paper's eigenbasis is smoothed, as there."""

    setting: str
    seed: int
    problem: Problem
    model: SnapshotSDE
    noise: Array  # (m,)
    seconds: float
    profile: LikelihoodProfile | None = None

    @property
    def ordering(self) -> tuple[Array, Array]:
        """True and learned, both 0 at the start."""
        at, start = self.problem.ordering_at, self.problem.start
        assert at is not None
        assert start is not None
        return at(self.problem.X) - at(start[None]), self.model.ordering_

    @property
    def regularisation(self) -> float:
        """The share of the objective at its optimum that is regularisation."""
        fitted = self.model._fitted_here("the share of regularisation")
        a, parameters = fitted.solution.a, fitted.solution.parameters
        parts = zip(parameters.blocks, parameters.slices, strict=True)
        return sum(block.strength * block.roughness(a[part])[0] for block, part in parts) / fitted.solution.loss

    def scores(self) -> dict[str, float]:
        """The quantities that the paper reports of an estimate."""
        l, l_hat = self.ordering
        rho, rho_hat = np.asarray(self.problem.noise), self.noise
        drift = self.problem.drift
        return {
            "mean ordering": float(l_hat.mean()), "true mean ordering": float(l.mean()),
            "mean ordering, off by": float(abs(l_hat.mean() / l.mean() - 1)),
            "ordering, rms error": _rms(l_hat - l), "ordering, relative error": _rms(l_hat - l) / _rms(l),
            "ordering, correlation": float(np.corrcoef(l, l_hat)[0, 1]),
            "drift, relative error": _rms(self.model.drift_ - drift) / _rms(drift),
            "mean noise": float(rho_hat.mean()), "true mean noise": float(rho.mean()),
            "mean noise, off by": float(abs(rho_hat.mean() / rho.mean() - 1)),
            "noise, rms error": _rms(rho_hat - rho), "noise, relative error": _rms(rho_hat - rho) / _rms(rho),
            "noise, correlation": float(np.corrcoef(rho, rho_hat)[0, 1]) if np.ptp(rho) > 0 else float("nan"),
        }  # fmt: skip


def nonlinear(
    seed: int = 0, *, setting: str = "designed states", m: int = 2500, progress: bool = False, max_iter: int = 300
) -> Learned:
    """The NL process with known times, learned by one of `SETTINGS`."""
    p, began = datasets.nonlinear(m, random_state=seed), perf_counter()
    model = SnapshotSDE(p.start, progress=progress, **SETTINGS[setting]).set_params(solver__max_iter=max_iter)
    model.fit(p.X, p.times)
    seconds = perf_counter() - began
    noise = model.noise_
    if setting == "paper, eigenbasis":
        noise = smooth(NeighborGraph.build(p.X, k=min(400, m - 1)), noise, k=35)
    return Learned(setting, seed, p, model, noise, seconds)


def ornstein_uhlenbeck(seed: int = 0, *, m: int = 1500, progress: bool = False, max_iter: int = 300) -> Learned:
    """The OU process with unknown times, constant noise, and the likelihood along it."""
    p, began = datasets.ornstein_uhlenbeck(m, random_state=seed), perf_counter()
    model = SnapshotSDE(
        p.start,
        noise="constant",
        times=TimeDensity(p.time_density, p.horizon),
        solver=Solver(max_iter=max_iter),
        progress=progress,
    ).fit(p.X)
    seconds = perf_counter() - began
    return Learned("designed states", seed, p, model, model.noise_, seconds, model.profile("noise"))


def explained_variance(p: Problem, f: Array, counts: Sequence[int], eps: float = 0.1) -> list[float]:
    """The shares of the variance of f that the first n eigenfunctions on the samples explain, for each n in counts."""
    graph = NeighborGraph.build(p.X, k=min(300, len(p.X) - 1))
    most = min(max(counts), len(p.X) // 3)
    functions = eigenbasis(graph, eps, most, density="knn", bandwidth="self-tuning").functions
    centred = f - f.mean()

    def share(n: int) -> float:
        Q = np.linalg.qr(functions[:, :n])[0]
        residual = f - Q @ (Q.T @ f)
        return float(1 - (residual @ residual) / (centred @ centred))

    return [share(n) for n in counts]


# ------------------------------------------------------------------------------------------- paper | ours | truth


@dataclass(frozen=True)
class Number:
    """A number of the paper, ours for every seed, and the truth; None where there is none."""

    case: str
    quantity: str
    paper: float | None
    ours: tuple[float, ...]
    truth: float | None = None
    note: str = ""


def torus_numbers(rows: Iterable[TorusRow]) -> list[Number]:
    paper = {"isotropic": (0.0013, 0.00791, 0.01032), "anisotropic, Strang": (0.0063, 0.0305, 0.03518)}
    paper["anisotropic, Strang, as the paper"] = paper["anisotropic, Strang"]
    found = []
    for row in rows:
        eps, generator, adjoint = paper.get(row.scheme, (None, None, None))
        at, note = f"{row.scheme}, ε = {row.eps:g}", "" if eps else "not in the paper"
        found += [
            Number("torus", f"rms error of L f, {at}", generator, (row.errors[0],), 0.0, note),
            Number("torus", f"rms error of L* f, {at}", adjoint, (row.errors[1],), 0.0, note),
        ]
    C = datasets.torus(100, anisotropic=True).anisotropy
    assert C is not None
    low, high = np.linalg.eigvalsh(C).T
    ratio = float(np.mean(0.5 * (high + low) / (2 / 3 * low)))
    return [
        *found,
        Number("torus", "mean ratio of the isotropic noises (5.36 × 0.0013 ≈ 0.00697)", 5.36, (ratio,), ratio,
               "¾E[λmax/λmin] + ¾; the paper's −¾ is a misprint"),
    ]  # fmt: skip


def spiral_numbers(result: Spiral) -> list[Number]:
    p = result.problem
    assert p.curvature is not None
    curvature, speed = (np.linalg.norm(v, axis=1) for v in (p.curvature, p.drift))
    inside = result.interior
    estimated = [np.linalg.norm(v[inside], axis=1).mean() for v in (result.curvature, result.velocities["symmetric"])]
    numbers = [
        Number("spiral", "arclength", 9.48, (ARCLENGTH,), ARCLENGTH),
        Number("spiral", "E‖H‖ / E‖v‖, far from edges", 0.125, (float(estimated[0] / estimated[1]),),
               float(curvature[inside].mean() / speed[inside].mean()), 'the paper: "≈ ⅛"'),
    ]  # fmt: skip
    for kind in result.velocities:
        inner, edge = result.errors(kind)
        numbers += [
            Number("spiral", f"velocity ({kind}), relative error far from edges", None, (inner,), 0.0, "figure only"),
            Number("spiral", f"velocity ({kind}), relative error at an edge", None, (edge,), 0.0, "figure only"),
        ]
    true = p.intrinsic_drift[:, 0]
    for kind, estimate in result.intrinsic.items():
        error = _rms((estimate - true)[inside]) / _rms(true[inside])
        numbers.append(
            Number("spiral", f"intrinsic velocity ({kind}), far from edges", None, (error,), 0.0, "figure only")
        )
    return [
        *numbers,
        Number("spiral", "mean curvature, relative error far from edges", None, (result.curvature_error,), 0.0,
               "figure only"),
    ]  # fmt: skip


def _over_seeds(runs: Sequence[Learned], name: str) -> tuple[float, ...]:
    return tuple(run.scores()[name] for run in runs)


def ou_numbers(runs: Sequence[Learned]) -> list[Number]:
    case, intervals = "ou", [run.profile.interval for run in runs if run.profile is not None]
    noise = float(np.sqrt(2))
    level = _over_seeds(runs, "mean noise")
    return [
        Number(case, "mean ordering", 33.3, _over_seeds(runs, "mean ordering"), runs[0].scores()["true mean ordering"],
               "truth of the first seed; the paper's samples have 32.5"),
        Number(case, "mean ordering, off by", 0.0243, _over_seeds(runs, "mean ordering, off by"), 0.0),
        Number(case, "ordering, rms error", 0.947, _over_seeds(runs, "ordering, rms error"), 0.0),
        Number(case, "ordering, correlation", 0.999, _over_seeds(runs, "ordering, correlation"), 1.0),
        Number(case, "noise", 1.395, level, noise),
        Number(case, "noise, off by", 0.0138, tuple(abs(value / noise - 1) for value in level), 0.0),
        Number(case, "noise, lower end of the 95% interval", None, tuple(low for low, _ in intervals), noise,
               "profile likelihood"),
        Number(case, "noise, upper end of the 95% interval", None, tuple(high for _, high in intervals), noise,
               "profile likelihood"),
    ]  # fmt: skip


# What the paper reports of its two settings; the quantities are those of `Learned.scores`.
_PAPER_NL = {
    "paper, regularised": (13.84, 0.061, 0.961, 0.0667, 0.999, 0.0448, 0.0888, 0.130, 0.903),
    "paper, eigenbasis": (13.8, 0.055, 0.897, 0.0588, 0.999, 0.0465, 0.0811, 0.119, 0.921),
}
_NL_QUANTITIES = (
    "mean ordering", "mean ordering, off by", "ordering, rms error", "ordering, relative error",
    "ordering, correlation", "mean noise, off by", "noise, rms error", "noise, relative error", "noise, correlation",
)  # fmt: skip


def nl_numbers(runs: Sequence[Learned]) -> list[Number]:
    """Numbers of each setting; those of the designed states beside the paper's better value."""
    numbers = []
    for setting in SETTINGS:
        chosen = [run for run in runs if run.setting == setting]
        if not chosen:
            continue
        for k, name in enumerate(_NL_QUANTITIES):
            paper = _PAPER_NL[setting][k] if setting in _PAPER_NL else _best(name, [v[k] for v in _PAPER_NL.values()])
            truth = (
                chosen[0].scores()["true mean ordering"] if name == "mean ordering" else float("correlation" in name)
            )
            note = "truth of the first seed; the paper's samples have 13.05" if name == "mean ordering" else ""
            numbers.append(Number(f"nl, {setting}", name, paper, _over_seeds(chosen, name), truth, note))
        numbers.append(Number(f"nl, {setting}", "seconds", None, tuple(run.seconds for run in chosen)))
    ten, twenty = explained_variance(runs[0].problem, runs[0].problem.noise, (10, 20))
    regularised = [run for run in runs if run.setting == "paper, regularised"]
    explained = tuple(explained_variance(run.problem, run.model.noise_, (250,))[0] for run in regularised)
    return [
        *numbers,
        Number("nl", "true noise explained by 10 eigenfunctions", 0.90, (ten,)),
        Number("nl", "true noise explained by 20 eigenfunctions", 0.99, (twenty,)),
        Number("nl", "regularised noise explained by 250 eigenfunctions", 0.999, explained),
        Number("nl", "share of the objective that is regularisation", 0.03,
               tuple(run.regularisation for run in regularised)),
    ]  # fmt: skip


def _best(name: str, values: list[float]) -> float:
    return max(values) if "correlation" in name else min(values)


def as_markdown(numbers: Sequence[Number]) -> str:
    """The table paper | ours | truth; several seeds as mean (least to largest), what is worse than the paper bold."""
    lines = ["| case | quantity | paper | ours | truth | |", "|---|---|---|---|---|---|"]
    for n in numbers:
        mean = float(np.mean(n.ours)) if n.ours else None
        ours = "–" if mean is None else f"{mean:.4g}"
        if len(n.ours) > 1:
            ours += f" ({min(n.ours):.4g} to {max(n.ours):.4g})"
        if worse(n):
            ours = f"**{ours}** worse"
        paper, truth = ("–" if v is None else f"{v:.4g}" for v in (n.paper, n.truth))
        lines.append(f"| {n.case} | {n.quantity} | {paper} | {ours} | {truth} | {n.note} |")
    return "\n".join(lines) + "\n"


def worse(n: Number) -> bool:
    """Whether ours is further from the truth than the paper's, by more than its rounding."""
    if n.paper is None or n.truth is None or not n.ours or n.quantity == "mean ordering":
        return False
    # 0.999 may be 0.9995
    slack = 5e-4 if "correlation" in n.quantity else 5e-3 * abs(n.paper)
    return bool(abs(np.mean(n.ours) - n.truth) > abs(n.paper - n.truth) + slack)


def as_json(numbers: Sequence[Number]) -> str:
    def finite(value: float | None) -> float | None:
        return value if value is not None and np.isfinite(value) else None

    rows = [
        {"case": n.case, "quantity": n.quantity, "paper": n.paper, "ours": [finite(v) for v in n.ours],
         "truth": finite(n.truth), "worse": worse(n), "note": n.note}
        for n in numbers
    ]  # fmt: skip
    return json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
