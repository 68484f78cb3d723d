"""SIGKILL at any moment of a fit with a checkpoint: it goes on, with the same bits as one that was not killed."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import ordiff as od
from attack.outcomes import limit_memory, say
from small_model import small_model

SETTINGS = {"noise": "field", "smoothness": od.Smoothness(basis=24), "solver": od.Solver(eps=0.1, max_iter=20)}


def main(start: int, stop: int) -> None:
    limit_memory()
    warnings.simplefilter("ignore")
    whole = small_model(**SETTINGS)
    began = time.monotonic()
    small_model(**SETTINGS)
    seconds = time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder:
        for number in range(start, stop):
            path, rng = Path(folder) / f"{number}.npz", np.random.default_rng(number)
            for _ in range(1 + number % 3):  # up to three times in one fit
                killed(path, float(rng.uniform(0, seconds)))
            try:
                again = small_model(path, **SETTINGS)
            except Exception as error:
                say("cryptic", f"{number}: {type(error).__name__}: {error}")
                continue
            names = ("ordering_", "noise_", "drift_", "log_noise_std_", "history_")
            same = all(np.array_equal(getattr(again, name), getattr(whole, name)) for name in names)
            say("accepted" if same else "wrong", f"{number}: another result after a kill")


def killed(path: Path, seconds: float) -> None:
    """A fit in a process of its own that is killed after so many seconds, unless it is done before."""
    child = os.fork()
    if child == 0:
        small_model(path, **SETTINGS)
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
