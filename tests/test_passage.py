"""Passage: closed forms of birth–death chains, diffusions with known answers, dense algebra, and awkward input."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import cumulative_trapezoid

import ordiff as od
from benchmarks.double_well import disc, potential, samples, truth
from chains import chain
from ordiff.passage import (
    committor,
    expected_occupancy,
    fate_probabilities,
    first_passage_time,
    reactive_flux,
    stationary,
    terminal_sets,
)


def birth_death(up, down):
    """P of the chain that steps from i to i + 1 with probability up_i, to i − 1 with down_i."""
    return np.diag(1 - up - down) + np.diag(up[:-1], 1) + np.diag(down[1:], -1)


def random_matrix(seed, m=25):
    rng = np.random.default_rng(seed)
    P = rng.uniform(size=(m, m)) ** 3 * (rng.uniform(size=(m, m)) < 0.25)
    P += np.diag(rng.uniform(0, 0.3, m)) + 0.2 * np.roll(np.eye(m), 1, axis=1)  # a cycle: irreducible
    return P / P.sum(axis=1, keepdims=True)


# -------------------------------------------------------------------------------------------------- closed forms


def test_birth_death_closed_forms(solver, rng):
    m, eps = 60, 0.3
    up, down = rng.uniform(0.1, 0.4, (2, m))
    down[0] = up[-1] = 0.0
    op = chain(birth_death(up, down), eps)

    mass = np.concatenate([[1.0], np.cumprod(up[:-1] / down[1:])])  # detailed balance
    np.testing.assert_allclose(stationary(op), mass / mass.sum(), rtol=1e-8, atol=1e-13)

    # probability to reach the top before the bottom: sums of Π down/up
    steps = np.concatenate([[1.0], np.cumprod(down[1:-1] / up[1:-1])])
    want = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
    np.testing.assert_allclose(committor(op, 0, m - 1), want, atol=1e-9)

    # the passage from i to i + 1 takes T_i: one step, and back through T_(i−1) and T_i with probability down_i
    mean, second = np.zeros(m), np.zeros(m)
    h = s = 0.0
    to_next = []
    for i in range(m - 1):
        h_i = (1 + down[i] * h) / up[i]
        # N = 1 + ξ, ξ = 0, N', or N_(i−1) + N': second moments
        s_i = (1 + 2 * ((1 - up[i] - down[i]) * h_i + down[i] * (h + h_i)) + down[i] * (s + 2 * h * h_i)) / up[i]
        to_next.append((h_i, s_i - h_i**2))
        h, s = h_i, s_i
    for i in range(m - 1):
        parts = np.array(to_next[i:])
        mean[i] = parts[:, 0].sum()
        second[i] = parts[:, 1].sum() + mean[i] ** 2  # independent passages
    time = first_passage_time(op, m - 1)
    np.testing.assert_allclose(time.mean, eps * mean, rtol=1e-8)
    np.testing.assert_allclose(time.second_moment, eps**2 * second, rtol=1e-8)
    np.testing.assert_allclose(time.std[:-1] ** 2, eps**2 * (second - mean**2)[:-1], rtol=1e-6)


@given(seed=st.integers(0, 10**6))
def test_random_chains_match_dense_algebra(seed):
    P, eps = random_matrix(seed), 0.25
    op, m = chain(P, eps), 25
    A, B = [0, 3], [7, 8, 9]
    free = np.setdiff1d(np.arange(m), A + B)
    N = np.linalg.inv(np.eye(len(free)) - P[np.ix_(free, free)])

    fates = fate_probabilities(op, [A, B])
    np.testing.assert_allclose(fates.sum(axis=1), 1.0, atol=1e-14)
    np.testing.assert_allclose(fates[free, 1], N @ P[np.ix_(free, B)].sum(axis=1), atol=1e-11)
    np.testing.assert_array_equal(fates[A], [[1, 0]] * 2)
    np.testing.assert_array_equal(committor(op, A, B), fates[:, 1])
    time = first_passage_time(op, A + B)
    h = N @ np.ones(len(free))
    np.testing.assert_allclose(time.mean[free], eps * h, rtol=1e-10)
    np.testing.assert_allclose(time.second_moment[free], eps**2 * N @ (2 * h - 1), rtol=1e-10)
    mass = np.random.default_rng(seed).dirichlet(np.ones(m))
    np.testing.assert_allclose(expected_occupancy(op, mass, A + B)[free], eps * N.T @ mass[free], atol=1e-10)
    pi = stationary(op)
    np.testing.assert_allclose(pi @ P, pi, atol=1e-12)


@given(seed=st.integers(0, 10**6))
def test_reactive_flux_is_that_of_transition_path_theory(seed):
    P, eps = random_matrix(seed), 0.5
    op, m = chain(P, eps), 25
    A, B = [0, 3], [7, 8, 9]
    flux = reactive_flux(op, A, B)
    pi = flux.mass
    reversed_chain = (P * pi[:, None]).T / pi[:, None]
    np.testing.assert_allclose(flux.backward, committor(chain(reversed_chain), B, A), atol=1e-9)
    f = pi[:, None] * flux.backward[:, None] * P * flux.forward[None, :] / eps
    net = np.maximum(f - f.T, 0)
    np.testing.assert_allclose(flux.net.toarray(), net, atol=1e-10)
    free = np.setdiff1d(np.arange(m), A + B)
    np.testing.assert_allclose(flux.net.sum(axis=1)[free], flux.net.sum(axis=0)[free], atol=1e-10)
    # what leaves A arrives in B; A itself may be crossed on no way
    assert flux.total == pytest.approx(f[A].sum())
    assert flux.total == pytest.approx(f[:, B].sum())
    assert flux.rate == pytest.approx(flux.total / (pi @ flux.backward))


def test_products_are_asked_the_same(solver, rng):
    X = rng.uniform(-1, 1, (300, 2))
    graph = od.NeighborGraph.build(X, radius=0.6)
    A = np.broadcast_to(np.diag([1.0, 0.4]), (300, 2, 2))
    op = od.strang(od.Kernel(od.Ordering(X[:, 0]), noise=0.6, anisotropy=A), graph, 0.02)
    P = functools.reduce(np.matmul, [factor.matrix.toarray() for factor in op.factors])
    left, right = X[:, 0] < -0.7, X[:, 0] > 0.7
    free = ~(left | right)
    N = np.linalg.inv(np.eye(free.sum()) - P[np.ix_(free, free)])
    np.testing.assert_allclose(committor(op, left, right)[free], N @ P[np.ix_(free, right)].sum(1), atol=1e-9)
    np.testing.assert_allclose(first_passage_time(op, left | right).mean[free], 0.02 * N.sum(1), rtol=1e-8)
    mass = stationary(op)
    np.testing.assert_allclose(mass @ P, mass, atol=1e-11)
    for ask in (lambda: reactive_flux(op, left, right), lambda: committor(op, left, right, continuous=True)):
        with pytest.raises(ValueError, match="needs the matrix of the chain"):
            ask()


# ---------------------------------------------------------------------------------------------------- diffusions


def test_first_passage_of_ornstein_uhlenbeck_converges_with_order_one():
    """dx = −x dt + √2 dW to x ≥ 1; the moments by quadrature. Without counting passages between steps: order ½."""
    z = np.linspace(-6, 1, 20001)
    weight = np.exp(-0.5 * z**2)

    def integral(f):
        total = cumulative_trapezoid(cumulative_trapezoid(weight * f, z, initial=0) / weight, z, initial=0)
        return total[-1] - total

    mean = integral(np.ones_like(z))
    second = integral(2 * mean)
    x = np.linspace(-5.005, 2.505, 752)  # 1 is half way between two states
    inside = (x > -3) & (x < 1)
    errors = {False: [], True: []}
    for eps in (0.04, 0.02):
        graph = od.NeighborGraph.build(x[:, None], radius=6 * np.sqrt(2 * eps))
        op = od.Kernel(od.Ordering(-0.5 * x**2), noise=np.sqrt(2)).operator(graph, eps)
        for continuous, found in errors.items():
            time = first_passage_time(op, x > 1, continuous=continuous)
            found.append(
                [
                    abs(time.mean - np.interp(x, z, mean))[inside].max(),
                    abs(time.second_moment - np.interp(x, z, second))[inside].max(),
                ]
            )
    order = {key: np.log2(np.array(found[0]) / found[1]) for key, found in errors.items()}
    np.testing.assert_allclose(order[True], 1.0, atol=0.1)
    np.testing.assert_allclose(order[False], 0.5, atol=0.15)
    assert errors[True][0][0] < 0.04  # of 4.5
    assert errors[True][0][1] < 0.4  # of 27


SETTINGS = {"equilibrium": (0.5, False), "box": (0.5, True), "box, cold": (0.125, True)}


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "seed"), [("equilibrium", 0), ("box", 1), ("box, cold", 2)])
def test_committor_of_the_double_well(setting, seed):
    """2,000 samples, from exp(−U/D) or uniform on a box; the step is the one that choose_eps chooses."""
    D, box = SETTINGS[setting]
    X = samples(D, box, 2000, seed)
    assert len(X) == 2000
    graph = od.NeighborGraph.build(X, k=400)
    kernel = od.Kernel(od.Ordering(-potential(X)), noise=np.sqrt(2 * D))
    eps = od.tuning.choose_eps(kernel, graph, density="balanced").eps
    op = kernel.operator(graph, eps, density="balanced")
    q = committor(op, disc(X, -1.0), disc(X, 1.0), continuous=True)
    assert np.sqrt(np.mean((q - truth(D, box, 0.0125)(X)) ** 2)) < 0.012


def test_stationary_density_is_gibbs(rng):
    X = rng.normal(size=(2000, 2))
    graph = od.NeighborGraph.build(X, k=300)
    op = od.Kernel(od.Ordering(-((X**2).sum(1))), noise=np.sqrt(2)).operator(graph, 0.02, density="balanced")
    density = stationary(op, density=True)
    want = np.exp(-((X**2).sum(1))) / np.pi
    inside = (X**2).sum(1) < 1
    assert np.median(abs(density / want - 1)[inside]) < 0.12
    mass = stationary(op)
    assert mass @ (X**2).sum(1) == pytest.approx(1.0, abs=0.05)  # ⟨|x|²⟩ of exp(−|x|²)


# ------------------------------------------------------------------------------------------ what cannot be reached

ABSORBING = np.array(
    [
        [1.0, 0.0, 0.0, 0.0, 0.0],
        [0.4, 0.2, 0.4, 0.0, 0.0],
        [0.0, 0.3, 0.2, 0.5, 0.0],
        [0.0, 0.0, 0.0, 1.0, 0.0],
        [0.0, 0.0, 0.0, 0.5, 0.5],
    ]
)


def test_states_that_may_never_arrive_have_infinite_times():
    op = chain(ABSORBING)
    time = first_passage_time(op, 3)
    assert np.isinf(time.mean[[0, 1, 2]]).all()  # 1 and 2 may end in 0
    assert np.isinf(time.second_moment[[0, 1, 2]]).all()
    assert time.mean[3] == time.second_moment[3] == 0.0
    assert time.mean[4] == pytest.approx(2.0)
    assert np.isnan(time.std[0])
    # a way through the targets is no way
    assert first_passage_time(op, [0, 3]).mean[1] == pytest.approx(1.2 / 0.52)
    assert np.isfinite(first_passage_time(chain(np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]])), 1).mean[0])
    with pytest.raises(od.GraphError, match="3 of 5 states, the first at index 0"):
        expected_occupancy(op, [0, 1, 2, 4], 3)
    assert expected_occupancy(op, 4, 3).sum() == pytest.approx(2.0)
    assert expected_occupancy(op, 3, 3).sum() == 0.0
    with pytest.raises(od.GraphError, match=r"1 of 5 states, the first at index 0, do not reach any"):
        fate_probabilities(op, {"right": [3]})
    np.testing.assert_allclose(fate_probabilities(op, [[0], [3]])[4], [0, 1])


def test_stationary_needs_one_closed_class():
    with pytest.raises(od.GraphError, match=r"2 closed classes .*1 from index 3, 1 from index 0; 2 of them.* 3 trans"):
        stationary(chain(ABSORBING))
    mass = stationary(chain(ABSORBING[2:, 2:] + np.array([[0.3, 0, 0], [0, 0, 0], [0, 0, 0]])))
    np.testing.assert_array_equal(mass, [0, 1, 0])
    P = np.array([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.0, 0.6, 0.4]])
    np.testing.assert_allclose(stationary(chain(P)), [0, 3 / 7, 4 / 7])
    with pytest.raises(ValueError, match="no state of A is ever visited"):
        reactive_flux(chain(P), 0, 1)
    assert np.isnan(reactive_flux(chain(P), 1, 2).backward[0])


# ---------------------------------------------------------------------------------------------------------- input


@pytest.fixture(scope="module")
def line():
    x = np.linspace(0, 1, 21).reshape(-1, 1)
    return od.Kernel().operator(od.NeighborGraph.build(x, radius=0.3), eps=0.01)


def test_sets_as_indices_masks_and_labels_are_the_same(line):
    left, right = np.arange(21) < 2, np.arange(21) > 18
    want = fate_probabilities(line, [left, right])
    words = np.array([None] * 21, dtype=object)
    words[left], words[right] = "a", "b"
    numbers = np.where(left, 0, np.where(right, 7, -1))
    for terminal in (
        [[0, 1], [19, 20]],
        (np.flatnonzero(left), right),
        np.stack([left, right]),
        {"left": left, "right": [19, 20]},
        words,
        ["" if word is None else word for word in words],
        words.tolist(),
        numbers,
        np.where(numbers < 0, np.nan, numbers),
    ):
        np.testing.assert_array_equal(fate_probabilities(line, terminal), want)
    assert list(terminal_sets({"z": 0, "a": 20}, 21)) == ["z", "a"]
    assert list(terminal_sets(words, 21)) == ["a", "b"]
    assert list(terminal_sets(numbers, 21)) == [0, 7]
    assert [s.tolist() for s in terminal_sets([3, 5], 21).values()] == [[3], [5]]
    mass = np.where(left, 0.5, 0.0)
    for start in (left, [0, 1], mass):
        np.testing.assert_array_equal(expected_occupancy(line, start, right), expected_occupancy(line, mass, right))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda op: first_passage_time(op, []), "targets holds no state"),
        (lambda op: first_passage_time(op, np.zeros(21, bool)), "targets holds no state"),
        (lambda op: first_passage_time(op, [21]), r"targets must be 0\.\.20"),
        (lambda op: first_passage_time(op, [-1]), r"targets must be 0\.\.20"),
        (lambda op: first_passage_time(op, [0.5]), "targets must be a sample's index"),
        (lambda op: first_passage_time(op, np.ones(20, bool)), r"a mask, must have .* \(21,\); got shape \(20,\)"),
        (lambda op: first_passage_time(op, np.arange(21)), "all 21 states are targets"),
        (lambda op: committor(op, [0, 1], [1, 2]), r"A and B have 1 state\(s\) in common, the first is 1"),
        (lambda op: fate_probabilities(op, {"x": [0], "y": [4, 0]}), "'x' and 'y' have 1 state"),
        (lambda op: fate_probabilities(op, {}), "terminal has no set"),
        (lambda op: fate_probabilities(op, [None] * 21), "terminal has no set"),
        (lambda op: fate_probabilities(op, [[0], []]), "terminal set 1 holds no state"),
        (lambda op: fate_probabilities(op, np.arange(21) < 3), "terminal is one mask"),
        (lambda op: fate_probabilities(op, "left"), "terminal must be a dict"),
        (lambda op: fate_probabilities(op, 3), "terminal must be a dict"),
        (lambda op: fate_probabilities(op, np.arange(21) % 2), "all 21 states are targets"),
        (lambda op: expected_occupancy(op, np.full(21, 0.1), 0), "must be a probability mass.* its total 2.1"),
        (lambda op: expected_occupancy(op, np.eye(21)[3] * 2 - np.eye(21)[4], 0), "its least value is -1"),
        (lambda op: expected_occupancy(op, np.full(20, 0.05), 0), "start must have one value per sample"),
    ],
)
def test_bad_input_is_told(line, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(line)


def test_what_is_no_chain_is_told(line):
    with pytest.warns(od.OrdiffWarning, match="too small"):
        generator = od.richardson(od.Kernel(), line.graph, 0.03)
    with pytest.raises(ValueError, match=r"op must be a Markov chain.* got Extrapolation"):
        stationary(generator)
    bare = od.MarkovOperator(line.graph, line.matrix.data.copy(), line.eps, line.density)
    assert (committor(bare, 0, 20) == committor(line, 0, 20)).all()
    with pytest.raises(ValueError, match="was not built by a kernel"):
        committor(bare, 0, 20, continuous=True)


def test_nothing_is_changed_and_the_same_question_has_the_same_answer(line):
    before = line.matrix.data.copy()
    targets = np.arange(21) > 17
    first = first_passage_time(line, targets, continuous=True)
    assert (first_passage_time(line, targets, continuous=True).mean == first.mean).all()
    assert (line.matrix.data == before).all()
    assert targets.sum() == 3


def test_order_of_the_samples_does_not_matter(solver, rng):
    X = rng.uniform(-1, 1, (400, 2))
    order = rng.permutation(400)
    answers = []
    for points in (X, X[order]):
        graph = od.NeighborGraph.build(points, k=40)
        op = od.Kernel(od.Ordering(points[:, 0]), noise=0.8).operator(graph, 0.01, density="knn")
        answers.append(committor(op, points[:, 0] < -0.6, points[:, 0] > 0.6, continuous=True))
    np.testing.assert_allclose(answers[0][order], answers[1], atol=1e-9)
