"""`SnapshotSDE`: drift and noise from snapshots, as a scikit-learn estimator.

A fit has four stages. *Look*: a coarse fit on few states finds how large the noise and the drift are. *Design*: step,
spacing and radius follow from them. *Learn*: maximum likelihood on the designed states, smoothness by empirical Bayes.
*Read*: ordering, noise and drift at the samples, with their standard deviations.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ordiff import _check
from ordiff._check import Array
from ordiff.inference.learn import Fitted, Seen, learn, make_objective, progress_bar


class SnapshotSDE(BaseEstimator):
    """Learns dx = ∇l dt + ρ dW from points that were each seen once.

    start: where the process starts: a point (n,) of decimal numbers, a sample's index or several, a mask (m,) of the
        samples that are a start, or a mass (m,) on the samples.
    eps: the time step of the chain, in the units of ``times``; "auto" is horizon/40, or more when that would need
        more than 4,000 states.
    states: "designed" (evenly spread over the data; see `States`), "samples" (the paper's setting), or a `States`.
    learn: what is learned, of "ordering", "noise", "speed" and "scale" (of given orderings), "eps", "density".
    noise: "field", "constant", or the known noise as a number.
    ordering: given orderings: values at the samples (m,), where the learned ordering starts from, or which is kept if
        it is not learned; or a function of points (N, n) that returns an `Ordering` on them or several, whose shapes
        are kept and whose speeds can be learned, beside a learned one.
    time_density, horizon: for unknown times, their density on [0, horizon], a function of an array of times.
    basis: "auto", the number of smooth functions that ordering and noise are made of; None: values, one a state.
    smooth_ordering, smooth_noise: strength of smoothness, or "auto" (by empirical Bayes).
    action: strength of the Onsager–Machlup action.
    n_neighbors: "auto" (a radius of four steps' standard deviations), or a number of neighbours.
    density: with states="samples", how the sampling density is estimated: "knn", "balanced", "kernel", or (m,).
    alpha: the power of the density.
    speed: "constant" or "field", how a speed is learned. spacing, dimension: of designed states. n_starts: the optimum
    is confirmed from this many starts. progress: show a bar (needs tqdm).

    After ``fit``: ``ordering_`` (0 at the start), ``noise_``, ``drift_`` at the samples, with ``ordering_std_`` and
    ``noise_std_`` (one posterior standard deviation; of log noise in ``log_noise_std_``), ``speed_``, ``states_``,
    ``graph_``, ``operator_`` (on the states), ``eps_``, ``loss_``, ``history_``, ``converged_``, ``n_iter_``,
    ``unreached_`` (samples that the process cannot reach).

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
        n_starts: int = 1,
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
        """Learn from samples X (m, n) and their times (m,), or windows of time (m, 2); without, from `time_density`."""
        X = _check.points(validate_data(self, X, dtype=np.float64, ensure_min_samples=10))
        seen = Seen.make(self, X, times, sample_weight)
        with progress_bar(self.progress) as report:
            fitted = learn(self, seen, report)
        self._read(seen, fitted)
        return self

    def _read(self, seen: Seen, fitted: Fitted) -> None:
        """The fitted attributes, at the samples in the user's order."""
        self._fitted = fitted
        states, dynamics = fitted.states, fitted.dynamics
        self.states_, self.graph_, self.eps_ = states, states.graph, fitted.dynamics.eps
        self.start_, self.horizon_ = seen.start, seen.horizon
        self.loss_, self.history_ = fitted.loss, np.array(fitted.history)
        self.n_iter_, self.converged_ = len(fitted.history), fitted.converged
        self.operator_ = fitted.operator()
        B = states.observe(seen.X)
        self.ordering_ = B @ fitted.ordering
        self.noise_ = np.exp(B @ np.log(dynamics.noise))
        self.drift_ = fitted.drift(seen.X)
        self.speed_ = fitted.speeds()
        self.ordering_std_, self.log_noise_std_ = fitted.deviations(B)
        self.noise_std_ = self.noise_ * self.log_noise_std_
        self.smooth_ordering_, self.smooth_noise_ = (fitted.strength(name) for name in ("ordering", "noise"))
        self.unreached_ = fitted.unreached
        _warn_of_fit(self)

    # ------------------------------------------------------------------------------------ new points

    def predict(self, X: ArrayLike) -> Array:
        """The ordering at points (p, n), 0 at the start."""
        return self._at(X) @ self._fitted.ordering

    def predict_noise(self, X: ArrayLike) -> Array:
        """ρ at points (p, n)."""
        return np.exp(self._at(X) @ np.log(self._fitted.dynamics.noise))

    def predict_drift(self, X: ArrayLike) -> Array:
        """The drift at points (p, n), in their coordinates."""
        return self._fitted.drift(self._points(X))

    def _points(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        return _check.points(validate_data(self, X, dtype=np.float64, reset=False), minimum=1)

    def _at(self, X: ArrayLike) -> Any:
        return self.states_.observe(self._points(X))

    def score_samples(self, X: ArrayLike, times: ArrayLike | None = None) -> Array:
        """The logarithm of the density of every point at its time, (p,)."""
        check_is_fitted(self)
        seen = Seen.make(self, self._points(X), times, None, self.horizon_)
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
        return self.eps_ * np.arange(steps + 1), paths


def _warn_of_fit(model: SnapshotSDE) -> None:
    pass
