"""Strengths of smoothness: the update against its formula, and what bounds it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from ordiff.learning.likelihood import Dynamics
from ordiff.learning.optimise import Evaluations, optimise
from ordiff.learning.parameters import ParameterBlock, Parameters
from ordiff.learning.smoothing import penalty_matrix, updated_strengths

M = 200.0
A0 = np.zeros(9)  # these penalties are the same everywhere


@pytest.fixture
def parameters(rng):
    """An ordering with two functions that cost nothing, a speed without a penalty, and a noise field."""
    n = 20
    blocks = (
        ParameterBlock("ordering", rng.normal(size=(n, 5)), penalty=np.array([0.0, 0.0, 1.0, 4.0, 9.0]), strength=0.2),
        ParameterBlock("speed", np.ones((n, 1))),
        ParameterBlock("noise", rng.normal(size=(n, 3)), penalty=np.array([1.0, 2.0, 3.0]), strength=0.5),
    )
    return Parameters(blocks, Dynamics(0.1, np.ones(n), (np.ones(n),), (np.ones(n),)))


@pytest.fixture
def posterior(parameters, rng):
    """Coefficients and the covariance H⁻¹, H = m(F + 2λA)."""
    root = rng.normal(size=(9, 9))
    H = M * (root @ root.T + np.eye(9) + np.diag(penalty_matrix(parameters, A0)))
    return 0.1 * rng.normal(size=9), np.linalg.inv(H)


def fellner_schall(block, a, C):
    """λ ← (rank A − 2λm tr(H⁻¹A)) / (2m aᵀA a)."""
    A = np.diag(block.penalty)
    rank = np.linalg.matrix_rank(A)
    return (rank - 2 * block.strength * M * np.trace(C @ A)) / (2 * M * a @ A @ a)


def test_strengths_follow_the_formula(parameters, posterior):
    a, C = posterior
    new = updated_strengths(parameters, a, C, M, (True, True, True))
    ordering, speed, noise = new.blocks
    parts = parameters.slices
    expected = fellner_schall(parameters.blocks[0], a[parts[0]], C[parts[0], parts[0]])
    assert ordering.strength == pytest.approx(expected, rel=1e-12)
    expected = fellner_schall(parameters.blocks[2], a[parts[2]], C[parts[2], parts[2]])
    assert noise.strength == pytest.approx(expected, rel=1e-12)
    assert speed is parameters.blocks[1]
    # what was given is as it was, and nothing but strengths is new
    assert [block.strength for block in parameters.blocks] == [0.2, 0.0, 0.5]
    assert ordering.basis is parameters.blocks[0].basis


def test_only_those_that_are_to_be_chosen_change(parameters, posterior):
    new = updated_strengths(parameters, *posterior, M, (False, False, True))
    assert new.blocks[0] is parameters.blocks[0]
    assert new.blocks[2].strength != 0.5


def test_a_strength_changes_by_a_bounded_factor(parameters, posterior):
    a, C = posterior
    for size, factor in ((1e-6, 30), (1e6, 1 / 30), (0.0, 30)):
        new = updated_strengths(parameters, size * a, C, M, (True, True, True))
        assert new.blocks[0].strength == pytest.approx(0.2 * factor)
        assert new.blocks[2].strength == pytest.approx(0.5 * factor)


def test_where_all_is_known_from_the_penalty_a_little_is_used(parameters, posterior):
    """With a posterior as wide as its prior no coefficient is used, and the strength stays positive."""
    a, _ = posterior
    prior = np.diag(
        np.divide(1, M * penalty_matrix(parameters, A0), where=penalty_matrix(parameters, A0) > 0, out=np.zeros(9))
    )
    new = updated_strengths(parameters, a, prior, M, (True, False, False))
    rough = parameters.blocks[0].roughness(a[:5])[0]
    assert new.blocks[0].strength == pytest.approx(max(0.1 / (2 * M * rough), 0.2 / 30))


def test_small_changes_are_none(parameters, posterior):
    """The optimum that was found is that of these strengths: then the same parameters come back."""
    a, C = posterior
    settled = parameters
    for _ in range(200):  # to where the formula, with this posterior, changes nothing
        settled = updated_strengths(settled, a, C, M, (True, False, True))
    assert updated_strengths(settled, a, C, M, (True, False, True)) is settled
    parts, blocks = parameters.slices, settled.blocks
    for k in (0, 2):
        wanted = fellner_schall(blocks[k], a[parts[k]], C[parts[k], parts[k]])
        assert abs(np.log(wanted / blocks[k].strength)) <= 0.05


def test_the_strength_of_an_optimum_is_a_fixed_point(chain):
    """After the updates of a run the formula, with the posterior there, asks for no other strength."""
    rng = np.random.default_rng(9)
    block = ParameterBlock("ordering", rng.standard_normal((60, 8)), penalty=np.ones(8), strength=1e-3)
    solution = optimise(chain.problem(block), np.zeros(8), Evaluations(), auto=(True,), updates=30)
    again = updated_strengths(solution.parameters, solution.a, solution.covariance, 60.0, (True,))
    assert again is solution.parameters
    assert solution.parameters.blocks[0].strength != 1e-3


# ---------------------------------------------------------------------------------------- the matrix of penalties


def test_penalties_are_a_diagonal_where_they_can_be(parameters):
    np.testing.assert_allclose(
        penalty_matrix(parameters, A0), [0, 0, 2 * 0.2, 2 * 0.2 * 4, 2 * 0.2 * 9, 0, 1.0, 2.0, 3.0], rtol=1e-14
    )


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_penalties_are_the_second_derivative_of_roughness(parameters, rng, monkeypatch, kind):
    root = rng.normal(size=(5, 5))
    full = replace(parameters.blocks[0], penalty=kind(root @ root.T))
    mixed = replace(parameters, blocks=(full, *parameters.blocks[1:]))
    matrix = penalty_matrix(mixed, A0)
    a = rng.normal(size=9)
    cost = sum(b.strength * b.roughness(a[part])[0] for b, part in zip(mixed.blocks, mixed.slices, strict=True))
    assert 0.5 * a @ matrix @ a == pytest.approx(cost, rel=1e-12)
    monkeypatch.setattr("ordiff.learning.smoothing._MOST_DENSE", 8)  # too large: its diagonal
    np.testing.assert_allclose(penalty_matrix(mixed, A0), np.diag(matrix), rtol=1e-14)


def test_strengths_of_several_penalties_on_the_same_coefficients(rng):
    """λ_j ← (λ_j tr(S⁺A_j) − 2mλ_j tr(H⁻¹A_j)) / (2m aᵀA_j a), S = Σ λ_j A_j."""
    root = rng.standard_normal((3, 3))
    B = root @ root.T
    block = ParameterBlock("noise", rng.normal(size=(20, 3)), penalty=np.array([0.0, 2.0, 3.0]), strength=0.5,
                           lower=((B, 0.3),))  # fmt: skip
    parameters = Parameters((block,), Dynamics(0.1, np.ones(20), (np.ones(20),), (np.ones(20),)))
    a = 0.1 * rng.normal(size=3)
    A = np.diag(block.penalty)
    S = 0.5 * A + 0.3 * B
    C = np.linalg.inv(M * (2 * np.eye(3) + 2 * S))
    np.testing.assert_allclose(penalty_matrix(parameters, a), 2 * S, rtol=1e-12)
    new = updated_strengths(parameters, a, C, M, (True,)).blocks[0]
    for wanted, strength, Q in ((new.strength, 0.5, A), (new.lower[0][1], 0.3, B)):
        used = strength * np.trace(np.linalg.inv(S) @ Q) - 2 * strength * M * np.trace(C @ Q)
        assert wanted == pytest.approx(np.clip(used / (2 * M * a @ Q @ a), strength / 30, strength * 30), rel=1e-9)
