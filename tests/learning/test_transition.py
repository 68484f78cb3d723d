"""The transition matrix of a likelihood: its products against dense ones, its derivatives against differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chain_reference import dense_matrix, difference, make
from ordiff.learning.transition import ChainPattern

FRACTIONS = (0.2, 0.6, 1.0)


@pytest.fixture
def case(rng):
    return make(rng, FRACTIONS)


@pytest.fixture
def chain(case):
    return case.likelihood().transition(case.dynamics)


@pytest.fixture
def dense(case, chain):
    """P in the order of the layout, for a step of this share of ε."""
    order = chain.pattern.layout.order
    return lambda theta: dense_matrix(case, theta * case.dynamics.eps)[np.ix_(order, order)]


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_products_are_those_of_the_matrix(chain, dense, rng, columns):
    P, f = dense(1.0), rng.normal(size=(50, columns))
    out = np.full_like(f, np.nan)
    chain.push(f, out)
    np.testing.assert_allclose(out, P.T @ f, rtol=1e-11, atol=1e-14)
    chain.pull(f, out)
    np.testing.assert_allclose(out, P @ f, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_a_chain_keeps_every_step(chain, dense, rng, columns):
    P, steps = dense(1.0), rng.normal(size=(9, 50, columns))
    expected = steps.copy()
    for s in range(8):
        expected[s + 1] = P.T @ expected[s]
    found = steps.copy()
    chain.forward(found)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    expected = steps.copy()
    for s in reversed(range(8)):
        expected[s] += P @ expected[s + 1]
    found = steps.copy()
    chain.backward(found)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    alone = steps[:1].copy()  # nowhere to go
    chain.forward(alone)
    chain.backward(alone)
    np.testing.assert_array_equal(alone, steps[:1])


def test_phases_begin_with_shorter_steps(chain, dense, case, rng):
    order = chain.pattern.layout.order
    initial = case.initial[order]
    rows = np.flatnonzero(initial)
    np.testing.assert_array_equal(chain.start.pattern.rows, rows)
    launched = chain.launch(initial[rows])
    f = rng.normal(size=(50, 4))
    for phase, theta in enumerate(FRACTIONS):
        P = dense(theta)
        np.testing.assert_allclose(launched[:, phase], P.T @ initial, rtol=1e-11, atol=1e-15)
        np.testing.assert_allclose(chain.start_times(chain.firsts[phase], f), (P @ f)[rows], rtol=1e-11, atol=1e-13)


def test_patterns_are_sorted_and_come_back(case, rng):
    pattern = ChainPattern(case.graph, case.local)
    f = rng.normal(size=(50, 3))
    np.testing.assert_array_equal(pattern.outer(pattern.inner(f)), f)
    order, rows = pattern.layout.order, pattern.rows.pattern
    X = case.graph.X[order]
    there = np.repeat(np.arange(50), np.diff(rows.indptr))
    np.testing.assert_allclose(rows.sqdist, ((X[there] - X[rows.indices]) ** 2).sum(axis=1), atol=1e-14)
    by_pair = case.graph.matrix(case.local[0]).toarray()[np.ix_(order, order)]
    np.testing.assert_array_equal(pattern.rows.local[0], by_pair[there, rows.indices])


def test_some_rows_are_those_of_all(case, chain):
    """Their edges, their kernel and their derivatives."""
    rows = chain.pattern.rows
    which = np.array([4, 11, 30])
    some = rows.only(which)
    p = chain.parameters
    np.testing.assert_array_equal(some.pattern.sqdist, some.values(rows.pattern.sqdist))
    np.testing.assert_array_equal(some.local[0], some.values(rows.local[0]))
    np.testing.assert_array_equal(some.spread(p.noise), some.values(rows.spread(p.noise)))
    P, failed = some.transition(p, p.eps)
    assert failed == -1
    np.testing.assert_array_equal(P, some.values(chain.P))
    for derivative in (
        lambda r: r.by_noise(p, p.eps),
        lambda r: r.by_slope(1, p, p.eps),
        lambda r: r.by_local_slope(0, p, p.eps),
    ):
        np.testing.assert_array_equal(derivative(some), some.values(derivative(rows)))


@pytest.mark.parametrize("part", ["noise", "slopes", "local_slopes"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_derivatives_by_what_a_row_owns(chain, part, share):
    """∂ log K of a whole row at once: the parameter of every row grows by the same."""
    rows, p, eps = chain.pattern.rows, chain.parameters, share * chain.parameters.eps

    def log_kernel(t):
        value = getattr(p, part).copy()
        (value if part == "noise" else value[0])[:] += t
        moved = replace(p, **{part: value})
        return np.concatenate([rows.log_kernel(moved, eps)(*bounds) for bounds in rows.pattern.blocks()])

    found = {
        "noise": lambda: rows.by_noise(p, eps),
        "slopes": lambda: rows.by_slope(0, p, eps),
        "local_slopes": lambda: rows.by_local_slope(0, p, eps),
    }[part]()
    expected = difference(log_kernel, 1e-3)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def test_what_a_row_loses_it_gains_elsewhere(chain, rng):
    """P ∘ (values − rowsum(P ∘ values)): the change of P for a change of log K."""
    rows, values = chain.pattern.rows, rng.normal(size=chain.P.size)
    centred = rows.centred(chain.P, values.copy())
    begins, lengths = rows.pattern.indptr[:-1], rows.lengths
    np.testing.assert_allclose(np.add.reduceat(centred, begins), 0.0, atol=1e-14)
    mean = np.repeat(np.add.reduceat(chain.P * values, begins), lengths)
    np.testing.assert_allclose(centred, chain.P * (values - mean), rtol=1e-10, atol=1e-15)
