"""Operators whose action at finite ε is known in closed form (formula sheet, section 8)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ive
from scipy.stats import norm

import ordiff as od


def circle(m, phase=0.0):
    theta = 2 * np.pi * np.arange(m) / m + phase
    return theta, np.stack([np.cos(theta), np.sin(theta)], 1), np.stack([-np.sin(theta), np.cos(theta)], 1)


@pytest.mark.parametrize(("eps", "b", "rho"), [(0.02, 1.5, 1.0), (0.05, -3.0, 0.7), (0.3, 0.0, 1.2), (1.0, 2.0, 1.0)])
def test_circle(eps, b, rho):
    """P e^{ikθ} = [I_k(R)/I_0(R)] e^{ik atan(εb)} e^{ikθ}, R = √((ερ²)⁻² + b²ρ⁻⁴)."""
    theta, X, tangent = circle(400)
    graph = od.NeighborGraph.build(X, k=399)
    op = od.Kernel(od.Ordering.field(b * tangent), noise=rho).operator(graph, eps)
    R = np.hypot(1 / (eps * rho**2), b / rho**2)
    for k in (1, 2, 5):
        got = op @ np.cos(k * theta) + 1j * (op @ np.sin(k * theta))
        want = ive(k, R) / ive(0, R) * np.exp(1j * k * (np.arctan(eps * b) + theta))
        assert abs(got - want).max() < 1e-10


@pytest.mark.parametrize(("eps", "rho", "tau", "kappa"), [(0.1, 1.0, 1.0, 1.0), (0.3, 0.8, 2.0, 0.5)])
def test_sphere(eps, rho, tau, kappa):
    """P x = (coth R − 1/R) v/R with v = x/(ερ²) + (τ/κ) e_z/ρ², R = |v|; quadrature weights as 1/q."""
    z, weight = np.polynomial.legendre.leggauss(30)
    phi = 2 * np.pi * np.arange(60) / 60
    z, phi, weight = np.repeat(z, 60), np.tile(phi, 30), np.repeat(weight, 60)
    s = np.sqrt(1 - z**2)
    X = np.stack([s * np.cos(phi), s * np.sin(phi), z], axis=1)
    graph = od.NeighborGraph.build(X, radius=2.1)
    assert graph.n_edges == len(X) ** 2
    op = od.Kernel(od.Ordering(z, speed=tau, scale=kappa), noise=rho).operator(graph, eps, density=1 / weight)
    v = X / (eps * rho**2) + tau / kappa * np.array([0, 0, 1]) / rho**2
    R = np.linalg.norm(v, axis=1, keepdims=True)
    assert abs(op @ X - (1 / np.tanh(R) - 1 / R) * v / R).max() < 1e-10


def test_line():
    """l = −½θx²: one step is gaussian with mean x/(1+εθ) and variance ερ²/(1+εθ)."""
    x = np.arange(-6, 6, 0.05)
    graph = od.NeighborGraph.build(x[:, None], k=len(x) - 1)
    eps, theta, rho = 0.2, 1.7, 0.9
    op = od.Kernel(od.Ordering(-0.5 * theta * x**2), noise=rho).operator(graph, eps)
    inside = abs(x) < 2
    mean = op @ x
    variance = op @ x**2 - mean**2
    assert abs(mean - x / (1 + eps * theta))[inside].max() < 1e-10
    assert abs(variance - eps * rho**2 / (1 + eps * theta))[inside].max() < 1e-10


@pytest.mark.parametrize("mu", [-1.5, 0.0, 2.0])
def test_edge_of_the_half_line(mu):
    """At the edge the displacement velocity is μ + ρλ/√ε, λ = φ(z)/Φ(z), z = √ε μ/ρ."""
    eps, rho = 0.01, 0.8
    nodes, weight = np.polynomial.legendre.leggauss(200)
    reach = 12 * rho * np.sqrt(eps)
    x = np.concatenate([[0.0], reach * (nodes + 1) / 2])
    weight = np.concatenate([[1e-200], weight])  # the edge itself is watched, and weighs nothing
    graph = od.NeighborGraph.build(x[:, None], k=200)
    op = od.Kernel(od.Ordering(mu * x), noise=rho).operator(graph, eps, density=1 / weight)
    z = np.sqrt(eps) * mu / rho
    want = mu + rho / np.sqrt(eps) * norm.pdf(z) / norm.cdf(z)
    assert od.velocity(op)[0, 0] == pytest.approx(want, rel=1e-10)
