"""Parametrisations: their derivatives against finite differences, for everything that can be learned."""

from __future__ import annotations

import numpy as np
import pytest
from ordiff.inference.objective import Dynamics, Objective, Observation
from ordiff.inference.optimise import Problem, log_volume, metric, optimise, settle, settle_field
from ordiff.inference.parameters import TARGETS, Block, Parameters
from ordiff.inference.regularise import Action
from ordiff.inference.times import time_weights

import ordiff as od

N, EPS, STEPS = 60, 0.1, 6


@pytest.fixture(scope="module")
def case():
    """A chain on random points, observed at known times, with two orderings and a local one."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, (N, 2))
    graph = od.NeighborGraph.build(X, k=15)
    records = EPS * np.arange(STEPS + 1)
    times = rng.uniform(0.1, 0.6, N)
    observation = Observation(time_weights(times, records), floor=1e-9)
    objective = Objective(graph, observation, np.ones(N) / N, STEPS)
    base = Dynamics(
        EPS, rng.uniform(0.8, 1.2, N), (rng.standard_normal(N), rng.standard_normal(N)),
        (rng.uniform(0.5, 1.5, N), rng.uniform(0.5, 1.5, N)), (rng.standard_normal(graph.n_edges) * 0.1,),
        (rng.uniform(0.5, 1.5, N),), 0.2 * rng.standard_normal(N),
    )  # fmt: skip
    return graph, objective, base


def make(base: Dynamics, target: str, kind: str) -> tuple[Parameters, np.ndarray]:
    rng = np.random.default_rng(1)
    U = {"values": None, "constant": np.ones((N, 1)), "basis": rng.standard_normal((N, 5))}[kind]
    K = N if U is None else U.shape[1]
    centre = {"eps": np.log(EPS), "noise": 0.0}.get(target, 0.0)
    floor = 0.7 if target == "noise" else 0.0
    block = Block(target, U, index=0, centre=centre, penalty=np.arange(1.0, K + 1), strength=0.3, floor=floor)
    a = 0.1 * rng.standard_normal(K)
    if target == "eps":
        a[0] = np.log(EPS)
    return Parameters((block,), base, alpha=0.7), a


@pytest.mark.parametrize("kind", ["values", "constant", "basis"])
@pytest.mark.parametrize("target", TARGETS)
def test_gradient(case, target: str, kind: str) -> None:
    if target == "eps" and kind != "constant":
        pytest.skip("eps is one number")
    _, objective, base = case
    parameters, a = make(base, target, kind)
    problem = Problem(objective, parameters, np.ones(N))
    _, gradient = problem.value_and_gradient(a)
    u = np.random.default_rng(2).standard_normal(a.size)
    h = 1e-4
    values = [problem.value_and_gradient(a + s * h * u)[0] for s in (-2, -1, 1, 2)]
    slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
    assert gradient @ u == pytest.approx(slope, rel=1e-6, abs=1e-10)


def test_gradient_with_the_action(case) -> None:
    graph, objective, base = case
    rng = np.random.default_rng(3)
    blocks = (Block("ordering", rng.standard_normal((N, 4))), Block("noise", rng.standard_normal((N, 3))))
    problem = Problem(objective, Parameters(blocks, base), np.ones(N))
    problem.action, problem.action_strength = Action(od.TangentSpaces.fit(graph, k=10, dimension=2)), 0.2
    a, u, h = 0.2 * rng.standard_normal(7), rng.standard_normal(7), 1e-4
    values = [problem.value_and_gradient(a + s * h * u)[0] for s in (-2, -1, 1, 2)]
    slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
    assert problem.value_and_gradient(a)[1] @ u == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("target", ["ordering", "noise", "speed", "local_speed"])
def test_scores_are_the_gradient_sample_by_sample(case, target: str) -> None:
    _, objective, base = case
    parameters, a = make(base, target, "basis")
    problem = Problem(objective, parameters, np.ones(N))
    scores = objective.scores(parameters.dynamics(a), **parameters.directions(a))
    _, gradient = problem.value_and_gradient(a)
    _, rough = parameters.blocks[0].roughness(a)
    np.testing.assert_allclose(-scores.mean(axis=0), gradient - 0.3 * rough, rtol=1e-8, atol=1e-12)


def test_positive_quantities_stay_within_bounds() -> None:
    block = Block("noise", None, centre=0.0)
    value, slope = block.field(np.array([-1e3, 0.0, 1e3]))
    assert value[1] == 1
    assert 0.006 < value[0] < value[2] < 150
    assert np.isfinite(slope).all()
    above = Block("noise", None, centre=0.0, floor=0.5)
    z = np.array([-20.0, -1.0, 0.0, 1.0])
    value, _ = above.field(z)
    np.testing.assert_allclose(value**2, block.field(z)[0] ** 2 + 0.25)
    assert value[0] == pytest.approx(0.5, abs=2e-4)
    np.testing.assert_allclose(above.exponent(value[1:]), z[1:], atol=0.02)  # but for the limiter
    assert np.isfinite(above.exponent(np.array([0.1, 0.5]))).all()


def test_optimum_does_not_depend_on_the_start(case) -> None:
    _, objective, base = case
    rng = np.random.default_rng(4)
    U = rng.standard_normal((N, 6))
    block = Block("ordering", U, penalty=np.ones(6), strength=0.05)
    ends = []
    for a in (np.zeros(6), rng.standard_normal(6)):
        problem = Problem(objective, Parameters((block,), base), np.ones(N))
        solution = optimise(problem, a, auto=(False,), tol=1e-12)
        assert solution.decrement < 0.05
        ends.append(solution.a)
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-4)
    assert metric(problem, ends[0]).shape == (6, 6)


def test_a_field_is_settled_at_the_optimum_of_its_marginal_likelihood(case) -> None:
    """With one coefficient of the noise, the Newton step of a field goes where the search for a constant goes."""
    _, objective, base = case
    rng = np.random.default_rng(5)
    blocks = (
        Block("ordering", rng.standard_normal((N, 6)), penalty=np.ones(6), strength=0.05),
        Block("noise", np.ones((N, 1)), centre=float(np.log(base.noise).mean())),
    )
    problem = Problem(objective, Parameters(blocks, base), np.ones(N))
    joint = optimise(problem, np.r_[np.zeros(6), blocks[1].centre], auto=(False, False), tol=1e-12)
    by_search = settle(problem, joint, 6, 1e-12)
    by_step = settle_field(problem, joint, slice(6, 7), 1e-12)
    free = np.arange(7) < 6
    joint_loss, step, search = (
        N * solution.loss + log_volume(problem, solution.a, free) for solution in (joint, by_step, by_search)
    )
    assert search <= step < joint_loss - 0.5 * (joint_loss - search)  # one step makes more than half of the way
    assert joint.a[6] < by_step.a[6] < by_search.a[6]  # the noise of the joint optimum is too low


def test_information_of_some_coefficients_is_part_of_the_whole(case) -> None:
    _, objective, base = case
    rng = np.random.default_rng(6)
    blocks = (Block("ordering", rng.standard_normal((N, 4))), Block("noise", rng.standard_normal((N, 3))))
    problem = Problem(objective, Parameters(blocks, base), np.ones(N))
    a = 0.1 * rng.standard_normal(7)
    free = np.arange(7) < 4
    whole = problem.information(a)
    np.testing.assert_allclose(problem.information(a, free), whole[:4, :4], rtol=1e-10)
    np.testing.assert_allclose(problem.information(a, ~free), whole[4:, 4:], rtol=1e-10)
