"""Processes of their own: how many threads they may use, and an end for those that hang.

It must not import NumPy: conftest.py takes the names from here before anything reads them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

TESTS = Path(__file__).parent
ONE_THREAD = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


CACHES = TESTS.parent / ".numba_cache"


def own_cache(worker: str) -> Path:
    """The worker's folder for compiled loops: numba's cache does not bear two processes that compile one function.

    It starts as a copy of the one that warm.py fills, anew whenever that has changed: entries of the two do not mix.
    """
    shared, own = CACHES / "shared", CACHES / worker
    stamp = own / "copied"
    newest = str(max((file.stat().st_mtime_ns for file in shared.rglob("*.nb?")), default=0))
    if not stamp.exists() or stamp.read_text() != newest:
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(parents=True)
        if shared.exists():
            shutil.copytree(shared, own, dirs_exist_ok=True)
        stamp.write_text(newest)
    return own


def environment(**changes: str) -> dict[str, str]:
    """That of this process with the tests importable, without limits on threads or news of pytest, with ``changes``."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ONE_THREAD and not name.startswith("PYTEST")
    }
    path = os.pathsep.join(filter(None, [str(TESTS), kept.get("PYTHONPATH")]))
    return kept | {"PYTHONPATH": path} | changes


def run(command: list[str], environ: dict[str, str], seconds: float) -> str:
    """What the command prints; fails if it fails, or if it or a process that it started is not done in time."""
    child = subprocess.Popen(
        command,
        env=environ,
        cwd=TESTS.parent,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        printed, _ = child.communicate()
        raise AssertionError(f"not done in {seconds:g} s: {command}\n{printed}") from None
    assert child.returncode == 0, f"{command} ended with {child.returncode}:\n{printed}"
    return printed
