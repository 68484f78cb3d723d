"""Graphs by a distance threshold made of r_k: k nearest neighbours, their intersection and union, continuous kNN."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array
from ordiff.graph.graph import NeighborGraph, describe_components

# A factor of distances, about 1: with a much larger one all samples are neighbours.
_LARGEST_DELTA = 1e6
RULES = ("knn", "and", "or", "cknn")
# Edges of the graph in which the value that would join the parts is looked for.
_MOST_EDGES = 20_000_000


def threshold_graph(X: ArrayLike, k: int = 10, rule: str = "cknn", delta: float = 1.0) -> NeighborGraph:
    """The graph of all pairs closer than a threshold made of r_k, the distance to the k-th other sample.

    rule: "knn" d ≤ r_k(i), which is not symmetric; "and" d ≤ min(r_k(i), r_k(j)); "or" d ≤ max(r_k(i), r_k(j)); "cknn",
    the continuous k-nearest-neighbour graph, d ≤ δ √(r_k(i) r_k(j)), which follows the density and keeps the topology.
    Of samples tied at r_k(i) the first three keep as many as make k. A graph in several parts is warned of, with the
    smallest k (or δ) that joins them.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(0, 1, 50).reshape(-1, 1)
    >>> od.threshold_graph(x, k=3).n_components
    1
    """
    X = _validation.points(X).copy()
    k = _validation.count(k, "k", 1, len(X) - 1, f"There are only {len(X)} points.")
    if (delta := _validation.positive(delta, "delta")) > _LARGEST_DELTA:
        raise ValueError(f"delta must be at most {_LARGEST_DELTA:g}, it multiplies distances; got {delta:g}.")
    _validation.option(rule, "rule", RULES)
    graph = _by_rule(X, k, rule, delta)
    if graph.n_components > 1:
        _validation.warn(f"the graph has {describe_components(graph)}. {_joining_value(X, k, rule, graph)}")
    return graph


def _by_rule(X: Array, k: int, rule: str, delta: float) -> NeighborGraph:
    near = NeighborGraph._build_k(X, k, "auto", None)
    if rule == "knn":
        return near
    if rule in ("and", "or"):
        pattern = near.matrix(np.ones(near.n_edges))
        pattern = sp.csr_array(pattern.multiply(pattern.T) if rule == "and" else pattern + pattern.T)
        return NeighborGraph._finish(pattern.indptr, pattern.indices, X, near._order)
    # r_k is 1-Lipschitz, so d ≤ δ√(r_i r_j) implies d ≤ δ√(r_i (r_i + d)), that is d ≤ c r_i
    r = _validation.apart(near.radius(k), k, "threshold is 0")
    c = 0.5 * (delta**2 + np.sqrt(delta**4 + 4 * delta**2))
    wide = NeighborGraph._build_radius(X, c * r * (1 + 1e-12))
    # with room for the rounding of √, so that mutual k-th neighbours are kept
    return wide._only(wide._sqdist <= delta**2 * (1 + 1e-12) * r[wide.sources()] * r[wide._indices])


def _joining_value(X: Array, k: int, rule: str, graph: NeighborGraph) -> str:
    """The smallest k, or δ, whose graph is connected: the longest edge of a minimum spanning tree in that measure."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    m = len(X)
    most = max(k, min(m - 1, _MOST_EDGES // m))
    wide = NeighborGraph._build_k(X, most, "auto", None)
    by_row = wide.sqdist.reshape(m, most + 1)
    if rule == "cknn":
        r = np.sqrt(np.partition(by_row, k, axis=1)[:, k])
        cost = np.sqrt(wide.sqdist / np.maximum(r[wide.sources()] * r[wide.indices], np.finfo(float).tiny))
    else:
        cost = np.argsort(np.argsort(by_row, axis=1, kind="stable"), axis=1).ravel().astype(float)
    edges = wide.matrix(np.maximum(cost, np.finfo(float).tiny))  # a stored 0 would be no edge
    if rule == "and":
        both = wide.matrix(np.ones(wide.n_edges))
        edges = edges.maximum(edges.T).multiply(both.multiply(both.T))
    tree = minimum_spanning_tree(sp.csr_array(edges))  # takes the smaller of the two directions of an edge
    if tree.nnz < m - 1:
        what = "threshold" if rule == "cknn" else "k"
        return (
            f"No {what} joins them within {most} neighbours of each sample: they lie far apart. Treat the parts "
            "separately (graph.components), or remove the outliers."
        )
    longest = float(tree.data.max())
    if rule == "cknn":
        return f"The smallest delta that joins them is {np.ceil(longest * 1000) / 1000:.3f} (at k = {k})."
    return f"The smallest k that joins them is {round(longest)}."
