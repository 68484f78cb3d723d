"""Fields read off an operator: velocity, curvature, and the moments of one step.

For samples that are not uniform the operator must have their density (α = 1), and no β or self-tuning drift, for
"projected" and "displacement" to mean what is said here.

With z = x_j − x_i the displacement of one step, m = E z/ε = L x its mean rate, and the subscript sym for the
same operator without its orderings:

    displacement   L x                       → μ + ½ρ²H, H the mean curvature vector
    symmetric      (L − L_sym) x             → μ
    projected      Π L x                     → μ
    covariance     ρ²A C⁻¹ (m − m_sym)       → μ, also at an edge of the data; C is the central covariance of
                                             a step over ε, averaged over P and P_sym, on the tangent space
    intrinsic      (JᵀJ)⁻¹Jᵀ L x             → the velocity in the coordinates whose Jacobian J = ∂x/∂u is
                   (L − L_sym) u             the same from the coordinates u themselves
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _parallel, _validation
from ordiff._compiled import csr
from ordiff._validation import Array
from ordiff.geometry import TangentSpaces, usual_neighbors
from ordiff.graph import NeighborGraph
from ordiff.kernel.kernel import Kernel
from ordiff.operator import Extrapolation, Generator, MarkovChain

KINDS = ("displacement", "symmetric", "projected", "covariance", "intrinsic")


class Moments(NamedTuple):
    """The first two moments of one step, per unit of time."""

    drift: Array  # (m, n)     (1/ε) Σ_j P_ij z
    diffusion: Array  # (m, n, n)  (1/2ε) Σ_j P_ij z zᵀ


def velocity(
    op: Generator,
    kind: str = "displacement",
    *,
    basis: ArrayLike | None = None,
    jacobian: ArrayLike | None = None,
    coordinates: ArrayLike | None = None,
) -> Array:
    """The velocity at every sample, (m, n), or (m, d) for "intrinsic". See the module for the kinds.

    basis: the tangent space for "projected" and "covariance", (m, n, d); that of the kernel's anisotropy, or local
    PCA, when not given. "intrinsic" takes the ``jacobian`` of the embedding, (m, n, d), or the intrinsic
    ``coordinates``, (m, d), which must be continuous: not angles that jump.
    """
    _validation.instance(op, "op", Generator)
    _validation.option(kind, "kind", KINDS)
    X = _validation.need_points(op.graph.X, "a velocity")
    if kind == "displacement":
        return op.generator(X)
    if kind == "symmetric":
        return op.generator(X) - op.undirected().generator(X)
    if kind == "intrinsic":
        return _intrinsic(op, X, jacobian, coordinates)
    J = tangent_basis(op, basis)
    if kind == "projected":
        return np.einsum("mia,mja,mj->mi", J, J, op.generator(X), optimize=True)
    return _covariance(op, J)


def _intrinsic(op: Generator, X: Array, jacobian: ArrayLike | None, coordinates: ArrayLike | None) -> Array:
    """The velocity in intrinsic coordinates, (m, d)."""
    if jacobian is None and coordinates is not None:
        u = _validation.points(coordinates, "coordinates")
        return op.generator(u) - op.undirected().generator(u)
    if jacobian is None or coordinates is not None:
        raise ValueError('kind="intrinsic" takes either jacobian (m, n, d) or coordinates (m, d).')
    J = _validation.frame(jacobian, X.shape, "jacobian")
    return np.einsum("mai,mi->ma", np.linalg.pinv(J), op.generator(X))


def _covariance(op: Generator, J: Array) -> Array:
    """ρ²A C⁻¹ (m − m_sym) on the tangent space; extrapolated as a whole, since it is not linear in L."""
    if isinstance(op, Extrapolation):
        return 2.0 * _covariance(op.fine, J) - _covariance(op.coarse, J)
    directed, driftless = local_moments(op), local_moments(op.undirected())
    covariances = [
        2 * moments.diffusion - op.eps * moments.drift[:, :, None] * moments.drift[:, None, :]
        for moments in (directed, driftless)
    ]
    C = np.einsum("mia,mij,mjb->mab", J, 0.5 * (covariances[0] + covariances[1]), J, optimize=True)
    nominal = np.einsum("mia,mij,mjb->mab", J, _nominal_diffusion(op), J, optimize=True)
    excess = np.einsum("mia,mi->ma", J, directed.drift - driftless.drift)
    # without variance in some tangent direction the velocity is unknown: at a flat edge C is still 0.36 of ρ²A
    share = np.linalg.eigvalsh(C)[:, 0] / np.linalg.eigvalsh(nominal)[:, 0]
    singular = ~(share > 0.01)
    if singular.any():
        _validation.warn(
            f"at {singular.sum()} sample(s), the first at index {int(np.argmax(singular))}, a step does not spread "
            "over the tangent space: their velocity is NaN. They lie apart from the others; use a larger eps or more "
            "neighbours."
        )
        C[singular] = np.eye(C.shape[1])
        excess[singular] = np.nan
    solution = np.linalg.solve(C, excess[:, :, None])
    return np.einsum("mia,mab,mbc->mi", J, nominal, solution, optimize=True)


def _nominal_diffusion(op: Generator) -> Array:
    """ρ²A as the kernel has it, in ambient coordinates, (m, n, n)."""
    if op.kernel is None:
        raise ValueError("this operator was not built by a kernel, so the noise it was given is unknown.")
    X = _validation.need_points(op.graph.X, "a velocity")
    metric = op.kernel.metric_on(op.graph)
    tensor = np.eye(X.shape[1])[None] if metric is None else metric.tensor()
    return op.kernel.bandwidth_on(op.graph).diffusion()[:, None, None] * tensor


def tangent_basis(op: Generator, basis: ArrayLike | None = None) -> Array:
    """An orthonormal tangent basis at every sample, (m, n, d): from the given one, the kernel's, or local PCA."""
    X = _validation.need_points(op.graph.X, "a tangent basis")
    if basis is None and op.kernel is not None:
        basis = op.kernel.basis
    if basis is not None:
        return np.linalg.qr(_validation.frame(basis, X.shape, "basis"))[0]
    known = None if op.kernel is None else op.kernel.known_dimension
    return TangentSpaces.fit(op.graph, k=usual_neighbors(op.graph, 20), dimension=known).frames()


def local_moments(op: Generator) -> Moments:
    """The drift (m, n) and diffusion tensor (m, n, n) of the operator, to be compared with those of its kernel.

    The diffusion tends to ½ρ²A on the tangent space. The drift is L x, which includes the curvature of the data,
    ½ρ²H, normal to the manifold; `velocity` has the kinds without it.
    """
    _validation.instance(op, "op", Generator)
    X = _validation.need_points(op.graph._X, "local moments")
    if isinstance(op, Extrapolation):
        fine, coarse = local_moments(op.fine), local_moments(op.coarse)
        return Moments(*(2 * a - b for a, b in zip(fine, coarse, strict=True)))
    m, n = X.shape
    mean, second = np.zeros((m, n)), np.zeros((m, n, n))
    assert isinstance(op, MarkovChain)
    for factor in reversed(op.factors):
        graph, out = op.graph, (np.empty_like(mean), np.empty_like(second))
        indices = csr.unsigned(graph._indices)
        _parallel.over_rows(csr.step_moments, graph._indptr, indices, factor._data, X, mean, second, *out)
        mean, second = out
    return Moments(mean / op.eps, second / (2 * op.eps))


def mean_curvature(
    graph: NeighborGraph, eps: float, noise: ArrayLike = 1.0, density: ArrayLike | str | None = None
) -> Array:
    """The mean curvature vector H = (2/ρ²) L_sym x, (m, n): the trace of the second fundamental form.

    For samples that are not uniform give their density, or a part along the data remains.
    """
    _validation.instance(graph, "graph", NeighborGraph)
    X = _validation.need_points(graph.X, "the mean curvature")
    rho = _validation.node_or_scalar(noise, graph.n_points, "noise", positive=True)
    return 2.0 / rho[:, None] ** 2 * Kernel(noise=rho).operator(graph, eps, density).generator(X)
