from __future__ import annotations

import csv
import json
import re
from contextlib import nullcontext

import numpy as np

import ordiff as od
from ordiff.cli import fit, main
from ordiff.cli.preparation import Preparation
from ordiff.learning.progress import EvaluationCount


def test_fit_writes_everything_and_nothing_else(fitted, data):
    assert sorted(p.name for p in fitted.iterdir()) == sorted(fit.FILES)
    model = od.load(fitted / "model.npz")
    with (fitted / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "sample", "time", "ordering", "ordering_std", "noise", "noise_std", "drift_a", "drift_b"
    ]  # fmt: skip
    np.testing.assert_allclose([float(row["ordering"]) for row in rows], model.ordering_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose([float(row["drift_b"]) for row in rows], model.drift_[:, 1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose([float(row["time"]) for row in rows], data.times, rtol=1e-6)
    assert (fitted / "summary.txt").read_text().startswith(model.summary(time="hours"))  # by the name of the column
    assert (fitted / "overview.png").read_bytes().startswith(b"\x89PNG")
    found = re.search(r'id="summary">(.*?)</script>', (fitted / "report.html").read_text(), re.S)
    assert json.loads(found[1])["loss"] == model.loss_


def test_results_are_not_overwritten_unasked(fitted, table, error_line):
    before = (fitted / "model.npz").stat().st_mtime_ns
    assert main(["fit", str(table), "--times", "hours", "--out", str(fitted)]) == 2
    assert "use --force" in error_line()
    assert (fitted / "model.npz").stat().st_mtime_ns == before
    assert main(["fit", str(table), "--times", "hours", "--out", str(table)]) == 2
    assert "is a file" in error_line()


def test_a_wide_table_by_principal_components_from_the_earliest(data, tmp_path, capsys, rng, quick):
    wide = data.X @ rng.normal(size=(2, 12)) + 0.01 * rng.normal(size=(150, 12))
    hours = np.ceil(data.times * 2) / 2 + 24
    np.savez(tmp_path / "wide.npz", X=wide, t=hours)
    out = tmp_path / "out"
    command = ["fit", str(tmp_path / "wide.npz"), "--times", "t", "--pca", "2", "--out", str(out), *quick]
    assert main(command) == 0
    assert capsys.readouterr().out == ""
    model = od.load(out / "model.npz")
    assert model.n_features_in_ == 2
    assert len(model.start) == (hours == hours.min()).sum()
    assert model.horizon_ == hours.max() - hours.min()
    assert "Times are counted from the earliest, 24.5" in (out / "summary.txt").read_text()
    pca = Preparation.load(out / "preparation.npz")
    assert pca.components.shape == (2, 12)
    assert pca.columns[3] == "X3"
    np.testing.assert_allclose(pca.transform(wide), model.samples_)


def test_ctrl_c_leaves_the_best_so_far(table, tmp_path, monkeypatch, capsys):
    class Interrupting(EvaluationCount):
        def __call__(self, loss):
            super().__call__(loss)
            if self.n == 150:
                raise KeyboardInterrupt

    monkeypatch.setattr("ordiff.model.progress_bar", lambda _: nullcontext(Interrupting()))
    options = ["--times", "hours", "--start", "5,5", "--noise", "constant", "--out", str(tmp_path)]
    assert main(["fit", str(table), *options]) == 130
    assert "best so far" in capsys.readouterr().out
    model = od.load(tmp_path / "model.npz")
    assert model.interrupted_
    assert not model.converged_
    assert np.isfinite(model.ordering_).all()
