"""``ordiff simulate``: paths of the process that was learned, from its start."""

from __future__ import annotations

import argparse

import numpy as np

from ordiff.cli.output import print_written, refuse_overwriting, results_in, write_csv
from ordiff.cli.saved import add_model_options, output_folder, read_model, verdict

HELP = "paths of the process that was learned, from its start"
EXAMPLE = "ordiff simulate fit --paths 200 --horizon 3"
FILES = ("paths.csv", "paths.png")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_model_options(parser)
    parser.add_argument("--paths", type=int, default=100, metavar="N", help="default: %(default)s")
    parser.add_argument("--horizon", type=float, metavar="T", help="last time (default: that of the samples)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Write the paths in the units of the columns."""
    from ordiff import plot

    plot.require()
    out = output_folder(options)
    refuse_overwriting(out, FILES, options.force)
    model, preparation = read_model(options)
    times, paths = model.simulate(options.paths, options.horizon, random_state=options.seed)
    x = preparation.points(paths)
    n, steps = x.shape[:2]
    columns = {"path": np.repeat(np.arange(n), steps), "time": np.tile(times, n)}
    columns |= {name: x[:, :, k].ravel() for k, name in enumerate(preparation.names)}
    embedding = plot.Embedding.prepared(model.samples_, preparation.labels, preparation.mean, preparation.scale)
    with results_in(out) as folder:
        write_csv(folder / "paths.csv", columns)
        plot.paths(model, times, paths, time=preparation.time, embedding=embedding).figure.savefig(folder / "paths.png")
    if not options.quiet:
        print(f"{n} paths of {steps} times, until {times[-1]:.4g}{' ' + preparation.time if preparation.time else ''}.")
        print_written(out, FILES)
    return verdict(model, options.quiet)
