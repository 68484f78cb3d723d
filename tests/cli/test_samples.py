from __future__ import annotations

import pytest

from ordiff.cli import main


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
def test_wrong_options_are_told_in_one_line(options, said, table, tmp_path, error_line):
    assert main(["fit", str(table), *options, "--quiet", "--out", str(tmp_path / "none")]) == 2
    assert said in error_line()
    assert not (tmp_path / "none").exists()
