"""Absorbing chains: which states reach a target, both solvers against dense algebra, nearly decomposable chains."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import ordiff as od
from chains import chain
from ordiff import _absorbing
from ordiff._absorbing import AbsorbingChain, AbsorbingSystem, pattern, reaches
from ordiff._validation import SolveError
from ordiff.passage import expected_occupancy, fate_probabilities, first_passage_time, stationary

# ---------------------------------------------------------------------------------------------- absorbing chains

# 0 is absorbing; 1 and 2 lead to 0 or 3; 3 is a target; 4 leads to 3 only
BRANCHING = np.array(
    [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.4, 0.2, 0.4, 0.0, 0.0],
        [0.0, 0.3, 0.2, 0.5, 0.0],
        [0.0, 0.0, 0.0, 0.6, 0.4],
        [0.0, 0.0, 0.0, 0.5, 0.5],
    ]
)


def test_which_states_reach_the_target():
    op, target = chain(BRANCHING), np.arange(5) == 3
    assert (pattern(op).toarray() == (BRANCHING > 0)).all()
    assert pattern(op, target).toarray()[3].sum() == 0
    assert reaches(pattern(op), target).tolist() == [False, True, True, True, True]
    assert not reaches(pattern(op), np.zeros(5, bool)).any()
    absorbing = AbsorbingChain(op, [target])
    assert absorbing.reaching().tolist() == [False, True, True, True, True]
    assert absorbing.almost_surely_reaching().tolist() == [False, False, False, False, True]


def test_crossings_conserve_probability():
    """What steps across a target is moved from the free states into the target: rows still sum to 1."""
    x = np.linspace(0, 1, 101).reshape(-1, 1)
    op = od.Kernel(noise=1.0).operator(od.NeighborGraph.build(x, radius=0.2), eps=1e-3)
    sets = [x[:, 0] < 0.2, x[:, 0] > 0.8]
    plain, crossed = (AbsorbingChain(op, sets, continuous) for continuous in (False, True))
    free = ~plain.targets
    assert (crossed.into[free] >= plain.into[free]).all()
    assert crossed.crossing[free].max() > 0.1
    among = op.graph.matrix(crossed.data)[:, free].sum(axis=1)
    np.testing.assert_allclose((among + crossed.into.sum(axis=1))[free], 1.0, atol=1e-12)
    np.testing.assert_allclose((crossed.into - plain.into).sum(axis=1)[free], crossed.crossing[free], atol=1e-12)


# ------------------------------------------------------------------------------------------------------- solvers


def test_system_matches_dense_algebra(solver, rng):
    P = rng.uniform(size=(30, 30)) * (rng.uniform(size=(30, 30)) < 0.4) + 0.3 * np.roll(np.eye(30), 1, axis=1)
    P /= P.sum(axis=1, keepdims=True)
    target = np.arange(30) < 3
    system = AbsorbingSystem(AbsorbingChain(chain(P), [target]), ~target)
    A, b = np.eye(27) - P[3:, 3:], rng.normal(size=27)
    order = system.states - 3
    np.testing.assert_allclose(system.solve(b[order]), np.linalg.solve(A, b)[order], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        system.solve(b[order], transposed=True), np.linalg.solve(A.T, b)[order], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(system.leaving, P[3:, :3].sum(axis=1)[order], rtol=1e-14)
    system.verify()


def test_both_solvers_agree_on_samples(solver, rng):
    """Enough states for several aggregates, a drift, traps at the edge, and several right sides."""
    X = rng.normal(size=(1500, 3))
    graph = od.NeighborGraph.build(X, k=30)
    op = od.Kernel(od.Ordering(-0.5 * (X**2).sum(1)), noise=1.0).operator(graph, 0.05, density="knn")
    ends = [X[:, 0] < -1.2, X[:, 0] > 1.2, X[:, 1] > 1.5]
    ends[2] &= ~(ends[0] | ends[1])
    P = op.matrix.toarray()
    free = ~np.logical_or.reduce(ends)
    N = np.linalg.inv(np.eye(free.sum()) - P[np.ix_(free, free)])
    want = np.stack([N @ P[np.ix_(free, end)].sum(1) for end in ends], axis=1)
    np.testing.assert_allclose(fate_probabilities(op, ends)[free], want, atol=1e-8)
    inside = ~free
    np.testing.assert_allclose(first_passage_time(op, inside).mean[free], op.eps * N.sum(axis=1), rtol=1e-7)
    time = expected_occupancy(op, free, inside)
    np.testing.assert_allclose(time[free], op.eps * N.sum(axis=0) / free.sum(), rtol=1e-6, atol=1e-10)
    mass = stationary(op)
    np.testing.assert_allclose(op.forward(mass), mass, atol=1e-11)
    assert mass.sum() == pytest.approx(1.0)


# --------------------------------------------------------------------------------- nearly decomposable chains


def nearly_decomposable(gap):
    """Two halves that exchange mass so rarely that double precision cannot weigh one against the other."""
    rng = np.random.default_rng(0)
    P = np.kron(np.eye(2), rng.uniform(0.1, 1, (6, 6)))
    P /= P.sum(axis=1, keepdims=True)
    P[0, 6], P[6, 0] = gap, gap
    return P


def rational(moves, b):
    """x of (D − B) x = b with D the row sums of B, whose last column is b's, in rational numbers."""
    rows = [[Fraction(-value) for value in row] for row in moves]
    for i, row in enumerate(rows):
        row[i] = -sum((value for j, value in enumerate(row) if j != i), Fraction(0))
        row[-1] = Fraction(b[i])
    for k in range(len(rows)):
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [value - rows[i][k] * other for value, other in zip(rows[i], rows[k], strict=True)]
    return np.array([float(row[-1]) for row in rows])


@pytest.mark.parametrize("gap", [1e-30, 1e-200])
def test_nearly_decomposable_chains(gap, solver):
    """Every entry is right to rounding: states are eliminated without a subtraction."""
    P = nearly_decomposable(gap)
    found, fates = first_passage_time(chain(P), 3), fate_probabilities(chain(P), [[3], [4]])
    free = np.delete(np.arange(12), 3)
    ends = P[np.ix_(free, [*free, 3])]
    np.testing.assert_allclose(found.mean[free], rational(ends, np.ones(11)), rtol=1e-12)
    assert (found.mean[6:] > 1 / gap).all()
    assert not np.isnan(found.second_moment).any()
    free = np.delete(np.arange(12), [3, 4])
    ends = np.column_stack([P[np.ix_(free, free)], P[free][:, [3, 4]].sum(axis=1)])
    np.testing.assert_allclose(fates[free, 1], rational(ends, P[free, 4]), rtol=1e-12)


@pytest.mark.parametrize(("gap", "most"), [(1e-310, 6_000), (1e-30, 0)])
def test_a_system_that_rounding_decides_is_an_error(gap, most, solver, monkeypatch):
    monkeypatch.setattr(_absorbing, "_MAX_ELIMINATED", most)
    with pytest.raises(SolveError, match="could not be solved"):
        first_passage_time(chain(nearly_decomposable(gap)), 3)
