"""Questions of an operator beside pyDiffMap's TMDmap, CellRank's PseudotimeKernel and deeptime.

The committor of a double well against a fine grid; the direction and length of steps in a square where they should be
the same everywhere; the same answers as deeptime on a small chain; and the time of three fates for many samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
import scipy.sparse as sp

import ordiff as od
from benchmarks import peers
from benchmarks.double_well import disc, potential, samples, solved, truth
from benchmarks.report import progress, seconds, table

WORKER, DEEPTIME = "_passage_worker.py", "deeptime==0.4.5"
POINTS, SEEDS, NEIGHBORS = 2000, 5, 400
# name: D, and whether the samples are uniform on a box rather than from exp(−U/D)
SETTINGS = {"exp(−U/D), D = ½": (0.5, False), "box, D = ½": (0.5, True), "box, D = ⅛": (0.125, True)}
# D ε on which every method is tried
STEPS = 0.001 * 2.0 ** np.arange(0, 6.5, 0.5)
# what CellRank is tried with: neighbours and scheme
CELLRANK = [(k, scheme) for scheme in ("hard", "soft") for k in (15, 30, 100, 400)]
SQUARE, SQUARE_SEEDS = 5000, 3
SQUARE_CELLRANK = [(k, scheme) for scheme in ("hard", "soft") for k in (15, 30, 100)]


def unpacked(result: dict[str, np.ndarray], m: int) -> list[sp.csr_array]:
    parts = ("data", "indices", "indptr")
    return [
        sp.csr_array(tuple(result[f"{part}{number}"] for part in parts), shape=(m, m))
        for number in range(len(result) // 3)
    ]


def by_cellrank(X: np.ndarray, ordering: np.ndarray, tried: list[tuple[int, str]]) -> list[sp.csr_array]:
    neighbors, schemes = (np.array(part) for part in zip(*tried, strict=True))
    python = peers.setup_single_cell()
    arrays = {"X": X, "ordering": ordering, "neighbors": neighbors, "schemes": schemes}
    return unpacked(peers.call("cellrank", WORKER, python, **arrays), len(X))


def by_tmdmap(X: np.ndarray, k: int, eps: np.ndarray, log_measure: np.ndarray) -> list[sp.csr_array]:
    return unpacked(peers.call("tmdmap", WORKER, X=X, k=k, eps=eps, log_measure=log_measure), len(X))


# --------------------------------------------------------------------------------------------------- double well


# D, samples -> the committor for each of several steps or settings
Method = Callable[[float, np.ndarray], list[np.ndarray]]


def by_ordiff(density: str, continuous: bool, chosen: bool, D: float, X: np.ndarray) -> list[np.ndarray]:
    graph = od.NeighborGraph.build(X, k=NEIGHBORS)
    kernel = od.Kernel(od.Ordering(-potential(X)), noise=np.sqrt(2 * D))
    q = kernel.density_on(graph, density)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.OrdiffWarning)  # the sweep goes beyond what the graph supports
        steps = [od.tuning.choose_eps(kernel, graph, density=q).eps] if chosen else STEPS / D
        ops = [kernel.operator(graph, float(eps), density=q) for eps in steps]
    return [committor(op, X, continuous) for op in ops]


def committor(op: od.MarkovOperator, X: np.ndarray, continuous: bool) -> np.ndarray:
    """That of ordiff, or infinity where it says that it cannot tell: at steps too short for the samples."""
    try:
        return od.committor(op, disc(X, -1.0), disc(X, 1.0), continuous=continuous)
    except od.SolveError:
        return np.full(len(X), np.inf)


def tmdmap_committors(D: float, X: np.ndarray) -> list[np.ndarray]:
    # exp(−d²/4ε) is a step of variance 2ε: ε is D times ours
    matrices = by_tmdmap(X, NEIGHBORS, STEPS, -potential(X) / D)
    return [solved(P, disc(X, -1.0), disc(X, 1.0)) for P in matrices]


def cellrank_committors(D: float, X: np.ndarray) -> list[np.ndarray]:
    return [solved(P, disc(X, -1.0), disc(X, 1.0)) for P in by_cellrank(X, -potential(X), CELLRANK)]


METHODS: dict[str, Method] = {
    "ordiff, `choose_eps`, `continuous=True`": partial(by_ordiff, "balanced", True, True),
    "ordiff, `choose_eps`, the chain as it is": partial(by_ordiff, "balanced", False, True),
    "ordiff, best ε, `continuous=True`": partial(by_ordiff, "balanced", True, False),
    "ordiff, best ε, the chain as it is": partial(by_ordiff, "balanced", False, False),
    'ordiff, best ε, `continuous=True`, `density="knn"`': partial(by_ordiff, "knn", True, False),
    "pyDiffMap TMDmap, best ε": tmdmap_committors,
    "CellRank PseudotimeKernel, best setting": cellrank_committors,
}


def double_well(n_seeds: int) -> str:
    rows = []
    for name, method in METHODS.items():
        cells = []
        for setting, (D, box) in SETTINGS.items():
            errors = []
            for seed in range(n_seeds):
                X = samples(D, box, POINTS, seed)
                want = truth(D, box)(X)
                errors.append([np.sqrt(np.mean((q - want) ** 2)) for q in method(D, X)])
            by_choice = np.mean(errors, axis=0)  # one choice for all seeds
            best = int(np.argmin(by_choice))
            worst = np.max(errors, axis=0)[best]
            progress(f"{name}, {setting}: {by_choice[best]:.4f}")
            cell = f"{by_choice[best]:.4f} (≤ {worst:.4f})"
            if method is cellrank_committors:
                k, scheme = CELLRANK[best]
                cell += f", {scheme}, k = {k}; all {by_choice.min():.3f}–{by_choice.max():.3f}"
            elif len(by_choice) > 1:
                cell += f", ε {STEPS[best] / D:.3g}"
            cells.append(cell)
        rows.append([name, *cells])
    return table(["method", *SETTINGS], rows)


# -------------------------------------------------------------------------------------------------------- square


def square(seed: int, threefold: bool) -> np.ndarray:
    """Points in the unit square, uniform, or three times as dense in the upper half."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(SQUARE, 2))
    if threefold:
        upper = rng.uniform(size=SQUARE) < 0.75
        X[:, 1] = 0.5 * X[:, 1] + 0.5 * upper
    return X


def angle_and_length(P: sp.csr_array, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the mean displacement: degrees from e_x, and length."""
    v = P @ X - X
    return np.degrees(np.abs(np.arctan2(v[:, 1], v[:, 0]))), np.linalg.norm(v, axis=1)


def inside(X: np.ndarray, low: float = 0.15, high: float = 0.85) -> np.ndarray:
    return ((X > 0.15) & (X < 0.85)).all(axis=1) & (X[:, 1] > low) & (X[:, 1] < high)


def ordiff_step(X: np.ndarray, k: int, length: float) -> sp.csr_array:
    """Our operator on k neighbours with this median length of the mean displacement, ε chosen for the diffusion."""
    graph = od.NeighborGraph.build(X, k=k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.OrdiffWarning)
        q = od.Kernel(dimension=2).density_on(graph, "balanced")
        eps = od.tuning.choose_eps(od.Kernel(dimension=2), graph, density=q).eps
        speed = length / eps
        for _ in range(4):
            P = od.Kernel(od.Ordering(X[:, 0], speed=speed), dimension=2).operator(graph, eps, density=q).matrix
            speed *= length / np.median(angle_and_length(P, X)[1][inside(X)])
    return P


def tmdmap_step(X: np.ndarray, k: int, length: float) -> sp.csr_array:
    """TMDmap with the same k and length, ε so that three deviations of a step reach the k-th neighbour."""
    eps = k / (np.pi * len(X)) / 18
    slope = length / eps
    for _ in range(4):
        (P,) = by_tmdmap(X, k, np.array([eps]), slope * X[:, 0])
        slope *= length / np.median(angle_and_length(P, X)[1][inside(X)])
    return P


def steps_in_a_square(n_seeds: int) -> str:
    found: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(n_seeds):
        for threefold in (False, True):
            X = square(seed, threefold)
            for (k, scheme), P in zip(SQUARE_CELLRANK, by_cellrank(X, X[:, 0], SQUARE_CELLRANK), strict=True):
                length = float(np.median(angle_and_length(P, X)[1][inside(X)]))
                rivals = {"CellRank": P, "TMDmap": tmdmap_step(X, k, length), "ordiff": ordiff_step(X, k, length)}
                progress(f"square, seed {seed}, {scheme}, k = {k}")
                for name, matrix in rivals.items():
                    angle, size = angle_and_length(matrix, X)
                    lower, upper = inside(X, high=0.4), inside(X, low=0.6)
                    value = (
                        np.median(size[lower]) / np.median(size[upper]) if threefold else np.median(angle[inside(X)])
                    )
                    found.setdefault((f"{scheme}, k = {k}", name), [[], []])[threefold].append(float(value))
    names = ("CellRank", "TMDmap", "ordiff")
    rows = [
        [
            setting,
            *(f"{np.mean(found[setting, name][0]):.1f}°" for name in names),
            *(f"{np.mean(found[setting, name][1]):.2f}×" for name in names),
        ]
        for setting in dict.fromkeys(setting for setting, _ in found)
    ]
    header = ["CellRank's setting", *(f"angle, {name}" for name in names), *(f"change, {name}" for name in names)]
    return table(header, rows)


# ------------------------------------------------------------------------------------------------ deeptime, speed


def beside_deeptime() -> str:
    """The largest difference in each answer, relative to its largest value, on a chain of 60 states."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    graph = od.NeighborGraph.build(X, k=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.OrdiffWarning)
        op = od.Kernel(od.Ordering.field(np.stack([-X[:, 1], X[:, 0]], axis=1))).operator(graph, 0.3)
    A, B = (np.argsort(sign * X[:, 0])[:8] for sign in (1, -1))
    theirs = peers.call("deeptime", WORKER, peers.setup_single_cell(DEEPTIME), P=op.matrix.toarray(), A=A, B=B)
    flux = od.reactive_flux(op, A, B)
    ours = {
        "stationary": od.stationary(op),
        "passage": od.first_passage_time(op, A).mean / op.eps,
        "committor": flux.forward,
        "backward": flux.backward,
        "net": flux.net.toarray() * op.eps,
        "total": flux.total * op.eps,
        "rate": flux.rate * op.eps,
    }
    gaps = {name: np.max(np.abs(value - theirs[name])) / np.max(np.abs(theirs[name])) for name, value in ours.items()}
    return ", ".join(f"{name} {gap:.0e}" for name, gap in gaps.items())


def fates_of_many(m: int, dimension: int, k: int = 50) -> list[str]:
    """Three wells in the first two coordinates, as terminal the samples nearest to each."""
    progress(f"three fates, m = {m:,}, {dimension} coordinates")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, (m, 2)) if dimension == 2 else rng.normal(size=(m, dimension))
    start = perf_counter()
    graph = od.NeighborGraph.build(X, k=k)
    built = perf_counter() - start
    angle = 2 * np.pi * np.arange(3) / 3
    distance = ((X[:, None, :2] - 1.2 * np.stack([np.cos(angle), np.sin(angle)], axis=1)) ** 2).sum(axis=2)
    order = np.log(np.exp(-2 * distance).sum(axis=1))
    eps = float(np.median(graph.horizon)) / (9 if dimension == 2 else 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", od.OrdiffWarning)
        op = od.Kernel(od.Ordering(order), dimension=dimension).operator(graph, eps, density="knn")
    off = 0.1 * (X[:, 2:] ** 2).sum(axis=1)
    terminal = {name: np.argsort(distance[:, name] + off)[: m // 100] for name in range(3)}
    taken = []
    for ask in (
        lambda: od.fate_probabilities(op, terminal),
        lambda: od.fate_probabilities(op, terminal, continuous=True),
        lambda: od.first_passage_time(op, np.concatenate(list(terminal.values()))),
        lambda: od.stationary(op),
    ):
        start = perf_counter()
        ask()
        taken.append(perf_counter() - start)
    return [f"{m:,}, {k}, {dimension}", *map(seconds, (built, *taken))]


def run(quick: bool = False) -> str:
    python = peers.setup_single_cell()
    theirs = peers.call("versions", WORKER, names=["pydiffmap"])
    theirs |= peers.call("versions", WORKER, python, names=["cellrank", "scanpy"])
    sizes = [(10_000, 2)] if quick else [(10_000, 2), (10_000, 10), (100_000, 2), (100_000, 10)]
    fates_of_many(2500, 2)  # compile, or load what is compiled
    return "\n\n".join(
        [
            "Rms error of the committor of U = (x² − 1)² + y² between discs of radius ¼ at (∓1, 0), "
            f'{POINTS:,} samples, ordering −U, noise √(2D), {NEIGHBORS} neighbours, `density="balanced"` unless said: '
            "mean over seeds (worst in brackets). `choose_eps` does not see the truth; where it says best, one ε (or "
            "setting) for all seeds was chosen by the truth, for each method alike. `continuous=True` also counts "
            "passages between two steps. CellRank has no ε: it was tried with scanpy's graph of 15, 30, 100 and 400 "
            f"neighbours and both of its schemes. pyDiffMap {theirs['pydiffmap']} (α = 1), CellRank "
            f"{theirs['cellrank']}, scanpy {theirs['scanpy']}. Goal: below .012 each.",
            double_well(1 if quick else SEEDS),
            f"Steps on {SQUARE:,} points in the unit square with l = x. Angle: the median, over the interior, between "
            "the mean displacement of a step and e_x; uniform samples. Change: how many times longer the mean "
            "displacement is in the lower half if the upper half is sampled three times as densely. For each setting "
            "of CellRank the others get as many neighbours and the same median length of the mean displacement. A "
            "right kernel: 0° and 1×.",
            steps_in_a_square(1 if quick else SQUARE_SEEDS),
            f"A chain of 60 states with a rotation, beside {DEEPTIME}: largest relative difference: "
            f"{beside_deeptime()}.",
            "Time of the probabilities of three fates, the first two moments of the passage time to them, and the "
            "stationary mass; the neighbour search for scale. Goal: three fates at m = 100,000 in under 2 minutes.",
            table(
                ["m, k, coordinates", "graph", "fates", "fates, continuous", "passage time", "stationary"],
                [fates_of_many(*size) for size in sizes],
            ),
        ]
    )
