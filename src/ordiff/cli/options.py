"""Options that several commands take."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """A table of samples, and what of it is used."""
    parser.add_argument("file", type=Path, metavar="FILE", help=".csv .tsv (.gz) .parquet .npz .npy .h5ad")
    parser.add_argument("--times", metavar="COLUMN", help='when samples were taken: numbers, or labels as "24h"')
    parser.add_argument("--columns", metavar="A,B", help="coordinates (default: numeric ones, but ids)")
    parser.add_argument("--exclude", metavar="A,B", help="columns that are no coordinates")
    parser.add_argument("--drop-na", action="store_true", help="leave out rows with missing values")
    parser.add_argument("--standardize", action=argparse.BooleanOptionalAction,
                        help="fit standardised columns; results are in their units "
                             "(default: where some spread far more than others)")  # fmt: skip
    parser.add_argument("--start", default="time=0", metavar="WHERE",
                        help="row number from 0, point x,y,..., or time=0: the earliest samples (default)")  # fmt: skip
    parser.add_argument("--pca", type=int, metavar="N", help="use N principal components of the columns")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")


def add_output_options(parser: argparse.ArgumentParser, folder: str) -> None:
    """Where results are written, and how much is printed."""
    parser.add_argument("--out", type=Path, default=Path(folder), metavar="DIR", help="folder (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="overwrite existing results")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
