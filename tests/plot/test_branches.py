"""Branches of an ordering, and what is drawn along them."""

from __future__ import annotations

import numpy as np
import pytest

import ordiff as od
from ordiff import plot
from ordiff.plot.binning import smooth_grid, stages
from small_model import small_model


@pytest.fixture(scope="module")
def fork():
    """A stem along x₀ that forks at 1 into two arms; the ordering is how far along it a sample is."""
    rng = np.random.default_rng(0)
    l, side = rng.uniform(0, 3, 900), np.where(rng.uniform(size=900) < 0.6, 1, -1)
    return np.stack([l, side * np.maximum(l - 1, 0)], axis=1) + 0.05 * rng.normal(size=(900, 2)), l, side


def assert_apart(label, l, side):
    """Each arm beyond the fork has a label of its own."""
    up, down = label[(l > 1.5) & (side > 0)], label[(l > 1.5) & (side < 0)]
    assert np.unique(up).size == np.unique(down).size == 1
    assert up[0] != down[0]


def test_the_arms_of_a_fork_are_branches(fork):
    X, l, side = fork
    label = plot.branches(X, l)
    assert label.max() == 1
    assert_apart(label, l, side)
    assert (label == 0).sum() >= (label == 1).sum()
    assert not plot.branches(X, X[:, 0] * 0).any()
    assert not plot.branches(X[side > 0], l[side > 0]).any()


def test_many_samples_are_given_the_branch_of_their_neighbours(fork, monkeypatch):
    X, l, side = fork
    monkeypatch.setitem(plot.branches.__globals__, "_MOST_SAMPLES", 300)
    assert_apart(plot.branches(X, l), l, side)


def test_trends_are_means_along_the_ordering():
    model = small_model()
    m = len(model.ordering_)
    figure = plot.trends(model, np.stack([2 * model.ordering_, np.ones(m)], axis=1), ["twice", "one"])
    x, y = figure.axes[0].lines[0].get_data()
    np.testing.assert_allclose(y, 2 * x, rtol=0.15, atol=0.3)
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), 1)
    weighted = plot.trends(model, model.ordering_, weights={"a": np.ones(m), "b": np.arange(m) < 3})
    assert [line.get_label() for line in weighted.axes[0].lines] == ["a", "b"]
    with pytest.raises(ValueError, match="2 quantities and 1 names"):
        plot.trends(model, np.ones((m, 2)), ["one"])


def test_a_landscape_in_three_dimensions_has_paths_on_it():
    model = small_model()
    _, paths = model.simulate(4)
    ax = plot.landscape_3d(model, paths)
    assert len(ax.lines) == 6  # four paths, their ends, the start
    assert ax.get_zlabel() == "potential −l"


def test_losses_are_compared_within_one_stage_only():
    losses = np.array([5.0, 3.0, 2.0, 9.0, 8.0, 7.5, 7.0, 1e9, 4.0])
    (at, above), (at_1, above_1) = stages(losses, np.array([0, 0, 0, 1, 1, 1, 1, 1, 2]))
    np.testing.assert_array_equal(at, [1, 2])
    np.testing.assert_array_equal(above, [3, 1])
    np.testing.assert_array_equal(at_1, [4, 5, 6])  # neither the minimum nor a step that went far
    np.testing.assert_array_equal(above_1, [2, 1, 0.5])


def test_a_model_tells_its_evaluations(tmp_path):
    model = small_model()
    assert model.n_iter_ >= len(model.history_) == len(model.history_stages_)
    assert (np.diff(model.history_stages_) >= 0).all()
    assert f"{model.n_iter_} evaluations" in model.summary()
    assert f"{model.n_iter_} evaluations" in plot.history(model).get_title()
    model.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(od.load(tmp_path / "m.npz").history_stages_, model.history_stages_)


def test_a_smooth_grid_is_where_samples_are(rng):
    Y = rng.uniform(size=(800, 2))
    Y = Y[(Y < 0.6).any(axis=1)]  # not in one corner
    (x, y), mean, there = smooth_grid(Y, Y @ [[1.0], [2.0]], 20)
    at = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    assert np.sqrt(np.mean((mean[there][:, 0] - at[there] @ [1.0, 2.0]) ** 2)) < 0.1
    assert there[at.max(axis=-1) < 0.5].all()
    assert not there[at.min(axis=-1) > 0.75].any()
