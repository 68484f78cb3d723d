"""``ordiff check``: whether a fitted model reproduces the samples, and what else it says of itself."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ordiff.cli.output import NOT_TRUSTED, print_written, refuse_overwriting, results_in, write_csv
from ordiff.cli.saved import add_model_options, read_model

if TYPE_CHECKING:
    from ordiff.learning.check import Moment

HELP = "say whether a fitted model can be trusted: what it predicts per time, beside what was observed"
EXAMPLE = "ordiff check fit"
FILES = ("check.csv", "check.png")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_model_options(parser)


def run(options: argparse.Namespace) -> int:
    """Print the summary and the table; write `FILES` where ``--out`` asks for them."""
    model, preparation = read_model(options)
    if options.out is not None:
        from ordiff import plot

        plot.require()
        refuse_overwriting(options.out, FILES, options.force)
    moments = preparation.moments(model)
    table = columns(moments)
    if not options.quiet:
        print(preparation.summary(model))
        print_table(table)
    if options.out is not None:
        with results_in(options.out) as folder:
            write_csv(folder / "check.csv", table)
            plot.check(model, time=preparation.time, moments=moments).savefig(folder / "check.png")
        if not options.quiet:
            print_written(options.out, FILES)
    return 0 if model.check_.trusted else NOT_TRUSTED


def columns(rows: Sequence[Moment]) -> dict[str, Any]:
    """The table of the check, a row a moment."""
    return {
        "time": [row.time for row in rows], "samples": [row.n for row in rows], "moment": [row.name for row in rows],
        "observed": [row.observed for row in rows], "predicted": [row.predicted for row in rows],
        "z": [row.z for row in rows],
    }  # fmt: skip


def print_table(table: dict[str, Any]) -> None:
    """Aligned columns."""
    width = max(map(len, table["moment"]), default=6)
    print(f"\n{'since start':>11}  {'samples':>7}  {'moment':<{width}}  {'observed':>10}  {'predicted':>10}  {'z':>6}")
    for time, n, name, observed, predicted, z in zip(*table.values(), strict=True):
        print(f"{time:>11.4g}  {n:>7}  {name:<{width}}  {observed:>10.4g}  {predicted:>10.4g}  {z:>6.1f}")
