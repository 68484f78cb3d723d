"""The benchmarks: python -m benchmarks.run [accuracy] [speed] [search] [learning] [learned] [dimensions] [appex]
[alarms] [rotation] [passage] [geometry] [memory] [startup] [before] [--quick] [--write].

Without names all of them run. Tables go to stdout as Markdown, progress to stderr; with --write each benchmark also
replaces its section of RESULTS.md. --quick is a smoke check with the smallest size only, and is never written.
"""

from __future__ import annotations

import argparse

from benchmarks import (
    accuracy,
    alarms,
    appex,
    before,
    dimensions,
    geometry,
    learned,
    learning,
    memory,
    passage,
    rotation,
    search,
    speed,
    startup,
)
from benchmarks.report import progress, write_section

BENCHMARKS = {
    "accuracy": accuracy.run,
    "speed": speed.run,
    "search": search.run,
    "learning": learning.run,
    "learned": learned.run,
    "dimensions": dimensions.run,
    "appex": appex.run,
    "alarms": alarms.run,
    "rotation": rotation.run,
    "passage": passage.run,
    "geometry": geometry.run,
    "memory": memory.run,
    "startup": startup.run,
    "before": before.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure ordiff beside its peers.")
    parser.add_argument("names", nargs="*", metavar="benchmark", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="the smallest size only")
    parser.add_argument("--write", action="store_true", help="write the tables to benchmarks/RESULTS.md too")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; choose from {', '.join(BENCHMARKS)}.")
    if options.quick and options.write:
        parser.error("--quick results are not worth writing; drop one of the two.")
    for name in options.names or BENCHMARKS:
        progress(name)
        body = BENCHMARKS[name](quick=options.quick)
        print(f"## {name.capitalize()}\n\n{body}\n", flush=True)
        if options.write:
            write_section(name, body, f"python -m benchmarks.run {name} --write")


if __name__ == "__main__":
    main()
