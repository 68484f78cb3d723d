"""`DataTable`: the columns of a file by name, which of them are numeric, and which are the coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ordiff._validation import Array

_MISSING = {"", "na", "n/a", "nan", "none", "null"}
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
        default = [name for name in candidates if _is_numeric(columns[name]) and not _is_index(name, columns[name])]
        return cls(path, columns, groups, default, mixed)

    def coordinates(self, option: str | None, time_column: str | None) -> list[str]:
        """The columns that ``--columns`` names, or the default ones without that of the times."""
        if option is None:
            names = [name for name in self.default if name != time_column]
            for name in self.mixed:
                if name != time_column:
                    self.numbers(name)  # the error says which row holds a word
        else:
            names = [name for part in option.split(",") for name in self.resolve(part.strip())]
        if not names:
            raise ValueError(f"{self.path} has no numeric columns to use as coordinates.")
        return names

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

    def numbers(self, name: str) -> Array:
        """One column, finite."""
        (name,) = self.resolve(name)
        values = self.columns[name]
        if not _is_numeric(values):
            row = next((k for k, v in enumerate(values) if not is_number(v)), 0)
            raise ValueError(f"column {name!r} of {self.path} is not numeric: row {row} holds {str(values[row])!r}.")
        bad = ~np.isfinite(values)
        if bad.any():
            raise ValueError(
                f"column {name!r} of {self.path} has no finite number in {bad.sum()} rows, the first is row "
                f"{bad.argmax()} (from 0): remove these rows, fill them, or leave the column out."
            )
        return np.asarray(values, dtype=np.float64)


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


def _mostly_numbers(values: Any) -> bool:
    """Whether more than half of what is not missing are numbers, in a column that also holds words."""
    if _is_numeric(values):
        return False
    present = [value for value in values if not _is_missing(value)]
    return sum(map(is_number, present)) > 0.5 * len(present)
