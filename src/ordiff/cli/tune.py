"""``ordiff tune``: shows which time steps suit the samples."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ordiff.cli.options import add_output_options, add_table_options
from ordiff.cli.output import collect_warnings, print_written, refuse_overwriting, results_in, write_csv, write_text
from ordiff.cli.saved import read_model, read_points

if TYPE_CHECKING:
    from ordiff._validation import Array
    from ordiff.cli.samples import Samples
    from ordiff.kernel.kernel import Kernel
    from ordiff.tuning import StepChoice

HELP = "show which time steps ε suit the samples, and why"
EXAMPLE = "ordiff tune cells.csv --times hours --pca 5 --model fit"
FILES = ("steps.png", "steps.csv", "summary.txt")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_table_options(parser)
    parser.add_argument("--model", type=Path, metavar="MODEL",
                        help="folder that ordiff fit wrote: its columns, ordering and noise are used")  # fmt: skip
    parser.add_argument("--noise", type=float, metavar="R",
                        help="noise (default: half of what explains the spread of the samples)")  # fmt: skip
    parser.add_argument("--neighbors", type=int, metavar="K", help="neighbours of the graph (default: 200)")
    add_output_options(parser, "tune")


def run(options: argparse.Namespace) -> int:
    """Choose the step, write `FILES`, and print the curves."""
    from ordiff import plot
    from ordiff.graph import NeighborGraph
    from ordiff.tuning import choose_eps

    plot.require()  # before the computation, not after it
    refuse_overwriting(options.out, FILES, options.force)
    X, kernel, notes = points_and_kernel(options)
    k = min(options.neighbors or 200, len(X) - 1)
    with collect_warnings(notes):
        graph = NeighborGraph.build(X, k=k, random_state=options.seed)
        choice = choose_eps(kernel, graph, density="balanced")
    notes = [str(choice), *(note for note in notes if str(choice) not in note)]
    with results_in(options.out) as folder:
        write_csv(folder / "steps.csv", curves(choice))
        write_text(folder / "summary.txt", notes)
        plot.step_choice(choice).figure.savefig(folder / "steps.png")
    if not options.quiet:
        print_curves(choice)
        print("\n".join(notes))
        print_written(options.out, FILES)
    return 0


def points_and_kernel(options: argparse.Namespace) -> tuple[Array, Kernel, list[str]]:
    """The points and the kernel of a fitted model, or one without a drift, and sentences that say which."""
    from ordiff.cli.samples import read_in_like_units
    from ordiff.kernel.kernel import Kernel
    from ordiff.kernel.ordering import Ordering

    if options.model is not None:
        model, preparation = read_model(options)
        X, _ = read_points(options.file, preparation, options.drop_na)
        kernel = Kernel(Ordering(model.predict(X)), noise=model.predict_noise(X))
        return X, kernel, [f"Columns, ordering and noise of {options.model}."]
    samples = read_in_like_units(options, times_required=False)
    rho = options.noise or default_noise(samples)
    note = f"Without a drift, with noise {rho:.4g}: give --model for those that were learned."
    return samples.X, Kernel(noise=rho), [*samples.notes, note]


def default_noise(samples: Samples) -> float:
    """Half of ρ = √(median(‖x − x₀‖²/t)/n), which explains the spread without a drift; 1 when there are no times."""
    if samples.times is None:
        return 1.0
    X, start = samples.X, np.asarray(samples.start)
    origin = X[start] if start.dtype.kind in "bi" else start
    sqdist = ((X - np.atleast_2d(origin).mean(axis=0)) ** 2).sum(axis=1)
    late = samples.times > 0.05 * samples.times.max()
    return float(0.5 * np.sqrt(np.median(sqdist[late] / samples.times[late]) / X.shape[1]))


def curves(choice: StepChoice) -> dict[str, Any]:
    """The columns of steps.csv, one row a step."""
    return {
        "eps": choice.steps, "p_max": choice.p_max, "resolution": choice.resolution,
        "semigroup_error": choice.semigroup_error, "roughness": choice.roughness, "bias": choice.bias,
    }  # fmt: skip


def print_curves(choice: StepChoice) -> None:
    """The curves as a table, the chosen step marked."""
    columns = curves(choice)
    print("  ".join(f"{name:>15}" for name in columns))
    for row in zip(*columns.values(), strict=True):
        print("  ".join(f"{value:>15.4g}" for value in row) + ("  <" if row[0] == choice.eps else ""))
