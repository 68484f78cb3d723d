from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial

import pytest

from ordiff import experiments
from ordiff.cli import main


@pytest.mark.slow
def test_reproduce_learned_cases(learned, tmp_path, capsys, monkeypatch, error_line):
    """Every figure is drawn and every number is in the table."""
    monkeypatch.setattr("ordiff.experiments.nonlinear", lambda *_, setting: replace(learned, setting=setting))
    monkeypatch.setattr("ordiff.experiments.ornstein_uhlenbeck", lambda *_: learned)
    for case, figures in (("nl", ["nl-truth", "nl-results"]), ("ou", ["ou"])):
        assert main(["reproduce", case, "--seeds", "1", "--out", str(tmp_path)]) == 0
        for figure in figures:
            assert (tmp_path / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
            assert (tmp_path / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
        rows = json.loads((tmp_path / f"{case}.json").read_text())
        assert {"paper", "ours", "truth"} < set(rows[0])
        assert (tmp_path / f"{case}.md").read_text() in capsys.readouterr().out
    papers = {row["paper"] for row in json.loads((tmp_path / "nl.json").read_text())}
    assert {13.84, 0.0667, 0.0888, 0.13, 0.903, 13.8, 0.0588, 0.0811, 0.119, 0.921, 0.9, 0.99, 0.03} <= papers
    assert main(["reproduce", "nl", "--out", str(tmp_path)]) == 2
    assert "--force" in error_line()


@pytest.mark.slow
def test_reproduce_spiral(tmp_path, capsys, monkeypatch):
    """Of few samples; tests/test_experiments.py has the numbers of the paper's."""
    monkeypatch.setattr(experiments, "spiral", partial(experiments.spiral, 50))
    assert main(["reproduce", "spiral", "--out", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert {"spiral-velocity.pdf", "spiral-curvature.png", "spiral.md", "spiral.json"} <= names
    assert re.search(r"velocity \(covariance\), relative error far from edges \| – \| \d", capsys.readouterr().out)
