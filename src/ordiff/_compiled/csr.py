"""Products with sparse matrices in CSR form (indptr, indices, data), on ranges of rows; functions are (m, c)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordiff._signals import deferred_interrupts

with deferred_interrupts():
    import numba


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: numba with these options. An interrupt waits until a compilation is done: in its middle it would be
    swallowed, or come out as another error."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(nogil=True, cache=True, error_model="numpy", **options)(function)
        if hasattr(dispatcher, "compile"):  # else the loops are plain Python
            dispatcher.compile = deferred_interrupts()(dispatcher.compile)
        return dispatcher

    return decorate


# Sums of gathered values must not be reassociated: the compiler would gather into vector registers, which is several
# times slower than scalar loads on common processors. Loops over contiguous memory may be (`vector_loop`).
loop = compiled(fastmath={"contract", "nsz", "arcp"})
vector_loop = compiled(fastmath={"contract", "nsz", "arcp", "reassoc"})

EMPTY = np.empty(0)


def unsigned(indices: Any) -> NDArray[np.unsignedinteger[Any]]:
    """The same memory as unsigned integers."""
    return indices.view(np.uint32 if indices.dtype.itemsize == 4 else np.uint64)


def index_dtype(largest: int) -> type[np.signedinteger[Any]]:
    """32-bit where it fits."""
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64


@loop
def multiply(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out = A f. One and two columns have loops of their own."""
    if f.shape[1] == 1:
        multiply_one(start, stop, indptr, indices, data, f.reshape(-1), out.reshape(-1))
    elif f.shape[1] == 2:
        multiply_two(start, stop, indptr, indices, data, f.reshape(-1), out.reshape(-1))
    else:
        for i in range(start, stop):
            for c in range(f.shape[1]):
                out[i, c] = 0.0
        multiply_add(start, stop, indptr, indices, data, f, out)


@loop
def multiply_one(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out = A f for one function, (m,); four sums, since each addition waits for the one before."""
    for i in range(start, stop):
        row, p = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]
        s0 = s1 = s2 = s3 = 0.0
        whole = row.size - row.size % 4
        for e in range(0, whole, 4):
            s0 += p[e] * f[row[e]]
            s1 += p[e + 1] * f[row[e + 1]]
            s2 += p[e + 2] * f[row[e + 2]]
            s3 += p[e + 3] * f[row[e + 3]]
        for e in range(whole, row.size):
            s0 += p[e] * f[row[e]]
        out[i] = (s0 + s1) + (s2 + s3)


@loop
def multiply_two(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out = A f for two functions, (m, 2) flattened, at little more than the cost of one."""
    for i in range(start, stop):
        row, p = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]
        s0 = t0 = s1 = t1 = 0.0
        whole = row.size - row.size % 2
        for e in range(0, whole, 2):
            j, k = 2 * row[e], 2 * row[e + 1]
            s0 += p[e] * f[j]
            t0 += p[e] * f[j + 1]
            s1 += p[e + 1] * f[k]
            t1 += p[e + 1] * f[k + 1]
        for e in range(whole, row.size):
            j = 2 * row[e]
            s0 += p[e] * f[j]
            t0 += p[e] * f[j + 1]
        out[2 * i], out[2 * i + 1] = s0 + s1, t0 + t1


@loop
def multiply_add(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out += A f for several functions, four rows of f at a time so that the sums are loaded less often."""
    for i in range(start, stop):
        total = out[i]
        row, p = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]]
        whole = row.size - row.size % 4
        for e in range(0, whole, 4):
            f0, f1, f2, f3 = f[row[e]], f[row[e + 1]], f[row[e + 2]], f[row[e + 3]]
            p0, p1, p2, p3 = p[e], p[e + 1], p[e + 2], p[e + 3]
            for c in range(total.size):
                total[c] += (p0 * f0[c] + p1 * f1[c]) + (p2 * f2[c] + p3 * f3[c])
        for e in range(whole, row.size):
            f0, p0 = f[row[e]], p[e]
            for c in range(total.size):
                total[c] += p0 * f0[c]


@loop
def increment(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out = Σ_j P_ij (f_j − f_i), which is (P − I) f without its cancellation."""
    for i in range(start, stop):
        total, here = out[i], f[i]
        for c in range(total.size):
            total[c] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            p, there = data[e], f[indices[e]]
            for c in range(total.size):
                total[c] += p * (there[c] - here[c])


@loop
def multiply_transposed_add(start, stop, indptr, indices, data, mass, out):  # type: ignore[no-untyped-def]
    """out += Aᵀ mass from these rows of A: row r of A goes with row r of mass."""
    if mass.shape[1] == 1:
        flat_mass, flat = mass.reshape(-1), out.reshape(-1)
        for i in range(start, stop):
            row, p, here = indices[indptr[i] : indptr[i + 1]], data[indptr[i] : indptr[i + 1]], flat_mass[i]
            for e in range(row.size):
                flat[row[e]] += p[e] * here
        return
    for i in range(start, stop):
        here = mass[i]
        for e in range(indptr[i], indptr[i + 1]):
            p, target = data[e], out[indices[e]]
            for c in range(here.size):
                target[c] += p * here[c]


@loop
def sum_parts(start, stop, parts, out):  # type: ignore[no-untyped-def]
    """out = Σ_p parts_p on these rows."""
    for i in range(start, stop):
        for c in range(out.shape[1]):
            out[i, c] = parts[0, i, c]
        for p in range(1, parts.shape[0]):
            for c in range(out.shape[1]):
                out[i, c] += parts[p, i, c]


@loop
def gather_rows(start, stop, order, f, out):  # type: ignore[no-untyped-def]
    """out_i = f_order[i]."""
    if f.shape[1] == 1:
        source, target = f.reshape(-1), out.reshape(-1)
        for i in range(start, stop):
            target[i] = source[order[i]]
        return
    for i in range(start, stop):
        for c in range(f.shape[1]):
            out[i, c] = f[order[i], c]


@loop
def scatter_rows(start, stop, order, f, out):  # type: ignore[no-untyped-def]
    """out_order[i] = f_i."""
    if f.shape[1] == 1:
        source, target = f.reshape(-1), out.reshape(-1)
        for i in range(start, stop):
            target[order[i]] = source[i]
        return
    for i in range(start, stop):
        for c in range(f.shape[1]):
            out[order[i], c] = f[i, c]


@loop
def take(start, stop, at, data, out):  # type: ignore[no-untyped-def]
    """out = data[at]."""
    for e in range(start, stop):
        out[e] = data[at[e]]


@loop
def copy_rows(start, stop, indptr, source, target, values, out):  # type: ignore[no-untyped-def]
    """Edge values of rows that begin at source[i] are copied to target[i] and on; indptr gives their lengths."""
    for i in range(start, stop):
        size = indptr[i + 1] - indptr[i]
        old, new = values[source[i] : source[i] + size], out[target[i] : target[i] + size]
        for e in range(size):  # `new[:] = old` takes seconds to compile, for the text of its errors
            new[e] = old[e]


@vector_loop
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


@vector_loop
def row_dots(start, stop, indptr, left, right, out):  # type: ignore[no-untyped-def]
    """out_i = Σ_j left_ij right_ij."""
    for i in range(start, stop):
        a, b = left[indptr[i] : indptr[i + 1]], right[indptr[i] : indptr[i + 1]]
        total = 0.0
        for e in range(a.size):
            total += a[e] * b[e]
        out[i] = total


@loop
def row_differences(start, stop, indptr, indices, rows, data, f, out):  # type: ignore[no-untyped-def]
    """out_r = Σ_j M_rj (f_j − f_i), i = rows[r]."""
    for r in range(start, stop):
        row, m = indices[indptr[r] : indptr[r + 1]], data[indptr[r] : indptr[r + 1]]
        here = f[rows[r]]
        total = 0.0
        for e in range(row.size):
            total += m[e] * (f[row[e]] - here)
        out[r] = total


@loop
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


@loop
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
