"""`Samples`: the coordinates, times and start that a command works on, as its options take them from a table."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff import _validation
from ordiff._validation import Array
from ordiff.cli.readers import read_table
from ordiff.cli.tables import DataTable, enumerate_names

if TYPE_CHECKING:
    from sklearn.decomposition import PCA

# More coordinates than this, and the notes advise principal components.
_MANY_COLUMNS = 30


@dataclass(frozen=True, eq=False)
class Samples:
    """What a command works on."""

    X: Array  # (m, n)
    times: Array | None  # (m,), counted from the start
    names: tuple[str, ...]  # of the coordinates
    start: Any  # as `SnapshotSDE` takes it
    notes: tuple[str, ...]  # sentences on what was chosen for the user
    components: dict[str, Any]  # arrays that map the columns to principal components, to write beside the model


def read_samples(options: argparse.Namespace, *, times_required: bool) -> Samples:
    """Read the table of `options.add_table_options`, and take from it what the options name."""
    table = read_table(options.file)
    if options.times is None and times_required:
        raise ValueError(f"say which column holds the times: --times {_likely_time_column(table)}.")
    time_column = None if options.times is None else table.resolve(options.times)[0]
    names = tuple(table.coordinates(options.columns, time_column))
    X = np.column_stack([table.numbers(name) for name in names])
    times = None if time_column is None else table.numbers(time_column)
    notes = [] if options.columns else [_note_on_columns(table, names, time_column)]
    pca, components = None, {}
    if options.pca is not None:
        pca = _fit_pca(X, options.pca, options.seed)
        components = {"mean": pca.mean_, "components": pca.components_, "columns": np.array(names)}
        X, names = pca.transform(X), tuple(f"PC{k + 1}" for k in range(options.pca))
        share = float(pca.explained_variance_ratio_.sum())
        notes.append(f"{options.pca} principal components explain {share:.0%} of the variance.")
    elif X.shape[1] > _MANY_COLUMNS:
        notes.append(f"{X.shape[1]} columns are used as they are: --pca N is faster, and often better.")
    start = parse_start(options.start, X, times, pca)
    if times is not None and options.start.startswith("time") and times.min() != 0:
        notes.append(f"Times are counted from the earliest, {times.min():g}.")
        times = times - times.min()
    return Samples(X, times, names, start, tuple(notes), components)


def _likely_time_column(table: DataTable) -> str:
    likely = (name for name in table.columns if "time" in name.lower() or name.lower() in ("t", "hours", "day"))
    return next(likely, "COLUMN")


def _note_on_columns(table: DataTable, names: tuple[str, ...], time_column: str | None) -> str:
    """Which columns became coordinates, where they were not named."""
    unused = [name for name in table.columns if name not in names and name != time_column]
    ending = f"; left out: {enumerate_names(unused)}" if unused else ""
    return f"Coordinates: {enumerate_names(names)}{ending} (choose by --columns)."


def _fit_pca(X: Array, n_components: int, seed: int) -> PCA:
    from sklearn.decomposition import PCA

    most = min(X.shape)
    n_components = _validation.count(n_components, "--pca", 1, most, f"There are {most}.")
    return PCA(n_components, random_state=seed).fit(X)


def parse_start(option: str, X: Array, times: Array | None, pca: PCA | None) -> Any:
    """``--start`` as a row number, a point (n,), or a mask (m,) of the earliest samples."""
    if option.replace(" ", "").startswith("time"):
        if option.replace(" ", "") not in ("time", "time=0"):
            raise ValueError(f"--start {option}: write time=0, which means all samples with the least time.")
        return 0 if times is None else times == times.min()
    try:
        numbers = [float(part) for part in option.split(",")]
    except ValueError:
        raise ValueError(f'--start {option!r} is neither a row number, a point "x,y,...", nor time=0.') from None
    if len(numbers) == 1 and option.strip().isdigit():
        row = int(option)
        if row >= len(X):
            raise ValueError(f"--start {row}: there are {len(X)} rows, counted from 0.")
        return row
    point = np.array(numbers)
    n_columns = X.shape[1] if pca is None else pca.n_features_in_
    if point.size != n_columns:
        raise ValueError(f"--start has {point.size} coordinates, but {n_columns} columns are used.")
    return point if pca is None else pca.transform(point[None])[0]
