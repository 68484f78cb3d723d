"""Small chains that are learned, all their likelihoods written out as dense sums, and derivatives by differences."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

import ordiff as od
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.observation import Observation, time_quadrature, time_weights
from ordiff.learning.optimise import PenalisedLikelihood
from ordiff.learning.parameters import Parameters

FLOOR = 1e-5
FRACTIONS = ((1.0,), (0.5, 1.0), (0.2, 0.6, 1.0))
FORMS = ("states", "linear", "log-linear")
TIMES = ("known", "unknown", "window")
STEPS = 9
# of dynamics: all that has a derivative, and what holds one array an ordering
PARTS = ("eps", "noise", "orderings", "slopes", "local_slopes", "log_weight")
SEVERAL = ("orderings", "slopes", "local_slopes")


@dataclass
class Case:
    graph: od.NeighborGraph
    observation: Observation
    initial: np.ndarray
    dynamics: Dynamics
    local: tuple[np.ndarray, ...]
    fractions: tuple[float, ...]
    weight: np.ndarray | None

    def likelihood(self, **options) -> SnapshotLikelihood:
        given = (self.graph, self.observation, self.initial, STEPS, self.fractions)
        return SnapshotLikelihood(*given, **{"sample_weight": self.weight, "local": self.local, **options})


def slices_of(fractions, eps, steps=STEPS):
    return np.concatenate([[0.0], ((np.arange(steps)[:, None] + np.array(fractions)) * eps).ravel()])


def time_matrix(rng, times, m, fractions, eps):
    slices = slices_of(fractions, eps)
    if times == "known":
        return time_weights(rng.uniform(0, slices[-1], m), slices)
    if times == "unknown":
        return sp.csr_array(np.tile(time_quadrature(lambda t: 1 + t, slices), (m, 1)))
    first, length = rng.integers(0, slices.size - 3, m), rng.integers(1, 7, m)
    place = np.arange(slices.size)
    window = (place >= first[:, None]) & (place < (first + length)[:, None])
    return sp.csr_array(window * rng.uniform(0.1, 1, (m, slices.size)))


def place_matrix(rng, m, n, signed):
    """A few states around every sample; rows sum to 1, with negative weights if ``signed``."""
    B = np.zeros((m, n))
    for row in B:
        row[rng.choice(n, 6, replace=False)] = rng.uniform(-0.3 if signed else 0.1, 1, 6)
    return sp.csr_array(B / B.sum(axis=1, keepdims=True))


def some_dynamics(rng, n, eps, n_orderings=2, n_local=1):
    def each(count):
        return tuple(rng.normal(size=n) for _ in range(count))

    return Dynamics(
        eps,
        rng.uniform(0.8, 1.4, n),
        orderings=each(n_orderings),
        slopes=each(n_orderings),
        local_slopes=each(n_local),
        log_weight=0.2 * rng.normal(size=n),
        self_weight=0.5,
    )


def ring(n):
    """Points on a circle and a symmetric graph, so that every state is reached."""
    angle = np.arange(n) * 2 * np.pi / n
    return od.NeighborGraph.build(np.column_stack([np.cos(angle), np.sin(angle)]), radius=0.8)


def make(rng, fractions=(1.0,), form="states", times="known", n=50, k=12, weighted=True, graph=None) -> Case:
    """By default on a graph of k nearest neighbours, which is not symmetric."""
    graph = od.NeighborGraph.build(rng.normal(size=(n, 2)), k=k) if graph is None else graph
    m, eps = (n if form == "states" else 37), 0.2
    places = None if form == "states" else place_matrix(rng, m, n, signed=form == "log-linear")
    volumes = rng.uniform(0.5, 2, n) / n if form == "log-linear" else None
    observation = Observation(time_matrix(rng, times, m, fractions, eps), places, volumes, FLOOR)
    initial = np.zeros(n)
    initial[[3, 7, 20]] = 0.2, 0.3, 0.5
    weight = rng.uniform(0.1, 1, m) if weighted else None
    local = (0.1 * rng.normal(size=graph.n_edges),)
    return Case(graph, observation, initial, some_dynamics(rng, n, eps), local, fractions, weight)


# ------------------------------------------------------------------------------------- dense reference


def dense_matrix(case, eps):
    graph, dynamics = case.graph, case.dynamics
    src, dst = graph.sources(), graph.indices
    rho2 = dynamics.noise[src] ** 2
    exponent = -graph.sqdist / (2 * eps * rho2) + dynamics.log_weight[dst]
    for l, slope in zip(dynamics.orderings, dynamics.slopes, strict=True):
        exponent += slope[src] * (l[dst] - l[src]) / rho2
    for edges, slope in zip(case.local, dynamics.local_slopes, strict=True):
        exponent += slope[src] * edges / rho2
    K = np.zeros((graph.n_points, graph.n_points))
    K[src, dst] = np.exp(exponent) * np.where(src == dst, dynamics.self_weight, 1.0)
    return K / K.sum(axis=1, keepdims=True)


def dense_slices(case, steps=STEPS):
    eps = case.dynamics.eps
    P = dense_matrix(case, eps)
    here = np.array([dense_matrix(case, theta * eps).T @ case.initial for theta in case.fractions])
    slices = [case.initial[None]]
    for _ in range(steps):
        slices.append(here)
        here = here @ P
    return np.concatenate(slices)


def dense_log_likelihoods(case):
    slices, seen = dense_slices(case).T, case.observation
    W = seen.times.toarray()
    if seen.volumes is not None:
        predicted = np.exp(seen.places @ np.log(slices / seen.volumes[:, None] + seen.floor))
        return np.log((W * predicted).sum(axis=1))
    predicted = slices if seen.places is None else seen.places @ slices
    return np.log((W * predicted).sum(axis=1) + seen.floor)


# ----------------------------------------------------------------------------------------- derivatives


def moved(dynamics, part, step, which=0):
    """The dynamics with one part changed."""
    value = getattr(dynamics, part)
    if isinstance(value, tuple):
        return replace(dynamics, **{part: tuple(v + step if k == which else v for k, v in enumerate(value))})
    return replace(dynamics, **{part: value + step})


def difference(function, h):
    """The derivative at 0 by central differences, of fourth order."""
    near, far = (function(h) - function(-h)) / (2 * h), (function(2 * h) - function(-2 * h)) / (4 * h)
    return (4 * near - far) / 3


# ----------------------------------------------------------------------------------------- permutations


def permuted(case, order):
    """The same problem with state order[i] as state i, and where each edge of it was."""
    graph = case.graph
    D = graph.matrix(np.sqrt(graph.sqdist) + 1.0)[order][:, order].tocoo()
    shuffled = od.NeighborGraph.from_distances(
        sp.coo_array((D.data - 1.0, (D.row, D.col)), shape=D.shape), X=None if graph.X is None else graph.X[order]
    )
    edge = graph.matrix(np.arange(1.0, graph.n_edges + 1))[order][:, order].tocsr()
    edge.sort_indices()
    edge = edge.data.astype(int) - 1
    seen = case.observation
    observation = replace(
        seen,
        times=seen.times[order] if seen.places is None else seen.times,
        places=None if seen.places is None else seen.places[:, order],
        volumes=None if seen.volumes is None else seen.volumes[order],
    )
    weight = case.weight[order] if seen.places is None else case.weight
    local = tuple(values[edge] for values in case.local)
    new = Case(
        shuffled, observation, case.initial[order], reordered(case.dynamics, order), local, case.fractions, weight
    )
    return new, edge


def reordered(of_states, order):
    """Dynamics, or their gradient, with state order[i] as state i."""
    return replace(
        of_states,
        noise=of_states.noise[order],
        log_weight=of_states.log_weight[order],
        **{part: tuple(values[order] for values in getattr(of_states, part)) for part in SEVERAL},
    )


# ---------------------------------------------------------------------------------- coefficients to learn


@dataclass(frozen=True)
class SmallChain:
    """A chain on 60 random points, observed at known times; the fixture ``chain`` of the tests of learning."""

    n = 60
    eps = 0.1

    graph: od.NeighborGraph
    likelihood: SnapshotLikelihood
    base: Dynamics

    def problem(self, *blocks, **options) -> PenalisedLikelihood:
        return PenalisedLikelihood(self.likelihood, Parameters(blocks, self.base), np.ones(self.n), **options)


def slope_along(function, a, u, h=1e-4):
    """The derivative of a function at a along u, by central differences of fourth order."""
    values = [function(a + s * h * u) for s in (-2, -1, 1, 2)]
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
