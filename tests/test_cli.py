from __future__ import annotations

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


@pytest.mark.filterwarnings("ignore:eps = ")  # the steps are those of the full size
def test_demo_writes_its_pictures(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "new"), "--side", "40"]) == 0
    out = capsys.readouterr().out
    for name in ("torus.png", "spiral.png"):
        assert (tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG")
        assert name in out
    assert "isotropic, Richardson" in out


def test_an_error_is_one_line(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path), "--side", "1"]) == 1
    assert capsys.readouterr().err == "ordiff: side must be at least 3; got 1.\n"
    with pytest.raises(ValueError, match="side must be at least 3"):
        main(["--debug", "demo", "--out", str(tmp_path), "--side", "1"])


def test_import_is_light():
    """Neither scikit-learn nor matplotlib is loaded until it is used."""
    heavy = ("sklearn", "matplotlib", "scipy.spatial", "pynndescent")
    code = f"import sys, ordiff; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
