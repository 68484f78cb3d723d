from __future__ import annotations

import gzip
import signal

import numpy as np
import pytest

from ordiff.cli import readers
from ordiff.cli.readers import read_table


def write_csv(path, names, values, delimiter=","):
    lines = [delimiter.join(names), *(delimiter.join(map(str, row)) for row in values)]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "npz", "npy", "h5ad", "parquet"])
def test_every_format_gives_the_same_samples(kind, tmp_path, rng):
    t, X = np.arange(6.0), rng.normal(size=(6, 2))
    path = tmp_path / f"it.{kind}"
    both = np.column_stack([t, X])
    times, columns = "t", None
    if kind in ("csv", "tsv"):
        write_csv(path, ["t", "a", "b"], both, "," if kind == "csv" else "\t")
    elif kind == "csv.gz":
        write_csv(tmp_path / "it.csv", ["t", "a", "b"], both)
        path.write_bytes(gzip.compress((tmp_path / "it.csv").read_bytes()))
    elif kind == "npz":
        np.savez(path, t=t, X=X, note="an aside")
    elif kind == "npy":
        np.save(path, both)
        times = "0"
    elif kind == "h5ad":
        anndata = pytest.importorskip("anndata")
        cells = anndata.AnnData(obs={"t": t, "kind": list("abcdef")}, obsm={"X_pca": X})
        cells.write_h5ad(path)
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        pyarrow = pytest.importorskip("pyarrow")
        parquet.write_table(pyarrow.table({"t": t, "a": X[:, 0], "b": X[:, 1]}), path)
    table = read_table(path)
    (name,) = table.resolve(times)
    np.testing.assert_array_equal(table.matrix([name])[0][:, 0], t)
    used = table.coordinates(columns, [name])
    np.testing.assert_allclose(np.column_stack([table.matrix([c])[0][:, 0] for c in used]), X)


def test_a_table_without_a_header_loses_no_row(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("1,2\n3,4\n")
    np.testing.assert_array_equal(read_table(path).matrix(["x0"])[0][:, 0], [1, 3])


def test_genes_are_used_when_there_are_no_components(tmp_path):
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(np.arange(8.0).reshape(4, 2), obs={"day": [0, 0, 1, 1]})
    cells.var_names = ["GATA4", "SOX2"]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    table = read_table(tmp_path / "cells.h5ad")
    assert table.coordinates(None, "day") == ["GATA4", "SOX2"]
    np.testing.assert_array_equal(table.matrix(["SOX2"])[0][:, 0], [1, 3, 5, 7])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"x,x\n1,2\n", "two columns of the name 'x'"),
        ("a.csv", b"x,y\n1,2\n3\n", "row 1 has 1 values"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read"),
        ("a.csv.gz", b"no zip", "cannot be read"),
        ("a.npz", b"no zip", "a.npz"),
        ("a.npy", b"nothing", "a.npy"),
        ("a.h5ad", b"nothing", "a.h5ad"),
        ("a.docx", b"nothing", "not known"),
    ],
)
def test_damaged_files_are_told(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        read_table(tmp_path / name)
    with pytest.raises(ValueError, match="there is no file"):
        read_table(tmp_path / "nowhere.csv")


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet", "csv.gz"])
def test_damage_inside_a_table_names_the_file(kind, rng, tmp_path):
    path = tmp_path / f"table.{kind}"
    X = rng.normal(size=(200, 3))
    if kind == "npz":
        np.savez_compressed(path, X=X)
    elif kind == "npy":
        np.save(path, X)
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"x": X[:, 0], "y": X[:, 1]}), path)
    else:
        path.write_bytes(gzip.compress(b"x,y\n" + b"1.5,2\n" * 200))
    content, refused = path.read_bytes(), 0
    for at in np.linspace(0, len(content) - 1, 40).astype(int):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        said = str(path)
        try:
            read_table(path)
        except ValueError as error:
            said, refused = str(error), refused + 1
        assert str(path) in said
    assert refused > 0


def test_a_crash_of_hdf5_is_told(monkeypatch):
    monkeypatch.setattr("ordiff.single_cell.read_arrays", signal.raise_signal)
    with pytest.raises(ValueError, match="HDF5 crashed"):
        readers._read_apart(signal.SIGKILL)
