"""The way between snapshots, where a process passes and no samples are: states must be there too, or the chain has to
jump over it, and drift and noise come out as such jumps ask for.

Samples x and y of two snapshots that follow each other are paired by optimal transport. Between them, at the share s of
the time, a point is drawn as that of a diffusion which spreads as much as the samples do,

    x + s(y − x) + √(s(1 − s) max(var y − var x, 0)) ξ,      ξ ~ N(0, I).

Such a point is unseen when it has fewer samples near it than nearly all samples have. An interval in which a quarter of
them are is one whose way is not seen. Fewer may be pairs between branches that change in size, which are no way.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from ordiff._polynomials import kd_tree
from ordiff._validation import Array
from ordiff.graph.search import query_tree

# Snapshots, at most: more are a continuum, of which only the beginning may be unseen.
_MOST_SNAPSHOTS = 30
# Pairs of an interval, and points on their ways.
_PAIRS, _POINTS = 300, 1_000
# A point is seen if its so-manieth nearest sample is as near as that of this share of samples; and the share of points
# that are not seen from which a way is not.
_NEIGHBOR, _SEEN, _UNSEEN = 8, 0.95, 0.25
# The share of the earliest samples of a continuum that stand for its first snapshot.
_FIRST = 0.05


def unseen_way(X: Array, times: Array, start: Array, start_weights: Array) -> Array:
    """Points (p, n) on the ways that are not seen, of samples X (m, n) at their times (m,); none where all are seen."""
    rng, tree = np.random.default_rng(0), kd_tree(X)
    k = min(_NEIGHBOR, len(X) - 1)
    near = float(np.quantile(query_tree(tree, X, [k + 1])[0], _SEEN))  # each is its own nearest
    first = start[rng.choice(len(start), _PAIRS, p=start_weights)]
    ways = []
    for a, b in pairwise([first, *_snapshots(X, times)]):
        points = _between(a, b, rng)
        unseen = query_tree(tree, points, [k])[0][:, 0] > near
        if unseen.mean() > _UNSEEN:
            ways.append(points[unseen])
    return np.concatenate([X[:0], *ways])


def _snapshots(X: Array, times: Array) -> list[Array]:
    """The samples of each time after the start; of a continuum those of its beginning."""
    different = np.unique(times[times > 0])
    if different.size <= _MOST_SNAPSHOTS:
        return [X[times == t] for t in different]
    return [X[(times > 0) & (times <= np.quantile(times[times > 0], _FIRST))]]


def _between(a: Array, b: Array, rng: np.random.Generator) -> Array:
    """Points on the ways from a to b."""
    size = min(_PAIRS, len(a), len(b))
    x, y = (some[rng.choice(len(some), size, replace=False)] for some in (a, b))
    i, j = linear_sum_assignment(cdist(x, y, "sqeuclidean"))
    pair, s = rng.integers(size, size=_POINTS), rng.random((_POINTS, 1))
    x, y = x[i][pair], y[j][pair]
    spread = np.sqrt(s * (1 - s) * np.maximum(b.var(axis=0) - a.var(axis=0), 0.0))
    return np.asarray(x + s * (y - x) + spread * rng.standard_normal(x.shape))
