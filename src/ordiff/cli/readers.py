"""Reading a `DataTable` from a file of any format that the commands take."""

from __future__ import annotations

import csv
import gzip
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ordiff import _validation
from ordiff.cli.tables import DataTable, as_numeric, is_number


def read_table(path: Path) -> DataTable:
    """Read a file; its ending says the format."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}.")
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind not in _READERS:
        raise ValueError(f"{path}: the format .{kind} is not known; use .csv, .tsv, .parquet, .npz, .npy, .h5ad.")
    try:
        table = _READERS[kind](path)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as {kind}: {error}.") from error
    if not table.columns:
        raise ValueError(f"{path} holds no samples.")
    return table


def _read_text(path: Path) -> DataTable:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    delimiter = "," if ".csv" in path.name.lower() else "\t"
    rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if row]
    if not rows:
        raise ValueError(f"{path} is empty.")
    header = [name.strip() for name in rows[0]]
    if all(map(is_number, header)):
        header = [f"x{k}" for k in range(len(header))]
    else:
        rows = rows[1:]
    header = [name or f"column{k}" for k, name in enumerate(header)]
    duplicates = {name for name in header if header.count(name) > 1} if len(set(header)) < len(header) else set()
    if duplicates:
        raise ValueError(f"{path} has two columns of the name {min(duplicates)!r}.")
    wrong = next((k for k, row in enumerate(rows) if len(row) != len(header)), None)
    if wrong is not None:
        raise ValueError(f"{path}: row {wrong} has {len(rows[wrong])} values, but there are {len(header)} columns.")
    columns = (np.array(column) for column in zip(*rows, strict=True))
    return DataTable.from_arrays(path, dict(zip(header, columns, strict=False)))


def _read_parquet(path: Path) -> DataTable:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise _validation.missing_extra("pyarrow", "parquet", "reading Parquet") from None
    table = parquet.read_table(path)  # its errors are ValueErrors
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    return DataTable.from_arrays(path, columns)


def _load(path: Path) -> Any:
    """numpy.load, whose own message on a damaged file is about pickles."""
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, zipfile.BadZipFile):
        raise ValueError(f"{path} cannot be read: it is not a file of numpy arrays, or it is damaged.") from None


def _read_npz(path: Path) -> DataTable:
    with _load(path) as file:
        return DataTable.from_arrays(path, {name: file[name] for name in file.files}, ("X", "points", "x"))


def _read_npy(path: Path) -> DataTable:
    array = _load(path)
    if array.dtype.names:
        return DataTable.from_arrays(path, {name: array[name] for name in array.dtype.names})
    return DataTable.from_arrays(path, {"x": array if array.ndim != 1 else array[:, None]})


def _read_h5ad(path: Path) -> DataTable:
    """The obs columns, every array of obsm, and the genes of X when there is no X_pca."""
    from ordiff import single_cell

    arrays, X, genes = single_cell.read_arrays(path)
    table = DataTable.from_arrays(path, arrays, ("X_pca",))
    if "X_pca" in table.groups or X is None:
        return table
    columns = table.columns | {name: as_numeric(X[:, k]) for k, name in enumerate(genes)}
    return DataTable(path, columns, table.groups | {"X": genes}, genes)


_READERS = {"csv": _read_text, "tsv": _read_text, "txt": _read_text, "parquet": _read_parquet, "npz": _read_npz,
            "npy": _read_npy, "h5ad": _read_h5ad}  # fmt: skip
