"""Splines: orthonormal, exact on polynomials, and as rough as closed forms say."""

from __future__ import annotations

import numpy as np
import pytest

from ordiff.learning.splines import SplineBasis
from ordiff.states import States

SPACING = {1: 0.02, 2: 0.12, 3: 0.28}


@pytest.fixture(scope="module", params=[1, 2, 3])
def states(request) -> States:
    d = request.param
    X = np.random.default_rng(0).uniform(-1, 1, (1500, d))
    return States.design(X, SPACING[d], np.zeros(d), dimension=d)


@pytest.fixture(scope="module")
def basis(states) -> SplineBasis:
    return SplineBasis(states, min(60, len(states.points) // 2))


def coefficients(states, basis, f):
    v = states.volumes / states.volumes.sum()
    return basis.functions.T @ (v * f)


def width(states) -> float:
    """The unit of length."""
    X, v = states.points, states.volumes
    centre = np.average(X, axis=0, weights=v)
    return float(np.sqrt(12 * np.average((X - centre) ** 2, axis=0, weights=v).mean()))


def test_functions_are_orthonormal_and_the_first_is_constant(states, basis):
    U, v = basis.functions, states.volumes / states.volumes.sum()
    np.testing.assert_allclose(U.T @ (v[:, None] * U), np.eye(U.shape[1]), atol=1e-8)
    np.testing.assert_allclose(U[:, 0], 1.0)
    cost = (basis.rows**2).sum(axis=0)
    assert (cost[: basis.n_free] == 0).all()
    assert (np.diff(cost[basis.n_free :]) > -1e-6 * cost[-1]).all()
    assert (cost[basis.n_free :] > 0).all()


def test_polynomials_are_among_them(states, basis):
    """Quadratic ones exactly, cubic ones but for what is cut off with the roughest functions."""
    x = states.points
    f = 1 + x[:, 0] + x[:, -1] * x[:, 0]
    np.testing.assert_allclose(basis.functions @ coefficients(states, basis, f), f, atol=1e-8)
    f = x[:, 0] ** 3
    error = basis.functions @ coefficients(states, basis, f) - f
    assert np.sqrt(np.mean(error**2)) < 0.005 * f.std()


def test_quadratic_functions_have_no_roughness(states, basis):
    x = states.points
    a = coefficients(states, basis, x[:, 0] ** 2 + x[:, 0] * x[:, -1] - x[:, -1])
    cubic = coefficients(states, basis, x[:, 0] ** 3)
    assert np.sum((basis.rows @ a) ** 2) < 1e-6 * np.sum((basis.rows @ cubic) ** 2)


def test_roughness_of_a_cubic(states, basis):
    """|D⁴x³|² = 0 and |D³x³|² = 36 L⁶, times π²."""
    a = coefficients(states, basis, states.points[:, 0] ** 3)
    assert np.sum((basis.rows @ a) ** 2) == pytest.approx(np.pi**2 * 36 * width(states) ** 6, rel=0.02)


def test_lower_derivatives(states, basis):
    """|D x|² = L², |D² x²|² = 4 L⁴, and neither of a constant."""
    x, L = states.points[:, 0], width(states)
    first, second = basis.lower
    a, b = coefficients(states, basis, x), coefficients(states, basis, x**2)
    assert a @ first @ a == pytest.approx(L**2, rel=1e-6)
    assert a @ second @ a == pytest.approx(0.0, abs=1e-6)
    assert b @ second @ b == pytest.approx(4 * L**4, rel=1e-6)
    assert (first[0] == 0).all()
