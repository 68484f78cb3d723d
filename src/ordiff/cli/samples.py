"""`Samples`: the coordinates, times and start that a command works on, as its options take them from a table."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ordiff import _validation
from ordiff._time_labels import plural
from ordiff._validation import Array
from ordiff.cli.cycle import PhaseOrdering, check_phase, parse_cycle
from ordiff.cli.output import collect_warnings
from ordiff.cli.preparation import Preparation
from ordiff.cli.readers import read_table
from ordiff.cli.tables import DataTable, enumerate_names

# Names of a column of times that are a unit, which labels then have.
_UNIT_WORDS = {"seconds", "minutes", "min", "hour", "hours", "day", "days", "weeks"}
# More coordinates than this, and the notes advise principal components.
_MANY_COLUMNS = 30


@dataclass(frozen=True, eq=False)
class Samples:
    """What a command works on."""

    X: Array  # (m, n)
    times: Array | None  # (m,), or windows (m, 2), counted from the start
    start: Any  # as `SnapshotSDE` takes it
    horizon: float | None  # of times that are uniform from 0 on, but not known for each sample
    notes: tuple[str, ...]  # sentences on what was chosen for the user
    preparation: Preparation
    cycle: PhaseOrdering | None = None  # of a column that is a phase

    @property
    def names(self) -> tuple[str, ...]:
        return self.preparation.names

    @property
    def middle_times(self) -> Array | None:
        """The times, or the middles of their windows, (m,)."""
        return self.times if self.times is None or self.times.ndim == 1 else self.times.mean(axis=1)


def read_samples(options: argparse.Namespace, *, times_required: bool) -> Samples:
    """Read the table of `options.add_table_options`, and take from it what the options name."""
    table = read_table(options.file)
    window, density = getattr(options, "window", None), getattr(options, "time_density", None)
    given = [name for name in (options.times, window, density) if name is not None]
    if len(given) > 1:
        raise ValueError("give one of --times, --window and --time-density.")
    if not given and times_required:
        raise ValueError(f"say which column holds the times: --times {_likely_time_column(table)}.")
    time_columns = [table.resolve(name)[0] for name in (window or filter(None, [options.times]))]
    phase, period = parse_cycle(options.cycle) if getattr(options, "cycle", None) else ("", 0.0)
    phases = table.resolve(phase)[:1] if phase else []
    columns = table.coordinates(options.columns, [*time_columns, *phases], options.exclude)
    times, unit, table = _read_times(table, time_columns)
    values, rows = table.matrix([*columns, *time_columns, *phases], drop_missing=options.drop_na)
    x = values[:, : len(columns)]
    times = None if times is None else times[rows]
    notes = [] if options.columns else [_note_on_columns(table, columns, [*time_columns, *phases])]
    dropped = len(next(iter(table.columns.values()))) - len(rows)
    notes += [f"{dropped} rows with missing values were left out."] if dropped else []
    preparation, told = _prepare(x, tuple(columns), options)
    X, notes = preparation.transform(x), [*notes, *told]
    horizon, windows = (None, None) if density is None else _parse_density(density, len(X))
    times = windows if windows is not None else times
    start = parse_start(options.start, preparation, rows, times, known=density is None)
    if times is not None and options.start.startswith("time") and times.min() != 0:
        notes.append(
            f"Times are counted from the earliest, {times.min():g} {plural(_time_unit(options, unit))}".rstrip() + "."
        )
        times = times - times.min()
    if isinstance(start, np.ndarray) and start.dtype.kind == "b" and start.sum() == 1:
        notes.append(
            f"The start is the earliest sample alone, row {rows[start][0]}: if the process began elsewhere, give the "
            "point by --start x,y,..., which is then at time 0."
        )
    preparation = _completed(preparation, options, rows, times, start, unit)
    cycle = PhaseOrdering(phase, X, check_phase(phase, values[:, -1], period), period) if phase else None
    return Samples(X, times, start, horizon, tuple(notes), preparation, cycle)


def read_in_like_units(options: argparse.Namespace, *, times_required: bool) -> Samples:
    """The same, standardised where units of the columns seem to differ and the user did not say what to do."""
    samples = read_samples(options, times_required=times_required)
    if options.standardize is not None or options.pca is not None or not _units_differ(samples):
        return samples
    samples = read_samples(argparse.Namespace(**vars(options) | {"standardize": True}), times_required=times_required)
    said = "Standardised since some columns spread more than 30 times as far as others; --no-standardize leaves them."
    return replace(samples, notes=(*samples.notes, said))


def _units_differ(samples: Samples) -> bool:
    """Whether a fit would warn that some columns spread much farther than others."""
    from ordiff.learning.data import Snapshots, warn_of_units
    from ordiff.learning.settings import TimeDensity

    design = TimeDensity("uniform", samples.horizon or 1.0) if samples.times is None else TimeDensity()
    with warnings.catch_warnings(action="ignore", category=_validation.OrdiffWarning):  # a fit will say them
        data = Snapshots.of(samples.start, design, samples.X, samples.times, None)
    told: list[str] = []
    with collect_warnings(told):
        warn_of_units(data, list(samples.names))
    return bool(told)


def _read_times(table: DataTable, names: list[str]) -> tuple[Array | None, str, DataTable]:
    """Times (m,) or windows (m, 2), their unit, and the table with them as numbers."""
    if not names:
        return None, "", table
    read = [table.times(name) for name in names]
    units = {plural(unit) for _, unit in read}
    if len(units) > 1:
        raise ValueError(f"the columns {enumerate_names(names)} have different units of time.")
    numbers = dict(zip(names, (values for values, _ in read), strict=True))
    times = np.column_stack(list(numbers.values()))
    return times[:, 0] if len(names) == 1 else times, units.pop(), table.with_columns(numbers)


def _prepare(x: Array, columns: tuple[str, ...], options: argparse.Namespace) -> tuple[Preparation, list[str]]:
    """How the columns become coordinates, and sentences on it."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    mean, scale, notes = np.zeros(len(columns)), np.ones(len(columns)), []
    if options.standardize:
        scaler = StandardScaler().fit(x)
        mean, scale = scaler.mean_, scaler.scale_
        notes.append(
            "Columns were standardised: this summary is in standard deviations of each, results.csv in its units."
        )
        if getattr(options, "noise", None) in ("field", "constant"):
            notes.append("The noise is taken to be the same in all directions in these: compare with --noise tensor.")
    if options.pca is None:
        if len(columns) > _MANY_COLUMNS:
            notes.append(f"{len(columns)} columns are used as they are: --pca N is faster, and often better.")
        return Preparation(columns, mean, scale), notes
    most = min(x.shape)
    n_components = _validation.count(options.pca, "--pca", 1, most, f"There are {most}.")
    pca = PCA(n_components, random_state=options.seed).fit((x - mean) / scale)
    share = pca.explained_variance_ratio_
    notes.append(f"{n_components} principal components explain {share.sum():.0%} of the variance.")
    return Preparation(columns, mean + scale * pca.mean_, scale, pca.components_, share), notes


def _completed(
    preparation: Preparation, options: argparse.Namespace, rows: Any, times: Array | None, start: Any, unit: str
) -> Preparation:
    length, time = getattr(options, "length", ""), _time_unit(options, unit)
    return replace(preparation, rows=rows, times=times, start=start, length=length, time=time)


def _time_unit(options: argparse.Namespace, unit: str) -> str:
    """As the user gave it, as the labels have it, or the name of the column; '' when none is known."""
    named = next((name for name in (options.times or "").split() if name.lower() in _UNIT_WORDS), "")
    return getattr(options, "time", "") or unit or named


def _likely_time_column(table: DataTable) -> str:
    words = ("t", "hours", "hour", "day", "days", "stage", "age")
    likely = (name for name in table.columns if "time" in name.lower() or name.lower() in words)
    return next(likely, "COLUMN")


def _note_on_columns(table: DataTable, names: list[str], time_columns: list[str]) -> str:
    """Which columns became coordinates, where they were not named."""
    unused = [name for name in table.columns if name not in names and name not in time_columns]
    ending = f"; left out: {enumerate_names(unused)}" if unused else ""
    return f"Coordinates: {enumerate_names(names)}{ending} (choose by --columns or --exclude)."


def _parse_density(option: str, m: int) -> tuple[float | None, Array | None]:
    """``uniform:FROM:TO`` as a horizon, when it begins at 0, or else as one window for all samples, (m, 2)."""
    kind, _, ends = option.partition(":")
    try:
        first, last = (float(part) for part in ends.split(":"))
    except ValueError:
        first, last = 0.0, 0.0
    if kind != "uniform" or not 0 <= first < last < np.inf:
        raise ValueError(f"--time-density {option!r}: write uniform:FROM:TO, such as uniform:0:2.")
    return (last, None) if first == 0 else (None, np.tile([first, last], (m, 1)))


def parse_start(option: str, preparation: Preparation, rows: Any, times: Array | None, known: bool = True) -> Any:
    """``--start`` as a sample's number, a point (n,), or a mask (m,) of the earliest samples.

    rows: of the table that the samples are, (m,). known: whether samples have times of their own.
    """
    if option.replace(" ", "").startswith("time"):
        if option.replace(" ", "") not in ("time", "time=0"):
            raise ValueError(f"--start {option}: write time=0, which means all samples with the least time.")
        if not known:
            raise ValueError("without a time for each sample, say where the process starts: --start x,y,... or a row.")
        if times is None:
            return 0
        latest = times if times.ndim == 1 else times.max(axis=1)
        return latest == latest.min()
    try:
        numbers = [float(part) for part in option.split(",")]
    except ValueError:
        raise ValueError(f'--start {option!r} is neither a row number, a point "x,y,...", nor time=0.') from None
    if len(numbers) == 1 and option.strip().isdigit():
        row = int(option)
        if row not in rows:
            raise ValueError(f"--start {row}: there are {len(rows)} rows, counted from 0, and this is none of them.")
        return int(np.flatnonzero(rows == row)[0])
    point, n_columns = np.array(numbers), len(preparation.columns)
    if point.size != n_columns:
        raise ValueError(f"--start has {point.size} coordinates, but {n_columns} columns are used.")
    return preparation.transform(point[None])[0]
