"""The compiled loops, and nothing else.

Every loop works on a range of rows of one CSR pattern, without the interpreter lock: `over_rows` runs it on all
cores by giving each thread its own range. So there is one version of each loop, it compiles once (on first use,
then cached on disk), and a result does not depend on the number of threads, except in rounding for `push`, the
only loop that scatters.

Indices are viewed as unsigned (signed ones cost numba a wrap-around test per access).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from ordiff._check import Array, IntArray

_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})

# below this many edges a thread costs more than it saves
_EDGES_PER_THREAD = 200_000
# edges in flight per thread while an operator is built: 256 KiB, so that a block stays in cache
_BLOCK = 32_768

EMPTY = np.empty(0)


def unsigned(indices: IntArray) -> NDArray[np.unsignedinteger[Any]]:
    """The same memory as unsigned integers."""
    return indices.view(np.uint32 if indices.dtype.itemsize == 4 else np.uint64)


def index_dtype(largest: int) -> type[np.signedinteger[Any]]:
    """32-bit where it fits."""
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64


def n_threads(n_edges: int) -> int:
    return max(1, min(int(numba.config.NUMBA_NUM_THREADS), n_edges // _EDGES_PER_THREAD))


def _cuts(indptr: IntArray, parts: int) -> list[int]:
    """Row numbers that cut the rows into ``parts`` ranges of about equal numbers of edges."""
    targets = np.linspace(0, indptr[-1], parts + 1)[1:-1]
    return [0, *np.searchsorted(indptr, targets).tolist(), len(indptr) - 1]


def over_rows(loop: Callable[..., Any], indptr: IntArray, *args: Any) -> None:
    """loop(start, stop, indptr, *args) over all rows, a range of rows per thread."""
    cuts = _cuts(indptr, n_threads(int(indptr[-1])))
    ranges = list(pairwise(cuts))
    threads = [threading.Thread(target=loop, args=(a, b, indptr, *args)) for a, b in ranges[1:]]
    for thread in threads:
        thread.start()
    loop(*ranges[0], indptr, *args)
    for thread in threads:
        thread.join()


def over_blocks(work: Callable[[int, int], Any], indptr: IntArray, *, threaded: bool) -> list[Any]:
    """work(start, stop) over blocks of rows that fit in cache, on all cores when ``threaded``."""
    cuts = _cuts(indptr, max(1, int(indptr[-1]) // _BLOCK))
    starts, stops = cuts[:-1], cuts[1:]
    workers = n_threads(int(indptr[-1])) if threaded else 1
    if workers == 1:
        return list(map(work, starts, stops))
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, starts, stops))


# ---------------------------------------------------------------------------------------------- graphs


@_jit
def self_and_sort(start, stop, indptr, indices):  # type: ignore[no-untyped-def]
    """Each row gets its own index (in place of its last entry where it is missing), then is sorted."""
    for i in range(start, stop):
        row = indices[indptr[i] : indptr[i + 1]]
        found = False
        for e in range(row.size):
            if row[e] == i:
                found = True
        if not found:
            row[row.size - 1] = i
        row.sort()


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
def nearest(start, stop, indptr, indices, sqdist, k, neighbors, distances):  # type: ignore[no-untyped-def]
    """The k nearest others of each row, nearest first: their indices and distances, (m, k) each."""
    for i in range(start, stop):
        a = indptr[i]
        order = np.argsort(sqdist[a : indptr[i + 1]], kind="mergesort")
        taken = 0
        for e in order:
            if taken == k:
                break
            if indices[a + e] != i:
                neighbors[i, taken] = indices[a + e]
                distances[i, taken] = np.sqrt(sqdist[a + e])
                taken += 1


@_jit
def gaussian(start, stop, indptr, indices, sqdist, left, right, out):  # type: ignore[no-untyped-def]
    """out_ij = exp(−|x_j − x_i|²/(2 left_i right_j))."""
    for i in range(start, stop):
        scale = -0.5 / left[i]
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = np.exp(scale * sqdist[e] / right[indices[e]])


# ------------------------------------------------------------------------------------------ operators


@_jit
def exponents(  # type: ignore[no-untyped-def]
    start, stop, indptr, indices, sqdist, eps, X, frame, stiffness, normal, tables, select, slope, field,
    edges, constant, left, right, clamp, out,
):  # fmt: skip
    """u_ij = [ |x_j − x_i|²_i / ε − 2 Σ_k s_k(i) Δl_k(i,j) + c(i) ] / (left_i right_j), row by row.

    Parts that are absent have size 0. Each part is a short loop over the row, which stays in the first-level cache.
    metric   |z|²_i = normal_i |z|² + Σ_a stiffness_ia ⟨frame_ia, z⟩²           frame (m, d, n)
    order    Σ_k slope_ki (tables[select_ki, j] − tables[select_ki, i]) + ⟨field_i, z⟩ + edges_ij
    """
    offset = indptr[start]
    n = X.shape[1]
    for i in range(start, stop):
        a = indptr[i]
        row = indices[a : indptr[i + 1]]
        u = out[a : indptr[i + 1]]
        d2 = sqdist[a : indptr[i + 1]]
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
def normalise(start, stop, indptr, indices, log_weight, out):  # type: ignore[no-untyped-def]
    """log K → P, in place: row i becomes exp(out + log_weight_j) / its sum, by log-sum-exp.

    Returns the first row whose sum is not finite and positive, or −1.
    """
    for i in range(start, stop):
        row = indices[indptr[i] : indptr[i + 1]]
        p = out[indptr[i] : indptr[i + 1]]
        if log_weight.size:
            for e in range(row.size):
                p[e] += log_weight[row[e]]
        top = -np.inf
        for e in range(row.size):
            top = max(top, p[e])
        if not (top > -np.inf and top < np.inf):
            return i
        total = 0.0
        for e in range(row.size):
            p[e] = np.exp(p[e] - top)
            total += p[e]
        if not (total >= 1.0 and total < np.inf):
            return i
        for e in range(row.size):
            p[e] /= total
    return -1


@_jit
def pull(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out = P f."""
    for i in range(start, stop):
        row = indices[indptr[i] : indptr[i + 1]]
        p = data[indptr[i] : indptr[i + 1]]
        total = 0.0
        for e in range(row.size):
            total += p[e] * f[row[e]]
        out[i] = total


@_jit
def pull_many(start, stop, indptr, indices, data, f, out):  # type: ignore[no-untyped-def]
    """out = P f for several functions, (m, c)."""
    for i in range(start, stop):
        total = out[i]
        total[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            p = data[e]
            values = f[indices[e]]
            for c in range(total.size):
                total[c] += p * values[c]


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
def push_part(start, stop, indptr, indices, data, mass, out):  # type: ignore[no-untyped-def]
    """out += Pᵀ mass, restricted to these rows of P; mass and out are (m, c)."""
    for i in range(start, stop):
        here = mass[i]
        for e in range(indptr[i], indptr[i + 1]):
            p = data[e]
            target = out[indices[e]]
            for c in range(here.size):
                target[c] += p * here[c]


@_jit
def push_part_one(start, stop, indptr, indices, data, mass, out):  # type: ignore[no-untyped-def]
    """out += Pᵀ mass, restricted to these rows of P; mass and out are (m,)."""
    for i in range(start, stop):
        here = mass[i]
        row = indices[indptr[i] : indptr[i + 1]]
        p = data[indptr[i] : indptr[i + 1]]
        for e in range(row.size):
            out[row[e]] += p[e] * here


def push(indptr: IntArray, indices: IntArray, data: Array, mass: Array) -> Array:
    """Pᵀ mass: each thread scatters its rows into a buffer of its own; the buffers are added at the end."""
    loop = push_part_one if mass.ndim == 1 else push_part
    buffers: dict[int, Array] = {}

    def scatter(start: int, stop: int, *args: Any) -> None:
        buffers[start] = buffer = np.zeros_like(mass)
        loop(start, stop, *args, buffer)

    over_rows(scatter, indptr, unsigned(indices), data, mass)
    first, *others = sorted(buffers)  # always added in the same order
    for start in others:
        buffers[first] += buffers[start]
    return buffers[first]
