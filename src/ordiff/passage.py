"""Questions of a Markov chain: stationary mass, fates, passage times, occupancy and reactive flux.

All of them are one linear system. Let Q be P among the states outside the targets, and R_is the probability that a
step from i ends in target set s. With steps of length ε:

    fates             (I − Q) f_s = R_s                       fate_probabilities, committor
    passage times     (I − Q) h = 1, (I − Q) s = 2h − 1       E T = ε h, E T² = ε² s
    occupancy         (I − Q)ᵀ y = mass                       ε y: time spent in each state
    stationary mass   (I − Q)ᵀ π = P_r·                       one state r as the target, π_r = 1, then scaled
    reactive flux     (I − Q)ᵀ y = P_Aᵀ π_A, q⁻ = y/π         f_ij = π_i q⁻_i P_ij q⁺_j / ε

Which states reach which is read off the pattern of P first, so that the system is never singular; `_absorbing` has the
chain with its targets and the solver.

**Steps are discrete.** A diffusion may enter a target and leave it between two steps, so the chain arrives late: its
targets are in effect smaller by 0.58 ρ√ε. With ``continuous=True`` such passages are counted. The probability
s_i = Φ(−z_i) that the driftless chain steps into the target says how many standard deviations z_i of a step it is away,
and of the paths from i to j, the share exp(−2 z_i z_j) has crossed it (the Brownian bridge at a flat boundary). The
error in ε falls from O(√ε) to about O(ε). It is for kernels with the gaussian profile, and for targets as wide as a
step or wider.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _targets, _validation
from ordiff._absorbing import AbsorbingChain, AbsorbingSystem, Mask, pattern
from ordiff._validation import Array, GraphError, IntArray
from ordiff.operator import MarkovChain, MarkovOperator

# Steps from the uniform mass after which the most likely state is the reference of the stationary mass.
_BURN_IN = 30


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
    as_density = _validation.flag(density, "density")
    mass = _stationary(_checked(op))
    return op.graph.n_points * op.density * mass if as_density else mass


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
    inside = _targets.members(targets, _checked(op).graph.n_points, "targets")
    chain = AbsorbingChain(op, [inside], _validation.flag(continuous, "continuous"))
    arriving = chain.almost_surely_reaching()
    mean, second = (np.where(inside, 0.0, np.inf) for _ in range(2))
    if arriving.any():
        system = AbsorbingSystem(chain, arriving)
        system.verify()
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
    m = _checked(op).graph.n_points
    sets = [_targets.members(states, m, "terminal") for states in terminal_sets(terminal, m).values()]
    return _fates(AbsorbingChain(op, sets, _validation.flag(continuous, "continuous")))


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
    ends = _ends(A, B, _checked(op).graph.n_points)
    return _fates(AbsorbingChain(op, ends, _validation.flag(continuous, "continuous")))[:, 1].copy()


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
    m = _checked(op).graph.n_points
    inside = _targets.members(targets, m, "targets")
    mass = _targets.start_mass(start, m)
    chain = AbsorbingChain(op, [inside], _validation.flag(continuous, "continuous"))
    arriving = chain.almost_surely_reaching()
    unreached = (mass > 0) & ~arriving & ~inside
    if unreached.any():
        raise _unreachable(unreached, "the targets for certain", "the time before is infinite")
    time = np.zeros(m)
    if (mass * arriving).any():
        system = AbsorbingSystem(chain, arriving)
        system.verify()
        time[system.states] = op.eps * np.maximum(system.solve(mass[system.states], transposed=True), 0.0)
    return time


def reactive_flux(op: MarkovChain, A: ArrayLike, B: ArrayLike) -> ReactiveFlux:
    """The stationary flow from A to B: on which edges the chain goes, and how often, per unit of time.

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
    ends = _ends(A, B, op.graph.n_points)
    mass = _stationary(op)
    for end, name in zip(ends, "AB", strict=True):
        if not mass[end].any():
            raise ValueError(f"no state of {name} is ever visited by the stationary chain: they are transient.")
    chain = AbsorbingChain(op, ends)
    forward, came = _fates(chain)[:, 1], _from_A(chain, mass)
    flux = sp.csr_array(sp.diags_array(came / op.eps) @ op.matrix @ sp.diags_array(forward))
    net = sp.csr_array(flux - flux.T)
    net.data = np.maximum(net.data, 0.0)
    net.eliminate_zeros()
    total = float(flux[np.flatnonzero(ends[0])].sum())
    backward = np.divide(came, mass, out=np.full(mass.size, np.nan), where=mass > 0)
    return ReactiveFlux(net, total, total / float(came.sum()), forward, backward, mass)


def terminal_sets(terminal: Any, m: int) -> dict[Hashable, NDArray[np.intp]]:
    """What `fate_probabilities` makes of ``terminal`` on m states: the name and the states of each of its columns.

    >>> import ordiff as od
    >>> {name: states.tolist() for name, states in od.terminal_sets(["b", None, "a", "b"], 4).items()}
    {'a': [2], 'b': [0, 3]}
    """
    m = _validation.count(m, "m", 1)
    named = _targets.named_sets(terminal, m)
    masks = {name: _targets.members(states, m, f"terminal set {name!r}") for name, states in named.items()}
    _targets.disjoint(list(masks.values()), [repr(name) for name in masks])
    return {name: np.flatnonzero(mask) for name, mask in masks.items()}


# ------------------------------------------------------------------------------------------------------ answers


def _checked(op: MarkovChain) -> MarkovChain:
    if not isinstance(op, MarkovChain):
        raise ValueError(
            f"op must be a Markov chain, as Kernel.operator or strang makes it; got {type(op).__name__}, which has no "
            "steps."
        )
    return op


def _ends(A: ArrayLike, B: ArrayLike, m: int) -> list[Mask]:
    ends = [_targets.members(A, m, "A"), _targets.members(B, m, "B")]
    _targets.disjoint(ends, ["A", "B"])
    return ends


def _fates(chain: AbsorbingChain) -> Array:
    """The probability to end in each set, (m, sets)."""
    unreached = ~chain.reaching()
    if unreached.any():
        raise _unreachable(unreached, "any of the terminal sets")
    fates = np.stack(chain.sets, axis=1).astype(float)
    system = AbsorbingSystem(chain, ~chain.targets)
    found = system.verified(lambda: np.stack([system.solve(b) for b in chain.into[system.states].T], axis=1))
    found = np.maximum(found, 0.0)
    fates[system.states] = found / found.sum(axis=1, keepdims=True)
    return fates


def _recurrent(op: MarkovChain) -> Mask:
    """The states of the one closed class, (m,)."""
    from scipy.sparse.csgraph import connected_components

    steps = pattern(op)
    _, label = connected_components(steps, connection="strong")
    i, j = steps.nonzero()
    open_classes = np.unique(label[i[label[i] != label[j]]])
    closed = np.setdiff1d(label, open_classes)
    if closed.size > 1:
        raise _several_classes([np.flatnonzero(label == one) for one in closed], label.size)
    return label == closed[0]


def _stationary(op: MarkovChain) -> Array:
    """π, (m,): the expected visits to each state between two visits to a reference state, scaled to 1."""
    recurrent = _recurrent(op)
    start = recurrent / float(recurrent.sum())
    if recurrent.sum() == 1:
        return start
    for _ in range(_BURN_IN):  # to a reference that is visited often
        start = op._push(start)
    reference = np.zeros(recurrent.size, bool)
    reference[np.argmax(start)] = True
    system = AbsorbingSystem(AbsorbingChain(op, [reference]), recurrent & ~reference)
    system.verify()
    mass = reference.astype(float)
    next_mass = op._push(mass)
    mass[system.states] = np.maximum(system.solve(next_mass[system.states], transposed=True), 0.0)
    return mass / mass.sum()


def _from_A(chain: AbsorbingChain, mass: Array) -> Array:
    """π q⁻, (m,): the stationary mass that was in A, the first of two sets, after it was in B."""
    A, B = chain.sets
    came = np.where(A, mass, 0.0)
    free = (mass > 0) & ~A & ~B
    if free.any():
        system = AbsorbingSystem(chain, free)
        y = system.solve(chain.op._push(came)[system.states], transposed=True)
        came[system.states] = np.clip(y, 0.0, mass[system.states])
    return came


def _unreachable(lost: NDArray[np.bool_], what: str, so: str = "") -> GraphError:
    return GraphError(
        f"{int(lost.sum())} of {lost.size} states, the first at index {int(np.argmax(lost))}, do not reach {what}"
        f"{', so ' + so if so else ''}: add a set that holds where they end, join them by more neighbours, or leave "
        "them out."
    )


def _several_classes(classes: Sequence[IntArray], m: int) -> GraphError:
    sizes = sorted(((c.size, int(c[0])) for c in classes), reverse=True)
    shown = ", ".join(f"{size} from index {first}" for size, first in sizes[:4]) + (", …" if len(sizes) > 4 else "")
    absorbing, transient = sum(size == 1 for size, _ in sizes), m - sum(size for size, _ in sizes)
    return GraphError(
        f"the chain has {len(sizes)} closed classes of states ({shown}; {absorbing} of them single absorbing states) "
        f"and {transient} transient states, so its stationary mass depends on where it starts. Join them by more "
        "neighbours or a larger eps, or ask for fate_probabilities with the classes as terminal."
    )


def regions_of(terminal: Mapping[Any, Any], states: Array, points: Array) -> tuple[list[Any], list[NDArray[np.bool_]]]:
    """Regions given as functions of points that return masks: the states (N, n) and the points (p, n) in each."""
    sets = list(terminal_sets({name: inside(states) for name, inside in terminal.items()}, len(states)).values())
    return sets, [np.asarray(inside(points), bool) for inside in terminal.values()]
