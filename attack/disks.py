"""Saves that are killed, and those to a full disk or a folder that cannot be written to."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import ordiff as od
from attack.outcomes import ROOT, limit_memory, say
from small_model import small_model

SAVER = """
import sys
import ordiff as od
model = od.load(sys.argv[1])
print("ready", flush=True)
while True:
    model.save(sys.argv[2])
"""


def main(start: int, stop: int) -> None:
    limit_memory()
    model = small_model()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.npz"
        model.save(source)
        for number in range(start, stop):
            place = Path(folder) / str(number)
            place.mkdir()
            (killed, full, unwritable)[number % 3 if number % 10 == 0 else 0](model, source, place, number)


def killed(model: od.SnapshotSDE, source: Path, place: Path, number: int) -> None:
    """By SIGKILL, or by SIGTERM, which leaves nothing behind."""
    rng, path = np.random.default_rng(number), place / "model.npz"
    how = signal.SIGTERM if number % 2 else signal.SIGKILL
    saver = subprocess.Popen([sys.executable, "-c", SAVER, source, path], cwd=ROOT, stdout=subprocess.PIPE)
    assert saver.stdout is not None
    saver.stdout.readline()
    time.sleep(float(rng.uniform(0, 0.3)))
    saver.send_signal(how)
    saver.communicate()
    left = [file.name for file in place.iterdir() if file.name != "model.npz"]
    same = not path.exists() or np.array_equal(od.load(path).ordering_, model.ordering_)
    say("accepted" if same and not (left and how is signal.SIGTERM) else "wrong", f"{number}: {how.name}, left {left}")


def full(model: od.SnapshotSDE, source: Path, place: Path, number: int) -> None:
    """A disk on which files cannot grow beyond 10 kB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        model.save(place / "model.npz")
        outcome = "wrong"
    except OSError:
        outcome = "refused"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    say("wrong" if list(place.iterdir()) else outcome, f"{number}: full")


def unwritable(model: od.SnapshotSDE, source: Path, place: Path, number: int) -> None:
    """A folder without rights, or, for root, who has all, one of the kernel's."""
    place.chmod(0o500)
    target = place if os.geteuid() else Path("/proc")
    try:
        model.save(target / "model.npz")
        say("wrong", f"{number}: written to {target}")
    except OSError as error:
        say("refused" if str(target) in str(error) else "cryptic", f"{number}: {error}")
    finally:
        place.chmod(0o700)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
