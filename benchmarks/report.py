"""Tables, progress, and the sections of RESULTS.md."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "RESULTS.md"
_LIBRARIES = ("ordiff", "numpy", "scipy", "scikit-learn", "numba")


def progress(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table, the first column left-aligned."""
    header = list(header)
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def seconds(value: float) -> str:
    """A duration to three digits."""
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def times(value: float) -> str:
    """A ratio."""
    return f"{value:.2f}×" if value < 10 else f"{value:.0f}×"


def interleaved(functions: dict[str, Callable[[], Any]], repeats: int, in_a_row: int = 1) -> dict[str, float]:
    """The median seconds of each function, called in turn, so that a slow moment hits them all, once or in a row."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            for _ in range(in_a_row):
                start = time.perf_counter()
                function()
                taken[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in taken.items()}


def stolen() -> tuple[float, float]:
    """The time that the host of a virtual machine gave to others, and all time, of all cores so far; Linux."""
    stat = Path("/proc/stat")
    ticks = [float(word) for word in stat.read_text().split("\n")[0].split()[1:9]] if stat.exists() else [0.0] * 8
    return ticks[7], sum(ticks)


def machine() -> str:
    """Processor, cores, Python, library versions."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text())
        model = found.group(1) if found else model
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return f"{model}, {os.cpu_count()} cores; Python {platform.python_version()}, {libraries}"


def write_section(name: str, body: str, command: str) -> None:
    """Put this benchmark's section into RESULTS.md, in place of the one that is there."""
    stamp = f"`{command}`, {date.today().isoformat()}. {machine()}."
    sections = _sections()
    sections[name] = f"## {name.capitalize()}\n\n{stamp}\n\n{body.strip()}\n"
    intro = "# Benchmarks\n\nMade by `python -m benchmarks.run --write`; do not edit by hand.\n"
    names = ("accuracy", "speed", "search", "learning", "learned", "dimensions", "appex", "alarms", "rotation",
             "passage", "geometry", "memory", "startup", "before")  # fmt: skip
    order = [known for known in names if known in sections] + [other for other in sections if other not in names]
    RESULTS.write_text("\n".join([intro, *(sections[known] for known in order)]), encoding="utf-8")


def _sections() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    parts = re.split(r"^(?=## )", RESULTS.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {part.split("\n", 1)[0].removeprefix("## ").lower(): part.rstrip() + "\n" for part in parts}
