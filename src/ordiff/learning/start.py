"""The density of a start that is known by samples.

Samples s_j of a start are not the start: if a chain set out from them as they are, noise would have to make up for the
gaps between them, and would be found too large. Where a start is wide its density is estimated first, by penalised
maximum likelihood, as a log-spline

    p_0(x_i) = v_i exp(f(x_i)) / Σ_k v_k exp(f(x_k)),     f in the span of a `SplineBasis`,

    loss = −Σ_j w_j f(s_j) + log Σ_k v_k exp(f(x_k)) + λ R(f),

R the roughness of the basis and λ by Fellner and Schall. Since R is 0 for quadratic functions, p_0 has the mean and the
covariance of the samples, and is normal where these do not tell of anything else. Then f is learned with everything
else from the later samples, with the likelihood of the first ones as its prior: normal about the estimate, with the
Hessian of n times the loss as its precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.special import logsumexp

from ordiff._coordinates import distinct_rows
from ordiff._starts import start_kernels
from ordiff._validation import Array
from ordiff.learning.data import Snapshots
from ordiff.learning.parameters import ParameterBlock
from ordiff.learning.splines import MOST_DIMENSIONS, SplineBasis
from ordiff.states import States

# The most functions, and the fewest samples of a start that a density is estimated from.
_FUNCTIONS, _FEWEST_SAMPLES = 60, 30
# Rounds of Fellner and Schall, Newton steps in each, and the nats a sample that a step at the optimum would gain.
_ROUNDS, _NEWTON_STEPS, _NATS = 30, 50, 1e-8
# The first strength; it changes at most by a factor in a round, and by less than the second at the end.
_FIRST_STRENGTH, _LARGEST_CHANGE, _SMALLEST_CHANGE = 1e-6, 30.0, 0.05
# The effective number of coefficients that is none.
_NONE_USED = 0.1
# The share of what is known of a function that comes from samples, and not from its smoothness: with less it stays.
_FROM_SAMPLES = 0.2
# The least density that a sample is told to have by kernels, in units of a uniform one.
_LEAST_DENSITY = 1e-3
# Masses below this share of the largest are none.
_LEAST_MASS = 1e-9


@dataclass(frozen=True, eq=False)
class StartDensity:
    """An estimated density, as masses on the states, and what is not known of it."""

    mass: Array  # (N,)
    functions: Array  # (N, L) changes of log p_0
    precision: Array  # (L, L) of their coefficients, about 0

    def block(self, n_samples: float) -> ParameterBlock:
        """What is to be learned of it, in a loss that is the mean over so many samples."""
        with np.errstate(divide="ignore"):
            centre = np.log(self.mass)
        return ParameterBlock("start", self.functions, centre=centre, penalty=0.5 * self.precision / n_samples,
                              strength=1.0)  # fmt: skip


def start_density(states: States, data: Snapshots) -> StartDensity | None:
    """The density of a start known by samples, where that predicts them better than the narrow kernels about each of
    them that the states come with; None where it does not, or where the start is a point."""
    flat = states.points.shape[1] == states.dimension <= MOST_DIMENSIONS
    if data.one_start or not flat or states.are_samples:
        return None
    inside = states.distance(data.start) < 2 * states.spacing
    if len(distinct_rows(data.start[inside])) < _FEWEST_SAMPLES:
        return None
    samples, w = data.start[inside], data.start_weights[inside] / data.start_weights[inside].sum()
    found = _log_spline(states, states.observe(samples), w)
    return found[0] if found is not None and found[1] > _score_of_kernels(states, samples, w) else None


def _log_spline(states: States, B: Any, w: Array) -> tuple[StartDensity, float] | None:
    """The density of samples with places B (s, N) and weights w (s,), and its score: the mean log density at them, less
    the effective number of its coefficients a sample; None if it has no bounds."""
    v, n = states.volumes, 1 / float(w @ w)
    basis = SplineBasis(states, min(_FUNCTIONS, len(v) // 3))
    U, P, rank = basis.functions[:, 1:], (basis.rows[:, 1:] ** 2).sum(axis=0), basis.functions.shape[1] - basis.n_free
    seen = np.asarray(w @ (B @ U))
    a, strength = np.zeros(U.shape[1]), _FIRST_STRENGTH
    for _ in range(_ROUNDS):
        a, information = _maximum(U, v, seen, 2 * strength * P, a)
        H = information + np.diag(2 * strength * P)
        if not np.linalg.eigvalsh(H)[0] > 0:  # all mass on single states
            return None
        used = rank - 2 * strength * float(np.diag(np.linalg.inv(H)) @ P)
        if used < _NONE_USED:  # a normal density will do
            break
        change = np.log(used / (2 * n * strength * float(P @ a**2)))
        if abs(change) < _SMALLEST_CHANGE:
            break
        strength *= float(np.exp(np.clip(change, -np.log(_LARGEST_CHANGE), np.log(_LARGEST_CHANGE))))
    f = U @ a
    f -= logsumexp(f, b=v)
    mass = v * np.exp(f)
    mass[mass < _LEAST_MASS * mass.max()] = 0.0
    share, vectors = eigh(information, H)  # vectorsᵀ H vectors = 1
    some = vectors[:, share > _FROM_SAMPLES]
    density = StartDensity(mass / mass.sum(), U @ some, n * np.eye(some.shape[1]))
    return density, float(w @ (B @ f)) - (basis.n_free - 1 + used) / n


def _maximum(U: Array, v: Array, seen: Array, penalty: Array, a: Array) -> tuple[Array, Array]:
    """Coefficients at the minimum of the penalised loss, which is convex, by damped Newton steps, and the information
    of a sample there."""

    def loss(a: Array) -> float:
        return float(logsumexp(U @ a, b=v) - seen @ a + 0.5 * (penalty @ a**2))

    value = loss(a)
    for _ in range(_NEWTON_STEPS):
        p = v * np.exp(U @ a - logsumexp(U @ a, b=v))
        mean = U.T @ p
        information = (U.T * p) @ U - np.outer(mean, mean)
        information[np.diag_indices_from(information)] += 1e-12 * np.trace(information)
        gradient = mean - seen + penalty * a
        step = -np.linalg.solve(information + np.diag(penalty), gradient)
        gain = -float(gradient @ step)
        if gain < _NATS:
            break
        share = 1.0
        while (after := loss(a + share * step)) > value - 1e-4 * share * gain and share > 1e-6:
            share *= 0.5
        a, value = a + share * step, after
    return a, information


def _score_of_kernels(states: States, start: Array, w: Array) -> float:
    """The mean log density at each sample that the kernels about the others give."""
    K = start_kernels(states.points, states.volumes, start, states.spacing)
    by_volume = K.multiply(1 / states.volumes[None, :]).tocsr()
    own = w * np.asarray(K.multiply(by_volume).sum(axis=1)).ravel()
    others = (by_volume @ (w @ K) - own) / (1 - w)
    return float(w @ np.log(np.maximum(others, _LEAST_DENSITY / states.volumes.sum())))
