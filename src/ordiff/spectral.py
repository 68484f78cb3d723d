"""Spectra: the leading eigenfunctions of the symmetric operator, and of the Laplacian of states with volumes.

    eigenbasis      of L_sym = (P_sym − I)/ε → ½Δ: values from 0 downwards
    smooth_basis    of −Δ, for functions that are learned: values from 0 upwards

With widths h_i of their own the samples carry the Dirichlet form

    E(f) = ½ Σ_ij a_i K_ij a_j (f_i − f_j)² → ∫‖∇f‖²,   K_ij = exp(−|x_i − x_j|²/(2 h_i h_j)),
    a_i² = 2 c_i v_i² / (h_i² k_i),   k_i = Σ_j K_ij v_j,   c_i = d k_i / Σ_j K_ij v_j |x_i − x_j|²/(h_i h_j)

for volumes v. Division by h_i h_j puts it into real units whatever the widths; k makes up for what lies beyond an edge,
and c for what the graph cuts off and for the irregularity of the samples. Eigenfunctions are those of E under v.
States that are hardly coupled to the others (outliers, single or few) would each take a function of their own; they are
left out of the form and get their values by interpolation.
"""

from __future__ import annotations

from math import lgamma, log, pi
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ordiff import _validation
from ordiff._parallel import one_blas_thread
from ordiff._validation import Array
from ordiff.geometry import gaussian_weights, intrinsic_dimension, length_scale, usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.kernel.kernel import Kernel

# The width is the side of the cube that holds one state, by the 8th neighbour; the kernel ends at 4 widths.
_NEIGHBORS, _REACH = 8, 4.0
# Evenly spread states are 0.8 of that side from the nearest, random samples 0.5: these need a wider kernel.
_EVEN, _WIDEST = 0.8, 1.7
# A state is isolated when its coupling to the others is below this share of the median, or when its component of states
# within 2.5 widths of each other has fewer than 10 states, or 2% of all.
_MIN_COUPLING, _NEAR, _MIN_STATES, _MIN_SHARE = 0.25, 2.5, 10, 0.02
# The states that an isolated one is interpolated from.
_INTERPOLATION = 4


class Eigenbasis(NamedTuple):
    """Eigenvalues, and eigenfunctions as columns with a mean square of 1, the leading ones first."""

    values: Array  # (n_functions,)
    functions: Array  # (m, n_functions)


def eigenbasis(
    graph: NeighborGraph,
    eps: float,
    n_functions: int,
    density: ArrayLike | str | None = None,
    *,
    bandwidth: ArrayLike | str | None = None,
) -> Eigenbasis:
    """The leading eigenpairs of L_sym = (P_sym − I)/ε → ½Δ.

    P_sym = D_L⁻¹ D_R⁻¹ K D_R⁻¹ with K = exp(−|x_j − x_i|²/(2ε)) on the pattern made symmetric, D_R the sampling density
    and D_L what makes rows sum to 1. Eigenvectors of D_L^−½ D_R⁻¹ K D_R⁻¹ D_L^−½ are mapped back by D_L^−½ and scaled
    to a mean square of 1 under the weights that P_sym conserves.

    bandwidth: lengths h (m,) that the width of the kernel shall be proportional to, or "self-tuning", the distance to
    the 8th neighbour: K = exp(−|x_j − x_i|²/(2 ε s_i s_j)), s = h over its geometric mean. Sparse regions and outliers
    then take no functions for themselves. The eigenpairs are those of −½ of the Dirichlet form above with v = 1/q, also
    in real units and also tending to ½Δ; the mean squares are under v, and the first function is 1.
    """
    _validation.instance(graph, "graph", NeighborGraph)
    eps = _validation.positive(eps, "eps")
    m = graph.n_points
    n_functions = _validation.count(n_functions, "n_functions", 1, m - 1, f"There are {m} samples.")
    q = Kernel().density_on(graph, density)
    if bandwidth is not None:
        if isinstance(bandwidth, str):
            _validation.option(bandwidth, "bandwidth", ("self-tuning",))
            s = _eighth_distances(graph)
        else:
            s = _validation.node_or_scalar(bandwidth, m, "bandwidth", positive=True)
        h = np.sqrt(eps) * s / np.exp(np.log(s).mean())
        mu, functions = _form_eigenpairs(graph, n_functions, h, q.mean() / q, _dimension(graph, None))
        return Eigenbasis(-0.5 * mu, functions)
    _warn_of_parts(graph.n_components)
    K = graph.matrix(np.exp(-0.5 * graph.sqdist / eps))
    K = sp.csr_array(K.maximum(K.T))
    right = sp.diags_array(1.0 / (q / q.mean()))
    S = right @ K @ right
    left = 1.0 / np.sqrt(S.sum(axis=1))
    S = sp.diags_array(left) @ S @ sp.diags_array(left)
    values, vectors = _largest(S, n_functions)
    functions = left[:, None] * vectors
    functions /= np.sqrt(np.average(functions**2, axis=0, weights=left**-2))
    return Eigenbasis((values - 1.0) / eps, _signed(functions))


def smooth_basis(
    graph: NeighborGraph,
    n_functions: int,
    volumes: ArrayLike | None = None,
    *,
    bandwidth: ArrayLike | None = None,
    dimension: int | None = None,
) -> Eigenbasis:
    """The smoothest functions on the states of a graph: eigenpairs of −Δ with free edges, for learning.

    volumes: v (m,), what a state stands for; equal ones unless given, and then −Δ is −(1/q)∇·(q∇) for states of the
    density q. The functions are orthonormal, Σ_i v_i φ_k φ_l = δ_kl Σ_i v_i, the first of them is 1, and of each the
    largest entry is positive. The values μ are in real units, 1/length²: the rate of decay under the heat flow of the
    kernel, −(2/h²) log(1 − ½h²E), which is right also for waves of a few states' length.

    bandwidth: the width h of the kernel, a number or (m,); by default the spacing of the states, (V_d r_8^d/8)^{1/d}
    averaged over the 8 neighbours, at least half its median; up to 1.7 times that for states that are spread unevenly,
    as random samples are. The graph should reach 3 widths or more.
    States that are hardly coupled to the others (outliers, single or few) have no function of their own: they are
    interpolated from the nearest states. Where the graph has several parts, the first functions are constant on each.

    >>> import numpy as np, ordiff as od
    >>> from ordiff.spectral import smooth_basis
    >>> theta = 2 * np.pi * np.arange(100) / 100
    >>> circle = od.NeighborGraph.build(np.stack([np.cos(theta), np.sin(theta)], 1), k=40)
    >>> smooth_basis(circle, 5, dimension=1).values.round(1).tolist()
    [0.0, 1.0, 1.0, 4.0, 4.0]
    """
    _validation.instance(graph, "graph", NeighborGraph)
    m = graph.n_points
    n_functions = _validation.count(n_functions, "n_functions", 1, m - 1, f"There are {m} states.")
    v = np.ones(m) if volumes is None else _validation.node_or_scalar(volumes, m, "volumes", positive=True)
    d = _dimension(graph, dimension)
    if bandwidth is None:
        h = _default_width(graph, intrinsic_dimension(graph) if d is None else d)
    else:
        h = _validation.node_or_scalar(bandwidth, m, "bandwidth", positive=True)
    return _smooth_functions(graph, n_functions, h, v, d, warn=True)


def smooth_functions(graph: NeighborGraph, n_functions: int, volumes: Array, dimension: int) -> Eigenbasis:
    """Those of `smooth_basis` with its default width, on a graph that may be in several parts."""
    h = _default_width(graph, dimension)
    return _smooth_functions(graph, n_functions, h, volumes, dimension, warn=False)


def _smooth_functions(
    graph: NeighborGraph, n_functions: int, h: Array, v: Array, d: int | None, *, warn: bool
) -> Eigenbasis:
    mu, functions = _form_eigenpairs(graph, n_functions, h, v, d, warn=warn)
    return Eigenbasis(_decay_rate(mu, float(np.exp(2 * np.log(h).mean()))), functions)


def _decay_rate(mu: Array, h2: float) -> Array:
    """−(2/h²) log(1 − ½h²μ); linear once the amplitude after one step, 1 − ½h²μ, is below a tenth."""
    amplitude, least = 1 - 0.5 * h2 * mu, 0.1
    return 2 / h2 * (np.maximum(least - amplitude, 0.0) / least - np.log(np.maximum(amplitude, least)))


# ------------------------------------------------------------------------------------------ the Dirichlet form


def _dimension(graph: NeighborGraph, dimension: int | None) -> int | None:
    """The dimension as given or estimated; None for a graph of distances alone."""
    if dimension is not None:
        return _validation.count(dimension, "dimension", 1)
    return None if graph.X is None else intrinsic_dimension(graph)


def _form_eigenpairs(
    graph: NeighborGraph, n_functions: int, h: Array, v: Array, d: int | None, *, warn: bool = True
) -> tuple[Array, Array]:
    """The smallest eigenvalues of E under v, and orthonormal eigenfunctions, (m, n_functions)."""
    K = _kernel(graph, h)
    W = _couplings(K, h, v, d)
    coupled = _coupled(K, W, h, v)
    kept = np.flatnonzero(coupled)
    _validation.count(n_functions, "n_functions", 1, kept.size - 1, f"Of the states {kept.size} are connected.")
    W, w = W[kept][:, kept], v[kept]
    n_components, _ = _components(W)
    if warn:
        _warn_of_parts(n_components)
    S = sp.csr_array(sp.diags_array(w**-0.5) @ (W - sp.diags_array(W.sum(axis=1))) @ sp.diags_array(w**-0.5))
    values, vectors = _largest(S, n_functions)
    n_null = min(n_components, n_functions)
    vectors[:, :n_null] = _constant_first(vectors[:, :n_null], np.sqrt(w))
    functions = np.empty((v.size, n_functions))
    functions[kept] = vectors / np.sqrt(w)[:, None]
    functions[~coupled] = _interpolation(graph, coupled) @ functions
    functions[:, 0] = 1.0
    # Gram–Schmidt under v, in order: nothing but rounding where no state is isolated
    for _ in range(2):
        gram = functions.T @ (v[:, None] * functions) / v.sum()
        functions[:] = np.linalg.solve(np.linalg.cholesky(gram), functions.T).T
    functions[:, 0] = 1.0
    mu = np.maximum(-values, 0.0)
    mu[:n_null] = 0.0
    return mu, _signed(functions)


def _kernel(graph: NeighborGraph, h: Array) -> sp.csr_array:
    """K without its diagonal, symmetric, cut at 4 widths."""
    K = gaussian_weights(graph, h, h)
    K[graph.selves] = 0.0
    K[np.exp(-0.5 * _REACH**2) > K] = 0.0
    found = graph.matrix(K)
    found = sp.csr_array(found.maximum(found.T))
    found.eliminate_zeros()
    return found


def _couplings(K: sp.csr_array, h: Array, v: Array, d: int | None) -> sp.csr_array:
    """a_i K_ij a_j; c is kept within ½ and 2, and is 1 where the dimension is not known."""
    k = K @ v + v
    c = np.ones(v.size)
    if d is not None:
        square = K.copy()
        square.data = -2 * K.data * np.log(K.data)  # K |x_i − x_j|²/(h_i h_j)
        moment = (square @ v) / k
        c = np.clip(d / np.maximum(moment, 1e-3 * d), 0.5, 2.0)
    a = sp.diags_array(v / h * np.sqrt(2 * c / k))
    return sp.csr_array(a @ K @ a)


def _coupled(K: sp.csr_array, W: sp.csr_array, h: Array, v: Array) -> NDArray[np.bool_]:
    """The states that are not isolated, (m,)."""
    coupling = W.sum(axis=1) * h**2 / v  # the energy of a function that is 1 at one state
    coupled = coupling >= _MIN_COUPLING * np.median(coupling)
    near = K.copy()
    near.data = (K.data >= np.exp(-0.5 * _NEAR**2)).astype(float)
    among = sp.diags_array(coupled.astype(float))
    near = sp.csr_array(among @ near @ among)
    near.eliminate_zeros()
    _, label = _components(near)
    size = np.bincount(label)
    large = size[label] >= min(max(_MIN_STATES, _MIN_SHARE * v.size), size.max())
    return coupled & large


def _interpolation(graph: NeighborGraph, coupled: NDArray[np.bool_]) -> sp.csr_array:
    """Rows for the isolated states: a mean over the 4 nearest coupled states, by inverse squared distance."""
    from scipy.spatial import cKDTree

    isolated, kept = np.flatnonzero(~coupled), np.flatnonzero(coupled)
    shape = (isolated.size, coupled.size)
    if isolated.size == 0 or graph.X is None:  # without coordinates an isolated state takes the mean, 0
        return sp.csr_array(shape)
    count = min(_INTERPOLATION, kept.size)
    distance, near = cKDTree(graph.X[kept]).query(graph.X[isolated], np.arange(1, count + 1))
    weight = np.maximum(distance, np.finfo(float).tiny ** 0.25) ** -2
    weight /= weight.sum(axis=1, keepdims=True)
    rows = np.repeat(np.arange(isolated.size), count)
    return sp.csr_array((weight.ravel(), (rows, kept[near].ravel())), shape=shape)


def _default_width(graph: NeighborGraph, d: int) -> Array:
    """The default width of the kernel, (m,): see `smooth_basis`."""
    k = usual_neighbors(graph, _NEIGHBORS)
    log_ball = 0.5 * d * log(pi) - lgamma(0.5 * d + 1)
    log_r = np.log(_eighth_distances(graph)) + (log_ball - log(k)) / d
    near, _ = graph.nearest(k, pad=True)
    log_h = (log_r + log_r[near].sum(axis=1)) / (k + 1)
    typical = float(np.median(log_h))
    evenness = float(np.median(np.sqrt(graph.spacing))) / np.exp(typical)
    return np.clip(_EVEN / evenness, 1.0, _WIDEST) * np.exp(np.maximum(log_h, typical - log(2)))


def _eighth_distances(graph: NeighborGraph) -> Array:
    """The distance to the 8th neighbour, or to the farthest where there are fewer; the median where there is none."""
    k = usual_neighbors(graph, _NEIGHBORS)
    r = graph.radius(k, pad=True)
    known = r > 0
    if not known.any():
        length_scale(graph, k)  # says what is wrong
    return np.where(known, r, np.median(r[known]))


# --------------------------------------------------------------------------------------------- eigenvectors


def _largest(S: Any, n_functions: int) -> tuple[Array, Array]:
    """The largest eigenvalues of a sparse symmetric matrix, descending, and orthonormal eigenvectors."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import eigsh

    m = S.shape[0]
    with one_blas_thread():  # threads of BLAS cost more than they save
        if 4 * n_functions > m:
            values, vectors = eigh(S.toarray(), subset_by_index=[m - n_functions, m - 1])
        else:
            start = np.random.default_rng(0).standard_normal(m)  # fixed: the same graph gives the same bits
            values, vectors = eigsh(S, k=n_functions, which="LA", ncv=min(m, max(2 * n_functions + 1, 20)), v0=start)
    order = np.argsort(-values, kind="stable")
    return values[order], vectors[:, order]


def _constant_first(vectors: Array, constant: Array) -> Array:
    """A basis of the same space whose first vector is the constant one."""
    rotation, _ = np.linalg.qr(np.column_stack([vectors.T @ constant, np.eye(vectors.shape[1])]))
    return vectors @ rotation


def _signed(functions: Array) -> Array:
    """Each column with the sign that makes its largest entry positive."""
    largest = functions[np.argmax(abs(functions), axis=0), np.arange(functions.shape[1])]
    return functions * np.where(largest < 0, -1.0, 1.0)


def _components(W: sp.csr_array) -> tuple[int, NDArray[np.int32]]:
    from scipy.sparse.csgraph import connected_components

    return connected_components(W, directed=False)


def _warn_of_parts(n_parts: int) -> None:
    if n_parts > 1:
        _validation.warn(
            f"the graph has {n_parts} parts, whose eigenfunctions are unrelated: use more neighbours, or "
            "treat the parts (graph.components) separately."
        )
