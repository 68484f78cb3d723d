"""Absorbing Markov chains: the linear systems behind the questions of `passage`, and how they are solved.

`AbsorbingChain` is a chain that stops in one of several target sets: Q is P among the other, free, states, and R its
part into the sets. `AbsorbingSystem` solves (I − Q) x = b and its transpose, by the first of these that succeeds:

    sparse LU           up to 2,000 free states; GMRES refines the solution
    two-level GMRES     more states: aggregation, with a solve for the strong couplings before and after it
    GTH elimination     nearly decomposable chains, up to 6,000 free states

Where groups of states exchange mass with probabilities of the size of rounding errors, I − Q is singular in floating
point and a factorisation loses the rates between the groups by cancellation: see `_elimination`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ordiff import _targets, _validation
from ordiff._compiled import csr
from ordiff._elimination import GTHElimination
from ordiff._validation import Array, SolveError
from ordiff.geometry import over_neighbors
from ordiff.graph import NeighborGraph
from ordiff.operator import MarkovChain, MarkovOperator

Mask = NDArray[np.bool_]
LinearMap = Callable[[Array, bool], Array]  # of a vector, or its transpose

# Up to this many free states, and this many edges of the graph, the matrix is factored; beyond, two levels.
_MAX_FACTORED, _MAX_FACTORED_EDGES = 2_000, 1_000_000
# Free states that are eliminated at most: a dense matrix of 300 MB, and as much while it is made.
_MAX_ELIMINATED = 6_000
# The coarse level: aggregates at least and at most, states in one, and moves of the jump chain that weigh them.
_AGGREGATES, _STATES_PER_AGGREGATE, _MOVES = (500, 4_000), 20, 10
# GMRES: vectors before a restart, numbers in them, restarts, and the relative error at which it stops.
_RESTART, _BASIS_NUMBERS, _RESTARTS, _TOLERANCE = 80, 50_000_000, 12, 1e-11
# What is asked of a solution: the relative residual, and the error of the known solution 1.
_MAX_RESIDUAL, _MAX_ERROR = 1e-10, 1e-6
# Distance to a target, in standard deviations of a step, beyond which no step crosses it.
_FAR = 40.0


# ------------------------------------------------------------------------------------------- the absorbing chain


def pattern(op: MarkovChain, absorbing: Mask | None = None) -> sp.csr_array:
    """The steps that have a positive probability, (m, m), without those from absorbing states.

    Every factor of a product may stay where it is, so that the product can step wherever one of them can.
    """
    graph = op.graph
    possible = np.logical_or.reduce([factor._data > 0 for factor in op.factors])
    if absorbing is not None:
        possible &= ~absorbing[graph.sources()]
    i, j = graph.sources()[possible], graph._indices[possible]
    return sp.csr_array((np.ones(i.size, np.int8), (i, j)), shape=(graph.n_points, graph.n_points))


def reaches(steps: sp.csr_array, goal: Mask) -> Mask:
    """The states from which the goal can be reached along a pattern of steps, the goal itself included."""
    from scipy.sparse.csgraph import breadth_first_order

    if not goal.any():
        return np.zeros_like(goal)
    # backwards from one extra node that leads to all of the goal
    m = goal.size
    extra = sp.csr_array(goal[None, :].astype(np.int8))
    back = sp.block_array([[steps.T, None], [extra, sp.csr_array((1, 1), dtype=np.int8)]], format="csr")
    found = np.zeros(m + 1, bool)
    found[breadth_first_order(back, m, return_predecessors=False)] = True
    return found[:m]


class AbsorbingChain:
    """A chain until it enters one of several disjoint target sets, given as masks (m,).

    ``into`` (m, sets) is the probability that a step ends in each set. With ``continuous`` it includes the steps
    between free states that cross the set on their way; ``crossing`` (m,) is the probability of these for any set, and
    ``data`` (E,) is what they leave of P. A product of operators has no ``data``.
    """

    def __init__(self, op: MarkovChain, sets: Sequence[Mask], continuous: bool = False) -> None:
        self.op, self.sets, self.targets = op, sets, np.logical_or.reduce(sets)
        _targets.some_left(self.targets)
        self.pattern = pattern(op, self.targets)
        self.into = op._pull(np.stack(sets, axis=1).astype(float))
        self.crossing = np.zeros(op.graph.n_points)
        self.data = op._data if isinstance(op, MarkovOperator) else None
        if continuous:
            if not isinstance(op, MarkovOperator):
                raise ValueError(
                    f"continuous=True needs the matrix of the chain, which a {type(op).__name__} does not form."
                )
            self._count_crossings(op)

    def reaching(self) -> Mask:
        """The states from which a target may be reached, (m,), the targets included."""
        return reaches(self.pattern, self.targets)

    def almost_surely_reaching(self) -> Mask:
        """The free states from which a target is reached with probability 1, (m,)."""
        return ~reaches(self.pattern, ~self.reaching()) & ~self.targets

    def _count_crossings(self, op: MarkovOperator) -> None:
        """Move the steps that cross a set between two free states from ``data`` to ``into``."""
        graph, m, free = op.graph, op.graph.n_points, ~self.targets
        z = _distances(op, self.sets)
        near = (z < _FAR).any(axis=1) & free
        edges = np.flatnonzero(near[graph.sources()] & free[graph._indices])
        i, j = graph.sources()[edges], graph._indices[edges]
        crossed = np.exp(-2.0 * z[i] * z[j])  # (edges, sets)
        data = op._data.copy()
        survival = np.prod(1.0 - crossed, axis=1)
        absorbed = data[edges] * (1.0 - survival)
        # a step that crosses several sets is divided among them in proportion
        share = absorbed / np.maximum(crossed.sum(axis=1), np.finfo(float).tiny)
        for s in range(len(self.sets)):
            self.into[:, s] += _group_sums(i, share * crossed[:, s], m)
        self.crossing = _group_sums(i, absorbed, m)
        data[edges] *= survival
        self.data = data


def _distances(op: MarkovOperator, sets: Sequence[Mask]) -> Array:
    """z (m, sets): distances in standard deviations of a step: Φ(−z) of the driftless steps end in a set."""
    from scipy.special import ndtri

    with _validation.silent():  # the warnings would be those of the operator itself
        driftless = op.undirected()
    assert isinstance(driftless, MarkovChain)
    into = np.clip(driftless._pull(np.stack(sets, axis=1).astype(float)), 0, 1)
    with np.errstate(divide="ignore"):
        return np.clip(-ndtri(into), 0.0, _FAR)


def _group_sums(group: NDArray[Any], values: Array, count: int) -> Array:
    """The sum of the values of each group, (count,)."""
    return np.bincount(group, values, count).astype(np.float64, copy=False)


# --------------------------------------------------------------------------------------------------- the system


class AbsorbingSystem:
    """(I − Q) x = b, or its transpose, with Q an absorbing chain among some free states, all of which it leaves.

    I − Q is an M-matrix: its inverse is not negative, and (I − Q) 1 = the probability of leaving is known, so that the
    solution 1 for that right-hand side tells the error of any. Slow modes of a chain are smooth or small traps, so that
    two-level GMRES takes some 30 iterations whatever the number of states. A product of operators is preconditioned by
    the sum of its factors' I − Q, its first order.
    """

    def __init__(self, chain: AbsorbingChain, free: Mask) -> None:
        op, graph = chain.op, chain.op.graph
        self.op, self.size = op, int(free.sum())
        large = self.size > _MAX_FACTORED or graph.n_edges > _MAX_FACTORED_EDGES
        # in an order that keeps neighbours together, where it matters
        order = graph.layout.order.astype(np.intp) if large else np.arange(graph.n_points)
        self.states = order[free[order]]
        self.has_matrix = chain.data is not None
        if chain.data is None:
            self.leaving = op._pull((~free).astype(float))[self.states]
            parts = [self._restricted(factor._data, np.zeros(graph.n_points)) for factor in op.factors]
            self.matrix = sp.csr_array(sum(parts[1:], start=parts[0]))
        else:
            self.leaving = (over_neighbors(graph, chain.data, (~free).astype(float)) + chain.crossing)[self.states]
            self.matrix = self._restricted(chain.data, chain.crossing)
        self._transposed: sp.csr_array | None = None
        self._elimination: GTHElimination | None = None
        with np.errstate(all="ignore"):
            try:
                levels = (self.matrix, self.leaving, self.matrix_product)
                self._precondition = two_levels(*levels) if large else _factored(self.matrix)
            except SolveError as error:
                self._eliminate(error)

    def _restricted(self, data: Array, crossing: Array) -> sp.csr_array:
        """I − Q among the free states, with its diagonal as a sum of what leaves: 1 − Q_ii would cancel."""
        graph = self.op.graph
        moves = data.copy()
        moves[graph.selves] = 0.0
        diagonal = over_neighbors(graph, moves, np.ones(graph.n_points)) + crossing
        Q = graph.matrix(moves)[self.states][:, self.states]
        return sp.csr_array(sp.diags_array(diagonal[self.states]) - Q)

    def product(self, x: Array, transposed: bool) -> Array:
        """(I − Q) x, or (I − Q)ᵀ x."""
        if self.has_matrix:
            return self.matrix_product(x, transposed)
        padded = np.zeros(self.op.graph.n_points)
        padded[self.states] = x
        moved = self.op._push(padded) if transposed else self.op._pull(padded)
        return x - moved[self.states]

    def matrix_product(self, x: Array, transposed: bool) -> Array:
        """``matrix`` times x, or its transpose."""
        matrix = self.matrix
        if transposed:
            if self._transposed is None:
                self._transposed = sp.csr_array(matrix.T)
            matrix = self._transposed
        edges = NeighborGraph._make(matrix.indptr, matrix.indices, csr.EMPTY)
        return over_neighbors(edges, matrix.data, x)

    def solve(self, b: Array, *, transposed: bool = False) -> Array:
        """The solution x (size,), whose residual has been checked."""
        if self._elimination is None:
            try:
                return self._iterated(b, transposed)
            except SolveError as error:
                self._eliminate(error)
        assert self._elimination is not None
        return self._elimination.solve(b, transposed)

    def _iterated(self, b: Array, transposed: bool) -> Array:
        with np.errstate(all="ignore"):  # the residual tells whether all is finite
            x, iterations = _gmres(self.product, self._precondition, b, transposed)
        # the residual of the jump chain: 1 − Q_ii is small where the chain seldom moves
        rows, columns = (1.0, self.matrix.diagonal()) if transposed else (1.0 / self.matrix.diagonal(), 1.0)
        residual = float(np.linalg.norm(rows * (b - self.product(x, transposed))))
        size = float(np.linalg.norm(rows * b) + np.linalg.norm(columns * x))
        if not residual <= _MAX_RESIDUAL * size:
            raise _validation.unsolved(f"after {iterations} iterations its relative residual is {residual / size:.2g}")
        return x

    def verify(self) -> None:
        """Solve for the known solution 1; turn to the elimination, or raise an error, where it comes out wrong."""
        self.verified(lambda: self.solve(self.leaving)[:, None])

    def verified(self, solutions: Callable[[], Array]) -> Array:
        """Solutions (size, r) that sum to 1 in exact arithmetic, checked to do so."""
        eliminated, found = self._elimination is not None, solutions()
        try:
            self._check_ones(found.sum(axis=1))
        except SolveError as error:
            if eliminated:
                raise
            if self._elimination is None:  # else only the last of the solutions were found by elimination
                self._eliminate(error)
            found = solutions()
            self._check_ones(found.sum(axis=1))
        return found

    def _check_ones(self, ones: Array) -> None:
        error = np.abs(ones - 1.0)
        if not error.max() <= _MAX_ERROR:
            at = int(np.argmax(error))
            raise _validation.unsolved(
                f"from state {self.states[at]} the chain ends with probability 1, which comes out {error[at]:.1g} off"
            )

    def _eliminate(self, error: SolveError) -> None:
        """Solve by elimination from here on; raise the error where that is not possible."""
        if not self.has_matrix or self.size > _MAX_ELIMINATED:
            raise error
        moves = self.matrix.toarray()
        np.maximum(np.negative(moves, out=moves), 0.0, out=moves)
        with np.errstate(all="ignore"):
            self._elimination = GTHElimination(moves, self.leaving)


# ----------------------------------------------------------------------------------- preconditioners and GMRES


def _factored(matrix: sp.csr_array) -> LinearMap:
    """Sparse LU of an M-matrix, which needs no pivoting."""
    from scipy.sparse.linalg import splu

    try:
        lu = splu(
            sp.csc_array(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError as error:
        raise _validation.unsolved(str(error)) from None
    return lambda b, transposed: lu.solve(b, "T" if transposed else "N")


def approximate_inverse(matrix: sp.csr_array, leaving: Array, product: LinearMap, most_aggregates: int) -> LinearMap:
    """Of I − Q: by factors if it is small, else by two levels."""
    if matrix.shape[0] <= _MAX_FACTORED:
        return _factored(matrix)
    return two_levels(matrix, leaving, product, most_aggregates)


def two_levels(
    matrix: sp.csr_array, leaving: Array, product: LinearMap, most_aggregates: int | None = None
) -> LinearMap:
    """A coarse solve for functions constant on aggregates; before and after it one with the strong couplings only.

    matrix: I − Q; leaving: its row sums; product: that with the matrix or its transpose, which is all that is kept.
    """
    m, (least, most) = matrix.shape[0], _AGGREGATES
    count = int(np.clip(m // _STATES_PER_AGGREGATE, least, most if most_aggregates is None else most_aggregates))
    label = _aggregates(matrix, count)
    members = sp.csr_array((np.ones(m), (np.arange(m), label)), shape=(m, count))
    # a state's weight: its visits in the first moves of the jump chain from everywhere, times its holding time
    holding = 1.0 / matrix.diagonal()
    mass, weight = np.ones(m), np.ones(m)
    for _ in range(_MOVES):
        mass -= product(holding * mass, True)
        weight += mass
    weight *= holding
    sums = _group_sums(label, weight * leaving, count)
    coarse = _factored(_with_row_sums(members.T @ sp.diags_array(weight) @ matrix @ members, sums))
    strong = _factored(_strong_couplings(matrix))

    def cycle(b: Array, transposed: bool) -> Array:
        left, right = (1.0, weight) if transposed else (weight, 1.0)
        x = strong(b, transposed)
        residual = left * (b - product(x, transposed))
        x += right * coarse(_group_sums(label, residual, count), transposed)[label]
        return x + strong(b - product(x, transposed), transposed)

    return cycle


def _with_row_sums(matrix: sp.csr_array, sums: Array) -> sp.csr_array:
    """The matrix with the diagonal that gives it these row sums. No entry beside it is positive: nothing cancels."""
    off_diagonal = sp.csr_array(matrix - sp.diags_array(matrix.diagonal()))
    return sp.csr_array(off_diagonal + sp.diags_array(sums - off_diagonal.sum(axis=1)))


def _strong_couplings(matrix: sp.csr_array) -> sp.csr_array:
    """The diagonal, and the entries above a quarter of it; above half of it, if those are many.

    Above half is at most one in a row, so that the factors do not fill.
    """
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    diagonal = rows == matrix.indices
    for share in (0.25, 0.5):
        kept = diagonal | (-matrix.data > share * matrix.diagonal()[rows])
        if kept.sum() < 2.25 * matrix.shape[0]:
            break
    return sp.csr_array((matrix.data[kept], (rows[kept], matrix.indices[kept])), shape=matrix.shape)


def _aggregates(matrix: sp.csr_array, count: int) -> NDArray[np.intp]:
    """The aggregate of each state, (size,): that of the nearest seed, along edges of length 1/P."""
    from scipy.sparse.csgraph import dijkstra

    m = matrix.shape[0]
    length = np.where(matrix.data < 0, -1.0 / np.minimum(matrix.data, -1e-12), 0.0)
    edges = sp.csr_array((length, matrix.indices.copy(), matrix.indptr.copy()), shape=matrix.shape)
    edges.eliminate_zeros()
    seeds = np.linspace(0, m - 1, count).astype(np.intp)
    _, _, nearest = dijkstra(edges, directed=False, indices=seeds, min_only=True, return_predecessors=True)
    # a state apart from all seeds leaves the free states in one step: any aggregate will do
    return np.searchsorted(seeds, np.where(nearest < 0, seeds[0], nearest))


def _gmres(product: LinearMap, precondition: LinearMap, b: Array, transposed: bool) -> tuple[Array, int]:
    """Restarted GMRES on the preconditioned system, whose residual is nearly the error; and its iterations.

    It stops when that is _TOLERANCE of the solution, or gives up; the caller looks at the residual.
    """
    size = b.size
    restart = min(size, max(20, min(_RESTART, _BASIS_NUMBERS // size)))
    x, iterations = np.zeros_like(b), 0
    V, H = np.empty((restart + 1, size)), np.zeros((restart + 1, restart))
    for _ in range(_RESTARTS):
        r = precondition(b - product(x, transposed), transposed)
        norm = float(np.linalg.norm(r))
        if norm <= _TOLERANCE * np.linalg.norm(x):
            break
        V[0], rhs = r / norm, np.zeros(restart + 1)
        rhs[0] = norm
        H[:] = 0.0
        for n in range(restart):
            iterations += 1
            w = precondition(product(V[n], transposed), transposed)
            for _ in range(2):  # Gram–Schmidt, twice is enough
                along = V[: n + 1] @ w
                w -= along @ V[: n + 1]
                H[: n + 1, n] += along
            H[n + 1, n] = np.linalg.norm(w)
            if not np.isfinite(H[n + 1, n]):
                raise _validation.unsolved("it is singular to rounding")
            y = np.linalg.lstsq(H[: n + 2, : n + 1], rhs[: n + 2], rcond=None)[0]
            residual = np.linalg.norm(H[: n + 2, : n + 1] @ y - rhs[: n + 2])
            if residual <= 0.1 * _TOLERANCE * max(np.linalg.norm(x), np.linalg.norm(y)) or H[n + 1, n] == 0:
                break
            V[n + 1] = w / H[n + 1, n]
        x += y @ V[: y.size]
    return x, iterations
