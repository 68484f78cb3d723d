"""Labels of times, such as "24h", "day 2", "D2.5" or "E8.5", as numbers with their unit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ordiff._validation import Array

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


_PLURALS = {unit: f"{unit}s" for unit in ("second", "minute", "hour", "day", "week", "month", "year")}


def plural(unit: str) -> str:
    """A unit after a number: "hours" of "hour"; unchanged when it is another word."""
    return _PLURALS.get(unit, unit)


def singular(unit: str) -> str:
    """A unit after "per": "hour" of "hours"; unchanged when it is another word."""
    return next((one for one, many in _PLURALS.items() if many == unit), unit)


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


def are_times(labels: Iterable[Any]) -> bool:
    return all(_parse(label) is not None for label in labels)


def times_from_labels(column: Sequence[Any], name: str, advice: str = "") -> tuple[Array, str]:
    """The times (m,), NaN where a label is missing, and their unit, the smallest of those that occur.

    name: of the column, for messages; advice: what else to do about labels that are no times.
    """
    parsed = _parse_labels((label for label in dict.fromkeys(column) if not _is_missing(label)), name, advice)
    units = _common_units(parsed, name)
    hours = {unit: factor for unit, factor in _UNITS.values() if unit in units}
    unit = min(hours, key=hours.__getitem__, default="")
    numbers = {
        label: one.number * (hours[_UNITS[one.word][0]] / hours[unit] if one.word and len(hours) > 1 else 1.0)
        for label, one in parsed.items()
    }
    return np.array([numbers.get(label, np.nan) for label in column], dtype=np.float64), unit


def _parse_labels(labels: Iterable[Any], name: str, advice: str) -> dict[Any, TimeLabel]:
    parsed, unknown = {}, []
    for label in labels:
        if (one := _parse(label)) is None:
            unknown.append(label)
        else:
            parsed[label] = one
    if unknown:
        raise ValueError(
            f"{name} has labels that are no times: {_quoted(unknown)}. Write them as '24h', 'day 2' or 'E8.5'"
            + advice.format(f"{{{unknown[0]!r}: 0.0, ...}}")
            + "."
        )
    return parsed


def _common_units(parsed: dict[Any, TimeLabel], name: str) -> set[str]:
    """The units of the labels, if all or none have one; 0 needs no unit. E and P count from different moments."""
    words = {one.word for one in parsed.values() if one.word or one.number != 0}
    units = {_UNITS[word][0] for word in words if word}
    if "" in words and units:
        bare = [label for label, one in parsed.items() if one.word == "" and one.number != 0]
        raise ValueError(f"{name} mixes times with a unit ({', '.join(sorted(units))}) and without: {_quoted(bare)}.")
    origins = [_ORIGINS[word] for word in sorted(words) if word in _ORIGINS]
    if len(origins) > 1:
        raise ValueError(
            f"{name} mixes {' and '.join(origins)}, which do not count from one moment: map one to the other."
        )
    return units


def _is_missing(label: Any) -> bool:
    if label is None or label != label or type(label).__name__ == "NAType":
        return True
    return isinstance(label, str) and label.strip().lower() in ("", "na", "n/a", "nan", "none", "null")


def _quoted(names: Iterable[Any]) -> str:
    quoted = [repr(str(name)) for name in names]
    return ", ".join(quoted[:12]) + (", …" if len(quoted) > 12 else "")
