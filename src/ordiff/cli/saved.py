"""A fitted model and what lies beside it, for the commands that ask questions of it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordiff._validation import Array
from ordiff.cli.advice import advise_in_options
from ordiff.cli.output import NOT_TRUSTED
from ordiff.cli.preparation import FILE, Preparation

if TYPE_CHECKING:
    from ordiff.model import SnapshotSDE


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """A fitted model, and where results are written."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder that ordiff fit wrote, or its model.npz")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder (default: that of the model)")
    parser.add_argument("--force", action="store_true", help="overwrite existing results")
    parser.add_argument("--quiet", action="store_true", help="print no results")


def model_folder(options: argparse.Namespace) -> Path:
    """The folder of the model."""
    return Path(options.model if options.model.is_dir() else options.model.parent)


def output_folder(options: argparse.Namespace) -> Path:
    """Where results go: ``--out``, or beside the model."""
    return model_folder(options) if options.out is None else options.out


def read_model(options: argparse.Namespace) -> tuple[SnapshotSDE, Preparation]:
    """The model of `add_model_options`, and how its coordinates were made of columns."""
    from ordiff.model import load

    path = options.model / "model.npz" if options.model.is_dir() else options.model
    if not path.is_file():
        raise ValueError(f"there is no model {path}: give the folder that ordiff fit wrote, or a model's file.")
    model = load(path)
    advise_in_options(model)
    beside = model_folder(options) / FILE
    if not beside.is_file():
        names = getattr(model, "feature_names_in_", [f"x{k + 1}" for k in range(model.n_features_in_)])
        return model, Preparation.none(tuple(map(str, names)))
    preparation = Preparation.load(beside)
    if len(preparation.names) != model.n_features_in_:
        raise ValueError(f"{beside} is not of {path}: it has {len(preparation.names)} coordinates.")
    return model, preparation


def verdict(model: SnapshotSDE, quiet: bool) -> int:
    """The exit code of a question to a model; where its check did not pass, the first reason is printed."""
    if model.check_.trusted:
        return 0
    if not quiet:
        print(f"The model is NOT TRUSTED: {model.check_.reasons[0]} All reasons: ordiff check.")
    return NOT_TRUSTED


def read_points(path: Path, preparation: Preparation, drop_missing: bool) -> tuple[Array, Any]:
    """The rows of a table in the coordinates of a model, (p, n), and their numbers (p,)."""
    from ordiff.cli.readers import read_table

    table = read_table(path)
    names = [name for column in preparation.columns for name in table.resolve(column)]
    values, rows = table.matrix(names, drop_missing=drop_missing)
    return preparation.transform(values), rows
