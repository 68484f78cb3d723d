"""The page on single cells, whose code needs scanpy."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

pytest.importorskip("scanpy")

PAGE = Path(__file__).parent.parent.parent / "docs" / "single_cell.md"


def test_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    with warnings.catch_warnings(action="ignore"):  # of scanpy, and of fits that are not trusted
        for number, block in enumerate(blocks):
            exec(compile(block, f"single_cell.md, block {number}", "exec"), names)
    assert len(blocks) == 5
    assert list(names["fates"].columns) == ["Mo", "Ery", "Mk", "Neu"]
    assert "Check:" in capsys.readouterr().out
