"""Spectra: the leading eigenfunctions of the symmetric operator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ordiff import _check
from ordiff._check import Array
from ordiff.graph import NeighborGraph
from ordiff.kernel.compose import Kernel


class Eigenbasis(NamedTuple):
    """Eigenvalues of L_sym, from 0 downwards, and its eigenfunctions as columns."""

    values: Array  # (n_functions,)
    functions: Array  # (m, n_functions)


def eigenbasis(
    graph: NeighborGraph, eps: float, n_functions: int, density: ArrayLike | str | None = None
) -> Eigenbasis:
    """The leading eigenpairs of L_sym = (P_sym − I)/ε → ½Δ.

    P_sym = D_L⁻¹ D_R⁻¹ K D_R⁻¹ with K = exp(−|x_j − x_i|²/(2ε)) on the pattern made symmetric, D_R the sampling density
    and D_L what makes rows sum to 1. Eigenvectors of D_L^−½ D_R⁻¹ K D_R⁻¹ D_L^−½ are mapped back by D_L^−½ and scaled
    to a mean square of 1 under the weights that P_sym conserves.
    """
    from scipy.sparse.linalg import eigsh

    eps = _check.positive(eps, "eps")
    m = graph.n_points
    n_functions = _check.count(n_functions, "n_functions", 1, m - 1, f"There are {m} samples.")
    if graph.n_components > 1:
        _check.warn(
            f"the graph has {graph.n_components} parts, whose eigenfunctions are unrelated: use more neighbours, or "
            "treat the parts (graph.components) separately."
        )
    q = Kernel().density_on(graph, density)
    K = graph.matrix(np.exp(-0.5 * graph.sqdist / eps))
    K = sp.csr_array(K.maximum(K.T))
    right = sp.diags_array(1.0 / (q / q.mean()))
    S = right @ K @ right
    left = 1.0 / np.sqrt(S.sum(axis=1))
    S = sp.diags_array(left) @ S @ sp.diags_array(left)
    start = np.random.default_rng(0).standard_normal(m)  # fixed: the same graph gives the same bits
    values, vectors = eigsh(S, k=n_functions, which="LA", ncv=min(m, max(2 * n_functions + 1, 20)), v0=start)
    order = np.argsort(-values)
    functions = left[:, None] * vectors[:, order]
    functions /= np.sqrt(np.average(functions**2, axis=0, weights=left**-2))
    return Eigenbasis((values[order] - 1.0) / eps, functions)
