"""The branches of samples along an ordering: the basins of its maxima.

The samples are passed from the largest value of the ordering to the smallest, on a graph of near neighbours. One
without a neighbour that was passed before is a new maximum; another joins the basin of its neighbour of the largest
value. Where two basins meet at a value l, the lower maximum is one of its own if it is more than a share of the span of
the ordering above l, and else becomes part of the other (F. Chazal et al., J. ACM 60, 41, 2013).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ordiff._validation import Array

_NEIGHBOURS, _MOST_SAMPLES = 15, 4000
# A maximum is one of its own when it stands out by this share of the span of the ordering; a branch has at least this
# share of the samples.
_PERSISTENCE, _LEAST = 0.15, 0.03


def branches(X: Array, ordering: Array) -> Any:
    """The branch (m,) that each sample (m, n) is on, from 0, the largest, on; all 0 when there is one."""
    m = len(X)
    some = np.arange(m)
    if m > _MOST_SAMPLES:
        some = np.sort(np.random.default_rng(0).choice(m, _MOST_SAMPLES, replace=False))
    if m <= _NEIGHBOURS or not np.ptp(ordering) > 0:
        return np.zeros(m, dtype=np.int64)
    near = NearestNeighbors(n_neighbors=min(_NEIGHBOURS, len(some))).fit(X[some]).kneighbors(return_distance=False)
    low, high = np.quantile(ordering, [0.01, 0.99])
    basin = _basins(ordering[some], near, _PERSISTENCE * (high - low))
    roots, sizes = np.unique(basin, return_counts=True)
    large = roots[sizes >= _LEAST * len(some)]
    if len(large) < 2:
        return np.zeros(m, dtype=np.int64)
    label = np.full(len(some), -1)
    for k, root in enumerate(sorted(large, key=lambda one: -sizes[roots == one][0])):
        label[basin == root] = k
    known = np.flatnonzero(label >= 0)
    nearest = NearestNeighbors(n_neighbors=1).fit(X[some[known]]).kneighbors(X, return_distance=False)[:, 0]
    return label[known[nearest]]


def _basins(l: Array, near: Any, persistence: float) -> Any:
    """The maximum, by its number, whose basin each sample is in; near: neighbours of each, (m, k)."""
    parent = np.full(l.size, -1)

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    both: list[set[int]] = [set() for _ in range(l.size)]
    for i, row in enumerate(near):
        for j in row:
            both[i].add(int(j))
            both[int(j)].add(i)
    for i in (int(k) for k in np.argsort(-l, kind="stable")):
        passed = [j for j in both[i] if parent[j] >= 0]
        if not passed:
            parent[i] = i
            continue
        parent[i] = root(max(passed, key=lambda j: l[j]))
        for j in passed:
            a, b = sorted((root(i), root(j)), key=lambda one: -l[one])
            if a != b and l[b] - l[i] < persistence:
                parent[b] = a
    return np.array([root(i) for i in range(l.size)])
