from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from chain_reference import SmallChain
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.observation import Observation, time_weights


@pytest.fixture(scope="session")
def chain() -> SmallChain:
    """A chain on random points, observed at known times, with two orderings and a local one."""
    n, eps, steps = SmallChain.n, SmallChain.eps, 6
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 2, (n, 2))
    graph = od.NeighborGraph.build(X, k=15)
    times = rng.uniform(0.1, 0.6, n)
    observation = Observation(time_weights(times, eps * np.arange(steps + 1)), floor=1e-9)
    noise, orderings = rng.uniform(0.8, 1.2, n), (rng.standard_normal(n), rng.standard_normal(n))
    slopes = (rng.uniform(0.5, 1.5, n), rng.uniform(0.5, 1.5, n))
    local = (rng.standard_normal(graph.n_edges) * 0.1,)
    base = Dynamics(eps, noise, orderings, slopes, (rng.uniform(0.5, 1.5, n),), 0.2 * rng.standard_normal(n))
    likelihood = SnapshotLikelihood(graph, observation, np.ones(n) / n, steps, local=local)
    return SmallChain(graph, likelihood, base)
