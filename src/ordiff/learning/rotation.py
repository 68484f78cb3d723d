"""Drift that turns: a field without divergence beside the gradient, and whether the samples ask for it.

    μ = ∇l + w,     w = Σ_{a<b} (∂_b ψ_ab e_a − ∂_a ψ_ab e_b)

with a smooth stream function ψ_ab for each pair of coordinates. In the kernel w is a local ordering, ⟨w(x_i), x_j−x_i⟩,
that is one for each coordinate, Δ_c = x_jc − x_ic, whose slopes w_c are linear in the coefficients of ψ. Their prior
has no free functions, so that the evidence can send all of w to 0. A field that is ∇l as well as w (a constant one, or
one of a harmonic ψ) is left out of w, which turns about the middle of the states, and l has it. About a hole in the
states a field may have neither divergence nor curl and yet be no gradient, as a vortex: w has it.

StreamFunctions     fields w on flat states, and the roughness of their ψ
RotationEvidence    gradient against general drift, in nats
LeftOut             what is not known where a rotation was not learned
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.linalg import eigh

from ordiff._validation import Array
from ordiff.graph import NeighborGraph
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.optimise import PenalisedLikelihood
from ordiff.learning.parameters import ParameterBlock, Parameters
from ordiff.learning.smoothing import FIRST_ROTATION
from ordiff.learning.splines import MOST_DIMENSIONS, SplineBasis
from ordiff.learning.tensor import pairs_of, products
from ordiff.states import States

# Functions of every ψ: of a fit, and of the coarse chain.
_FUNCTIONS, _COARSE_FUNCTIONS = {2: 60, 3: 40}, {2: 25, 3: 20}
# A change of the tensor's logarithm that makes a difference.
_TENSOR_UNIT = 0.2
# In the coordinates of a tensor a gradient turns: there a rotation is never sent to 0, its strength stays below this.
_LOOSE = 1e-6
# The least share of |Dw|² that no gradient has; fields with less are left to the gradient, whose functions are so many
# times as many.
_TURNING, _MORE = 0.1, 2


@dataclass(frozen=True, eq=False)
class StreamFunctions:
    """Fields w of stream functions on flat states.

    fields: (d, N, K). penalty: (K,), the roughness of their ψ; bend: (K, K), the quadratic form of the mean |Dw|².
    functions: (N, K₀), smooth functions without a constant, and their gradients, (d, N, K₀). width: the unit of length
    of penalty and bend.
    """

    fields: Array
    penalty: Array
    bend: Array
    functions: Array
    gradients: Array
    width: float

    @classmethod
    def on(cls, states: States, coarse: bool) -> StreamFunctions | None:
        """Those on these states; None where there are none: in one dimension, on curved data or on samples."""
        d = states.dimension
        if states.are_samples or not 2 <= d == states.points.shape[1] <= MOST_DIMENSIONS:
            return None
        K = (_COARSE_FUNCTIONS if coarse else _FUNCTIONS)[d]
        spline = SplineBasis(states, _MORE * K)
        gradients, rough = spline.gradients()[:, :, 1:K], (spline.rows[:, 1:K] ** 2).sum(axis=0)
        rough = np.tile(rough, d * (d - 1) // 2)
        hessians = spline.hessians()[:, :, :, 1:]
        slopes = np.stack([_fields(row[:, :, : K - 1]) for row in hessians])  # ∂_e w_c, (d, d, knots, fields)
        bend = _gram(slopes)
        T = _turning(bend, _gram(_beyond(slopes, hessians)), rough)
        penalty = np.einsum("kl,k,kl->l", T, rough, T)
        return cls(_fields(gradients) @ T, penalty, T.T @ bend @ T, spline.functions[:, 1:K], gradients, spline.width)

    def block(self, rho: float, index: int) -> ParameterBlock:
        """The block to be learned: coefficients in units of ρ², local slopes from ``index`` on."""
        U = rho**2 * self.fields.reshape(-1, self.fields.shape[2])
        block = ParameterBlock("rotation", U, index, penalty=self.penalty, lower=((self.bend, 0.0),))
        return block.with_strengths(FIRST_ROTATION)

    def coefficients(self, w: Array, volumes: Array, rho: float) -> Array:
        """Those of a field w (N, d) in units of ρ²: least squares with a little smoothness."""
        weights = np.tile(volumes / volumes.sum(), len(self.fields))
        U = rho**2 * self.fields.reshape(weights.size, -1)
        A = U.T @ (weights[:, None] * U)
        A += 1e-6 * np.trace(A) * np.diag(1e-6 + self.penalty / self.penalty.max())
        return np.asarray(np.linalg.solve(A, U.T @ (weights * w.T.ravel())), dtype=np.float64)


def _fields(gradients: Array) -> Array:
    """w of every ψ_ab, (d, N, pairs K), from the gradients (d, N, K) of the functions."""
    d, N, K = gradients.shape
    pairs = list(combinations(range(d), 2))
    out = np.zeros((d, N, len(pairs) * K))
    for place, (a, b) in enumerate(pairs):
        some = slice(place * K, (place + 1) * K)
        out[a, :, some] += gradients[b]
        out[b, :, some] -= gradients[a]
    return out


def _gram(fields: Array) -> Array:
    """Σ f_k f_l over all but the last axis, (K, K)."""
    flat = fields.reshape(-1, fields.shape[-1])
    return np.asarray(flat.T @ flat)


def _beyond(slopes: Array, hessians: Array) -> Array:
    """What is left of derivatives of fields after the best combination of those of gradients."""
    W, H = slopes.reshape(-1, slopes.shape[-1]), hessians.reshape(-1, hessians.shape[-1])
    U, size, _ = np.linalg.svd(H, full_matrices=False)
    U = U[:, size > 1e-6 * size[0]]
    return np.asarray(W - U @ (U.T @ W))


def _turning(bend: Array, beyond: Array, rough: Array) -> Array:
    """Combinations T (K, L) of the functions whose fields turn, from smooth to rough: what of |Dw|² is beyond gradients
    is more than a share of it, and Tᵀ diag(rough) T is diagonal."""
    values, vectors = eigh(bend)
    kept = values > 1e-8 * values[-1]
    white = vectors[:, kept] / np.sqrt(values[kept])  # fields that are constant, or 0, are gone
    share, vectors = eigh(white.T @ beyond @ white)
    T = np.linalg.qr(white @ vectors[:, share > _TURNING])[0]
    return np.asarray(T @ eigh(T.T @ (rough[:, None] * T))[1])


def displacements(graph: NeighborGraph) -> tuple[Array, ...]:
    """x_jc − x_ic on the edges, (E,) for each coordinate c."""
    assert graph.X is not None
    step = graph.X[graph.indices] - graph.X[graph.sources()]
    return tuple(np.ascontiguousarray(step[:, c]) for c in range(step.shape[1]))


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A rotation that was not learned: by how many ``nats`` it is more likely than a gradient; the ``basis`` (d N, K)
    of its coefficients; what it adds to the covariance of the P others, and its own, (P + K, P + K)."""

    nats: float
    basis: Array
    covariance: Array


@dataclass(frozen=True, eq=False)
class RotationEvidence:
    """By how many nats a drift that turns is more likely than a gradient, and whether it was taken; what leaving it out
    leaves unknown, where that was asked."""

    nats: float
    taken: bool
    left_out: LeftOut | None = None


def with_rotation(
    problem: PenalisedLikelihood, streams: StreamFunctions, states: States, a: Array, rho: float, w: Array | None = None
) -> tuple[PenalisedLikelihood, Array]:
    """The problem with a rotation beside what is learned, and its coefficients: those of a field w (N, d), or 0."""
    old, p = problem.likelihood, problem.parameters
    local = displacements(states.graph)
    likelihood = SnapshotLikelihood(
        old.graph, old.observation, states.start, old.steps, old.fractions, sample_weight=problem.weights,
        local=(*old.local, *local),
    )  # fmt: skip
    zeros = tuple(np.zeros(len(states.points)) for _ in local)
    block = streams.block(rho, len(p.base.local_slopes))
    base = replace(p.base, local_slopes=(*p.base.local_slopes, *zeros))
    place = next((k for k, one in enumerate(p.blocks) if one.target in ("scale", "noise")), len(p.blocks))
    parameters = Parameters((*p.blocks[:place], block, *p.blocks[place:]), base, p.alpha)
    part = parameters.slices[place]
    first = np.zeros(part.stop - part.start) if w is None else streams.coefficients(w, states.volumes, rho)
    a = np.concatenate([a[: part.start], first, a[part.start :]])
    return replace(problem, likelihood=likelihood, parameters=parameters), a


def tensor_block(d: int, index: int) -> ParameterBlock:
    """The block of S in d dimensions, whose local slopes begin at ``index``."""
    pairs = pairs_of(d)
    diagonal = [k for k, (a, b) in enumerate(pairs) if a == b]
    traceless = np.linalg.qr(np.ones((d, 1)), mode="complete")[0][:, 1:]
    basis = np.zeros((len(pairs), len(pairs) - 1))
    basis[diagonal, : d - 1] = traceless
    others = [k for k in range(len(pairs)) if k not in diagonal]
    basis[others, range(d - 1, len(pairs) - 1)] = 1.0
    return ParameterBlock("tensor", basis, index, unit=_TENSOR_UNIT)


def with_tensor(problem: PenalisedLikelihood, states: States, a: Array) -> tuple[PenalisedLikelihood, Array]:
    """The problem with a noise that has a direction, and its coefficients, with none at first."""
    old, p = problem.likelihood, problem.parameters
    forms, N = products(states.graph), len(states.points)
    likelihood = SnapshotLikelihood(
        old.graph, old.observation, states.start, old.steps, old.fractions, sample_weight=problem.weights,
        local=old.local, metric=forms,
    )  # fmt: skip
    block = tensor_block(states.dimension, len(p.base.local_slopes))
    base = replace(p.base, local_slopes=(*p.base.local_slopes, *(np.zeros(N) for _ in forms)))
    place = next((k for k, one in enumerate(p.blocks) if one.target in ("scale", "noise")), len(p.blocks))
    turning = tuple(replace(one, most_lower=_LOOSE) if one.target == "rotation" else one for one in p.blocks)
    parameters = Parameters((*turning[:place], block, *turning[place:]), base, p.alpha)
    part = parameters.slices[place]
    a = np.concatenate([a[: part.start], np.zeros(part.stop - part.start), a[part.start :]])
    return replace(problem, likelihood=likelihood, parameters=parameters), a


def strengths_of(problem: PenalisedLikelihood, before: Parameters) -> PenalisedLikelihood:
    """The problem with the strengths of a rotation that was learned before, if one was."""
    found = before.part("rotation")
    return problem if found is None else with_strengths(problem, found[0].strengths)


def with_strengths(problem: PenalisedLikelihood, strengths: Array) -> PenalisedLikelihood:
    """The problem with these strengths of the rotation: of its roughness and of |Dw|²."""
    p = problem.parameters
    blocks = tuple(block.with_strengths(strengths) if block.target == "rotation" else block for block in p.blocks)
    return replace(problem, parameters=replace(p, blocks=blocks))


# Nodes and weights of Gauss–Legendre quadrature on [0, 1].
_NODES, _WEIGHTS = (0.5 * (np.polynomial.legendre.leggauss(4)[0] + 1), 0.5 * np.polynomial.legendre.leggauss(4)[1])
# εH and εJ are no larger than this where a drift is read: beyond 1 the kernel has no finite row sum, and log(I + εJ)
# need not exist.
_STEEPEST = 0.5


def read_general(
    states: States, dynamics: Dynamics, w: Array, streams: StreamFunctions, metric: Array | None = None
) -> tuple[Array, Array]:
    """The ordering (N,), 0 at the start, and the rotation (N, d) of the process, from l and w (N, d) of the chain.

    A step of the chain moves by εv on average, v = (I − εH)⁻¹(g + w) with g and H gradient and Hessian of l: a step
    that is implicit in l and explicit in w. The process with drift μ moves by the same in the time ε when, up to O(ε²),
    and exactly for a linear drift,

        μ = [log(I + εJ)/(εJ)] v − ¼ερ²Δv,     J = ∂v/∂x.

    Where ‖εJ‖ is large, as with the long steps of a coarse chain, J is made shorter: the series would have no meaning.
    What this adds to g + w is split by least squares over gradients and fields of the same functions. ``metric``: A⁻¹
    (d, d) of a noise with a direction, in the place of I in the first inverse.
    """
    eps, d, N = dynamics.eps, states.dimension, len(states.points)
    l, slope = dynamics.orderings[0], dynamics.slopes[0]
    g, H = states.derivatives(l)
    values, vectors = np.linalg.eigh(eps * slope[:, None, None] * H)
    bounded = np.einsum("nij,nj,nkj->nik", vectors, np.minimum(values, _STEEPEST), vectors)
    before = slope[:, None] * g + w
    v = np.linalg.solve((np.eye(d) if metric is None else metric) - bounded, before[:, :, None])[:, :, 0]
    J, bent = np.empty((N, d, d)), np.empty((N, d))
    for c in range(d):
        J[:, c], second = states.derivatives(v[:, c])
        bent[:, c] = np.trace(second, axis1=1, axis2=2)
    J *= np.minimum(1.0, _STEEPEST / np.maximum(eps * np.linalg.norm(J, 2, axis=(1, 2)), _STEEPEST))[:, None, None]
    drift = sum(
        weight * np.linalg.solve(np.eye(d) + node * eps * J, v[:, :, None])[:, :, 0]
        for node, weight in zip(_NODES, _WEIGHTS, strict=True)
    )
    added = drift - 0.25 * eps * dynamics.noise[:, None] ** 2 * bent - before
    U = np.concatenate([streams.gradients, streams.fields], axis=2).reshape(d * N, -1)
    K = streams.gradients.shape[2]
    weights = np.tile(states.volumes / states.volumes.sum(), d)
    A = U.T @ (weights[:, None] * U)
    # what both can be, a gradient is; quadratic l and rotations of space, the first functions of either, are free
    ridge = np.where(np.arange(len(A)) < K, 1e-4, 1e-3)
    ridge[: (d + 1) * (d + 2) // 2 - 1] = ridge[K : K + d * (d - 1) // 2] = 1e-8
    A += np.diag(ridge * np.diag(A))
    b = np.linalg.solve(A, U.T @ (weights * added.T.ravel()))
    read = l + streams.functions @ b[:K]
    rotation = w + np.einsum("dnk,k->nd", streams.fields, b[K:])
    return np.asarray(read - states.start @ read), rotation
