"""Seconds of neighbour search, operator build and steps, beside SciPy, pyDiffMap and datafold.

Random points on a curved surface in R³. Everything that is compared runs in turn in one session (the peers in their
own environment, started in turn too) and medians are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.spatial import cKDTree

import ordiff as od
from benchmarks import peers
from benchmarks.report import interleaved, progress, seconds, stolen, table, times

SIZES = {10_000: 100, 100_000: 100, 1_000_000: 50}
STEPS = [(10_000, 50), (100_000, 50), (100_000, 100), (1_000_000, 50)]
PEER_SIZE = 100_000
REPEATS = {10_000: 15, 100_000: 7, 1_000_000: 3}


@dataclass
class Problem:
    """Points, an ordering, noise and density on them, and a step that fits k neighbours."""

    X: np.ndarray
    k: int
    eps: float
    kernel: od.Kernel
    q: np.ndarray

    @classmethod
    def make(cls, m: int, k: int) -> Problem:
        u, v = np.random.default_rng(0).uniform(0, 2, (2, m))
        X = np.column_stack([u, v, 0.5 * np.sin(2 * u) * np.cos(3 * v)])
        kernel = od.Kernel(od.Ordering(np.sin(u) + 0.3 * v), noise=1 + 0.2 * np.cos(v), dimension=2)
        # three standard deviations reach the k-th neighbour
        return cls(X, k, 4 * k / (np.pi * m) / 9, kernel, 1 + 0.3 * np.sin(u))

    def graph(self) -> od.NeighborGraph:
        return od.NeighborGraph.build(self.X, k=self.k)

    def operator(self, graph: od.NeighborGraph) -> od.MarkovOperator:
        return self.kernel.operator(graph, self.eps, density=self.q)

    def query(self) -> None:
        """The neighbour search alone: SciPy's tree on all cores."""
        cKDTree(self.X).query(self.X, self.k + 1, workers=-1)


def warm_up() -> None:
    """Compile, or load what is compiled."""
    problem = Problem.make(5000, 100)
    graph = problem.graph()
    operator = problem.operator(graph)
    operator.backward(problem.q)
    operator.forward(problem.q)
    operator.adjoint(problem.q)
    for density in ("knn", "balanced"):
        problem.kernel.operator(graph, problem.eps, density=density)


def builds(m: int, k: int) -> list[str]:
    """A row of the table of builds."""
    progress(f"build, m = {m:,}, k = {k}")
    problem = Problem.make(m, k)
    graph = problem.graph()
    new = [graph]
    taken = interleaved(
        {
            "graph": lambda: new.__setitem__(0, problem.graph()),
            "first": lambda: problem.operator(new[0]),
            "query": problem.query,
            "build": lambda: problem.operator(graph),
        },
        REPEATS[m],
    )
    return [
        f"{m:,}, {k}",
        *(seconds(taken[name]) for name in ("graph", "query", "first", "build")),
        *(f"{taken[build] / taken[name]:.1%}" for name in ("graph", "query") for build in ("first", "build")),
    ]


def steps(m: int, k: int) -> list[str]:
    """A row of the table of steps."""
    progress(f"steps, m = {m:,}, k = {k}")
    problem = Problem.make(m, k)
    operator = problem.operator(problem.graph())
    P, f = operator.matrix, problem.q
    mass = f / f.sum()
    np.testing.assert_allclose(operator.backward(f), P @ f, rtol=1e-12)
    first = interleaved({"first": lambda: operator.forward(mass)}, 1)["first"]
    np.testing.assert_allclose(operator.forward(mass), P.T @ mass, rtol=1e-10)
    pairs = (
        {"ours": lambda: operator.backward(f), "SciPy's": lambda: P @ f},
        {"ours": lambda: operator.forward(mass), "SciPy's": lambda: P.T @ mass},
    )
    row = [f"{m:,}, {k}"]
    before = stolen()
    for pair in pairs:
        taken = interleaved(pair, max(REPEATS[m], 4_000_000 // m), in_a_row=20)
        alternating = interleaved(pair, max(5 * REPEATS[m], 20_000_000 // m))
        row += [seconds(value) for value in taken.values()]
        row += [times(run["SciPy's"] / run["ours"]) for run in (taken, alternating)]
    lost, time = (b - a for a, b in zip(before, stolen(), strict=True))
    return [*row, seconds(first), f"{lost / max(time, 1.0):.1%}"]


def evolution(m: int, k: int) -> list[str]:
    """A row of the table of many steps."""
    count = 100 if m < 1_000_000 else 50
    progress(f"{count} steps, m = {m:,}, k = {k}")
    problem = Problem.make(m, k)
    operator = problem.operator(problem.graph())
    P, PT = operator.matrix, operator.matrix.T
    mass = problem.q / problem.q.sum()

    def scipy(matrix: object, g: np.ndarray) -> np.ndarray:
        for _ in range(count):
            g = matrix @ g
        return g

    np.testing.assert_allclose(operator.forward(mass, count), scipy(PT, mass), rtol=1e-8)
    taken = interleaved(
        {
            "backward": lambda: operator.backward(problem.q, count),
            "P @ f": lambda: scipy(P, problem.q),
            "forward": lambda: operator.forward(mass, count),
            "P.T @ mass": lambda: scipy(PT, mass),
        },
        3,
    )
    return [
        f"{m:,}, {k}, {count}",
        *(seconds(taken[name]) for name in ("backward", "P @ f")),
        times(taken["P @ f"] / taken["backward"]),
        *(seconds(taken[name]) for name in ("forward", "P.T @ mass")),
        times(taken["P.T @ mass"] / taken["forward"]),
    ]


def beside_peers(m: int, k: int) -> str:
    """The table of operator builds on one pattern."""
    problem = Problem.make(m, k)
    graph = problem.graph()
    plain = od.Kernel(dimension=2)
    ours = {
        "ordiff, ordering, noise and density given": lambda: problem.operator(graph),
        "ordiff, diffusion, density given": lambda: plain.operator(graph, problem.eps, density=problem.q),
        'ordiff, diffusion, `density="knn"`': lambda: plain.operator(graph, problem.eps, density="knn"),
        'ordiff, diffusion, `density="balanced"`': lambda: plain.operator(graph, problem.eps, density="balanced"),
    }
    pattern = {"data": graph.sqdist, "indices": graph.indices, "indptr": graph.indptr}
    taken: dict[str, list[float]] = {}
    for repeat in range(5):
        progress(f"operator builds beside the peers, m = {m:,}, k = {k}, repeat {repeat + 1}")
        once = interleaved({"query": problem.query, **ours}, 1)
        theirs = peers.call("builds", X=problem.X, eps=problem.eps, **pattern)
        once |= {"pyDiffMap": float(theirs["pydiffmap"]), "datafold": float(theirs["datafold"])}
        for name, value in once.items():
            taken.setdefault(name, []).append(value)
    middle = {name: median(values) for name, values in taken.items()}
    query = middle.pop("query")
    rivals = ("pyDiffMap", "datafold")
    rows = [
        [name, seconds(value), f"{value / query:.3f}", *(times(middle[rival] / value) for rival in rivals)]
        for name, value in middle.items()
    ]
    return table(["build", "time", "in neighbour searches", *(f"against {rival}" for rival in rivals)], rows)


def run(quick: bool = False) -> str:
    sizes = {10_000: 100} if quick else SIZES
    m = 10_000 if quick else PEER_SIZE
    warm_up()
    build_rows = [builds(m, k) for m, k in sizes.items()]
    step_rows = [steps(m, k) for m, k in ([(10_000, 50)] if quick else STEPS)]
    evolution_rows = [evolution(m, k) for m, k in ([(10_000, 50)] if quick else STEPS)]
    theirs = peers.versions()
    return "\n\n".join(
        [
            "Operator build (gaussian, global ordering, noise and density arrays) against the graph "
            "(`NeighborGraph.build`: search, sorting, distances) and against SciPy's search alone (`cKDTree` built and "
            "queried on all cores, the points in their random order; the graph asks for them along a curve, which is "
            "faster). The first operator on a graph sorts the graph's pattern for locality, the later ones find "
            "it sorted. Goal: under 10% at m = 100,000.",
            table(
                [
                    "m, k",
                    "graph",
                    "search alone",
                    "first operator",
                    "later",
                    "first/graph",
                    "later/graph",
                    "first/search",
                    "later/search",
                ],
                build_rows,
            ),
            "One step of one function and of one mass against SciPy on the same matrix; the points are in random "
            "order. Operators are kept sorted for locality, and a step includes sorting the function and its "
            "result back. Twenty calls of one, then twenty of the other, in turn. Alternating: one call of each in "
            "turn, so that every call finds the caches full of other things. First: the first step forward of an "
            "operator. Cores lost: the share of time that the host of this virtual machine gave to others, which "
            "shared steps suffer from. Goal: at least 2.5× at 100,000 and 3× at 1,000,000.",
            table(
                [
                    "m, k",
                    "`backward`",
                    "`P @ f`",
                    "ratio",
                    "alternating",
                    "`forward`",
                    "`P.T @ mass`",
                    "ratio",
                    "alternating",
                    "first",
                    "cores lost",
                ],
                step_rows,
            ),
            "Many steps in one call, `backward(f, steps)` and `forward(mass, steps)`: the function is sorted once. "
            "SciPy: the same loop of products. Goal: at least 2×.",
            table(
                ["m, k, steps", "`backward`", "SciPy", "ratio", "`forward`", "SciPy", "ratio"],
                evolution_rows,
            ),
            f"Operator builds on one kNN pattern, m = {m:,}, k = {SIZES[m]}; the last columns say how many times "
            f"faster a row is. The peers (pyDiffMap {theirs['pydiffmap']}, datafold {theirs['datafold']}, numpy "
            f"{theirs['numpy']}) get the distances that the graph holds, so that no part of their time is neighbour "
            "search: pyDiffMap's `construct_Lmat` with a kernel whose `fit` takes known distances, datafold's "
            "`DmapKernelFixed.evaluate`. Both estimate the density by row sums. The unit is `cKDTree` search alone. "
            'Goal: at least 5× faster than both; like theirs, the build with `density="knn"` has a density '
            "estimate in it.",
            beside_peers(m, SIZES[m]),
        ]
    )
