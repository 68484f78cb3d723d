"""Writing results: folders, CSV files, and what was warned of."""

from __future__ import annotations

import csv
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ordiff import _validation
from ordiff.cli.advice import in_options

# The exit code of a command on a model whose check did not pass.
NOT_TRUSTED = 3


def refuse_overwriting(folder: Path, names: Sequence[str], force: bool) -> None:
    """Raise FileExistsError if a result is there already. To be called before the computation."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: choose another folder by --out.")
    existing = [name for name in names if (folder / name).exists()]
    if existing and not force:
        raise FileExistsError(f"{folder} already holds {', '.join(existing)}: use --force, or another folder by --out.")


def try_writing(folder: Path) -> None:
    """Make the folder and write to it, so that what does not work is told before the computation."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(2**16))
            file.flush()
    except OSError as error:
        raise OSError(f"--out {folder}: results cannot be written there ({error.strerror}).") from error


@contextmanager
def results_in(folder: Path) -> Iterator[Path]:
    """A folder to write to; on leaving, what it holds moves to the real one, each file whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
    try:
        yield partial
        for file in sorted(partial.iterdir()):
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def collect_warnings(notes: list[str]) -> Iterator[None]:
    """Append our warnings to the notes, each once; other warnings are issued again on leaving."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", _validation.OrdiffWarning)
        yield
    for warning in caught:
        text = in_options(f"Warning: {warning.message}")
        if issubclass(warning.category, _validation.OrdiffWarning):
            notes += [text] if text not in notes else []
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def write_csv(path: Path, columns: dict[str, Any]) -> None:
    """Columns of equal length, under their names."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow([f"{v:.8g}" if isinstance(v, float) else v for v in row])


def write_text(path: Path, lines: Sequence[str]) -> None:
    """Lines, with a line break after the last."""
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def print_written(folder: Path, names: Sequence[str]) -> None:
    """Say which files were written."""
    print("Wrote " + ", ".join(str(folder / name) for name in names))


def can_show_progress() -> bool:
    """Whether tqdm is installed, and standard error is a terminal: no bar is written to a file."""
    if not sys.stderr.isatty():
        return False
    try:
        import tqdm  # noqa: F401
    except ImportError:
        return False
    return True
