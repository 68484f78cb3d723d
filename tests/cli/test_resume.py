"""`ordiff fit` that was killed, and `ordiff fit --resume`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ordiff as od
from ordiff.cli import fit, main
from processes import ONE_THREAD, environment


def stamp(path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def fit_and_kill(command: list[str], checkpoint, delay: float) -> None:
    """Kill the command so many seconds after it wrote its next checkpoint."""
    before = stamp(checkpoint)
    child = subprocess.Popen([sys.executable, "-m", "ordiff", *command], env=environment(**ONE_THREAD))
    give_up = time.monotonic() + 120
    while stamp(checkpoint) == before and child.poll() is None and time.monotonic() < give_up:
        time.sleep(0.002)
    time.sleep(delay)
    child.kill()
    assert child.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_a_fit_that_is_killed_goes_on_with_the_same_result(fitted, table, quick, tmp_path):
    command = ["fit", str(table), "--times", "hours", "--start", "5,5", "--out", str(tmp_path), *quick]
    for resume, delay in (([], 0.0), (["--resume"], 0.02)):
        fit_and_kill([*command, *resume], tmp_path / fit.CHECKPOINT, delay)
        assert (tmp_path / fit.CHECKPOINT).exists()
        assert not (tmp_path / "model.npz").exists()
    assert main([*command, "--resume"]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(fit.FILES)  # nothing of the killed is left
    with np.load(tmp_path / "model.npz") as again, np.load(fitted / "model.npz") as whole:
        assert set(again) == set(whole)
        for name in whole:
            np.testing.assert_array_equal(again[name], whole[name], err_msg=name)
    assert (tmp_path / "summary.txt").read_text() == (fitted / "summary.txt").read_text()


def test_without_a_checkpoint_it_says_that_the_fit_began_anew(fitted, table, quick, tmp_path, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(
        "ordiff.cli.fit.write_results", lambda folder, model, samples, notes, options: told.extend(notes)
    )
    monkeypatch.setattr("ordiff.model.SnapshotSDE.fit", lambda *_, **__: od.load(fitted / "model.npz"))
    main(["fit", str(table), "--times", "hours", "--start", "5,5", "--out", str(tmp_path), "--resume", *quick])
    assert f"There was no {tmp_path / fit.CHECKPOINT} to go on from: the fit began anew." in told
