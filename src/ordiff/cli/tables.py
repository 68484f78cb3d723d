"""`DataTable`: the columns of a file by name, which of them are numeric, and which are the coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ordiff._time_labels import times_from_labels
from ordiff._validation import Array

_ADVICE = "correct it, use --drop-na for rows with missing values, or leave columns out by --exclude"
_MISSING = {"", "na", "n/a", "nan", "none", "null"}
# Numbers under such a name, or one that ends in _id, tell rows apart and are no coordinate.
_IDENTIFIERS = {"id", "ids", "index", "idx", "row", "cell_id", "barcode", "unnamed: 0"}
# How a column without a name is called by our reader, by pandas, and by pyarrow.
_UNNAMED = ("column0", "Unnamed: 0", "__index_level_0__")


@dataclass(frozen=True, eq=False)
class DataTable:
    """Columns by name: float64 where all values are numbers or missing, else as they were read."""

    path: Path
    columns: dict[str, Any]  # (m,) each
    groups: dict[str, list[str]]  # one name for several columns, such as those of an array (m, n)
    default: list[str]  # the coordinates when none are named
    mixed: Sequence[str] = ()  # columns that would be among them, but for a few words

    @classmethod
    def from_arrays(cls, path: Path, arrays: dict[str, Any], preferred: Sequence[str] = ()) -> DataTable:
        """From arrays (m,) or (m, n). The first preferred one that exists, else all, are the default."""
        columns: dict[str, Any] = {}
        groups: dict[str, list[str]] = {}
        m = max((len(a) for a in arrays.values() if np.ndim(a)), default=0)
        for name, array in arrays.items():
            if np.ndim(array) == 1 and len(array) == m:
                columns[name] = as_numeric(array)
            elif np.ndim(array) == 2 and len(array) == m:
                groups[name] = [f"{name}{k}" for k in range(array.shape[1])]
                columns |= {column: as_numeric(array[:, k]) for k, column in enumerate(groups[name])}
        group = next((groups[name] for name in preferred if name in groups), None)
        candidates = list(columns) if group is None else group
        mixed = [name for name, values in columns.items() if group is None and _mostly_numbers(values)]
        default = [
            name for name in candidates
            if _is_numeric(columns[name]) and not _is_index(name, columns[name]) and not _is_identifier(name)
        ]  # fmt: skip
        return cls(path, columns, groups, default, mixed)

    def coordinates(
        self, option: str | None, time_columns: Sequence[str] = (), exclude: str | None = None
    ) -> list[str]:
        """The columns that ``--columns`` names, or the default ones without those of the times; not ``--exclude``."""
        left_out = {*time_columns, *self._named(exclude)}
        chosen = [*self.default, *self.mixed] if option is None else self._named(option)
        names = [name for name in self.columns if name in chosen] if option is None else chosen
        names = [name for name in names if name not in left_out]
        if not names:
            raise ValueError(f"{self.path} has no numeric columns to use as coordinates.")
        return names

    def _named(self, option: str | None) -> list[str]:
        """The columns of a list with commas."""
        return [] if option is None else [name for part in option.split(",") for name in self.resolve(part.strip())]

    def matrix(self, names: Sequence[str], drop_missing: bool = False) -> tuple[Array, Any]:
        """Columns as (p, n), and their rows (p,) of the table: all, or those without a missing value.

        All columns that do not serve are named, not only the first.
        """
        columns = [self.columns[name] for name in names]
        m = len(columns[0])
        kept = np.ones(m, bool)
        if drop_missing:
            for values in columns:
                kept &= np.isfinite(values) if _is_numeric(values) else np.array([not _is_missing(v) for v in values])
        if not kept.any():
            raise ValueError(f"{self.path} has no row without a missing value in {enumerate_names(names)}.")
        faults = {name: self._fault(values, kept) for name, values in zip(names, columns, strict=True)}
        bad = {name: fault for name, fault in faults.items() if fault}
        if len(bad) == 1:
            name, fault = next(iter(bad.items()))
            raise ValueError(f"column {name!r} of {self.path} {fault}: {_ADVICE}.")
        if bad:
            said = enumerate_names([f"{name!r} {fault}" for name, fault in bad.items()], 12).replace(", '", "; '")
            raise ValueError(f"{len(bad)} columns of {self.path} do not serve: {said}: {_ADVICE}.")
        X = np.column_stack([as_numeric(values[kept]) for values in columns])
        return np.asarray(X, dtype=np.float64), np.flatnonzero(kept)

    def _fault(self, values: Any, kept: Any) -> str:
        """What is wrong with a column in the rows that are kept; '' when nothing is."""
        if not _is_numeric(values):
            row = next((k for k in np.flatnonzero(kept) if not is_number(values[k])), None)
            if row is not None:
                return f"is not numeric: row {row} holds {str(values[row])!r}"
            values = as_numeric(values[kept])
            return self._fault(values, np.ones(len(values), bool))
        missing = kept & ~np.isfinite(values)
        if missing.any():
            n = int(missing.sum())
            return (
                f"has no finite number in {n} row{'s' if n > 1 else ''}, the first is row {missing.argmax()} (from 0)"
            )
        return ""

    def resolve(self, name: str) -> list[str]:
        """The columns of a name: of one column, of a group of them, or a column's number."""
        if name in self.groups:
            return self.groups[name]
        if name not in self.columns and name.isdigit() and int(name) < len(self.columns):
            return [list(self.columns)[int(name)]]
        if name not in self.columns:
            raise ValueError(
                f"{self.path} has no column {name!r}. It has {enumerate_names([*self.groups, *self.columns], 12)}."
            )
        return [name]

    def with_columns(self, columns: dict[str, Any]) -> DataTable:
        """The same with other values in some columns."""
        return replace(self, columns=self.columns | columns)

    def times(self, name: str) -> tuple[Array, str]:
        """One column of times, NaN where they are missing, with their unit: numbers, or labels such as "D4.0" and
        "24h"."""
        values = self.columns[name]
        if _is_numeric(values):
            return np.asarray(values, dtype=np.float64), ""
        return times_from_labels([str(value) for value in values], f"column {name!r} of {self.path}")


def enumerate_names(names: Sequence[str], most: int = 6) -> str:
    """'a, b, c and 4 more'."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def is_number(value: Any) -> bool:
    """Whether a value is a number or missing."""
    try:
        float(value)
    except (TypeError, ValueError):
        return _is_missing(value)
    return True


def as_numeric(values: Any) -> Any:
    """float64 with NaN for what is missing; unchanged if there is a word among the values."""
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    if all(map(is_number, array)):
        return np.array([np.nan if _is_missing(v) else float(v) for v in array])
    return array


def _is_missing(value: Any) -> bool:
    return str(value).strip().lower() in _MISSING


def _is_numeric(values: Any) -> bool:
    return values.dtype.kind == "f"


def _is_index(name: str, values: Any) -> bool:
    """Whether a column without a name of its own only numbers the rows, as pandas writes it."""
    return name in _UNNAMED and _is_numeric(values) and bool((np.diff(values) == 1).all())


def _is_identifier(name: str) -> bool:
    return name.lower() in _IDENTIFIERS or name.lower().endswith("_id")


def _mostly_numbers(values: Any) -> bool:
    """Whether more than half of what is not missing are numbers, in a column that also holds words."""
    if _is_numeric(values):
        return False
    present = [value for value in values if not _is_missing(value)]
    return sum(map(is_number, present)) > 0.5 * len(present)
