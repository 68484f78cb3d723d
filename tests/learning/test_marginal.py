"""Marginal likelihoods: the noise with all other coefficients integrated out."""

from __future__ import annotations

import numpy as np
import pytest

from ordiff.learning import optimise as module
from ordiff.learning.marginal import log_volume, marginal_newton_step, maximize_marginal, profile_nats
from ordiff.learning.optimise import Evaluations, optimise
from ordiff.learning.parameters import ParameterBlock

FREE = np.arange(7) < 6


@pytest.fixture(scope="module")
def joint(chain):
    """The joint optimum of an ordering and a constant noise, the last coefficient."""
    rng = np.random.default_rng(5)
    blocks = (
        ParameterBlock("ordering", rng.standard_normal((60, 6)), penalty=np.ones(6), strength=0.05),
        ParameterBlock("noise", np.ones((60, 1)), centre=float(np.log(chain.base.noise).mean())),
    )
    start = np.append(np.zeros(6), blocks[1].centre)
    return optimise(chain.problem(*blocks), start, Evaluations(), auto=(False, False), tol=1e-12)


def test_a_field_is_settled_at_the_optimum_of_its_marginal_likelihood(joint) -> None:
    """With one coefficient of the noise, the Newton step of a field goes where the search for a constant goes."""
    by_search = maximize_marginal(joint, 6, Evaluations(), 1e-12)
    by_step = marginal_newton_step(joint, slice(6, 7), Evaluations(), 1e-12)
    joint_loss, step, search = (
        60 * solution.loss + log_volume(joint.problem, solution.a, FREE) for solution in (joint, by_step, by_search)
    )
    assert search <= step < joint_loss - 0.5 * (joint_loss - search)  # one step makes more than half of the way
    assert joint.a[6] < by_step.a[6] < by_search.a[6]  # the noise of the joint optimum is too low
    for solution in (by_search, by_step):
        assert solution.decrement < 0.05
        np.testing.assert_allclose(solution.information, joint.problem.information(solution.a), rtol=1e-6)


def test_the_volume_is_that_of_the_curvature(joint) -> None:
    problem = joint.problem
    F = problem.information(joint.a)
    curvature = (F + np.diag(problem.penalty(joint.a)) + 1e-4 * np.eye(7))[:6, :6]
    expected = 0.5 * np.log(np.linalg.det(curvature))
    assert log_volume(problem, joint.a, FREE, F) == pytest.approx(expected, rel=1e-10)
    assert log_volume(problem, joint.a, FREE) == pytest.approx(expected, rel=1e-5)  # without the scores of the noise


def test_coefficients_without_a_penalty_are_in_units_of_the_noise(chain) -> None:
    rng = np.random.default_rng(8)
    U, a = rng.standard_normal((60, 3)), np.append(0.1 * rng.standard_normal(3), 0.3)
    noise = ParameterBlock("noise", np.ones((60, 1)))
    F, free = np.eye(4), np.arange(4) < 3
    volumes = []
    for penalty in (np.array([1e-9, 1.0, 2.0]), np.array([0.0, 1.0, 2.0])):
        problem = chain.problem(ParameterBlock("ordering", U, penalty=penalty, strength=0.1), noise)
        volumes.append(log_volume(problem, a, free, F))
    level = np.log(problem.parameters.dynamics(a).noise).mean()
    assert volumes[1] - volumes[0] == pytest.approx(2 * level, rel=1e-6)


def test_a_profile_is_the_marginal_likelihood_above_the_solution(joint) -> None:
    best = maximize_marginal(joint, 6, Evaluations(), 1e-12)
    values = best.a[6] + np.array([-0.3, 0.0, 0.3])
    nats = profile_nats(best, 6, values, Evaluations(), 1e-12)
    assert abs(nats[1]) < 1e-3
    assert nats[0] > 0.05
    assert nats[2] > 0.05
    zero = 60 * best.loss + log_volume(best.problem, best.a, FREE)
    for x, nat in zip(values, nats, strict=True):
        evaluations, a = Evaluations(), best.a.copy()
        a[6] = x
        matrix = best.problem.curvature(best.fisher, best.a)
        a, loss = module.minimise(best.problem, a, matrix, evaluations, 60, 1e-12, FREE)
        assert nat == pytest.approx(60 * loss + log_volume(best.problem, a, FREE) - zero, abs=1e-3)


@pytest.mark.parametrize("settle", ["search", "step"])
def test_no_point_is_asked_twice(joint, monkeypatch, settle) -> None:
    """The scores of a solution are known; those of a new point are taken once, and carried by its solution."""
    known = joint.parameters.dynamics(joint.a)
    asked = [(known.noise.tobytes(), known.orderings[0].tobytes())]
    scores = module.scores

    def counted(likelihood, dynamics, directions, rows=None):
        asked.append((dynamics.noise.tobytes(), dynamics.orderings[0].tobytes()))
        return scores(likelihood, dynamics, directions, rows)

    monkeypatch.setattr(module, "scores", counted)
    if settle == "search":
        solution = maximize_marginal(joint, 6, Evaluations(), 1e-9)
    else:
        solution = marginal_newton_step(joint, slice(6, 7), Evaluations(), 1e-9)
    assert solution.fisher is solution.information
    assert len(set(asked)) == len(asked) > 2
