"""``ordiff reproduce``: the figures and numbers of the paper."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordiff import _validation
from ordiff.cli.options import add_output_options
from ordiff.cli.output import collect_warnings, refuse_overwriting, results_in

if TYPE_CHECKING:
    from ordiff.experiments import Learned, Number

HELP = "compute the figures and numbers of the paper"
EXAMPLE = "ordiff reproduce nl --seeds 1 --only-designed"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("case", choices=("all", *_CASES), help="which of the paper's cases")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds of ou and nl (default: %(default)s)")
    parser.add_argument("--only-designed", action="store_true",
                        help="nl without the paper's two settings, which are slow")  # fmt: skip
    add_output_options(parser, "reproduce")


def run(options: argparse.Namespace) -> int:
    """Compute the cases; write the figures as PNG and PDF, the numbers as Markdown and JSON."""
    from ordiff import experiments, plot

    plot.require()  # before the computation, not after it
    cases = tuple(_CASES) if options.case == "all" else (options.case,)
    refuse_overwriting(options.out, [f"{name}.md" for name in (*cases, "table")], options.force)
    seeds = range(_validation.count(options.seeds, "--seeds", 1))
    all_numbers: list[Number] = []
    for case in cases:
        if not options.quiet:
            print(f"{case} ...", flush=True)
        notes: list[str] = []
        with collect_warnings(notes):
            figures, numbers = _CASES[case](seeds, options)
        with results_in(options.out) as folder:
            write_figures(folder, figures)
            write_numbers(folder, case, numbers)
        all_numbers += numbers
        if not options.quiet:
            print("\n".join([experiments.as_markdown(numbers), *notes]), flush=True)
    if len(cases) > 1:
        with results_in(options.out) as folder:
            write_numbers(folder, "table", all_numbers)
    print(f"Wrote figures (PNG, PDF) and tables (Markdown, JSON) to {options.out}")
    return 0


def write_figures(folder: Path, figures: dict[str, Any]) -> None:
    """Each as PNG and PDF."""
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png")
        figure.savefig(folder / f"{name}.pdf")


def write_numbers(folder: Path, name: str, numbers: Sequence[Number]) -> None:
    """As Markdown and JSON."""
    from ordiff import experiments

    (folder / f"{name}.md").write_text(experiments.as_markdown(numbers), encoding="utf-8")
    (folder / f"{name}.json").write_text(experiments.as_json(numbers), encoding="utf-8")


def _torus(*_: Any) -> tuple[dict[str, Any], list[Number]]:
    from ordiff import experiments, plot

    rows = list(experiments.torus())
    by_scheme = {row.scheme: row for row in rows}
    figures = {
        "torus-isotropic": plot.torus(by_scheme["isotropic"]),
        "torus-anisotropic": plot.torus(by_scheme["anisotropic, Strang, as the paper"]),
    }
    return figures, experiments.torus_numbers(rows)


def _spiral(*_: Any) -> tuple[dict[str, Any], list[Number]]:
    from ordiff import experiments, plot

    result = experiments.spiral()
    figures = {
        "spiral-velocity": plot.spiral_velocity(result),
        "spiral-curvature": plot.spiral_curvature(result),
        "spiral": plot.spiral(result),
    }
    return figures, experiments.spiral_numbers(result)


def _ornstein_uhlenbeck(seeds: Sequence[int], options: argparse.Namespace) -> tuple[dict[str, Any], list[Number]]:
    from ordiff import experiments, plot

    runs = []
    for seed in seeds:
        runs.append(experiments.ornstein_uhlenbeck(seed))
        _print_error(runs[-1], options)
    return {"ou": plot.ornstein_uhlenbeck(runs[0])}, experiments.ou_numbers(runs)


def _nonlinear(seeds: Sequence[int], options: argparse.Namespace) -> tuple[dict[str, Any], list[Number]]:
    from ordiff import experiments, plot

    settings = list(experiments.SETTINGS)[: 1 if options.only_designed else None]
    runs = []
    for setting in settings:
        for seed in seeds:
            runs.append(experiments.nonlinear(seed, setting=setting))
            _print_error(runs[-1], options)
    first = [run for run in runs if run.seed == seeds[0]]
    figures = {"nl-truth": plot.nonlinear_truth(first[0]), "nl-results": plot.nonlinear_results(first)}
    return figures, experiments.nl_numbers(runs)


def _print_error(learned: Learned, options: argparse.Namespace) -> None:
    if not options.quiet:
        error = learned.scores()["ordering, relative error"]
        print(
            f"  {learned.setting}, seed {learned.seed}: relative error of the ordering {error:.1%}, "
            f"{learned.seconds:.0f} s", flush=True,
        )  # fmt: skip


_CASES = {"torus": _torus, "spiral": _spiral, "ou": _ornstein_uhlenbeck, "nl": _nonlinear}
