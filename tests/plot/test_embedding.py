from __future__ import annotations

import numpy as np
import pytest

from ordiff import plot


def test_more_than_two_coordinates_are_drawn_by_principal_components(rng):
    X = rng.normal(size=(200, 5)) * [0.1, 3.0, 1.0, 0.1, 0.1]
    embedding = plot.Embedding.of(X)
    Y = embedding.points(X)
    np.testing.assert_allclose(np.abs(np.corrcoef(Y[:, 0], X[:, 1])[0, 1]), 1, atol=0.01)
    np.testing.assert_allclose(embedding.vectors(X, X - X.mean(0)), Y)
    assert embedding.names[0].startswith("PC 1 (8")


def test_one_coordinate_is_enough(rng):
    ax = plot.field(rng.normal(size=(50, 1)), np.arange(50.0))
    assert ax.get_xlabel() == "$x_1$"


def test_components_are_not_told_to_be_all_of_the_variance(rng):
    X = np.linalg.svd(rng.normal(size=(100, 4)) * [4, 3, 2, 1], full_matrices=False)[0] * [4, 3, 2, 1]
    X -= X.mean(axis=0)
    X = X @ np.linalg.svd(X, full_matrices=False)[2].T
    assert plot.Embedding.of(X).names == ("component 1", "component 2")


def test_any_layout_carries_points_and_vectors(rng):
    """y = (x₀², x₁ + x₀x₁): a vector v at x becomes Dy v."""
    X = rng.uniform(-1, 1, (2000, 2))
    Y = np.stack([X[:, 0] ** 2, X[:, 1] + X[:, 0] * X[:, 1]], axis=1)
    at = plot.LocalEmbedding(X, Y)
    assert at.points(X) is at.Y
    np.testing.assert_allclose(at.points(X[:7]), Y[:7], atol=1e-6)
    between = rng.uniform(-0.8, 0.8, (50, 2))
    there = np.stack([between[:, 0] ** 2, between[:, 1] + between[:, 0] * between[:, 1]], axis=1)
    np.testing.assert_allclose(at.points(between), there, atol=0.1)
    inside = (np.abs(X) < 0.8).all(axis=1)
    V = rng.normal(size=X.shape)
    true = np.stack([2 * X[:, 0] * V[:, 0], X[:, 1] * V[:, 0] + (1 + X[:, 0]) * V[:, 1]], axis=1)
    error = np.linalg.norm((at.vectors(X, V) - true)[inside]) / np.linalg.norm(true[inside])
    assert error < 0.05
    with pytest.raises(ValueError, match=r"shape \(2000, 2\)"):
        plot.as_embedding(Y[:5], X)


def test_a_model_is_drawn_on_any_layout(fitted):
    data, model = fitted
    turned = data.X @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    usual, other = plot.drift(model), plot.drift(model, embedding=turned)
    a, b = (np.mean(np.stack([q.U, q.V]), axis=1) for q in (usual.collections[-1], other.collections[-1]))
    np.testing.assert_allclose(b, [-a[1], a[0]], atol=0.2 * np.abs(a).max())
    assert plot.overview(model, embedding=turned).axes
    assert plot.landscape(model, embedding=turned).get_xlabel() == "embedding 1"


def test_a_layout_with_a_tear_turns_no_vector_round(rng):
    """Angle and radius of a drift that goes round: near the cut at ±π, too, the angle rises."""
    X = rng.normal(size=(2000, 2))
    angle, radius = np.arctan2(X[:, 1], X[:, 0]), np.linalg.norm(X, axis=1)
    drift = np.stack([-X[:, 1], X[:, 0]], axis=1)
    moved = plot.LocalEmbedding(X, np.stack([angle, radius], axis=1)).vectors(X, drift)
    clear = (radius > 0.5) & (radius < 2)
    np.testing.assert_allclose(moved[clear, 0], 1, atol=0.35)
