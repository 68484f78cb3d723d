"""`SnapshotSDE`: drift and noise from snapshots, as a scikit-learn estimator.

A fit looks at the data by a coarse chain, designs a fine one, learns on it, and reads its fields at the samples: see
`ordiff.learning.fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data

from ordiff import _io, _validation
from ordiff._parallel import one_blas_thread
from ordiff._sample_blocks import in_blocks
from ordiff._summary import summary, warn_of_fit
from ordiff._targets import states_of
from ordiff._validation import Array
from ordiff.distributed import is_dask_array, map_rows
from ordiff.fields import Moments, local_moments
from ordiff.learning.check import check_fit, check_moments
from ordiff.learning.checkpoint import Checkpoint
from ordiff.learning.data import Snapshots, coordinates_for, warn_of_units, with_dimension
from ordiff.learning.direction import NoiseDirection
from ordiff.learning.discretise import likelihood_on
from ordiff.learning.fit import fit
from ordiff.learning.grouped import GroupedSettings
from ordiff.learning.moments import MomentFit, fit_moments, is_by_moments
from ordiff.learning.process import FittedProcess
from ordiff.learning.progress import progress_bar
from ordiff.learning.result import FitResult, FittedChain
from ordiff.learning.settings import FitSettings, group_of
from ordiff.learning.uncertainty import LikelihoodProfile, Uncertainty, bootstrap, noise_profile
from ordiff.passage import fate_probabilities, regions_of, terminal_sets

# What only a chain has, and what is said where there is none.
_OF_CHAIN = ("states_", "graph_", "operator_", "eps_", "_observed")
_NO_CHAIN = (
    "{} is not available: from four dimensions on a process is learned by moments, without a chain. Use simulate() and "
    "predict_drift(), or fit the leading two or three principal components."
)


class SnapshotSDE(GroupedSettings):
    """Learns dx = (∇l + w) dt + ρ dW from points that were each seen once.

    In up to three dimensions by the likelihood of a chain. Data of four dimensions and more, with known times and
    designed states, are learned by moments (`ordiff.learning.moments`): l is then a quadratic form and functions of
    single directions, ρ is constant, and there is no chain. Members of groups of settings are set by name, as in a grid
    search: ``set_params(smoothness__noise=0.1, solver__eps=0.05)``.

    Parameters
    ----------
    start : array-like
        Where the process starts: a point (n,) of decimal numbers, a sample's index or several, a mask (m,) of the
        samples that are a start, or a mass (m,) on the samples.
    learn : tuple of str
        What is learned, of "ordering", "noise", "speed" and "scale" (of given orderings), "eps", "density".
    drift : {"auto", "gradient", "general"}
        A gradient ∇l of the ordering, or ∇l + w with a field w without divergence beside it, as in cycles and currents.
        "auto" takes w where it is worth its parameters, by the difference of the marginal likelihoods. For designed
        states in 2 and 3 flat dimensions; elsewhere "auto" is the gradient.
    noise : {"field", "constant", "tensor", "auto"} or float
        A field, one number (at the optimum of its marginal likelihood), a field beside a constant direction, with
        diffusion ½ρ²A and det A = 1 (in 2 and 3 flat dimensions, with a general drift), or the known noise, kept.
        "auto" is "tensor" where that is more likely, by the marginal likelihoods of coarse chains, and else "field".
    ordering : array-like, callable, Ordering or None
        Given orderings: values at the samples (m,), where the learned ordering starts from, or which is kept if it is
        not learned (carried to the states by local polynomials); or a function of points (N, n) that returns an
        `Ordering` on them or several, whose shapes are kept and whose speeds can be learned, beside a learned one.
    states : {"designed", "samples"}, DesignedStates, SampleStates or States
        The states of the chain: spread evenly over the data, the samples themselves (the paper's setting), or
        states of your own.
    times : TimeDensity or None
        The density of the times, when they are not known for each sample.
    smoothness : Smoothness or None
        Strengths of smoothness and the functions that fields are made of; by empirical Bayes unless given.
    solver : Solver or None
        The time step, and how the likelihood is maximised.
    progress : bool
        Show a bar (needs tqdm).
    random_state : int
        Seed of the states' design and of the second start.

    Attributes
    ----------
    samples_, start_points_, start_weights_ : array of shape (m, n), (s, n) and (s,)
        The samples of the fit, the points of the start, and the share of each.
    ordering_, noise_, drift_ : array of shape (m,), (m,) and (m, n)
        At the samples; the ordering is 0 at the start. The drift is that of all parts.
    rotation_ : array of shape (m, n)
        The part w of the drift that turns; 0 when the drift is a gradient.
    ordering_std_, noise_std_, log_noise_std_, drift_std_, rotation_std_ : array of shape (m,), (m, n) for drifts
        One posterior standard deviation.
    noise_tensor_, noise_tensor_std_ : array of shape (n, n) or None
        A of a noise with a direction, and its posterior deviations; None without noise="tensor". The drift is then
        A∇l + w, as the fit is made in coordinates in which A is about I.
    rotation_nats_ : float or None
        By how many nats a drift that turns is more likely than a gradient; None when it was not tried.
    tensor_nats_ : float or None
        By how many nats a noise with a direction is more likely than one without; None without noise="auto".
    check_ : FitCheck
        Whether the fit can be trusted: ``trusted``, ``reasons`` (sentences), and a ``table`` of the means and
        covariances that the fitted process predicts at the times of the samples, beside those that were observed.
    speed_ : array
        The mean speed of every ordering.
    states_, graph_, operator_, eps_
        The chain: its states, their graph, its operator and its step; in up to three dimensions.
    coordinates_ : LinearCoordinates
        Where the samples lie in a linear subspace up to noise, the chain is learned there: `states_.points` are in its
        coordinates, and ``coordinates_.inverse(states_.points)`` in those of X. All else is in the coordinates of X.
    loss_, history_, history_stages_
        The penalised loss, that after every evaluation of the final chain, and which strengths of smoothness each is of
        (their number, from 0 on): losses can be compared within one stage.
    n_iter_, converged_, interrupted_
        The number of all evaluations, with those of the first look; whether the optimum was confirmed; and whether
        Ctrl-C ended the fit, which is then the best so far.
    unreached_, early_ : array of int
        Samples that the process cannot reach, and samples seen before the chain's first step, which are not used.
    smooth_ordering_, smooth_noise_ : float or None
        The strengths of smoothness that were used.

    Examples
    --------
    >>> import ordiff as od
    >>> data = od.datasets.ornstein_uhlenbeck(400, random_state=0)
    >>> model = od.SnapshotSDE(data.start, noise="constant").fit(data.X, data.times)
    >>> bool(0.9 < model.noise_.mean() / 2**0.5 < 1.1)
    True
    """

    def __init__(
        self,
        start: Any,
        *,
        learn: Any = ("ordering", "noise"),
        drift: str = "auto",
        noise: Any = "field",
        ordering: Any = None,
        states: Any = "designed",
        times: Any = None,
        smoothness: Any = None,
        solver: Any = None,
        progress: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.start, self.learn, self.drift, self.noise, self.ordering = start, learn, drift, noise, ordering
        self.states, self.times, self.smoothness, self.solver = states, times, smoothness, solver
        self.progress, self.random_state = progress, random_state

    # -------------------------------------------------------------------------------------------- fit

    def fit(
        self,
        X: ArrayLike,
        times: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        checkpoint: str | Path | None = None,
        names: Sequence[str] | None = None,
    ) -> SnapshotSDE:
        """Learn from samples X (m, n) and their times (m,), or windows of time (m, 2); without, from `TimeDensity`.

        times: counted from the start, which is at time 0. sample_weight: how many samples each one stands for (m,).
        checkpoint: a file that keeps what is learned after every stage, and from which a fit of the same data goes on.
        names: of the coordinates (n,), as the check calls them; by default those of a data frame, or x1, x2, ...

        X, times and sample_weight may be Dask arrays, with a `dask.distributed.Client` connected (extra
        ``distributed``): the likelihood is then that of all samples, in blocks on the workers, and needs known times,
        designed states and up to three dimensions. States are designed from, and the attributes are at, `samples_`: all
        samples, or 100,000 of them taken at random. `predict` and the like return lazy Dask arrays for one.
        """
        elsewhere = None
        if is_dask_array(X):
            elsewhere, X, times, sample_weight = in_blocks(X, times, sample_weight)
        _validation.array_like(X, "X")
        X = _validation.points(validate_data(self, X, dtype=np.float64, ensure_min_samples=10))
        called = getattr(self, "feature_names_in_", ()) if names is None else _validation.names(names, X.shape[1])
        settings = FitSettings.of(self)
        if elsewhere is not None:
            elsewhere.check(settings)
        data = Snapshots.of(self.start, settings.times, X, times, sample_weight, elsewhere)
        with one_blas_thread(), progress_bar(self.progress) as report:
            warn_of_units(data, [str(name) for name in (called if len(called) else range(X.shape[1]))])
            self.coordinates_ = coordinates_for(settings, data)
            self._samples, original = X, data
            data = original.in_coordinates(self.coordinates_)
            by_moments = is_by_moments(settings := with_dimension(settings, data), data)
            direction = NoiseDirection(settings) if by_moments else NoiseDirection.of(settings, data, report)
            settings, self.tensor_nats_ = direction.settings, direction.nats
            if direction.root is not None:  # in coordinates in which it has nearly no direction
                self.coordinates_ = self.coordinates_.stretched(direction.root, X.shape[1])
                data = original.in_coordinates(self.coordinates_)
            kept = None if checkpoint is None else Checkpoint(checkpoint, settings, data)
            if by_moments:
                if elsewhere is not None:
                    elsewhere.refuse_moments()
                result: FitResult | MomentFit = fit_moments(settings, data, report, kept)
            else:
                result = fit(settings, data, report, kept)
            self._read(settings, data, result, self.coordinates_.names(list(called), X.shape[1]))
            self.n_iter_ = report.n
        warn_of_fit(self)
        if elsewhere is not None:
            elsewhere.end()
        return self

    def _read(
        self, settings: FitSettings, data: Snapshots, result: FitResult | MomentFit, names: Sequence[str]
    ) -> None:
        """The fitted attributes, at the samples in the user's order."""
        self._settings, self._data = settings, data
        self._result: FitResult | MomentFit | None = result
        self.horizon_ = data.horizon
        self.loss_, self.history_ = result.loss, np.array(result.losses)
        self.history_stages_ = np.array(result.stages, dtype=np.int64)
        self.converged_, self.interrupted_ = result.converged, result.interrupted
        self.smooth_ordering_, self.smooth_noise_ = (result.strength(name) for name in ("ordering", "noise"))
        self.unreached_, self.early_ = result.unreached, result.early
        self._level_deviation = result.level_deviation()
        self._read_process(result.process, data.X)
        process, back = result.process, self.coordinates_.back
        self.ordering_, self.noise_ = process.ordering_at(data.X), process.noise_at(data.X)
        self.drift_, self.speed_ = self.coordinates_.vectors(process.drift(data.X)), process.speeds()
        self.rotation_ = self.coordinates_.vectors(process.rotation_at(data.X))
        self.ordering_std_, self.log_noise_std_, self.drift_std_, self.rotation_std_ = result.deviations(data.X, back)
        self.noise_std_ = self.noise_ * self.log_noise_std_
        tensor = result.tensor(back)
        self.noise_tensor_: Array | None = None if tensor is None else tensor[0]
        self.noise_tensor_std_: Array | None = None if tensor is None else tensor[1]
        self.rotation_nats_ = None if result.rotation is None else result.rotation.nats
        if isinstance(result, FitResult):
            self.check_ = check_fit(result, data, self.noise_, self._level_deviation, names)
        else:
            self.check_ = check_moments(result, data, self._level_deviation, names)

    @property
    def samples_(self) -> Array:
        """The samples of the fit, (m, n)."""
        check_is_fitted(self)
        return self._samples

    @property
    def start_points_(self) -> Array:
        """The points of the start, (s, n)."""
        check_is_fitted(self)
        return self.coordinates_.inverse(self._data.start)

    @property
    def start_weights_(self) -> Array:
        """The share of each of `start_points_`, (s,)."""
        check_is_fitted(self)
        return self._data.start_weights

    def _read_process(self, process: FittedChain | FittedProcess, samples: Array) -> None:
        self._process = process
        for name in _OF_CHAIN:  # of an earlier fit
            self.__dict__.pop(name, None)
        if isinstance(process, FittedChain):
            self.states_, self.graph_, self.operator_ = process.states, process.states.graph, process.operator
            self.eps_ = process.dynamics.eps
            self._observed = process.states.observe(samples)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_CHAIN and isinstance(self.__dict__.get("_process"), FittedProcess):
            raise AttributeError(_NO_CHAIN.format(name))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _chain(self, what: str) -> FittedChain:
        """The chain that was learned, for what needs one."""
        check_is_fitted(self)
        if isinstance(self._process, FittedProcess):
            raise ValueError(_NO_CHAIN.format(what))
        return self._process

    # ------------------------------------------------------------------------------------ new points

    def predict(self, X: ArrayLike) -> Array:
        """The ordering at points (p, n), 0 at the start."""
        return self._field_at(X, "ordering_at")

    def predict_noise(self, X: ArrayLike) -> Array:
        """ρ at points (p, n)."""
        return self._field_at(X, "noise_at")

    def predict_drift(self, X: ArrayLike) -> Array:
        """The drift at points (p, n), in their coordinates."""
        return self._field_at(X, "drift", vectors=True)

    def _field_at(self, X: Any, name: str, vectors: bool = False) -> Array:
        """A field of the process at points (p, n); of a Dask array lazily."""
        check_is_fitted(self)
        field = partial(self.coordinates_.field, self._process, name, vectors)
        if is_dask_array(X):
            return map_rows(field, X, self.n_features_in_, vectors)
        return field(self._checked(X))

    def _points(self, X: ArrayLike) -> Array:
        """Points (p, n) in the coordinates of the chain."""
        points = self._checked(X)
        return self.coordinates_.transform(points)

    def _checked(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        _validation.array_like(X, "X")
        return _validation.points(validate_data(self, X, dtype=np.float64, reset=False), minimum=1)

    def _at(self, X: ArrayLike) -> Any:
        points = self._points(X)
        return self.states_.observe(points)

    def score_samples(self, X: ArrayLike, times: ArrayLike | None = None) -> Array:
        """The logarithm of the density of every point at its time, (p,), in the coordinates of `states_`."""
        chain = self._chain("the density of points")
        data, local = self._data.at(self._points(X), times), chain.edge_differences()
        settings = replace(self._settings, times=replace(group_of(self.times, "times"), horizon=data.horizon))
        likelihood = likelihood_on(settings, data, self.states_, self.eps_, local, chain.edge_forms())
        return likelihood.per_sample(chain.dynamics)

    def score(self, X: ArrayLike, times: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """The mean log density of points at their times, weighted by ``sample_weight``: higher is better."""
        logs = self.score_samples(X, times)
        weights = None if sample_weight is None else _validation.weights(sample_weight, logs.size, "sample_weight")
        return float(np.average(logs, weights=weights))

    def simulate(self, n: int, horizon: float | None = None, random_state: Any = None) -> tuple[Array, Array]:
        """Times (T,) and paths (n, T, coordinates) of what was learned, from the start; of a chain, its states."""
        check_is_fitted(self)
        n = _validation.count(n, "n", 1)
        last = self.horizon_ if horizon is None else _validation.positive(horizon, "horizon")
        steps = int(np.ceil(last / self._process.step))
        _validation.fits_memory(n * (steps + 1) * self.n_features_in_, f"{n} paths of {steps} steps")
        rng = _validation.generator(self.random_state if random_state is None else random_state)
        times, paths = self._process.simulate(n, last, rng)
        return times, self.coordinates_.inverse(paths)

    # ------------------------------------------------------------------------------------ can it be trusted

    def moments(self) -> Moments:
        """Drift and diffusion read back from the operator at the states, in their coordinates: the check that it does
        what was learned."""
        return local_moments(self._chain("moments").operator)

    def profile(self, param: str = "noise", grid: ArrayLike | None = None) -> LikelihoodProfile:
        """The loss with the level of the noise held at each of ``grid``, all else learned again.

        The level is the geometric mean of the chain's noise over the states' volume, of a field without its floor; the
        noise itself when it is constant. The likelihood is marginal: what else is learned is integrated out by
        Laplace's method, since at their joint optimum many coefficients of an ordering take up part of the noise. The
        interval holds the levels within 1.92 nats of the best, 95% for one parameter.
        """
        check_is_fitted(self)
        _validation.option(param, "param", ("noise",))
        if not isinstance(self.noise, str):
            raise ValueError(f"the noise was given, as {self.noise:g}: it has no profile.")
        with one_blas_thread():
            return noise_profile(self._fitted_here("a profile").solution, grid, self._settings.solver.tol)

    def uncertainty(self, n_boot: int = 0) -> Uncertainty:
        """Standard deviations of ordering and log noise at the samples.

        By the curvature of the likelihood (Laplace), or, with ``n_boot``, by learning again from that many resampled
        data sets, with states and smoothness as they are.
        """
        check_is_fitted(self)
        if n_boot == 0:
            return Uncertainty(self.ordering_std_, self.log_noise_std_)
        if self._data.elsewhere is not None:
            raise ValueError("resampling needs samples in memory: learn from a part of them, X[rows].compute().")
        n_boot, rng = _validation.count(n_boot, "n_boot", 2), np.random.default_rng(self.random_state)
        solution = self._fitted_here("resampling").solution
        with one_blas_thread():
            return bootstrap(solution, self.states_.start, self._observed, n_boot, rng, self._settings.solver.tol)

    def _fitted_here(self, what: str) -> FitResult:
        self._chain(what)
        if not isinstance(self._result, FitResult):
            raise ValueError(f"{what} needs a model that was fitted here, not one loaded from a file.")
        return self._result

    def fate_probabilities(self, terminal: Any, X: ArrayLike | None = None, *, continuous: bool = False) -> Array:
        """The probability of reaching each terminal set first, from the samples, or from points X: (m, fates).

        terminal: names and sets of samples that are terminal, as `ordiff.fate_probabilities` takes them; a state is in
        the set of the sample nearest to it. Or a dict of functions of points (p, n) that return a mask (p,).
        ``continuous``: count passages between steps too (see `ordiff.passage`).
        """
        chain = self._chain("fate_probabilities")
        points = None if X is None else self._checked(X)
        if isinstance(terminal, dict) and all(callable(inside) for inside in terminal.values()):
            asked = self.samples_ if points is None else points
            sets, ends = regions_of(terminal, self.coordinates_.inverse(self.states_.points), asked)
        else:
            members = terminal_sets(terminal, len(self.ordering_))
            sets = states_of(members, self._data.X, chain.states)
            ends = [np.isin(np.arange(len(self.ordering_)), rows) for rows in members.values()] if X is None else []
        F = fate_probabilities(self.operator_, sets, continuous=continuous)
        B = self._observed if points is None else self._at(points)
        out = np.clip(B @ np.asarray(F), 0.0, 1.0)
        for fate, inside in enumerate(ends):
            out[inside] = np.arange(len(sets)) == fate
        return out / out.sum(axis=1, keepdims=True)

    def rotation_share(self) -> float:
        """The share of the squared drift that turns: Σ‖w‖²/Σ(‖w‖² + ‖∇l‖²) over the samples, from 0 to 1."""
        check_is_fitted(self)
        turning, along = (self.rotation_**2).sum(), ((self.drift_ - self.rotation_) ** 2).sum()
        return float(turning / (turning + along)) if turning > 0 else 0.0

    def predict_rotation(self, X: ArrayLike) -> Array:
        """The part of the drift that turns at points (p, n); 0 when the drift is a gradient."""
        return self._field_at(X, "rotation_at", vectors=True)

    def summary(self, length: str = "", time: str = "", sample_numbers: ArrayLike | None = None) -> str:
        """What was learned, in words; length, time: units of X, times; sample_numbers: what samples are called."""
        check_is_fitted(self)
        numbers = _validation.sample_numbers(sample_numbers, len(self.samples_))
        return summary(self, _validation.text(length, "length"), _validation.text(time, "time"), numbers)

    # ------------------------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write the model to one file: arrays and JSON, no pickle. `ordiff.load` reads it."""
        check_is_fitted(self)
        _io.write(path, self)


def load(path: str | Path) -> SnapshotSDE:
    """Read a model that `SnapshotSDE.save` wrote. Nothing of a file is trusted: what does not fit is a ValueError."""
    with _io.told(path):
        settings, process, numbers, arrays = _io.read(path)
        model = SnapshotSDE(**({"start": arrays["start"]} | settings))
        for name in _io.FITTED_ARRAYS:
            setattr(model, name, arrays.get(name))
        for name in _io.FITTED_NUMBERS:
            setattr(model, name, numbers[name])
        model.check_, model.coordinates_ = _io.check(numbers), _io.coordinates(arrays)
        model._samples = arrays["samples"]
        X, start = (model.coordinates_.transform(arrays[name]) for name in ("samples", "start"))
        times = np.zeros(len(X)) if numbers["times_known"] else None
        model._settings, model._result = FitSettings.of(model), None
        model._data = Snapshots(X, times, np.ones(len(X)), start, arrays["start_weights"], model.horizon_)
        model._read_process(process, X)
        return model
