"""The peers' environment, .venv-peers, and calls into it.

datafold needs numpy below 2, so it cannot share ours. It is set up on first use from peers-constraints.txt; data go
back and forth in .npz files. JAX and PyTorch, which only the benchmark of learning needs, are added when it runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import progress

_HERE = Path(__file__).parent
_CONSTRAINTS = _HERE / "peers-constraints.txt"
_VENV = _HERE.parent / ".venv-peers"
_PYTHON = _VENV / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def setup(*more: str) -> None:
    """Make the environment, unless it is there and newer than its constraints; with more packages, if asked."""
    packages = ("datafold", "pydiffmap", *more)
    ready = _VENV / "-".join([".ready", *more])
    if ready.exists() and ready.stat().st_mtime >= _CONSTRAINTS.stat().st_mtime:
        return
    progress(f"setting up {_VENV.name} with {', '.join(packages)} (a minute or more)")
    subprocess.run([sys.executable, "-m", "venv", _VENV], check=True)
    install = [_PYTHON, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*install, "--constraint", _CONSTRAINTS, *packages], check=True)
    for made in (_VENV / ".ready", ready):
        made.touch()


def call(task: str, worker: str = "_peer_worker.py", **arrays: Any) -> dict[str, np.ndarray]:
    """Run a function of a worker file on these arrays in the peers' environment."""
    setup()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "input.npz"), Path(folder, "output.npz")
        np.savez(source, **arrays)
        subprocess.run([_PYTHON, _HERE / worker, task, source, target], check=True)
        with np.load(target) as result:
            return dict(result)


def versions(worker: str = "_peer_worker.py") -> dict[str, str]:
    return {name: str(value) for name, value in call("versions", worker).items()}
