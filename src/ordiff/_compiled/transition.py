"""The log-kernel and the row softmax: every transition matrix of the package is made by these two loops."""

from __future__ import annotations

import numpy as np

from ordiff._compiled.csr import compiled, loop, vector_loop


@loop
def longest_row(start, stop, indptr):  # type: ignore[no-untyped-def]
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    return longest


@loop
def log_kernel(  # type: ignore[no-untyped-def]
    start, stop, indptr, indices, rows, begins, sqdist, eps, X, frame, stiffness, normal, tables, select, slope, field,
    constant, left, right, clamp, edges, out,
):  # fmt: skip
    """u_ij = [ |x_j − x_i|²_i / ε − 2 Σ_k s_k(i) Δl_k(i,j) + c(i) ] / (left_i right_j), row by row.

    With left = −2ρ² it is log K of the gaussian kernel. Parts that are absent have size 0. Each part is a short loop
    over the row, which stays in the first-level cache. Row r of the pattern is sample i = rows[r]; its distances begin
    at sqdist[begins[r]]; ``edges`` and ``out`` hold the edges of these rows only.
    metric   |z|²_i = normal_i |z|² + Σ_a stiffness_ia ⟨frame_ia, z⟩²           frame (m, d, n)
    order    Σ_k slope_ki (tables[select_ki, j] − tables[select_ki, i]) + ⟨field_i, z⟩ + edges_ij
    """
    offset = indptr[start]
    n = X.shape[1]
    for r in range(start, stop):
        i = rows[r]
        row = indices[indptr[r] : indptr[r + 1]]
        u = out[indptr[r] - offset : indptr[r + 1] - offset]
        d2 = sqdist[begins[r] : begins[r] + row.size]
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
            local = edges[indptr[r] - offset : indptr[r + 1] - offset]
            for e in range(row.size):
                u[e] -= 2.0 * local[e]
        scale = 1.0 / left[i]
        for e in range(row.size):
            u[e] *= scale
        if right.size:
            for e in range(row.size):
                u[e] /= right[row[e]]
        if clamp:
            for e in range(row.size):
                u[e] = max(u[e], 0.0)


@vector_loop
def softmax_rows(start, stop, indptr, indices, rows, logs, log_weight, log_self, out, log_sum):  # type: ignore[no-untyped-def]
    """P from log K on the edges of these rows: exp(log K + log_weight_j) over the sum of its row, by log-sum-exp.

    ``log_self`` is added where j is the row's own sample, rows[r]. ``logs`` holds these rows only, and is overwritten;
    ``log_sum`` (rows,), if wanted, gets the logarithm of the sum. Returns the first row whose sum is not finite and
    positive, or −1; what ``out`` gets of such a row is no probability: −inf throughout, NaN or more than finite.
    """
    failed = -1
    offset = indptr[start]
    bits = np.empty(longest_row(start, stop, indptr), np.int64)
    shifted = bits.view(np.float64)
    for r in range(start, stop):
        row = indices[indptr[r] : indptr[r + 1]]
        p = logs[indptr[r] - offset : indptr[r + 1] - offset]
        if log_weight.size:
            add_gathered(row, log_weight, p)
        if log_self != 0.0:
            for e in range(row.size):
                if row[e] == rows[r]:
                    p[e] += log_self
        top, scale = largest(p), 1.0
        right = top > -np.inf and top < np.inf
        if right:
            exp_shifted(p, top, shifted[: row.size], bits[: row.size])
            total = 0.0
            for e in range(row.size):
                total += p[e]
            right = total >= 1.0 and total < np.inf
            scale = 1.0 / total
            if log_sum.size:
                log_sum[r] = top + np.log(total)
        if not right and failed < 0:
            failed = r
        target = out[indptr[r] : indptr[r + 1]]
        for e in range(row.size):
            target[e] = p[e] * scale
    return failed


@loop
def add_gathered(row, values, out):  # type: ignore[no-untyped-def]
    for e in range(row.size):
        out[e] += values[row[e]]


@vector_loop
def largest(values):  # type: ignore[no-untyped-def]
    """The largest; four at a time, since each comparison waits for the one before."""
    a = b = c = d = -np.inf
    whole = values.size - values.size % 4
    for e in range(0, whole, 4):
        a, b, c, d = max(a, values[e]), max(b, values[e + 1]), max(c, values[e + 2]), max(d, values[e + 3])
    for e in range(whole, values.size):
        a = max(a, values[e])
    return max(max(a, b), max(c, d))


@compiled(fastmath={"contract", "nsz"})
def exp_shifted(p, top, shifted, bits):  # type: ignore[no-untyped-def]
    """p ← exp(p − top) for p ≤ top, to one unit in the last place; 0 below exp(−708).

    Without branches or calls, so that it runs in vector registers, twice as fast as the library's. exp(x) is 2ⁿ times
    the Taylor polynomial of degree 13 at r = x − n log 2, |r| ≤ ½ log 2. Adding 1.5 · 2⁵² rounds to a whole n, left
    in the low bits of the sum; ``shifted`` and ``bits`` are one array seen as floats and as integers.
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


@loop
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
        exp_shifted(p, 0.0, shifted[: row.size], bits[: row.size])


@vector_loop
def centre_rows(start, stop, indptr, data, values):  # type: ignore[no-untyped-def]
    """values ← P ∘ (values − Σ_j P_ij values_ij): the derivative by log K from that by P; rows then sum to 0."""
    for i in range(start, stop):
        p, g = data[indptr[i] : indptr[i + 1]], values[indptr[i] : indptr[i + 1]]
        mean = 0.0
        for e in range(p.size):
            mean += p[e] * g[e]
        for e in range(p.size):
            g[e] = p[e] * (g[e] - mean)
