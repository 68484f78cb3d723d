"""One operator and one fit against what is known, in an environment without pytest: make test-lowest runs it."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
from scipy.special import ive

import ordiff as od


def check_operator() -> None:
    """On the circle, P e^(ikθ) = I_k(1/ε)/I_0(1/ε) e^(ikθ), and steps conserve mass."""
    m, eps = 200, 0.02
    theta = 2 * np.pi * np.arange(m) / m
    graph = od.NeighborGraph.build(np.stack([np.cos(theta), np.sin(theta)], 1), k=m - 1)
    op = od.Kernel().operator(graph, eps)
    for k in (1, 3):
        wave, rate = np.sin(k * theta), ive(k, 1 / eps) / ive(0, 1 / eps)
        np.testing.assert_allclose(op @ wave, rate * wave, atol=1e-12)
    np.testing.assert_allclose(op.forward(np.eye(m)[0], 20).sum(), 1, rtol=1e-12)


def check_fit() -> None:
    data = od.datasets.ornstein_uhlenbeck(300, random_state=0)
    model = od.SnapshotSDE(data.start, noise="constant", smoothness=od.Smoothness(basis=20)).fit(data.X, data.times)
    assert model.converged_
    assert np.corrcoef(model.ordering_, data.ordering)[0, 1] > 0.99
    np.testing.assert_allclose(model.noise_, np.sqrt(2), rtol=0.1)


if __name__ == "__main__":
    check_operator()
    check_fit()
    names = ("numpy", "scipy", "scikit-learn", "numba", "threadpoolctl")
    print("An operator and a fit are right with " + ", ".join(f"{name} {version(name)}" for name in names) + ".")
