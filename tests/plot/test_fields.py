from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff import plot


def test_an_operator_is_drawn_by_its_velocity(fitted):
    data, _ = fitted
    graph = od.NeighborGraph.build(data.X, k=100)
    op = od.Kernel(od.Ordering(data.ordering), noise=data.noise).operator(graph, 0.05, density="balanced")
    ax = plot.drift(op)
    arrows = ax.collections[-1]
    at = np.asarray(arrows.XY)
    towards = -(np.stack([arrows.U, arrows.V], 1) * at).sum(axis=1)
    assert (towards > 0).mean() > 0.8  # the process runs to the origin
    assert plot.field(op, data.ordering) is not None


def test_values_must_fit_the_samples(fitted):
    with pytest.raises(ValueError, match=r"shape \(300,\)"):
        plot.field(fitted[1], np.zeros(4))
    with pytest.raises(ValueError, match="kind"):
        plot.drift(fitted[1], kind="swirls")
