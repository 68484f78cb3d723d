"""Markov chains given by their matrix."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

import ordiff as od


def chain(P, eps=1.0):
    """An operator with this matrix; only where P is not 0, and on the diagonal."""
    P = sp.coo_array(P)
    off = P.row != P.col
    distances = sp.csr_array((np.ones(off.sum()), (P.row[off], P.col[off])), shape=P.shape)
    graph = od.NeighborGraph.from_distances(distances)
    return od.MarkovOperator(graph, P.toarray()[graph.sources(), graph.indices], eps, np.ones(P.shape[0]))
