"""``ordiff fit``: learns drift and noise from a table of samples and their times."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

from ordiff.cli.advice import advise_in_options
from ordiff.cli.options import add_output_options, add_table_options
from ordiff.cli.output import (
    NOT_TRUSTED,
    can_show_progress,
    collect_warnings,
    print_written,
    refuse_overwriting,
    results_in,
    try_writing,
    write_csv,
    write_text,
)
from ordiff.cli.preparation import FILE as PREPARATION

if TYPE_CHECKING:
    from ordiff.cli.samples import Samples
    from ordiff.model import SnapshotSDE

HELP = "learn drift and noise from a table of samples and their times"
USAGE = "ordiff fit FILE --times COLUMN [options]"
EXAMPLE = "ordiff fit cells.csv --times hours --pca 5 --out cells"
# Beside the results while a fit runs: what was learned so far.
CHECKPOINT = "checkpoint.npz"
FILES = ("model.npz", "results.csv", "summary.txt", "overview.png", "drift.png", "noise.png", "check.png",
         "report.html", PREPARATION)  # fmt: skip
# Seconds of the processor after which it is said why.
LONG = 60.0
# Warnings that say what the summary says too.
IN_SUMMARY = ("this fit is not trusted", "the process does not reach")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_table_options(parser)
    parser.add_argument("--window", nargs=2, metavar=("FROM", "TO"),
                        help="two columns between which a time lies")  # fmt: skip
    parser.add_argument("--time-density", metavar="uniform:0:2", help="when times are not known, only how they spread")
    parser.add_argument("--cycle", metavar="COLUMN",
                        help="a column that is a phase, of period 2π, or COLUMN:PERIOD")  # fmt: skip
    parser.add_argument("--eps", type=float, metavar="E", help="time step of the chain (default: from the data)")
    parser.add_argument("--drift", choices=("auto", "gradient", "general"), default="auto", help="default: %(default)s")
    parser.add_argument(
        "--noise", choices=("field", "constant", "tensor", "auto"), default="field", help="default: %(default)s"
    )
    parser.add_argument("--states", choices=("designed", "samples"), default="designed", help="default: %(default)s")
    parser.add_argument("--dimension", type=int, metavar="D", help="intrinsic dimension (default: from the data)")
    parser.add_argument("--max-states", type=int, metavar="N", help="most designed states (default: 4000)")
    parser.add_argument("--smooth-ordering", type=float, metavar="S", help="strength (default: by empirical Bayes)")
    parser.add_argument("--smooth-noise", type=float, metavar="S", help="strength (default: by empirical Bayes)")
    parser.add_argument("--max-iter", type=int, default=300, metavar="N",
                        help="most iterations at one strength (default: %(default)s)")  # fmt: skip
    parser.add_argument("--length", default="", metavar="UNIT", help="unit of the columns, for labels")
    parser.add_argument("--time", default="", metavar="UNIT", help="unit of the times, for labels")
    parser.add_argument("--resume", action="store_true",
                        help="go on from DIR/checkpoint.npz")  # fmt: skip
    add_output_options(parser, "fit")


def run(options: argparse.Namespace) -> int:
    """Fit, write `FILES`, and print the summary."""
    from ordiff import plot, report
    from ordiff.cli.samples import read_in_like_units
    from ordiff.learning.checkpoint import discard

    checkpoint = options.out / CHECKPOINT
    resumed = options.resume and checkpoint.exists()
    refuse_overwriting(options.out, FILES, options.force or resumed)
    samples = read_in_like_units(options, times_required=True)
    plot.require()  # before the computation, not after it
    report.require()
    notes = list(samples.notes)
    estimator = make_estimator(samples, options)
    try_writing(options.out)
    if not options.resume:
        discard(checkpoint)
    elif not resumed:
        notes.append(f"There was no {checkpoint} to go on from: the fit began anew.")
    if not options.quiet:
        m, n = samples.X.shape
        print(f"Learning from {m} samples in {n} coordinate{'s' if n > 1 else ''} ...", flush=True)
    began = process_time()
    with collect_warnings(notes):
        model = estimator.fit(samples.X, samples.times, checkpoint=checkpoint, names=samples.names)
    notes += note_on_time(process_time() - began, model, options)
    notes = [note for note in notes if not any(text in note for text in IN_SUMMARY)]
    if model.interrupted_:
        notes.append("Interrupted: the results are those of the best so far.")
    if samples.cycle is not None:
        notes.append(samples.cycle.describe(model, samples.preparation.time))
    with results_in(options.out) as folder:
        write_results(folder, model, samples, notes, options)
    if not model.interrupted_:
        discard(checkpoint)
    if not options.quiet:
        print("\n".join([samples.preparation.summary(model), *notes]))
        print_written(options.out, FILES)
    if model.interrupted_:
        return 130
    return 0 if model.check_.trusted else NOT_TRUSTED


def note_on_time(seconds: float, model: SnapshotSDE, options: argparse.Namespace) -> list[str]:
    """Why a fit took long, and what takes less."""
    if seconds < LONG:
        return []
    asked = {"--drift gradient": options.drift == "auto", "--noise constant": options.noise != "constant"}
    faster = [option for option, usual in asked.items() if usual and hasattr(model, "states_")]
    less = f"; {' and '.join(faster)} need{'s' if len(faster) == 1 else ''} fewer" if faster else ""
    return [f"It took {seconds:.0f} s of the processor, for {model.n_iter_} evaluations{less}."]


def make_estimator(samples: Samples, options: argparse.Namespace) -> SnapshotSDE:
    """The estimator that the options ask for."""
    from ordiff.learning.settings import STATES, Smoothness, Solver, TimeDensity
    from ordiff.model import SnapshotSDE

    where: dict[str, Any] = {"dimension": options.dimension}
    if options.max_states is not None:
        if options.states != "designed":
            raise ValueError("--max-states is for designed states.")
        where["max_states"] = options.max_states
    strengths = {"ordering": options.smooth_ordering, "noise": options.smooth_noise}
    return SnapshotSDE(
        samples.start,
        learn=("ordering", "noise") if samples.cycle is None else ("ordering", "speed", "noise"),
        ordering=samples.cycle,
        drift=options.drift,
        noise=options.noise,
        states=STATES[options.states](**where),
        times=None if samples.horizon is None else TimeDensity("uniform", samples.horizon),
        smoothness=Smoothness(**{name: value for name, value in strengths.items() if value is not None}),
        solver=Solver(eps="auto" if options.eps is None else options.eps, max_iter=options.max_iter),
        progress=not options.quiet and can_show_progress(),
        random_state=options.seed,
    )


def write_results(
    folder: Path, model: SnapshotSDE, samples: Samples, notes: Sequence[str], options: argparse.Namespace
) -> None:
    """`FILES`."""
    from ordiff import plot, report

    prepared = samples.preparation
    units: dict[str, Any] = {"length": prepared.length, "time": prepared.time}
    model.save(folder / "model.npz")
    advise_in_options(model)
    prepared.save(folder / PREPARATION, len(samples.X))
    write_csv(folder / "results.csv", _columns(model, samples))
    write_text(folder / "summary.txt", [prepared.summary(model), *notes])
    at = plot.Embedding.prepared(samples.X, prepared.labels, prepared.mean, prepared.scale)
    moments = prepared.moments(model)
    plot.overview(model, times=samples.middle_times, embedding=at, **units).savefig(folder / "overview.png")
    plot.drift(model, **units, embedding=at).figure.savefig(folder / "drift.png")
    plot.noise(model, **units).figure.savefig(folder / "noise.png")
    plot.check(model, time=prepared.time, moments=moments).savefig(folder / "check.png")
    report.write(
        model, folder / "report.html", times=samples.middle_times, title=f"Dynamics of {options.file.name}",
        embedding=at, moments=moments, notes="\n".join(notes), random_state=options.seed,
        sample_numbers=prepared.sample_numbers(len(samples.X)), **units,
    )  # fmt: skip


def _columns(model: SnapshotSDE, samples: Samples) -> dict[str, Any]:
    """The columns of results.csv, one row a sample."""
    prepared, times = samples.preparation, samples.times
    columns: dict[str, Any] = {"sample": prepared.sample_numbers(len(samples.X))}
    if times is not None:
        columns |= {"time": times} if times.ndim == 1 else {"time_from": times[:, 0], "time_to": times[:, 1]}
    columns |= {"ordering": model.ordering_, "ordering_std": model.ordering_std_}
    columns |= prepared.noise(model.noise_)
    columns |= {f"{name.replace('noise', 'noise_std', 1)}": v for name, v in prepared.noise(model.noise_std_).items()}
    columns |= prepared.drift(model.drift_)
    if model.rotation_.any():
        columns |= prepared.drift(model.rotation_, "rotation")
    return columns
