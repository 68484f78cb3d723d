"""The command line: ``ordiff fit``, ``tune``, ``demo`` and ``reproduce``, and reading tables for them.

An error is one line on standard error: exit code 2 for what the user gave, 1 for anything else, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import ordiff
from ordiff import _check
from ordiff._check import Array

if TYPE_CHECKING:
    from ordiff.experiments import Learned, Number
    from ordiff.model import SnapshotSDE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options) or 0
    except KeyboardInterrupt:
        print("ordiff: interrupted; nothing was written", file=sys.stderr)
        return 130
    except Exception as error:
        if options.debug:
            raise
        mine = isinstance(error, ValueError | OSError | ImportError)
        text = str(error) if mine else f"{type(error).__name__}: {error} (a fault of ordiff; --debug shows where)"
        print("ordiff: " + " ".join(text.split()), file=sys.stderr)
        return 2 if isinstance(error, ValueError | FileExistsError | FileNotFoundError) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ordiff", description="Dynamics from snapshots, by ordered diffusion kernels."
    )
    parser.add_argument("--version", action="version", version=f"ordiff {ordiff.__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Any, words: str, **more: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".", **more)
        made.set_defaults(run=run)
        made.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        return made

    fit = command("fit", _fit, "learn drift and noise from a table of samples and their times",
                  epilog="Example: ordiff fit cells.csv --times hours --pca 5 --out cells")  # fmt: skip
    _table_options(fit)
    fit.add_argument("--eps", type=float, metavar="E", help="time step of the chain (default: found)")
    fit.add_argument("--noise", choices=("field", "constant"), default="field", help="default: %(default)s")
    fit.add_argument("--states", choices=("designed", "samples"), default="designed", help="default: %(default)s")
    fit.add_argument("--max-iter", type=int, default=300, metavar="N", help="most steps of a search (default: 300)")
    fit.add_argument("--length", default="", metavar="UNIT", help="unit of the columns, for labels")
    fit.add_argument("--time", default="", metavar="UNIT", help="unit of the times, for labels")
    _output_options(fit, "fit")

    tune = command("tune", _tune, "show which time steps ε suit the samples, and why",
                   epilog="Example: ordiff tune cells.csv --times hours --pca 5 --model fit/model.npz")  # fmt: skip
    _table_options(tune)
    tune.add_argument("--model", type=Path, metavar="FILE", help="a fitted model: its ordering and noise are used")
    tune.add_argument("--noise", type=float, metavar="R", help="noise (default: half of what would spread the samples)")
    tune.add_argument("--neighbors", type=int, metavar="K", help="neighbours of the graph (default: 200)")
    _output_options(tune, "tune")

    demo = command("demo", _demo, "learn a process with known truth from snapshots, and show how well")
    demo.add_argument("--samples", type=int, default=2500, metavar="M", help="default: %(default)s")
    demo.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    demo.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="folder (default: %(default)s)")
    demo.add_argument("--quiet", action="store_true", help="no progress bar")

    again = command("reproduce", _reproduce, "the figures and numbers of the paper, by our estimates")
    again.add_argument("case", choices=("all", "torus", "spiral", "ou", "nl"), help="which of the paper's cases")
    again.add_argument("--seeds", type=int, default=3, metavar="N", help="samples of ou and nl (default: %(default)s)")
    again.add_argument(
        "--only-designed", action="store_true", help="nl without the paper's two settings, which are slow"
    )
    _output_options(again, "reproduce")
    return parser


def _table_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help=".csv .tsv (.gz) .parquet .npz .npy .h5ad")
    parser.add_argument("--times", metavar="COLUMN", help="column of the times at which the samples were taken")
    parser.add_argument("--columns", metavar="A,B,C", help="coordinates (default: all numbers but the times)")
    parser.add_argument("--start", default="time=0", metavar="WHERE",
                        help='row number from 0, point "x,y,...", or time=0: all the earliest (default)')  # fmt: skip
    parser.add_argument("--pca", type=int, metavar="N", help="use N principal components of the columns")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")


def _output_options(parser: argparse.ArgumentParser, folder: str) -> None:
    parser.add_argument("--out", type=Path, default=Path(folder), metavar="DIR", help="folder (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="overwrite results that are there")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")


# ------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, those with text as they are; ``groups`` are names for several, such as an array's columns."""

    path: Path
    columns: dict[str, Any]
    groups: dict[str, list[str]]
    default: list[str]  # the columns to use when none are named
    mixed: Sequence[str] = ()  # columns that would be among them, but for a few words

    @classmethod
    def of_arrays(cls, path: Path, arrays: dict[str, Any], preferred: Sequence[str] = ()) -> Table:
        """From arrays (m,) or (m, n); a preferred one that is there, or else all, are the default."""
        columns: dict[str, Any] = {}
        groups: dict[str, list[str]] = {}
        m = max((len(a) for a in arrays.values() if np.ndim(a)), default=0)
        for name, array in arrays.items():
            if np.ndim(array) == 1 and len(array) == m:
                columns[name] = _numbers(array)
            elif np.ndim(array) == 2 and len(array) == m:
                groups[name] = [f"{name}{k}" for k in range(array.shape[1])]
                columns |= {column: _numbers(array[:, k]) for k, column in enumerate(groups[name])}
        group = next((groups[name] for name in preferred if name in groups), None)
        chosen = list(columns) if group is None else group
        mixed = [name for name, values in columns.items() if group is None and _mostly_numbers(values)]
        default = [name for name in chosen if columns[name].dtype.kind == "f" and not _counts(name, columns)]
        return cls(path, columns, groups, default, mixed)

    def names(self, text: str | None, without: str | None) -> list[str]:
        """The columns that an option names, or the default ones."""
        if text is None:
            chosen = [name for name in self.default if name != without]
            for name in self.mixed:
                if name != without:
                    self.numbers(name)  # says which row holds a word
        else:
            chosen = [name for part in text.split(",") for name in self._find(part.strip())]
        if not chosen:
            raise ValueError(f"{self.path} has no columns of numbers to use as coordinates.")
        return chosen

    def _find(self, name: str) -> list[str]:
        if name in self.groups:
            return self.groups[name]
        if name not in self.columns and name.isdigit() and int(name) < len(self.columns):
            return [list(self.columns)[int(name)]]
        if name not in self.columns:
            raise ValueError(
                f"{self.path} has no column {name!r}. It has {_listed([*self.groups, *self.columns], 12)}."
            )
        return [name]

    def numbers(self, name: str) -> Array:
        """One column, finite."""
        (name,) = self._find(name)
        values = self.columns[name]
        if values.dtype.kind != "f":
            row = next((k for k, v in enumerate(values) if not _is_number(v)), 0)
            raise ValueError(f"column {name!r} of {self.path} is not numbers: row {row} holds {str(values[row])!r}.")
        bad = ~np.isfinite(values)
        if bad.any():
            raise ValueError(
                f"column {name!r} of {self.path} has no number in {bad.sum()} rows, the first is row {bad.argmax()} "
                "(from 0): remove these rows, fill them, or leave the column out."
            )
        return np.asarray(values, dtype=np.float64)


_MISSING = {"", "na", "n/a", "nan", "none", "null"}
_UNNAMED = ("column0", "Unnamed: 0", "__index_level_0__")


def _counts(name: str, columns: dict[str, Any]) -> bool:
    """Whether a column without a name of its own only numbers the rows, as pandas writes it."""
    values = columns[name]
    return name in _UNNAMED and values.dtype.kind == "f" and bool((np.diff(values) == 1).all())


def _mostly_numbers(values: Any) -> bool:
    """Whether most of what is there are numbers, in a column that also holds words."""
    if values.dtype.kind == "f":
        return False
    there = [value for value in values if str(value).strip().lower() not in _MISSING]
    return sum(map(_is_number, there)) > 0.5 * len(there)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return str(value).strip().lower() in _MISSING
    return True


def _numbers(values: Any) -> Any:
    """float64 when all are numbers or missing, else as it was."""
    array = np.asarray(values)
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    if all(map(_is_number, array)):
        return np.array([np.nan if str(v).strip().lower() in _MISSING else float(v) for v in array])
    return array


def read_table(path: Path) -> Table:
    """Read any of the formats that ``ordiff fit`` takes."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}.")
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    readers = {"csv": _read_text, "tsv": _read_text, "txt": _read_text, "parquet": _read_parquet, "npz": _read_npz,
               "npy": _read_npy, "h5ad": _read_h5ad}  # fmt: skip
    if kind not in readers:
        raise ValueError(f"{path}: files ending in .{kind} are not known; use .csv, .tsv, .parquet, .npz, .npy, .h5ad.")
    try:
        table = readers[kind](path)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as {kind}: {error}.") from error
    if not table.columns:
        raise ValueError(f"{path} holds no samples.")
    return table


def _read_text(path: Path) -> Table:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    comma = "," if ".csv" in path.name.lower() else "\t"
    rows = [row for row in csv.reader(text.splitlines(), delimiter=comma) if row]
    if not rows:
        raise ValueError(f"{path} is empty.")
    header = [name.strip() for name in rows[0]]
    if all(map(_is_number, header)):
        header = [f"x{k}" for k in range(len(header))]
    else:
        rows = rows[1:]
    header = [name or f"column{k}" for k, name in enumerate(header)]
    twice = {name for name in header if header.count(name) > 1} if len(set(header)) < len(header) else set()
    if twice:
        raise ValueError(f"{path} has two columns of the name {min(twice)!r}.")
    wrong = next((k for k, row in enumerate(rows) if len(row) != len(header)), None)
    if wrong is not None:
        raise ValueError(f"{path}: row {wrong} has {len(rows[wrong])} values, but there are {len(header)} columns.")
    return Table.of_arrays(path, dict(zip(header, (np.array(c) for c in zip(*rows, strict=True)), strict=False)))


def _read_parquet(path: Path) -> Table:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise _check.missing_extra("pyarrow", "parquet", "reading Parquet") from None
    table = parquet.read_table(path)  # its errors are ValueErrors
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    return Table.of_arrays(path, columns)


def _load(path: Path) -> Any:
    """numpy.load, whose own message on a damaged file speaks of pickles."""
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, zipfile.BadZipFile):
        raise ValueError(f"{path} cannot be read: it is not a file of numpy arrays, or it is damaged.") from None


def _read_npz(path: Path) -> Table:
    with _load(path) as file:
        return Table.of_arrays(path, {name: file[name] for name in file.files}, ("X", "points", "x"))


def _read_npy(path: Path) -> Table:
    array = _load(path)
    if array.dtype.names:
        return Table.of_arrays(path, {name: array[name] for name in array.dtype.names})
    return Table.of_arrays(path, {"x": array if array.ndim != 1 else array[:, None]})


def _read_h5ad(path: Path) -> Table:
    """The obs columns, every array of obsm, and X when nothing else is there to use."""
    from ordiff import single_cell

    arrays, X, genes = single_cell.read_arrays(path)
    table = Table.of_arrays(path, arrays, ("X_pca",))
    if "X_pca" in table.groups or X is None:
        return table
    columns = table.columns | {name: _numbers(X[:, k]) for k, name in enumerate(genes)}
    return Table(path, columns, table.groups | {"X": genes}, genes)


@dataclass(frozen=True, eq=False)
class Samples:
    """What a command works on."""

    X: Array
    times: Array | None
    names: tuple[str, ...]
    start: Any
    notes: list[str]
    components: dict[str, Any]  # of the principal components, to write beside the model

    @classmethod
    def read(cls, options: argparse.Namespace, times_needed: bool) -> Samples:
        table = read_table(options.file)
        if options.times is None and times_needed:
            hint = [name for name in table.columns if "time" in name.lower() or name.lower() in ("t", "hours", "day")]
            raise ValueError(f"say which column holds the times: --times {hint[0] if hint else 'COLUMN'}.")
        time_name = None if options.times is None else table._find(options.times)[0]
        names = tuple(table.names(options.columns, time_name))
        X = np.column_stack([table.numbers(name) for name in names])
        times = None if time_name is None else table.numbers(time_name)
        notes = [] if options.columns else _notes_on_columns(table, names, time_name)
        components: dict[str, Any] = {}
        project = None
        if options.pca is not None:
            project, components = _components(X, options.pca, names, options.seed)
            X, kept = project(X), components.pop("share")
            names = tuple(f"PC{k + 1}" for k in range(options.pca))
            notes.append(f"{options.pca} principal components hold {kept:.0%} of the variance.")
        elif X.shape[1] > 30:
            notes.append(f"{X.shape[1]} columns are used as they are: --pca N is faster, and often better.")
        start = _start(options.start, X, times, project)
        if times is not None and options.start.startswith("time") and times.min() != 0:
            notes.append(f"Times are counted from the earliest, {times.min():g}.")
            times = times - times.min()
        return cls(X, times, names, start, notes, components)


def _notes_on_columns(table: Table, names: tuple[str, ...], time_name: str | None) -> list[str]:
    """Which columns became coordinates, where they were not named."""
    left = [name for name in table.columns if name not in names and name != time_name]
    return [
        f"Coordinates: {_listed(names)}" + (f"; left out: {_listed(left)}" if left else "") + " (choose by --columns)."
    ]


def _listed(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _components(X: Array, n: int, names: tuple[str, ...], seed: int) -> tuple[Any, dict[str, Any]]:
    from sklearn.decomposition import PCA

    most = min(X.shape)
    pca = PCA(_check.count(n, "--pca", 1, most, f"There are {most}."), random_state=seed).fit(X)
    share = float(pca.explained_variance_ratio_.sum())
    return pca.transform, {"mean": pca.mean_, "components": pca.components_, "columns": np.array(names), "share": share}


def _start(text: str, X: Array, times: Array | None, project: Any) -> Any:
    """A row, a point, or the earliest samples as a mask."""
    if text.replace(" ", "").startswith("time"):
        if text.replace(" ", "") not in ("time", "time=0"):
            raise ValueError(f"--start {text}: write time=0, which means all samples with the least time.")
        return 0 if times is None else times == times.min()
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f'--start {text!r} is neither a row number, a point "x,y,...", nor time=0.') from None
    if len(numbers) == 1 and text.strip().isdigit():
        row = int(text)
        if row >= len(X):
            raise ValueError(f"--start {row}: there are {len(X)} rows, counted from 0.")
        return row
    point = np.array(numbers)
    wide = project.__self__.n_features_in_ if project is not None else X.shape[1]
    if point.size != wide:
        raise ValueError(f"--start has {point.size} coordinates, but {wide} columns are used.")
    return point if project is None else project(point[None])[0]


# ------------------------------------------------------------------------------------------------- files


def refuse_overwriting(folder: Path, names: Sequence[str], force: bool) -> None:
    """Before the work, not after it."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file: choose another folder by --out.")
    there = [name for name in names if (folder / name).exists()]
    if there and not force:
        raise FileExistsError(f"{folder} already holds {', '.join(there)}: use --force, or another folder by --out.")


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
def _warnings_told(notes: list[str]) -> Iterator[None]:
    """Our warnings as notes, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", _check.OrdiffWarning)
        yield
    for warning in caught:
        text = f"Warning: {warning.message}"
        if issubclass(warning.category, _check.OrdiffWarning):
            notes += [text] if text not in notes else []
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _write_csv(path: Path, columns: dict[str, Any]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow([f"{v:.8g}" if isinstance(v, float) else v for v in row])


def _can_show_progress() -> bool:
    try:
        import tqdm  # noqa: F401
    except ImportError:
        return False
    return True


# ------------------------------------------------------------------------------------------------- commands

_FIT_FILES = ("model.npz", "results.csv", "summary.txt", "overview.png", "drift.png", "noise.png", "report.html")


def _fit(options: argparse.Namespace) -> int:
    from ordiff import plot, report
    from ordiff.model import SnapshotSDE

    plot.require()  # before the work, not after it
    report.require()
    refuse_overwriting(options.out, _FIT_FILES, options.force)
    samples = Samples.read(options, times_needed=True)
    notes = samples.notes
    model = SnapshotSDE(
        samples.start, eps="auto" if options.eps is None else options.eps, states=options.states,
        noise=options.noise, max_iter=options.max_iter, random_state=options.seed,
        progress=not options.quiet and _can_show_progress(),
    )  # fmt: skip
    with _warnings_told(notes):
        model.fit(samples.X, samples.times)
    stopped = model._fitted.solution.interrupted
    if stopped:
        notes.append("Interrupted: this is the best so far.")
    with results_in(options.out) as partial:
        _write_fit(partial, model, samples, options)
    if not options.quiet:
        print("\n".join([model.summary(options.length, options.time), *notes]))
        print("Wrote " + ", ".join(str(options.out / name) for name in _FIT_FILES))
    return 130 if stopped else 0


def _write_fit(folder: Path, model: SnapshotSDE, samples: Samples, options: argparse.Namespace) -> None:
    from ordiff import plot, report

    model.save(folder / "model.npz")
    if samples.components:
        np.savez_compressed(folder / "pca.npz", **samples.components)
    columns: dict[str, Any] = {"sample": range(len(samples.X)), "time": samples.times, "ordering": model.ordering_}
    columns |= {"ordering_std": model.ordering_std_, "noise": model.noise_, "noise_std": model.noise_std_}
    columns |= {f"drift_{name}": model.drift_[:, k] for k, name in enumerate(samples.names)}
    _write_csv(folder / "results.csv", columns)
    words = "\n".join([model.summary(options.length, options.time), *samples.notes, ""])
    (folder / "summary.txt").write_text(words, encoding="utf-8")
    units = {"length": options.length, "time": options.time}
    names = samples.names if len(samples.names) <= 2 else None
    plot.overview(model, times=samples.times, names=names, **units).savefig(folder / "overview.png")
    plot.drift(model, **units, embedding=plot.Embedding.of(samples.X, names)).figure.savefig(folder / "drift.png")
    plot.noise(model, **units).figure.savefig(folder / "noise.png")
    report.write(
        model, folder / "report.html", times=samples.times, title=f"Dynamics of {options.file.name}", columns=names,
        notes="\n".join(samples.notes), random_state=options.seed, **units,
    )  # fmt: skip


def _tune(options: argparse.Namespace) -> int:
    from ordiff import plot
    from ordiff.graph import NeighborGraph
    from ordiff.kernel.kernel import Kernel
    from ordiff.kernel.ordering import Ordering
    from ordiff.model import load
    from ordiff.tuning import choose_eps

    plot.require()
    files = ("steps.png", "steps.csv", "summary.txt")
    refuse_overwriting(options.out, files, options.force)
    samples = Samples.read(options, times_needed=False)
    X, notes = samples.X, samples.notes
    if options.model is not None:
        model = load(options.model)
        kernel = Kernel(Ordering(model.predict(X)), noise=model.predict_noise(X))
        notes.append(f"Ordering and noise of {options.model}.")
    else:
        rho = options.noise or _usual_noise(samples)
        kernel = Kernel(noise=rho)
        notes.append(f"Without a drift, with noise {rho:.4g}: give --model for those that were learned.")
    k = min(options.neighbors or 200, len(X) - 1)
    with _warnings_told(notes):
        choice = choose_eps(kernel, NeighborGraph.build(X, k=k, random_state=options.seed), density="balanced")
    curves = {"eps": choice.steps, "p_max": choice.p_max, "resolution": choice.resolution,
              "semigroup_error": choice.semigroup_error, "roughness": choice.roughness,
              "bias": choice.bias}  # fmt: skip
    notes = [str(choice), *(note for note in notes if str(choice) not in note)]
    with results_in(options.out) as partial:
        _write_csv(partial / "steps.csv", curves)
        (partial / "summary.txt").write_text("\n".join([*notes, ""]), encoding="utf-8")
        plot.step_choice(choice).figure.savefig(partial / "steps.png")
    if not options.quiet:
        print("  ".join(f"{name:>15}" for name in curves))
        for row in zip(*curves.values(), strict=True):
            print("  ".join(f"{value:>15.4g}" for value in row) + ("  <" if row[0] == choice.eps else ""))
        print("\n".join(notes))
        print("Wrote " + ", ".join(str(options.out / name) for name in files))
    return 0


def _usual_noise(samples: Samples) -> float:
    """Half of what would spread the samples without a drift; 1 when there are no times."""
    if samples.times is None:
        return 1.0
    X, start = samples.X, np.asarray(samples.start)
    origin = X[start] if start.dtype.kind in "bi" else start
    away = ((X - np.atleast_2d(origin).mean(axis=0)) ** 2).sum(axis=1)
    late = samples.times > 0.05 * samples.times.max()
    return float(0.5 * np.sqrt(np.median(away[late] / samples.times[late]) / X.shape[1]))


def _demo(options: argparse.Namespace) -> int:
    from ordiff import plot, report

    plot.require()
    report.require()
    from ordiff import experiments

    m = _check.count(options.samples, "--samples", 50)
    if not options.quiet:
        print(f"Learning the NL process from {m} points, each seen once at a known time ...", flush=True)
    notes: list[str] = []
    with _warnings_told(notes):
        run = experiments.nonlinear(options.seed, m=m, progress=not options.quiet and _can_show_progress())
    print(f"{run.model.summary()}\n\n{_comparison(run)}\n")
    true, _ = run.ordering
    with results_in(options.out) as partial:
        plot.demo(run).savefig(partial / "demo.png")
        run.model.save(partial / "model.npz")
        report.write(
            run.model, partial / "report.html", times=run.problem.times, title="NL process, learned from snapshots",
            truth={"ordering": true, "noise": run.problem.noise}, notes="\n" + _comparison(run),
        )  # fmt: skip
    print(f"Learned in {run.seconds:.0f} s. The picture: {options.out / 'demo.png'}")
    print(f"Interactive report, open it in a browser: {options.out / 'report.html'}")
    print(f"The model, for ordiff.load: {options.out / 'model.npz'}")
    return 130 if run.model._fitted.solution.interrupted else 0


def _comparison(run: Learned) -> str:
    """Truth against estimate."""
    s = run.scores()
    rows = [
        ("mean ordering", f"{s['true mean ordering']:.3f}", f"{s['mean ordering']:.3f}",
         f"{s['ordering, relative error']:.1%} rms"),
        ("mean noise", f"{s['true mean noise']:.3f}", f"{s['mean noise']:.3f}",
         f"{s['noise, relative error']:.1%} rms"),
        ("drift", "", "", f"{s['drift, relative error']:.1%} rms"),
        ("correlation, ordering", "1", f"{s['ordering, correlation']:.4f}", ""),
        ("correlation, noise", "1", f"{s['noise, correlation']:.4f}", ""),
    ]  # fmt: skip
    lines = [f"{'':<24}{'truth':>10}{'estimate':>12}{'error':>14}"]
    return "\n".join([*lines, *(f"{a:<24}{b:>10}{c:>12}{d:>14}".rstrip() for a, b, c, d in rows)])


def _reproduce(options: argparse.Namespace) -> int:
    from ordiff import plot

    plot.require()
    from ordiff import experiments

    cases = ("torus", "spiral", "ou", "nl") if options.case == "all" else (options.case,)
    refuse_overwriting(options.out, [f"{name}.md" for name in (*cases, "table")], options.force)
    seeds = range(_check.count(options.seeds, "--seeds", 1))
    everything = []
    for case in cases:
        if not options.quiet:
            print(f"{case} ...", flush=True)
        notes: list[str] = []
        with _warnings_told(notes):
            figures, numbers = _CASES[case](seeds, options)
        with results_in(options.out) as partial:
            for name, figure in figures.items():
                figure.savefig(partial / f"{name}.png")
                figure.savefig(partial / f"{name}.pdf")
            (partial / f"{case}.md").write_text(experiments.as_markdown(numbers), encoding="utf-8")
            (partial / f"{case}.json").write_text(experiments.as_json(numbers), encoding="utf-8")
        everything += numbers
        if not options.quiet:
            print("\n".join([experiments.as_markdown(numbers), *notes]), flush=True)
    if len(cases) > 1:
        with results_in(options.out) as partial:
            (partial / "table.md").write_text(experiments.as_markdown(everything), encoding="utf-8")
            (partial / "table.json").write_text(experiments.as_json(everything), encoding="utf-8")
    print(f"Wrote figures (PNG, PDF) and tables (Markdown, JSON) to {options.out}")
    return 0


def _reproduce_torus(*_: Any) -> tuple[dict[str, Any], list[Number]]:
    from ordiff import experiments, plot

    rows = list(experiments.torus())
    by_name = {row.scheme: row for row in rows}
    figures = {"torus-isotropic": plot.torus(by_name["isotropic"])}
    return figures | {
        "torus-anisotropic": plot.torus(by_name["anisotropic, Strang, as the paper"])
    }, experiments.torus_numbers(rows)


def _reproduce_spiral(*_: Any) -> tuple[dict[str, Any], list[Number]]:
    from ordiff import experiments, plot

    result = experiments.spiral()
    figures = {"spiral-velocity": plot.spiral_velocity(result), "spiral-curvature": plot.spiral_curvature(result)}
    return figures | {"spiral": plot.spiral(result)}, experiments.spiral_numbers(result)


def _reproduce_ou(seeds: Sequence[int], options: argparse.Namespace) -> tuple[dict[str, Any], list[Number]]:
    from ordiff import experiments, plot

    runs = []
    for seed in seeds:
        runs.append(experiments.ornstein_uhlenbeck(seed))
        _say(options, runs[-1])
    return {"ou": plot.ornstein_uhlenbeck(runs[0])}, experiments.ou_numbers(runs)


def _reproduce_nl(seeds: Sequence[int], options: argparse.Namespace) -> tuple[dict[str, Any], list[Number]]:
    from ordiff import experiments, plot

    settings = list(experiments.SETTINGS)[: 1 if options.only_designed else None]
    runs = []
    for setting in settings:
        for seed in seeds:
            runs.append(experiments.nonlinear(seed, setting=setting))
            _say(options, runs[-1])
    first = [run for run in runs if run.seed == seeds[0]]
    figures = {"nl-truth": plot.nonlinear_truth(first[0]), "nl-results": plot.nonlinear_results(first)}
    return figures, experiments.nl_numbers(runs)


def _say(options: argparse.Namespace, run: Learned) -> None:
    if not options.quiet:
        error = run.scores()["ordering, relative error"]
        print(f"  {run.setting}, seed {run.seed}: ordering off by {error:.1%}, {run.seconds:.0f} s", flush=True)


_CASES = {"torus": _reproduce_torus, "spiral": _reproduce_spiral, "ou": _reproduce_ou, "nl": _reproduce_nl}


if __name__ == "__main__":
    sys.exit(main())
