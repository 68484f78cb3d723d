from __future__ import annotations

import csv
import gzip
import json
import re
import subprocess
import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

import ordiff
import ordiff as od
from ordiff import cli
from ordiff.cli import main, read_table
from ordiff.model import Profile

QUICK = ["--max-iter", "30", "--noise", "constant", "--quiet"]


@pytest.fixture(scope="module")
def data():
    return od.datasets.ornstein_uhlenbeck(150, random_state=0)


@pytest.fixture(scope="module")
def table(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "ou.csv"
    rows = np.column_stack([data.times, data.X])
    path.write_text("hours,a,b,who\n" + "".join(f"{t},{a},{b},cell\n" for t, a, b in rows))
    return path


@pytest.fixture(scope="module")
def fitted(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "new" / "deeper"
    assert main(["fit", str(table), "--times", "hours", "--start", "5,5", "--out", str(out), *QUICK]) == 0
    return out


def one_line(capsys) -> str:
    said = capsys.readouterr()
    assert said.err.startswith("ordiff: ")
    assert said.err.count("\n") == 1
    return said.err


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"ordiff {ordiff.__version__}\n"


@pytest.mark.parametrize("command", [[], ["fit"], ["tune"], ["demo"], ["reproduce"]])
def test_help_fits_a_screen(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    assert capsys.readouterr().out.count("\n") <= 40


# ------------------------------------------------------------------------------------------------- fit


def test_fit_writes_everything_and_nothing_else(fitted, data):
    assert sorted(p.name for p in fitted.iterdir()) == sorted(cli._FIT_FILES)
    model = od.load(fitted / "model.npz")
    with (fitted / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "sample", "time", "ordering", "ordering_std", "noise", "noise_std", "drift_a", "drift_b"
    ]  # fmt: skip
    np.testing.assert_allclose([float(row["ordering"]) for row in rows], model.ordering_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose([float(row["drift_b"]) for row in rows], model.drift_[:, 1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose([float(row["time"]) for row in rows], data.times, rtol=1e-6)
    assert (fitted / "summary.txt").read_text().startswith(model.summary())
    assert (fitted / "overview.png").read_bytes().startswith(b"\x89PNG")
    found = re.search(r'id="summary">(.*?)</script>', (fitted / "report.html").read_text(), re.S)
    assert json.loads(found[1])["loss"] == model.loss_


def test_results_are_not_overwritten_unasked(fitted, table, capsys):
    before = (fitted / "model.npz").stat().st_mtime_ns
    assert main(["fit", str(table), "--times", "hours", "--out", str(fitted)]) == 2
    assert "use --force" in one_line(capsys)
    assert (fitted / "model.npz").stat().st_mtime_ns == before
    assert main(["fit", str(table), "--times", "hours", "--out", str(table)]) == 2
    assert "is a file" in one_line(capsys)


def test_a_wide_table_by_principal_components_from_the_earliest(data, tmp_path, capsys, rng):
    wide = data.X @ rng.normal(size=(2, 12)) + 0.01 * rng.normal(size=(150, 12))
    hours = np.ceil(data.times * 2) / 2 + 24
    np.savez(tmp_path / "wide.npz", X=wide, t=hours)
    out = tmp_path / "out"
    command = ["fit", str(tmp_path / "wide.npz"), "--times", "t", "--pca", "2", "--out", str(out), *QUICK]
    assert main(command) == 0
    assert capsys.readouterr().out == ""
    model = od.load(out / "model.npz")
    assert model.n_features_in_ == 2
    assert len(model.start_) == (hours == hours.min()).sum()
    assert model.horizon_ == hours.max() - hours.min()
    assert "Times are counted from the earliest, 24.5" in (out / "summary.txt").read_text()
    with np.load(out / "pca.npz") as pca:
        assert pca["components"].shape == (2, 12)
        assert pca["columns"][3] == "X3"


def test_ctrl_c_leaves_the_best_so_far(table, tmp_path, monkeypatch, capsys):
    seen = []

    @contextmanager
    def impatient(_):
        def report(_, loss):
            seen.append(loss)
            if len(seen) == 150:
                raise KeyboardInterrupt

        yield report

    monkeypatch.setattr("ordiff.model.progress_bar", impatient)
    options = ["--times", "hours", "--start", "5,5", "--noise", "constant", "--out", str(tmp_path)]
    assert main(["fit", str(table), *options]) == 130
    assert "best so far" in capsys.readouterr().out
    model = od.load(tmp_path / "model.npz")
    assert not model.converged_
    assert np.isfinite(model.ordering_).all()


def test_ctrl_c_before_there_is_anything(table, tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "read_table", stop)
    assert main(["fit", str(table), "--times", "hours", "--out", str(tmp_path / "none")]) == 130
    assert "nothing was written" in one_line(capsys)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--times", "days"], "no column 'days'. It has hours, a, b, who."),
        ([], "--times hours"),
        (["--times", "hours", "--columns", "a,who"], "row 0 holds 'cell'"),
        (["--times", "hours", "--start", "here"], "neither a row number"),
        (["--times", "hours", "--start", "1,2,3"], "3 coordinates, but 2 columns"),
        (["--times", "hours", "--start", "150"], "there are 150 rows"),
        (["--times", "hours", "--start", "time=3"], "write time=0"),
        (["--times", "hours", "--pca", "9"], "--pca"),
        (["--times", "hours", "--eps", "-1"], "eps"),
    ],
)
def test_wrong_options_are_told_in_one_line(options, said, table, tmp_path, capsys):
    assert main(["fit", str(table), *options, "--quiet", "--out", str(tmp_path / "none")]) == 2
    assert said in one_line(capsys)
    assert not (tmp_path / "none").exists()


def test_a_missing_value_is_named(tmp_path, capsys):
    path = tmp_path / "gap.csv"
    path.write_text("t,x\n0,1\n1,\n2,NA\n")
    assert main(["fit", str(path), "--times", "t"]) == 2
    assert "'x' of" in (said := one_line(capsys))
    assert "2 rows, the first is row 1" in said


def test_row_numbers_of_pandas_are_no_coordinate(data, tmp_path):
    lines = [f"{k},{a},{b},{t}" for k, ((a, b), t) in enumerate(zip(data.X, data.times, strict=True))]
    (tmp_path / "index.csv").write_text("\n".join([",gene_a,gene_b,hours", *lines]))
    assert read_table(tmp_path / "index.csv").names(None, "hours") == ["gene_a", "gene_b"]


def test_a_stray_word_does_not_drop_its_column(data, tmp_path, capsys):
    lines = [f"{a},{b},{t},leaf" for (a, b), t in zip(data.X, data.times, strict=True)]
    lines[7] = lines[7].replace(lines[7].split(",")[1], "broken")
    (tmp_path / "stray.csv").write_text("\n".join(["gene_a,gene_b,hours,kind", *lines]))
    code = main(["fit", str(tmp_path / "stray.csv"), "--times", "hours", "--out", str(tmp_path / "out")])
    assert code == 2
    assert "column 'gene_b'" in (said := capsys.readouterr().err)
    assert "row 7 holds 'broken'" in said


def test_a_column_with_a_few_words_is_left_out(tmp_path):
    lines = [f"{k},{k / 2},{'seen' if k % 5 == 0 else ''},{k % 3}" for k in range(20)]
    (tmp_path / "notes.csv").write_text("\n".join(["gene_a,gene_b,note,hours", *lines]))
    assert read_table(tmp_path / "notes.csv").names(None, "hours") == ["gene_a", "gene_b"]


def test_debug_shows_the_traceback(table, tmp_path):
    for command in (["--debug", "fit", str(table)], ["fit", str(table), "--debug"]):
        with pytest.raises(ValueError, match="--times"):
            main(command)


def test_other_faults_end_with_1(table, monkeypatch, capsys):
    monkeypatch.setattr(cli, "read_table", lambda _: 1 / 0)
    assert main(["fit", str(table)]) == 1
    assert "ZeroDivisionError" in one_line(capsys)


def test_drawing_without_matplotlib_is_told_before_the_work(table, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for command in (["demo"], ["fit", str(table), "--times", "hours"]):
        assert main([*command, "--out", str(tmp_path / "none")]) == 1
        said = capsys.readouterr()
        assert said.err == "ordiff: drawing needs matplotlib: pip install 'ordiff[plot]'.\n"
        assert said.out == ""
    assert not (tmp_path / "none").exists()


# ------------------------------------------------------------------------------------------------- demo, reproduce


@pytest.fixture(scope="module")
def learned(data):
    """A run of the learned cases: of a small problem, quickly."""
    from ordiff.experiments import Learned

    problem = replace(data, noise=1.4 + 0.01 * data.X[:, 0])
    with warnings.catch_warnings(action="ignore", category=od.OrdiffWarning):
        model = od.SnapshotSDE(data.start, noise="constant", max_iter=30).fit(data.X, data.times)
    levels = np.array([1.0, 1.4, 2.0])
    profile = Profile(levels, np.array([3.0, 0.0, 4.0]), 1.4, (1.1, float("inf")))
    return Learned("designed states", 0, problem, model, problem.noise + 0.01, 1.0, profile)


def test_demo_compares_with_the_truth(learned, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ordiff.experiments.nonlinear", lambda *_, **__: learned)
    assert main(["demo", "--quiet", "--out", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"mean ordering +\d+\.\d+ +\d+\.\d+ +\d+\.\d% rms", out)
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["demo.png", "model.npz", "report.html"]
    for name in ("demo.png", "report.html"):
        assert str(tmp_path / "new" / name) in out
    assert (tmp_path / "new" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_reproduce_learned_cases(learned, tmp_path, capsys, monkeypatch):
    """Every figure is drawn and every number is in the table."""
    monkeypatch.setattr("ordiff.experiments.nonlinear", lambda *_, setting: replace(learned, setting=setting))
    monkeypatch.setattr("ordiff.experiments.ornstein_uhlenbeck", lambda *_: learned)
    for case, figures in (("nl", ["nl-truth", "nl-results"]), ("ou", ["ou"])):
        assert main(["reproduce", case, "--seeds", "1", "--out", str(tmp_path)]) == 0
        for figure in figures:
            assert (tmp_path / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
            assert (tmp_path / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
        rows = json.loads((tmp_path / f"{case}.json").read_text())
        assert {"paper", "ours", "truth"} < set(rows[0])
        assert (tmp_path / f"{case}.md").read_text() in capsys.readouterr().out
    papers = {row["paper"] for row in json.loads((tmp_path / "nl.json").read_text())}
    assert {13.84, 0.0667, 0.0888, 0.13, 0.903, 13.8, 0.0588, 0.0811, 0.119, 0.921, 0.9, 0.99, 0.03} <= papers
    assert main(["reproduce", "nl", "--out", str(tmp_path)]) == 2
    assert "--force" in one_line(capsys)


@pytest.mark.slow
def test_reproduce_spiral(tmp_path, capsys):
    assert main(["reproduce", "spiral", "--out", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert {"spiral-velocity.pdf", "spiral-curvature.png", "spiral.md", "spiral.json"} <= names
    assert re.search(r"velocity \(covariance\), relative error far from edges \| – \| 0.0022", capsys.readouterr().out)


# ------------------------------------------------------------------------------------------------- tables


def write_csv(path, names, values, comma=","):
    lines = [comma.join(names), *(comma.join(map(str, row)) for row in values)]
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
    (name,) = table._find(times)
    np.testing.assert_array_equal(table.numbers(name), t)
    used = table.names(columns, name)
    np.testing.assert_allclose(np.column_stack([table.numbers(c) for c in used]), X)


def test_a_table_without_a_header_loses_no_row(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("1,2\n3,4\n")
    np.testing.assert_array_equal(read_table(path).numbers("x0"), [1, 3])


def test_genes_are_used_when_there_are_no_components(tmp_path):
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(np.arange(8.0).reshape(4, 2), obs={"day": [0, 0, 1, 1]})
    cells.var_names = ["GATA4", "SOX2"]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    table = read_table(tmp_path / "cells.h5ad")
    assert table.names(None, "day") == ["GATA4", "SOX2"]
    np.testing.assert_array_equal(table.numbers("SOX2"), [1, 3, 5, 7])


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


# ------------------------------------------------------------------------------------------------- tune


def test_tune_shows_the_curves(table, fitted, tmp_path, capsys):
    options = ["--times", "hours", "--neighbors", "80", "--out", str(tmp_path)]
    assert main(["tune", str(table), *options]) == 0
    out = capsys.readouterr().out
    assert "eps" in out
    assert "Without a drift, with noise" in out
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")
    assert main(["tune", str(table), *options, "--model", str(fitted / "model.npz"), "--force"]) == 0
    assert "Ordering and noise of" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["steps.csv", "steps.png", "summary.txt"]


def test_import_is_light():
    """Neither scikit-learn nor matplotlib is loaded until it is used."""
    heavy = ("sklearn", "matplotlib", "scipy.spatial", "pynndescent")
    code = f"import sys, ordiff; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
