"""Which quantities a fit learns, in which functions, and where they start from."""

from __future__ import annotations

from typing import Any

import numpy as np

from ordiff import _check
from ordiff._check import Array
from ordiff.geometry import TangentSpaces, usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.inference.fitted import Fitted
from ordiff.inference.objective import Dynamics
from ordiff.inference.parameters import Block, Parameters
from ordiff.inference.regularise import Gradient, Laplacian
from ordiff.inference.seen import Seen
from ordiff.kernel.compose import Kernel
from ordiff.kernel.ordering import Ordering, Table, as_orderings
from ordiff.spectral import smooth_basis
from ordiff.states import States

# Functions of a basis.
_BASIS = 120
# Roughness is Σ μ³a², μ the eigenvalues of −Δ: the third derivatives squared. By μ² a drift would be expected to jump
# in two dimensions and three.
_POWER = 3
# Smoothness to start from, in units of the support's size and of the noise.
_START_ORDERING, _START_NOISE = 9e-10, 4.5e-8
# The least noise that states resolve: a step of this many spacings. With less the chain would stay where it is.
_RESOLVED = 1 / 5
# Regularisation of values on the samples: the paper's.
_PAPER_ORDERING, _PAPER_NOISE = 0.03, 12.5


def parametrise(
    settings: Any, seen: Seen, states: States, eps: float, before: Fitted | None, rho: float
) -> tuple[Parameters, Array, tuple[Ordering, ...]]:
    """The blocks to be learned, their first coefficients, and the given local orderings."""
    N, v, graph = len(states.points), states.volumes, states.graph
    learned, basis = set(settings.learn), settings.basis
    if not isinstance(settings.noise, str):
        learned -= {"noise"}  # it is known
    tables, given = _given(settings, seen, states)
    if "ordering" in learned and not tables:
        tables = [_first_ordering(states, seen.horizon)]
    rho0 = np.full(N, rho)
    if before is not None:
        B = before.states.observe(states.points)
        rho0 = np.exp(B @ np.log(before.dynamics.noise))
        if "ordering" in learned and before.dynamics.orderings:
            tables[0] = B @ before.dynamics.orderings[0]
    if not isinstance(settings.noise, str):
        rho0 = np.full(N, float(settings.noise))
    local = tuple(o.differences(graph, graph.sources(), graph.indices.astype(np.intp)) for o in given)
    base = Dynamics(
        eps, rho0, tuple(tables), tuple(np.ones(N) for _ in tables), local,
        tuple(o.slope_on(graph) for o in given), float(settings.alpha) * np.log(v),
        0.5 if states.are_samples else 1.0,
    )  # fmt: skip
    size = v.sum() ** (1 / states.dimension)
    functions = None
    if basis is not None:
        K = min(_BASIS, max(4, N // 5)) if basis == "auto" else _check.count(basis, "basis", 2)
        functions = smooth_basis(short_edges(states), min(K, N - 2), v, dimension=states.dimension)
    blocks: list[Block] = []
    starts: list[Array] = []
    ones = np.ones((N, 1))

    def strength(name: str, first: float, paper: float) -> float:
        value = getattr(settings, name)
        return (first if basis is not None else paper) if value == "auto" else float(value)

    if "ordering" in learned:
        l_strength = strength("smooth_ordering", _START_ORDERING * size ** (2 * _POWER) / rho**4, _PAPER_ORDERING)
        if functions is None:
            blocks.append(Block("ordering", None, penalty=_gradient_matrix(states), strength=l_strength, unit=rho**2))
            starts.append(tables[0] - tables[0].mean())
        else:
            U, penalty = functions.functions[:, 1:], functions.values[1:] ** _POWER
            extra = _quadratics(states)
            U, penalty = np.hstack([U, extra]), np.concatenate([penalty, np.zeros(extra.shape[1])])
            blocks.append(Block("ordering", U, penalty=penalty, strength=l_strength, unit=rho**2))
            l = tables[0] - np.average(tables[0], weights=v)  # U has no constant
            starts.append(_coefficients(U, l, v, penalty))
    for target, k in [("speed", k) for k in range(len(tables))] + [("local_speed", k) for k in range(len(given))]:
        if "speed" in learned and not (target == "speed" and "ordering" in learned):
            U = ones if settings.speed == "constant" or functions is None else functions.functions
            rough = None if U is ones else functions.values**_POWER  # type: ignore[union-attr]
            blocks.append(Block(target, U, k, penalty=rough, strength=_START_NOISE * size ** (2 * _POWER)))
            starts.append(np.zeros(U.shape[1]))
    if "scale" in learned:
        blocks.append(Block("scale", ones))
        starts.append(np.zeros(1))
    if "noise" in learned:
        centre = float(np.log(rho0).mean())
        if settings.noise == "constant":
            blocks.append(Block("noise", ones, centre=centre))
            starts.append(np.array([centre]))
        elif functions is None:
            s = strength("smooth_noise", 0.0, _PAPER_NOISE)
            blocks.append(Block("noise", None, centre=centre, penalty=_laplacian_matrix(states, eps), strength=s))
            starts.append(np.log(rho0))
        else:
            s = strength("smooth_noise", _START_NOISE * size ** (2 * _POWER), _PAPER_NOISE)
            U, penalty = functions.functions, functions.values**_POWER
            floor = 0.0 if states.are_samples else _RESOLVED * states.spacing / np.sqrt(eps)
            block = Block("noise", U, centre=centre, penalty=penalty, strength=s, floor=floor)
            blocks.append(block)
            starts.append(_coefficients(U, block.exponent(rho0), v, penalty))
    if "eps" in learned:
        blocks.append(Block("eps", ones, centre=float(np.log(eps))))
        starts.append(np.array([np.log(eps)]))
    if "density" in learned:
        blocks.append(Block("density", None, centre=-np.log(v)))
        starts.append(-np.log(v))
    return Parameters(tuple(blocks), base, float(settings.alpha)), np.concatenate(starts), given


def _given(settings: Any, seen: Seen, states: States) -> tuple[list[Array], tuple[Ordering, ...]]:
    """The given orderings on the states: values of global ones, and local ones."""
    ordering = settings.ordering
    if ordering is None:
        if "ordering" not in settings.learn:
            raise ValueError('the ordering is neither given (ordering=...) nor learned (learn=("ordering", ...)).')
        return [], ()
    if callable(ordering):
        found = as_orderings(ordering(states.points))
    elif isinstance(ordering, Ordering) or (isinstance(ordering, list) and isinstance(ordering[0], Ordering)):
        if not states.are_samples:
            raise ValueError(
                'an Ordering is known at the samples only: use states="samples", or give a function of points that '
                "returns the Ordering on them."
            )
        found = as_orderings(ordering)
    else:
        values = _check.nodes(ordering, len(seen.X), "ordering")
        return [values if states.are_samples else states.from_samples(seen.X, values)], ()
    tables, local = [], []
    for one in found:
        plain = isinstance(one.form, Table) and len(one.form.values) == 1 and not isinstance(one.scale, str)
        if plain and "ordering" not in settings.learn:
            tables.append(one.form.values[0])  # type: ignore[union-attr]
        else:
            local.append(one)
    return tables, tuple(local)


def _first_ordering(states: States, horizon: float) -> Array:
    """The distance from the start along the states, as a drift that crosses most of them within the horizon."""
    graph = short_edges(states)
    distance = graph.geodesic(np.flatnonzero(states.start > 0.1 * states.start.max()))
    far = float(np.quantile(distance, 0.95))
    return distance * far / horizon


def short_edges(states: States) -> NeighborGraph:
    """A graph of short edges that holds the states together."""
    k = min(len(states.points) - 1, 30 if states.dimension <= 2 else 60)
    return NeighborGraph.build(states.points, k=k)


def _quadratics(states: States) -> Array:
    """Linear and quadratic functions of flat coordinates, which smooth functions with free edges lack."""
    X, d = states.points, states.dimension
    if X.shape[1] != d or d > 3 or states.are_samples:
        return np.empty((len(X), 0))
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    pairs = [z[:, a] * z[:, b] for a in range(d) for b in range(a, d)]
    return np.stack([*z.T, *pairs], axis=1)


def _coefficients(U: Array, f: Array, v: Array, penalty: Array) -> Array:
    """Least squares with a little smoothness."""
    w = v / v.sum()
    A = U.T @ (w[:, None] * U)
    A += 1e-4 * np.diag(penalty / max(penalty.max(), 1e-300)) + 1e-8 * np.eye(len(A))
    return np.linalg.solve(A, U.T @ (w * f))


def _gradient_matrix(states: States) -> Any:
    tangents = TangentSpaces.fit(states.graph, usual_neighbors(states.graph, 20), dimension=states.dimension)
    return Gradient(tangents).matrix


def _laplacian_matrix(states: States, eps: float) -> Any:
    with _check.silent():
        op = Kernel(dimension=states.dimension).operator(states.graph, eps, density=1 / states.volumes)
    return Laplacian(op).matrix
