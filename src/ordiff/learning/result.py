"""A chain that was learned, and what can be read from it: the result of a fit, immutable."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import expm, expm_frechet

from ordiff import _validation
from ordiff._parallel import cached_property
from ordiff._validation import Array, IntArray
from ordiff.kernel.kernel import Kernel
from ordiff.kernel.ordering import Ordering
from ordiff.learning.likelihood import Dynamics, SnapshotLikelihood
from ordiff.learning.optimise import Solution
from ordiff.learning.rotation import LeftOut, RotationEvidence, displacements
from ordiff.learning.tensor import products, symmetric
from ordiff.learning.transition import ChainPattern, TransitionParameters
from ordiff.operator import MarkovOperator
from ordiff.states import States

# εH is no larger than this where an ordering is read: beyond it the kernel has no finite row sum.
_STEEPEST = 0.5


@dataclass(frozen=True, eq=False)
class Posterior:
    """The coefficients of ordering, rotation and log noise in functions of the states, with their covariance.

    A basis is None when the field has none (then nothing is known of its deviation), and of no columns when it was not
    learned. That of a rotation is (d N, K), coordinate after coordinate, or None when there is no rotation. One
    that was left out has deviations too, from 0.
    """

    ordering_basis: Array | None  # (N, K)
    noise_basis: Array | None
    ordering_covariance: Array | None  # (K, K)
    noise_covariance: Array | None
    rotation_basis: Array | None = None
    drift_covariance: Array | None = None  # of the coefficients of ordering and rotation together

    @classmethod
    def of(cls, solution: Solution, left_out: LeftOut | None = None) -> Posterior:
        found: list[tuple[Array | None, Array | None]] = []
        C = solution.covariance
        if C is not None and left_out is not None:
            C = left_out.covariance + np.pad(C, (0, len(left_out.covariance) - len(C)))
        for target in ("ordering", "noise"):
            part = solution.parameters.part(target)
            if part is None:
                found.append((np.empty((0, 0)), np.empty((0, 0))))
            else:
                found.append((part[0].basis, None if C is None else C[part[1], part[1]]))
        (l_basis, l_covariance), (n_basis, n_covariance) = found
        turned, along = (solution.parameters.part(target) for target in ("rotation", "ordering"))
        if along is None or C is None or (turned is None and left_out is None):
            return cls(l_basis, n_basis, l_covariance, n_covariance)
        if turned is None:
            assert left_out is not None
            w_basis, own = left_out.basis, slice(solution.a.size, len(C))
        else:
            assert turned[0].basis is not None
            w_basis, own = turned[0].basis, turned[1]
        both = np.r_[along[1], own]
        return cls(l_basis, n_basis, l_covariance, n_covariance, w_basis, C[np.ix_(both, both)])

    def drift_deviations(self, B: sp.csr_array, slopes: list[sp.csr_array], back: Array | None) -> Array:
        """Standard deviations of the drift, (m, n): the gradient of the ordering, from its weights along each
        coordinate, and the rotation, from weights B; ``back`` (q, n): from these coordinates to others."""
        if back is not None:
            slopes = [sp.csr_array(sum(w * G for w, G in zip(row, slopes, strict=True))) for row in back.T]
        turned = self._rotations(B, back)
        if turned is None:
            along = [_deviation(G, self.ordering_basis, self.ordering_covariance, None) for G in slopes]
            return np.stack(along, axis=1)
        assert self.drift_covariance is not None
        both = [np.hstack([G @ self.ordering_basis, U]) for G, U in zip(slopes, turned, strict=True)]
        return np.stack([_spread(R, self.drift_covariance) for R in both], axis=1)

    def rotation_deviations(self, B: sp.csr_array, back: Array | None, n: int) -> Array:
        """Those of the rotation alone, (m, n); 0 where there is none."""
        turned = self._rotations(B, back)
        if turned is None:
            return np.zeros((B.shape[0], n))
        assert self.drift_covariance is not None
        K = turned[0].shape[1]
        return np.stack([_spread(U, self.drift_covariance[-K:, -K:]) for U in turned], axis=1)

    def _rotations(self, B: sp.csr_array, back: Array | None) -> list[Array] | None:
        """Fields of the rotation's coefficients at observations B, (m, K) for each coordinate."""
        if self.rotation_basis is None:
            return None
        parts = self.rotation_basis.reshape(-1, B.shape[1], self.rotation_basis.shape[1])
        if back is not None:
            parts = np.einsum("qn,qik->nik", back, parts)
        return [B @ U for U in parts]

    def deviations(self, B: sp.csr_array, start: Array) -> tuple[Array, Array]:
        """Standard deviations at observations B: of the ordering against the start, and of log noise, as if it had no
        floor: what is at the floor is not known. 0 for what was given, NaN for what is not known."""
        ordering = _deviation(B, self.ordering_basis, self.ordering_covariance, start)
        return ordering, _deviation(B, self.noise_basis, self.noise_covariance, None)


def _deviation(B: sp.csr_array, U: Array | None, C: Array | None, start: Array | None) -> Array:
    if U is None or C is None:
        return np.full(B.shape[0], np.nan)
    if U.size == 0:
        return np.zeros(B.shape[0])
    R = B @ U
    if start is not None:
        R = R - start @ U
    return _spread(R, C)


def _spread(R: Array, C: Array) -> Array:
    """√(R C Rᵀ)_ii, (m,)."""
    return np.sqrt(np.maximum(np.einsum("ij,ij->i", R @ C, R), 0.0))


@dataclass(frozen=True, eq=False)
class FittedChain:
    """The chain: states, dynamics, and the fields read from them. All that a file keeps."""

    states: States
    dynamics: Dynamics
    given: tuple[Ordering, ...]  # the local orderings
    ordering: Array  # (N,) corrected for the length of the step, 0 at the start
    alpha: float
    rotation: Array | None = None  # (N, d) the drift beside the gradients, corrected in the same way
    metric: Array | None = None  # (d, d) A⁻¹ of a noise with a direction

    @cached_property
    def operator(self) -> MarkovOperator:
        """P on the states."""
        d = self.dynamics
        orderings = [Ordering(l, speed=s) for l, s in zip(d.orderings, d.slopes, strict=True)]
        orderings += [
            Ordering._make(o.form, o.n_points, s, 1.0, o.gradient)
            for o, s in zip(self.given, d.local_slopes, strict=False)
        ]
        if self.rotation is not None:
            orderings.append(Ordering.field(self.own_rotation))
        if self.metric is not None:
            orderings.append(Ordering.local(self._stretch))
        kernel = Kernel(orderings, noise=d.noise, dimension=self.states.dimension)
        q = 1 / self.states.volumes
        weight = None if d.log_weight is None else np.exp(d.log_weight + self.alpha * np.log(q))
        with _validation.silent():
            return kernel.operator(self.states.graph, d.eps, q, self.alpha, weight, d.self_weight)

    @cached_property
    def noise(self) -> Array:
        """ρ on the states, (N,), corrected for the length of the step.

        The noise of a process changes on the way through a step, to ρ² + ½εLρ² on average, with L its generator. The
        chain's is that of the state where the step begins, so that of a fit is half a step ahead: ρ²/√((ρ² + Pρ²)/2) is
        what it was, within a factor of √2 at most. The paper's setting, with samples as states, is read as it is.
        """
        rho = self.dynamics.noise
        if self.states.are_samples:
            return rho
        over = np.sqrt(0.5 * (1 + (self.operator @ rho**2) / rho**2))
        return np.asarray(rho / np.minimum(over, np.sqrt(2)))

    def ordering_at(self, X: Array) -> Array:
        """The ordering at points, (p,)."""
        return np.asarray(self.states.observe(X) @ self.ordering)

    def noise_at(self, X: Array) -> Array:
        """ρ at points, (p,)."""
        return np.exp(np.asarray(self.states.observe(X) @ np.log(self.noise)))

    def drift(self, X: Array) -> Array:
        """The drift at points, (p, n)."""
        states, d = self.states, self.dynamics
        B, slopes = states.polynomials(X)
        total = np.zeros(X.shape)
        for k, (l, s) in enumerate(zip(d.orderings, d.slopes, strict=True)):
            values = self.ordering if k == 0 else l
            total += (B @ s)[:, None] * np.stack([G @ values for G in slopes], axis=1)
        for o, s in zip(self.given, d.local_slopes, strict=False):
            total += B @ (s[:, None] * o.gradient_on(states.graph, states.dimension))
        return total if self.rotation is None else total + B @ self.rotation

    def rotation_at(self, X: Array) -> Array:
        """The part of the drift that turns at points, (p, n)."""
        return np.zeros_like(X) if self.rotation is None else np.asarray(self.states.observe(X) @ self.rotation)

    @property
    def own_rotation(self) -> Array:
        """The rotation of the chain's steps, (N, d): the local slopes after those of the given orderings."""
        first = len(self.given)
        return np.stack(self.dynamics.local_slopes[first : first + self.states.dimension], axis=1)

    def _stretch(self, i: IntArray, j: IntArray) -> Array:
        """−zᵀ(A⁻¹ − I)z/(2ε), z = x_j − x_i: with it the metric of a kernel is A⁻¹."""
        assert self.metric is not None
        z = self.states.points[j] - self.states.points[i]
        return -0.5 * np.einsum("...a,ab,...b->...", z, self.metric - np.eye(len(self.metric)), z) / self.dynamics.eps

    def simulate(self, n: int, horizon: float, rng: np.random.Generator) -> tuple[Array, Array]:
        """Times (T,) and paths (n, T, coordinates) from the start, moving between states."""
        P, eps, points = self.operator.matrix, self.dynamics.eps, self.states.points
        steps = int(np.ceil(horizon / eps))
        cumulative = np.cumsum(P.data)
        ends, before = cumulative[P.indptr[1:] - 1], np.concatenate([[0.0], cumulative])[P.indptr[:-1]]
        at = rng.choice(len(points), n, p=self.states.start)
        paths = np.empty((n, steps + 1, points.shape[1]))
        paths[:, 0] = points[at]
        for s in range(steps):
            u = before[at] + rng.random(n) * (ends[at] - before[at])
            at = P.indices[np.clip(np.searchsorted(cumulative, u), P.indptr[at], P.indptr[at + 1] - 1)]
            paths[:, s + 1] = points[at]
        return eps * np.arange(steps + 1.0), paths

    def describe(self, time: str) -> str:
        """What it is made of, in words; time: the unit, with a space before it."""
        states, graph = self.states, self.states.graph
        return (
            f"Chain: {len(states.points)} {'samples' if states.are_samples else 'designed states'} of "
            f"dimension {states.dimension}, {graph.n_edges // graph.n_points} neighbours each, "
            f"steps of {self.dynamics.eps:.4g}{time}."
        )

    @property
    def step(self) -> float:
        """The time step of a simulation."""
        return self.dynamics.eps

    def local_differences(self) -> tuple[Array, ...]:
        """Δl of the given local orderings on the edges of the states, (E,) each."""
        return tuple(ordering.edge_differences(self.states.graph) for ordering in self.given)

    def edge_differences(self) -> tuple[Array, ...]:
        """Those that all local slopes belong to: of given orderings, and of the coordinates for a rotation."""
        turned = () if self.rotation is None else displacements(self.states.graph)
        return (*self.local_differences(), *turned)

    def edge_forms(self) -> tuple[Array, ...]:
        """The forms of the metric on the edges, (E,) each; none where the noise has no direction."""
        return () if self.metric is None else products(self.states.graph)

    def speeds(self) -> Array:
        """The mean speed of every ordering."""
        v = self.states.volumes
        slopes = (*self.dynamics.slopes, *self.dynamics.local_slopes[: len(self.given)])
        return np.array([np.average(s, weights=v) for s in slopes])


@dataclass(frozen=True, eq=False)
class FitResult:
    """What a fit gives: the chain, and how it was found."""

    chain: FittedChain
    solution: Solution
    losses: tuple[float, ...]  # after every evaluation
    stages: tuple[int, ...]  # which function each is of
    converged: bool
    unreached: NDArray[np.intp]
    early: NDArray[np.intp]  # seen before the first step, and not used
    used: NDArray[np.bool_]  # (m,) the samples that were learned from
    sampled: Array  # (N,) how much the samples see of each state, on average
    step_change: float = 0.0  # how much the extrapolation to an infinitely short step changes the ordering
    rotation: RotationEvidence | None = None  # None: a rotation was not asked for, or cannot be

    @property
    def likelihood(self) -> SnapshotLikelihood:
        return self.solution.problem.likelihood

    @property
    def process(self) -> FittedChain:
        """What was learned."""
        return self.chain

    @property
    def loss(self) -> float:
        return self.solution.loss

    @property
    def interrupted(self) -> bool:
        return self.solution.interrupted

    @cached_property
    def posterior(self) -> Posterior:
        left_out = None if self.rotation is None else self.rotation.left_out
        return Posterior.of(self.solution, left_out)

    def deviations(self, X: Array, back: Array | None) -> tuple[Array, Array, Array, Array]:
        """Standard deviations of ordering, log noise, drift and rotation at points X (p, q), the last two (p, n) in the
        coordinates to which ``back`` (q, n) leads."""
        states = self.chain.states
        ordering, log_noise = self.posterior.deviations(states.observe(X), states.start)
        places, slopes = states.polynomials(X)
        drift = self.posterior.drift_deviations(places, slopes, back)
        return ordering, log_noise, drift, self.posterior.rotation_deviations(places, back, drift.shape[1])

    def level_deviation(self) -> float:
        """The posterior standard deviation of the samples' mean log noise: 0 when it was given, NaN when not known."""
        return float(self.posterior.deviations(sp.csr_array(self.sampled[None, :]), self.chain.states.start)[1][0])

    def tensor(self, back: Array | None) -> tuple[Array, Array] | None:
        """A = e^S of a noise with a direction and its standard deviations, (n, n) each; ``back`` (q, n): from these
        coordinates to others."""
        found, C = self.solution.parameters.part("tensor"), self.solution.covariance
        if found is None:
            return None
        block, part = found
        entries = block.field(self.solution.a[part])[0]
        back = np.eye(len(symmetric(entries))) if back is None else back
        S = symmetric(entries)
        assert block.basis is not None
        changes = [back.T @ expm_frechet(S, symmetric(unit))[1] @ back for unit in block.basis.T]
        J = np.stack([change.ravel() for change in changes], axis=1)
        spread = np.full(len(J), np.nan) if C is None else _spread(J, C[part, part])
        return back.T @ expm(S) @ back, spread.reshape(back.shape[1], -1)

    def strength(self, target: str) -> float | None:
        found = self.solution.parameters.part(target)
        return None if found is None else found[0].strength


def read_ordering(states: States, dynamics: Dynamics) -> Array:
    """The ordering of the process from that of the chain, (N,): l + ½ρ² log(Z/Z_0), 0 at the start.

    The kernel is an implicit Euler step, so that a fitted l is off by about ½ε‖∇l‖²/2; see FORMULAS section 8, the
    line. Z and Z_0 are the row sums of the kernel with and without the ordering. On designed states they are those of
    rows that no edge of the data cuts; on samples, whose orderings are not smooth, they are summed.
    """
    l, slope = dynamics.orderings[0], dynamics.slopes[0]
    log_ratio = (_summed_ratio if states.are_samples else _uncut_ratio)(states, dynamics)
    read = l + 0.5 * dynamics.noise**2 * log_ratio / slope
    return np.asarray(read - states.start @ read)


def _uncut_ratio(states: States, dynamics: Dynamics) -> Array:
    """log(Z/Z_0) = ½ε gᵀ(I − εH)⁻¹g/ρ² − ½ log det(I − εH), (N,), with g and H gradient and Hessian of the ordering."""
    slope, eps = dynamics.slopes[0], dynamics.eps
    g, H = states.derivatives(dynamics.orderings[0])
    values, vectors = np.linalg.eigh(eps * slope[:, None, None] * H)
    left = 1 - np.minimum(values, _STEEPEST)
    along = slope[:, None] * np.einsum("ijk,ij->ik", vectors, g)
    return np.asarray(0.5 * eps * (along**2 / left).sum(axis=1) / dynamics.noise**2 - 0.5 * np.log(left).sum(axis=1))


def _summed_ratio(states: States, dynamics: Dynamics) -> Array:
    """log(Z/Z_0) by sums over the rows, (N,)."""
    pattern, l = ChainPattern(states.graph), dynamics.orderings[0]
    inner, none = pattern.inner, np.empty((0, l.size))
    noise, volumes = inner(dynamics.noise), inner(np.log(states.volumes))
    without = TransitionParameters(dynamics.eps, noise, none, none, none, volumes, 0.0)
    tables, slopes = inner(l)[None], inner(dynamics.slopes[0])[None]
    with_ordering = TransitionParameters(dynamics.eps, noise, tables, slopes, none, volumes, 0.0)
    log_Z, log_Z0 = (_log_row_sums(pattern, parameters) for parameters in (with_ordering, without))
    return np.asarray(pattern.outer(log_Z - log_Z0))


def _log_row_sums(pattern: ChainPattern, parameters: TransitionParameters) -> Array:
    out = np.zeros(pattern.n)
    pattern.rows.transition(parameters, parameters.eps, log_sum=out)
    return out
