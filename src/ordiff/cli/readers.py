"""Reading a `DataTable` from a file of any format that the commands take."""

from __future__ import annotations

import csv
import gzip
import zipfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import get_context
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
    except _validation.MissingExtraError:
        raise
    except Exception as error:  # of zipfile, zlib, csv, numpy, Arrow, HDF5: a damaged file finds all of them
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        said = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise ValueError(f"{path} cannot be read as {kind}: {said}.") from error
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
    table = parquet.read_table(path)
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
    arrays, X, genes = _read_apart(path)
    table = DataTable.from_arrays(path, arrays, ("X_pca",))
    if "X_pca" in table.groups or X is None:
        return table
    columns = table.columns | {name: as_numeric(X[:, k]) for k, name in enumerate(genes)}
    return DataTable(path, columns, table.groups | {"X": genes}, genes)


def _read_apart(path: Path) -> Any:
    """`single_cell.read_arrays` in a process of its own: HDF5 may crash on a damaged file."""
    from ordiff.single_cell import read_arrays

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        try:
            return process.submit(read_arrays, path).result()
        except BrokenProcessPool:
            raise ValueError(f"{path} cannot be read: HDF5 crashed on it, so it is damaged.") from None


_READERS = {"csv": _read_text, "tsv": _read_text, "txt": _read_text, "parquet": _read_parquet, "npz": _read_npz,
            "npy": _read_npy, "h5ad": _read_h5ad}  # fmt: skip
