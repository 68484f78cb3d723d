"""Does a fitted process reproduce what was seen, and was it resolved? The self-check of every fit.

Means and covariances of the chain, at the times at which the samples were seen, are compared with those of the samples
as z-scores

    z = (observed − predicted) / √(s²/n + tolerance²),

s² the variance of the samples' terms and the tolerance a share of their spread, so that with very many samples the
error of the discretisation is no alarm. A fit is trusted when no z is large, the states are close enough for the noise
that was found, most samples are reached, and the optimum is one. What follows from a reason is said in its sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from ordiff._validation import Array
from ordiff.learning.data import Snapshots
from ordiff.learning.discretise import levels, wanted_spacing
from ordiff.learning.moments import MomentFit
from ordiff.learning.result import FitResult

# The largest |z| of a right fit: among 50 independent ones 4 is passed in 0.3% of cases.
_LARGEST_Z = 4.0
# Errors of means, in standard deviations, and of covariances, in products of them, that are no alarm.
_MEAN_TOLERANCE, _COVARIANCE_TOLERANCE = 0.03, 0.06
# Bins of time, the fewest samples in one, and the principal directions that are compared.
_BINS, _FEWEST, _DIRECTIONS = 6, 20, 5
# The largest share of an ordering that an extrapolation to a step of 0 may change.
_STEP_CHANGE = 0.3
# The spacing in units of the one that the noise asks for.
_WIDEST = 1.3
# The largest noise in units of its median, and the share of samples at the floor or not reached that is no alarm.
_NOISE_RANGE, _SHARE = 10.0, 0.02
# How far the misfit of a fit by moments may exceed what is expected, in its standard deviations.
_LARGEST_EXCESS = 5.0
# The probability that directions are found whose moments differ, where there is none.
_CHANCE = 1e-4
# The least distance that noise moves within the horizon, as a share of the spread of the start.
_NARROWEST = 0.5
# The dimension from which a chain of some thousand states is too coarse.
_TOO_MANY_DIMENSIONS = 4
# The largest |z| of moments that have not changed since the start, and the words that say so.
_UNCHANGED, STEADY = 3.0, "steady state"
# Two deviations of the log noise: beyond a factor of 1.5 either way, drift and noise are not told apart.
LOOSE_LEVEL = 0.2


@dataclass(frozen=True)
class Moment:
    """One moment of the samples in one bin of time: what was observed, what the process predicts, and z."""

    time: float  # the mean time in the bin; NaN when unknown
    n: int
    name: str
    observed: float
    predicted: float
    z: float


@dataclass(frozen=True)
class FitCheck:
    """The verdict on a fit: ``trusted``, or the ``reasons`` why not, sentences that say what to do; ``table``: the
    moments that were compared, in order of time."""

    trusted: bool
    reasons: tuple[str, ...]
    table: tuple[Moment, ...]

    @property
    def worst_z(self) -> float:
        """The largest |z| of the table."""
        return max((abs(row.z) for row in self.table), default=0.0)

    def __str__(self) -> str:
        if self.trusted:
            return f"Check: passed (means and covariances per time within {self.worst_z:.1f} standard errors)."
        return "Check: NOT TRUSTED.\n" + "\n".join(f"- {reason}" for reason in self.reasons)


def expected_error(drift: Array, deviation: Array) -> float:
    """The relative error of a drift μ (m, n) that is to be expected from its standard deviations s: √(Σ s²/Σ μ²) over
    the samples but for the tenth at which s is largest."""
    s = np.linalg.norm(deviation, axis=1)
    inner = s <= np.quantile(s, 0.9)
    return float(np.sqrt((s[inner] ** 2).sum() / max((drift[inner] ** 2).sum(), np.finfo(float).tiny)))


def check_fit(result: FitResult, data: Snapshots, noise: Array, steady: float, names: Sequence[str] = ()) -> FitCheck:
    """The check of a fit. noise: at the samples, (m,). steady: the deviation of the level of log noise. names: of the
    coordinates."""
    table = () if result.solution.interrupted else moments_table(result, data, names)
    reasons = [
        *_of_the_run(result, data),
        *_of_the_moments(table),
        *_of_the_states(result, data),
        *_of_the_noise(noise, steady),
        *_of_the_start(result, data, noise),
        *_of_a_steady_state(data),
        *_of_the_step(result),
    ]
    return FitCheck(not reasons, tuple(reasons), table)


def check_moments(result: MomentFit, data: Snapshots, steady: float, names: Sequence[str] = ()) -> FitCheck:
    """The check of a fit by moments: those of the particles, which were fitted on average, how well all of them fit,
    and third and fourth moments along many directions."""
    table: list[Moment] = []
    if not result.interrupted:
        centre, axes, directions = _directions(data.X, names)
        groups = result.groups
        for rows, time, y in zip(groups.members, groups.times, result.samples, strict=True):
            mass = np.full(len(y), 1 / len(y))
            if rows.size >= _FEWEST:
                table += _compared((data.X[rows] - centre) @ axes, (y - centre) @ axes, mass, float(time), directions)
    reasons = [*_of_the_run(result, data), *_of_the_moments(tuple(table)), *_of_the_form(result)]
    reasons += _of_the_noise(np.ones(1), steady)
    return FitCheck(not reasons, tuple(reasons), tuple(table))


# ------------------------------------------------------------------------------------------ moments


def moments_table(result: FitResult, data: Snapshots, names: Sequence[str] = ()) -> tuple[Moment, ...]:
    """Means and covariances of samples and chain along the leading directions of the data, in bins of time."""
    kept = result.used
    X = data.X[kept]
    points = result.chain.states.points
    centre, axes, directions = _directions(X, names)
    x, y = (X - centre) @ axes, (points - centre) @ axes
    W = result.likelihood.observation.time_matrix(result.likelihood.schedule.n_slices)
    masses = result.likelihood.time_slices(result.chain.dynamics)
    times = None if data.middle_times is None else data.middle_times[kept]
    rows: list[Moment] = []
    for members in _bins(times, len(X)):
        mass = np.asarray(W[members].mean(axis=0)).ravel() @ masses
        time = float("nan") if times is None else float(times[members].mean())
        rows += _compared(x[members], y, mass / mass.sum(), time, directions)
    return tuple(rows)


def _directions(X: Array, names: Sequence[str] = ()) -> tuple[Array, Array, list[str]]:
    """A centre, directions (n, r) and their names: the coordinates, or the leading principal directions of many."""
    n, centre = X.shape[1], X.mean(axis=0)
    if n <= _DIRECTIONS:
        return np.zeros(n), np.eye(n), list(names) or [f"x{k + 1}" for k in range(n)]
    axes = np.linalg.svd(X - centre, full_matrices=False)[2][:_DIRECTIONS].T
    return centre, axes, [f"component {k + 1}" for k in range(axes.shape[1])]


def _bins(times: Array | None, m: int) -> list[Any]:
    """The samples of each bin: one a snapshot, or about as many in each; of unknown times all."""
    if times is None:
        return [np.arange(m)]
    different, label = np.unique(times, return_inverse=True)
    if different.size > 2 * _BINS:
        label = np.minimum(np.argsort(np.argsort(times, kind="stable")) * _BINS // m, _BINS - 1)
    bins = [np.flatnonzero(label == k) for k in np.unique(label)]
    return [members for members in bins if members.size >= _FEWEST]


def _compared(x: Array, y: Array, mass: Array, time: float, names: list[str]) -> list[Moment]:
    """Moments of samples x (n, r) and of states y (N, r) with their masses."""
    n, r = x.shape
    centre, spread = x.mean(axis=0), np.maximum(x.std(axis=0), np.finfo(float).tiny)
    expected = mass @ y
    rows = []
    for a in range(r):
        error = np.hypot(spread[a] / np.sqrt(n), _MEAN_TOLERANCE * spread[a])
        rows.append(Moment(time, n, f"mean of {names[a]}", float(centre[a]), float(expected[a]),
                           float((centre[a] - expected[a]) / error)))  # fmt: skip
    for a, b in combinations_with_replacement(range(r), 2):
        terms = (x[:, a] - centre[a]) * (x[:, b] - centre[b])
        predicted = mass @ ((y[:, a] - expected[a]) * (y[:, b] - expected[b]))
        error = np.hypot(terms.std() / np.sqrt(n), _COVARIANCE_TOLERANCE * spread[a] * spread[b])
        name = f"variance of {names[a]}" if a == b else f"covariance of {names[a]} and {names[b]}"
        observed = terms.mean() * n / max(n - 1, 1)
        rows.append(Moment(time, n, name, float(observed), float(predicted), float((observed - predicted) / error)))
    return rows


# ------------------------------------------------------------------------------------------ reasons


def _of_the_moments(table: tuple[Moment, ...]) -> list[str]:
    bad = [row for row in table if abs(row.z) > _LARGEST_Z]
    if not bad:
        return []
    worst = max(bad, key=lambda row: abs(row.z))
    when = "" if np.isnan(worst.time) else f" at time {worst.time:.3g}"
    return [
        f"the fitted process does not reproduce the samples: the {worst.name}{when} is {worst.observed:.3g}, and "
        f"{worst.predicted:.3g} of the fit, {abs(worst.z):.0f} standard errors apart ({len(bad)} of {len(table)} "
        "moments are off). The drift may be no gradient (a cycle), the noise may differ by direction, or the start may "
        "be wrong."
    ]


def _of_the_form(result: MomentFit) -> list[str]:
    """Whether an ordering of the form that was assumed, and one noise, explain the moments."""
    e = result.estimate
    if result.interrupted:
        return []
    excess = (e.misfit - e.n_moments) / np.sqrt(2 * e.n_moments)
    significant = result.left.n_significant(_CHANCE)
    if excess <= _LARGEST_EXCESS and not significant:
        return []
    found = (
        f"along {significant} directions third and fourth moments differ"
        if significant
        else f"their misfit is {e.misfit:.0f}, where {e.n_moments:.0f} is expected"
    )
    return [
        f"in {result.process.form.basis.dimension} dimensions the ordering is taken as a quadratic form and functions "
        f"of single directions, and the noise as the same everywhere, and the samples are not so: {found}. The drift "
        "may be of another form or no gradient, or the noise may vary: try the leading two or three principal "
        "components."
    ]


def _of_the_run(result: FitResult | MomentFit, data: Snapshots) -> list[str]:
    m, reasons = len(data.X), []
    if result.interrupted:
        reasons.append("the fit was interrupted: its fields are the best so far.")
    elif not result.converged:
        reasons.append(
            "the optimum was not confirmed: raise the solver's max_iter, or use stronger smoothness or more samples."
        )
    if result.unreached.size > _SHARE * m:
        reasons.append(
            f"the process does not reach {result.unreached.size} of {m} samples: check the start, and whether they are "
            "outliers."
        )
    if result.early.size > 0.2 * m:
        reasons.append(
            f"{result.early.size} of {m} samples were seen before the first step and are not used: give a smaller eps."
        )
    return reasons


def _of_the_start(result: FitResult, data: Snapshots, noise: Array) -> list[str]:
    """A start is known by its samples alone: noise that moves less than these are apart takes up their sampling. Of a
    start in several parts that are not connected each is as wide as it is."""
    if data.one_start:
        return []
    states, w = result.chain.states, data.start_weights
    part = states.graph.components[states.nearest(data.start)]
    share = np.maximum(np.bincount(part, w), np.finfo(float).tiny)
    centres = np.stack([np.bincount(part, w * x) / share for x in data.start.T], axis=1)
    spread = float(np.sqrt((w @ (data.start - centres[part]) ** 2).mean()))
    moved = float(np.median(noise) * np.sqrt(data.horizon))
    if moved >= _NARROWEST * spread:
        return []
    return [
        f"the start is spread over {spread:.3g}, and within the horizon noise moves by {moved:.3g} only: so little is "
        "not told apart from the sampling of the start, and noise comes out too large. Give later snapshots, more "
        "samples of the start, or the known noise."
    ]


def _of_a_steady_state(data: Snapshots) -> list[str]:
    """Means and covariances at all later times are those of the start: nothing is seen to move."""
    w, n = data.start_weights, 1 / float((data.start_weights**2).sum())
    times = data.middle_times
    if data.one_start or times is None or n < _FEWEST:
        return []
    later = np.flatnonzero(times > 0)
    axes = _directions(data.X)[1]
    mean, spread = _terms(data.start @ axes, w)
    for members in _bins(times[later], later.size):
        other, its_spread = _terms(data.X[later[members]] @ axes, np.full(members.size, 1 / members.size))
        z = (other - mean) / np.sqrt(spread / n + its_spread / members.size + np.finfo(float).tiny)
        if np.abs(z).max() > _UNCHANGED:
            return []
    return [
        f"at all times the samples are distributed as at the start, as at a {STEADY}: nothing is seen to move, so that "
        "neither a drift that turns nor the common level of drift and noise can be told. Give samples on the way to "
        "it, or the known noise."
    ]


def _terms(x: Array, w: Array) -> tuple[Array, Array]:
    """First and second moments of samples x (n, r) with their shares w, about 0 and about their mean, and the variance
    of the terms that they are means of."""
    away = x - w @ x
    pairs = list(combinations_with_replacement(range(x.shape[1]), 2))
    terms = np.column_stack([x, *(away[:, a] * away[:, b] for a, b in pairs)])
    mean = w @ terms
    return mean, w @ (terms - mean) ** 2


def _of_the_step(result: FitResult) -> list[str]:
    if result.step_change <= _STEP_CHANGE:
        return []
    eps = result.chain.dynamics.eps
    return [
        f"a shorter step would change the ordering by about {100 * result.step_change:.0f}%: the step of {eps:.3g} is "
        f"too long for how fast the drift changes. Give Solver(eps={eps / 2:.3g}) or less."
    ]


def _of_the_states(result: FitResult, data: Snapshots) -> list[str]:
    states, d = result.chain.states, result.chain.states.dimension
    if states.are_samples:
        return []
    reasons = []
    if d >= _TOO_MANY_DIMENSIONS:
        reasons.append(
            f"the data have {d} dimensions, and a chain resolves up to {_TOO_MANY_DIMENSIONS - 1}: in 4 and more, "
            "drifts come out half as large as they are. Use the leading principal components."
        )
    low, _, _ = levels(data, result.chain)
    ratio = states.spacing / wanted_spacing(d, result.chain.dynamics.eps, low)
    if ratio > _WIDEST:
        reasons.append(
            f"the states are {ratio:.1f} times as far apart as the noise that was found asks for: raise max_states "
            f"about {ratio**d:.0f} times, or use fewer dimensions."
        )
    return reasons


def _of_the_noise(noise: Array, steady: float) -> list[str]:
    reasons = []
    high = float(np.quantile(noise, 0.99) / np.median(noise))
    if high > _NOISE_RANGE:
        reasons.append(
            f"the noise field rises to {high:.0f} times its median, further than samples can tell: check for outliers "
            'and for batch effects, or use noise="constant".'
        )
    if steady > LOOSE_LEVEL:
        reasons.append(
            f"the level of the noise is known only to a factor of {np.exp(min(2 * steady, 7.0)):.2g} either way: drift "
            f"and noise can hardly be told apart, as happens near a {STEADY}. See model.profile()."
        )
    return reasons
