"""The parser of the command line."""

from __future__ import annotations

import argparse
from types import ModuleType

import ordiff
from ordiff.cli import check, demo, fates, fit, predict, profile, reproduce, simulate, tune

# A command is a module with HELP, EXAMPLE, add_options(parser), run(options), and USAGE where it has many options.
COMMANDS: dict[str, ModuleType] = {
    "fit": fit, "check": check, "fates": fates, "simulate": simulate, "predict": predict, "profile": profile,
    "tune": tune, "demo": demo, "reproduce": reproduce,
}  # fmt: skip


def make_parser() -> argparse.ArgumentParser:
    """The parser; what it returns has the function of the command as ``run``."""
    parser = argparse.ArgumentParser(
        prog="ordiff", description="Dynamics from snapshots, by ordered diffusion kernels."
    )
    parser.add_argument("--version", action="version", version=f"ordiff {ordiff.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name, help=module.HELP, description=module.HELP[0].upper() + module.HELP[1:] + ".",
            epilog=f"Example: {module.EXAMPLE}", usage=getattr(module, "USAGE", None),
        )  # fmt: skip
        command.set_defaults(run=module.run)
        command.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        module.add_options(command)
    return parser
