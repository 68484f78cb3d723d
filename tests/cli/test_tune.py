from __future__ import annotations

from ordiff.cli import main


def test_tune_shows_the_curves(table, fitted, tmp_path, capsys):
    options = ["--times", "hours", "--neighbors", "80", "--out", str(tmp_path)]
    assert main(["tune", str(table), *options]) == 0
    out = capsys.readouterr().out
    assert "eps" in out
    assert "Without a drift, with noise" in out
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")
    assert main(["tune", str(table), *options, "--model", str(fitted / "model.npz"), "--force"]) == 0
    assert "Columns, ordering and noise of" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["steps.csv", "steps.png", "summary.txt"]
