"""Neighbour lists: sorting, distances, selection of the nearest."""

from __future__ import annotations

import numpy as np

from ordiff._compiled.csr import loop, vector_loop
from ordiff._compiled.transition import longest_row


@loop
def self_and_sort(start, stop, indptr, indices):  # type: ignore[no-untyped-def]
    """Each row gets its own index (in place of its last entry where it is missing), then is sorted. Whether all entries
    of each row are different."""
    distinct = True
    for i in range(start, stop):
        row = indices[indptr[i] : indptr[i + 1]]
        found = False
        for e in range(row.size):
            if row[e] == i:
                found = True
        if not found:
            row[row.size - 1] = i
        row.sort()
        for e in range(1, row.size):
            distinct &= row[e] != row[e - 1]
    return distinct


@loop
def take_greedily(indptr, indices, taken):  # type: ignore[no-untyped-def]
    """Keep i, in order, unless one of its row (of those before it) was kept."""
    for i in range(taken.size):
        for e in range(indptr[i], indptr[i + 1]):
            if taken[indices[e]]:
                taken[i] = False
                break


@loop
def square_distances(start, stop, indptr, indices, X, out):  # type: ignore[no-untyped-def]
    """out_ij = |x_j − x_i|²; exactly 0 for coincident points, unlike |x|² − 2xy + |y|²."""
    for i in range(start, stop):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            total = 0.0
            for c in range(X.shape[1]):
                z = X[j, c] - X[i, c]
                total += z * z
            out[e] = total


@loop
def row_summary(start, stop, indptr, indices, sqdist, selves, spacing, reach):  # type: ignore[no-untyped-def]
    """Of each row: the edge to itself, the squared distance to the nearest other, and that to the farthest."""
    for i in range(start, stop):
        nearest, farthest = np.inf, 0.0
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] == i:
                selves[i] = e
            else:
                nearest = min(nearest, sqdist[e])
                farthest = max(farthest, sqdist[e])
        spacing[i] = nearest
        reach[i] = farthest


@loop
def measure(start, stop, indptr, indices, X, sqdist, selves, spacing, reach):  # type: ignore[no-untyped-def]
    """`square_distances` and `row_summary`, a row at a time."""
    for i in range(start, stop):
        square_distances(i, i + 1, indptr, indices, X, sqdist)
        row_summary(i, i + 1, indptr, indices, sqdist, selves, spacing, reach)


@loop
def nearest(start, stop, indptr, indices, sqdist, k, neighbors, distances):  # type: ignore[no-untyped-def]
    """The k nearest others of each row, nearest first: their indices and distances, (m, k) each.

    By insertion into the k best so far; a row with fewer leaves the rest as it was.
    """
    for i in range(start, stop):
        near, far = neighbors[i], distances[i]
        taken = 0
        for e in range(indptr[i], indptr[i + 1]):
            j, d = indices[e], sqdist[e]
            if j == i or (taken == k and not d < far[k - 1]):
                continue
            at = taken if taken < k else k - 1
            while at > 0 and d < far[at - 1]:
                far[at], near[at] = far[at - 1], near[at - 1]
                at -= 1
            far[at], near[at] = d, j
            taken = min(taken + 1, k)
        for c in range(taken):
            far[c] = np.sqrt(far[c])


@loop
def kth_nearest(start, stop, indptr, indices, sqdist, k, out):  # type: ignore[no-untyped-def]
    """The squared distance to the k-th nearest other of each row, or to the last of fewer; 0 if there are none."""
    others = np.empty(longest_row(start, stop, indptr))
    for i in range(start, stop):
        n = 0
        for e in range(indptr[i], indptr[i + 1]):
            others[n] = sqdist[e]
            n += indices[e] != i
        out[i] = smallest(others[:n], min(k, n) - 1) if n else 0.0


@loop
def smallest(values, rank):  # type: ignore[no-untyped-def]
    """The number that has this rank, from 0 on, among values, which are left in another order.

    By quickselect, whose moves do not depend on comparisons, so that the processor need not guess their outcome.
    """
    low, high = 0, values.size
    while True:
        a, b, c = values[low], values[(low + high) // 2], values[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))  # the middle one
        below = low
        for e in range(low, high):
            x = values[e]
            values[e] = values[below]
            values[below] = x
            below += x < pivot
        if rank < below:
            high = below
            continue
        low = below
        for e in range(low, high):
            x = values[e]
            values[e] = values[below]
            values[below] = x
            below += x <= pivot
        if rank < below:
            return pivot
        low = below


@loop
def breadth_first(indptr, indices, seen, order):  # type: ignore[no-untyped-def]
    """The samples in the order in which a search along the edges meets them; it starts anew where it ends."""
    met = 0
    for root in range(seen.size):
        done = met
        if not seen[root]:
            seen[root], order[met] = True, root
            met += 1
        while done < met:
            i = order[done]
            done += 1
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                if not seen[j]:
                    seen[j], order[met] = True, j
                    met += 1


@loop
def renamed_rows(start, stop, indptr, indices, rank, begins, out):  # type: ignore[no-untyped-def]
    """The pattern with its samples renamed by rank; row i goes to out[begins[i]] and on."""
    for i in range(start, stop):
        row = indices[indptr[i] : indptr[i + 1]]
        renamed = out[begins[i] : begins[i] + row.size]
        for e in range(row.size):
            renamed[e] = rank[row[e]]


@loop
def insert(near, far, j, d):  # type: ignore[no-untyped-def]
    """Put j at this distance in place of the last of a sorted row."""
    at = near.size - 1
    while at > 0 and d < far[at - 1]:
        far[at], near[at] = far[at - 1], near[at - 1]
        at -= 1
    far[at], near[at] = d, j


@vector_loop
def square_distance(x, y):  # type: ignore[no-untyped-def]
    """|x − y|² in the precision of x."""
    total = x.dtype.type(0)
    for c in range(x.size):
        z = x[c] - y[c]
        total += z * z
    return total


@loop
def nearest_candidates(start, stop, X, candidates, near, far):  # type: ignore[no-untyped-def]
    """The nearest of the candidates of rows start … stop − 1, of which those below 0 are none, and their squared
    distances, (m, k), sorted; the row itself at infinity where there are fewer."""
    for i in range(start, stop):
        row, reach = near[i], far[i]
        row[:] = i
        reach[:] = np.inf
        for j in candidates[i - start]:
            if j >= 0:
                d = square_distance(X[i], X[j])
                if d < reach[-1]:
                    insert(row, reach, j, d)


@loop
def link_back(start, stop, near, far, known, links, reach):  # type: ignore[no-untyped-def]
    """links[j], at the squared distances reach[j], takes the nearest that have j among theirs and are not known to j.

    For j from start to stop − 1.
    """
    for i in range(near.shape[0]):
        for e in range(near.shape[1]):
            j = near[i, e]
            if start <= j < stop and far[i, e] < reach[j, -1]:
                taken = False
                for other in known[j]:
                    taken |= other == i
                if not taken:
                    insert(links[j], reach[j], i, far[i, e])


@loop
def neighbors_of_neighbors(start, stop, X, near, back, closer, reach):  # type: ignore[no-untyped-def]
    """closer, at the squared distances reach, (m, k) and sorted, takes the nearest of what is linked, near or back, to
    a row or to those near it."""
    k = near.shape[1]
    seen = np.zeros(X.shape[0], np.uint32)
    candidates = np.empty((k + 1) * (k + back.shape[1]), near.dtype)
    squares = np.empty(candidates.size, reach.dtype)
    for i in range(start, stop):
        n, mark = 0, np.uint32(i - start + 1)
        seen[i] = mark
        for e in range(k):
            seen[near[i, e]] = mark
        for e in range(k + 1):
            through = near[i, e] if e < k else np.uint32(i)
            for linked in (near[through], back[through]):
                for j in linked:
                    candidates[n] = j
                    n += seen[j] != mark
                    seen[j] = mark
        for c in range(n):
            squares[c] = square_distance(X[i], X[candidates[c]])
        for c in range(n):
            if squares[c] < reach[i, -1]:
                insert(closer[i], reach[i], candidates[c], squares[c])
