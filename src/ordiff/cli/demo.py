"""``ordiff demo``: learns a process whose drift and noise are known, and compares."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ordiff import _validation
from ordiff.cli.output import can_show_progress, collect_warnings, results_in

if TYPE_CHECKING:
    from ordiff.experiments import Learned

HELP = "learn a process with known drift and noise from snapshots, and compare"
EXAMPLE = "ordiff demo --samples 1000 --out demo"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--samples", type=int, default=2500, metavar="M", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="500 samples, in a fraction of the time")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="folder (default: %(default)s)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(options: argparse.Namespace) -> int:
    """Learn the NL process, print the comparison with the truth, and write a figure, a report and the model."""
    from ordiff import experiments, plot, report

    plot.require()  # before the computation, not after it
    report.require()
    m = _validation.count(500 if options.quick else options.samples, "--samples", 50)
    if not options.quiet:
        print(f"Learning the NL process from {m} points, each observed once at a known time ...", flush=True)
    notes: list[str] = []
    with collect_warnings(notes):
        learned = experiments.nonlinear(options.seed, m=m, progress=not options.quiet and can_show_progress())
    print(f"{learned.model.summary()}\n\n{comparison(learned)}\n")
    write_results(options.out, learned)
    print(f"Learned in {learned.seconds:.0f} s. Figure: {options.out / 'demo.png'}")
    print(f"Interactive report, open it in a browser: {options.out / 'report.html'}")
    print(f"The model, for ordiff.load: {options.out / 'model.npz'}")
    return 130 if learned.model.interrupted_ else 0


def write_results(out: Path, learned: Learned) -> None:
    """The figure, the report and the model."""
    from ordiff import plot, report

    true_ordering, _ = learned.ordering
    with results_in(out) as folder:
        plot.demo(learned).savefig(folder / "demo.png")
        learned.model.save(folder / "model.npz")
        report.write(
            learned.model, folder / "report.html", times=learned.problem.times,
            title="NL process, learned from snapshots", notes="\n" + comparison(learned),
            truth={"ordering": true_ordering, "noise": learned.problem.noise},
        )  # fmt: skip


def comparison(learned: Learned) -> str:
    """Truth against estimate, as a table."""
    s = learned.scores()
    rows = [
        ("mean ordering", f"{s['true mean ordering']:.3f}", f"{s['mean ordering']:.3f}",
         f"{s['ordering, relative error']:.1%} rms"),
        ("mean noise", f"{s['true mean noise']:.3f}", f"{s['mean noise']:.3f}",
         f"{s['noise, relative error']:.1%} rms"),
        ("drift", "", "", f"{s['drift, relative error']:.1%} rms"),
        ("correlation, ordering", "1", f"{s['ordering, correlation']:.4f}", ""),
        ("correlation, noise", "1", f"{s['noise, correlation']:.4f}", ""),
    ]  # fmt: skip
    lines = [f"{'':<22}{'truth':>8}{'estimate':>10}{'error':>12}"]
    return "\n".join([*lines, *(f"{a:<22}{b:>8}{c:>10}{d:>12}".rstrip() for a, b, c, d in rows)])
