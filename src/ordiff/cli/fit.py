"""``ordiff fit``: learns drift and noise from a table of samples and their times."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff.cli.options import add_output_options, add_table_options
from ordiff.cli.output import (
    can_show_progress,
    collect_warnings,
    print_written,
    refuse_overwriting,
    results_in,
    try_writing,
    write_csv,
    write_text,
)

if TYPE_CHECKING:
    from ordiff.cli.samples import Samples
    from ordiff.model import SnapshotSDE

HELP = "learn drift and noise from a table of samples and their times"
EXAMPLE = "ordiff fit cells.csv --times hours --pca 5 --out cells"
# The exit code of a fit whose check did not pass.
NOT_TRUSTED = 3
# Beside the results while a fit runs: what was learned so far.
CHECKPOINT = "checkpoint.npz"
FILES = ("model.npz", "results.csv", "summary.txt", "overview.png", "drift.png", "noise.png", "report.html")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_table_options(parser)
    parser.add_argument("--eps", type=float, metavar="E", help="time step of the chain (default: from the data)")
    parser.add_argument("--drift", choices=("auto", "gradient", "general"), default="auto", help="default: %(default)s")
    parser.add_argument(
        "--noise", choices=("field", "constant", "tensor"), default="field", help="default: %(default)s"
    )
    parser.add_argument("--states", choices=("designed", "samples"), default="designed", help="default: %(default)s")
    parser.add_argument("--max-iter", type=int, default=300, metavar="N", help="most iterations (default: %(default)s)")
    parser.add_argument("--length", default="", metavar="UNIT", help="unit of the columns, for labels")
    parser.add_argument("--time", default="", metavar="UNIT", help="unit of the times, for labels")
    parser.add_argument("--resume", action="store_true",
                        help="go on with a fit that was ended, from DIR/checkpoint.npz")  # fmt: skip
    add_output_options(parser, "fit")


def run(options: argparse.Namespace) -> int:
    """Fit, write `FILES`, and print the summary."""
    from ordiff import plot, report
    from ordiff.cli.samples import read_samples

    plot.require()  # before the computation, not after it
    report.require()
    refuse_overwriting(options.out, FILES, options.force)
    samples = read_samples(options, times_required=True)
    notes = list(samples.notes)
    estimator = make_estimator(samples.start, options)
    try_writing(options.out)
    checkpoint = options.out / CHECKPOINT
    if not options.resume:
        checkpoint.unlink(missing_ok=True)
    with collect_warnings(notes):
        model = estimator.fit(samples.X, samples.times, checkpoint=checkpoint)
    if model.interrupted_:
        notes.append("Interrupted: the results are those of the best so far.")
    with results_in(options.out) as folder:
        write_results(folder, model, samples, notes, options)
    if not model.interrupted_:
        checkpoint.unlink(missing_ok=True)
    if not options.quiet:
        print("\n".join([model.summary(options.length, options.time), *notes]))
        print_written(options.out, FILES)
    if model.interrupted_:
        return 130
    return 0 if model.check_.trusted else NOT_TRUSTED


def make_estimator(start: Any, options: argparse.Namespace) -> SnapshotSDE:
    """The estimator that the options ask for."""
    from ordiff.learning.settings import Solver
    from ordiff.model import SnapshotSDE

    return SnapshotSDE(
        start,
        drift=options.drift,
        noise=options.noise,
        states=options.states,
        solver=Solver(eps="auto" if options.eps is None else options.eps, max_iter=options.max_iter),
        progress=not options.quiet and can_show_progress(),
        random_state=options.seed,
    )


def write_results(
    folder: Path, model: SnapshotSDE, samples: Samples, notes: Sequence[str], options: argparse.Namespace
) -> None:
    """`FILES`, and pca.npz when principal components were used."""
    from ordiff import plot, report

    model.save(folder / "model.npz")
    if samples.components:
        np.savez_compressed(folder / "pca.npz", **samples.components)
    write_csv(folder / "results.csv", _columns(model, samples))
    write_text(folder / "summary.txt", [model.summary(options.length, options.time), *notes])
    units = {"length": options.length, "time": options.time}
    names = samples.names if len(samples.names) <= 2 else None
    plot.overview(model, times=samples.times, names=names, **units).savefig(folder / "overview.png")
    plot.drift(model, **units, embedding=plot.Embedding.of(samples.X, names)).figure.savefig(folder / "drift.png")
    plot.noise(model, **units).figure.savefig(folder / "noise.png")
    report.write(
        model, folder / "report.html", times=samples.times, title=f"Dynamics of {options.file.name}", columns=names,
        notes="\n".join(notes), random_state=options.seed, **units,
    )  # fmt: skip


def _columns(model: SnapshotSDE, samples: Samples) -> dict[str, Any]:
    """The columns of results.csv, one row a sample."""
    columns: dict[str, Any] = {
        "sample": range(len(samples.X)), "time": samples.times,
        "ordering": model.ordering_, "ordering_std": model.ordering_std_,
        "noise": model.noise_, "noise_std": model.noise_std_,
    }  # fmt: skip
    columns |= {f"drift_{name}": model.drift_[:, k] for k, name in enumerate(samples.names)}
    if model.rotation_.any():
        columns |= {f"rotation_{name}": model.rotation_[:, k] for k, name in enumerate(samples.names)}
    return columns
