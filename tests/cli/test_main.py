from __future__ import annotations

import subprocess
import sys

import pytest

import ordiff
from ordiff.cli import main, samples


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
    assert capsys.readouterr().out.count("\n") <= 45


def test_debug_shows_the_traceback(table, tmp_path):
    for command in (["--debug", "fit", str(table)], ["fit", str(table), "--debug"]):
        with pytest.raises(ValueError, match="--times"):
            main(command)


def test_other_faults_end_with_1(table, monkeypatch, error_line):
    monkeypatch.setattr(samples, "read_table", lambda _: 1 / 0)
    assert main(["fit", str(table)]) == 1
    assert "ZeroDivisionError" in error_line()


def test_ctrl_c_before_there_is_anything(table, tmp_path, monkeypatch, error_line):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(samples, "read_table", stop)
    assert main(["fit", str(table), "--times", "hours", "--out", str(tmp_path / "none")]) == 130
    assert "nothing was written" in error_line()
    assert not (tmp_path / "none").exists()


def test_drawing_without_matplotlib_is_told_before_the_work(table, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for command in (["demo"], ["fit", str(table), "--times", "hours"]):
        assert main([*command, "--out", str(tmp_path / "none")]) == 1
        said = capsys.readouterr()
        assert said.err == "ordiff: drawing needs matplotlib: pip install 'ordiff[plot]'.\n"
        assert said.out == ""
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("module", ["ordiff", "ordiff.cli"])
def test_import_is_light(module):
    """Neither scikit-learn nor matplotlib is loaded until it is used."""
    heavy = ("sklearn", "matplotlib", "scipy.spatial", "faiss")
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
