"""Scores against the gradient and against differences, in both precisions."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from chain_reference import FORMS, FRACTIONS, TIMES, difference, make, moved
from ordiff.learning import scores as module
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.observation import Observation, known_time_weights
from ordiff.learning.scores import Directions, scores


def directions(rng, n, K):
    U = [rng.normal(size=(n, K)) for _ in range(6)]
    return {"orderings": (U[0], U[1]), "slopes": (U[2], U[3]), "local_slopes": (U[4],), "noise": U[5]}


@pytest.mark.parametrize("fractions", FRACTIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", TIMES)
def test_scores(rng, fractions, form, times):
    case, K = make(rng, fractions, form, times), 3
    likelihood, dynamics = case.likelihood(), case.dynamics
    changes = directions(rng, 50, K)
    found = scores(likelihood, dynamics, Directions(**changes), dtype=np.float64)
    _, gradient = likelihood.value_and_gradient(dynamics)
    pairs = [
        (part, which, U)
        for part, given in changes.items()
        for which, U in enumerate(given if isinstance(given, tuple) else (given,))
    ]
    expected = []
    for part, which, U in pairs:
        g = getattr(gradient, part)
        expected.append(-U.T @ (g[which] if isinstance(g, tuple) else g))
    expected = np.concatenate(expected)
    np.testing.assert_allclose(np.average(found, axis=0, weights=case.weight), expected, rtol=1e-9, atol=1e-12)
    for at, (part, which, U) in enumerate(pairs):
        line = difference(
            lambda t, p=part, k=which, u=U[:, 1]: likelihood.per_sample(moved(dynamics, p, t * u, k)), 1e-3
        )
        np.testing.assert_allclose(found[:, at * K + 1], line, rtol=1e-6, atol=1e-7 * np.abs(line).max())


@pytest.mark.parametrize("fractions", FRACTIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", TIMES)
def test_single_precision_is_enough(rng, fractions, form, times):
    """The default, to 1e-5 of the largest score of a direction."""
    case = make(rng, fractions, form, times)
    given = (case.likelihood(), case.dynamics, Directions(**directions(rng, 50, 3)))
    single, double = scores(*given), scores(*given, dtype=np.float64)

    scale = np.abs(double).max(axis=0)
    np.testing.assert_allclose(single / scale, double / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("gap", [3.0, 6.2, 6.8])
def test_scores_beyond_a_gap(rng, gap):
    """States that are reached by rare steps alone, on samples: what is unlikely there is all that counts."""
    x = np.concatenate([np.linspace(0, 5, 26), 5 + gap + np.linspace(0, 3, 14)])
    graph = od.NeighborGraph.build(x[:, None], k=x.size - 1)
    weights = known_time_weights(rng.uniform(4, 12, x.size), np.arange(13.0), 0)
    likelihood = SnapshotLikelihood(graph, Observation(weights, floor=1e-12 / x.size), np.eye(x.size)[2], 12)
    ones = np.ones(x.size)
    dynamics = Dynamics(1.0, ones, (0.1 * x,), (ones,), (), None, 0.5)
    U = np.stack([np.sin(x), x / 5 + 3, x**2 / 25], axis=1)
    single, double = (scores(likelihood, dynamics, Directions((U,), noise=U), dtype=d) for d in (np.float32, float))
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-4 * np.abs(double).max())


def test_what_is_negligible_is_dropped():
    np.testing.assert_array_equal(module.drop_negligible(np.array([1.0, -2e-19, 2e-17, 0.0])), [1.0, 0.0, 2e-17, 0.0])
    np.testing.assert_array_equal(module.drop_negligible(np.array([1.0, np.nan, 3.0])), [1.0, np.nan, 3.0])


def test_scores_of_some_rows_and_parts(rng):
    for form, times in (("states", "unknown"), ("linear", "unknown"), ("log-linear", "window"), ("states", "known")):
        case = make(rng, (0.5, 1.0), form, times)
        likelihood = case.likelihood()
        changes = directions(rng, 50, 70)
        assert module._DIRECTIONS < 70  # more columns than one task takes
        whole = scores(likelihood, case.dynamics, Directions(**changes), dtype=np.float64)
        rows = np.array([5, 3, 3, 20])
        parts = Directions((None, changes["orderings"][1]), noise=changes["noise"])
        some = scores(likelihood, case.dynamics, parts, rows, dtype=np.float64)
        expected = np.hstack([whole[rows, 70:140], whole[rows, 350:420]])
        np.testing.assert_allclose(some, expected, rtol=1e-10, atol=1e-12)
    assert scores(likelihood, case.dynamics, Directions()).shape == (50, 0)


def test_directions_are_checked(rng):
    case = make(rng)
    likelihood = case.likelihood()
    for changes in (
        Directions((np.ones(50),) * 3),
        Directions(slopes=(np.ones(50),) * 3),
        Directions(local_slopes=(np.ones(50),) * 2),
    ):
        with pytest.raises(ValueError, match="more directions"):
            scores(likelihood, case.dynamics, changes)
    with pytest.raises(ValueError, match=r"noise must have shape \(50,\)"):
        scores(likelihood, case.dynamics, Directions(noise=np.ones((49, 2))))
    with pytest.raises(ValueError, match=r"rows must be 0\.\.49"):
        scores(likelihood, case.dynamics, Directions(noise=np.ones((50, 2))), [50])
