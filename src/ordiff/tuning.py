"""Choosing the time step, and what a choice of step, speed and noise means.

A step that is too small stays on its sample (`p_max` near 1); one that is too large leaves the graph (`resolution`
below 1). Between the two, the error of the generator is the roughness of L f, which sampling makes and which falls with
ε, and its bias, which grows with ε. `choose_eps` measures both on the coordinates of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordiff import _parallel, _validation
from ordiff._compiled import csr
from ordiff._compiled import graph as graph_loops
from ordiff._validation import Array
from ordiff.graph import NeighborGraph
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.terms import empty_row
from ordiff.operator import MarkovOperator

# Operators that choose_eps builds at the most: the steps of its grid, and one smoother.
_MAX_OPERATORS = 16
# Pairs of samples that `resolution` compares at the most.
_MAX_PAIRS = 10_000_000


class RowMaxima(NamedTuple):
    """The largest transition probability of each row, its maximum and its quantiles."""

    max: float
    quantiles: dict[float, float]  # at .5, .9, .95 and .99
    rows: Array  # (m,)


class Resolution(NamedTuple):
    """The share of a step's mass that the graph keeps: its minimum, and at which samples it was computed."""

    min: float
    samples: NDArray[np.intp]
    kept: Array


def p_max(op: MarkovOperator) -> RowMaxima:
    """max_j P_ij of every row: near 1, the chain hardly moves from there."""
    _validation.instance(op, "op", MarkovOperator)
    rows = np.maximum.reduceat(op._data, op.graph._indptr[:-1])
    levels = (0.5, 0.9, 0.95, 0.99)
    return RowMaxima(float(rows.max()), dict(zip(levels, np.quantile(rows, levels).tolist(), strict=True)), rows)


def resolution(
    kernel: Kernel,
    graph: NeighborGraph,
    eps: float,
    density: ArrayLike | str | None = None,
    alpha: float = 1.0,
    random_state: int | None = 0,
) -> Resolution:
    """res_i = Σ_{j in the graph} P^full_ij, with P^full the kernel among all samples; its minimum over samples.

    On more than 3,000 samples it is computed at those whose neighbourhoods are smallest and at some random ones.
    """
    _validation.instance(kernel, "kernel", Kernel)
    _validation.instance(graph, "graph", NeighborGraph)
    eps, alpha = _validation.positive(eps, "eps"), _validation.number(alpha, "alpha")
    _validation.generator(random_state)
    q = kernel.density_on(graph, density)
    kernel = kernel.on(graph)
    rows = _worst_and_random_rows(kernel, graph, random_state)
    return _resolution(kernel, graph, _complete_rows(graph, rows), rows, eps, q, alpha)


def _random_rows(graph: NeighborGraph, share: float, random_state: int | None) -> NDArray[np.intp]:
    """All samples, or as many random ones as may be compared with all, times a share."""
    m = graph.n_points
    most = max(100, _MAX_PAIRS // m)
    if m <= most:
        return np.arange(m)
    return np.sort(_validation.generator(random_state).choice(m, int(share * most), replace=False))


def _worst_and_random_rows(kernel: Kernel, graph: NeighborGraph, random_state: int | None) -> NDArray[np.intp]:
    """Half of them random, half those whose neighbourhoods are smallest against the noise."""
    random = _random_rows(graph, 0.5, random_state)
    worst = np.argsort(graph.reach / kernel.bandwidth_on(graph).diffusion())[: random.size]
    return np.union1d(worst, random)


def _complete_rows(graph: NeighborGraph, rows: NDArray[np.intp]) -> NeighborGraph:
    """The graph in which these samples have all others as neighbours, and the rest only themselves."""
    X = _validation.need_points(graph._X, "the resolution")
    m = graph.n_points
    counts = np.ones(m, np.int64)
    counts[rows] = m
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(csr.index_dtype(int(counts.sum())))
    indices: Any = np.empty(int(indptr[-1]), indptr.dtype)
    indices[indptr[:-1]] = np.arange(m)
    for i in rows:
        indices[indptr[i] : indptr[i + 1]] = np.arange(m)
    sqdist = np.empty(indices.size)
    _parallel.over_rows(graph_loops.square_distances, indptr, csr.unsigned(indices), X, sqdist)
    return NeighborGraph._make(indptr, indices, sqdist, X)


def _resolution(
    kernel: Kernel,
    graph: NeighborGraph,
    full: NeighborGraph,
    rows: NDArray[np.intp],
    eps: float,
    q: Array,
    alpha: float,
) -> Resolution:
    """The kernel must be resolved on the graph: the graph of full rows has no neighbourhoods to estimate from."""
    P = full.layout.unsort_edges(kernel.transition(full, eps, -alpha * np.log(q), strict=False))  # others may be empty
    kept = np.array(
        [
            P[full.indptr[i] : full.indptr[i + 1]][graph.indices[graph.indptr[i] : graph.indptr[i + 1]]].sum()
            for i in rows
        ]
    )
    bad = ~((kept >= 0) & (kept <= 1 + 1e-9))
    if bad.any():
        raise empty_row(int(rows[np.argmax(bad)]), eps)
    return Resolution(float(kept.min()), rows, kept)


def semigroup_error(
    kernel: Kernel,
    graph: NeighborGraph,
    eps: float,
    density: ArrayLike | str | None = None,
    alpha: float = 1.0,
    n_probes: int = 32,
    random_state: int | None = 0,
) -> float:
    """‖P_ε P_ε − P_2ε‖_F, by random probes: the mean of ‖(P_ε P_ε − P_2ε) z‖² over random signs z is its square."""
    _validation.instance(kernel, "kernel", Kernel)
    _validation.instance(graph, "graph", NeighborGraph)
    eps = _validation.positive(eps, "eps")
    q, kernel = kernel.density_on(graph, density), kernel.on(graph)
    one, two = (kernel.operator(graph, step, q, alpha) for step in (eps, 2 * eps))
    return _semigroup_error(one, two, n_probes, random_state)


def _semigroup_error(one: MarkovOperator, two: MarkovOperator, n_probes: int, random_state: int | None) -> float:
    n_probes = _validation.count(n_probes, "n_probes", 1)
    signs = _validation.generator(random_state).choice([-1.0, 1.0], (one.graph.n_points, n_probes))
    gap = one._pull(one._pull(signs)) - two._pull(signs)
    return float(np.sqrt((gap**2).sum() / n_probes))


# ------------------------------------------------------------------------------------------------ the choice


@dataclass(frozen=True, eq=False)
class StepChoice:
    """The chosen step, the interval in which steps are valid, and the curves behind it. ``print`` it for words."""

    eps: float
    low: float  # the least valid step: 0 if none was too small, infinite if all tried are
    high: float  # the largest valid step: infinite if none was too large, 0 if all tried are
    steps: Array  # the steps tried, ascending
    p_max: Array  # the 90% quantile over samples of the largest transition probability
    resolution: Array  # the 10% quantile over samples of the mass kept by the graph
    semigroup_error: Array  # NaN for the two largest steps
    roughness: Array  # rms of the rough part of L f, f the coordinates over their common rms
    bias: Array  # rms of the rest against its extrapolation to ε = 0
    stuck: int  # a sample that limits low
    cut: int  # a sample that limits high
    message: str

    @property
    def valid(self) -> bool:
        """Is there a valid interval?"""
        return self.low <= self.high

    def __str__(self) -> str:
        return self.message

    def plot(self, ax: Any = None) -> Any:
        """Draw the curves; returns the Axes."""
        # pictures are above this module in the layers, so they are looked up when they are asked for
        return import_module("ordiff.plot").step_choice(self, ax)


def choose_eps(
    kernel: Kernel,
    graph: NeighborGraph,
    density: ArrayLike | str | None = None,
    alpha: float = 1.0,
    p_limit: float = 0.5,
    resolution_limit: float = 0.9,
    random_state: int | None = 0,
) -> StepChoice:
    """The step whose generator should be most accurate on this graph, within the valid interval.

    low is the least step for which nine tenths of the samples have p_max below ``p_limit``, high the largest for which
    nine tenths keep ``resolution_limit`` of a step's mass on the graph. Between them the step with the least estimated
    error is taken: roughness and bias of L f for the coordinates f. At most 16 operators are built. An empty interval
    is warned of, and the message says about how many samples would do.

    >>> import ordiff as od
    >>> p = od.datasets.torus(30)
    >>> graph = od.NeighborGraph.build(p.X, radius=1.4)
    >>> choice = od.tuning.choose_eps(od.Kernel(od.Ordering.local(p.ordering), noise=p.noise), graph)
    >>> choice.low < choice.eps < choice.high
    True
    """
    _validation.instance(kernel, "kernel", Kernel)
    _validation.instance(graph, "graph", NeighborGraph)
    p_limit, resolution_limit = (
        _validation.share(p_limit, "p_limit"),
        _validation.share(resolution_limit, "resolution_limit"),
    )
    _validation.generator(random_state)
    q, d = kernel.density_on(graph, density), kernel.dimension_on(graph)
    kernel = kernel.on(graph)
    steps, ops = _operators(kernel, graph, _grid(kernel, graph, d), q, alpha)
    largest = np.stack([p_max(op).rows for op in ops])
    rows = _random_rows(graph, 1.0, random_state)
    full = _complete_rows(graph, rows)
    kept = np.stack([_resolution(kernel, graph, full, rows, float(step), q, alpha).kept for step in steps])
    roughness, bias = _errors(ops, graph)
    semigroup = [_semigroup_error(one, two, 16, random_state) for one, two in zip(ops[:-2], ops[2:], strict=True)]

    p_90, kept_10 = np.quantile(largest, 0.9, axis=1), np.quantile(kept, 0.1, axis=1)
    low, high = _first_below(steps, p_90, p_limit), _first_below(steps, kept_10, resolution_limit)
    violation = np.maximum(p_90 / p_limit, (1 - kept_10) / (1 - resolution_limit))
    at_low, at_high = (int(np.argmin(np.abs(steps - end))) for end in (min(low, steps[-1]), min(high, steps[-1])))
    choice = StepChoice(
        eps=_best_step(steps, low, high, np.hypot(roughness, bias), violation), low=low, high=high, steps=steps,
        p_max=p_90, resolution=kept_10, semigroup_error=np.array([*semigroup, np.nan, np.nan]), roughness=roughness,
        bias=bias, stuck=_at_quantile(largest[at_low], 0.9), cut=int(rows[_at_quantile(kept[at_high], 0.1)]),
        message="",
    )  # fmt: skip
    choice = replace(choice, message=_message(choice, graph, d))
    if not choice.valid:
        _validation.warn(choice.message)
    return choice


def _best_step(steps: Array, low: float, high: float, error: Array, violation: Array) -> float:
    """The step of least error in [low, high]; if that is empty, of least violation of the limits."""
    allowed = (steps >= low) & (steps <= high)
    if allowed.any():
        return float(steps[allowed][np.argmin(error[allowed])])
    if 0 < low <= high < np.inf:  # between two steps of the grid
        return float(np.sqrt(low * high))
    return float(steps[np.argmin(violation)])


def _at_quantile(values: Array, level: float) -> int:
    """The index of the value at this quantile."""
    return int(np.argsort(values)[int(level * (values.size - 1))])


def _operators(
    kernel: Kernel, graph: NeighborGraph, steps: Array, q: Array, alpha: float
) -> tuple[Array, list[MarkovOperator]]:
    """An operator for each step, up to the first at which a row is empty (a compact profile that the drift outruns)."""
    ops: list[MarkovOperator] = []
    for step in steps:
        try:
            with _validation.silent():
                ops.append(kernel.operator(graph, float(step), q, alpha))
        except _validation.ResolutionError:
            if len(ops) < 5:
                raise
            break
    return steps[: len(ops)], ops


def _grid(kernel: Kernel, graph: NeighborGraph, d: int) -> Array:
    """Steps a factor √2 apart, from one at which the median sample hardly moves to one that leaves the graph."""
    # twice the step that keeps nine tenths of its mass within the median reach
    top = 2 * float(np.median(graph.reach / kernel.widest_on(graph))) / float(radius(d, 0.9)) ** 2
    bottom = 0.15 * float(np.median(graph.spacing / kernel.bandwidth_on(graph).diffusion()))
    if not 0 < top < np.inf or not bottom < np.inf:
        raise _validation.GraphError(
            "half of the samples have no neighbour at a positive distance: use more neighbours, or remove duplicates."
        )
    count = min(_MAX_OPERATORS - 1, max(8, ceil(2 * log2(top / max(bottom, 1e-9 * top))) + 1))
    return np.array([top * 2.0 ** (-0.5 * n) for n in reversed(range(count))])


def _errors(ops: list[MarkovOperator], graph: NeighborGraph) -> tuple[Array, Array]:
    """Rms of the rough part of u = L f and of the bias of its smooth part, (steps,); f the coordinates over their rms.

    T = I − (I − S)³ is a smoother of high order made of the driftless operator S at a long step. Richardson's
    T(2u_ε − u_2ε) is free of the leading bias; where it changes least with the step, it is the reference for all.
    """
    X = _validation.need_points(graph.X, "choosing a step")
    F = X - X.mean(axis=0)
    F = F / np.sqrt(np.mean(F**2))  # one scale for all: a coordinate of mere noise must not decide
    with _validation.silent():
        smoother = ops[max(0, len(ops) - 3)].undirected()
    assert isinstance(smoother, MarkovOperator)

    def rough_part(u: Array) -> Array:
        for _ in range(3):
            u = u - smoother._pull(u)
        return u

    fields = [op.generator(F) for op in ops]
    rough = [rough_part(u) for u in fields]
    smooth = [u - r for u, r in zip(fields, rough, strict=True)]
    references = [2 * a - b for a, b in zip(smooth[:-2], smooth[2:], strict=True)]
    gaps = [np.mean((a - b) ** 2) for a, b in zip(references[:-2], references[2:], strict=True)]
    reference = references[int(np.argmin(gaps))]
    # the residual of a smoother that counts the sample itself is too small by its own share
    others = np.maximum(1.0 - smoother.staying(), 0.25)[:, None]
    roughness = np.array([np.sqrt(np.mean((r / others) ** 2)) for r in rough])
    bias = np.array([np.sqrt(np.mean((u - reference) ** 2)) for u in smooth])
    return roughness, bias


def _first_below(steps: Array, values: Array, limit: float) -> float:
    """The first step at which values are below a limit, interpolated in log ε; 0 if all are, infinite if none is."""
    below, excess = values < limit, values - limit
    if not below.any():
        return np.inf
    at = int(np.argmax(below))
    if at == 0:
        return 0.0
    share = excess[at - 1] / (excess[at - 1] - excess[at])
    return float(steps[at - 1] * (steps[at] / steps[at - 1]) ** share)


def _message(choice: StepChoice, graph: NeighborGraph, d: int) -> str:
    """The choice in words: what limits it, and what to do where no step is valid."""
    m, tried = graph.n_points, f"{choice.steps[0]:.2g} to {choice.steps[-1]:.2g}"
    if choice.low == np.inf:
        return (
            f"no step fits: at every step tried ({tried}) more than a tenth of the samples, for instance "
            f"{choice.stuck}, put most of their mass on one sample. They have too few neighbours, or the drift is too "
            "fast for this graph."
        )
    small = f"below {choice.low:.3g} more than a tenth of the samples stay put, for instance sample {choice.stuck}"
    large = f"above {choice.high:.3g} more than a tenth reach beyond the graph, for instance sample {choice.cut}"
    if choice.valid:
        if choice.low == 0:
            small = f"no step tried ({tried}) was too small"
        large = (
            "the graph holds every step tried" if choice.high == np.inf else f"{large}; more neighbours would raise it"
        )
        return f"eps = {choice.eps:.3g}: {small}; {large}."
    if choice.high == 0:
        return f"no step fits: {small}, and at every step tried ({tried}) more than a tenth reach beyond the graph."
    # the spacing squared falls as m^(−2/d), and with it the least step
    factor = (choice.low / choice.high) ** (d / 2)
    more = min(m - 1, ceil(factor * float(np.median(np.diff(graph.indptr)))))
    return (
        f"no step fits: {small}; {large}. Too few samples for these dynamics: about {ceil(m * factor):,} would do "
        f"instead of {m:,}, or a graph of about {more:,} neighbours; where the density is very uneven, a noise that "
        "follows it."
    )


# ------------------------------------------------------------------------ step, speed and noise together


def _finite(values: ArrayLike, name: str) -> Array:
    return _validation.finite(_validation.as_float(values, name), name)


def peclet(eps: float, speed: ArrayLike, noise: ArrayLike) -> Any:
    """ψ = ετ²/ρ²: drift against diffusion within one step."""
    return (
        _validation.positive(eps, "eps")
        * _finite(speed, "speed") ** 2
        / _validation.positive_numbers(noise, "noise") ** 2
    )


def forward_bias(eps: float, speed: ArrayLike, noise: ArrayLike, steepness: ArrayLike = 1.0) -> Any:
    """The probability that a step goes up the ordering, Φ(√ψ ‖∇l‖/κ); ``steepness`` is ‖∇l‖/κ, 1 for a pure order."""
    from scipy.special import ndtr

    return ndtr(np.sign(_finite(speed, "speed")) * np.sqrt(peclet(eps, speed, noise)) * _finite(steepness, "steepness"))


def speed_for_bias(bias: float, eps: float, noise: ArrayLike) -> Any:
    """The speed τ at which a step goes up the ordering with this probability, for ‖∇l‖ = κ; negative below ½."""
    from scipy.special import ndtri

    return (
        float(ndtri(_validation.share(bias, "bias")))
        * _validation.positive_numbers(noise, "noise")
        / np.sqrt(_validation.positive(eps, "eps"))
    )


def rescale_time(factor: float, eps: float, speed: ArrayLike, noise: ArrayLike) -> tuple[float, Any, Any]:
    """(ε/c, cτ, √c ρ): the same kernel, with time counted in units c times as long."""
    c = _validation.positive(factor, "factor")
    return (
        _validation.positive(eps, "eps") / c,
        c * _finite(speed, "speed"),
        np.sqrt(c) * _validation.positive_numbers(noise, "noise"),
    )


def radius(dimension: int, mass: float = 0.99, scale: ArrayLike = 1.0) -> Any:
    """The radius that holds this mass of N(0, scale² I_d): scale √(2 P⁻¹(d/2, mass))."""
    from scipy.special import gammaincinv

    d = _validation.count(dimension, "dimension", 1)
    return _validation.positive_numbers(scale, "scale") * np.sqrt(
        2 * gammaincinv(d / 2, _validation.share(mass, "mass"))
    )


def rate(m: float, dimension: int, schedule: str = "balance") -> float:
    """How ε should shrink with the number of samples: ε(m₂)/ε(m₁) = rate(m₂)/rate(m₁).

    "balance": m^(−2/(d+6)), at which sampling noise and bias of the generator fall together. "consistent": the paper's
    (log m/m)^(2/(d+4)), which ε must exceed, by however slowly growing a factor, for the generator to converge.
    """
    d = _validation.count(dimension, "dimension", 1)
    _validation.option(schedule, "schedule", ("balance", "consistent"))
    if not _validation.positive(m, "m") > 1:
        raise ValueError(f"m must be more than one sample; got {m:g}.")
    return m ** (-2 / (d + 6)) if schedule == "balance" else (np.log(m) / m) ** (2 / (d + 4))
