"""Simulated laws: their order of convergence, Milstein's moments, projection, and checked input."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od


def test_simulated_laws_converge_with_order_one():
    # without noise every path is Euler's polygon; the law of OU follows the recursion of its two moments
    theta, rho, T = 1.5, 0.8, 1.0
    times = np.full(200_000, T)
    errors = []
    for h in (0.25, 0.125):
        x = od.datasets.simulate(lambda x: -theta * x, rho, [2.0, 0.0], times, step=h, random_state=1)
        steps = round(T / h)
        decay = (1 - theta * h) ** steps
        variance = rho**2 * h * (1 - decay**2) / (1 - (1 - theta * h) ** 2)
        np.testing.assert_allclose(x.mean(axis=0), [2 * decay, 0], atol=5 * np.sqrt(variance / times.size))
        np.testing.assert_allclose(x.var(axis=0), variance, rtol=5 * np.sqrt(2 / times.size))
        exact = np.array([2 * np.exp(-theta * T), rho**2 / (2 * theta) * (1 - np.exp(-2 * theta * T))])
        errors.append(abs(np.array([x[:, 0].mean(), x[:, 1].var()]) - exact))
    order = np.log2(errors[0] / errors[1])
    assert ((order > 0.7) & (order < 1.7)).all(), order


def test_each_path_stops_at_its_own_time():
    times = np.array([0.0, 0.37, 1.0, 0.1, 0.3, 0.05])
    x = od.datasets.simulate(lambda x: np.ones_like(x), 0.0, [3.0], times, step=0.1)
    np.testing.assert_allclose(x[:, 0], 3 + times, rtol=1e-14)
    calls = []
    od.datasets.simulate(lambda x: calls.append(len(x)) or np.zeros_like(x), 0.0, [3.0], times, step=0.1)
    assert calls == [5, 3, 3, 2, *[1] * 6]  # no step of the size of a rounding
    starts = np.arange(6.0)[:, None]
    np.testing.assert_allclose(od.datasets.simulate(np.zeros_like, 0.0, starts, times), starts)


def test_geometric_noise_on_a_line_is_milstein():
    # dx = σx dW from 1: x = exp(σW − ½σ²t); Milstein's second moment after S steps is (1 + σ²h + ½σ⁴h²)^S
    sigma, T, h = 0.6, 1.0, 0.25
    x = od.datasets.simulate(
        np.zeros_like, lambda x: sigma * abs(x[:, 0]), [1.0], np.full(400_000, T), step=h, random_state=0
    )
    second = (x**2).mean()
    spread = (x**2).std() / np.sqrt(x.size)
    milstein, euler = (1 + sigma**2 * h + 0.5 * sigma**4 * h**2) ** 4, (1 + sigma**2 * h) ** 4
    assert abs(second - milstein) < 4 * spread
    assert abs(second - euler) > 4 * spread


def test_projected_steps_diffuse_on_the_manifold():
    # on the unit circle E cos θ(t) = exp(−ρ²t/2)
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)  # noqa: E731
    x = od.datasets.simulate(
        np.zeros_like, 0.7, [1.0, 0.0], np.full(40_000, 1.0), step=0.02, project=unit, random_state=0
    )
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0)
    np.testing.assert_allclose(x.mean(axis=0), [np.exp(-0.245), 0], atol=0.01)


def test_inputs_of_simulate_are_checked():
    simulate, still = od.datasets.simulate, np.zeros_like
    for times in ([-1.0], []):
        with pytest.raises(ValueError, match="times must be one or more numbers from 0"):
            simulate(still, 1.0, [0.0], times)
    with pytest.raises(ValueError, match="start has 2 points, but there are 3 times"):
        simulate(still, 1.0, [[0.0], [1.0]], [1, 2, 3])
    with pytest.raises(ValueError, match="step must be one positive number"):
        simulate(still, 1.0, [0.0], [1.0], step=0)
    with pytest.raises(ValueError, match=r"drift\(x\) must have shape \(1, 2\)"):
        simulate(lambda x: x[:, 0], 1.0, [0.0, 0.0], [1.0])
    with pytest.raises(ValueError, match=r"noise\(x\) must have shape \(1,\)"):
        simulate(still, lambda x: x, [0.0, 0.0], [1.0])
    with pytest.raises(ValueError, match="noise must not be negative"):
        simulate(still, -1.0, [0.0], [1.0])
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="use a smaller step"):
        simulate(lambda x: x**3, 0.0, [100.0], [5.0], step=0.5)
