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


def test_parts_of_a_drift(fitted):
    """A gradient has no rotation; where there is one, both parts and its share are drawn."""
    _, model = fitted
    assert not plot.rotation_share(model).any()
    assert len(plot.rotation(model).axes) == 4  # with a colour bar
    turned = od.SnapshotSDE(None)
    vars(turned).update(vars(model))
    turned.rotation_ = np.stack([-model.samples_[:, 1], model.samples_[:, 0]], axis=1)
    turned.drift_ = model.drift_ + turned.rotation_
    share = plot.rotation_share(turned)
    assert ((share > 0) & (share < 1)).all()
    figure = plot.rotation(turned)
    assert figure.axes[1].get_title() == "rotation w"
    assert f"{100 * turned.rotation_share():.0f}%" in figure.axes[2].get_title()
    ax = plot.drift(turned, part="rotation")
    arrows = ax.collections[-1]
    at, V = np.asarray(arrows.XY), np.stack([arrows.U, arrows.V], axis=1)
    assert np.abs((at * V).sum(axis=1)).mean() < 0.2 * (np.linalg.norm(at, axis=1) * np.linalg.norm(V, axis=1)).mean()
    with pytest.raises(ValueError, match="part"):
        plot.drift(turned, part="half")


def test_an_outlier_makes_no_arrow_that_leaves_the_picture(rng):
    Y, W = rng.uniform(size=(2000, 2)), rng.normal(size=(2000, 2))
    W[:50] *= 1e5
    _, vectors, longest, _ = plot.binning.grid_arrows(Y, W, 10)
    size = np.linalg.norm(vectors, axis=1)
    assert size.max() <= longest * (1 + 1e-12)
    assert longest <= 8 * np.median(size) * (1 + 1e-12)
