from __future__ import annotations

import numpy as np
import pytest

from ordiff.cli import main
from ordiff.cli.parser import make_parser
from ordiff.cli.samples import read_in_like_units, read_samples


@pytest.fixture
def read(tmp_path):
    """Reads a table of text with the options of fit."""

    def samples(text, *options):
        path = tmp_path / "table.csv"
        path.write_text(text)
        return read_samples(make_parser().parse_args(["fit", str(path), *options]), times_required=True)

    return samples


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--times", "days"], "no column 'days'. It has hours, a, b, who."),
        ([], "--times hours"),
        (["--times", "hours", "--columns", "a,who"], "row 0 holds 'cell'"),
        (["--times", "hours", "--start", "here"], "neither a row number"),
        (["--times", "hours", "--start", "1,2,3"], "3 coordinates, but 2 columns"),
        (["--times", "hours", "--start", "-1,-2,-3"], "3 coordinates, but 2 columns"),
        (["--times", "hours", "--start=-1.5,-2,-3"], "3 coordinates, but 2 columns"),
        (["--times", "hours", "--start", "150"], "there are 150 rows"),
        (["--times", "hours", "--start", "time=3"], "write time=0"),
        (["--times", "hours", "--pca", "9"], "--pca"),
        (["--times", "hours", "--eps", "-1"], "eps"),
        (["--times", "hours", "--time-density", "uniform:0:2"], "one of --times, --window"),
        (["--time-density", "normal:0:2", "--start", "1"], "write uniform:FROM:TO"),
        (["--time-density", "uniform:2:1", "--start", "1"], "write uniform:FROM:TO"),
        (["--time-density", "uniform:0:2"], "say where the process starts"),
        (["--times", "who"], "no times: 'cell'"),
        (["--times", "hours", "--exclude", "a,b"], "no numeric columns"),
    ],
)
def test_wrong_options_are_told_in_one_line(options, said, table, tmp_path, error_line):
    assert main(["fit", str(table), *options, "--quiet", "--out", str(tmp_path / "none")]) == 2
    assert said in error_line()
    assert not (tmp_path / "none").exists()


def test_labels_of_times_and_ids(read):
    found = read("stage,id,a,b\nD4.0,1,1,2\nD5.5,2,3,4\nD4,3,0,1\n", "--times", "stage")
    np.testing.assert_array_equal(found.times, [0, 1.5, 0])
    assert found.preparation.time == "days"
    assert found.names == ("a", "b")
    assert "left out: id" in found.notes[0]
    hours = read("stage,a\n24h,1\n2 d,3\n36 hours,0\n", "--times", "stage", "--start", "1")
    np.testing.assert_array_equal(hours.times, [24, 48, 36])
    assert hours.start == 1


def test_rows_with_missing_values(read):
    text = "t,a,b\n0,1,2\n1,NA,4\n2,5,6\n,7,8\n"
    with pytest.raises(ValueError, match=r"2 columns .* 'a' has no finite number in 1 row,.*'t' has no finite"):
        read(text, "--times", "t")
    found = read(text, "--times", "t", "--drop-na", "--start", "2")
    np.testing.assert_array_equal(found.X, [[1, 2], [5, 6]])
    np.testing.assert_array_equal(found.preparation.rows, [0, 2])
    assert found.start == 1  # row 2 of the table
    assert "2 rows with missing values were left out." in found.notes


def test_all_bad_columns_are_named(read):
    text = "t,a,b,c\n0,1,2,3\n1,oops,4,inf\n2,5,6,7\n3,4,5,6\n"
    with pytest.raises(ValueError, match=r"2 columns .*'a' is not numeric: row 1 holds 'oops'.*'c' has no finite"):
        read(text, "--times", "t")
    assert read(text, "--times", "t", "--exclude", "a,c").names == ("b",)


def test_standardised_columns_keep_their_units(read, rng):
    x = rng.normal(size=(50, 2)) * [1, 1000] + [5, -300]
    text = "t,a,b\n" + "".join(f"{k},{a},{b}\n" for k, (a, b) in enumerate(x))
    found = read(text, "--times", "t", "--standardize")
    np.testing.assert_allclose(found.X.std(axis=0), 1)
    np.testing.assert_allclose(found.preparation.points(found.X), x)
    np.testing.assert_allclose(found.preparation.vectors(np.ones((1, 2))), [x.std(axis=0)])
    assert set(found.preparation.noise(np.ones(50))) == {"noise_a", "noise_b"}
    point = read(text, "--times", "t", "--standardize", "--pca", "2", "--start=5,-300")
    np.testing.assert_allclose(point.start, point.preparation.transform(np.array([[5.0, -300.0]]))[0])


def test_windows_and_densities_of_times(read):
    text = "from,to,a\n1,2,3\n1,3,4\n4,5,6\n"
    found = read(text, "--window", "from", "to", "--start", "3.5")
    np.testing.assert_array_equal(found.times, [[1, 2], [1, 3], [4, 5]])
    assert found.names == ("a",)
    uniform = read(text, "--time-density", "uniform:0:2", "--columns", "a", "--start", "0")
    assert (uniform.times, uniform.horizon) == (None, 2.0)
    late = read(text, "--time-density", "uniform:1:2", "--columns", "a", "--start", "0")
    np.testing.assert_array_equal(late.times, [[1, 2]] * 3)


def test_columns_in_different_units_are_standardised_and_said_to_be(tmp_path, rng):
    t = rng.uniform(0, 3, 300)
    x = np.column_stack([rng.normal(size=300) * (1 + t), 3e4 + 1e4 * rng.normal(size=300) * (1 + t)])
    path = tmp_path / "switch.csv"
    path.write_text("t,mrna,protein\n" + "".join(f"{a},{b},{c}\n" for a, (b, c) in zip(t, x, strict=True)))

    def read_alike(*options):
        return read_in_like_units(
            make_parser().parse_args(["fit", str(path), "--times", "t", *options]), times_required=True
        )

    found = read_alike()
    np.testing.assert_allclose(found.X.std(axis=0), 1)
    assert "--no-standardize" in found.notes[-1]
    np.testing.assert_allclose(read_alike("--no-standardize").X, x)
    np.testing.assert_allclose(read_alike("--columns", "mrna").X, x[:, :1])


def test_standardised_columns_ask_for_a_noise_with_a_direction(read):
    text = "t,a,b\n0,1,2\n1,2,700\n2,5,60\n"
    assert any("--noise tensor" in note for note in read(text, "--times", "t", "--standardize").notes)
    assert not any("--noise" in n for n in read(text, "--times", "t", "--standardize", "--noise", "tensor").notes)
