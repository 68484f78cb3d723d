"""Commands that ask questions of a fitted model: check, fates, simulate, predict, profile."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest

import ordiff as od
from ordiff.cli import main
from ordiff.cli.preparation import Preparation
from ordiff.learning.check import FitCheck


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_check_prints_what_is_predicted_beside_what_was_observed(fitted, tmp_path, capsys):
    assert main(["check", str(fitted), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Check: passed")
    assert "mean of a" in printed  # a column's name, not x1
    rows = rows_of(tmp_path / "check.csv")
    table = od.load(fitted / "model.npz").check_.table
    assert [float(row["z"]) for row in rows] == pytest.approx([row.z for row in table], rel=1e-6)
    assert (tmp_path / "check.png").read_bytes().startswith(b"\x89PNG")


def test_fates_are_those_of_the_model(fitted, tmp_path, capsys):
    ends = ["--end", "left: a < -1", "--end", "up: a >= -1 & b > 4"]
    assert main(["fates", str(fitted / "model.npz"), *ends, "--out", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "fates.csv")
    model = od.load(fitted / "model.npz")
    expected = model.fate_probabilities(
        {"left": lambda x: x[:, 0] < -1, "up": lambda x: (x[:, 0] >= -1) & (x[:, 1] > 4)}
    )
    np.testing.assert_allclose([[float(row["left"]), float(row["up"])] for row in rows], expected, atol=1e-6)
    printed = capsys.readouterr().out
    assert "From the start: left" in printed
    assert "Note: 100% of the start is in 'up' already." in printed


def test_answers_of_a_model_that_is_not_trusted_say_so(fitted, table, tmp_path, capsys):
    model = od.load(fitted / "model.npz")
    model.check_ = FitCheck(False, ("give Solver(eps=0.1) or less.",), ())
    model.save(tmp_path / "model.npz")
    shutil.copy(fitted / "preparation.npz", tmp_path)
    ends = ["--end", "left: a < -1", "--end", "right: a > 2"]
    for command in (
        ["fates", str(tmp_path), *ends],
        ["simulate", str(tmp_path)],
        ["predict", str(tmp_path), str(table)],
    ):
        assert main(command) == 3
        assert "NOT TRUSTED: give --eps 0.1 or less." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([], 'name two ends or more, such as --end "low: a < 0"'),
        (["left: a < 0", "right: c > 0"], "there is no 'c'; the model has a, b"),
        (["left: a < 0", "right: a > big"], "'big' is no number"),
        (["left: a < 0", "left: a > 0"], "a name of its own"),
        (["left: a < 0", "right: nothing"], "is no condition"),
    ],
)
def test_wrong_ends_are_told(ends, said, fitted, tmp_path, error_line):
    options = [part for end in ends for part in ("--end", end)]
    assert main(["fates", str(fitted), *options, "--out", str(tmp_path)]) == 2
    assert said in error_line()


def test_simulate_writes_paths_that_begin_at_the_start(fitted, tmp_path, capsys):
    command = ["simulate", str(fitted), "--paths", "7", "--horizon", "0.5", "--out", str(tmp_path)]
    assert main(command) == 0
    rows = rows_of(tmp_path / "paths.csv")
    first = [row for row in rows if float(row["time"]) == 0]
    assert len(first) == 7
    assert float(first[0]["a"]) == pytest.approx(5, abs=0.6)
    assert "7 paths" in capsys.readouterr().out
    assert main(command) == 2  # not overwritten unasked


def test_predict_at_rows_of_a_table(fitted, table, tmp_path, capsys):
    assert main(["predict", str(fitted), str(table), "--out", str(tmp_path)]) == 0
    rows = rows_of(tmp_path / "predictions.csv")
    model = od.load(fitted / "model.npz")
    np.testing.assert_allclose([float(row["ordering"]) for row in rows], model.ordering_, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose([float(row["drift_b"]) for row in rows], model.drift_[:, 1], rtol=1e-5, atol=1e-5)
    assert capsys.readouterr().out.startswith("150 points; ordering: median")


def test_profile_learns_again_and_says_the_interval(fitted, tmp_path, capsys):
    assert main(["profile", str(fitted), "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "Learning again" in said
    assert "95% interval" in said
    levels = [float(row["noise"]) for row in rows_of(tmp_path / "profile.csv")]
    assert levels[4] == pytest.approx(od.load(fitted / "model.npz").noise_[0], rel=1e-6)  # the same fit again


def test_a_model_alone_tells_what_it_lacks(fitted, tmp_path, error_line):
    (tmp_path / "alone.npz").write_bytes((fitted / "model.npz").read_bytes())
    assert main(["profile", str(tmp_path / "alone.npz")]) == 2
    assert "give the folder that ordiff fit wrote" in error_line()
    assert main(["check", str(tmp_path / "none")]) == 2
    assert "there is no model" in error_line()


def test_a_preparation_comes_back_from_its_file(tmp_path, rng):
    made = Preparation(("a", "b"), rng.normal(size=2), rng.uniform(1, 2, size=2), times=np.arange(5.0), time="h",
                       start=np.array([True, False, True, False, False]))  # fmt: skip
    made.save(tmp_path / "p.npz", 5)
    back = Preparation.load(tmp_path / "p.npz")
    x = rng.normal(size=(3, 2))
    np.testing.assert_allclose(back.points(back.transform(x)), x)
    assert (back.columns, back.time, back.standardised) == (("a", "b"), "h", True)
    np.testing.assert_array_equal(back.start, [1, 0, 1, 0, 0])
    (tmp_path / "p.npz").write_bytes(b"broken")
    with pytest.raises(ValueError, match="not written by ordiff fit"):
        Preparation.load(tmp_path / "p.npz")
