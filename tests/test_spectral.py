from __future__ import annotations

import numpy as np
import pytest

import ordiff as od


def test_circle_eigenvalues_tend_to_minus_half_k_squared():
    theta = 2 * np.pi * np.arange(300) / 300
    graph = od.NeighborGraph.build(np.stack([np.cos(theta), np.sin(theta)], 1), k=299)
    want = -0.5 * np.array([0, 1, 1, 4, 4, 9, 9])
    errors = []
    for eps in (0.01, 0.005):
        values, functions = od.eigenbasis(graph, eps, 7)
        errors.append(abs(values - want).max())
        assert abs(functions[:, 0] - functions[0, 0]).max() < 1e-9
        np.testing.assert_allclose(functions.T @ functions / 300, np.eye(7), atol=1e-9)
    assert errors[1] < 0.12
    assert np.log2(errors[0] / errors[1]) == pytest.approx(1.0, abs=0.1)


def test_eigenpairs_are_those_of_the_operator(rng):
    X = rng.normal(size=(200, 2))
    graph = od.NeighborGraph.build(X, radius=2.5)
    q = rng.uniform(0.5, 2, 200)
    values, functions = od.eigenbasis(graph, 0.1, 6, density=q)
    op = od.Kernel().operator(graph, 0.1, density=q)
    np.testing.assert_allclose(op.generator(functions), values * functions, atol=1e-9)
    assert (od.eigenbasis(graph, 0.1, 6, density=q).functions == functions).all()
    # orthonormal under the weights that P conserves
    K = np.exp(-graph.sqdist / 0.2) / q[graph.sources()] / q[graph.indices]
    conserved = np.bincount(graph.sources(), K)
    conserved /= conserved.sum()
    np.testing.assert_allclose(functions.T @ (conserved[:, None] * functions), np.eye(6), atol=1e-9)


def test_a_graph_in_parts_is_told(rng):
    X = np.concatenate([rng.normal(size=(50, 2)), rng.normal(size=(50, 2)) + 50])
    with pytest.warns(od.OrdiffWarning, match="the graph has 2 parts"):
        values, _ = od.eigenbasis(od.NeighborGraph.build(X, k=20), 0.1, 4)
    assert abs(values[1]) < 1e-5


def test_a_one_sided_graph_is_made_symmetric(rng):
    graph = od.NeighborGraph.build(rng.normal(size=(200, 2)), k=10)
    values, _ = od.eigenbasis(graph, 0.1, 4)
    assert values[0] == pytest.approx(0.0, abs=1e-9)
    assert (np.diff(values) < 1e-12).all()
