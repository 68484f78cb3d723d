from __future__ import annotations

import warnings

import pytest

import ordiff as od


@pytest.fixture(scope="session")
def fitted():
    """A problem with known truth, and a model of it, whose noise varies: with strengths of its own it might not."""
    data = od.datasets.ornstein_uhlenbeck(300, random_state=0)
    model = od.SnapshotSDE(data.start, smoothness=od.Smoothness(noise=1e-6), solver=od.Solver(max_iter=40))
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        return data, model.fit(data.X, data.times)
