"""The likelihood against dense sums, its derivatives against differences, and what must not change them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp
from ordiff.inference.objective import Dynamics, Objective, Observation
from ordiff.inference.times import time_quadrature, time_weights

import ordiff as od

FLOOR = 1e-5
FRACTIONS = ((1.0,), (0.5, 1.0), (0.2, 0.6, 1.0))
FORMS = ("states", "linear", "log-linear")
TIMES = ("known", "unknown", "window")
STEPS = 9
PARTS = ("eps", "noise", "orderings", "slopes", "local_slopes", "log_weight")


@dataclass
class Case:
    graph: od.NeighborGraph
    observation: Observation
    initial: np.ndarray
    dynamics: Dynamics
    fractions: tuple[float, ...]
    weight: np.ndarray | None

    def objective(self, **options) -> Objective:
        given = (self.graph, self.observation, self.initial, STEPS, self.fractions)
        return Objective(*given, sample_weight=self.weight, **options)


def records_of(fractions, eps, steps=STEPS):
    return np.concatenate([[0.0], ((np.arange(steps)[:, None] + np.array(fractions)) * eps).ravel()])


def time_matrix(rng, times, m, fractions, eps):
    records = records_of(fractions, eps)
    if times == "known":
        return time_weights(rng.uniform(0, records[-1], m), records)
    if times == "unknown":
        return sp.csr_array(np.tile(time_quadrature(lambda t: 1 + t, records), (m, 1)))
    first, length = rng.integers(0, records.size - 3, m), rng.integers(1, 7, m)
    place = np.arange(records.size)
    window = (place >= first[:, None]) & (place < (first + length)[:, None])
    return sp.csr_array(window * rng.uniform(0.1, 1, (m, records.size)))


def place_matrix(rng, m, n, signed):
    """A few states around every sample; rows sum to 1, with negative weights if ``signed``."""
    B = np.zeros((m, n))
    for row in B:
        row[rng.choice(n, 6, replace=False)] = rng.uniform(-0.3 if signed else 0.1, 1, 6)
    return sp.csr_array(B / B.sum(axis=1, keepdims=True))


def some_dynamics(rng, graph, eps, n_orderings=2):
    n = graph.n_points

    def each(count):
        return tuple(rng.normal(size=n) for _ in range(count))

    return Dynamics(
        eps,
        rng.uniform(0.8, 1.4, n),
        orderings=each(n_orderings),
        slopes=each(n_orderings),
        local=(0.1 * rng.normal(size=graph.n_edges),),
        local_slopes=each(1),
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
    return Case(graph, observation, initial, some_dynamics(rng, graph, eps), fractions, weight)


# -------------------------------------------------------------------------------------- dense reference


def dense_matrix(graph, dynamics, eps):
    src, dst = graph.sources(), graph.indices
    rho2 = dynamics.noise[src] ** 2
    exponent = -graph.sqdist / (2 * eps * rho2) + dynamics.log_weight[dst]
    for l, slope in zip(dynamics.orderings, dynamics.slopes, strict=True):
        exponent += slope[src] * (l[dst] - l[src]) / rho2
    for edges, slope in zip(dynamics.local, dynamics.local_slopes, strict=True):
        exponent += slope[src] * edges / rho2
    K = np.zeros((graph.n_points, graph.n_points))
    K[src, dst] = np.exp(exponent) * np.where(src == dst, dynamics.self_weight, 1.0)
    return K / K.sum(axis=1, keepdims=True)


def dense_records(case, steps=STEPS):
    graph, dynamics = case.graph, case.dynamics
    P = dense_matrix(graph, dynamics, dynamics.eps)
    here = np.array([dense_matrix(graph, dynamics, theta * dynamics.eps).T @ case.initial for theta in case.fractions])
    records = [case.initial[None]]
    for _ in range(steps):
        records.append(here)
        here = here @ P
    return np.concatenate(records)


def dense_log_likelihoods(case):
    records, seen = dense_records(case).T, case.observation
    W = seen.times.toarray()
    if seen.volumes is not None:
        predicted = np.exp(seen.places @ np.log(records / seen.volumes[:, None] + seen.floor))
        return np.log((W * predicted).sum(axis=1))
    predicted = records if seen.places is None else seen.places @ records
    return np.log((W * predicted).sum(axis=1) + seen.floor)


@pytest.mark.parametrize("fractions", FRACTIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", TIMES)
def test_value_is_that_of_dense_sums(rng, fractions, form, times):
    case = make(rng, fractions, form, times)
    objective = case.objective()
    expected = dense_log_likelihoods(case)
    np.testing.assert_allclose(objective.per_sample(case.dynamics), expected, rtol=1e-11)
    loss = -np.average(expected, weights=case.weight)
    assert objective.value(case.dynamics) == pytest.approx(loss, rel=1e-12)
    assert objective.value_and_gradient(case.dynamics)[0] == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(objective.history(case.dynamics), dense_records(case), rtol=1e-11, atol=1e-16)
    P = dense_matrix(case.graph, case.dynamics, case.dynamics.eps)
    entries = P[case.graph.sources(), case.graph.indices]
    np.testing.assert_allclose(objective.matrix(case.dynamics), entries, rtol=1e-11)
    np.testing.assert_allclose(objective.record_times(0.2), records_of(fractions, 0.2))


# ------------------------------------------------------------------------------------------ derivatives


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


@pytest.mark.parametrize("fractions", FRACTIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("part", PARTS)
def test_gradient_is_that_of_differences(rng, fractions, form, times, part):
    case = make(rng, fractions, form, times)
    objective = case.objective()
    gradient = getattr(objective.value_and_gradient(case.dynamics)[1], part)
    for which, g in enumerate(gradient if isinstance(gradient, tuple) else (gradient,)):
        direction = np.sign(g) * rng.uniform(0.5, 1, np.shape(g))  # no cancellation in the sum
        expected = difference(
            lambda t, d=direction, k=which: objective.value(moved(case.dynamics, part, t * d, k)),
            1e-4 if part == "eps" else 1e-3,
        )
        assert np.sum(g * direction) == pytest.approx(expected, rel=1e-6)


def test_gradient_of_single_values(rng):
    """Every component by itself, not only sums of them."""
    case = make(rng, (0.5, 1.0), "log-linear", "known", n=30, k=8)
    objective = case.objective()
    _, gradient = objective.value_and_gradient(case.dynamics)
    for part in ("noise", "orderings", "log_weight"):
        g = getattr(gradient, part)
        g = g[0] if isinstance(g, tuple) else g
        expected = [
            difference(lambda t, d=d, p=part: objective.value(moved(case.dynamics, p, t * d)), 1e-3) for d in np.eye(30)
        ]
        np.testing.assert_allclose(g, expected, rtol=1e-6, atol=1e-9 * np.abs(g).max())


def test_gradient_has_the_symmetries_of_the_model(rng):
    """Constants added to l or to the log weights change nothing: the columns of M sum to what its rows do, 0."""
    case = make(rng, (0.5, 1.0), "linear", "window")
    _, gradient = case.objective().value_and_gradient(case.dynamics)
    assert abs(gradient.log_weight.sum()) < 1e-13
    flat = replace(case.dynamics, slopes=tuple(np.full(50, 0.7) for _ in range(2)), noise=np.full(50, 1.1))
    _, gradient = case.objective().value_and_gradient(flat)
    for k in range(2):
        assert abs(gradient.orderings[k].sum()) < 1e-13
        np.testing.assert_allclose(gradient.orderings[k], gradient.log_weight * 0.7 / 1.1**2, rtol=1e-10, atol=1e-14)


def test_gradient_by_the_ordering_is_the_double_sum_of_the_paper(rng):
    """Times unknown, samples as states: −(1/m) Σ_i Σ_s r̄(s) Σ_{a<s} [p_0 P^a dP P^(s−a−1)](i) / Σ_s r̄(s) p_s(i)."""
    case = make(rng, times="unknown", n=25, weighted=False, graph=ring(25))
    case.observation = replace(case.observation, floor=0.0)
    dynamics, n = case.dynamics, 25
    P = dense_matrix(case.graph, dynamics, dynamics.eps)
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
    _, gradient = case.objective().value_and_gradient(dynamics)
    np.testing.assert_allclose(gradient.orderings[0], expected, rtol=1e-9, atol=1e-14)


# --------------------------------------------------------------------------------------------- scores


def directions(rng, n, K):
    U = [rng.normal(size=(n, K)) for _ in range(6)]
    return {"orderings": (U[0], U[1]), "slopes": (U[2], U[3]), "local_slopes": (U[4],), "noise": U[5]}


@pytest.mark.parametrize("fractions", FRACTIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", TIMES)
def test_scores(rng, fractions, form, times):
    case, K = make(rng, fractions, form, times), 3
    objective, dynamics = case.objective(), case.dynamics
    changes = directions(rng, 50, K)
    scores = objective.scores(dynamics, **changes)
    _, gradient = objective.value_and_gradient(dynamics)
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
    np.testing.assert_allclose(np.average(scores, axis=0, weights=case.weight), expected, rtol=1e-9, atol=1e-12)
    for at, (part, which, U) in enumerate(pairs):
        line = difference(
            lambda t, p=part, k=which, u=U[:, 1]: objective.per_sample(moved(dynamics, p, t * u, k)), 1e-3
        )
        np.testing.assert_allclose(scores[:, at * K + 1], line, rtol=1e-6, atol=1e-7 * np.abs(line).max())


def test_scores_of_some_rows_and_parts(rng):
    for form, times in (("states", "unknown"), ("linear", "unknown"), ("log-linear", "window"), ("states", "known")):
        case = make(rng, (0.5, 1.0), form, times)
        objective = case.objective()
        changes = directions(rng, 50, 50)  # more columns than one task takes
        scores = objective.scores(case.dynamics, **changes)
        rows = np.array([5, 3, 3, 20])
        some = objective.scores(case.dynamics, (None, changes["orderings"][1]), noise=changes["noise"], rows=rows)
        expected = np.hstack([scores[rows, 50:100], scores[rows, 250:300]])
        np.testing.assert_allclose(some, expected, rtol=1e-10, atol=1e-12)
    assert objective.scores(case.dynamics).shape == (50, 0)


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
def test_checkpoints_change_nothing(rng, fractions, form, times, monkeypatch):
    case = make(rng, fractions, form, times)
    stored = case.objective()
    expected = stored.value_and_gradient(case.dynamics)
    again = case.objective(memory_budget=0)
    assert_same(again.value_and_gradient(case.dynamics), expected, rtol=1e-11)


def test_long_chains_have_many_blocks(rng):
    """Of several blocks the last one is not full."""
    graph, initial = ring(30), np.eye(30)[0]
    W = time_weights(rng.uniform(0, 14.0, 30), records_of((0.5, 1.0), 0.2, 70))
    dynamics = some_dynamics(rng, graph, 0.2)
    results = []
    for budget in (2**31, 0):
        objective = Objective(graph, Observation(W), initial, 70, (0.5, 1.0), memory_budget=budget)
        results.append(objective.value_and_gradient(dynamics))
        direction = np.sign(results[-1][1].noise)
        expected = difference(lambda t, o=objective, d=direction: o.value(moved(dynamics, "noise", t * d)), 1e-3)
        assert np.abs(results[-1][1].noise).sum() == pytest.approx(expected, rel=1e-6)
    assert_same(*results)


def permuted(case, order):
    """The same problem with state order[i] as state i."""
    graph = case.graph
    D = graph.matrix(np.sqrt(graph.sqdist) + 1.0)[order][:, order].tocoo()
    shuffled = od.NeighborGraph.from_distances(
        sp.coo_array((D.data - 1.0, (D.row, D.col)), shape=D.shape), X=graph.X[order]
    )
    rank = np.argsort(order)
    edge = graph.matrix(np.arange(1.0, graph.n_edges + 1))[order][:, order].tocsr()
    edge.sort_indices()
    edge = edge.data.astype(int) - 1
    seen, dynamics = case.observation, case.dynamics
    observation = replace(
        seen,
        times=seen.times[order] if seen.places is None else seen.times,
        places=None if seen.places is None else seen.places[:, order],
        volumes=None if seen.volumes is None else seen.volumes[order],
    )
    weight = case.weight[order] if seen.places is None else case.weight
    new = replace(
        dynamics,
        noise=dynamics.noise[order],
        log_weight=dynamics.log_weight[order],
        local=tuple(values[edge] for values in dynamics.local),
        **{
            part: tuple(values[order] for values in getattr(dynamics, part))
            for part in ("orderings", "slopes", "local_slopes")
        },
    )
    return Case(shuffled, observation, case.initial[order], new, case.fractions, weight), rank


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("coordinates", [True, False])
@pytest.mark.parametrize("inside", ["as they are", "sorted", "sorted, in quads"])
def test_results_are_in_the_order_of_the_caller(rng, form, coordinates, inside, monkeypatch):
    """On both sides of the size from which states are sorted inside, and with rows that have much in common or not."""
    case = make(rng, (0.5, 1.0), form, "known")
    if not coordinates:
        graph = case.graph
        case.graph = od.NeighborGraph(graph._indptr, graph._indices, graph._sqdist)
    expected = case.objective()
    if inside != "as they are":
        monkeypatch.setattr("ordiff.inference.chain._SORTED_EDGES", 0)
        monkeypatch.setattr("ordiff._quads._MOST_EMPTY", 0.99 if inside == "sorted, in quads" else 0.0)
    objective = case.objective()
    assert (objective._pattern.quads is not None) == (inside == "sorted, in quads")
    assert (objective._pattern.t_quads is not None) == (inside == "sorted, in quads")
    assert_same(objective.value_and_gradient(case.dynamics), expected.value_and_gradient(case.dynamics))
    same = {"rtol": 1e-10, "atol": 1e-15}
    np.testing.assert_allclose(objective.history(case.dynamics), expected.history(case.dynamics), **same)
    np.testing.assert_allclose(objective.matrix(case.dynamics), expected.matrix(case.dynamics), **same)
    np.testing.assert_allclose(objective.per_sample(case.dynamics), expected.per_sample(case.dynamics), **same)
    changes = directions(rng, 50, 2)
    scores = objective.scores(case.dynamics, **changes)
    np.testing.assert_allclose(scores, expected.scores(case.dynamics, **changes), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("inner_sorting", [True, False])
def test_permuting_the_states_permutes_the_results(rng, form, inner_sorting, monkeypatch):
    if inner_sorting:
        monkeypatch.setattr("ordiff.inference.chain._SORTED_EDGES", 0)
    case = make(rng, (0.5, 1.0), form, "known")
    other, rank = permuted(case, rng.permutation(50))
    value, gradient = other.objective().value_and_gradient(other.dynamics)
    back = replace(
        gradient,
        noise=gradient.noise[rank],
        log_weight=gradient.log_weight[rank],
        **{
            part: tuple(values[rank] for values in getattr(gradient, part))
            for part in ("orderings", "slopes", "local_slopes")
        },
    )
    assert_same((value, back), case.objective().value_and_gradient(case.dynamics))


@pytest.mark.slow
def test_a_graph_that_is_sorted_and_threaded(rng):
    """Above the real size: by differences, and as a graph that is too small to be sorted or shared among threads."""
    n, k, steps = 12_000, 90, 6
    X = rng.uniform(size=(n, 2))
    graph = od.NeighborGraph.build(X, k=k)
    eps = k / (np.pi * n) / 9
    dynamics = replace(some_dynamics(rng, graph, eps), orderings=(np.sin(X[:, 0]), X[:, 1]))
    W = time_weights(rng.uniform(0, steps * eps, n), records_of((0.5, 1.0), eps, steps))
    places = place_matrix(rng, 400, n, signed=True)
    initial = rng.uniform(size=n) / n
    for observation in (Observation(W, floor=1e-9), Observation(W[:400], places, np.full(n, 1 / n), FLOOR)):
        objective = Objective(graph, observation, initial, steps, (0.5, 1.0))
        _, gradient = objective.value_and_gradient(dynamics)
        for part, g in (("noise", gradient.noise), ("orderings", gradient.orderings[0])):
            size = 1e-4 / np.abs(g).max()
            expected = difference(lambda t, p=part, o=objective, d=size * g: o.value(moved(dynamics, p, t * d)), 1.0)
            assert size * (g @ g) == pytest.approx(expected, rel=1e-6)


def test_an_instance_can_be_used_again(rng):
    for times in TIMES:
        case = make(rng, (0.5, 1.0), "linear", times)
        objective = case.objective()
        first = objective.value_and_gradient(case.dynamics)
        objective.value(moved(case.dynamics, "noise", 0.1))
        objective.scores(case.dynamics, noise=rng.normal(size=(50, 2)), rows=[1, 2])
        second = objective.value_and_gradient(case.dynamics)
        assert first[0] == second[0]
        np.testing.assert_array_equal(first[1].noise, second[1].noise)


def test_two_orderings_of_which_one_is_at_rest_are_one(rng):
    case = make(rng)
    still = replace(case.dynamics, slopes=(case.dynamics.slopes[0], np.zeros(50)))
    alone = replace(case.dynamics, orderings=case.dynamics.orderings[:1], slopes=case.dynamics.slopes[:1])
    objective = case.objective()
    a, b = objective.value_and_gradient(still), objective.value_and_gradient(alone)
    assert a[0] == pytest.approx(b[0], rel=1e-13)
    np.testing.assert_allclose(a[1].orderings[0], b[1].orderings[0], rtol=1e-11, atol=1e-16)
    assert not a[1].orderings[1].any()


def test_a_local_ordering_of_differences_is_a_global_one(rng):
    case = make(rng, (0.5, 1.0), "linear", "window")
    l, slope = case.dynamics.orderings[0], case.dynamics.slopes[0]
    plain = Dynamics(0.2, case.dynamics.noise, (l,), (slope,))
    edges = l[case.graph.indices] - l[case.graph.sources()]
    local = Dynamics(0.2, case.dynamics.noise, local=(edges,), local_slopes=(slope,))
    objective = case.objective()
    a, b = objective.value_and_gradient(plain), objective.value_and_gradient(local)
    assert a[0] == pytest.approx(b[0], rel=1e-13)
    np.testing.assert_allclose(a[1].slopes[0], b[1].local_slopes[0], rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(a[1].noise, b[1].noise, rtol=1e-10, atol=1e-15)


# --------------------------------------------------------------------------------------- the likelihood


def test_loss_of_unknown_times_is_at_least_log_m(rng):
    """Equality only for a uniform mixture: Σ_i log p_i ≤ −m log m for masses p."""
    for _ in range(5):
        case = make(rng, times="unknown", weighted=False, graph=ring(50))
        case.observation = replace(case.observation, floor=0.0)
        assert case.objective().value(case.dynamics) > np.log(50) + 1e-3
    # a ring from a uniform start stays uniform
    W = sp.csr_array(np.full((40, 1 + STEPS), 1 / (1 + STEPS)))
    objective = Objective(ring(40), Observation(W), np.full(40, 1 / 40), STEPS)
    value, gradient = objective.value_and_gradient(Dynamics(0.05, np.ones(40)))
    assert value == pytest.approx(np.log(40), rel=1e-13)
    assert np.abs(gradient.log_weight).max() < 1e-15


def test_self_weight(rng):
    case = make(rng)
    objective = case.objective()
    entries = objective.matrix(replace(case.dynamics, self_weight=0.0))
    assert not entries[case.graph.selves].any()
    np.testing.assert_allclose(np.add.reduceat(entries, case.graph.indptr[:-1]), 1.0, rtol=1e-13)


# ------------------------------------------------------------------------------------------------ times


def test_time_weights_interpolate(rng):
    records = records_of((0.5, 1.0), 0.3)
    t = np.concatenate([rng.uniform(0, records[-1], 40), records])
    W = time_weights(t, records)
    np.testing.assert_allclose(W.sum(axis=1), 1.0)
    np.testing.assert_allclose(W @ records, t, atol=1e-14)
    assert np.diff(W.indptr).max() == 2
    assert (np.diff(W.indptr)[40:] == 1).all()
    late = time_weights(t, records, first=2)
    np.testing.assert_allclose(late @ records, np.maximum(t, records[2]), atol=1e-14)
    assert late.indices.min() == 2
    np.testing.assert_allclose(time_weights(t, records, first=records.size - 1).toarray()[:, -1], 1.0)


def test_time_quadrature_integrates():
    records = np.array([0.0, 0.1, 0.4, 1.0])
    weights = time_quadrature(lambda t: 2 * t, records)
    assert weights.sum() == pytest.approx(1.0)
    # the hat functions reproduce lines: Σ w t is the mean of the density
    assert weights @ records == pytest.approx(2 / 3)
    fine = np.linspace(0, 1, 200_001)
    for s, w in enumerate(weights):
        hat = np.interp(fine, records, np.eye(4)[s])
        assert w == pytest.approx(np.mean((2 * fine * hat)[1:] + (2 * fine * hat)[:-1]) / 2, abs=1e-6)


# ----------------------------------------------------------------------------------------------- errors


def test_errors_say_what_is_wrong(rng):
    case = make(rng)
    W = case.observation.times
    given = (case.initial, STEPS)
    for observation, message in (
        (Observation(W[:, :-1]), "times must have shape"),
        (Observation(-1.0 * W), "not negative"),
        (Observation(sp.csr_array(W.shape)), "row 0 of times has no record"),
        (Observation(W[:40]), "40 samples and 50 states"),
        (Observation(W, places=sp.eye_array(50, 49)), "places must have shape"),
        (Observation(W, places=sp.csr_array((50, 50))), "row 0 of places is empty"),
        (Observation(W, volumes=np.ones(50), floor=1.0), "needs places"),
        (Observation(W, places=sp.eye_array(50), volumes=np.ones(50)), "positive floor"),
        (Observation(W, floor=-1.0), "floor must not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            Objective(case.graph, observation, *given)
    with pytest.raises(ValueError, match="fractions must be ascending"):
        Objective(case.graph, case.observation, *given, (1.0, 0.5))
    with pytest.raises(ValueError, match="initial must be masses"):
        Objective(case.graph, case.observation, np.zeros(50), STEPS)
    objective = case.objective()
    for change, message in (
        ({"eps": 0.0}, "eps must be"),
        ({"noise": -case.dynamics.noise}, "noise must be positive"),
        ({"slopes": ()}, "slopes must have one entry"),
        ({"local": (np.ones(3),)}, "local must have shape"),
        ({"self_weight": -1.0}, "self_weight"),
    ):
        with pytest.raises(ValueError, match=message):
            objective.value(replace(case.dynamics, **change))
    with pytest.raises(ValueError, match="times must be within"):
        time_weights([2.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="ascending"):
        time_weights([0.5], [1.0, 0.0])
    with pytest.raises(ValueError, match="density of times"):
        time_quadrature(lambda t: 0 * t, [0.0, 1.0])
    with pytest.raises(ValueError, match="more directions"):
        objective.scores(case.dynamics, orderings=(np.ones(50),) * 3)


def test_samples_that_are_never_reached_are_an_error(rng):
    X = np.concatenate([rng.normal(size=(10, 2)), 100 + rng.normal(size=(10, 2))])
    graph = od.NeighborGraph.build(X, radius=10)
    W = time_weights(np.full(20, 0.5), records_of((1.0,), 0.2))
    objective = Objective(graph, Observation(W), np.eye(20)[0], STEPS)
    with pytest.raises(ValueError, match=r"10 sample\(s\) have a likelihood that is not positive"):
        objective.value(Dynamics(0.2, np.ones(20)))
