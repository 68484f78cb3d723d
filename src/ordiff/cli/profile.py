"""``ordiff profile``: how well the level of the noise is known."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ordiff.cli.output import (
    can_show_progress,
    collect_warnings,
    print_written,
    refuse_overwriting,
    results_in,
    write_csv,
)
from ordiff.cli.saved import add_model_options, output_folder, read_model, verdict

if TYPE_CHECKING:
    from ordiff.cli.preparation import Preparation
    from ordiff.model import SnapshotSDE

HELP = "how well the level of the noise is known: the likelihood along it, and resampling"
EXAMPLE = "ordiff profile fit --bootstrap 20"
FILES = ("profile.csv", "profile.png")
RESAMPLED = "bootstrap.csv"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_model_options(parser)
    parser.add_argument("--bootstrap", type=int, default=0, metavar="N",
                        help="also learn from N resampled data sets, for standard deviations")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Learn the model again, as a file does not hold its likelihood, and write the profile of the noise."""
    from ordiff import plot

    plot.require()
    files = [*FILES, *([RESAMPLED] if options.bootstrap else [])]
    out = output_folder(options)
    refuse_overwriting(out, files, options.force)
    stored, preparation = read_model(options)
    notes: list[str] = []
    with collect_warnings(notes):
        model = learned_again(stored, preparation, options.quiet)
        profile = model.profile()
        spread = model.uncertainty(options.bootstrap) if options.bootstrap else None
    with results_in(out) as folder:
        write_csv(folder / "profile.csv", {"noise": profile.levels, "nats": profile.nats})
        plot.profile(profile).figure.savefig(folder / "profile.png")
        if spread is not None:
            numbers = preparation.sample_numbers(len(spread.ordering))
            write_csv(folder / RESAMPLED, {"sample": numbers, "ordering_std": spread.ordering,
                                           "log_noise_std": spread.log_noise})  # fmt: skip
    if not options.quiet:
        low, high = profile.interval
        print("\n".join([f"Noise level {profile.best:.4g}, 95% interval {low:.4g} to {high:.4g}.", *notes]))
        print_written(out, files)
    return verdict(stored, options.quiet)


def learned_again(stored: SnapshotSDE, preparation: Preparation, quiet: bool) -> SnapshotSDE:
    """The same settings fitted to the samples of the model and the times that lie beside it."""
    from sklearn.base import clone

    if not hasattr(stored, "states_"):
        raise ValueError(
            "a profile needs the likelihood of a chain, and this model was learned by moments, without one; how well "
            "its noise is known is in its summary: ordiff check."
        )
    if preparation.start is None:
        raise ValueError("a profile needs the times and the start of the fit: give the folder that ordiff fit wrote.")
    if not quiet:
        print(
            "Learning again from the samples of the model, since its file does not hold the likelihood ...", flush=True
        )
    model = clone(stored).set_params(start=preparation.start, progress=not quiet and can_show_progress())
    return model.fit(stored.samples_, preparation.times)
