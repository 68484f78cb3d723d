"""Settings of a fit: small frozen groups that users pass to `SnapshotSDE`, and all of them, checked: `FitSettings`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ordiff import _validation
from ordiff._validation import Array
from ordiff.states import States

# The quantities that can be learned; of given orderings, global and local, the speed or the scale.
LEARNABLE = ("ordering", "noise", "speed", "scale", "eps", "density")
# Drifts: of an ordering alone, with a part that turns, or with one where the samples ask for it.
DRIFTS = ("gradient", "general", "auto")
# Noises: a field, one number, a field beside a direction, or the last where the samples ask for it, else the first.
NOISES = ("field", "constant", "tensor", "auto")


@dataclass(frozen=True)
class DesignedStates:
    """A chain on states that are spread evenly over the data; see `States`.

    Parameters
    ----------
    spacing : float or "auto"
        The distance between neighbouring states. "auto" follows from the step and the noise.
    dimension : int or None
        The intrinsic dimension of the data. None: estimated by local PCA.
    n_neighbors : int or "auto"
        About how many neighbours a state has; all within three spacings are. "auto" is a radius of four standard
        deviations of a step.
    max_states : int
        About the most states that "auto" spacing makes.
    """

    spacing: Any = "auto"
    dimension: int | None = None
    n_neighbors: Any = "auto"
    max_states: int = 4000

    def __post_init__(self) -> None:
        _auto_or(self.spacing, "spacing", _validation.positive)
        _check_dimension(self.dimension)
        _auto_or(self.n_neighbors, "n_neighbors", lambda value, name: _validation.count(value, name, 5))
        _validation.count(self.max_states, "max_states", 100)


@dataclass(frozen=True)
class SampleStates:
    """A chain on the samples themselves: the paper's setting.

    Parameters
    ----------
    density : {"kernel", "knn", "balanced"} or array of shape (m,)
        How the sampling density is estimated, or its values.
    dimension : int or None
        The intrinsic dimension of the data. None: estimated by local PCA.
    n_neighbors : int or "auto"
        Neighbours of each sample. "auto" is a radius of four standard deviations of a step.
    alpha : float
        The power of the density that is divided out.
    """

    density: Any = "kernel"
    dimension: int | None = None
    n_neighbors: Any = "auto"
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.density, str):
            _validation.option(self.density, "density", ("kernel", "knn", "balanced"))
        else:
            _validation.positive_numbers(self.density, "density")
        _check_dimension(self.dimension)
        _auto_or(self.n_neighbors, "n_neighbors", lambda value, name: _validation.count(value, name, 5))
        _validation.number(self.alpha, "alpha")


@dataclass(frozen=True)
class TimeDensity:
    """When samples were seen, if not known for each.

    Parameters
    ----------
    density : callable or "uniform" or None
        The density of the times on [0, horizon], up to a factor: a function of an array of times. None: the times of
        all samples are passed to ``fit``.
    horizon : float or None
        The latest time of the chain. None: the latest of the times that are passed to ``fit``.
    """

    density: Callable[[Array], ArrayLike] | str | None = None
    horizon: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.density, str):
            _validation.option(self.density, "density", ("uniform",))
        elif self.density is not None and not callable(self.density):
            raise ValueError(f'density must be a function of an array of times, or "uniform"; got {self.density!r}.')
        if self.horizon is not None:
            _validation.positive(self.horizon, "horizon")

    def at(self, t: Array) -> Array:
        """The density at times t, 0 after the horizon."""
        if self.density is None:
            raise ValueError(
                "without times their density must be known, and a file does not keep a function: pass the times, or "
                "set_params(times=TimeDensity(density, horizon))."
            )
        assert self.horizon is not None
        inside = np.minimum(t, self.horizon)
        values = self.density(inside) if callable(self.density) else np.ones_like(t)
        return np.asarray(values) * (t <= self.horizon)


@dataclass(frozen=True)
class Smoothness:
    """How smooth the learned fields are.

    Parameters
    ----------
    ordering, noise, rotation : float or "auto"
        Strength of the roughness penalty of the ordering, of the logarithm of the noise, and of the stream functions of
        a drift that turns. "auto": by empirical Bayes.
    basis : int, "auto" or None
        The number of smooth functions that the fields are made of. None: values, one a state.
    speed : {"constant", "field"}
        A learned speed of a given ordering is one number, or a field of the basis.
    action : float
        Strength of the Onsager–Machlup action of the drift.
    """

    ordering: Any = "auto"
    noise: Any = "auto"
    rotation: Any = "auto"
    basis: Any = "auto"
    speed: str = "constant"
    action: float = 0.0

    def __post_init__(self) -> None:
        for name in ("ordering", "noise", "rotation"):
            _auto_or(getattr(self, name), name, _not_negative)
        if self.basis is not None:
            _auto_or(self.basis, "basis", lambda value, name: _validation.count(value, name, 2))
        _validation.option(self.speed, "speed", ("constant", "field"))
        _not_negative(self.action, "action")


@dataclass(frozen=True)
class Solver:
    """How the likelihood is maximised.

    Parameters
    ----------
    eps : float or "auto"
        The time step of the chain, in the units of the times. "auto" is horizon/40, shorter (to horizon/80) where the
        drift changes fast, longer when that would need more than the most states.
    max_iter : int
        The most iterations of L-BFGS at one strength of smoothness, also in the first look.
    tol : float
        L-BFGS stops when the loss falls by less than this share.
    n_starts : int
        The optimum is confirmed from this many starts, and the best of them is taken.
    """

    eps: Any = "auto"
    max_iter: int = 300
    tol: float = 1e-9
    n_starts: int = 2

    def __post_init__(self) -> None:
        _auto_or(self.eps, "eps", _validation.positive)
        _validation.count(self.max_iter, "max_iter", 1)
        _validation.positive(self.tol, "tol")
        _validation.count(self.n_starts, "n_starts", 1)


# The parameters of `SnapshotSDE` that are groups, with what None stands for; and those that can be named for states.
GROUPS: dict[str, Any] = {"times": TimeDensity, "smoothness": Smoothness, "solver": Solver}
STATES: dict[str, Any] = {"designed": DesignedStates, "samples": SampleStates}
StatesSettings = DesignedStates | SampleStates | States


@dataclass(frozen=True, eq=False)
class FitSettings:
    """All settings of one fit, checked."""

    learn: frozenset[str]
    drift: str
    noise: str | float
    ordering: Any
    states: StatesSettings
    times: TimeDensity
    smoothness: Smoothness
    solver: Solver
    random_state: Any

    @classmethod
    def of(cls, estimator: Any) -> FitSettings:
        """Those of a `SnapshotSDE`."""
        groups = {name: group_of(getattr(estimator, name), name) for name in (*GROUPS, "states")}
        learn = _checked_learn(estimator.learn)
        noise, drift = _checked_noise(estimator.noise, learn), _checked_drift(estimator.drift, learn)
        if noise == "tensor":
            drift = _drift_beside_a_tensor(drift)
        if not isinstance(noise, str):
            learn = learn - {"noise"}  # it is known
        _validation.generator(estimator.random_state)
        return cls(
            learn=learn, drift=drift, noise=noise, ordering=estimator.ordering,
            random_state=estimator.random_state, **groups,
        )  # fmt: skip

    @property
    def dimension(self) -> int | None:
        return self.states.dimension

    @property
    def alpha(self) -> float:
        return self.states.alpha if isinstance(self.states, SampleStates) else 1.0

    @property
    def spacing(self) -> Any:
        return self.states.spacing if isinstance(self.states, DesignedStates) else "auto"

    @property
    def n_neighbors(self) -> Any:
        return "auto" if isinstance(self.states, States) else self.states.n_neighbors

    @property
    def max_states(self) -> int:
        return self.states.max_states if isinstance(self.states, DesignedStates) else DesignedStates().max_states

    def coarse(self, basis: int) -> FitSettings:
        """Those of a first look: few functions, few iterations, one start."""
        solver = replace(self.solver, max_iter=min(60, self.solver.max_iter), n_starts=1)
        return replace(self, smoothness=replace(self.smoothness, basis=basis), solver=solver)

    def on_designed_states(self) -> FitSettings:
        """Those of a first look whose result is carried to the samples: ordering and noise, both learned."""
        return replace(
            self,
            states=DesignedStates(dimension=self.dimension, n_neighbors=self.n_neighbors),
            ordering=None,
            drift="gradient",
            learn=frozenset({"ordering", "noise"}) if isinstance(self.noise, str) else frozenset({"ordering"}),
            noise="field" if isinstance(self.noise, str) else self.noise,
            smoothness=replace(self.smoothness, ordering="auto", noise="auto"),
        )


def group_of(value: Any, name: str) -> Any:
    """What a parameter of `SnapshotSDE` stands for: a group of settings, its defaults for None, or `States`."""
    if name == "states":
        return _states_settings(value)
    kind = GROUPS[name]
    if value is None:
        return kind()
    if not isinstance(value, kind):
        options = ", ".join(field.name for field in fields(kind))
        raise ValueError(f"{name} must be a {kind.__name__}({options}) or None; got {value!r}.")
    return value


def _states_settings(value: Any) -> StatesSettings:
    if isinstance(value, DesignedStates | SampleStates | States):
        return value
    if isinstance(value, str):
        _validation.option(value, "states", tuple(STATES))
        return STATES[value]()
    raise ValueError(f'states must be "designed", "samples", DesignedStates, SampleStates or States; got {value!r}.')


def _checked_learn(learn: Any) -> frozenset[str]:
    names = (
        {learn}
        if isinstance(learn, str)
        else set(learn)
        if isinstance(learn, list | tuple | set | frozenset)
        else set()
    )
    if not names or names - set(LEARNABLE):
        raise ValueError(f"learn must name one or more of {', '.join(LEARNABLE)}; got {learn!r}.")
    return frozenset(names)


def _checked_drift(drift: Any, learn: frozenset[str]) -> str:
    _validation.option(drift, "drift", DRIFTS)
    if drift == "general" and "ordering" not in learn:
        raise ValueError(
            f'drift="general" is learned beside an ordering; learn is {tuple(sorted(learn))!r}: add "ordering", or use '
            'drift="gradient".'
        )
    return str(drift)


def _drift_beside_a_tensor(drift: str) -> str:
    if drift == "gradient":
        raise ValueError(
            'noise="tensor" is learned in coordinates in which the noise has no direction, and a gradient is none in '
            'them: use drift="general" or "auto".'
        )
    return "general"


def _checked_noise(noise: Any, learn: frozenset[str]) -> str | float:
    if isinstance(noise, str):
        _validation.option(noise, "noise", NOISES)
        if "noise" not in learn:
            raise ValueError(f"the noise is neither given (noise=1.4) nor learned; learn is {tuple(sorted(learn))!r}.")
        return noise
    value = _validation.positive(noise, "noise")
    if learn == {"noise"}:
        raise ValueError(f"the noise is given as {value:g}: nothing is left to learn.")
    return value


def _check_dimension(dimension: Any) -> None:
    if dimension is not None:
        _validation.count(dimension, "dimension", 1)


def _auto_or(value: Any, name: str, check: Callable[[Any, str], Any]) -> None:
    if not (isinstance(value, str) and value == "auto"):
        check(value, name)


def _not_negative(value: Any, name: str) -> None:
    if _validation.number(value, name) < 0:
        raise ValueError(f"{name} must not be negative; got {value!r}.")
