"""The command line: one file a command, `main` here, and what the commands share.

The parser is in `parser`, the options that several commands take are in `options`. A command reads a table (`readers`,
`tables`), takes from it what it works on (`samples`) and writes a folder of results (`output`); or it asks a fitted
model (`saved`), beside which lies how its coordinates were made of columns (`preparation`). What a command needs is
imported when it runs, so that ``ordiff --help`` starts quickly.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from ordiff._signals import termination_raises
from ordiff.cli.advice import in_options
from ordiff.cli.parser import make_parser

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    An error is one line on standard error: exit code 2 for what the user gave, 1 for anything else, 130 after Ctrl-C.
    """
    options = make_parser().parse_args(_with_points(sys.argv[1:] if arguments is None else arguments))
    try:
        with termination_raises():  # so that what is half-written is removed
            return options.run(options) or 0
    except KeyboardInterrupt:
        print("ordiff: interrupted; nothing was written", file=sys.stderr)
        return 130
    except Exception as error:
        if options.debug:
            raise
        print("ordiff: " + " ".join(_message(error).split()), file=sys.stderr)
        return 2 if isinstance(error, ValueError | FileExistsError | FileNotFoundError) else 1


def _with_points(arguments: Sequence[str]) -> list[str]:
    """``--start -1.5,2`` as ``--start=-1.5,2``: argparse takes a point that begins with a minus for an option."""
    out: list[str] = []
    for argument in arguments:
        if out and out[-1] == "--start" and re.match(r"-[\d.]", argument):
            out[-1] = f"--start={argument}"
        else:
            out.append(argument)
    return out


def _message(error: Exception) -> str:
    if isinstance(error, ValueError | OSError | ImportError):  # their texts are written for the user
        return in_options(str(error))
    return f"{type(error).__name__}: {error} (a bug in ordiff; --debug shows the traceback)"
