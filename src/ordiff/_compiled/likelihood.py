"""What samples get from the time slices of a chain, and back.

Blocks of time slices are (N, C), a row of C slices per state, so that a state's slices are one short vector; steps work
on (N, F), a column per phase. Samples see states through B (indptr, indices, data) or, without it, sample i is the
state place[i].
"""

from __future__ import annotations

import numpy as np

from ordiff._compiled.csr import loop, vector_loop
from ordiff._compiled.transition import exp_shifted


@loop
def by_state(start, stop, steps, out):  # type: ignore[no-untyped-def]
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


@loop
def log_densities(start, stop, mass, volumes, floor, out):  # type: ignore[no-untyped-def]
    """out = log(mass_i/v_i + floor), (N, C)."""
    for i in range(start, stop):
        for c in range(mass.shape[1]):
            out[i, c] = np.log(mass[i, c] / volumes[i] + floor)


@loop
def by_step(start, stop, parts, mass, offset, out):  # type: ignore[no-untyped-def]
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


@loop
def predict_slices(low, high, i, place, indptr, indices, data, table, log, value, bits):  # type: ignore[no-untyped-def]
    """value = p̂_i of the time slices low .. high − 1: Σ_j B_ij table_j, or its exponential. ``bits`` is scratch."""
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
        exp_shifted(value[:width], 0.0, bits.view(np.float64)[:width], bits[:width])


@vector_loop
def accumulate_likelihood(  # type: ignore[no-untyped-def]
    start, stop, sample, first, last, column, weight, offset, place, indptr, indices, data, table, log, total,
):  # fmt: skip
    """total_i += Σ_r W_ir p̂_i(r), over the time slices of one block.

    Visit v is observation sample[v] with the entries first[v] .. last[v] − 1 of W, of which slice ``offset`` is the
    first of the block. The places of observations are B (indptr, indices, data) or, without it, the state place[i].
    """
    value, share, bits = np.empty(table.shape[1]), np.empty(table.shape[1]), np.empty(table.shape[1], np.int64)
    for v in range(start, stop):
        i = sample[v]
        low, high = column[first[v]] - offset, column[last[v] - 1] - offset + 1
        predict_slices(low, high, i, place, indptr, indices, data, table, log, value, bits)
        share[: high - low] = 0.0
        for e in range(first[v], last[v]):
            share[column[e] - offset - low] = weight[e]
        sum_ = 0.0
        for c in range(high - low):
            sum_ += share[c] * value[c]
        total[i] += sum_


@loop
def accumulate_adjoint(  # type: ignore[no-untyped-def]
    start, stop, sample, first, last, column, weight, offset, place, indptr, indices, data, table, log, slope, out,
):  # fmt: skip
    """The transpose of `accumulate_likelihood`: out_j += Σ_i slope_i W_ir B_ij, times p̂_i(r) in the log-linear form."""
    value, share, bits = np.empty(table.shape[1]), np.empty(table.shape[1]), np.empty(table.shape[1], np.int64)
    for v in range(start, stop):
        i = sample[v]
        low, high = column[first[v]] - offset, column[last[v] - 1] - offset + 1
        width = high - low
        share[:width] = 0.0
        for e in range(first[v], last[v]):
            share[column[e] - offset - low] = weight[e] * slope[i]
        if log:
            predict_slices(low, high, i, place, indptr, indices, data, table, log, value, bits)
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


@loop
def slice_shares(  # type: ignore[no-untyped-def]
    start, stop, sample, first, last, column, weight, offset, place, indptr, indices, data, table, log, slope, out,
):  # fmt: skip
    """out_e = slope_i W_ir (times p̂_i(r) in the log-linear form) for every entry e = (i, r) of W in the block."""
    value, bits = np.empty(table.shape[1]), np.empty(table.shape[1], np.int64)
    for v in range(start, stop):
        i = sample[v]
        low, high = column[first[v]] - offset, column[last[v] - 1] - offset + 1
        if log:
            predict_slices(low, high, i, place, indptr, indices, data, table, log, value, bits)
        for e in range(first[v], last[v]):
            out[e] = weight[e] * slope[i] * (value[column[e] - offset - low] if log else 1.0)


@loop
def score_slice(start, stop, sample, share, place, indptr, indices, data, change, out):  # type: ignore[no-untyped-def]
    """out_i += share_v Σ_j B_ij change_j for the observations i = sample[v] of one time slice; change is (N, K)."""
    for v in range(start, stop):
        i = sample[v]
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


@loop
def ordering_change(start, stop, here, moved, along, U, PU, pushed, out):  # type: ignore[no-untyped-def]
    """pushed = here − moved PU and out = along U on these states: (N, F, K) from (N, F) and (N, K)."""
    for i in range(start, stop):
        u, pu = U[i], PU[i]
        for f in range(here.shape[1]):
            a, b = moved[i, f], along[i, f]
            source, target, change = here[i, f], pushed[i, f], out[i, f]
            for c in range(u.size):
                target[c] = source[c] - a * pu[c]
                change[c] = b * u[c]


@loop
def row_change(start, stop, mass, U, out):  # type: ignore[no-untyped-def]
    """out = mass U on these states: (N, F, K) from (N, F) and (N, K)."""
    for i in range(start, stop):
        u = U[i]
        for f in range(mass.shape[1]):
            a, target = mass[i, f], out[i, f]
            for c in range(u.size):
                target[c] = a * u[c]


@vector_loop
def drop_below(start, stop, least, values):  # type: ignore[no-untyped-def]
    """Of values (n,), those whose size is below ``least`` become 0; what is no number stays."""
    for i in range(start, stop):
        values[i] = 0.0 if abs(values[i]) < least else values[i]
