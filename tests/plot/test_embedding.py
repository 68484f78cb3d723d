from __future__ import annotations

import numpy as np

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
