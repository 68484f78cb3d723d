"""When each sample was seen: the weights W (m, R) of the chain's records.

A row for known times interpolates between two records, one for unknown times holds the quadrature of their density.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ordiff import _check
from ordiff._check import Array


def time_weights(times: ArrayLike, record_times: ArrayLike, *, first: int = 0) -> sp.csr_array:
    """W (m, R) for known times: linear interpolation between the records before and after each.

    first: the earliest record that may be used. Samples before it are put wholly on it, because the first records
    from a delta are unreliable.

    >>> time_weights([0.25, 1.0], [0.0, 1.0, 2.0]).toarray()
    array([[0.75, 0.25, 0.  ],
           [0.  , 1.  , 0.  ]])
    """
    records = _ascending(record_times)
    first = _check.count(first, "first", 0, records.size - 1)
    t = np.atleast_1d(_check.functions(times, np.size(times), "times"))
    outside = (t < 0) | (t > records[-1] * (1 + 1e-12))
    if outside.any():
        at = int(np.argmax(outside))
        raise ValueError(f"times must be within [0, {records[-1]:g}]; it is {t[at]:g} at index {at}.")
    t = np.clip(t, records[first], records[-1])
    right = np.clip(np.searchsorted(records, t), min(first + 1, records.size - 1), None)
    left = np.maximum(right - 1, first)
    gap = np.where(right > left, records[right] - records[left], 1.0)
    share = (t - records[left]) / gap
    rows = np.arange(t.size)
    entries = (np.concatenate([1 - share, share]), (np.concatenate([rows, rows]), np.concatenate([left, right])))
    weights = sp.csr_array(entries, shape=(t.size, records.size))
    weights.eliminate_zeros()
    return weights


def time_quadrature(density: Callable[[Array], ArrayLike], record_times: ArrayLike) -> Array:
    """Weights (R,) for unknown times: ∫ r(t) hat_s(t) dt, hat_s linear between the records, scaled to sum to 1.

    density: r, up to a factor, on an array of times. By Gauss–Legendre quadrature with 5 points per interval.

    >>> time_quadrature(lambda t: np.ones_like(t), [0.0, 1.0, 2.0])
    array([0.25, 0.5 , 0.25])
    """
    records = _ascending(record_times)
    node, weight = np.polynomial.legendre.leggauss(5)
    share = 0.5 * (node + 1)  # the place in an interval, from 0 to 1
    gap = np.diff(records)[:, None]
    t = records[:-1, None] + gap * share
    r = np.broadcast_to(np.asarray(density(t), dtype=float), t.shape)
    if not (np.isfinite(r).all() and (r >= 0).all() and r.any()):
        raise ValueError("the density of times must be finite, not negative, and not 0 everywhere.")
    mass = 0.5 * gap * weight * r
    out = np.zeros(records.size)
    out[:-1] += (mass * (1 - share)).sum(axis=1)
    out[1:] += (mass * share).sum(axis=1)
    return out / out.sum()


def _ascending(record_times: ArrayLike) -> Array:
    records = np.atleast_1d(_check.functions(record_times, np.size(record_times), "record_times"))
    if records.size < 2 or not (np.diff(records) > 0).all():
        raise ValueError("record_times must be two or more ascending numbers.")
    return records
