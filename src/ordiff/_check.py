"""Every input check, and the text of every error.

A message says what is wrong, where (the first offending index), and what to do. Checks return the input in the
form that the rest of the package relies on: float64, C-contiguous, finite.
"""

from __future__ import annotations

import operator as _operator
import os
import sys
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]

_PACKAGE = str(Path(__file__).parent) + os.sep
# beyond this the square of a distance is no longer a finite number
_LARGEST_SPAN = 1e150


class OrdiffWarning(UserWarning):
    """The one category of every warning that ordiff gives."""


class GraphError(ValueError):
    """The neighbour graph cannot support what was asked of it."""


class ResolutionError(ValueError):
    """The time step does not fit the sampling: a row of the kernel has no mass, or is not finite."""


class SolveError(ValueError):
    """A linear system could not be solved to the accuracy that is asked of it."""


class MissingExtraError(ImportError):
    """An optional dependency is needed; the message names the extra that installs it."""


def warn(message: str) -> None:
    """Warn of the line, outside this package, that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, OrdiffWarning, stacklevel=level)


def silent() -> warnings.catch_warnings[None]:
    """A context without our warnings, for what tries steps that it knows to be unfit."""
    return warnings.catch_warnings(action="ignore", category=OrdiffWarning)


def _as_float(value: ArrayLike, name: str) -> Array:
    if type(value) is np.ndarray and value.dtype == np.float64 and value.flags.carray:
        return value
    if value is None:
        raise ValueError(f"{name} is None; give a number or an array.")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} has {int(np.ma.getmaskarray(value).sum())} masked values: remove or fill them first.")
    if hasattr(value, "tocsr"):
        raise ValueError(f"{name} is a sparse matrix; pass a dense array, for instance of principal components.")
    try:
        array = np.asarray(value)
        if array.dtype.kind in "mM":
            raise TypeError("dates")
        if np.iscomplexobj(array):
            raise TypeError("complex numbers")
        # compiled loops are specialised for writable C-contiguous arrays
        return np.require(array, np.float64, ["C", "W", "A"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers; got {type(value).__name__} ({error}).") from None


def _finite(array: Array, name: str) -> Array:
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))
        index = tuple(int(i) for i in where[0])
        at = index[0] if len(index) == 1 else index
        raise ValueError(
            f"{name} has {len(where)} value(s) that are NaN or infinite, the first at index {at}. "
            "Remove or impute these samples first."
        )
    return array


def points(X: ArrayLike, name: str = "X", minimum: int = 2) -> Array:
    """Samples, (m, n), finite, at least ``minimum`` of them."""
    array = _as_float(X, name)
    if array.ndim != 2:
        hint = " Use X.reshape(-1, 1) for points on a line." if array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (points, coordinates); got shape {array.shape}.{hint}")
    if array.shape[0] < minimum or array.shape[1] < 1:
        raise ValueError(f"{name} needs at least {minimum} points and 1 coordinate; got shape {array.shape}.")
    if np.abs(_finite(array, name)).max() > _LARGEST_SPAN:
        raise ValueError(f"{name} has coordinates above {_LARGEST_SPAN:g}, whose squares overflow: rescale it.")
    return array


def table(values: ArrayLike, name: str, rows: str) -> Array:
    """Several functions on the samples, a row each, (rows, m)."""
    array = _as_float(values, name)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 1:
        raise ValueError(f"{name} must have shape ({rows}, samples), a row each; got shape {array.shape}.")
    return _finite(array, name)


def nodes(values: ArrayLike, m: int, name: str) -> Array:
    """One finite number a sample, (m,)."""
    array = _as_float(values, name)
    if array.shape != (m,):
        raise ValueError(f"{name} must have one value per sample, shape ({m},); got shape {array.shape}.")
    return _finite(array, name)


def node_vectors(values: ArrayLike, shape: tuple[int, ...], name: str) -> Array:
    """One finite vector or matrix a sample, of exactly this shape."""
    array = _as_float(values, name)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got shape {array.shape}.")
    return _finite(array, name)


def frame(values: ArrayLike, shape: tuple[int, int], name: str) -> Array:
    """d linearly independent vectors a sample, (m, n, d), as columns."""
    array = _as_float(values, name)
    if array.ndim != 3 or array.shape[:2] != shape or not 1 <= array.shape[2] <= shape[1]:
        raise ValueError(f"{name} must have shape ({shape[0]}, {shape[1]}, d); got shape {array.shape}.")
    size = np.linalg.norm(_finite(array, name), axis=1)
    smallest = np.linalg.svd(array / np.where(size > 0, size, 1.0)[:, None, :], compute_uv=False)[:, -1]
    if not (smallest > 1e-10).all():
        raise ValueError(f"the columns of {name} at index {int(np.argmin(smallest))} are not linearly independent.")
    return array


def functions(values: ArrayLike, m: int, name: str = "f") -> Array:
    """One function (m,) or several (m, c) on the samples. NaN is refused: it would spread to the neighbours."""
    array = _as_float(values, name)
    if array.ndim not in (1, 2) or array.shape[0] != m:
        raise ValueError(f"{name} must have shape ({m},) or ({m}, functions); got shape {array.shape}.")
    return _finite(array, name)


def node_or_scalar(value: ArrayLike, m: int, name: str, *, positive: bool = False) -> Array:
    """A number or an (m,) array, as an (m,) array."""
    array = _as_float(value, name)
    if array.ndim == 0:
        array = np.full(m, float(array))
    array = nodes(array, m, name)
    if positive and not (array > 0).all():
        index = int(np.argmax(~(array > 0)))
        raise ValueError(f"{name} must be positive; it is {array[index]:g} at index {index}.")
    return array


def log_values(values: ArrayLike, size: int, profile: object) -> Array:
    """What a profile makes of an array of this size."""
    array = np.asarray(values)
    if array.shape != (size,) or array.dtype.kind not in "fiu":
        raise ValueError(
            f"{type(profile).__name__}.log_value must return one real number for each of u, shape ({size},); got "
            f"shape {array.shape} of {array.dtype}."
        )
    return array


def indices(values: ArrayLike, m: int, name: str) -> NDArray[np.intp]:
    """One sample number, or several, each 0 .. m − 1."""
    array = np.atleast_1d(np.asarray(values))
    if array.dtype.kind not in "iu" or array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a sample's index or several; got {values!r}.")
    bad = (array < 0) | (array >= m)
    if bad.any():
        raise ValueError(f"{name} must be 0..{m - 1}, there are {m} samples; got {array[np.argmax(bad)]}.")
    return array.astype(np.intp)


def members(values: ArrayLike, m: int, name: str) -> NDArray[np.bool_]:
    """A set of states, not empty, as a mask (m,): from a mask, or from one index or several."""
    array = np.asarray(values)
    if array.dtype.kind == "b":
        if array.shape != (m,):
            raise ValueError(f"{name}, a mask, must have one value per state, shape ({m},); got shape {array.shape}.")
        mask = array.copy()
    elif array.size:
        if array.shape == (m,) and m > 2 and array.dtype.kind in "iu" and np.isin(array, (0, 1)).all():
            raise ValueError(
                f"{name} has a 0 or 1 for each of the {m} states: write a mask as booleans, .astype(bool), and states "
                "by their indices, np.flatnonzero(...)."
            )
        mask = np.zeros(m, bool)
        mask[indices(values, m, name)] = True
    if not array.size or not mask.any():
        raise ValueError(f"{name} holds no state: give at least one.")
    return mask


def disjoint(masks: Sequence[NDArray[np.bool_]], names: Sequence[str]) -> None:
    """Sets of states without a common one."""
    count = np.sum(masks, axis=0)
    if count.max() > 1:
        at = int(np.argmax(count > 1))
        shared = [name for mask, name in zip(masks, names, strict=True) if mask[at]]
        raise ValueError(
            f"{shared[0]} and {shared[1]} have {int((count > 1).sum())} state(s) in common, the first is {at}: a state "
            "can be in one of the sets only."
        )


def some_left(inside: NDArray[np.bool_]) -> None:
    """Is a state left outside the targets?"""
    if inside.all():
        raise ValueError(f"all {inside.size} states are targets: none is left to start from.")


def named_sets(terminal: Any, m: int) -> dict[Hashable, Any]:
    """Terminal states by name: from a dict, a list of sets (named 0, 1, …), or one label per state."""
    if isinstance(terminal, Mapping):
        named = dict(terminal)
    elif isinstance(terminal, str) or not isinstance(terminal, Iterable):
        raise ValueError(f"terminal must be a dict, a list of sets of states, or ({m},) labels; got {terminal!r}.")
    else:
        entries = list(terminal)
        if len(entries) != m or any(isinstance(entry, Sized) and not isinstance(entry, str) for entry in entries):
            named = dict(enumerate(entries))
        else:
            named = _labelled(entries)
    if not named:
        raise ValueError("terminal has no set of states: give at least one.")
    return named


def _labelled(entries: Sequence[Any]) -> dict[Hashable, Any]:
    """The states of each label, in sorted order of the labels."""
    if all(isinstance(entry, bool | np.bool_) for entry in entries):
        raise ValueError("terminal is one mask: give a list of masks, or a dict, with one for each fate.")
    found: dict[Any, list[int]] = {}
    for at, entry in enumerate(entries):
        if not _is_missing(entry):
            found.setdefault(entry, []).append(at)
    return {label: found[label] for label in sorted(found, key=lambda label: (isinstance(label, str), label))}


def _is_missing(label: Any) -> bool:
    """None, NaN and NA, "", and numbers below 0 say that a state has no label."""
    if isinstance(label, str):
        return not label
    if isinstance(label, int | float | np.number):
        return not label >= 0  # NaN too
    return label is None or type(label).__name__ in ("NAType", "NaTType")


def start_mass(values: ArrayLike, m: int, name: str = "start") -> Array:
    """A probability mass (m,): as given, or shared equally by a mask, an index or several."""
    array = np.asarray(values)
    if array.dtype.kind in "biu":
        mask = members(array, m, name)
        return mask / mask.sum()
    mass = nodes(values, m, name)
    if mass.min() < 0 or abs(mass.sum() - 1.0) > 1e-6:
        raise ValueError(
            f"{name} must be a probability mass, not negative and of total 1; its least value is {mass.min():g} and "
            f"its total {mass.sum():g}."
        )
    return mass


def positive(value: Any, name: str) -> float:
    """One positive finite number."""
    array = _as_float(value, name)
    if array.ndim != 0 or not np.isfinite(array) or not array > 0:
        raise ValueError(f"{name} must be one positive number; got {value!r}.")
    return float(array)


def number(value: Any, name: str) -> float:
    """One finite number."""
    array = _as_float(value, name)
    if array.ndim != 0 or not np.isfinite(array):
        raise ValueError(f"{name} must be one finite number; got {value!r}.")
    return float(array)


def share(value: Any, name: str) -> float:
    """One number strictly between 0 and 1."""
    if not 0 < number(value, name) < 1:
        raise ValueError(f"{name} must be between 0 and 1; got {value!r}.")
    return float(value)


def count(value: Any, name: str, minimum: int = 1, maximum: int | None = None, why: str = "") -> int:
    """One whole number in a range."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        whole = _operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number; got {value!r}.") from None
    if whole < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {whole}.{' ' + why if why else ''}")
    if maximum is not None and whole > maximum:
        raise ValueError(f"{name} must be at most {maximum}; got {whole}.{' ' + why if why else ''}")
    return whole


def option(value: Any, name: str, options: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}.")
    return str(value)


def labels(values: ArrayLike, m: int, n_labels: int) -> NDArray[np.uint32]:
    """(m,) whole numbers 0 .. n_labels − 1."""
    array = np.asarray(values)
    if array.shape != (m,) or array.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be whole numbers, one per sample, shape ({m},); got {array.dtype}, shape {array.shape}."
        )
    bad = (array < 0) | (array >= n_labels)
    if bad.any():
        index = int(np.argmax(bad))
        raise ValueError(
            f"labels must be 0..{n_labels - 1} (one row of values each); it is {array[index]} at index {index}."
        )
    return np.ascontiguousarray(array, dtype=np.uint32)


def symmetric(matrices: ArrayLike, m: int, size: int, name: str) -> Array:
    """One symmetric matrix a sample, (m, size, size)."""
    array = node_vectors(matrices, (m, size, size), name)
    gap = np.abs(array - array.transpose(0, 2, 1)).max(axis=(1, 2), initial=0.0)
    bad = gap > 1e-9 * np.abs(array).max(axis=(1, 2), initial=0.0)
    if bad.any():
        raise ValueError(f"{name} must be symmetric; the matrix at index {int(np.argmax(bad))} is not.")
    return array


def need_points(X: Array | None, why: str) -> Array:
    """The coordinates of a graph that may have been built from distances alone."""
    if X is None:
        raise GraphError(f"{why} needs the coordinates of the points: pass X to NeighborGraph.from_distances(D, X=X).")
    return X


def apart(radius: Array, k: int, what: str) -> Array:
    """Distances to the k-th neighbour, (m,), none of them 0: ``what`` says what a 0 would do."""
    if not (radius > 0).all():
        raise GraphError(
            f"sample {int(np.argmin(radius))} coincides with its {k} nearest neighbours, so its {what}: "
            "remove duplicate samples or use a larger k."
        )
    return radius


def empty_row(index: int, eps: float) -> ResolutionError:
    return ResolutionError(
        f"row {index} of the kernel has no finite mass at eps = {eps:g}: with these dynamics sample {index} "
        "reaches none of its neighbours. Use a larger eps or noise, more neighbours, a smaller speed, "
        'or the "gaussian" profile, which never vanishes.'
    )


def warn_if_cut(reach: Array, variance: Array, eps: float, dimension: int) -> None:
    """Warn when the graph cuts off more than half of a gaussian step's second moment at the median sample.

    Beyond the radius r lies the share Γ(1 + d/2, r²/2σ²)/Γ(1 + d/2) of the second moment of N(0, σ²I_d).
    """
    from scipy.special import gammaincc, gammainccinv

    ratio = reach / (2 * variance)
    half, enough = gammainccinv(1 + dimension / 2, [0.5, 0.01]).tolist()
    if _most(ratio < half):
        x = float(np.median(ratio))
        loss = float(gammaincc(1 + dimension / 2, x))
        warn(
            f"the graph is too small for eps = {eps:g}: at the median sample its farthest neighbour is "
            f"{np.sqrt(2 * x):.1f} standard deviations of a step away, so about {loss:.0%} of the "
            f"diffusion is cut off. Use eps up to {eps * x / enough:.2g}, or a graph of radius "
            f"{np.sqrt(2 * enough * np.median(variance)):.2g}."
        )


def warn_if_stuck(staying: Array, eps: float, spacing: Array) -> None:
    """Warn when a step stays where it is, at the median sample: the generator would come out as 0."""
    if _most(staying > 0.9):
        warn(
            f"eps = {eps:g} is too small for the sampling: at the median sample a step stays put with probability "
            f"{np.median(staying):.4g}, so drift and diffusion come out near 0. Use eps of about "
            f"{np.median(spacing):.2g} or more."
        )


def _most(which: NDArray[np.bool_]) -> bool:
    """Whether more than half are, as the median is then. To find that out takes a tenth of the time of a median."""
    return 2 * int(np.count_nonzero(which)) > which.size


def unreachable(lost: NDArray[np.bool_], what: str, so: str = "") -> GraphError:
    return GraphError(
        f"{int(lost.sum())} of {lost.size} states, the first at index {int(np.argmax(lost))}, do not reach {what}"
        f"{', so ' + so if so else ''}: add a set that holds where they end, join them by more neighbours, or leave "
        "them out."
    )


def several_classes(classes: Sequence[IntArray], m: int) -> GraphError:
    sizes = sorted(((c.size, int(c[0])) for c in classes), reverse=True)
    shown = ", ".join(f"{size} from index {first}" for size, first in sizes[:4]) + (", …" if len(sizes) > 4 else "")
    absorbing, transient = sum(size == 1 for size, _ in sizes), m - sum(size for size, _ in sizes)
    return GraphError(
        f"the chain has {len(sizes)} closed classes of states ({shown}; {absorbing} of them single absorbing states) "
        f"and {transient} transient states, so its stationary mass depends on where it starts. Join them by more "
        "neighbours or a larger eps, or ask for fate_probabilities with the classes as terminal."
    )


def unsolved(why: str) -> SolveError:
    return SolveError(
        f"the linear system of this chain could not be solved: {why}. It is so slow to arrive that rounding decides: "
        "use a larger eps or noise, targets that are easier to reach, or leave out samples that lie apart."
    )


def missing_extra(package: str, extra: str, what: str) -> MissingExtraError:
    return MissingExtraError(f"{what} needs {package}: pip install 'ordiff[{extra}]'.")


def times(values: ArrayLike, m: int) -> Array:
    """Times of the samples, (m,), or windows (m, 2), none negative."""
    array = _as_float(values, "times")
    if array.shape not in ((m,), (m, 2)):
        raise ValueError(
            f"times must have one value per sample, shape ({m},), or a window each, shape ({m}, 2); "
            f"got shape {array.shape}."
        )
    _finite(array, "times")
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


def within_horizon(t: Array, horizon: float) -> None:
    beyond = (t if t.ndim == 1 else t[:, 1]) > horizon * (1 + 1e-9)
    if beyond.any():
        at = int(np.argmax(beyond))
        raise ValueError(
            f"{beyond.sum()} times are outside [0, {horizon:g}], the first at index {at}: {np.max(t[at]):g}. "
            "Raise the horizon, or leave it out."
        )


def near_samples(point: Array, X: Array, name: str) -> None:
    """The point is no farther from the samples than they are from each other."""
    distance = float(np.sqrt(((X - point) ** 2).sum(axis=1).min()))
    size = float(np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).max()))
    if distance > 0.5 * size:
        raise ValueError(
            f"{name} = {point.tolist()} is far from all samples: the nearest is {distance:.3g} away, and they spread "
            f"over {2 * size:.3g}. Check its coordinates and units."
        )
