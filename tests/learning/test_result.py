"""What is read from a fit: standard deviations from a posterior, the ordering from that of a chain."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import ordiff as od
from ordiff.learning.likelihood import Dynamics
from ordiff.learning.optimise import Solution
from ordiff.learning.parameters import ParameterBlock
from ordiff.learning.result import Posterior, read_ordering
from ordiff.states import States


@pytest.fixture
def solution(chain, rng):
    """Of an ordering in 4 functions and a noise in 3, with some covariance."""
    blocks = (ParameterBlock("ordering", rng.normal(size=(60, 4))), ParameterBlock("noise", rng.normal(size=(60, 3))))
    root = rng.normal(size=(7, 7))
    return Solution(np.zeros(7), chain.problem(*blocks), 0.0, covariance=root @ root.T)


def test_deviations_are_those_of_draws(solution, rng):
    posterior = Posterior.of(solution)
    B, start = sp.random_array((9, 60), density=0.1, rng=rng).tocsr(), np.eye(60)[8]
    ordering, noise = posterior.deviations(B, start)
    draws = rng.multivariate_normal(np.zeros(7), solution.covariance, 200_000)
    U, V = (block.basis for block in solution.parameters.blocks)
    l = draws[:, :4] @ U.T
    np.testing.assert_allclose(ordering, (l @ B.T.toarray() - l[:, [8]]).std(axis=0), rtol=0.02)
    np.testing.assert_allclose(noise, (draws[:, 4:] @ V.T @ B.T.toarray()).std(axis=0), rtol=0.02, atol=1e-12)


def test_what_was_given_is_known_and_what_has_no_covariance_is_not(chain, solution):
    B, start = sp.eye_array(60).tocsr(), np.eye(60)[0]
    only = chain.problem(solution.parameters.blocks[0])
    ordering, noise = Posterior.of(Solution(np.zeros(4), only, 0.0, covariance=np.eye(4))).deviations(B, start)
    assert (ordering[1:] > 0).all()
    assert ordering[0] == 0
    assert not noise.any()
    for unknown in (
        Solution(np.zeros(4), only, 0.0),
        Solution(np.zeros(60), chain.problem(ParameterBlock("ordering", None)), 0.0, covariance=np.eye(60)),
    ):
        assert np.isnan(Posterior.of(unknown).deviations(B, start)[0]).all()


@pytest.mark.parametrize("eps", [0.02, 0.04])
def test_the_ordering_is_corrected_for_the_length_of_the_step(eps):
    """On a line, where the row sums Z are gaussian integrals."""
    states = od.States.design(np.linspace(-1, 1, 401)[:, None], 0.01, np.zeros((1, 1)), dimension=1).with_radius(1.0)
    x = states.points[:, 0]
    inside, n, k = abs(x) < 0.3, x.size, 3.0
    # a constant drift: log(Z/Z_0) is the same everywhere. A well: ½ρ² log(Z/Z_0) = ¼ε(kx)²/(1 + εk) and a constant
    for l, correction in ((2.0 * x, 0.0), (-0.5 * k * x**2, 0.25 * eps * (k * x) ** 2 / (1 + eps * k))):
        read = read_ordering(states, Dynamics(eps, np.full(n, 0.7), (l,), (np.ones(n),)))
        np.testing.assert_allclose(read[inside], (l + correction)[inside], atol=1e-3)
        assert abs(states.start @ read) < 1e-12


def test_an_ordering_is_read_the_same_at_the_edge(rng):
    """For l = −½θx² the row sums without an edge have a closed form, and so have the states at the edge of the data."""
    states = States.design(rng.uniform(-1, 1, (800, 2)), 0.12, np.zeros(2), dimension=2)
    x, eps, rho, theta = states.points, 0.05, 0.7, np.array([2.0, 0.5])
    N = len(x)
    chain = Dynamics(eps, np.full(N, rho), (-0.5 * x**2 @ theta,), (np.ones(N),))
    read = read_ordering(states, chain)
    log_ratio = 0.5 * eps * (x**2 @ (theta**2 / (1 + eps * theta))) / rho**2 - 0.5 * np.log(1 + eps * theta).sum()
    expected = -0.5 * x**2 @ theta + 0.5 * rho**2 * log_ratio
    np.testing.assert_allclose(read, expected - states.start @ expected, atol=1e-7)
