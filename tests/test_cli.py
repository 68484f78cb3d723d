from __future__ import annotations

import re
import subprocess
import sys

import pytest

import ordiff
from ordiff.cli import main


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"ordiff {ordiff.__version__}\n"


def test_demo_writes_its_pictures(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    for name in ("torus.png", "spiral.png"):
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG")
        assert name in out
    assert re.search(r"isotropic, Richardson +0.002 +0.00006 +0.00017", out)
    assert re.search(r"covariance +0.23% +4.9%", out)


def test_an_error_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("ordiff: ")
    assert error.count("\n") == 1
    with pytest.raises(FileExistsError):
        main(["--debug", "demo", "--out", str(tmp_path / "file")])


def test_drawing_without_matplotlib_is_told_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.err == "ordiff: drawing needs matplotlib: pip install 'ordiff[plot]'.\n"
    assert said.out == ""


def test_import_is_light():
    """Neither scikit-learn nor matplotlib is loaded until it is used."""
    heavy = ("sklearn", "matplotlib", "scipy.spatial", "pynndescent")
    code = f"import sys, ordiff; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
