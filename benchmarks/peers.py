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


def setup_single_cell(*more: str) -> Path:
    """Make the environment of scanpy and CellRank, that of `make test-single-cell`, with more packages; its Python."""
    root = _HERE.parent
    subprocess.run(["make", "--silent", "-C", root, ".venv-single-cell/.ready"], check=True, stdout=sys.stderr)
    python = root / ".venv-single-cell" / _PYTHON.relative_to(_VENV)
    if more:
        install = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*install, "--constraint", root / "constraints-single-cell.txt", *more], check=True)
    return python


def call(
    task: str, worker: str = "_peer_worker.py", python: Path | None = None, **arrays: Any
) -> dict[str, np.ndarray]:
    """Run a function of a worker file on these arrays in the peers' environment, or another."""
    if python is None:
        setup()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "input.npz"), Path(folder, "output.npz")
        np.savez(source, **arrays)
        subprocess.run([python or _PYTHON, _HERE / worker, task, source, target], check=True)
        with np.load(target) as result:
            return dict(result)


def versions(worker: str = "_peer_worker.py") -> dict[str, str]:
    return {name: str(value) for name, value in call("versions", worker).items()}
