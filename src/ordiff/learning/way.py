"""The way between snapshots, where a process passes and no samples are: states must be there too, or the chain has to
jump over it, and drift and noise come out as such jumps ask for.

Samples x and y of two snapshots that follow each other are paired by optimal transport. Between them, at the share s of
the time, a point is drawn as that of a diffusion which spreads as much as the samples do,

    x + s(y − x) + √(s(1 − s) max(var y − var x, 0)) ξ,      ξ ~ N(0, I).

Such a point is unseen when it has fewer samples near it than nearly all samples have, and a pair is when a quarter of
its way is. Where most pairs are unseen the process was on the way. Where fewer are, they may lead from branch to
branch, as when these change in size, which is no way.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from ordiff._coordinates import distinct_rows
from ordiff._polynomials import kd_tree
from ordiff._validation import Array
from ordiff.graph.search import query_tree

# Snapshots, at most: more are a continuum, of which only the beginning may be unseen.
_MOST_SNAPSHOTS = 30
# Pairs of an interval, at most, samples of a snapshot that counts, at least, and points on the way of each pair.
_PAIRS, _FEWEST, _POINTS = 200, 8, 10
# A point is seen if its so-manieth nearest sample is as near as that of this share of samples; the share of points that
# are not seen from which a pair is not, and the share of such pairs from which an interval is not.
_NEIGHBOR, _SEEN, _UNSEEN, _MOST = 8, 0.95, 0.25, 0.7
# The share of the earliest samples of a continuum that stand for its first snapshot.
_FIRST = 0.05


def unseen_way(X: Array, times: Array, start: Array, start_weights: Array) -> Array:
    """Points (p, n) on the ways that are not seen, of samples X (m, n) at their times (m,); none where all are seen."""
    rng, seen = np.random.default_rng(0), distinct_rows(X)
    if len(seen) < _FEWEST:
        return X[:0]
    tree, k = kd_tree(seen), min(_NEIGHBOR, len(seen) - 1)
    near = float(np.quantile(query_tree(tree, seen, [k + 1])[0], _SEEN))  # each is its own nearest
    first = start[rng.choice(len(start), _PAIRS, p=start_weights)]
    ways = []
    large = [snapshot for snapshot in _snapshots(X, times) if len(snapshot) >= _FEWEST]
    for a, b in pairwise([first, *large]):
        points = _between(a, b, rng)
        unseen = query_tree(tree, points.reshape(-1, X.shape[1]), [k])[0].reshape(points.shape[:2]) > near
        if (unseen.mean(axis=0) > _UNSEEN).mean() > _MOST:
            ways.append(points[unseen])
    return np.concatenate([X[:0], *ways])


def _snapshots(X: Array, times: Array) -> list[Array]:
    """The samples of each time after the start; of a continuum those of its beginning."""
    different = np.unique(times[times > 0])
    if different.size <= _MOST_SNAPSHOTS:
        return [X[times == t] for t in different]
    return [X[(times > 0) & (times <= np.quantile(times[times > 0], _FIRST))]]


def _between(a: Array, b: Array, rng: np.random.Generator) -> Array:
    """Points on the ways from a to b, (points, pairs, n)."""
    size = min(_PAIRS, len(a), len(b))
    x, y = (some[rng.choice(len(some), size, replace=False)] for some in (a, b))
    i, j = linear_sum_assignment(cdist(x, y, "sqeuclidean"))
    x, y, s = x[i], y[j], (np.arange(_POINTS)[:, None, None] + 0.5) / _POINTS
    spread = np.sqrt(s * (1 - s) * np.maximum(b.var(axis=0) - a.var(axis=0), 0.0))
    return np.asarray(x + s * (y - x) + spread * rng.standard_normal((_POINTS, *x.shape)))
