"""Questions of an operator: where does the chain settle, where does it end, when does it arrive, and on which way?

All of them are one linear system. Let Q be P among the states outside the targets, and R_is the probability that a
step from i ends in target set s. With steps of length ε:

    fates             (I − Q) f_s = R_s                       fate_probabilities, committor
    passage times     (I − Q) h = 1, (I − Q) s = 2h − 1       E T = ε h, E T² = ε² s
    occupancy         (I − Q)ᵀ y = mass                       ε y: time spent in each state
    stationary mass   (I − Q)ᵀ π = P_r·                       one state r as the target, π_r = 1, then scaled
    reactive flux     (I − Q)ᵀ y = P_Aᵀ π_A, q⁻ = y/π         f_ij = π_i q⁻_i P_ij q⁺_j / ε

Which states reach which is read off the pattern of P first (`_reaches`), so that the system solved is never singular;
`_System` then solves it. The rest is book-keeping.

**A chain looks only every ε.** A diffusion may enter a target and leave it between two steps, so the chain arrives
late: its targets are in effect smaller by 0.58 ρ√ε. With ``continuous=True`` such passages are counted. The share of
steps that the driftless chain takes into the target, s_i = Φ(−z_i), says how many standard deviations z_i of a step it
is away, and of the paths from i to j, the share exp(−2 z_i z_j) has touched it (the Brownian bridge at a flat
boundary). The error in ε falls from O(√ε) to about O(ε). It is for kernels with the gaussian profile, and for targets
as wide as a step or wider.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _check
from ordiff._check import Array, SolveError
from ordiff._compiled import csr
from ordiff._elimination import Elimination
from ordiff.geometry import over_neighbors
from ordiff.graph import NeighborGraph
from ordiff.operator import MarkovChain, MarkovOperator

# Up to this many free states, and this many entries of P among them, the system is factored; beyond, GMRES.
_MOST_FACTORED, _MOST_FACTORED_ENTRIES = 2_000, 1_000_000
# Up to this many states are eliminated where neither will do: 300 MB, and as much while it is done.
_MOST_ELIMINATED = 6_000
# Aggregates of the coarse system that preconditions GMRES: at least, at most, and states in one.
_COARSE, _STATES_PER_AGGREGATE = (500, 4_000), 20
# Moves of the chain that weigh the states of an aggregate.
_MOVES = 10
# GMRES: vectors before a restart, numbers in them, restarts, and the error at which it stops.
_RESTART, _NUMBERS, _RESTARTS, _TOLERANCE = 80, 50_000_000, 12, 1e-11
# What is asked of a solution: the relative residual, and the error of the known solution 1.
_RESIDUAL, _KNOWN = 1e-10, 1e-6
# Steps after which the state where most mass is serves as the reference of the stationary mass.
_SETTLING = 30
# Standard deviations of a step beyond which a target is not touched.
_FAR = 40.0


class PassageTime(NamedTuple):
    """The moments of the time at which a target is first reached, from every state, in units of time."""

    mean: Array  # (m,) infinite where the target may never be reached, 0 on it
    second_moment: Array  # (m,)

    @property
    def std(self) -> Array:
        """The standard deviation, (m,); NaN where the mean is infinite."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.maximum(self.second_moment - self.mean**2, 0.0))


class ReactiveFlux(NamedTuple):
    """The part of the stationary flow that comes from A and goes on to B."""

    net: sp.csr_array  # (m, m) f_ij − f_ji where positive, per unit of time
    total: float  # how often a path from A to B is made, per unit of time
    rate: float  # the same, while the chain was last in A: the rate constant from A to B
    forward: Array  # (m,) q⁺: the probability to reach B before A
    backward: Array  # (m,) q⁻: the probability to have been in A after B; NaN where the chain never is
    mass: Array  # (m,) the stationary mass


# --------------------------------------------------------------------------------------------------- questions


def stationary(op: MarkovChain, *, density: bool = False) -> Array:
    """The stationary mass of the chain, π = Pᵀπ, (m,): 0 on transient states, of total 1.

    With ``density``, the density m q π instead (q the operator's sampling density: with respect to volume if that is
    normalised). A chain with several closed classes has no single answer: an error, which says where they are.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(-4, 4, 401).reshape(-1, 1)
    >>> op = od.Kernel(od.Ordering(-0.5 * x[:, 0] ** 2), noise=np.sqrt(2)).operator(
    ...     od.NeighborGraph.build(x, radius=0.6), eps=0.01)            # dx = −x dt + √2 dW
    >>> mass = od.stationary(op)
    >>> round(float(mass @ x[:, 0] ** 2), 2)
    1.0
    """
    mass = _stationary(_chain(op))
    return op.graph.n_points * op.density * mass if density else mass


def first_passage_time(op: MarkovChain, targets: ArrayLike, *, continuous: bool = False) -> PassageTime:
    """Mean and second moment of the time to first reach the targets, from every state, in units of time.

    targets: indices or an (m,) mask. From a state that may never reach them both moments are infinite; on them they
    are 0. ``continuous``: count passages between steps too (see the module); the step that arrives counts half.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(-1.2, 1.2, 481).reshape(-1, 1)
    >>> op = od.Kernel(noise=1.0).operator(od.NeighborGraph.build(x, radius=0.15), eps=5e-4)
    >>> time = od.first_passage_time(op, abs(x[:, 0]) >= 1, continuous=True).mean
    >>> round(float(time[240]), 2)                                      # of Brownian motion: 1 − x²
    1.0
    """
    chain = _chain(op)
    inside = _check.members(targets, chain.m, "targets")
    stopped = _Stopped(chain, [inside], continuous)
    surely = stopped.surely()
    mean, second = (np.where(inside, 0.0, np.inf) for _ in range(2))
    if surely.any():
        system = _System(stopped, surely)
        system.certify()
        h = system.solve(np.ones(system.size))
        s = system.solve(2.0 * h - 1.0)
        if continuous:  # T = ε(N − ½)
            h, s = h - 0.5, s - h + 0.25
        mean[system.states], second[system.states] = op.eps * h, op.eps**2 * s
    return PassageTime(mean, second)


def fate_probabilities(op: MarkovChain, terminal: Any, *, continuous: bool = False) -> Array:
    """The probability to end in each of several terminal sets, from every state, (m, fates). Rows sum to 1.

    terminal: a dict of names and states, a list of states, or (m,) labels with None, NaN, "" or a negative number where
    a state is not terminal. States are indices or (m,) masks. Columns follow the dict, the list, or the labels in
    sorted order: `terminal_sets` names them. A state that can reach none of the sets is an error.
    ``continuous``: count passages between steps too (see the module).

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(0, 1, 201).reshape(-1, 1)
    >>> op = od.Kernel().operator(od.NeighborGraph.build(x, radius=0.1), eps=4e-4)
    >>> fates = od.fate_probabilities(op, {"left": [0], "right": [200]})
    >>> fates.shape, round(float(fates[100, 1]), 6)
    ((201, 2), 0.5)
    """
    chain = _chain(op)
    sets = list(terminal_sets(terminal, chain.m).values())
    return _fates(_Stopped(chain, [_check.members(s, chain.m, "terminal") for s in sets], continuous))


def committor(op: MarkovChain, A: ArrayLike, B: ArrayLike, *, continuous: bool = False) -> Array:
    """The probability to reach B before A, from every state, (m,): 0 on A, 1 on B.

    A, B: indices or (m,) masks. ``continuous``: count passages between steps too (see the module).

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(0, 1, 201).reshape(-1, 1)
    >>> op = od.Kernel().operator(od.NeighborGraph.build(x, radius=0.1), eps=4e-4)
    >>> q = od.committor(op, x[:, 0] < 0.2, x[:, 0] > 0.8, continuous=True)
    >>> bool(abs(q - np.clip((x[:, 0] - 0.2) / 0.6, 0, 1)).max() < 0.01)
    True
    """
    chain = _chain(op)
    return _fates(_Stopped(chain, _ends(A, B, chain.m), continuous))[:, 1].copy()


def expected_occupancy(op: MarkovChain, start: ArrayLike, targets: ArrayLike, *, continuous: bool = False) -> Array:
    """The expected time spent in each state before the targets are reached, (m,), in units of time.

    start: a mass on the states (m,), or indices or a mask, which share it equally. targets: indices or a mask. The sum
    over all states is the mean first passage time (half a step more with ``continuous``); over a set, the time spent
    in it.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(0, 1, 201).reshape(-1, 1)
    >>> op = od.Kernel().operator(od.NeighborGraph.build(x, radius=0.1), eps=4e-4)
    >>> time = od.expected_occupancy(op, 100, [0, 200])
    >>> bool(np.isclose(time.sum(), od.first_passage_time(op, [0, 200]).mean[100]))
    True
    """
    chain = _chain(op)
    inside = _check.members(targets, chain.m, "targets")
    mass = _check.start_mass(start, chain.m)
    stopped = _Stopped(chain, [inside], continuous)
    surely = stopped.surely()
    lost = (mass > 0) & ~surely & ~inside
    if lost.any():
        raise _check.unreachable(lost, "the targets for certain", "the time before is infinite")
    time = np.zeros(chain.m)
    if (mass * surely).any():
        system = _System(stopped, surely)
        system.certify()
        time[system.states] = op.eps * np.maximum(system.solve(mass[system.states], transposed=True), 0.0)
    return time


def reactive_flux(op: MarkovChain, A: ArrayLike, B: ArrayLike) -> ReactiveFlux:
    """The stationary flow from A to B: which ways the chain takes, and how often, per unit of time.

    f_ij = π_i q⁻_i P_ij q⁺_j / ε, with q⁺ the `committor` and q⁻ that of the chain in reversed time, which need not be
    reversible. A, B: indices or (m,) masks. It needs the matrix of the chain: not for a `Product`.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(0, 1, 101).reshape(-1, 1)
    >>> op = od.Kernel().operator(od.NeighborGraph.build(x, radius=0.2), eps=1e-3)
    >>> flux = od.reactive_flux(op, x[:, 0] < 0.1, x[:, 0] > 0.9)
    >>> middle = x[:, 0] < 0.5
    >>> across = flux.net[middle][:, ~middle].sum() - flux.net[~middle][:, middle].sum()
    >>> bool(np.isclose(across, flux.total))
    True
    """
    if not isinstance(op, MarkovOperator):
        raise ValueError(f"reactive_flux needs the matrix of the chain, which a {type(op).__name__} does not form.")
    chain = _chain(op)
    ends = _ends(A, B, chain.m)
    mass = _stationary(chain)
    for end, name in zip(ends, "AB", strict=True):
        if not mass[end].any():
            raise ValueError(f"no state of {name} is ever visited by the stationary chain: they are transient.")
    stopped = _Stopped(chain, ends, False)
    forward = _fates(stopped)[:, 1]
    # y = π q⁻ on the free states that the stationary chain visits
    came = np.where(ends[0], mass, 0.0)
    free = (mass > 0) & ~ends[0] & ~ends[1]
    if free.any():
        system = _System(stopped, free)
        arriving = chain.push(came)
        y = system.solve(arriving[system.states], transposed=True)
        came[system.states] = np.clip(y, 0.0, mass[system.states])
    P = op.matrix
    flux = sp.csr_array(sp.diags_array(came / op.eps) @ P @ sp.diags_array(forward))
    net = sp.csr_array(flux - flux.T)
    net.data = np.maximum(net.data, 0.0)
    net.eliminate_zeros()
    total = float(flux[np.flatnonzero(ends[0])].sum())
    backward = np.divide(came, mass, out=np.full(chain.m, np.nan), where=mass > 0)
    return ReactiveFlux(net, total, total / float(came.sum()), forward, backward, mass)


def terminal_sets(terminal: Any, m: int) -> dict[Hashable, NDArray[np.intp]]:
    """What `fate_probabilities` makes of ``terminal`` on m states: the name and the states of each of its columns.

    >>> import ordiff as od
    >>> {name: states.tolist() for name, states in od.terminal_sets(["b", None, "a", "b"], 4).items()}
    {'a': [2], 'b': [0, 3]}
    """
    named = _check.named_sets(terminal, m)
    masks = {name: _check.members(states, m, f"terminal set {name!r}") for name, states in named.items()}
    _check.disjoint(list(masks.values()), [repr(name) for name in masks])
    return {name: np.flatnonzero(mask) for name, mask in masks.items()}


# ------------------------------------------------------------------------------------------- the chain, stopped


class _Steps:
    """A chain as the questions see it: its products, and which states can step to which."""

    def __init__(self, op: MarkovChain) -> None:
        self.op, self.m = op, op.graph.n_points
        self.pull, self.push = op._pull, op._push
        # states stay put with some probability in every factor, so that a product reaches what any factor reaches
        graph = op.graph
        positive = np.logical_or.reduce([factor._data > 0 for factor in op.factors])
        self.sources, self.ends = graph.sources()[positive], graph._indices[positive]

    def arrows(self, stopped: NDArray[np.bool_] | None = None) -> sp.csr_array:
        """The pattern of the steps, those from ``stopped`` states left out."""
        kept = slice(None) if stopped is None else ~stopped[self.sources]
        i, j = self.sources[kept], self.ends[kept]
        return sp.csr_array((np.ones(i.size, np.int8), (i, j)), shape=(self.m, self.m))


def _chain(op: MarkovChain) -> _Steps:
    if not isinstance(op, MarkovChain):
        raise ValueError(
            f"op must be a Markov chain, as Kernel.operator or strang makes it; got {type(op).__name__}, which has no "
            "steps."
        )
    return _Steps(op)


def _reaches(arrows: sp.csr_array, goal: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The states from which some state of the goal is reached, the goal included."""
    from scipy.sparse.csgraph import breadth_first_order

    if not goal.any():
        return np.zeros_like(goal)
    # backwards from one extra node that leads to all of the goal
    m = goal.size
    extra = sp.csr_array(goal[None, :].astype(np.int8))
    back = sp.block_array([[arrows.T, None], [extra, sp.csr_array((1, 1), dtype=np.int8)]], format="csr")
    found = np.zeros(m + 1, bool)
    found[breadth_first_order(back, m, return_predecessors=False)] = True
    return found[:m]


class _Stopped:
    """The chain until it enters one of several disjoint sets, given as masks."""

    def __init__(self, chain: _Steps, sets: Sequence[NDArray[np.bool_]], continuous: bool = False) -> None:
        self.chain, self.sets, self.inside = chain, sets, np.logical_or.reduce(sets)
        _check.some_left(self.inside)
        self.arrows = chain.arrows(self.inside)
        op = chain.op
        self.into = chain.pull(np.stack(sets, axis=1).astype(float))  # (m, sets): R
        # steps between free states that touch a set on their way, in all, (m,), and what is left of P on the edges
        self.touching = np.zeros(chain.m)
        self.data = op._data if isinstance(op, MarkovOperator) else None
        if continuous:
            if not isinstance(op, MarkovOperator):
                raise ValueError(
                    f"continuous=True needs the matrix of the chain, which a {type(op).__name__} does not form."
                )
            self._count_touching(op)

    def surely(self) -> NDArray[np.bool_]:
        """The free states from which the sets are reached with probability 1."""
        never = ~_reaches(self.arrows, self.inside)
        return ~_reaches(self.arrows, never) & ~self.inside

    def _count_touching(self, op: MarkovOperator) -> None:
        from scipy.special import ndtri

        graph, free = op.graph, ~self.inside
        with _check.silent():  # of the same step as the operator's own
            twin = op.undirected()
        assert isinstance(twin, MarkovChain)
        with np.errstate(divide="ignore"):
            away = np.clip(-ndtri(np.clip(twin._pull(np.stack(self.sets, axis=1).astype(float)), 0, 1)), 0.0, _FAR)
        near = (away < _FAR).any(axis=1) & free
        edges = np.flatnonzero(near[graph.sources()] & free[graph._indices])
        i, j = graph.sources()[edges], graph._indices[edges]
        touched = np.exp(-2.0 * away[i] * away[j])  # (edges, sets)
        data = op._data.copy()
        missed = np.prod(1.0 - touched, axis=1)
        moved = data[edges] * (1.0 - missed) / np.maximum(touched.sum(axis=1), np.finfo(float).tiny)
        for s in range(len(self.sets)):
            self.into[:, s] += _summed(i, moved * touched[:, s], self.chain.m)
        self.touching = _summed(i, data[edges] * (1.0 - missed), self.chain.m)
        data[edges] *= missed
        self.data = data


def _summed(group: NDArray[Any], values: Array, count: int) -> Array:
    """The sum of the values of each group, (count,)."""
    return np.bincount(group, values, count).astype(np.float64, copy=False)


def _ends(A: ArrayLike, B: ArrayLike, m: int) -> list[NDArray[np.bool_]]:
    ends = [_check.members(A, m, "A"), _check.members(B, m, "B")]
    _check.disjoint(ends, ["A", "B"])
    return ends


def _fates(stopped: _Stopped) -> Array:
    """The probability to be stopped in each set, (m, sets)."""
    inside = stopped.inside
    lost = ~_reaches(stopped.arrows, inside)
    if lost.any():
        raise _check.unreachable(lost, "any of the terminal sets")
    fates = np.stack(stopped.sets, axis=1).astype(float)
    system = _System(stopped, ~inside)
    found = system.certain(lambda: np.stack([system.solve(b) for b in stopped.into[system.states].T], axis=1))
    found = np.maximum(found, 0.0)
    fates[system.states] = found / found.sum(axis=1, keepdims=True)
    return fates


def _stationary(chain: _Steps) -> Array:
    from scipy.sparse.csgraph import connected_components

    arrows = chain.arrows()
    _, label = connected_components(arrows, connection="strong")
    leaves = np.unique(label[chain.sources[label[chain.sources] != label[chain.ends]]])
    closed = np.setdiff1d(label, leaves)
    if closed.size > 1:
        raise _check.several_classes([np.flatnonzero(label == one) for one in closed], chain.m)
    recurrent = label == closed[0]
    start = recurrent / float(recurrent.sum())
    if recurrent.sum() == 1:
        return start
    # the chain until it comes to one state, which it should come to often
    for _ in range(_SETTLING):
        start = chain.push(start)
    often = np.zeros(chain.m, bool)
    often[np.argmax(start)] = True
    system = _System(_Stopped(chain, [often]), recurrent & ~often)
    system.certify()
    mass = often.astype(float)
    leaving = chain.push(mass)
    mass[system.states] = np.maximum(system.solve(leaving[system.states], transposed=True), 0.0)
    return mass / mass.sum()


# --------------------------------------------------------------------------------------------------- the system


class _System:
    """(I − Q) x = b, or its transpose, with Q the stopped chain among some free states, all of which it leaves.

    I − Q is an M-matrix: its inverse is not negative, and (I − Q) 1 = the probability of leaving is known, so that the
    solution 1 for that right side tells the error of any. GMRES, preconditioned: for few states by a factorisation,
    whose first iteration is the solution and whose second refines it; for many by two levels, a solve with the strong
    ties only before and after a direct solve for functions that are constant on aggregates of states. What is slow in a
    chain is either smooth or a small trap, so this takes some 30 iterations whatever the number of states. A product of
    chains is preconditioned by the sum of its factors' I − Q, its first order. Where the error is too large, because
    the chain is so slow to leave that rounding decides, states are eliminated without a subtraction, if they are not
    too many.
    """

    def __init__(self, stopped: _Stopped, free: NDArray[np.bool_]) -> None:
        chain, graph = stopped.chain, stopped.chain.op.graph
        self.chain = chain
        self.size = int(free.sum())
        large = self.size > _MOST_FACTORED or graph.n_edges > _MOST_FACTORED_ENTRIES
        # in an order that keeps neighbours together, where it matters
        order = graph.layout.order.astype(np.intp) if large else np.arange(chain.m)
        self.states = order[free[order]]
        if stopped.data is None:
            self.leaving = chain.pull((~free).astype(float))[self.states]
            parts = [self._restricted(factor._data, np.zeros(chain.m)) for factor in chain.op.factors]
            self.matrix = sp.csr_array(sum(parts[1:], start=parts[0]))
        else:
            out = over_neighbors(graph, stopped.data, (~free).astype(float)) + stopped.touching
            self.leaving = out[self.states]
            self.matrix = self._restricted(stopped.data, stopped.touching)
        self.exact = stopped.data is not None
        self._transposed: sp.csr_array | None = None
        self._elimination: Elimination | None = None
        with np.errstate(all="ignore"):
            try:
                self._precondition = _two_levels(self) if large else _factored(self.matrix)
            except SolveError as error:
                self._eliminate(error)

    def _restricted(self, data: Array, touching: Array) -> sp.csr_array:
        """I − Q among the free states. Its diagonal is summed, as what is not put back: 1 − Q_ii would cancel."""
        graph = self.chain.op.graph
        moves = data.copy()
        moves[graph.selves] = 0.0
        diagonal = over_neighbors(graph, moves, np.ones(graph.n_points)) + touching
        Q = graph.matrix(moves)[self.states][:, self.states]
        return sp.csr_array(sp.diags_array(diagonal[self.states]) - Q)

    def product(self, x: Array, transposed: bool) -> Array:
        """(I − Q) x, or (I − Q)ᵀ x."""
        if not self.exact:
            whole = np.zeros(self.chain.m)
            whole[self.states] = x
            moved = self.chain.push(whole) if transposed else self.chain.pull(whole)
            return x - moved[self.states]
        return self.sparse_product(x, transposed)

    def sparse_product(self, x: Array, transposed: bool) -> Array:
        matrix = self.matrix
        if transposed:
            if self._transposed is None:
                self._transposed = sp.csr_array(matrix.T)
            matrix = self._transposed
        pattern = NeighborGraph(matrix.indptr, matrix.indices, csr.EMPTY)
        return over_neighbors(pattern, matrix.data, x)

    def solve(self, b: Array, *, transposed: bool = False) -> Array:
        """The solution, whose residual is small for certain."""
        if self._elimination is None:
            try:
                return self._iterated(b, transposed)
            except SolveError as error:
                self._eliminate(error)
        assert self._elimination is not None
        return self._elimination.solve(b, transposed)

    def _iterated(self, b: Array, transposed: bool) -> Array:
        with np.errstate(all="ignore"):  # what is not finite is found out
            x, iterations = _gmres(
                lambda v: self.product(v, transposed), lambda v: self._precondition(v, transposed), b, self.size
            )
        # of the chain that is seen only when it moves: the diagonal is small where it hardly does
        rows, columns = (1.0, self.matrix.diagonal()) if transposed else (1.0 / self.matrix.diagonal(), 1.0)
        residual = float(np.linalg.norm(rows * (b - self.product(x, transposed))))
        size = float(np.linalg.norm(rows * b) + np.linalg.norm(columns * x))
        if not residual <= _RESIDUAL * size:
            raise _check.unsolved(f"after {iterations} iterations its relative residual is {residual / size:.2g}")
        return x

    def certify(self) -> None:
        """Solve for the known solution."""
        self.certain(lambda: self.solve(self.leaving)[:, None])

    def certain(self, solutions: Callable[[], Array]) -> Array:
        """Solutions (size, r) that should add up to 1, when they nearly do."""
        eliminated, found = self._elimination is not None, solutions()
        try:
            self._check_known(found.sum(axis=1))
        except SolveError as error:
            if eliminated:
                raise
            if self._elimination is None:  # else some of the solutions were found before
                self._eliminate(error)
            found = solutions()
            self._check_known(found.sum(axis=1))
        return found

    def _check_known(self, ones: Array) -> None:
        """Is what should be 1 nearly 1?"""
        error = np.abs(ones - 1.0)
        if not error.max() <= _KNOWN:
            at = int(np.argmax(error))
            raise _check.unsolved(
                f"from state {self.states[at]} the chain ends with probability 1, which comes out {error[at]:.1g} off"
            )

    def _eliminate(self, error: SolveError) -> None:
        """From here on, solve by elimination; if that cannot be, the error."""
        if not self.exact or self.size > _MOST_ELIMINATED:
            raise error
        moves = self.matrix.toarray()
        np.maximum(np.negative(moves, out=moves), 0.0, out=moves)
        with np.errstate(all="ignore"):
            self._elimination = Elimination(moves, self.leaving)


Solve = Callable[[Array, bool], Array]


def _factored(matrix: sp.csr_array) -> Solve:
    from scipy.sparse.linalg import splu

    try:
        # an M-matrix needs no pivoting
        lu = splu(
            sp.csc_array(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError as error:
        raise _check.unsolved(str(error)) from None
    return lambda b, transposed: lu.solve(b, "T" if transposed else "N")


def _two_levels(system: _System) -> Solve:
    """Before and after the coarse solve, a solve with the strong ties alone: a state, or a few, that hardly leave."""
    matrix, m = system.matrix, system.size
    low, high = _COARSE
    count = int(np.clip(m // _STATES_PER_AGGREGATE, low, high))
    label = _aggregates(matrix, count)
    members = sp.csr_array((np.ones(m), (np.arange(m), label)), shape=(m, count))
    # rows count by how often the chain is there in its first moves from anywhere, and how long it stays
    stay = 1.0 / matrix.diagonal()
    moved, weight = np.ones(m), np.ones(m)
    for _ in range(_MOVES):
        moved -= system.sparse_product(stay * moved, True)
        weight += moved
    weight *= stay
    leaving = _summed(label, weight * system.leaving, count)
    coarse = _factored(_with_row_sums(members.T @ sp.diags_array(weight) @ matrix @ members, leaving))
    strong = _factored(_strong_ties(matrix))

    def cycle(b: Array, transposed: bool) -> Array:
        left, right = (1.0, weight) if transposed else (weight, 1.0)
        x = strong(b, transposed)
        rest = left * (b - system.sparse_product(x, transposed))
        x += right * coarse(_summed(label, rest, count), transposed)[label]
        return x + strong(b - system.sparse_product(x, transposed), transposed)

    return cycle


def _with_row_sums(matrix: sp.csr_array, sums: Array) -> sp.csr_array:
    """The matrix with the diagonal that gives these row sums: summed up, which does not cancel."""
    apart = sp.csr_array(matrix - sp.diags_array(matrix.diagonal()))
    return sp.csr_array(apart + sp.diags_array(sums - apart.sum(axis=1)))


def _strong_ties(matrix: sp.csr_array) -> sp.csr_array:
    """The diagonal, and the entries that are more than a quarter of it; if those are many, more than half.

    More than half is at most one in a row, so that factors do not fill.
    """
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    own = rows == matrix.indices
    for share in (0.25, 0.5):
        kept = own | (-matrix.data > share * matrix.diagonal()[rows])
        if kept.sum() < 2.25 * matrix.shape[0]:
            break
    return sp.csr_array((matrix.data[kept], (rows[kept], matrix.indices[kept])), shape=matrix.shape)


def _aggregates(matrix: sp.csr_array, count: int) -> NDArray[np.intp]:
    """Each state's aggregate: that of the seed to which it is tied most, along edges of length 1/P."""
    from scipy.sparse.csgraph import dijkstra

    m = matrix.shape[0]
    length = np.where(matrix.data < 0, -1.0 / np.minimum(matrix.data, -1e-12), 0.0)
    ties = sp.csr_array((length, matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape)
    ties.eliminate_zeros()
    seeds = np.linspace(0, m - 1, count).astype(np.intp)
    _, _, nearest = dijkstra(ties, directed=False, indices=seeds, min_only=True, return_predecessors=True)
    # a state apart from all seeds leaves the free states in one step: any aggregate will do
    return np.searchsorted(seeds, np.where(nearest < 0, seeds[0], nearest))


def _gmres(
    product: Callable[[Array], Array], precondition: Callable[[Array], Array], b: Array, size: int
) -> tuple[Array, int]:
    """Restarted GMRES on the preconditioned system, whose residual is nearly the error; and its iterations.

    It stops when that is _TOLERANCE of the solution, or gives up; the caller looks at the residual.
    """
    restart = min(size, max(20, min(_RESTART, _NUMBERS // size)))
    x, iterations = np.zeros_like(b), 0
    V, H = np.empty((restart + 1, size)), np.zeros((restart + 1, restart))
    for _ in range(_RESTARTS):
        r = precondition(b - product(x))
        norm = float(np.linalg.norm(r))
        if norm <= _TOLERANCE * np.linalg.norm(x):
            break
        V[0], rhs = r / norm, np.zeros(restart + 1)
        rhs[0] = norm
        H[:] = 0.0
        for n in range(restart):
            iterations += 1
            w = precondition(product(V[n]))
            for _ in range(2):  # Gram–Schmidt, twice is enough
                along = V[: n + 1] @ w
                w -= along @ V[: n + 1]
                H[: n + 1, n] += along
            H[n + 1, n] = np.linalg.norm(w)
            if not np.isfinite(H[n + 1, n]):
                raise _check.unsolved("it is singular to rounding")
            y = np.linalg.lstsq(H[: n + 2, : n + 1], rhs[: n + 2], rcond=None)[0]
            rest = np.linalg.norm(H[: n + 2, : n + 1] @ y - rhs[: n + 2])
            if rest <= 0.1 * _TOLERANCE * max(np.linalg.norm(x), np.linalg.norm(y)) or H[n + 1, n] == 0:
                break
            V[n + 1] = w / H[n + 1, n]
        x += y @ V[: y.size]
    return x, iterations
