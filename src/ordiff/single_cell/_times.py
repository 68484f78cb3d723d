"""Columns of ``obs`` as numbers: times with their unit, read from numbers, durations or labels such as "day 2"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ordiff._validation import Array
from ordiff.single_cell._key import PSEUDOTIME
from ordiff.single_cell._read import check_anndata, finite_values, quote_names

if TYPE_CHECKING:
    from anndata import AnnData

# Unit and hours per unit, by the words for it. E and P are embryonic and postnatal days.
_UNITS: dict[str, tuple[str, float]] = {
    word: (unit, hours)
    for unit, hours, words in (
        ("second", 1 / 3600, "s sec secs second seconds"),
        ("minute", 1 / 60, "min mins minute minutes"),
        ("hour", 1.0, "h hr hrs hour hours hpf hpi"),
        ("day", 24.0, "d day days dpf dpc dpi dpa e p"),
        ("week", 168.0, "w wk wks week weeks"),
    )
    for word in words.split()
}
_ORIGINS = {"e": "embryonic days (E)", "p": "postnatal days (P)"}
_LABEL = re.compile(r"(?:(?P<before>[a-z]+)[\s_=:.]*)?(?P<number>[0-9]+(?:\.[0-9]+)?)\s*_?(?P<after>[a-z]+)?")
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?")


class Times(NamedTuple):
    """Times as numbers, (m,), and their unit: "hour", "day", …, or "" if no unit was given."""

    values: Array
    unit: str


def read_times(adata: AnnData, key: str) -> Times:
    """A column of ``obs`` as times: numbers, durations, or labels such as "24h", "day 2", "D2.5", "E8.5", "10 dpf".

    Labels that share one unit keep it; labels of several units are all converted to the smallest. The unit is "" if no
    unit was given.

    >>> import anndata, numpy as np, ordiff as od
    >>> cells = anndata.AnnData(np.zeros((3, 1), np.float32), obs={"stage": ["12h", "day 1", "36 hr"]})
    >>> od.single_cell.read_times(cells, "stage")
    Times(values=array([12., 24., 36.]), unit='hour')
    """
    return numeric_column(check_anndata(adata), key, "time")


def numeric_column(adata: AnnData, key: str, what: str) -> Times:
    """A column of obs as numbers, with their unit; ``what`` it holds is for the messages.

    Labels of an ordered categorical that are no times count 0, 1, 2, … in their order; durations are in hours.
    """
    if key not in adata.obs:
        raise ValueError(_missing_column(adata, key, what))
    column = adata.obs[key]
    dtype = column.dtype
    name = f"obs[{key!r}]"
    if hasattr(column, "cat") and column.cat.ordered and not _are_times(column.cat.categories):
        codes = np.asarray(column.cat.codes, dtype=np.float64)
        values, unit = np.where(codes < 0, np.nan, codes), ""
    elif hasattr(column, "cat") or dtype.kind in "OUST":
        values, unit = _times_from_labels(column, name)
    elif dtype.kind == "m":
        values, unit = np.asarray(column.dt.total_seconds(), dtype=np.float64) / 3600, "hour"
    elif dtype.kind in "iuf":
        values, unit = np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan)), ""
    else:
        raise ValueError(f"{name} holds {dtype}, which is no {what}: give numbers, or labels such as 'day 2'.")
    return Times(finite_values(adata, values, name), unit)


def _missing_column(adata: AnnData, key: str, what: str) -> str:
    numeric = [name for name in adata.obs.columns if getattr(adata.obs[name].dtype, "kind", "O") in "iuf"]
    run = " Run scanpy.tl.dpt(adata) first, or give" if key == PSEUDOTIME else " Give"
    there = f"numeric columns: {quote_names(numeric)}" if numeric else "no column is numeric"
    other = ", by Velocity, Lineages or Cycle, or as an array." if what == "ordering" else "."
    return f"adata.obs has no {key!r}.{run} the {what} by another column ({there}){other}"


class TimeLabel(NamedTuple):
    """One label: its number, and the word for its unit, "" if no unit was given."""

    number: float
    word: str


def _parse(label: Any) -> TimeLabel | None:
    """A number with at most one word for a unit, before or after it; None for anything else."""
    text = str(label).strip().lower()
    if _NUMBER.fullmatch(text):
        return TimeLabel(float(text), "")
    match = _LABEL.fullmatch(text)
    if match is None:
        return None
    before, after = match["before"] or "", match["after"] or ""
    if before in ("t", "time", "timepoint", "tp"):
        before = ""
    word = before or after
    if (before and after) or (word and word not in _UNITS):
        return None
    return TimeLabel(float(match["number"]), word)


def _are_times(labels: Iterable[Any]) -> bool:
    return all(_parse(label) is not None for label in labels)


def _times_from_labels(column: Any, name: str) -> tuple[Array, str]:
    """The times (m,), NaN where a label is missing, and their unit, the smallest of those that occur."""
    parsed = _parse_labels((label for label in column.unique() if not _is_missing(label)), name)
    units = _common_units(parsed, name)
    hours = {unit: factor for unit, factor in _UNITS.values() if unit in units}
    unit = min(hours, key=hours.__getitem__, default="")
    numbers = {
        label: one.number * (hours[_UNITS[one.word][0]] / hours[unit] if one.word and len(hours) > 1 else 1.0)
        for label, one in parsed.items()
    }
    return np.array([numbers.get(label, np.nan) for label in column], dtype=np.float64), unit


def _parse_labels(labels: Iterable[Any], name: str) -> dict[Any, TimeLabel]:
    parsed, unknown = {}, []
    for label in labels:
        if (one := _parse(label)) is None:
            unknown.append(label)
        else:
            parsed[label] = one
    if unknown:
        raise ValueError(
            f"{name} has labels that are no times: {quote_names(unknown)}. Write them as '24h', 'day 2' or 'E8.5', map "
            f"them to numbers, adata.obs[...].map({{{unknown[0]!r}: 0.0, ...}}), or make them an ordered categorical."
        )
    return parsed


def _common_units(parsed: dict[Any, TimeLabel], name: str) -> set[str]:
    """The units of the labels, if all or none have one; 0 needs no unit. E and P count from different moments."""
    words = {one.word for one in parsed.values() if one.word or one.number != 0}
    units = {_UNITS[word][0] for word in words if word}
    if "" in words and units:
        bare = [label for label, one in parsed.items() if one.word == "" and one.number != 0]
        raise ValueError(
            f"{name} mixes times with a unit ({', '.join(sorted(units))}) and without: {quote_names(bare)}."
        )
    origins = [_ORIGINS[word] for word in sorted(words) if word in _ORIGINS]
    if len(origins) > 1:
        raise ValueError(
            f"{name} mixes {' and '.join(origins)}, which do not count from one moment: map one to the other."
        )
    return units


def _is_missing(label: Any) -> bool:
    return label is None or label != label or type(label).__name__ == "NAType"
