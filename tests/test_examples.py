"""The example scripts run, and write what they say."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

import ordiff as od

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.slow
def test_gallery(tmp_path, monkeypatch, capsys):
    """All of it, on smaller grids."""
    torus = od.datasets.torus
    monkeypatch.setattr(od.datasets, "torus", lambda side: torus(side // 2))
    monkeypatch.setattr("ordiff.tuning._MAX_PAIRS", 200_000)
    monkeypatch.setattr(sys, "argv", ["gallery.py", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "gallery.py"), run_name="__main__")
    written = [line for line in capsys.readouterr().out.splitlines() if line.endswith(".png")]
    assert sorted(Path(line).name for line in written) == ["graphs.png", "orders.png", "planes.png", "steps.png"]
    for line in written:
        assert Path(line).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_single_cell(tmp_path, monkeypatch, capsys):
    table = os.environ.get("ORDIFF_BARGAJE")
    if table is None:
        pytest.skip("set ORDIFF_BARGAJE to the table of Bargaje et al. 2017 to run it (some minutes)")
    monkeypatch.setattr(sys, "argv", ["single_cell.py", table, str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "single_cell.py"), run_name="__main__")
    text = capsys.readouterr().out
    assert "Left out: 72 h" in text
    assert (tmp_path / "bargaje.png").read_bytes().startswith(b"\x89PNG")
