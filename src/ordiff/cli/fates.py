"""``ordiff fates``: the probability of each of several ends, from every sample of a fitted model."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff.cli.output import collect_warnings, print_written, refuse_overwriting, results_in, write_csv
from ordiff.cli.saved import add_model_options, output_folder, read_model, verdict

if TYPE_CHECKING:
    from ordiff.cli.preparation import Preparation
    from ordiff.model import SnapshotSDE

HELP = "the probability of reaching each of several ends first, from every sample"
EXAMPLE = 'ordiff fates fit --end "left: x < -2" --end "right: x > 2 & y < 1"'
FILES = ("fates.csv", "fates.png")
_CONDITION = re.compile(r"(?P<column>.+?)\s*(?P<sign><=|>=|<|>)\s*(?P<value>[^<>=]+)")
_SIGNS: dict[str, Callable[[Any, float], Any]] = {
    "<": np.less, ">": np.greater, "<=": np.less_equal, ">=": np.greater_equal
}  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_model_options(parser)
    parser.add_argument("--end", action="append", default=[], metavar='"NAME: COLUMN > VALUE & ..."',
                        help="where a fate is reached, in the units of the columns; two or more")  # fmt: skip
    parser.add_argument("--continuous", action="store_true", help="count passages between the steps of the chain too")


def run(options: argparse.Namespace) -> int:
    """Print the fates from the start, and write those of all samples."""
    from ordiff import plot

    plot.require()
    out = output_folder(options)
    refuse_overwriting(out, FILES, options.force)
    model, preparation = read_model(options)
    ends = parse_ends(options.end, preparation)
    notes = starts_inside(model, ends)
    with collect_warnings(notes):
        at_samples = model.fate_probabilities(ends, continuous=options.continuous)
        at_start = model.fate_probabilities(ends, model.start_points_, continuous=options.continuous)
    with results_in(out) as folder:
        write_csv(folder / "fates.csv", {"sample": preparation.sample_numbers(len(at_samples))}
                  | {name: at_samples[:, k] for k, name in enumerate(ends)})  # fmt: skip
        figure = plot.fates(model, dict(zip(ends, at_samples.T, strict=True)), embedding=plot.Embedding.prepared(
            model.samples_, preparation.labels, preparation.mean, preparation.scale))  # fmt: skip
        figure.savefig(folder / "fates.png")
    if not options.quiet:
        mean = np.average(at_start, axis=0, weights=model.start_weights_)
        print("From the start: " + ", ".join(f"{name} {p:.1%}" for name, p in zip(ends, mean, strict=True)) + ".")
        print("\n".join(notes), end="\n" if notes else "")
        print_written(out, FILES)
    return verdict(model, options.quiet)


def starts_inside(model: SnapshotSDE, ends: dict[str, Callable[[Any], Any]]) -> list[str]:
    """Sentences on ends that hold part of the start already."""
    shares = {name: float(model.start_weights_ @ inside(model.start_points_)) for name, inside in ends.items()}
    return [f"Note: {share:.0%} of the start is in {name!r} already." for name, share in shares.items() if share > 0]


def parse_ends(options: list[str], preparation: Preparation) -> dict[str, Callable[[Any], Any]]:
    """Functions of points of the model, by the names of the ends."""
    if len(options) < 2:
        a = preparation.names[0]
        raise ValueError(f'name two ends or more, such as --end "low: {a} < 0" --end "high: {a} > 1".')
    ends: dict[str, Callable[[Any], Any]] = {}
    for option in options:
        name, found, text = option.partition(":")
        if not found or not name.strip() or name.strip() in ends:
            raise ValueError(f'--end {option!r}: write a name of its own, a colon and a condition, "left: x < -2".')
        ends[name.strip()] = _inside([_condition(part, preparation) for part in text.split("&")], preparation)
    return ends


def _condition(text: str, preparation: Preparation) -> tuple[int, Callable[[Any, float], Any], float]:
    """The number of a coordinate, a comparison and a value."""
    found = _CONDITION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"--end: {text.strip()!r} is no condition such as {preparation.names[0]} < 1.5.")
    if found["column"] not in preparation.names:
        raise ValueError(f"--end: there is no {found['column']!r}; the model has {', '.join(preparation.names)}.")
    try:
        value = float(found["value"])
    except ValueError:
        raise ValueError(f"--end: {found['value'].strip()!r} is no number.") from None
    return preparation.names.index(found["column"]), _SIGNS[found["sign"]], value


def _inside(conditions: list[Any], preparation: Preparation) -> Callable[[Any], Any]:
    def inside(points: Any) -> Any:
        x = preparation.points(points)
        return np.logical_and.reduce([compare(x[:, k], value) for k, compare, value in conditions])

    return inside
