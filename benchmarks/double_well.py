"""A problem with a known committor, for the benchmark and for the tests: U = (x² − 1)² + y² between two discs."""

from __future__ import annotations

from functools import cache

import numpy as np
import scipy.sparse as sp
from scipy.interpolate import RegularGridInterpolator
from scipy.sparse.linalg import spsolve


def potential(X: np.ndarray) -> np.ndarray:
    return (X[..., 0] ** 2 - 1) ** 2 + X[..., 1] ** 2


def disc(X: np.ndarray, centre: float) -> np.ndarray:
    """Within ¼ of (centre, 0)."""
    return (X[..., 0] - centre) ** 2 + X[..., 1] ** 2 <= 1 / 16


def samples(D: float, box: bool, m: int, seed: int) -> np.ndarray:
    """m points, uniform on a box or from exp(−U/D)."""
    rng = np.random.default_rng(seed)
    if box:
        return rng.uniform([-2, -1.5], [2, 1.5], (m, 2))
    X = rng.uniform([-3, -3.5], [3, 3.5], (60 * m, 2))
    return X[rng.uniform(size=len(X)) < np.exp(-potential(X) / D)][:m]


@cache
def truth(D: float, box: bool, h: float = 0.00625) -> RegularGridInterpolator:
    """The committor of dx = −∇U dt + √(2D) dW by finite volumes; at twice the spacing it is .0003 away."""
    x, y = (np.arange(-w, w + h / 2, h) for w in ((2.0, 1.5) if box else (3.0, 3.5)))
    X = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    U, number = potential(X), np.arange(x.size * y.size).reshape(x.size, y.size)
    entries = []
    for a, b in (((slice(1, None),), (slice(-1),)), ((slice(None), slice(1, None)), (slice(None), slice(-1)))):
        for i, j in ((a, b), (b, a)):
            rate = np.exp(np.clip((U[i] - U[j]) / (2 * D), -50, 50))
            entries.append((number[i].ravel(), number[j].ravel(), rate.ravel()))
    i, j, rate = (np.concatenate(part) for part in zip(*entries, strict=True))
    P = sp.csr_array((rate, (i, j)), shape=(U.size, U.size))
    P = sp.csr_array(sp.diags_array(1 / P.sum(axis=1)) @ P)
    q = solved(P, disc(X, -1.0).ravel(), disc(X, 1.0).ravel())
    return RegularGridInterpolator((x, y), q.reshape(U.shape))


def solved(P: sp.csr_array, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """The committor of any chain, by SciPy."""
    q, free = B.astype(float), ~(A | B)
    rows = P[free]
    q[free] = spsolve(sp.csc_array(sp.identity(free.sum()) - rows[:, free]), rows[:, B].sum(axis=1))
    return q
