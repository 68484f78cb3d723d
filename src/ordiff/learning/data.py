"""The snapshots: points, their times and weights, and where the process starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordiff import _validation
from ordiff._coordinates import LinearCoordinates, distinct_rows, is_noise_in_time
from ordiff._parallel import cached_property
from ordiff._validation import Array
from ordiff.learning.settings import DesignedStates, FitSettings, TimeDensity
from ordiff.learning.way import unseen_way
from ordiff.states import States, local_dimension

# The share of rows that may be copies, and the ratio of the spreads of columns, before it is said.
_COPIES, _UNITS = 0.05, 30.0


@dataclass(frozen=True, eq=False)
class Snapshots:
    """Points that were each seen once, when, and where the process starts."""

    X: Array
    times: Array | None  # (m,), or (m, 2) windows; None when unknown
    weights: Array
    start: Array  # (s, n)
    start_weights: Array
    horizon: float
    elsewhere: Any = None  # all samples, in blocks on workers, of which these are some

    @classmethod
    def of(
        cls, start: Any, design: TimeDensity, X: Array, times: ArrayLike | None, weights: ArrayLike | None,
        elsewhere: Any = None,
    ) -> Snapshots:  # fmt: skip
        """Those that a fit gets, checked. Of samples ``elsewhere`` X is a part, whose weights stand for all."""
        m = len(X)
        if times is None:
            if design.density is None or design.horizon is None:
                raise ValueError(
                    "without times, give times=TimeDensity(density, horizon), with a function of an array of times or "
                    '"uniform"; or pass the times to fit(X, times).'
                )
            t, horizon = None, float(design.horizon)
        else:
            t = _checked_times(times, m)
            latest = float(t.max()) if elsewhere is None else elsewhere.latest
            horizon = latest if design.horizon is None else float(design.horizon)
            _check_horizon(t, horizon)
        w = np.ones(m) if weights is None else _validation.nodes(weights, m, "sample_weight")
        if not ((w >= 0).all() and w.any()):
            raise ValueError("sample_weight must not be negative, and not all zero.")
        _warn_of_weights(w)
        _warn_of_times(t)
        _warn_of_copies(X, t)
        points, share = _one_if_same(*_start(start, X, X if elsewhere is None else elsewhere), X)
        if elsewhere is not None:
            w = w * (elsewhere.weight / w.sum())
        return cls(X, t, w, points, share, horizon, elsewhere)

    def in_coordinates(self, coordinates: LinearCoordinates) -> Snapshots:
        """The same in other coordinates."""
        if coordinates.forward is None:
            return self
        elsewhere = None if self.elsewhere is None else self.elsewhere.in_coordinates(coordinates)
        X, start = coordinates.transform(self.X), coordinates.transform(self.start)
        return replace(self, X=X, start=start, elsewhere=elsewhere)

    @property
    def here(self) -> Snapshots:
        """Without those that are elsewhere: weights count samples again."""
        if self.elsewhere is None:
            return self
        weights = self.weights * (self.elsewhere.weight_here / self.elsewhere.weight)
        return replace(self, weights=weights, elsewhere=None)

    def at(self, X: Array, times: ArrayLike | None) -> Snapshots:
        """Other points of the same process, at times that may be later than the horizon, or unknown."""
        m = len(X)
        t = None if times is None else _checked_times(times, m)
        horizon = self.horizon if t is None else max(self.horizon, float(t.max()))
        return replace(self, X=X, times=t, weights=np.ones(m), horizon=horizon, elsewhere=None)

    def only(self, kept: NDArray[np.bool_], farthest: float = np.inf, earliest: float = -np.inf) -> Snapshots:
        """Some of them, (m,): those no farther than so from the states, and seen no earlier than so."""
        if self.elsewhere is None and kept.all():
            return self
        times = None if self.times is None else self.times[kept]
        elsewhere = None if self.elsewhere is None else self.elsewhere.only(farthest, earliest)
        return replace(self, X=self.X[kept], times=times, weights=self.weights[kept], elsewhere=elsewhere)

    @property
    def latest(self) -> Array | None:
        """The time of each, or the end of its window, (m,); None when unknown."""
        return self.times if self.times is None or self.times.ndim == 1 else self.times.max(axis=1)

    @property
    def middle_times(self) -> Array | None:
        """The times, or the middles of their windows, (m,); None when unknown."""
        return self.times if self.times is None or self.times.ndim == 1 else self.times.mean(axis=1)

    @cached_property
    def distinct(self) -> Array:
        """The points without copies, (p, n)."""
        return distinct_rows(self.X)

    @cached_property
    def support(self) -> Array:
        """The points that states are spread over: these, and those elsewhere where none of these is near."""
        return self.X if self.elsewhere is None else np.concatenate([self.X, self.elsewhere.outside(self.X)])

    @cached_property
    def way(self) -> Array:
        """Points (p, n) where the process passes and no samples are; none where times are not known."""
        times, counted = self.middle_times, self.weights > 0
        if times is None:
            return self.X[:0]
        return unseen_way(self.X[counted], times[counted], self.start, self.start_weights)

    @property
    def one_start(self) -> bool:
        """Whether the process starts at a single point."""
        return len(self.start) == 1


def coordinates_for(settings: FitSettings, data: Snapshots) -> LinearCoordinates:
    """Those in which a chain is learned: the data's own where the user's states or orderings are in them."""
    if isinstance(settings.states, States) or not _are_values(settings.ordering):
        return LinearCoordinates()
    return LinearCoordinates.of(data.X, data.middle_times, settings.dimension or 1, data.one_start)


def with_dimension(settings: FitSettings, data: Snapshots) -> FitSettings:
    """The settings with the dimension of the data in the coordinates of the fit, of which none are noise any more; or
    as they are where it is given."""
    if settings.dimension is not None or not isinstance(settings.states, DesignedStates):
        return settings
    d = local_dimension(data.X, np.random.default_rng(0))
    return replace(settings, states=replace(settings.states, dimension=d))


def _are_values(ordering: Any) -> bool:
    return ordering is None or np.asarray(ordering).dtype.kind in "iuf"


def _warn_of_weights(w: Array) -> None:
    mean = float(w[w > 0].mean())
    if not 0.1 <= mean <= 10:
        _validation.warn(
            f"sample_weight counts samples, and these have a mean of {mean:.2g}: what is known, and how smooth the "
            "fields are, is judged as for so many samples in all. If that is not meant, scale them to a mean of 1."
        )


def _warn_of_times(t: Array | None) -> None:
    if t is not None and t.max() > t.min() > 0.5 * t.max():
        _validation.warn(
            f"all samples were seen between {t.min():.6g} and {t.max():.6g}, and the start is at time 0. If the start "
            "is where the earliest samples are, count the times from there: times - times.min()."
        )


def _warn_of_copies(X: Array, t: Array | None) -> None:
    """Warn of repeated rows, but for samples at the start."""
    rows = X if t is None else np.column_stack([X, t])[np.reshape(t, (len(X), -1)).max(axis=1) > 0]
    copies = len(rows) - len(distinct_rows(rows))
    if copies > _COPIES * len(X):
        _validation.warn(
            f"{copies} of {len(X)} rows of X are exact copies of others, at the same times. They count as samples of "
            "their own, as by sample_weight, and the standard deviations come out the smaller: if they are no "
            "independent samples, drop them with numpy.unique(X, axis=0, return_index=True)."
        )


def warn_of_units(data: Snapshots, names: list[str]) -> None:
    """Warn of columns that spread much farther than others, unless these are only noise."""
    spread = data.X.std(axis=0)
    small = (spread < spread.max() / _UNITS) & (spread > 1e-5 * spread.max() / _UNITS)
    if not small.any():
        return
    beside = _beside(data.X[:, small], data.X[:, ~small])
    if not beside.any() or is_noise_in_time(data.X[:, small], data.middle_times, data.one_start):
        return
    small[small] = beside
    large = spread > _UNITS * spread[small].max()
    _validation.warn(
        f"the columns {_some_names(names, large)} of X spread more than {_UNITS:g} times as far as "
        f"{_some_names(names, small)}, which then hardly count: distances are the same in all directions. If their "
        "units differ, standardise X first, with StandardScaler in a pipeline."
    )


def _beside(Y: Array, X: Array) -> NDArray[np.bool_]:
    """Which columns of Y are not, for the most part, linear in those of X."""
    Y, X = Y - Y.mean(axis=0), X - X.mean(axis=0)
    rest = Y - X @ np.linalg.lstsq(X, Y, rcond=None)[0]
    return np.asarray((rest**2).sum(axis=0) > 0.5 * (Y**2).sum(axis=0))


def _some_names(names: list[str], chosen: NDArray[np.bool_], most: int = 5) -> str:
    found = [names[k] for k in np.flatnonzero(chosen)]
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def _one_if_same(points: Array, share: Array, X: Array) -> tuple[Array, Array]:
    """A start at several samples of the same place is one point."""
    if len(points) > 1 and np.ptp(points, axis=0).max() <= 1e-9 * np.ptp(X, axis=0).max():
        return points[:1], np.ones(1)
    return points, share


def _start(start: Any, here: Array, X: Any) -> tuple[Array, Array]:
    """Points (s, n) and weights (s,) of a start: a point, index, indices, mask or mass. X: all samples, of which some
    are ``here``."""
    m, n = X.shape
    if start is None:
        raise ValueError("start is None: say where the process starts (a point, a sample's index, or several).")
    array = np.atleast_1d(_validation.as_array(start, "start"))
    if array.dtype.kind == "b":
        rows = np.flatnonzero(array) if array.shape == (m,) else np.empty(0, int)
        if rows.size == 0:
            raise ValueError(f"start is a mask: it must have shape ({m},) and mark at least one sample.")
        return X[rows], np.full(rows.size, 1 / rows.size)
    if array.dtype.kind in "iu" and array.ndim == 1 and array.shape != (m,):
        if array.shape == (n,) and n > 1:
            raise ValueError(
                f"start = {array.tolist()} may be a point or {n} samples: write a point with decimals "
                f"({array.astype(float).tolist()}), and samples as a mask."
            )
        rows = _validation.indices(array, m, "start")
        return X[rows], np.full(rows.size, 1 / rows.size)
    if array.shape == (m,) and n != m:
        mass = _validation.nodes(array, m, "start")
        if not ((mass >= 0).all() and mass.any()):
            raise ValueError("start is a mass on the samples: it must not be negative, and not all 0.")
        rows = np.flatnonzero(mass)
        return X[rows], mass[rows] / mass.sum()
    point = _validation.nodes(array, n, "start")
    _check_near_samples(point, here, "start")
    return point[None, :], np.ones(1)


def _checked_times(values: ArrayLike, m: int) -> Array:
    """Times of the samples, (m,), or windows (m, 2), none negative."""
    array = _validation.as_float(values, "times")
    if array.shape not in ((m,), (m, 2)):
        raise ValueError(
            f"times must have one value per sample, shape ({m},), or a window each, shape ({m}, 2); "
            f"got shape {array.shape}."
        )
    _validation.finite(array, "times")
    earliest = array if array.ndim == 1 else array[:, 0]
    if (earliest < 0).any():
        at = int(np.argmax(earliest < 0))
        raise ValueError(f"times must not be negative: the start is at time 0. It is {earliest[at]:g} at index {at}.")
    if array.ndim == 2 and (array[:, 1] < array[:, 0]).any():
        at = int(np.argmax(array[:, 1] < array[:, 0]))
        raise ValueError(f"the window of sample {at} ends before it begins: {array[at].tolist()}.")
    if not array.max() > 0:
        raise ValueError("all times are 0: there is nothing to learn from the start alone.")
    return array


def _check_horizon(t: Array, horizon: float) -> None:
    beyond = (t if t.ndim == 1 else t[:, 1]) > horizon * (1 + 1e-9)
    if beyond.any():
        at = int(np.argmax(beyond))
        raise ValueError(
            f"{beyond.sum()} times are outside [0, {horizon:g}], the first at index {at}: {np.max(t[at]):g}. "
            "Raise the horizon, or leave it out."
        )


def _check_near_samples(point: Array, X: Array, name: str) -> None:
    """The point is no farther from the samples than they are from each other."""
    distance = float(np.sqrt(((X - point) ** 2).sum(axis=1).min()))
    size = float(np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).max()))
    if distance > 0.5 * size:
        raise ValueError(
            f"{name} = {point.tolist()} is far from all samples: the nearest is {distance:.3g} away, and they spread "
            f"over {2 * size:.3g}. Check its coordinates and units."
        )
