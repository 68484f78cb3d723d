"""Designed states: evenly spread, with right volumes, and exact weights for quadratic functions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

import ordiff as od


@pytest.fixture(scope="module")
def square():
    """Uniform samples on the unit square, and states on them."""
    X = np.random.default_rng(0).uniform(0, 1, (3000, 2))
    return X, od.States.design(X, spacing=0.04, start=[0.5, 0.5])


def test_states_are_evenly_spread_and_cover_the_samples(square) -> None:
    X, states = square
    nearest = cKDTree(states.points).query(states.points, 2)[0][:, 1]
    assert nearest.min() > 0.7 * 0.04
    assert np.median(nearest) > 1.1 * 0.04
    assert nearest.max() < 0.08
    assert states.distance(X).max() < 2 * 0.04
    assert states.dimension == 2


def test_steps_as_long_as_the_spacing_diffuse_as_they_should(square) -> None:
    """½ρ² is ½; on states that are only kept apart it would be 2.4% less."""
    _, states = square
    step = 0.95 * states.spacing
    op = od.Kernel(dimension=2).operator(states.with_radius(6 * step).graph, step**2, density=1 / states.volumes)
    inside = (np.abs(states.points - 0.5) < 0.3).all(axis=1)
    diffusion = np.trace(od.local_moments(op).diffusion, axis1=1, axis2=2)[inside] / 2
    assert diffusion.mean() == pytest.approx(0.5, rel=0.012)


def test_the_start_is_a_state(square) -> None:
    _, states = square
    assert states.points[0].tolist() == [0.5, 0.5]
    assert states.start[0] == 1
    assert states.start.sum() == 1


def test_volumes_integrate(square) -> None:
    """Sums with volumes are integrals: of a bump well inside, known to be 2πσ²."""
    _, states = square
    bump = np.exp(-0.5 * ((states.points - 0.5) ** 2).sum(axis=1) / 0.1**2)
    assert states.volumes @ bump == pytest.approx(2 * np.pi * 0.01, rel=0.05)


def test_quadratics_are_reproduced_exactly(square) -> None:
    _, states = square
    P = np.random.default_rng(1).uniform(0.1, 0.9, (200, 2))

    def f(x):
        return 1 + x[:, 0] - 2 * x[:, 1] + 3 * x[:, 0] * x[:, 1] - x[:, 1] ** 2

    B = states.observe(P)
    np.testing.assert_allclose(B.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(B @ f(states.points), f(P), atol=1e-7)
    _, slopes = states.polynomials(P)
    gradient = np.stack([G @ f(states.points) for G in slopes], axis=1)
    np.testing.assert_allclose(gradient, np.stack([1 + 3 * P[:, 1], -2 + 3 * P[:, 0] - 2 * P[:, 1]], 1), atol=1e-5)


def test_observation_error_falls_with_the_cube_of_the_spacing() -> None:
    X = np.random.default_rng(0).uniform(0, 1, (4000, 2))
    P = np.random.default_rng(1).uniform(0.15, 0.85, (300, 2))
    errors = []
    for spacing in (0.08, 0.04):
        states = od.States.design(X, spacing=spacing)
        f = np.sin(5 * states.points[:, 0]) * np.cos(4 * states.points[:, 1])
        errors.append(np.sqrt(np.mean((states.observe(P) @ f - np.sin(5 * P[:, 0]) * np.cos(4 * P[:, 1])) ** 2)))
    assert np.log2(errors[0] / errors[1]) > 2.3


def test_states_lie_on_a_noisy_surface_within_space() -> None:
    """A noisy half circle in R³: states are nearer to it than the samples."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(0, np.pi, 1500)
    X = np.stack([np.cos(theta), np.sin(theta), np.zeros_like(theta)], axis=1) + 0.02 * rng.standard_normal((1500, 3))
    states = od.States.design(X, spacing=0.05, dimension=1)

    def off(points):
        return np.sqrt(np.mean((np.linalg.norm(points[:, :2], axis=1) - 1) ** 2 + points[:, 2] ** 2))

    assert off(states.points) < 0.6 * off(X)
    assert states.volumes.sum() == pytest.approx(np.pi, rel=0.1)


def test_an_outlier_has_no_state() -> None:
    X = np.random.default_rng(0).standard_normal((1000, 2))
    X[7] = [60.0, 0.0]
    states = od.States.design(X, spacing=0.25)
    assert states.points[:, 0].max() < 10
    assert states.distance(X)[7] > 40


def test_a_start_of_several_points_is_spread() -> None:
    X = np.random.default_rng(0).uniform(0, 1, (1000, 2))
    states = od.States.design(X, spacing=0.06, start=X[:50])
    assert states.start.sum() == pytest.approx(1)
    assert (states.start > 0).sum() > 50
    np.testing.assert_allclose(states.start @ states.points, X[:50].mean(axis=0), atol=0.02)


def test_the_same_seed_gives_the_same_states() -> None:
    X = np.random.default_rng(0).uniform(0, 1, (500, 2))
    first, second = (od.States.design(X, spacing=0.06, random_state=3) for _ in range(2))
    assert np.array_equal(first.points, second.points)
    assert np.array_equal(first.volumes, second.volumes)


def test_states_are_near_samples_or_between_them(rng):
    """Heavy tails: the copies of outliers do not fill the space around them, and are left out."""
    X = rng.standard_t(2.5, (900, 3))
    states = od.States.design(X, spacing=0.8)
    distance = cdist(states.points, X)
    nearest = distance.min(axis=1)
    far = nearest > 2 * 0.8
    assert far.mean() > 0.05
    r8 = np.sort(cdist(X, X), axis=1)[:, 8]
    assert (nearest[far] <= r8[distance.argmin(axis=1)[far]]).all()
    assert (np.sort(cdist(states.points, states.points), axis=1)[far, 1] <= 2 * 0.8).mean() > 0.95
