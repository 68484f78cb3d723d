"""Learning in four dimensions and more: the simulated method of moments.

A chain needs states everywhere, and their number grows with the power of the dimension. Here the ordering is a
quadratic form and functions of single directions (`ridges`), the noise one number, and both are such that simulated
particles have the moments of the samples: with the means m_g of all functions of the ordering over the samples of a
group g of times, μ_g(θ) those of particles, C_g their covariance and n_g the number of samples, the loss is

    ½ Σ_g n_g (m_g − μ_g)ᵀ C_g⁻¹ (m_g − μ_g) + ½ Σ_b λ_b ‖a_b‖²,

minimised by Gauss and Newton with pathwise sensitivities J = ∂μ/∂θ. The particles' moments have no sampling error of
the data, so that nothing is attenuated, and any design of times will do. The strengths λ_b, one of the products of
coordinates and one of each direction, are those of empirical Bayes (Fellner and Schall), and the covariance of θ is
(Σ_g n_g JᵀC⁻¹J + Λ)⁻¹.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordiff._validation import Array
from ordiff.learning.checkpoint import Checkpoint, Round
from ordiff.learning.data import Snapshots
from ordiff.learning.directions import UnexplainedDirections, candidates, unexplained
from ordiff.learning.optimise import Report
from ordiff.learning.particles import Particles, mean_changes, mean_values
from ordiff.learning.process import FittedProcess
from ordiff.learning.ridges import KNOTS, RidgeBasis, RidgeOrdering
from ordiff.learning.settings import DesignedStates, FitSettings

# The dimensions from which a fit is by moments, and the most.
_FEWEST_DIMENSIONS, _MOST_DIMENSIONS = 4, 24
# Steps to the last time; groups of samples; times that are groups of their own, at most.
_STEPS, _GROUPS, _SNAPSHOTS = 60, 10, 12
# Particles of a search, and of the result.
_SEARCH, _FINAL = 4000, 12_000
# Those whose sensitivities are computed, and whose covariance; in the search, and for the result.
_SENSITIVE, _COVARYING = (400, 1000), (3000, 6000)
# Rounds of looking for directions, and the most of them.
_ROUNDS, _DIRECTIONS = 4, 10
# Iterations at most; an optimum: a Newton step would gain less than this, in a search and at the end.
_LARGEST_DAMPING = 1e8
# Iterations in which the strengths change; steps with the last Jacobian.
_UPDATES, _CHORDS = 6, 8
_ITERATIONS, _CONVERGED = (12, 10), (0.3, 0.03)
# From where a step would gain less the Jacobian and the weights stay as they are.
_SMALL = 1.0
# Groups of coefficients are drawn to 0 at most this strongly, in units of what the samples tell of them.
_STRONGEST = 1e3
# The smallest variance of standardised moments that is used; and of moments, in units of that over all times: of what
# few particles see, the variance is not known.
_FLOOR, _RARE = 1e-3, 1e-3
# The points of a window of time.
_WINDOW = 5


@dataclass(frozen=True, eq=False)
class TimeGroups:
    """Samples of about the same time, and how much each step of the particles counts in a group."""

    members: tuple[NDArray[np.intp], ...]
    weights: Array  # (G, T + 1), rows sum to 1
    counts: Array  # (G,)
    nodes: NDArray[np.intp]  # (G, 2) steps at which covariances and sensitivities are taken
    times: Array  # (G,) the mean time

    @classmethod
    def of(cls, data: Snapshots) -> TimeGroups:
        assert data.times is not None
        windows = data.times.reshape(len(data.X), -1)
        middle, horizon = windows.mean(axis=1), float(windows.max())
        different, label = np.unique(middle, return_inverse=True)
        if different.size > _SNAPSHOTS:
            label = np.argsort(np.argsort(middle, kind="stable")) * _GROUPS // len(middle)
        points = windows if windows.shape[1] == 1 else np.linspace(windows[:, 0], windows[:, 1], _WINDOW, axis=1)
        members, weights, nodes = [], [], []
        for g in np.unique(label):
            rows = np.flatnonzero((label == g) & (windows[:, -1] > 1e-9 * horizon) & (data.weights > 0))
            if rows.size < 2:
                continue
            at = points[rows] / horizon * _STEPS
            before = np.minimum(np.floor(at).astype(int), _STEPS - 1)
            share, w = np.zeros(_STEPS + 1), data.weights[rows][:, None]
            np.add.at(share, before, w * (before + 1 - at))
            np.add.at(share, before + 1, w * (at - before))
            members.append(rows)
            weights.append(share / share.sum())
            nodes.append(np.maximum(np.round(np.quantile(at, [0.25, 0.75])).astype(int), 1))
        counts = np.array([data.weights[rows].sum() for rows in members])
        return cls(tuple(members), np.array(weights), counts, np.array(nodes),
                   np.array([middle[rows].mean() for rows in members]))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Linearised:
    """The equations about one θ, in units of their standard errors."""

    residual: Array  # (G p,)
    jacobian: Array  # (G p, p + 1)
    whiten: Array  # (G, p, p)


@dataclass(frozen=True, eq=False)
class MomentEquations:
    """The moments of the samples, and those of particles for any parameters θ = (a, log ρ)."""

    basis: RidgeBasis
    groups: TimeGroups
    observed: Array  # (G, p)
    particles: Particles
    n_sensitive: int
    n_covarying: int

    def means(self, theta: Array) -> Array:
        """Of the particles, (G, p)."""
        path = self.particles.positions(RidgeOrdering(self.basis, theta[:-1]), float(np.exp(theta[-1])))
        return np.asarray(self.groups.weights @ np.array([mean_values(self.basis, u) for u in path]))

    def whitened(self, whiten: Array, means: Array) -> Array:
        return np.einsum("gij,gj->gi", whiten, self.observed - means).ravel()

    def linearised(self, theta: Array) -> Linearised:
        basis, nodes = self.basis, self.groups.nodes
        ordering, noise = RidgeOrdering(basis, theta[:-1]), float(np.exp(theta[-1]))
        used = set(nodes.ravel().tolist())
        changes, covariances, means = {}, {}, []
        for s, (u, S) in enumerate(self.particles.sensitivities(ordering, noise, self.n_sensitive)):
            if s in used:
                changes[s] = mean_changes(basis, u, S)
        every = max(1, len(self.particles.start) // self.n_covarying)
        for s, u in enumerate(self.particles.positions(ordering, noise)):
            means.append(mean_values(basis, u))
            if s in used:
                covariances[s] = np.cov(basis.values(u[::every]).T)
        rare = _RARE * np.diag(np.mean([np.diag(C) for C in covariances.values()], axis=0))
        whiten = np.array([
            np.sqrt(n) * _inverse_root(0.5 * (covariances[a] + covariances[b]) + rare)
            for (a, b), n in zip(nodes, self.groups.counts, strict=True)
        ])  # fmt: skip
        jacobian = np.array([W @ (0.5 * (changes[a] + changes[b])) for W, (a, b) in zip(whiten, nodes, strict=True)])
        residual = self.whitened(whiten, self.groups.weights @ np.array(means))
        return Linearised(residual, jacobian.reshape(residual.size, -1), whiten)

    def sampled(self, theta: Array, n: int) -> list[Array]:
        """About n particles of each group, at times as its samples have them: (n, d) each."""
        some: list[list[Array]] = [[] for _ in self.groups.members]
        path = self.particles.positions(RidgeOrdering(self.basis, theta[:-1]), float(np.exp(theta[-1])))
        for s, u in enumerate(path):
            for g, share in enumerate(self.groups.weights[:, s]):
                count = min(round(share * n), len(u))
                first = (s * n) % len(u)  # others at each step
                some[g].append(np.take(u, np.arange(first, first + count), axis=0, mode="wrap"))
        return [np.concatenate(parts) for parts in some]


def _inverse_root(C: Array) -> Array:
    """R with RᵀR = C⁻¹, directions of hardly any variance left out in part."""
    sd = np.sqrt(np.maximum(np.diag(C), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(C / sd[:, None] / sd)
    return np.asarray((vectors / np.sqrt(np.maximum(values, 0) + _FLOOR)).T / sd)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Parameters, the strengths of smoothness, and how they were found."""

    theta: Array  # (p + 1,)
    strengths: Array  # of each penalised group
    covariance: Array
    losses: tuple[float, ...]
    misfit: float  # Σ n rᵀC⁻¹r
    n_moments: float  # less the effective number of parameters
    converged: bool
    interrupted: bool = False


@dataclass(frozen=True, eq=False)
class MomentFit:
    """What a fit by moments gives."""

    process: FittedProcess
    estimate: Estimate
    left: UnexplainedDirections
    groups: TimeGroups
    samples: list[Array]  # particles of each group, in the coordinates of the data

    unreached = early = np.empty(0, int)
    rotation = None

    @property
    def loss(self) -> float:
        return self.estimate.losses[-1]

    @property
    def losses(self) -> tuple[float, ...]:
        return self.estimate.losses

    @property
    def stages(self) -> tuple[int, ...]:
        return (0,) * len(self.losses)

    @property
    def converged(self) -> bool:
        return self.estimate.converged

    @property
    def interrupted(self) -> bool:
        return self.estimate.interrupted

    def strength(self, target: str) -> float | None:
        """That of the products of coordinates; a constant noise has none."""
        return float(self.estimate.strengths[0]) if target == "ordering" else None

    def level_deviation(self) -> float:
        """The standard deviation of log ρ."""
        return self.process.log_noise_std

    def deviations(self, X: Array, back: Array | None) -> tuple[Array, Array, Array, Array]:
        """Standard deviations of ordering, log noise, drift and rotation, which is 0, at points."""
        ordering, drift = self.process.deviations(X, back)
        return ordering, np.full(len(X), self.process.log_noise_std), drift, np.zeros_like(drift)

    def tensor(self, back: Array | None) -> None:
        """The noise has no direction."""


def is_by_moments(settings: FitSettings, data: Snapshots) -> bool:
    """Whether a fit is by moments: the data have four dimensions or more, times are known, and all is learned."""
    q, d = data.X.shape[1], settings.dimension or 0
    if min(q, d) < _FEWEST_DIMENSIONS or not isinstance(settings.states, DesignedStates) or data.times is None:
        return False
    if settings.ordering is not None or settings.learn - {"noise"} != {"ordering"} or settings.spacing != "auto":
        return False
    if q > _MOST_DIMENSIONS:
        raise ValueError(
            f"the samples have {q} coordinates and are {d}-dimensional, and a process can be learned in up to "
            f"{_MOST_DIMENSIONS}: reduce X to its leading principal components, or, if the process has up to "
            f"{_FEWEST_DIMENSIONS - 1} dimensions and the rest is noise, say how many (dimension=, a member of "
            "DesignedStates)."
        )
    return True


def fit_moments(
    settings: FitSettings, data: Snapshots, report: Report | None = None, checkpoint: Checkpoint | None = None
) -> MomentFit:
    """A quadratic ordering first, then with functions of those directions along which the samples are not yet as the
    particles are, until none is left. The ``checkpoint`` keeps every search."""
    groups = TimeGroups.of(data)
    centre = np.average(data.X, axis=0, weights=data.weights)
    u, start = data.X - centre, data.start - centre
    principal = np.linalg.svd(u, full_matrices=False)[2]
    d, rng = u.shape[1], np.random.default_rng(settings.random_state)
    seed = int(rng.integers(2**31))
    given = None if isinstance(settings.noise, str) else float(np.log(settings.noise))
    most = settings.solver.max_iter

    def equations(directions: Array, final: bool) -> MomentEquations:
        basis = RidgeBasis.of(centre, directions, u)
        observed = [np.average(basis.values(u[rows]), axis=0, weights=data.weights[rows]) for rows in groups.members]
        n = _FINAL if final else _SEARCH
        first = _starts(start, data.start_weights, n)
        particles = Particles(first, float(np.max(data.times)) / _STEPS, _STEPS, seed)  # type: ignore[arg-type]
        return MomentEquations(basis, groups, np.array(observed), particles, _SENSITIVE[final], _COVARYING[final])

    rate, noise = _first_guess(data, u, start, groups)
    theta = np.concatenate([rate * u[groups.members[-1]].mean(axis=0), np.full(d, -rate), np.zeros(d * (d - 1) // 2)])
    theta = np.append(theta, np.log(noise) if given is None else given)
    directions, strengths = np.empty((0, d)), np.array([1 / rate**2])
    observed = [u[rows] for rows in groups.members]
    for _ in range(_ROUNDS):
        problem, interrupted = equations(directions, final=False), False
        before = None if checkpoint is None else checkpoint.next_stage()
        if before is None:
            estimate = solve(problem, theta, strengths, given is None, False, report, most)
            theta, strengths = estimate.theta, estimate.strengths
            interrupted = estimate.interrupted
            if checkpoint is not None and not interrupted:
                losses = np.array(estimate.losses)
                count = 0 if report is None else report.n
                stages = np.zeros(losses.size, dtype=np.int64)
                checkpoint.keep(Round(1, theta, (strengths,), losses, stages, 0, count, done=True))
        else:
            theta, strengths = before.a, before.strengths[0]
            if report is not None:
                report.go_on_from(before.count)
        left = unexplained(candidates(principal, directions), observed, problem.sampled(theta, 2 * _SEARCH))
        more = left.independent(directions)[: _DIRECTIONS - len(directions)]
        if interrupted or not len(more):
            break
        directions = np.concatenate([directions, more])
        theta = np.concatenate([theta[:-1], np.zeros(len(more) * (KNOTS - 1)), theta[-1:]])
        strengths = np.concatenate([strengths, np.full(len(more), 10 / rate**2)])
    problem = equations(directions, final=True)
    if not interrupted:
        estimate = solve(problem, theta, strengths, given is None, True, report, most)
    sampled = problem.sampled(estimate.theta, _FINAL)
    left = unexplained(candidates(principal, directions), observed, sampled)
    process = FittedProcess(
        RidgeOrdering(problem.basis, estimate.theta[:-1]), float(np.exp(estimate.theta[-1])), estimate.covariance,
        data.start, data.start_weights, problem.particles.step,
    )  # fmt: skip
    return MomentFit(process, estimate, left, groups, [centre + y for y in sampled])


def _starts(points: Array, weights: Array, n: int) -> Array:
    """n particles at the points of a start, in pairs that are n/2 apart."""
    at = np.searchsorted(np.cumsum(weights) - 1e-12, (np.arange(n // 2) + 0.5) / (n // 2))
    half = points[np.minimum(at, len(points) - 1)]
    return np.concatenate([half, half])


def _first_guess(data: Snapshots, u: Array, start: Array, groups: TimeGroups) -> tuple[float, float]:
    """Rate and noise of dx = −rate x dt + ρ dW whose variance is that of the samples on average over coordinates."""
    t, horizon = groups.times, float(np.max(data.times))  # type: ignore[arg-type]
    variance = np.array([u[rows].var(axis=0).mean() for rows in groups.members])
    mean = data.start_weights @ start
    first = float((data.start_weights @ (start - mean) ** 2).mean())
    best = (np.inf, 1 / horizon, np.sqrt(variance[-1] / horizon))
    for rate in np.geomspace(0.1, 30, 40) / horizon:
        decay = np.exp(-2 * rate * t)
        gained, growth = (variance - first * decay) / variance, (1 - decay) / (2 * rate) / variance
        square = float(gained @ growth / (growth @ growth))
        loss = float(((gained - square * growth) ** 2).sum())
        if square > 0 and loss < best[0]:
            best = (loss, float(rate), float(np.sqrt(square)))
    return best[1], best[2]


def solve(
    problem: MomentEquations,
    theta: Array,
    strengths: Array,
    learn_noise: bool,
    final: bool,
    report: Report | None,
    most: int = 300,
) -> Estimate:
    """At most so many Gauss–Newton steps, damped as by Levenberg and Marquardt, with strengths by empirical Bayes along
    the way."""
    parts, free = problem.basis.penalised(), slice(0, theta.size if learn_noise else theta.size - 1)
    damping, converged, interrupted, history = 1e-3, False, False, []
    F = np.eye(theta.size)
    prior, decrement, misfit = np.zeros(theta.size), np.inf, np.inf
    try:
        for iteration in range(min(_ITERATIONS[final], most)):
            about = problem.linearised(theta)
            F, b = about.jacobian.T @ about.jacobian, about.jacobian.T @ about.residual
            if iteration < _UPDATES:
                strengths = _updated(strengths, parts, F, b + F @ theta, free)
            prior = _prior(strengths, parts, theta.size)
            misfit = float(about.residual @ about.residual)
            loss, gradient = 0.5 * (misfit + float(prior @ theta**2)), b - prior * theta
            history.append(loss)
            if report is not None:
                report(loss)
            decrement = 0.5 * float(gradient @ (_moved(theta, F, prior, free, gradient) - theta))
            if decrement < _SMALL:
                theta, converged = _root_nearby(problem, about, theta, prior, free, _CONVERGED[final])
                break
            while damping < _LARGEST_DAMPING:
                new = _moved(theta, F, prior + damping * (np.diag(F) + prior), free, gradient)
                with np.errstate(all="ignore"):  # particles may run away
                    residual = problem.whitened(about.whiten, problem.means(new))
                    after = 0.5 * (residual @ residual + prior @ new**2)
                if after < loss:
                    theta = new
                    break
                damping = max(8 * damping, 0.01)
            damping = max(damping / 8, 1e-6)
    except KeyboardInterrupt:
        interrupted = True
    if not history:  # interrupted before the first step: what is known of the point it began from
        about, prior = problem.linearised(theta), _prior(strengths, parts, theta.size)
        F, misfit = about.jacobian.T @ about.jacobian, float(about.residual @ about.residual)
        history.append(0.5 * (misfit + float(prior @ theta**2)))
    V = np.zeros((theta.size, theta.size))
    V[free, free] = np.linalg.inv(F[free, free] + np.diag(_regular(F, prior)[free]))
    # the particles have a sampling error too, the same in all groups
    V *= 1 + problem.groups.counts.sum() / len(problem.particles.start)
    effective = float(np.trace(V[free, free] @ F[free, free]))
    return Estimate(
        theta, strengths, V, tuple(history), misfit, about.residual.size - effective, converged, interrupted
    )


def _root_nearby(
    problem: MomentEquations, about: Linearised, theta: Array, prior: Array, free: slice, tol: float
) -> tuple[Array, bool]:
    """The root of Jᵀ(m − μ(θ)) − Λθ with J and the weights as they are, and whether it was found: the equations of a
    consistent estimate, whatever J, and without the changes of weights that would not let steps end."""
    F = about.jacobian.T @ about.jacobian
    residual = about.residual
    for _ in range(_CHORDS):
        gradient = about.jacobian.T @ residual - prior * theta
        new = _moved(theta, F, prior, free, gradient)
        if 0.5 * float(gradient @ (new - theta)) < tol:
            return theta, True
        theta = new
        residual = problem.whitened(about.whiten, problem.means(theta))
    return theta, False


def _regular(F: Array, prior: Array) -> Array:
    """What is not known at all is left as it is."""
    return np.asarray(prior + 1e-9 * np.diag(F) + 1e-12)


def _moved(theta: Array, F: Array, prior: Array, free: slice, gradient: Array) -> Array:
    """θ after a Newton step of the free parameters."""
    new = theta.copy()
    new[free] += np.linalg.solve(F[free, free] + np.diag(_regular(F, prior)[free]), gradient[free])
    return new


def _prior(strengths: Array, parts: list[slice], p: int) -> Array:
    out = np.zeros(p)
    for part, strength in zip(parts, strengths, strict=True):
        out[part] = strength
    return out


def _updated(strengths: Array, parts: list[slice], F: Array, b: Array, free: slice, rounds: int = 3) -> Array:
    """λ ← (n − λ tr V)/‖a‖² of each group of n coefficients a, at most five times as strong or weak as before."""
    for _ in range(rounds):
        V = np.linalg.inv(F[free, free] + np.diag(_regular(F, _prior(strengths, parts, len(F)))[free]))
        a = V @ b[free]
        found = [
            (part.stop - part.start - strength * np.trace(V[part, part])) / max(float(a[part] @ a[part]), 1e-300)
            for part, strength in zip(parts, strengths, strict=True)
        ]
        most = np.array([_STRONGEST * np.diag(F)[part].max(initial=0.0) for part in parts])
        strengths = np.minimum(np.clip(found, strengths / 5, strengths * 5), most)
    return strengths
