"""An ordering where none is known: the distance from the start along the graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array
from ordiff.graph.graph import NeighborGraph


def geodesic_order(graph: NeighborGraph, start: ArrayLike) -> Array:
    """The distance from the start along the graph, (m,): an ordering where none is known.

    start: a sample's index, several indices, a point (n,) of decimal numbers (the nearest sample is taken), or an
    initial mass on the samples (m,), for which it is the expected distance. Use a graph of short edges, such as that
    of `threshold_graph`.

    >>> import numpy as np, ordiff as od
    >>> x = np.linspace(0, 1, 50).reshape(-1, 1)
    >>> l = od.geodesic_order(od.threshold_graph(x, k=3), start=0)
    >>> bool(np.allclose(l, x[:, 0]))
    True
    """
    _validation.instance(graph, "graph", NeighborGraph)
    array = np.atleast_1d(_validation.as_array(start, "start"))
    n = None if graph.X is None else graph.X.shape[1]
    if array.dtype.kind in "iu" and array.shape != (graph.n_points,):
        if array.shape == (n,) and array.size > 1:
            raise ValueError(
                f"start = {array.tolist()} may be a point or {n} samples: write a point with decimals "
                f"({array.astype(float).tolist()}), and use graph.geodesic for indices."
            )
        return graph.geodesic(array)
    if array.shape == (graph.n_points,) and n != graph.n_points:
        mass = _validation.nodes(array, graph.n_points, "start")
        if not mass.any():
            raise ValueError("start is a mass of 0 at every sample.")
        return graph.geodesic(np.flatnonzero(mass), mass[mass != 0])
    X = _validation.need_points(graph.X, "a start given by its coordinates")
    point = _validation.nodes(array, X.shape[1], "start")
    distance = np.linalg.norm(X - point, axis=1)
    nearest = int(np.argmin(distance))
    typical = float(np.sqrt(np.median(graph.reach)))
    if distance[nearest] > 10 * typical:
        raise ValueError(
            f"the start is {distance[nearest]:.3g} from the nearest sample ({nearest}), more than ten times the reach "
            f"of the graph ({typical:.3g}): check its coordinates and units."
        )
    return graph.geodesic(nearest)
