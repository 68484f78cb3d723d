from __future__ import annotations

import re

import pytest

from ordiff.cli import main


@pytest.mark.slow
def test_demo_compares_with_the_truth(learned, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ordiff.experiments.nonlinear", lambda *_, **__: learned)
    assert main(["demo", "--quiet", "--out", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"mean ordering +\d+\.\d+ +\d+\.\d+ +\d+\.\d% rms", out)
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["demo.png", "model.npz", "report.html"]
    for name in ("demo.png", "report.html"):
        assert str(tmp_path / "new" / name) in out
    assert (tmp_path / "new" / "demo.png").read_bytes().startswith(b"\x89PNG")
