"""Exponential tilting: the slope along an ordering at which a step raises it by a given share of its spread.

The rows of a chain are tilted to P_ij e^{s_i Δl_ij} / Σ_n P_in e^{s_i Δl_in}. `tilt_slopes` finds s, block by block;
`WeightedRows` holds the rows of one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array, IntArray
from ordiff.graph import NeighborGraph
from ordiff.kernel.ordering import Ordering
from ordiff.operator import MarkovOperator

# Edges of one block of rows: bounds the temporary arrays.
_BLOCK_EDGES = 2_000_000
# Halvings of the interval that holds a slope: 2⁻⁴⁰ of it is left.
_BISECTIONS = 40


def tilt_slopes(base: MarkovOperator, ordering: Ordering, shift: ArrayLike) -> Array:
    """The slope s at every sample, (m,), such that the row P_ij e^{s_i Δl_ij} has a mean Δl greater by ``shift``.

    The shift, a number or (m,), is in standard deviations of Δl over the neighbours, weighted by P, the sample itself
    left out. For a gaussian Δl it is s = shift/sd; where a few neighbours far ahead would take all the mass it is less.
    """
    graph, slopes = base.graph, np.zeros(base.graph.n_points)
    z = _validation.node_or_scalar(shift, graph.n_points, "forward")
    if (z == 0).all():
        return slopes
    weights = base.matrix.data.copy()
    weights[graph.selves] = 0.0
    for start, stop in _row_blocks(graph):
        edges = slice(int(graph.indptr[start]), int(graph.indptr[stop]))
        i, j = graph.sources(start, stop), graph.indices[edges].astype(np.intp)
        rows = WeightedRows(graph.indptr[start:stop] - edges.start, i - start, weights[edges])
        slopes[start:stop] = rows.slopes(ordering.differences(graph, i, j), z[start:stop])
    return slopes


def _row_blocks(graph: NeighborGraph) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most _BLOCK_EDGES edges, or one row."""
    start = 0
    while start < graph.n_points:
        stop = int(np.searchsorted(graph.indptr, graph.indptr[start] + _BLOCK_EDGES, side="right")) - 1
        stop = min(max(stop, start + 1), graph.n_points)
        yield start, stop
        start = stop


@dataclass(frozen=True, eq=False)
class WeightedRows:
    """Some rows of a chain: the first edge of each (r,), the row of every edge (E,), and weights (E,)."""

    first: IntArray
    row: IntArray
    weights: Array

    def mean(self, values: Array, slope: Array) -> Array:
        """Σ_j w_ij e^{s_i v_ij} v_ij / Σ_j w_ij e^{s_i v_ij}, (r,), for values v (E,) and slopes s (r,).

        It is 0 in rows without weight. The largest exponent of a row is subtracted, so that nothing overflows.
        """
        exponent = np.where(self.weights > 0, slope[self.row] * values, -np.inf)
        top = np.maximum.reduceat(exponent, self.first)
        w = self.weights * np.exp(exponent - np.where(np.isfinite(top), top, 0.0)[self.row])
        total = np.add.reduceat(w, self.first)
        return np.divide(np.add.reduceat(w * values, self.first), total, out=np.zeros_like(total), where=total > 0)

    def slopes(self, values: Array, shift: Array) -> Array:
        """The slopes (r,) at which the mean of the values is greater by ``shift`` standard deviations.

        The mean rises with the slope, so bisection between 0 and shift/sd finds it; shift/sd itself is taken where the
        mean rises less than asked for. Rows of equal values have slope 0.
        """
        zero = np.zeros(len(self.first))
        mean = self.mean(values, zero)
        sd = np.sqrt(self.mean((values - mean[self.row]) ** 2, zero))
        varies = sd > 1e-9 * np.maximum.reduceat(np.abs(values), self.first)
        high = np.divide(np.abs(shift), sd, out=zero.copy(), where=varies)
        sign, target = np.sign(shift), np.abs(shift) * sd
        values, mean = values * sign[self.row], mean * sign  # a shift down in l is one up in −l
        over = self.mean(values, high) - mean > target
        low = np.where(over, 0.0, high)
        for _ in range(_BISECTIONS if over.any() else 0):
            middle = 0.5 * (low + high)
            above = self.mean(values, middle) - mean > target
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return sign * 0.5 * (low + high)
