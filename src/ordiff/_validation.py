"""Generic input checks, and the kinds of errors and warnings. What is particular to a domain stands where it is raised.

A message says what is wrong, where (the first offending index), and what to do. Checks return the input in the
form that the rest of the package relies on: float64, C-contiguous, finite.
"""

from __future__ import annotations

import operator as _operator
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.integer[Any]]

_PACKAGE = str(Path(__file__).parent) + os.sep
# beyond this the squares of distances, and sums of them, are no longer finite numbers
LARGEST_SPAN = 1e140


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


def as_float(value: ArrayLike, name: str) -> Array:
    if type(value) is np.ndarray and value.dtype == np.float64 and value.flags.carray:
        return value
    try:
        # compiled loops are specialised for writable C-contiguous arrays
        return np.require(as_array(value, name), np.float64, ["C", "W", "A"])
    except TypeError as error:
        raise ValueError(f"{name} must be an array of real numbers; got {type(value).__name__} ({error}).") from None


def as_array(value: Any, name: str) -> NDArray[Any]:
    """An array of numbers of any kind, or of objects. None, masks, sparse matrices, dates, complex numbers and words
    are refused: a conversion would drop what they say."""
    refuse_masked(value, name)
    if value is None:
        raise ValueError(f"{name} is None; give a number or an array.")
    if hasattr(value, "tocsr"):
        raise ValueError(f"{name} is a sparse matrix; pass a dense array, for instance of principal components.")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise ValueError(f"{name} must be an array of real numbers; got {type(value).__name__} ({error}).") from None
    said = {"m": "dates", "M": "dates", "c": "complex numbers", "U": "words", "S": "bytes", "V": "records"}
    if array.dtype.kind in said:
        what = f"{type(value).__name__} of {said[array.dtype.kind]}"
        raise ValueError(f"{name} must be an array of real numbers; got {what}.")
    return array


def refuse_masked(value: Any, name: str) -> Any:
    """The value itself, unless it is an array that hides some of its values, or holds dates or complex numbers, which
    conversions outside ordiff would take for numbers."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name} has {int(np.ma.getmaskarray(value).sum())} masked values: remove or fill them first.")
    kinds = {getattr(kind, "kind", "O") for kind in np.atleast_1d(np.array(_types_of(value), dtype=object))}
    if kinds & set("mMc"):
        raise ValueError(
            f"{name} must be an array of real numbers; it holds dates or complex numbers. Complex data not supported."
        )
    return value


def array_like(value: Any, name: str) -> Any:
    """The value itself, if it is something that scikit-learn can make an array of, and nothing that `refuse_masked`
    refuses."""
    sparse = hasattr(value, "tocsr")
    if isinstance(value, Mapping) or sparse or not (hasattr(value, "__len__") or hasattr(value, "__array__")):
        more = ", a sparse matrix" if sparse else ""
        raise ValueError(f"{name} must be a dense array of real numbers; got {type(value).__name__}{more}.")
    return refuse_masked(value, name)


def _types_of(value: Any) -> list[Any]:
    """The types of an array, or of the columns of a table."""
    found = getattr(value, "dtypes", None)
    return [getattr(value, "dtype", None)] if found is None else [*np.atleast_1d(np.array(found, dtype=object))]


def finite(array: Array, name: str) -> Array:
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
    array = as_float(X, name)
    if array.ndim != 2:
        hint = " Use X.reshape(-1, 1) for points on a line." if array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (points, coordinates); got shape {array.shape}.{hint}")
    if array.shape[0] < minimum or array.shape[1] < 1:
        raise ValueError(f"{name} needs at least {minimum} points and 1 coordinate; got shape {array.shape}.")
    if np.abs(finite(array, name)).max() > LARGEST_SPAN:
        raise ValueError(f"{name} has coordinates above {LARGEST_SPAN:g}, whose squares overflow: rescale it.")
    return array


def table(values: ArrayLike, name: str, rows: str) -> Array:
    """Several functions on the samples, a row each, (rows, m)."""
    array = as_float(values, name)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 1:
        raise ValueError(f"{name} must have shape ({rows}, samples), a row each; got shape {array.shape}.")
    return finite(array, name)


def nodes(values: ArrayLike, m: int, name: str) -> Array:
    """One finite number a sample, (m,)."""
    array = as_float(values, name)
    if array.shape != (m,):
        raise ValueError(f"{name} must have one value per sample, shape ({m},); got shape {array.shape}.")
    return finite(array, name)


def node_vectors(values: ArrayLike, shape: tuple[int, ...], name: str) -> Array:
    """One finite vector or matrix a sample, of exactly this shape."""
    array = as_float(values, name)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}; got shape {array.shape}.")
    return finite(array, name)


def frame(values: ArrayLike, shape: tuple[int, int], name: str) -> Array:
    """d linearly independent vectors a sample, (m, n, d), as columns."""
    array = as_float(values, name)
    if array.ndim != 3 or array.shape[:2] != shape or not 1 <= array.shape[2] <= shape[1]:
        raise ValueError(f"{name} must have shape ({shape[0]}, {shape[1]}, d); got shape {array.shape}.")
    size = np.linalg.norm(finite(array, name), axis=1)
    smallest = np.linalg.svd(array / np.where(size > 0, size, 1.0)[:, None, :], compute_uv=False)[:, -1]
    if not (smallest > 1e-10).all():
        raise ValueError(f"the columns of {name} at index {int(np.argmin(smallest))} are not linearly independent.")
    return array


def functions(values: ArrayLike, m: int, name: str = "f") -> Array:
    """One function (m,) or several (m, c) on the samples. NaN is refused: it would spread to the neighbours."""
    array = as_float(values, name)
    if array.ndim not in (1, 2) or array.shape[0] != m:
        raise ValueError(f"{name} must have shape ({m},) or ({m}, functions); got shape {array.shape}.")
    return finite(array, name)


def node_or_scalar(value: ArrayLike, m: int, name: str, *, positive: bool = False) -> Array:
    """A number or an (m,) array, as an (m,) array."""
    array = as_float(value, name)
    if array.ndim == 0:
        array = np.full(m, float(array))
    array = nodes(array, m, name)
    if positive and not (array > 0).all():
        index = int(np.argmax(~(array > 0)))
        raise ValueError(f"{name} must be positive; it is {array[index]:g} at index {index}.")
    return array


def indices(values: ArrayLike, m: int, name: str) -> NDArray[np.intp]:
    """One sample number, or several, each 0 .. m − 1."""
    array = np.atleast_1d(as_array(values, name))
    if array.dtype.kind not in "iu" or array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a sample's index or several; got {values!r}.")
    bad = (array < 0) | (array >= m)
    if bad.any():
        raise ValueError(f"{name} must be 0..{m - 1}, there are {m} samples; got {array[np.argmax(bad)]}.")
    return array.astype(np.intp)


def positive(value: Any, name: str) -> float:
    """One positive finite number."""
    array = _scalar(value, name)
    if array.ndim != 0 or not np.isfinite(array) or not array > 0:
        raise ValueError(f"{name} must be one positive number; got {value!r}.")
    return float(array)


def number(value: Any, name: str) -> float:
    """One finite number."""
    array = _scalar(value, name)
    if array.ndim != 0 or not np.isfinite(array):
        raise ValueError(f"{name} must be one finite number; got {value!r}.")
    return float(array)


def _scalar(value: Any, name: str) -> Array:
    """A truth value is no number."""
    if isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be a number; got {value!r}.")
    return as_float(value, name)


def positive_numbers(values: ArrayLike, name: str) -> Array:
    """Positive finite numbers, in an array of any shape."""
    array = finite(as_float(values, name), name)
    if not (array > 0).all():
        raise ValueError(f"{name} must be positive; its least value is {array.min():g}.")
    return array


def weights(values: ArrayLike, m: int, name: str) -> Array:
    """How much each of m counts, (m,): none negative, not all 0."""
    array = nodes(values, m, name)
    if array.min() < 0 or not array.any():
        raise ValueError(f"{name} must not be negative, and not all 0; the least is {array.min():g}.")
    return array


def flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; got {value!r}.")
    return bool(value)


def generator(random_state: Any, name: str = "random_state") -> np.random.Generator:
    """The random numbers of a seed: a whole number from 0, several, None for others in each call, or a generator."""
    try:
        if isinstance(random_state, bool | np.bool_):
            raise TypeError
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a whole number from 0, or None; got {random_state!r}.") from None


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


def fits_memory(numbers: int, what: str) -> None:
    """Raise if so many numbers take more than 4 GB."""
    if numbers > 2**29:
        raise ValueError(f"{what} would take {8 * numbers / 2**30:.0f} GB of memory: ask for less.")


def option(value: Any, name: str, options: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}.")
    return str(value)


def function(value: Any, name: str) -> Any:
    """Something that can be called."""
    if not callable(value):
        raise ValueError(f"{name} must be a function; got {type(value).__name__}.")
    return value


def text(value: Any, name: str) -> str:
    """A word or several."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; got {type(value).__name__}.")
    return value


def sample_numbers(values: Any, m: int) -> IntArray | None:
    """What m samples are called, (m,), if it is given."""
    return None if values is None else np.asarray(nodes(values, m, "sample_numbers"), dtype=np.int64)


def names(values: Any, n: int, name: str = "names") -> list[str]:
    """So many words."""
    if isinstance(values, str) or not hasattr(values, "__len__") or isinstance(values, Mapping):
        raise ValueError(f"{name} must be {n} words; got {type(values).__name__}.")
    if len(values) != n or not all(isinstance(one, str) for one in values):
        raise ValueError(f"{name} must be {n} words, one for each coordinate; got {values!r}.")
    return [str(one) for one in values]


def path(value: Any, name: str = "path") -> Path:
    """The path of a file."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise ValueError(f"{name} must be the path of a file; got {type(value).__name__}.")
    return Path(value)


def instance(value: Any, name: str, kind: Any) -> Any:
    """One object of this class."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be a {kind.__name__}; got {type(value).__name__}.")
    return value


def labels(values: ArrayLike, m: int, n_labels: int) -> NDArray[np.uint32]:
    """(m,) whole numbers 0 .. n_labels − 1."""
    array = as_array(values, "labels")
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


def unsolved(why: str) -> SolveError:
    return SolveError(
        f"the linear system of this chain could not be solved: {why}. It is so slow to arrive that rounding decides: "
        "use a larger eps or noise, targets that are easier to reach, or leave out samples that lie apart."
    )


def missing_extra(package: str, extra: str, what: str) -> MissingExtraError:
    return MissingExtraError(f"{what} needs {package}: pip install 'ordiff[{extra}]'.")
