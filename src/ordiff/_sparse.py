"""The compiled loops, and nothing else.

Nearly every loop works on a range of rows of one CSR pattern, without the interpreter lock: `_threads` runs it on all
cores by giving each thread its own range. So there is one version of each loop, it compiles once (on first use,
then cached on disk), and a result does not depend on the number of threads, except in rounding for `push`, which
scatters.

Indices are viewed as unsigned (signed ones cost numba a wrap-around test per access).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ordiff import _atomic, _vector
from ordiff._check import IntArray

_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})

EMPTY = np.empty(0)


def unsigned(indices: IntArray) -> NDArray[np.unsignedinteger[Any]]:
    """The same memory as unsigned integers."""
    return indices.view(np.uint32 if indices.dtype.itemsize == 4 else np.uint64)


def index_dtype(largest: int) -> type[np.signedinteger[Any]]:
    """32-bit where it fits."""
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64


# ---------------------------------------------------------------------------------------------- graphs


@_jit
def longest_row(start, stop, indptr):  # type: ignore[no-untyped-def]
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    return longest


@_jit
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


@_jit
def take_greedily(indptr, indices, taken):  # type: ignore[no-untyped-def]
    """Keep i, in order, unless one of its row (of those before it) was kept."""
    for i in range(taken.size):
        for e in range(indptr[i], indptr[i + 1]):
            if taken[indices[e]]:
                taken[i] = False
                break


@_jit
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


@_jit
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


@_jit
def measure(start, stop, indptr, indices, X, sqdist, selves, spacing, reach):  # type: ignore[no-untyped-def]
    """`square_distances` and `row_summary`, a row at a time."""
    for i in range(start, stop):
        square_distances(i, i + 1, indptr, indices, X, sqdist)
        row_summary(i, i + 1, indptr, indices, sqdist, selves, spacing, reach)


@_jit
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


@_jit
def kth_nearest(start, stop, indptr, indices, sqdist, k, out):  # type: ignore[no-untyped-def]
    """The squared distance to the k-th nearest other of each row, or to the last of fewer; 0 if there are none."""
    others = np.empty(longest_row(start, stop, indptr))
    for i in range(start, stop):
        n = 0
        for e in range(indptr[i], indptr[i + 1]):
            others[n] = sqdist[e]
            n += indices[e] != i
        out[i] = smallest(others[:n], min(k, n) - 1) if n else 0.0


@_jit
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


@_jit
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


@_jit
def renamed_rows(start, stop, indptr, indices, rank, begins, out):  # type: ignore[no-untyped-def]
    """The pattern with its samples renamed by rank; row i goes to out[begins[i]] and on."""
    for i in range(start, stop):
        row = indices[indptr[i] : indptr[i + 1]]
        renamed = out[begins[i] : begins[i] + row.size]
        for e in range(row.size):
            renamed[e] = rank[row[e]]


@_jit
def copy_rows(start, stop, indptr, source, target, values, out):  # type: ignore[no-untyped-def]
    """Edge values of rows that begin at source[i] are copied to target[i] and on; indptr gives their lengths."""
    for i in range(start, stop):
        size = indptr[i + 1] - indptr[i]
        old, new = values[source[i] : source[i] + size], out[target[i] : target[i] + size]
        for e in range(size):  # `new[:] = old` would take seconds to compile, for the text of its errors
            new[e] = old[e]


@_jit
def gather(start, stop, order, f, out):  # type: ignore[no-untyped-def]
    """out_i = f_order[i], (m,)."""
    for i in range(start, stop):
        out[i] = f[order[i]]


@_jit
def scatter(start, stop, order, f, out):  # type: ignore[no-untyped-def]
    """out_order[i] = f_i, (m,)."""
    for i in range(start, stop):
        out[order[i]] = f[i]


@_jit
def sort_run(start, stop, order, f, out):  # type: ignore[no-untyped-def]
    """out_i = f_order[i]; without an order, f_i."""
    if f.shape[1] == 1 and order.size > 0:
        gather(start, stop, order, f.reshape(-1), out.reshape(-1))
        return
    for i in range(start, stop):
        source = order[i] if order.size > 0 else i
        for c in range(f.shape[1]):  # see `copy_rows`
            out[i, c] = f[source, c]


@_jit
def unsort_run(start, stop, order, f, out):  # type: ignore[no-untyped-def]
    """out_order[i] = f_i; without an order, out_i = f_i."""
    if f.shape[1] == 1 and order.size > 0:
        scatter(start, stop, order, f.reshape(-1), out.reshape(-1))
        return
    for i in range(start, stop):
        target = order[i] if order.size > 0 else i
        for c in range(f.shape[1]):
            out[target, c] = f[i, c]


@numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "nsz"})
def exp_row(p, top, shifted, bits):  # type: ignore[no-untyped-def]
    """p ← exp(p − top) for p ≤ top, to one unit in the last place; 0 below exp(−708).

    Without branches or calls, so that it runs in vector registers, twice as fast as the library's. exp(x) is 2ⁿ times
    the Taylor polynomial of degree 13 at r = x − n log 2, |r| ≤ ½ log 2. Adding 1.5 · 2⁵² rounds to a whole n, left
    in the low bits of the sum; ``shifted`` and ``bits`` are one scratch array seen as floats and as integers.
    """
    magic = 6755399441055744.0
    for e in range(p.size):
        p[e] -= top
        shifted[e] = max(p[e], -708.0) * 1.4426950408889634 + magic
    for e in range(p.size):
        x, n = max(p[e], -708.0), shifted[e] - magic
        r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10  # log 2 in two parts
        y = 1.0 / 6227020800
        y = y * r + 1.0 / 479001600
        y = y * r + 1.0 / 39916800
        y = y * r + 1.0 / 3628800
        y = y * r + 1.0 / 362880
        y = y * r + 1.0 / 40320
        y = y * r + 1.0 / 5040
        y = y * r + 1.0 / 720
        y = y * r + 1.0 / 120
        y = y * r + 1.0 / 24
        y = y * r + 1.0 / 6
        y = y * r + 0.5
        y = y * r + 1.0
        y = y * r + 1.0
        p[e] = 0.0 if p[e] < -708.0 else y
    for e in range(p.size):
        bits[e] = (bits[e] + 1023) << 52  # the float 2ⁿ
    for e in range(p.size):
        p[e] *= shifted[e]


@_jit
def gaussian(start, stop, indptr, indices, sqdist, left, right, out):  # type: ignore[no-untyped-def]
    """out_ij = exp(−|x_j − x_i|²/(2 left_i right_j))."""
    bits = np.empty(longest_row(start, stop, indptr), np.int64)
    shifted = bits.view(np.float64)
    for i in range(start, stop):
        scale = -0.5 / left[i]
        row = indices[indptr[i] : indptr[i + 1]]
        square, p = sqdist[indptr[i] : indptr[i + 1]], out[indptr[i] : indptr[i + 1]]
        for e in range(row.size):
            p[e] = scale * square[e] / right[row[e]]
        exp_row(p, 0.0, shifted[: row.size], bits[: row.size])


# ------------------------------------------------------------------------------------------ operators


@_jit
def exponents(  # type: ignore[no-untyped-def]
    start, stop, indptr, indices, begins, sqdist, eps, X, frame, stiffness, normal, tables, select, slope, field,
    constant, left, right, clamp, edges, out,
):  # fmt: skip
    """u_ij = [ |x_j − x_i|²_i / ε − 2 Σ_k s_k(i) Δl_k(i,j) + c(i) ] / (left_i right_j), row by row.

    Parts that are absent have size 0. Each part is a short loop over the row, which stays in the first-level cache.
    The distances of row i begin at sqdist[begins[i]]; edges and out hold the edges of these rows only.
    metric   |z|²_i = normal_i |z|² + Σ_a stiffness_ia ⟨frame_ia, z⟩²           frame (m, d, n)
    order    Σ_k slope_ki (tables[select_ki, j] − tables[select_ki, i]) + ⟨field_i, z⟩ + edges_ij
    """
    offset = indptr[start]
    n = X.shape[1]
    for i in range(start, stop):
        a = indptr[i]
        row = indices[a : indptr[i + 1]]
        u = out[a - offset : indptr[i + 1] - offset]
        d2 = sqdist[begins[i] : begins[i] + row.size]
        weight = 1.0 / eps if normal.size == 0 else normal[i] / eps
        base = constant[i] if constant.size else 0.0
        for e in range(row.size):
            u[e] = d2[e] * weight + base
        for k in range(select.shape[0]):
            values = tables[select[k, i]]
            s = -2.0 * slope[k, i]
            here = values[i]
            for e in range(row.size):
                u[e] += s * (values[row[e]] - here)
        if frame.size or field.size:
            for e in range(row.size):
                j = row[e]
                total = 0.0
                for b in range(frame.shape[1]):
                    w = 0.0
                    for c in range(n):
                        w += frame[i, b, c] * (X[j, c] - X[i, c])
                    total += stiffness[i, b] * w * w
                total /= eps
                if field.size:
                    dot = 0.0
                    for c in range(n):
                        dot += field[i, c] * (X[j, c] - X[i, c])
                    total -= 2.0 * dot
                u[e] += total
        if edges.size:
            block = edges[a - offset : indptr[i + 1] - offset]
            for e in range(row.size):
                u[e] -= 2.0 * block[e]
        scale = 1.0 / left[i]
        for e in range(row.size):
            u[e] *= scale
        if right.size:
            for e in range(row.size):
                u[e] /= right[row[e]]
        if clamp:
            for e in range(row.size):
                u[e] = max(u[e], 0.0)


@_jit
def normalise(start, stop, indptr, indices, logs, log_weight, out):  # type: ignore[no-untyped-def]
    """P from log K on the edges of these rows: exp(log K + log_weight_j) / the sum of the row, by log-sum-exp.

    logs holds these rows only, and is scratch: a row goes to out in one go, so that nothing waits for its memory.
    Returns the first row whose sum is not finite and positive, or −1; what out gets of such a row is no probability:
    −inf throughout, NaN or more than finite.
    """
    failed = -1
    offset = indptr[start]
    bits = np.empty(longest_row(start, stop, indptr), np.int64)
    shifted = bits.view(np.float64)
    for i in range(start, stop):
        row = indices[indptr[i] : indptr[i + 1]]
        p = logs[indptr[i] - offset : indptr[i + 1] - offset]
        if log_weight.size:
            for e in range(row.size):
                p[e] += log_weight[row[e]]
        top, scale = largest(p), 1.0
        right = top > -np.inf and top < np.inf
        if right:
            exp_row(p, top, shifted[: row.size], bits[: row.size])
            total = 0.0
            for e in range(row.size):
                total += p[e]
            right = total >= 1.0 and total < np.inf
            scale = 1.0 / total
        if not right and failed < 0:
            failed = i
        target = out[indptr[i] : indptr[i + 1]]
        for e in range(row.size):
            target[e] = p[e] * scale
    return failed


@_jit
def largest(values):  # type: ignore[no-untyped-def]
    """The largest; four at a time, since each comparison waits for the one before."""
    a = b = c = d = -np.inf
    whole = values.size - values.size % 4
    for e in range(0, whole, 4):
        a, b, c, d = max(a, values[e]), max(b, values[e + 1]), max(c, values[e + 2]), max(d, values[e + 3])
    for e in range(whole, values.size):
        a = max(a, values[e])
    return max(max(a, b), max(c, d))


@_jit
def pull(start, stop, indptr, indices, data, f, out, onto):  # type: ignore[no-untyped-def]
    """out = P f or, if ``onto``, out += P f; f and out are (m, c). Few columns have loops of their own."""
    if not onto:
        out[start:stop] = 0.0
    if f.shape[1] == 1:
        pull_one(start, stop, indptr, indices, data, f.reshape(-1), out.reshape(-1))
    elif f.shape[1] == 2:
        pull_two(start, stop, indptr, indices, data, f.reshape(-1), out.reshape(-1))
    else:
        pull_many(start, stop, indptr, indices, data, f, out)


@_jit
def pull_one(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out += P f."""
    for i in range(start, stop):
        out[i] += _vector.pull_row(indptr, i, indices, data, f)


@_jit
def pull_two(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out += P f for two functions, (m, 2) flattened, at little more than the cost of one."""
    for i in range(start, stop):
        row, p = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]
        a = b = 0.0
        for e in range(row.size):
            a += p[e] * f[2 * row[e]]
            b += p[e] * f[2 * row[e] + 1]
        out[2 * i] += a
        out[2 * i + 1] += b


@_jit
def pull_many(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out += P f for several functions, (m, c), four rows of f at a time to spare the sums."""
    for i in range(start, stop):
        total = out[i]
        row, p = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]
        whole = row.size - row.size % 4
        for e in range(0, whole, 4):
            a, b, c, d = f[row[e]], f[row[e + 1]], f[row[e + 2]], f[row[e + 3]]
            pa, pb, pc, pd = p[e], p[e + 1], p[e + 2], p[e + 3]
            for k in range(total.size):
                total[k] += (pa * a[k] + pb * b[k]) + (pc * c[k] + pd * d[k])
        for e in range(whole, row.size):
            a, pa = f[row[e]], p[e]
            for k in range(total.size):
                total[k] += pa * a[k]


@_jit
def pull_difference(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out = Σ_j P_ij (f_j − f_i), which is (P − I) f without its cancellation; f is (m, c)."""
    for i in range(start, stop):
        total = out[i]
        total[:] = 0.0
        here = f[i]
        for e in range(indptr[i], indptr[i + 1]):
            p = data[e]
            values = f[indices[e]]
            for c in range(total.size):
                total[c] += p * (values[c] - here[c])


@_jit
def push(start, stop, indptr, indices, data, mass, out):  # type: ignore[no-untyped-def]
    """out += Pᵀ mass, restricted to these rows of P; mass and out are (m, c)."""
    if mass.shape[1] == 1:
        push_one(start, stop, indptr, indices, data, mass.reshape(-1), out.reshape(-1))
        return
    for i in range(start, stop):
        here = mass[i]
        for e in range(indptr[i], indptr[i + 1]):
            p = data[e]
            target = out[indices[e]]
            for c in range(here.size):
                target[c] += p * here[c]


@_jit
def push_one(start, stop, indptr, indices, data, mass, out):  # type: ignore[no-untyped-def]
    """out += Pᵀ mass; the columns of a row are all different."""
    for i in range(start, stop):
        _vector.push_row(indptr, i, indices, data, mass[i], out)


@_jit
def step_moments(start, stop, indptr, indices, data, X, mean, second, out_mean, out_second):  # type: ignore[no-untyped-def]
    """Σ_j P_ij (z + m_j) and Σ_j P_ij (z zᵀ + z m_jᵀ + m_j zᵀ + S_j), z = x_j − x_i: the first two moments of a step of
    P followed by steps with moments m (m, n) and S (m, n, n)."""
    n = X.shape[1]
    z = np.empty(n)
    for i in range(start, stop):
        first, square = out_mean[i], out_second[i]
        first[:] = 0.0
        square[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            p = data[e]
            for a in range(n):
                z[a] = X[j, a] - X[i, a]
                first[a] += p * (z[a] + mean[j, a])
            for a in range(n):
                for b in range(n):
                    square[a, b] += p * (z[a] * z[b] + z[a] * mean[j, b] + mean[j, a] * z[b] + second[j, a, b])


# ------------------------------------------------------------------------------------------- quads
#
# Used by `_quads`, which says what they are.


@_jit
def count_quad_columns(indptr, indices, seen, counts):  # type: ignore[no-untyped-def]
    """The columns that each quad of rows has, (quads,); seen (n,) is −1 at first."""
    for q in range(counts.size):
        count = 0
        for e in range(indptr[_vector.ROWS * q], indptr[min(_vector.ROWS * (q + 1), indptr.size - 1)]):
            j = indices[e]
            if seen[j] != q:
                seen[j] = q
                count += 1
        counts[q] = count


@_jit
def place_in_quads(indptr, indices, ends, seen, at, columns, place):  # type: ignore[no-untyped-def]
    """The columns of each quad, sorted, and the entry of every edge; seen (n,) is −1 at first, at (n,) is scratch.

    A quad without enough columns for whole groups repeats its last.
    """
    for q in range(ends.size - 1):
        first, last = indptr[_vector.ROWS * q], indptr[min(_vector.ROWS * (q + 1), indptr.size - 1)]
        own = columns[ends[q] : ends[q + 1]]
        count = 0
        for e in range(first, last):
            j = indices[e]
            if seen[j] != q:
                seen[j], own[count] = q, j
                count += 1
        own[:count].sort()
        for c in range(count):
            at[own[c]] = _vector.ROWS * (ends[q] + c)
        for c in range(count, own.size):
            own[c] = own[count - 1]
        for r in range(min(_vector.ROWS, indptr.size - 1 - _vector.ROWS * q)):
            i = _vector.ROWS * q + r
            for e in range(indptr[i], indptr[i + 1]):
                place[e] = at[indices[e]] + r


@_jit
def fill_quads(start, stop, indptr, rows, place, values, edges, data):  # type: ignore[no-untyped-def]
    """The entries of some quads from edge values, or from values[edges]."""
    entries = data.reshape(-1)
    for q in range(start, stop):
        data[indptr[q] : indptr[q + 1]] = 0.0
        first, last = rows[_vector.ROWS * q], rows[min(_vector.ROWS * (q + 1), rows.size - 1)]
        if edges.size:
            for e in range(first, last):
                entries[place[e]] = values[edges[e]]
        else:
            for e in range(first, last):
                entries[place[e]] = values[e]


@_jit
def pull_quads(start, stop, indptr, columns, data, f, out, onto):  # type: ignore[no-untyped-def]
    """out = P f or, if ``onto``, out += P f, on a range of quads, for one function or two: (m, 1) or (m, 2)."""
    n, width = out.shape
    if not onto:
        out[_vector.ROWS * start : _vector.ROWS * stop] = 0.0
    for q in range(start, stop):
        first = _vector.ROWS * q
        whole = first + _vector.ROWS <= n
        if whole:
            target, at = out.reshape(-1), first
        else:  # the last rows, fewer than four
            target, at = np.zeros(_vector.ROWS * width), 0
        if width == 1:
            _vector.pull_four(indptr[q], indptr[q + 1], columns, data, f.reshape(-1), target, at)
        else:
            _vector.pull_four_twice(indptr[q], indptr[q + 1], columns, data, f.reshape(-1), target, at)
        if not whole:
            for i in range(first, n):
                for c in range(width):
                    out[i, c] += target[width * (i - first) + c]


# ------------------------------------------------------------------------------------ helpers and their bells
#
# Used by `_threads`. A helper is a thread that waits for work; what it has of its own is a row of eight numbers:
#
#     BELL    what its bell says: a word of those below; or the address of a job, odd when the helper is at work on it
#     LOCK    the address of a lock at which it sleeps

BELL, LOCK = 0, 1
# it waits, looking or asleep; it does tasks in Python; it should look for them
_AWAKE, _ASLEEP, _BUSY, TASK = 0, 2, 4, -1
# How often a helper looks at its bell, about 1 ms, before it falls asleep: to wake it takes 50 µs, a third of a step of
# a small operator. After a job of many steps, which can wait so long, it looks less often.
_LOOKS = 40_000


@_jit
def call(helpers, count, job):  # type: ignore[no-untyped-def]
    """Ring bells, one after the other, until so many helpers that had nothing to do are called, to a job or a `TASK`.
    One who is busy with tasks looks for more when it is done."""
    for own in helpers:
        if count <= 0:
            return
        if _atomic.replace(own, BELL, _AWAKE, job):
            count -= 1
        elif _atomic.replace(own, BELL, _ASLEEP, job):
            _atomic.release(own[LOCK])
            count -= 1
        elif job == TASK:
            _atomic.replace(own, BELL, _BUSY, TASK)


@_jit
def serve(own):  # type: ignore[no-untyped-def]
    """Do the jobs that come, until there is a `TASK`."""
    _atomic.replace(own, BELL, _BUSY, _AWAKE)
    looks = 0
    while True:
        bell = _atomic.read(own, BELL)
        if bell == _AWAKE and looks > 0:
            looks -= 1
            _atomic.pause()
        elif bell == _AWAKE:
            if _atomic.replace(own, BELL, _AWAKE, _ASLEEP):
                _atomic.acquire(own[LOCK])
        elif bell == TASK:
            _atomic.exchange(own, BELL, _BUSY)
            return
        elif _atomic.replace(own, BELL, bell, bell + 1):  # unless it has just been called off
            looks = _atomic.do(bell)
            _atomic.exchange(own, BELL, _AWAKE)


# ------------------------------------------------------------------------------------ steps, by several threads
#
# Used by `_march`, which says how. A caller of `march`, `power` or `transposed_power` and the helpers that it calls do
# the same loop (…_runs) with the same counters and arrays; when the call returns, none of them is at it any more.
#
#     helpers     those who may be called, and how many are to be
#     counters    below; 0 at first, but for the lock
#     spell       the runs after which a caller comes back to Python
#
# It returns whether all is finished; if not, it has worked for long and should be made again. A loop returns how often
# a helper then looks for the next job.

# runs taken and runs finished; how many to take in this call, how many threads have come, and a lock to nap at
_TAKEN, _FINISHED, _UNTIL, _CAME, NAP = 0, 8, 16, 17, 18
COUNTERS = 24
# how often a thread looks whether the others are ready before it lets them have its core: about 100 µs
_PATIENCE = 4_000


@_jit
def take_run(counters, runs, stages):  # type: ignore[no-untyped-def]
    """The stage and the run to do next, once all stages before are finished. The stage is ``stages`` if there is none.

    Who takes a run does it, so that nobody waits for ever.
    """
    if _atomic.read(counters, _TAKEN) >= counters[_UNTIL]:
        return stages, 0
    taken = _atomic.add(counters, _TAKEN, 1)
    stage, looks = min(taken // runs, stages), np.int64(0)
    while stage < stages and _atomic.read(counters, _FINISHED) < stage * runs:
        looks = wait(counters, looks)
    return stage, taken - stage * runs


@_jit
def wait(counters, looks):  # type: ignore[no-untyped-def]
    """A moment, after so many looks; one more."""
    if looks < _PATIENCE:
        _atomic.pause()
    else:
        _atomic.nap(counters[NAP], 50)
    return looks + 1


@_jit
def do_together(helpers, count, counters, spell, job, runs):  # type: ignore[no-untyped-def]
    """A job, until so many runs are finished or the spell is over, and whether they are."""
    counters[_UNTIL], counters[_CAME] = counters[_TAKEN] + spell, 0
    call(helpers, count, job)
    _atomic.do(job)
    call_off(helpers, counters, job)
    return counters[_FINISHED] >= runs


@_jit
def call_off(helpers, counters, job):  # type: ignore[no-untyped-def]
    """Who is at work on a job is waited for, who is not yet need not come."""
    for own in helpers:
        _atomic.replace(own, BELL, job, _AWAKE)
        looks = np.int64(0)
        while _atomic.read(own, BELL) == job + 1:
            looks = wait(counters, looks)


@_jit
def march(helpers, count, counters, spell, cuts, steps, indptr, indices, data, f, at, by, onto):  # type: ignore[no-untyped-def]
    """f[at + by] = A f[at], f[at + 2 by] = A f[at + by], …; data (E,) are those of rows, (C, 4) those of quads."""
    job = _atomic.job(march_runs, (counters, cuts, steps, indptr, indices, data, f, at, by, onto))
    return do_together(helpers, count, counters, spell, job, steps * (cuts.size - 1))


@_jit
def march_runs(counters, cuts, steps, indptr, indices, data, f, at, by, onto):  # type: ignore[no-untyped-def]
    while True:
        step, run = take_run(counters, cuts.size - 1, steps)
        if step == steps:
            break
        source, target = f[at + by * step], f[at + by * (step + 1)]
        if data.ndim == 2:
            pull_quads(cuts[run], cuts[run + 1], indptr, indices, data, source, target, onto)
        else:
            pull(cuts[run], cuts[run + 1], indptr, indices, data, source, target, onto)
        _atomic.add(counters, _FINISHED, 1)
    return _LOOKS // steps


@_jit
def power(helpers, count, counters, spell, cuts, steps, indptr, indices, data, order, f, apart, room, out):  # type: ignore[no-untyped-def]
    """out = P^steps f, in ``room`` (2 + …, m, c), of which the first two are for every other step.

    The threads sort f together, in stage 0, and put rows of the last step where they belong. If they are to keep
    ``apart``, each sorts f for itself, in a room of its own, and the caller puts the result back.
    """
    job = _atomic.job(power_runs, (counters, cuts, steps, indptr, indices, data, order, f, apart, room, out))
    finished = do_together(helpers, count, counters, spell, job, (steps + (not apart)) * (cuts.size - 1))
    if finished and apart:
        unsort_run(cuts[0], cuts[-1], order, room[steps % 2], out)
    return finished


@_jit
def power_runs(counters, cuts, steps, indptr, indices, data, order, f, apart, room, out):  # type: ignore[no-untyped-def]
    sorts = apart and order.size > 0
    first, skipped = (f, 1) if apart else (room[0], 0)
    if sorts:
        first = room[2 + _atomic.add(counters, _CAME, 1)]
    stages = 1 + steps - skipped
    while True:
        stage, run = take_run(counters, cuts.size - 1, stages)
        if stage == stages:
            break
        step = stage + skipped
        a, b, here = cuts[run], cuts[run + 1], room[step % 2]
        if step == 1 and sorts:
            sort_run(cuts[0], cuts[-1], order, f, first)
            sorts = False
        if step == 0:
            sort_run(a, b, order, f, here)
        else:
            pull(a, b, indptr, indices, data, first if step == 1 else room[(step + 1) % 2], here, False)
        if step == steps and not apart:
            unsort_run(a, b, order, here, out)
        _atomic.add(counters, _FINISHED, 1)
    return _LOOKS // steps


@_jit
def transposed_power(  # type: ignore[no-untyped-def]
    helpers, count, counters, spell, cuts, steps, indptr, indices, data, order, f, apart, here, parts, out
):
    """out = (Pᵀ)^steps f. Each step is two stages: the parts are scattered, the first time from f, and added, if the
    threads are to keep ``apart`` the last time by the caller."""
    args = (counters, cuts, steps, indptr, indices, data, order, f, apart, here, parts, out)
    job = _atomic.job(transposed_power_runs, args)
    finished = do_together(helpers, count, counters, spell, job, (2 * steps - apart) * (cuts.size - 1))
    if finished and apart:
        add_parts(cuts[0], cuts[-1], parts, here)
        unsort_run(cuts[0], cuts[-1], order, here, out)
    return finished


@_jit
def transposed_power_runs(counters, cuts, steps, indptr, indices, data, order, f, apart, here, parts, out):  # type: ignore[no-untyped-def]
    stages = 2 * steps - apart
    while True:
        stage, run = take_run(counters, cuts.size - 1, stages)
        if stage == stages:
            break
        a, b = cuts[run], cuts[run + 1]
        if stage == 0:
            sort_run(a, b, order, f, here)
        if stage % 2 == 0:
            parts[run][:] = 0.0
            push(a, b, indptr, indices, data, here, parts[run])
        else:
            add_parts(a, b, parts, here)
        if stage == 2 * steps - 1:
            unsort_run(a, b, order, here, out)
        _atomic.add(counters, _FINISHED, 1)
    return _LOOKS // steps


@_jit
def add_parts(start, stop, parts, out):  # type: ignore[no-untyped-def]
    """out = Σ_p parts_p; one long loop for each part, also if there is one column."""
    columns = out.shape[1]
    target = out.reshape(-1)[start * columns : stop * columns]
    for p in range(parts.shape[0]):
        source = parts[p].reshape(-1)[start * columns : stop * columns]
        if p == 0:
            for e in range(target.size):
                target[e] = source[e]
        else:
            for e in range(target.size):
                target[e] += source[e]


# ------------------------------------------------------------------------------------------- likelihoods
#
# Used by `inference.objective`. Blocks of records are (N, C), a row of C records per state, so that a state's
# records are one short vector; steps work on (N, F), a column per phase.


@_jit
def log_kernel(start, stop, indptr, indices, rows, sqdist, scale, tables, coefs, out):  # type: ignore[no-untyped-def]
    """out_ij = scale_i |x_j − x_i|² + Σ_k coefs_ki (tables_kj − tables_ki); row r of the pattern is state rows[r]."""
    for r in range(start, stop):
        i = rows[r]
        row = indices[indptr[r] : indptr[r + 1]]
        u, d2 = out[indptr[r] : indptr[r + 1]], sqdist[indptr[r] : indptr[r + 1]]
        for e in range(row.size):
            u[e] = scale[i] * d2[e]
        for k in range(tables.shape[0]):
            values = tables[k]
            c, here = coefs[k, i], values[i]
            for e in range(row.size):
                u[e] += c * (values[row[e]] - here)


@_jit
def exponentiate_rows(start, stop, indptr, indices, log_weight, out):  # type: ignore[no-untyped-def]
    """out_ij ← exp(out_ij + log_weight_j) over the sum of its row, by log-sum-exp.

    Returns the first row whose sum is not finite and positive, or −1.
    """
    failed = -1
    bits = np.empty(longest_row(start, stop, indptr), np.int64)
    shifted = bits.view(np.float64)
    for i in range(start, stop):
        row = indices[indptr[i] : indptr[i + 1]]
        p = out[indptr[i] : indptr[i + 1]]
        for e in range(row.size):
            p[e] += log_weight[row[e]]
        top = largest(p)
        if not (top > -np.inf and top < np.inf):
            failed = i if failed < 0 else failed
            continue
        exp_row(p, top, shifted[: row.size], bits[: row.size])
        total = 0.0
        for e in range(row.size):
            total += p[e]
        scale = 1.0 / total
        for e in range(row.size):
            p[e] *= scale
        if not (total >= 1.0 and total < np.inf):
            failed = i if failed < 0 else failed
    return failed


@_jit
def add_scaled_rows(start, stop, indptr, rows, edges, coef, out):  # type: ignore[no-untyped-def]
    """out_ij += coef_i edges_ij."""
    for r in range(start, stop):
        c = coef[rows[r]]
        for e in range(indptr[r], indptr[r + 1]):
            out[e] += c * edges[e]


@_jit
def take(start, stop, at, data, out):  # type: ignore[no-untyped-def]
    """out = data[at]."""
    for e in range(start, stop):
        out[e] = data[at[e]]


@_jit
def sampled_product(start, stop, indptr, indices, left, right, out):  # type: ignore[no-untyped-def]
    """out_ij += ⟨left_i, right_j⟩ on the pattern; left and right are (N, C). Four at a time, to load left_i once."""
    for i in range(start, stop):
        row, g = indices[indptr[i] : indptr[i + 1]], out[indptr[i] : indptr[i + 1]]
        x = left[i]
        whole = row.size - row.size % 4
        for e in range(0, whole, 4):
            y0, y1, y2, y3 = right[row[e]], right[row[e + 1]], right[row[e + 2]], right[row[e + 3]]
            t0 = t1 = t2 = t3 = 0.0
            for c in range(x.size):
                t0 += x[c] * y0[c]
                t1 += x[c] * y1[c]
                t2 += x[c] * y2[c]
                t3 += x[c] * y3[c]
            g[e] += t0
            g[e + 1] += t1
            g[e + 2] += t2
            g[e + 3] += t3
        for e in range(whole, row.size):
            y0 = right[row[e]]
            t0 = 0.0
            for c in range(x.size):
                t0 += x[c] * y0[c]
            g[e] += t0


@_jit
def steps_to_states(start, stop, steps, out):  # type: ignore[no-untyped-def]
    """(T, N, F) → (N, T F)."""
    count, phases = steps.shape[0], steps.shape[2]
    whole = count - count % 4
    for i in range(start, stop):
        row = out[i]
        for f in range(phases):
            for t in range(0, whole, 4):  # rows of neighbouring states share cache lines
                a, b, c, d = steps[t, i, f], steps[t + 1, i, f], steps[t + 2, i, f], steps[t + 3, i, f]
                at = t * phases + f
                row[at], row[at + phases], row[at + 2 * phases], row[at + 3 * phases] = a, b, c, d
            for t in range(whole, count):
                row[t * phases + f] = steps[t, i, f]


@_jit
def log_table(start, stop, mass, volumes, floor, out):  # type: ignore[no-untyped-def]
    """out = log(mass_i/v_i + floor), (N, C)."""
    for i in range(start, stop):
        for c in range(mass.shape[1]):
            out[i, c] = np.log(mass[i, c] / volumes[i] + floor)


@_jit
def states_to_steps(start, stop, parts, mass, offset, out):  # type: ignore[no-untyped-def]
    """The sum of the parts, (·, N, T F) → (T, N, F); where offset is given, divided by mass_i + offset_i.

    The first part is overwritten by the sum.
    """
    phases, n_parts = out.shape[2], parts.shape[0]
    for first in range(start, stop, 64):  # short runs, so that both sides stay in cache
        last = min(first + 64, stop)
        for b in range(1, n_parts):
            for i in range(first, last):
                for c in range(parts.shape[2]):
                    parts[0, i, c] += parts[b, i, c]
        if offset.size:
            for i in range(first, last):
                for c in range(parts.shape[2]):
                    parts[0, i, c] /= mass[i, c] + offset[i]
        for t in range(out.shape[0]):
            here = out[t]
            for i in range(first, last):
                for f in range(phases):
                    here[i, f] = parts[0, i, t * phases + f]


@_jit
def predict(low, high, i, place, indptr, indices, data, table, log, value, bits):  # type: ignore[no-untyped-def]
    """value = p̂_i of the records low .. high − 1: Σ_j B_ij table_j, or its exponential. ``bits`` is scratch."""
    width = high - low
    if indptr.size == 0:
        here = table[place[i]][low:high]
        for c in range(width):
            value[c] = here[c]
        return
    for c in range(width):
        value[c] = 0.0
    for e in range(indptr[i], indptr[i + 1]):
        b, here = data[e], table[indices[e]][low:high]
        for c in range(width):
            value[c] += b * here[c]
    if log and width < 4:
        for c in range(width):
            value[c] = np.exp(value[c])
    elif log:
        for c in range(width):
            value[c] = min(value[c], 700.0)
        exp_row(value[:width], 0.0, bits.view(np.float64)[:width], bits[:width])


@_jit
def observe(  # type: ignore[no-untyped-def]
    start, stop, seen, first, last, column, weight, offset, place, indptr, indices, data, table, log, total,
):  # fmt: skip
    """total_i += Σ_r W_ir p̂_i(r), over the records of one block.

    Visit v is observation seen[v] with the entries first[v] .. last[v] − 1 of W, of which record ``offset`` is the
    first of the block. The places of observations are B (indptr, indices, data) or, without it, the state place[i].
    """
    value, share, bits = np.empty(table.shape[1]), np.empty(table.shape[1]), np.empty(table.shape[1], np.int64)
    for v in range(start, stop):
        i = seen[v]
        low, high = column[first[v]] - offset, column[last[v] - 1] - offset + 1
        predict(low, high, i, place, indptr, indices, data, table, log, value, bits)
        share[: high - low] = 0.0
        for e in range(first[v], last[v]):
            share[column[e] - offset - low] = weight[e]
        sum_ = 0.0
        for c in range(high - low):
            sum_ += share[c] * value[c]
        total[i] += sum_


@_jit
def observe_back(  # type: ignore[no-untyped-def]
    start, stop, seen, first, last, column, weight, offset, place, indptr, indices, data, table, log, slope, out,
):  # fmt: skip
    """out_j += Σ_i slope_i W_ir B_ij (times p̂_i(r) in the log-linear form): what `observe` does, transposed."""
    value, share, bits = np.empty(table.shape[1]), np.empty(table.shape[1]), np.empty(table.shape[1], np.int64)
    for v in range(start, stop):
        i = seen[v]
        low, high = column[first[v]] - offset, column[last[v] - 1] - offset + 1
        width = high - low
        share[:width] = 0.0
        for e in range(first[v], last[v]):
            share[column[e] - offset - low] = weight[e] * slope[i]
        if log:
            predict(low, high, i, place, indptr, indices, data, table, log, value, bits)
            for c in range(width):
                share[c] *= value[c]
        if indptr.size == 0:
            target = out[place[i]][low:high]
            for c in range(width):
                target[c] += share[c]
        else:
            for e in range(indptr[i], indptr[i + 1]):
                b, target = data[e], out[indices[e]][low:high]
                for c in range(width):
                    target[c] += b * share[c]


@_jit
def record_shares(  # type: ignore[no-untyped-def]
    start, stop, seen, first, last, column, weight, offset, place, indptr, indices, data, table, log, slope, out,
):  # fmt: skip
    """out_e = slope_i W_ir (times p̂_i(r) in the log-linear form) for every entry e = (i, r) of W in the block."""
    value, bits = np.empty(table.shape[1]), np.empty(table.shape[1], np.int64)
    for v in range(start, stop):
        i = seen[v]
        low, high = column[first[v]] - offset, column[last[v] - 1] - offset + 1
        if log:
            predict(low, high, i, place, indptr, indices, data, table, log, value, bits)
        for e in range(first[v], last[v]):
            out[e] = weight[e] * slope[i] * (value[column[e] - offset - low] if log else 1.0)


@_jit
def score_record(start, stop, seen, share, place, indptr, indices, data, change, out):  # type: ignore[no-untyped-def]
    """out_i += share_v Σ_j B_ij change_j for the observations i = seen[v] of one record; change is (N, K)."""
    for v in range(start, stop):
        i = seen[v]
        target = out[i]
        if indptr.size == 0:
            here = change[place[i]]
            for c in range(target.size):
                target[c] += share[v] * here[c]
        else:
            for e in range(indptr[i], indptr[i + 1]):
                b, here = share[v] * data[e], change[indices[e]]
                for c in range(target.size):
                    target[c] += b * here[c]


@_jit
def centre_rows(start, stop, indptr, data, values):  # type: ignore[no-untyped-def]
    """values ← P ∘ (values − Σ_j P_ij values_ij): the derivative by log K from that by P; rows then sum to 0."""
    for i in range(start, stop):
        p, g = data[indptr[i] : indptr[i + 1]], values[indptr[i] : indptr[i + 1]]
        mean = 0.0
        for e in range(p.size):
            mean += p[e] * g[e]
        for e in range(p.size):
            g[e] = p[e] * (g[e] - mean)


@_jit
def row_dots(start, stop, indptr, left, right, out):  # type: ignore[no-untyped-def]
    """out_i = Σ_j left_ij right_ij."""
    for i in range(start, stop):
        a, b = left[indptr[i] : indptr[i + 1]], right[indptr[i] : indptr[i + 1]]
        total = 0.0
        for e in range(a.size):
            total += a[e] * b[e]
        out[i] = total


@_jit
def row_differences(start, stop, indptr, indices, rows, data, f, out):  # type: ignore[no-untyped-def]
    """out_r = Σ_j M_rj (f_j − f_i), i = rows[r]."""
    for r in range(start, stop):
        row, m = indices[indptr[r] : indptr[r + 1]], data[indptr[r] : indptr[r + 1]]
        here = f[rows[r]]
        total = 0.0
        for e in range(row.size):
            total += m[e] * (f[row[e]] - here)
        out[r] = total


@_jit
def column_sums(start, stop, indptr, indices, edges, data, coefs, out):  # type: ignore[no-untyped-def]
    """out_kj = Σ_i coefs_ki M_ij and, as the last row, Σ_i M_ij; the pattern is the transposed one, with its edges."""
    last = coefs.shape[0]
    for j in range(start, stop):
        row, at = indices[indptr[j] : indptr[j + 1]], edges[indptr[j] : indptr[j + 1]]
        total = 0.0
        for e in range(row.size):
            total += data[at[e]]
        out[last, j] = total
        for k in range(last):
            c = coefs[k]
            total = 0.0
            for e in range(row.size):
                total += c[row[e]] * data[at[e]]
            out[k, j] = total
