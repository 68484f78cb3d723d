"""The command line: ``ordiff demo`` and ``ordiff --version``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import ordiff
from ordiff import experiments


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors are one line on standard error and exit code 1 (2 for wrong usage)."""
    parser = argparse.ArgumentParser(
        prog="ordiff", description="Dynamics from snapshots, by ordered diffusion kernels."
    )
    parser.add_argument("--version", action="version", version=f"ordiff {ordiff.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="run the torus and spiral cases with known truth, and draw them")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for the pictures (default: %(default)s)")
    demo.set_defaults(run=_demo)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        if options.debug:
            raise
        print(f"ordiff: {error}", file=sys.stderr)
        return 1
    return 0


def _demo(options: argparse.Namespace) -> None:
    from ordiff import plot

    plot.require()  # before the work, not after it
    options.out.mkdir(parents=True, exist_ok=True)
    print("Torus, 100 × 100 points: L f and L* f against the exact answer")
    print(f"  {'scheme':<34} {'eps':>7}   {'error of L f':>12}   {'error of L* f':>13}")
    rows = []
    for row in experiments.torus():
        generator, adjoint = row.errors
        print(f"  {row.scheme:<34} {row.eps:>7g}   {generator:>12.5f}   {adjoint:>13.5f}", flush=True)
        rows.append(row)
    spiral = experiments.spiral()
    print("\nSpiral, 100 × 100 points: error of the velocity as a share of the speed")
    print(f"  {'kind':<34} {'interior':>9}   {'at an edge':>10}")
    for kind in spiral.velocities:
        inside, edge = spiral.errors(kind)
        print(f"  {kind:<34} {inside:>9.2%}   {edge:>10.1%}")
    print(f"  {'mean curvature':<34} {spiral.curvature_error:>9.2%}")
    print("\nPictures:")
    for name, figure in (("torus", plot.torus(rows[0])), ("spiral", plot.spiral(spiral))):
        path = options.out / f"{name}.png"
        figure.savefig(path)
        print(f"  {path}")


if __name__ == "__main__":
    sys.exit(main())
