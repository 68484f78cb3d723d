"""The optimiser: its derivatives, where it ends, and how often it asks for what it knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ordiff as od
from chain_reference import slope_along
from ordiff.learning import optimise as module
from ordiff.learning.optimise import Evaluations, first_metric, minimise, optimise, solution_at
from ordiff.learning.parameters import ParameterBlock
from ordiff.learning.penalties import ActionPenalty


@pytest.fixture
def two_blocks(chain):
    """An ordering and a noise field, both penalised."""
    rng = np.random.default_rng(7)
    blocks = (
        ParameterBlock("ordering", rng.standard_normal((60, 4)), penalty=np.ones(4), strength=0.05),
        ParameterBlock("noise", rng.standard_normal((60, 3)), penalty=np.ones(3), strength=0.05),
    )
    return chain.problem(*blocks), 0.1 * rng.standard_normal(7)


def test_gradient_with_the_action(chain) -> None:
    rng = np.random.default_rng(3)
    blocks = (
        ParameterBlock("ordering", rng.standard_normal((60, 4))),
        ParameterBlock("noise", rng.standard_normal((60, 3))),
    )
    action = ActionPenalty(od.TangentSpaces.fit(chain.graph, k=10, dimension=2))
    problem = chain.problem(*blocks, action=action, action_strength=0.2)
    a, u = 0.2 * rng.standard_normal(7), rng.standard_normal(7)
    slope = slope_along(lambda b: problem.value_and_gradient(b)[0], a, u)
    assert problem.value_and_gradient(a)[1] @ u == pytest.approx(slope, rel=1e-6)


def test_optimum_does_not_depend_on_the_start(chain) -> None:
    rng = np.random.default_rng(4)
    U = rng.standard_normal((60, 6))
    block = ParameterBlock("ordering", U, penalty=np.ones(6), strength=0.05)
    ends = []
    for a in (np.zeros(6), rng.standard_normal(6)):
        solution = optimise(chain.problem(block), a, Evaluations(), auto=(False,), tol=1e-12)
        assert solution.decrement < 0.05
        ends.append(solution.a)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-4)
    assert solution.problem.curvature(solution.fisher, solution.a).shape == (6, 6)


def test_information_of_some_coefficients_is_part_of_the_whole(two_blocks) -> None:
    problem, a = two_blocks
    whole = problem.information(a)
    np.testing.assert_allclose(problem.information(a, without="noise"), whole[:4, :4], rtol=1e-10)


def test_information_is_that_of_some_samples_where_there_are_many(two_blocks, monkeypatch) -> None:
    problem, a = two_blocks
    problem = replace(problem, weights=np.random.default_rng(0).uniform(0.5, 2, 60))
    whole = problem.information(a)
    monkeypatch.setattr(module, "_MOST_SAMPLES", 59)
    most = problem.information(a)
    assert 0 < np.abs(most - whole).max() < 0.2 * np.abs(whole).max()


@pytest.mark.parametrize("dense", [True, False])
def test_coefficients_that_are_not_free_stay(two_blocks, dense) -> None:
    problem, a = two_blocks
    matrix = problem.curvature(problem.information(a), a) if dense else first_metric(problem, a)
    free = np.arange(7) != 2
    evaluations = Evaluations()
    b, loss = minimise(problem, a, matrix, evaluations, 100, 1e-12, free)
    assert b[2] == a[2]
    assert loss == min(evaluations.losses)
    _, gradient = problem.value_and_gradient(b)
    assert np.abs(gradient[free]).max() < 1e-4 < np.abs(gradient[2])
    # with all of them free it falls further
    assert minimise(problem, b, matrix, evaluations, 100, 1e-12)[1] < loss


# ---------------------------------------------------------------------------------------------- evaluations


class Counted:
    """A problem that counts its evaluations: ½ |a|²."""

    def __init__(self) -> None:
        self.calls = 0

    def value_and_gradient(self, a, workspace):
        self.calls += 1
        return 0.5 * float(a @ a), a.copy()


def test_the_last_point_is_at_hand() -> None:
    problem, evaluations = Counted(), Evaluations()
    a = np.array([1.0, 2.0])
    first = evaluations(problem, a)
    a_before = a.copy()
    value, gradient = evaluations(problem, a)
    assert (value, problem.calls, evaluations.losses) == (first[0], 1, [2.5])
    np.testing.assert_array_equal(gradient, a_before)
    gradient[:] = 7.0  # a copy
    np.testing.assert_array_equal(evaluations(problem, a)[1], a_before)
    a[0] = 3.0  # the array that was given changes, as that of the optimiser does
    assert evaluations(problem, a)[0] == 6.5
    assert problem.calls == 2
    evaluations(problem, a_before)  # only the last
    assert problem.calls == 3
    other = Counted()
    evaluations(other, a_before)  # of the same problem
    assert other.calls == 1
    assert evaluations.losses == [2.5, 6.5, 2.5, 2.5]


def test_the_best_point_is_kept_and_reported() -> None:
    told = []
    problem, evaluations = Counted(), Evaluations(told.append)
    for x in (2.0, 1.0, 3.0):
        evaluations(problem, np.array([x]))
    assert (evaluations.lowest, evaluations.best) == (0.5, np.array([1.0]))
    assert told == [2.0, 0.5, 0.5]
    evaluations.restart()  # another function: whatever comes is better than what was
    evaluations(problem, np.array([3.0]))  # at hand, and no evaluation
    evaluations(problem, np.array([4.0]))
    assert (evaluations.lowest, evaluations.best) == (8.0, np.array([4.0]))
    assert evaluations.losses == [2.0, 0.5, 4.5, 8.0]
    assert evaluations.stages == [0, 0, 0, 1]


def test_a_run_aside_has_losses_of_its_own() -> None:
    told = []
    problem, evaluations = Counted(), Evaluations(told.append)
    evaluations(problem, np.array([1.0]))
    beside = evaluations.aside()
    beside(problem, np.array([0.0]))
    beside(problem, np.array([2.0]))
    assert (evaluations.losses, evaluations.lowest) == ([0.5], 0.5)
    assert (beside.losses, beside.lowest) == ([0.0, 2.0], 0.0)
    assert told == [0.5, 0.0, 0.0]
    assert beside.workspace is evaluations.workspace
    beside.restart()
    beside(problem, np.array([3.0]))
    evaluations.join(beside)
    assert (evaluations.losses, evaluations.stages) == ([0.5, 0.0, 2.0, 4.5], [0, 1, 1, 2])


# --------------------------------------------------------------------------- what is known is not asked again


def test_a_solution_carries_what_is_known_of_it(two_blocks, monkeypatch) -> None:
    problem, a = two_blocks
    solution = optimise(problem, a, Evaluations(), auto=(True, True))
    C = np.linalg.inv(60 * (solution.problem.information(solution.a) + np.diag(solution.problem.penalty(solution.a))))
    np.testing.assert_allclose(solution.covariance, C, rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(solution.covariance, solution.covariance.T)
    assert solution.loss == solution.problem.value_and_gradient(solution.a)[0]
    monkeypatch.setattr(module, "scores", None)  # an error if it were asked for
    np.testing.assert_allclose(solution.fisher, solution.information)
    with pytest.raises(TypeError):
        replace(solution, information=None).fisher  # noqa: B018


def test_where_only_some_are_at_an_optimum(two_blocks) -> None:
    """The nats that a Newton step of the free ones would gain; the others count in the covariance alone."""
    problem, a = two_blocks
    free = np.arange(7) < 4
    b, _ = minimise(problem, a, problem.curvature(problem.information(a), a), Evaluations(), 100, 1e-12, free)
    some, whole = (solution_at(problem, b, Evaluations(), free=which) for which in (free, None))
    assert some.decrement < 1e-3 < whole.decrement
    np.testing.assert_array_equal(some.covariance, whole.covariance)


@pytest.mark.parametrize("curvature", [True, False])
def test_an_interrupt_leaves_the_best_so_far(two_blocks, curvature) -> None:
    problem, a = two_blocks

    def report(loss):
        if len(evaluations.losses) == 5:
            raise KeyboardInterrupt

    evaluations = Evaluations(report)
    solution = optimise(problem, a, evaluations, curvature=curvature)
    assert solution.interrupted
    assert solution.loss == min(evaluations.losses)
    assert problem.value_and_gradient(solution.a)[0] == solution.loss
