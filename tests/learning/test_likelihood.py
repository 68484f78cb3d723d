"""The likelihood against dense sums, its derivatives against differences, and what must not change them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import ordiff as od
from chain_reference import (
    FLOOR,
    FORMS,
    FRACTIONS,
    PARTS,
    STEPS,
    TIMES,
    dense_log_likelihoods,
    dense_matrix,
    dense_slices,
    difference,
    make,
    moved,
    permuted,
    place_matrix,
    reordered,
    ring,
    slices_of,
    some_dynamics,
)
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.observation import Observation, time_weights
from ordiff.learning.scores import Directions, scores
from ordiff.learning.slices import Workspace


@pytest.mark.parametrize("fractions", FRACTIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", TIMES)
def test_value_is_that_of_dense_sums(rng, fractions, form, times):
    case = make(rng, fractions, form, times)
    likelihood = case.likelihood()
    expected = dense_log_likelihoods(case)
    np.testing.assert_allclose(likelihood.per_sample(case.dynamics), expected, rtol=1e-11)
    loss = -np.average(expected, weights=case.weight)
    assert likelihood.value(case.dynamics) == pytest.approx(loss, rel=1e-12)
    assert likelihood.value_and_gradient(case.dynamics)[0] == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(likelihood.time_slices(case.dynamics), dense_slices(case), rtol=1e-11, atol=1e-16)
    P = dense_matrix(case, case.dynamics.eps)
    entries = P[case.graph.sources(), case.graph.indices]
    np.testing.assert_allclose(likelihood.matrix(case.dynamics), entries, rtol=1e-11)
    np.testing.assert_allclose(likelihood.slice_times(0.2), slices_of(fractions, 0.2))


# ------------------------------------------------------------------------------------------ derivatives


@pytest.mark.parametrize("fractions", FRACTIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("part", PARTS)
def test_gradient_is_that_of_differences(rng, fractions, form, times, part):
    case = make(rng, fractions, form, times)
    likelihood = case.likelihood()
    gradient = getattr(likelihood.value_and_gradient(case.dynamics)[1], part)
    for which, g in enumerate(gradient if isinstance(gradient, tuple) else (gradient,)):
        direction = np.sign(g) * rng.uniform(0.5, 1, np.shape(g))  # no cancellation in the sum
        expected = difference(
            lambda t, d=direction, k=which: likelihood.value(moved(case.dynamics, part, t * d, k)),
            1e-4 if part == "eps" else 1e-3,
        )
        assert np.sum(g * direction) == pytest.approx(expected, rel=1e-6)


def test_gradient_of_single_values(rng):
    """Every component by itself, not only sums of them."""
    case = make(rng, (0.5, 1.0), "log-linear", "known", n=30, k=8)
    likelihood = case.likelihood()
    _, gradient = likelihood.value_and_gradient(case.dynamics)
    for part in ("noise", "orderings", "log_weight"):
        g = getattr(gradient, part)
        g = g[0] if isinstance(g, tuple) else g
        expected = [
            difference(lambda t, d=d, p=part: likelihood.value(moved(case.dynamics, p, t * d)), 1e-3)
            for d in np.eye(30)
        ]
        np.testing.assert_allclose(g, expected, rtol=1e-6, atol=1e-9 * np.abs(g).max())


def test_gradient_has_the_symmetries_of_the_model(rng):
    """Constants added to l or to the log weights change nothing: the columns of M sum to what its rows do, 0."""
    case = make(rng, (0.5, 1.0), "linear", "window")
    _, gradient = case.likelihood().value_and_gradient(case.dynamics)
    assert abs(gradient.log_weight.sum()) < 1e-13
    flat = replace(case.dynamics, slopes=tuple(np.full(50, 0.7) for _ in range(2)), noise=np.full(50, 1.1))
    _, gradient = case.likelihood().value_and_gradient(flat)
    for k in range(2):
        assert abs(gradient.orderings[k].sum()) < 1e-13
        np.testing.assert_allclose(gradient.orderings[k], gradient.log_weight * 0.7 / 1.1**2, rtol=1e-10, atol=1e-14)


def test_gradient_by_the_ordering_is_the_double_sum_of_the_paper(rng):
    """Times unknown, samples as states: −(1/m) Σ_i Σ_s r̄(s) Σ_{a<s} [p_0 P^a dP P^(s−a−1)](i) / Σ_s r̄(s) p_s(i)."""
    case = make(rng, times="unknown", n=25, weighted=False, graph=ring(25))
    case.observation = replace(case.observation, floor=0.0)
    dynamics, n = case.dynamics, 25
    P = dense_matrix(case, dynamics.eps)
    c = dynamics.slopes[0] / dynamics.noise**2
    weights = case.observation.times.toarray()[0]
    powers = [np.linalg.matrix_power(P, s) for s in range(STEPS + 1)]
    mixture = sum(w * case.initial @ power for w, power in zip(weights, powers, strict=True))
    expected = np.zeros(n)
    for j in range(n):
        # d(log K_ab)/dl_j = c_a (δ_bj − δ_aj); rows are scaled after
        dP = P * c[:, None] * ((np.arange(n) == j)[None, :] - P[:, [j]])
        for s, w in enumerate(weights):
            for a in range(s):
                expected[j] -= np.mean(w * (case.initial @ powers[a] @ dP @ powers[s - a - 1]) / mixture)
    _, gradient = case.likelihood().value_and_gradient(dynamics)
    np.testing.assert_allclose(gradient.orderings[0], expected, rtol=1e-9, atol=1e-14)


# ------------------------------------------------------------------------------- what must change nothing


def assert_same(found, expected, rtol=1e-9):
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    for part in PARTS:
        np.testing.assert_allclose(
            getattr(found[1], part), getattr(expected[1], part), rtol=rtol, atol=1e-13, err_msg=part
        )


@pytest.mark.parametrize("fractions", FRACTIONS[:2])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", TIMES)
def test_checkpoints_change_nothing(rng, fractions, form, times):
    case = make(rng, fractions, form, times)
    stored = case.likelihood()
    expected = stored.value_and_gradient(case.dynamics)
    again = case.likelihood(memory_budget=0)
    assert_same(again.value_and_gradient(case.dynamics), expected, rtol=1e-11)


def test_long_chains_have_many_blocks(rng):
    """Of several blocks the last one is not full."""
    graph, initial = ring(30), np.eye(30)[0]
    W = time_weights(rng.uniform(0, 14.0, 30), slices_of((0.5, 1.0), 0.2, 70))
    dynamics, local = some_dynamics(rng, 30, 0.2), (0.1 * rng.normal(size=graph.n_edges),)
    results = []
    for budget in (2**31, 0):
        likelihood = SnapshotLikelihood(
            graph, Observation(W), initial, 70, (0.5, 1.0), local=local, memory_budget=budget
        )
        results.append(likelihood.value_and_gradient(dynamics))
        direction = np.sign(results[-1][1].noise)
        expected = difference(lambda t, o=likelihood, d=direction: o.value(moved(dynamics, "noise", t * d)), 1e-3)
        assert np.abs(results[-1][1].noise).sum() == pytest.approx(expected, rel=1e-6)
    assert likelihood.schedule.n_blocks > 2
    assert 70 % likelihood.schedule.length
    assert_same(*results)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("coordinates", [True, False])
def test_results_are_in_the_order_of_the_caller(rng, form, coordinates):
    """States are sorted inside. Given in that order they stay as they are, and all results are the same."""
    case = make(rng, (0.5, 1.0), form, "known")
    if not coordinates:
        graph = case.graph
        case.graph = od.NeighborGraph(graph._indptr, graph._indices, graph._sqdist)
    order = case.graph.layout.order
    as_sorted, edge = permuted(case, order)
    rank, samples = np.argsort(order), order if form == "states" else np.arange(37)
    assert (order != np.arange(50)).any()
    np.testing.assert_array_equal(as_sorted.graph.layout.order, np.arange(50))

    likelihood, expected = case.likelihood(), as_sorted.likelihood()
    value, gradient = expected.value_and_gradient(as_sorted.dynamics)
    assert_same(likelihood.value_and_gradient(case.dynamics), (value, reordered(gradient, rank)))
    same = {"rtol": 1e-10, "atol": 1e-15}
    slices, there = likelihood.time_slices(case.dynamics), expected.time_slices(as_sorted.dynamics)
    np.testing.assert_allclose(slices[:, order], there, **same)
    np.testing.assert_allclose(slices, dense_slices(case), **same)
    P, there = likelihood.matrix(case.dynamics), expected.matrix(as_sorted.dynamics)
    np.testing.assert_allclose(P[edge], there, **same)
    np.testing.assert_allclose(
        P, dense_matrix(case, case.dynamics.eps)[case.graph.sources(), case.graph.indices], **same
    )
    seen, there = likelihood.per_sample(case.dynamics), expected.per_sample(as_sorted.dynamics)
    np.testing.assert_allclose(seen[samples], there, **same)
    np.testing.assert_allclose(seen, dense_log_likelihoods(case), **same)
    U = rng.normal(size=(50, 2))
    changes, sorted_changes = (Directions((V, V), (V, V), (V,), V) for V in (U, U[order]))
    found = scores(likelihood, case.dynamics, changes, dtype=np.float64)
    there = scores(expected, as_sorted.dynamics, sorted_changes, dtype=np.float64)
    np.testing.assert_allclose(found[samples], there, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_permuting_the_states_permutes_the_results(rng, form):
    case = make(rng, (0.5, 1.0), form, "known")
    order = rng.permutation(50)
    other, _ = permuted(case, order)
    value, gradient = other.likelihood().value_and_gradient(other.dynamics)
    assert_same((value, reordered(gradient, np.argsort(order))), case.likelihood().value_and_gradient(case.dynamics))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", TIMES)
def test_results_have_the_same_bits_on_any_number_of_threads(rng, form, times, monkeypatch, set_threads):
    case = make(rng, (0.5, 1.0), form, times)
    expected = case.likelihood().value_and_gradient(case.dynamics)
    monkeypatch.setattr("ordiff._parallel._PIECE", 100)
    monkeypatch.setattr("ordiff._parallel._SHARED", 100)
    monkeypatch.setattr("ordiff.kernel.terms._BLOCK", 50)
    changes, made = Directions((rng.normal(size=(50, 90)),), noise=rng.normal(size=(50, 3))), []
    for threads in (1, 3):
        set_threads(threads)
        likelihood = case.likelihood()
        assert len(likelihood.pattern.rows.ranges) > 5
        value, gradient = likelihood.value_and_gradient(case.dynamics)
        assert_same((value, gradient), expected)
        parts = [np.asarray(getattr(gradient, part)) for part in PARTS]
        made.append([value, *parts, likelihood.per_sample(case.dynamics), scores(likelihood, case.dynamics, changes)])
    for one, other in zip(*made, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_graph_that_is_shared_among_threads(rng):
    """A million edges, by differences."""
    n, k, steps = 12_000, 90, 6
    X = rng.uniform(size=(n, 2))
    graph = od.NeighborGraph.build(X, k=k)
    eps = k / (np.pi * n) / 9
    dynamics = replace(some_dynamics(rng, n, eps), orderings=(np.sin(X[:, 0]), X[:, 1]))
    local = (0.1 * rng.normal(size=graph.n_edges),)
    W = time_weights(rng.uniform(0, steps * eps, n), slices_of((0.5, 1.0), eps, steps))
    places = place_matrix(rng, 400, n, signed=True)
    initial = rng.uniform(size=n) / n
    for observation in (Observation(W, floor=1e-9), Observation(W[:400], places, np.full(n, 1 / n), FLOOR)):
        likelihood = SnapshotLikelihood(graph, observation, initial, steps, (0.5, 1.0), local=local)
        assert len(likelihood.pattern.rows.ranges) > 2
        _, gradient = likelihood.value_and_gradient(dynamics)
        for part, g in (("noise", gradient.noise), ("orderings", gradient.orderings[0])):
            size = 1e-4 / np.abs(g).max()
            expected = difference(lambda t, p=part, o=likelihood, d=size * g: o.value(moved(dynamics, p, t * d)), 1.0)
            assert size * (g @ g) == pytest.approx(expected, rel=1e-6)


def test_an_instance_can_be_used_again(rng):
    for times in TIMES:
        case = make(rng, (0.5, 1.0), "linear", times)
        likelihood, workspace = case.likelihood(), Workspace()
        first = likelihood.value_and_gradient(case.dynamics, workspace)
        likelihood.value(moved(case.dynamics, "noise", 0.1))
        scores(likelihood, case.dynamics, Directions(noise=rng.normal(size=(50, 2))), rows=[1, 2])
        likelihood.value_and_gradient(moved(case.dynamics, "noise", 0.1), workspace)  # memory that was used before
        for second in (likelihood.value_and_gradient(case.dynamics, w) for w in (None, workspace)):
            assert first[0] == second[0]
            np.testing.assert_array_equal(first[1].noise, second[1].noise)


def test_two_orderings_of_which_one_is_at_rest_are_one(rng):
    case = make(rng)
    still = replace(case.dynamics, slopes=(case.dynamics.slopes[0], np.zeros(50)))
    alone = replace(case.dynamics, orderings=case.dynamics.orderings[:1], slopes=case.dynamics.slopes[:1])
    likelihood = case.likelihood()
    a, b = likelihood.value_and_gradient(still), likelihood.value_and_gradient(alone)
    assert a[0] == pytest.approx(b[0], rel=1e-13)
    np.testing.assert_allclose(a[1].orderings[0], b[1].orderings[0], rtol=1e-11, atol=1e-16)
    assert not a[1].orderings[1].any()


def test_a_local_ordering_of_differences_is_a_global_one(rng):
    case = make(rng, (0.5, 1.0), "linear", "window")
    l, slope = case.dynamics.orderings[0], case.dynamics.slopes[0]
    edges = l[case.graph.indices] - l[case.graph.sources()]
    a = case.likelihood(local=()).value_and_gradient(Dynamics(0.2, case.dynamics.noise, (l,), (slope,)))
    b = case.likelihood(local=(edges,)).value_and_gradient(Dynamics(0.2, case.dynamics.noise, local_slopes=(slope,)))
    assert a[0] == pytest.approx(b[0], rel=1e-13)
    np.testing.assert_allclose(a[1].slopes[0], b[1].local_slopes[0], rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(a[1].noise, b[1].noise, rtol=1e-10, atol=1e-15)


# --------------------------------------------------------------------------------------- the likelihood


def test_loss_of_unknown_times_is_at_least_log_m(rng):
    """Equality only for a uniform mixture: Σ_i log p_i ≤ −m log m for masses p."""
    for _ in range(5):
        case = make(rng, times="unknown", weighted=False, graph=ring(50))
        case.observation = replace(case.observation, floor=0.0)
        assert case.likelihood().value(case.dynamics) > np.log(50) + 1e-3
    # a ring from a uniform start stays uniform
    W = sp.csr_array(np.full((40, 1 + STEPS), 1 / (1 + STEPS)))
    likelihood = SnapshotLikelihood(ring(40), Observation(W), np.full(40, 1 / 40), STEPS)
    value, gradient = likelihood.value_and_gradient(Dynamics(0.05, np.ones(40)))
    assert value == pytest.approx(np.log(40), rel=1e-13)
    assert np.abs(gradient.log_weight).max() < 1e-15


def test_self_weight(rng):
    case = make(rng)
    likelihood = case.likelihood()
    entries = likelihood.matrix(replace(case.dynamics, self_weight=0.0))
    assert not entries[case.graph.selves].any()
    np.testing.assert_allclose(np.add.reduceat(entries, case.graph.indptr[:-1]), 1.0, rtol=1e-13)


# ----------------------------------------------------------------------------------------------- errors


def test_errors_say_what_is_wrong(rng):
    case = make(rng)
    W = case.observation.times
    given = (case.initial, STEPS)
    for observation, message in (
        (Observation(W[:, :-1]), "times must have shape"),
        (Observation(-1.0 * W), "not negative"),
        (Observation(sp.csr_array(W.shape)), "row 0 of times has no time slice"),
        (Observation(W[:40]), "40 samples and 50 states"),
        (Observation(W, places=sp.eye_array(50, 49)), "places must have shape"),
        (Observation(W, places=sp.csr_array((50, 50))), "row 0 of places is empty"),
        (Observation(W, volumes=np.ones(50), floor=1.0), "needs places"),
        (Observation(W, places=sp.eye_array(50), volumes=np.ones(50)), "positive floor"),
        (Observation(W, floor=-1.0), "floor must not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            SnapshotLikelihood(case.graph, observation, *given)
    with pytest.raises(ValueError, match="fractions must be ascending"):
        SnapshotLikelihood(case.graph, case.observation, *given, (1.0, 0.5))
    with pytest.raises(ValueError, match="initial must be masses"):
        SnapshotLikelihood(case.graph, case.observation, np.zeros(50), STEPS)
    for options, message in (
        ({"local": (np.ones(3),)}, "local must have shape"),
        ({"sample_weight": np.zeros(50)}, "sample_weight must not be negative, and not all 0"),
        ({"sample_weight": np.ones(49)}, "sample_weight must have one value per sample"),
    ):
        with pytest.raises(ValueError, match=message):
            case.likelihood(**options)


def test_dynamics_are_checked(rng):
    dynamics = some_dynamics(rng, 50, 0.2)
    dynamics.check(50, 1)
    for change, message in (
        ({"eps": 0.0}, "eps must be"),
        ({"noise": -dynamics.noise}, "noise must be positive"),
        ({"slopes": ()}, "slopes must have one entry"),
        ({"self_weight": -1.0}, "self_weight"),
        ({"local_slopes": ()}, "local_slopes must have one entry for each of the 1 local orderings; got 0"),
        ({"orderings": (np.full(50, np.nan),) * 2}, "orderings has 50 value.s. that are NaN"),
        ({"log_weight": np.ones(49)}, "log_weight must have one value per sample"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(dynamics, **change).check(50, 1)


def test_samples_that_are_never_reached_are_an_error(rng):
    X = np.concatenate([rng.normal(size=(10, 2)), 100 + rng.normal(size=(10, 2))])
    graph = od.NeighborGraph.build(X, radius=10)
    W = time_weights(np.full(20, 0.5), slices_of((1.0,), 0.2))
    likelihood = SnapshotLikelihood(graph, Observation(W), np.eye(20)[0], STEPS)
    with pytest.raises(ValueError, match=r"10 sample\(s\) have a likelihood that is not positive.*first at index 10"):
        likelihood.value(Dynamics(0.2, np.ones(20)))


def test_a_row_without_mass_is_named(rng):
    """By the caller's index."""
    case = make(rng)
    noise = case.dynamics.noise.copy()
    noise[17] = 1e-200
    with pytest.raises(od.ResolutionError, match="row 17 of the kernel has no finite mass"):
        case.likelihood().value(replace(case.dynamics, noise=noise))
