"""`SnapshotSDE`: drift and noise from snapshots, as a scikit-learn estimator.

A fit has four stages. *Look*: a coarse fit on few states finds how large the noise and the drift are. *Design*: step,
spacing and radius follow from them. *Learn*: maximum likelihood on the designed states, smoothness by empirical Bayes.
*Read*: ordering, noise and drift at the samples, with their standard deviations.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline
from scipy.spatial import cKDTree
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ordiff import _check
from ordiff._check import Array, IntArray
from ordiff.fields import Moments, local_moments
from ordiff.graph import NeighborGraph
from ordiff.inference.fitted import Fitted
from ordiff.inference.learn import learn, make_objective, progress_bar
from ordiff.inference.objective import Dynamics, Objective
from ordiff.inference.optimise import Problem, log_volume, metric
from ordiff.inference.seen import Seen
from ordiff.kernel.ordering import Ordering
from ordiff.passage import fate_probabilities, terminal_sets
from ordiff.states import States

# The layout of saved files.
_FORMAT = 2


class SnapshotSDE(BaseEstimator):
    """Learns dx = ∇l dt + ρ dW from points that were each seen once.

    start: where the process starts: a point (n,) of decimal numbers, a sample's index or several, a mask (m,) of the
    samples that are a start, or a mass (m,) on the samples.
    eps: the time step of the chain, in the units of ``times``; "auto" is horizon/40, shorter (to horizon/80)
    where the drift changes fast, longer when that would need more than 4,000 states.
    states: "designed" (evenly spread over the data; see `States`), "samples" (the paper's setting), or a `States`.
    learn: what is learned, of "ordering", "noise", "speed" and "scale" (of given orderings), "eps", "density".
    noise: "field", "constant" (at the optimum of its marginal likelihood), or a number: the known noise, which is kept.
    ordering: given orderings: values at the samples (m,), where the learned ordering starts from, or which is kept if
    it is not learned (carried to the states by local polynomials); or a function of points (N, n) that returns an
    `Ordering` on them or several, whose shapes are kept and whose speeds can be learned, beside a learned one.
    time_density, horizon: for unknown times, their density on [0, horizon], a function of an array of times.
    basis: "auto", the number of smooth functions that ordering and noise are made of; None: values, one a state.
    smooth_ordering, smooth_noise: strength of smoothness, or "auto" (by empirical Bayes).
    action: strength of the Onsager–Machlup action.
    n_neighbors: "auto" (a radius of four steps' standard deviations), or a number of neighbours (of designed states,
    about so many on average, and all within three spacings).
    density: with states="samples", how the sampling density is estimated: "knn", "balanced", "kernel", or (m,).
    alpha: the power of the density.
    speed: "constant" or "field", how a speed is learned. spacing, dimension: of designed states. n_starts: the optimum
    is confirmed from this many starts, and the best of them is taken. progress: show a bar (needs tqdm).

    After ``fit``: ``ordering_`` (0 at the start), ``noise_``, ``drift_`` at the samples, with ``ordering_std_`` and
    ``noise_std_`` (one posterior standard deviation; of log noise in ``log_noise_std_``), ``speed_``, ``states_``,
    ``graph_``, ``operator_`` (on the states), ``eps_``, ``loss_``, ``history_``, ``converged_``, ``n_iter_``,
    ``unreached_`` (samples that the process cannot reach), ``early_`` (samples seen before the chain's first step,
    which are not used).

    >>> import ordiff as od
    >>> data = od.datasets.ornstein_uhlenbeck(400, random_state=0)
    >>> model = od.SnapshotSDE(data.start, noise="constant").fit(data.X, data.times)
    >>> bool(0.9 < model.noise_.mean() / 2**0.5 < 1.1)
    True
    """

    def __init__(
        self,
        start: Any,
        eps: Any = "auto",
        states: Any = "designed",
        learn: Any = ("ordering", "noise"),
        noise: Any = "field",
        ordering: Any = None,
        time_density: Any = None,
        horizon: Any = None,
        basis: Any = "auto",
        smooth_ordering: Any = "auto",
        smooth_noise: Any = "auto",
        action: float = 0.0,
        n_neighbors: Any = "auto",
        density: Any = "kernel",
        alpha: float = 1.0,
        max_iter: int = 300,
        tol: float = 1e-9,
        progress: bool = False,
        random_state: Any = 0,
        *,
        speed: str = "constant",
        spacing: Any = "auto",
        dimension: Any = None,
        n_starts: int = 2,
    ) -> None:
        self.start, self.eps, self.states, self.learn = start, eps, states, learn
        self.noise, self.ordering = noise, ordering
        self.time_density, self.horizon, self.basis = time_density, horizon, basis
        self.smooth_ordering, self.smooth_noise, self.action = smooth_ordering, smooth_noise, action
        self.n_neighbors, self.density, self.alpha = n_neighbors, density, alpha
        self.max_iter, self.tol, self.progress, self.random_state = max_iter, tol, progress, random_state
        self.speed, self.spacing, self.dimension, self.n_starts = speed, spacing, dimension, n_starts

    # -------------------------------------------------------------------------------------------- fit

    def fit(self, X: ArrayLike, times: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> SnapshotSDE:
        """Learn from samples X (m, n) and their times (m,), or windows of time (m, 2); without, from `time_density`.

        times: counted from the start, which is at time 0. sample_weight: how many samples each one stands for (m,).
        """
        X = _check.points(validate_data(self, X, dtype=np.float64, ensure_min_samples=10))
        seen = Seen.make(self, X, times, sample_weight)
        with progress_bar(self.progress) as report:
            fitted = learn(self, seen, report)
        self._read(seen, fitted)
        return self

    def _read(self, seen: Seen, fitted: Fitted) -> None:
        """The fitted attributes, at the samples in the user's order."""
        self._fitted = fitted
        states = fitted.states
        self.states_, self.graph_, self.eps_ = states, states.graph, fitted.dynamics.eps
        self.start_, self.start_weights_, self.horizon_ = seen.start, seen.start_weights, seen.horizon
        self.loss_, self.history_ = fitted.loss, np.array(fitted.history)
        self.n_iter_, self.converged_ = len(fitted.history), fitted.converged
        self.operator_ = fitted.operator
        self._samples = seen.X
        self._observed = B = states.observe(seen.X)
        self.ordering_ = B @ fitted.ordering
        self.noise_ = np.exp(B @ np.log(fitted.noise))
        self.drift_ = fitted.drift(seen.X)
        self.speed_ = fitted.speeds()
        self.ordering_std_, self.log_noise_std_ = fitted.deviations(B)
        self.noise_std_ = self.noise_ * self.log_noise_std_
        self.smooth_ordering_, self.smooth_noise_ = (fitted.strength(name) for name in ("ordering", "noise"))
        self.unreached_, self.early_ = fitted.unreached, fitted.early
        _warn_of_fit(self)

    # ------------------------------------------------------------------------------------ new points

    def predict(self, X: ArrayLike) -> Array:
        """The ordering at points (p, n), 0 at the start."""
        return self._at(X) @ self._fitted.ordering

    def predict_noise(self, X: ArrayLike) -> Array:
        """ρ at points (p, n)."""
        return np.exp(self._at(X) @ np.log(self._fitted.noise))

    def predict_drift(self, X: ArrayLike) -> Array:
        """The drift at points (p, n), in their coordinates."""
        return self._fitted.drift(self._points(X))

    def _points(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        return _check.points(validate_data(self, X, dtype=np.float64, reset=False), minimum=1)

    def _at(self, X: ArrayLike) -> Any:
        points = self._points(X)
        return self.states_.observe(points)

    def score_samples(self, X: ArrayLike, times: ArrayLike | None = None) -> Array:
        """The logarithm of the density of every point at its time, (p,)."""
        check_is_fitted(self)
        seen = Seen.make(self, self._points(X), times, None, (self.start_, self.start_weights_), self.horizon_)
        objective = make_objective(self, seen, self.states_, self.eps_)
        return objective.per_sample(self._fitted.dynamics)

    def score(self, X: ArrayLike, times: ArrayLike | None = None) -> float:
        """The mean log density of points at their times: higher is better."""
        return float(self.score_samples(X, times).mean())

    def simulate(self, n: int, horizon: float | None = None, random_state: Any = None) -> tuple[Array, Array]:
        """Times (T,) and paths (n, T, coordinates) of the learned chain from the start, moving between states."""
        check_is_fitted(self)
        n = _check.count(n, "n", 1)
        steps = int(np.ceil((self.horizon_ if horizon is None else _check.positive(horizon, "horizon")) / self.eps_))
        rng = np.random.default_rng(self.random_state if random_state is None else random_state)
        P = self.operator_.matrix
        cumulative = np.cumsum(P.data)
        ends, before = cumulative[P.indptr[1:] - 1], np.concatenate([[0.0], cumulative])[P.indptr[:-1]]
        at = rng.choice(len(self.states_.points), n, p=self.states_.start)
        paths = np.empty((n, steps + 1, self.states_.points.shape[1]))
        paths[:, 0] = self.states_.points[at]
        for s in range(steps):
            u = before[at] + rng.random(n) * (ends[at] - before[at])
            at = P.indices[np.clip(np.searchsorted(cumulative, u), P.indptr[at], P.indptr[at + 1] - 1)]
            paths[:, s + 1] = self.states_.points[at]
        return self.eps_ * np.arange(steps + 1.0), paths

    # ------------------------------------------------------------------------------------ can it be trusted

    def moments(self) -> Moments:
        """Drift and diffusion read back from the operator at the states: the check that it does what was learned."""
        check_is_fitted(self)
        return local_moments(self.operator_)

    def profile(self, param: str = "noise", grid: ArrayLike | None = None) -> Profile:
        """The loss with the level of the noise held at each of ``grid``, all else learned again.

        The level is the geometric mean of the chain's noise over the states' volume, of a field without its floor; the
        noise itself when it is constant. The likelihood is marginal: what else is learned is integrated out by
        Laplace's method, since at their joint optimum many coefficients of an ordering take up part of the noise. The
        interval holds the levels within 1.92 nats of the best, 95% for one parameter.
        """
        check_is_fitted(self)
        _check.option(param, "param", ("noise",))
        problem, solution = self._fitted.problem, self._fitted.solution
        found = self._fitted.block("noise")
        if not isinstance(self.noise, str):
            raise ValueError(f"the noise was given, as {self.noise:g}: it has no profile.")
        if problem is None or found is None or found[0].basis is None:
            raise ValueError("a profile needs a model that was fitted here, with a noise in a basis or constant.")
        at = found[1].start
        best = float(np.exp(solution.a[at]))
        levels = best * np.geomspace(0.5, 2.0, 9) if grid is None else np.unique(np.atleast_1d(np.asarray(grid, float)))
        if not (levels > 0).all():
            raise ValueError("the levels of the noise in grid must be positive.")
        free = np.ones(solution.a.size, bool)
        free[at] = False
        matrix = metric(problem, solution.a)
        nats = np.empty(levels.size)
        width = log_volume(problem, solution.a, free)
        outward = np.argsort(np.abs(np.log(levels / best)))  # from the optimum outwards, each from its neighbour
        known = {best: solution.a}
        for place in outward:
            a = known[min(known, key=lambda level: abs(np.log(level / levels[place])))].copy()
            a[at] = np.log(levels[place])
            a, loss = problem.minimise(a, matrix, 60, self.tol, free)
            known[float(levels[place])] = a
            nats[place] = problem.n_samples * (loss - solution.loss) + log_volume(problem, a, free) - width
        problem.objective.release()
        return Profile(levels, nats, *_interval(levels, nats, best))

    def uncertainty(self, n_boot: int = 0) -> Uncertainty:
        """Standard deviations of ordering and log noise at the samples.

        By the curvature of the likelihood (Laplace), or, with ``n_boot``, by learning again from that many resampled
        data sets, with states and smoothness as they are.
        """
        check_is_fitted(self)
        if n_boot == 0:
            return Uncertainty(self.ordering_std_, self.log_noise_std_)
        fitted, problem = self._fitted, self._fitted.problem
        if problem is None:
            raise ValueError("resampling needs a model that was fitted here, not one loaded from a file.")
        rng = np.random.default_rng(self.random_state)
        matrix, m = metric(problem, fitted.solution.a), problem.weights.size
        orderings, noises = [], []
        for _ in range(_check.count(n_boot, "n_boot", 2)):
            counts = rng.multinomial(m, problem.weights / problem.weights.sum()).astype(float)
            old = problem.objective
            objective = Objective(
                old.graph, old.observation, self.states_.start, old.steps, old.fractions, sample_weight=counts
            )
            again = Problem(objective, problem.parameters, counts)
            a, _ = again.minimise(fitted.solution.a, matrix, 100, self.tol)
            dynamics = problem.parameters.dynamics(a)
            l = dynamics.orderings[0] if dynamics.orderings else np.zeros(dynamics.noise.size)
            orderings.append(self._observed @ (l - self.states_.start @ l))
            noises.append(self._observed @ np.log(dynamics.noise))
        return Uncertainty(np.std(orderings, axis=0, ddof=1), np.std(noises, axis=0, ddof=1))

    def fate_probabilities(self, terminal: Any, X: ArrayLike | None = None, *, continuous: bool = False) -> Array:
        """The probability of reaching each terminal set first, from the samples, or from points X: (m, fates).

        terminal: names and sets of samples that are terminal, as `ordiff.fate_probabilities` takes them; a state is in
        the set of the sample nearest to it. Or a dict of functions of points (p, n) that return a mask (p,).
        ``continuous``: count passages between steps too (see `ordiff.passage`).
        """
        check_is_fitted(self)
        points = None if X is None else self._points(X)
        if isinstance(terminal, dict) and all(callable(inside) for inside in terminal.values()):
            at = self.states_.points
            sets = list(terminal_sets({name: inside(at) for name, inside in terminal.items()}, len(at)).values())
            asked = self._samples if points is None else points
            ends = [np.asarray(inside(asked), bool) for inside in terminal.values()]
        else:
            members = terminal_sets(terminal, len(self.ordering_))
            sets = _states_of(members, self._samples, self.states_)
            ends = [np.isin(np.arange(len(self.ordering_)), rows) for rows in members.values()] if X is None else []
        F = fate_probabilities(self.operator_, sets, continuous=continuous)
        B = self._observed if points is None else self.states_.observe(points)
        out = np.clip(B @ np.asarray(F), 0.0, 1.0)
        for fate, inside in enumerate(ends):
            out[inside] = np.arange(len(sets)) == fate
        return out / out.sum(axis=1, keepdims=True)

    def summary(self, length: str = "", time: str = "") -> str:
        """What was learned, in words; ``length`` and ``time`` are the units of X and of the times, if known."""
        check_is_fitted(self)
        T, per_time, per_root_time = "", "", ""
        if time:
            over = f" {length}/" if length else " per "
            T, per_time, per_root_time = f" {time}", f"{over}{time}", f"{over}√{time}"
        low, middle, high = np.quantile(self.noise_, [0.05, 0.5, 0.95])
        drift = float(np.median(np.linalg.norm(self.drift_, axis=1)))
        spread = self._fitted.level_deviation()
        lines = [
            f"{len(self.ordering_)} samples in {self.n_features_in_} coordinates, horizon {self.horizon_:.4g}{T}.",
            f"Chain: {len(self.states_.points)} {'samples' if self.states_.are_samples else 'designed states'} of "
            f"dimension {self.states_.dimension}, {self.graph_.n_edges // self.graph_.n_points} neighbours each, "
            f"steps of {self.eps_:.4g}{T}.",
            f"Noise: median {middle:.4g}, 5% to 95% {low:.4g} to {high:.4g}{per_root_time}"
            + (f"; its level is known to ±{200 * spread:.0f}% (two standard deviations)." if spread > 0 else ".")
            if isinstance(self.noise, str)
            else f"Noise: {middle:.4g}{per_root_time}, as given.",
            f"Drift: median {drift:.4g}{per_time}; the ordering spans {np.ptp(self.ordering_):.4g}.",
            f"Loss {self.loss_:.6g} after {self.n_iter_} evaluations; "
            + ("converged." if self.converged_ else "NOT converged: raise max_iter, or treat it as a sketch."),
        ]
        if self.unreached_.size:
            lines.append(f"Samples that the process does not reach: {_some(self.unreached_)}.")
        if self.early_.size:
            lines.append(f"Samples seen before the first step, and not used: {self.early_.size}.")
        return "\n".join(lines)

    # ------------------------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write the model to one file: arrays and JSON, no pickle. `ordiff.load` reads it."""
        check_is_fitted(self)
        save(self, path)


def _states_of(members: dict[Any, Any], samples: Array, states: States) -> list[Any]:
    """The states of each set of samples: those to which one of it is the nearest, or, if there is none, the nearest."""
    fate = np.full(len(samples), -1)
    for k, rows in enumerate(members.values()):
        fate[rows] = k
    of_state = fate[cKDTree(samples).query(states.points, workers=-1)[1]]
    for k, (name, rows) in enumerate(members.items()):
        if not (of_state == k).any():
            near = np.unique(states.nearest(samples[rows]))
            near = near[of_state[near] < 0]
            if near.size == 0:
                raise ValueError(f"terminal set {name!r} is too small: no state of the chain lies in it.")
            of_state[near] = k
    return [np.flatnonzero(of_state == k) for k in range(len(members))]


@dataclass(frozen=True, eq=False)
class Profile:
    """The marginal likelihood along one parameter, in nats below that of the fitted level."""

    levels: Array
    nats: Array
    best: float
    interval: tuple[float, float]  # 0 or infinity where the grid does not reach an end


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """One standard deviation at the samples: of the ordering (against the start), and of the logarithm of the noise."""

    ordering: Array
    log_noise: Array


def _interval(levels: Array, nats: Array, fitted: float) -> tuple[float, tuple[float, float]]:
    """The best level, and where the likelihood is 1.92 nats lower on both sides of it."""
    apart = np.abs(np.log(levels / fitted)) > 1e-3
    x = np.concatenate([np.log(levels[apart]), [np.log(fitted)]])
    y = np.concatenate([nats[apart], [0.0]])
    order = np.argsort(x)
    x, y = x[order], y[order]
    fine = np.linspace(x[0], x[-1], 2001)
    curve = np.interp(fine, x, y) if x.size < 4 else CubicSpline(x, y)(fine)
    curve = curve - curve.min()
    inside = np.flatnonzero(curve <= 1.92)
    low = 0.0 if inside[0] == 0 else float(np.exp(fine[inside[0]]))
    high = float("inf") if inside[-1] == fine.size - 1 else float(np.exp(fine[inside[-1]]))
    return float(np.exp(fine[np.argmin(curve)])), (low, high)


def _some(indices: Any, most: int = 5) -> str:
    named = ", ".join(str(int(i)) for i in indices[:most])
    return named + (f" and {len(indices) - most} more" if len(indices) > most else "")


def _warn_of_fit(model: SnapshotSDE) -> None:
    """Say what the data cannot tell."""
    if model.unreached_.size:
        _check.warn(
            f"the process does not reach {model.unreached_.size} of {len(model.ordering_)} samples "
            f"({_some(model.unreached_)}): they hardly count in the fit. Check whether they are outliers."
        )
    if model.early_.size > 0.2 * len(model.ordering_):
        _check.warn(
            f"{model.early_.size} of {len(model.ordering_)} samples were seen before the chain's first step (eps = "
            f"{model.eps_:.3g}) and are not used: give a smaller eps, or leave out the latest times."
        )
    if not model.converged_:
        _check.warn("the optimum was not confirmed: raise max_iter, or use stronger smoothness.")
    spread = model._fitted.level_deviation()
    if spread > 0.2:
        _check.warn(
            f"the level of the noise is known only to a factor of {np.exp(2 * spread):.2g} either way: drift and noise "
            "can hardly be told apart, as happens near a steady state. See model.profile()."
        )


# ------------------------------------------------------------------------------------------- one file

_ARRAYS = ("ordering_", "noise_", "drift_", "speed_", "ordering_std_", "log_noise_std_", "noise_std_", "history_",
           "unreached_", "early_", "start_", "start_weights_", "_samples")  # fmt: skip
_OF_STATES = ("spacing", "dimension", "radius", "are_samples")
_NUMBERS = ("eps_", "horizon_", "loss_", "n_iter_", "converged_", "n_features_in_", "smooth_ordering_", "smooth_noise_")


def save(model: SnapshotSDE, path: str | Path) -> None:
    """Write a fitted model; the file appears only when it is whole."""
    fitted, d = model._fitted, model._fitted.dynamics
    arrays: dict[str, Any] = {name: np.asarray(getattr(model, name)) for name in _ARRAYS}
    arrays |= {
        "states.points": fitted.states.points, "states.volumes": fitted.states.volumes,
        "states.start": fitted.states.start, "graph.indptr": model.graph_.indptr, "graph.indices": model.graph_.indices,
        "graph.sqdist": model.graph_.sqdist, "dynamics.noise": d.noise, "dynamics.log_weight": d.log_weight,
        "fitted.ordering": fitted.ordering,
    }  # fmt: skip
    for name in ("orderings", "slopes", "local", "local_slopes"):
        arrays |= {f"dynamics.{name}.{k}": value for k, value in enumerate(getattr(d, name))}
    settings = {name: _plain(value) for name, value in model.get_params().items() if _is_plain(value)}
    meta = {
        "format": _FORMAT, "kind": "ordiff.SnapshotSDE", "settings": settings,
        "fitted": {name: _plain(getattr(model, name)) for name in _NUMBERS},
        "states": {key: _plain(getattr(fitted.states, key)) for key in _OF_STATES},
        "alpha": fitted.alpha, "self_weight": d.self_weight, "level_deviation": fitted.level_deviation(),
    }  # fmt: skip
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, **arrays)
    partial.replace(path)


def load(path: str | Path) -> SnapshotSDE:
    """Read a model that `SnapshotSDE.save` wrote."""
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(bytes(arrays.pop("meta")))
        known = meta["kind"] == "ordiff.SnapshotSDE"
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a model saved by ordiff, or is damaged ({type(error).__name__}).") from None
    if not known or meta["format"] != _FORMAT:
        raise ValueError(f"{path} has format {meta.get('format')}, but this version of ordiff reads format {_FORMAT}.")
    model = SnapshotSDE(**({"start": arrays["start_"]} | meta["settings"]))
    for name in _ARRAYS:
        setattr(model, name, arrays[name])
    for name, value in meta["fitted"].items():
        setattr(model, name, value)
    graph = NeighborGraph(
        arrays["graph.indptr"], arrays["graph.indices"], arrays["graph.sqdist"], arrays["states.points"]
    )
    states = States(arrays["states.points"], arrays["states.volumes"], start=arrays["states.start"], **meta["states"])
    states.__dict__["graph"] = graph

    def several(name: str) -> tuple[Array, ...]:
        n = sum(key.startswith(f"dynamics.{name}.") for key in arrays)
        return tuple(arrays[f"dynamics.{name}.{k}"] for k in range(n))

    dynamics = Dynamics(
        model.eps_, arrays["dynamics.noise"], several("orderings"), several("slopes"), several("local"),
        several("local_slopes"), arrays["dynamics.log_weight"], meta["self_weight"],
    )  # fmt: skip
    given = tuple(Ordering.local(_Stored(graph.matrix(edges))) for edges in dynamics.local)
    model._fitted = Fitted.stored(states, dynamics, given, arrays["fitted.ordering"], meta)
    model.states_, model.graph_, model.operator_ = states, graph, model._fitted.operator
    model._observed = states.observe(model._samples)
    return model


class _Stored:
    """A local ordering by its stored differences."""

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    def __call__(self, i: IntArray, j: IntArray) -> Array:
        return np.asarray(self.matrix[i.ravel(), j.ravel()]).reshape(i.shape)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, str | bool | int | float | np.number)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value
