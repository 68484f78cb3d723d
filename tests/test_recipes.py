"""The named recipes of docs/recipes.md: against the formulas of their authors, and their limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import ordiff as od

M = 60


@pytest.fixture(scope="module")
def cloud():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(M, 2))
    return X, rng.uniform(0.5, 2, M), od.NeighborGraph.build(X, k=M - 1), cdist(X, X) ** 2


def rows(K):
    return K / K.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_diffusion_maps(cloud, alpha):
    _, _, graph, D2 = cloud
    eps = 0.1
    K = np.exp(-D2 / (2 * eps))
    q = K.sum(axis=1)
    want = rows(K / np.outer(q, q) ** alpha)
    op = od.Kernel().operator(graph, eps, density=q, alpha=alpha)
    np.testing.assert_allclose(op.matrix.toarray(), want, rtol=1e-10, atol=1e-300)


def test_laplacian_eigenmaps(cloud):
    _, _, graph, D2 = cloud
    op = od.Kernel().operator(graph, 0.1)
    np.testing.assert_allclose(op.matrix.toarray(), rows(np.exp(-D2 / 0.2)), rtol=1e-10, atol=1e-300)


def test_variable_bandwidth(cloud):
    """Berry and Harlim: exp(−|x−y|²/(4ε'ρ(x)ρ(y))) / (q(x)q(y))^α; their ε' is ε/2."""
    _, q, graph, D2 = cloud
    rho, eps, alpha = q**-0.5, 0.1, 0.3
    want = rows(np.exp(-D2 / (2 * eps * np.outer(rho, rho))) / np.outer(q, q) ** alpha)
    op = od.Kernel(noise=rho, noise_right=rho).operator(graph, eps, density=q, alpha=alpha)
    np.testing.assert_allclose(op.matrix.toarray(), want, rtol=1e-10, atol=1e-300)


def test_variable_bandwidth_limit():
    """½ρ²[f'' + (2(1−α) (log q)' + (d+2)(log ρ)') f'] on a circle with a known density."""
    s = 2 * np.pi * np.arange(1200) / 1200
    theta, q = s + 0.3 * np.sin(s), 1 / (1 + 0.3 * np.cos(s))
    log_q = 0.3 * np.sin(s) * q**2
    rho, alpha = q**-0.5, 0.4
    graph = od.NeighborGraph.build(np.stack([np.cos(theta), np.sin(theta)], 1), radius=1.4)
    f, f1, f2 = np.sin(theta), np.cos(theta), -np.sin(theta)
    truth = 0.5 * rho**2 * (f2 + (2 * (1 - alpha) * log_q + 3 * -0.5 * log_q) * f1)
    op = od.richardson(od.Kernel(noise=rho, noise_right=rho), graph, 0.005, density=q, alpha=alpha)
    assert abs(op.generator(f) - truth).max() < 2e-3


def test_local_kernel(cloud):
    """Berry and Sauer: exp(−(y−x−εb)ᵀC⁻¹(y−x−εb)/(2ε)), then divided by the density."""
    X, q, graph, _ = cloud
    eps, C = 0.1, np.array([[1.0, 0.2], [0.2, 0.5]])
    z = X[None, :, :] - X[:, None, :] + eps * X[:, None, :]
    want = rows(np.exp(-np.einsum("ija,ab,ijb->ij", z, np.linalg.inv(C), z) / (2 * eps)) / q)
    op = od.Kernel(od.Ordering.field(-X), anisotropy=np.tile(C, (M, 1, 1))).operator(graph, eps, density=q)
    np.testing.assert_allclose(op.matrix.toarray(), want, rtol=1e-9, atol=1e-300)


def test_target_measure(cloud):
    X, q, graph, D2 = cloud
    target = np.exp(-(X**2).sum(axis=1))
    want = rows(np.exp(-D2 / 0.2) * np.sqrt(target) / q)
    op = od.Kernel().operator(graph, 0.1, density=q, weight=np.sqrt(target))
    np.testing.assert_allclose(op.matrix.toarray(), want, rtol=1e-10, atol=1e-300)


def test_target_measure_limit():
    """½f'' + ½(log π)' f', whatever the sampling density."""
    s = 2 * np.pi * np.arange(1200) / 1200
    theta, q = s + 0.3 * np.sin(s), 1 / (1 + 0.3 * np.cos(s))
    graph = od.NeighborGraph.build(np.stack([np.cos(theta), np.sin(theta)], 1), radius=1.4)
    target, slope = np.exp(np.cos(theta)), -np.sin(theta)
    truth = -0.5 * np.sin(theta) + 0.5 * slope * np.cos(theta)
    op = od.richardson(od.Kernel(), graph, 0.01, density=q, weight=np.sqrt(target))
    assert abs(op.generator(np.sin(theta)) - truth).max() < 2e-3
