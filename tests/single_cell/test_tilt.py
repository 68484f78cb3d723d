"""Exponential tilting."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff import single_cell as sc
from ordiff.single_cell import _tilt
from ordiff.single_cell._tilt import tilt_slopes

pytest.importorskip("anndata")


def test_tilt_is_the_gaussian_one_and_bounded_by_outliers():
    """Shift in sd: exact for a gaussian; a neighbour far ahead with little weight does not take the row."""
    x = np.linspace(-4, 4, 401).reshape(-1, 1)
    graph = od.NeighborGraph.build(x, k=400)
    base = od.Kernel(noise=1.0).operator(graph, eps=0.25)
    slope = tilt_slopes(base, od.Ordering(x[:, 0]), 0.5)
    assert abs(slope[200] - 0.5 / 0.5) < 0.01  # sd of a step is √eps = 0.5
    assert tilt_slopes(base, od.Ordering(x[:, 0]), -0.5)[200] == pytest.approx(-slope[200], rel=1e-9)
    l = np.where(x[:, 0] > 2.0, 1000.0, 0.0)  # flat, then far ahead, four sd away
    slope = tilt_slopes(base, od.Ordering(l), 0.5)
    tilted = od.Kernel(od.Ordering(l, speed=slope), noise=1.0).operator(graph, eps=0.25)
    assert tilted.matrix[[200], :].toarray().ravel()[x[:, 0] > 2].sum() < 0.02
    assert (tilt_slopes(base, od.Ordering(0 * l), 0.5) == 0).all()


def test_tilt_in_blocks_is_the_same(cells, monkeypatch):
    whole = sc.operator(cells, ordering="pseudotime").matrix
    monkeypatch.setattr(_tilt, "_BLOCK_EDGES", 250)
    np.testing.assert_allclose(sc.operator(cells, ordering="pseudotime").matrix.toarray(), whole.toarray(), rtol=1e-12)
