"""Neighbour graphs: who is near whom, as one CSR pattern with squared distances.

graph        `NeighborGraph`, built by k, by radius, or from distances
threshold    graphs by a distance threshold
geodesic     an ordering along the graph
layout       the order in which operators on a graph keep its samples in memory
search       neighbour search
"""

from ordiff.graph.geodesic import geodesic_order
from ordiff.graph.graph import NeighborGraph
from ordiff.graph.threshold import threshold_graph

__all__ = ["NeighborGraph", "geodesic_order", "threshold_graph"]
