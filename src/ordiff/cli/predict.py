"""``ordiff predict``: ordering, drift and noise of a fitted model at the rows of a table."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ordiff.cli.output import print_written, refuse_overwriting, results_in, write_csv
from ordiff.cli.saved import add_model_options, output_folder, read_model, read_points, verdict

HELP = "ordering, drift and noise of a fitted model at the rows of a table"
EXAMPLE = "ordiff predict fit new_cells.csv"
FILES = ("predictions.csv",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_model_options(parser)
    parser.add_argument("file", type=Path, metavar="FILE", help="a table with the columns of the fit")
    parser.add_argument("--drop-na", action="store_true", help="leave out rows with missing values")


def run(options: argparse.Namespace) -> int:
    """Write the predictions, a row for each of the table."""
    out = output_folder(options)
    refuse_overwriting(out, FILES, options.force)
    model, preparation = read_model(options)
    X, rows = read_points(options.file, preparation, options.drop_na)
    columns = {"sample": rows, "ordering": model.predict(X)}
    columns |= preparation.noise(model.predict_noise(X)) | preparation.drift(model.predict_drift(X))
    if model.rotation_.any():
        columns |= preparation.drift(model.predict_rotation(X), "rotation")
    with results_in(out) as folder:
        write_csv(folder / FILES[0], columns)
    if not options.quiet:
        ordering = np.quantile(columns["ordering"], [0.05, 0.5, 0.95])
        print("{} points; ordering: median {:.4g}, 5% to 95% {:.4g} to {:.4g}.".format(len(X), *ordering[[1, 0, 2]]))
        print_written(out, FILES)
    return verdict(model, options.quiet)
