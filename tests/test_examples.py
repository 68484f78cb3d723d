"""The example scripts run, and write what they say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_gallery(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gallery.py", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "gallery.py"), run_name="__main__")
    written = [line for line in capsys.readouterr().out.splitlines() if line.endswith(".png")]
    assert sorted(Path(line).name for line in written) == ["graphs.png", "orders.png", "planes.png", "steps.png"]
    for line in written:
        assert Path(line).read_bytes().startswith(b"\x89PNG")
