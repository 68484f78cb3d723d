from __future__ import annotations

from ordiff.cli import main
from ordiff.cli.readers import read_table


def test_a_missing_value_is_named(tmp_path, error_line):
    path = tmp_path / "gap.csv"
    path.write_text("t,x\n0,1\n1,\n2,NA\n")
    assert main(["fit", str(path), "--times", "t"]) == 2
    assert "'x' of" in (said := error_line())
    assert "2 rows, the first is row 1" in said


def test_row_numbers_of_pandas_are_no_coordinate(data, tmp_path):
    lines = [f"{k},{a},{b},{t}" for k, ((a, b), t) in enumerate(zip(data.X, data.times, strict=True))]
    (tmp_path / "index.csv").write_text("\n".join([",gene_a,gene_b,hours", *lines]))
    assert read_table(tmp_path / "index.csv").coordinates(None, ["hours"]) == ["gene_a", "gene_b"]


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
    assert read_table(tmp_path / "notes.csv").coordinates(None, ["hours"]) == ["gene_a", "gene_b"]
