"""Threads, in processes of their own with the default number of them: nothing hangs, and all bits are the same."""

from __future__ import annotations

import os
import sys
import warnings

import numba
import numpy as np
import pytest

import parallel_work
import processes
from ordiff import _parallel

SECONDS = 300  # a busy machine that has yet to compile needs a third of it


def results(path, *ways, **environ):
    """What every run of the work gave: way and run → name → array."""
    command = [sys.executable, "-c", "import parallel_work; parallel_work.main()", str(path), *ways]
    processes.run(command, processes.environment(**environ), SECONDS)
    runs = {}
    with np.load(path) as arrays:
        for key in arrays:
            run, name = key.split("/")
            runs.setdefault(run, {})[name] = arrays[key]
    return runs


@pytest.fixture
def serial(monkeypatch, set_threads):
    """By one thread, in this process."""
    for name in ("_SHARED", "_PIECE"):  # set by the work
        monkeypatch.setattr(_parallel, name, getattr(_parallel, name))
    set_threads(1)
    with warnings.catch_warnings():
        return parallel_work.work()


@pytest.mark.slow
def test_the_same_bits_whoever_does_the_work(serial, tmp_path):
    runs = results(tmp_path / "result.npz", *parallel_work.WAYS)
    assert len(runs) >= 10
    check(runs, serial)


@pytest.mark.slow
def test_the_same_bits_with_more_threads_than_cores(serial, tmp_path):
    check(results(tmp_path / "result.npz", "here", NUMBA_NUM_THREADS="5"), serial)


def check(runs, serial):
    assert all(found.keys() == serial.keys() for found in runs.values())
    different = {
        f"{run}, {name}": np.abs(array - serial[name]).max()
        for run, found in runs.items()
        for name, array in found.items()
        if not np.array_equal(array, serial[name])
    }
    assert not different, "\n".join(f"{name}: {size:.1e}" for name, size in different.items())


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="not one of several workers")
def test_a_worker_has_one_thread():
    assert numba.config.NUMBA_NUM_THREADS == 1
    assert all(os.environ[name] == "1" for name in processes.ONE_THREAD)


def test_a_process_that_hangs_is_ended():
    with pytest.raises(AssertionError, match="not done in"):
        processes.run([sys.executable, "-c", "import time; time.sleep(60)"], processes.environment(), 0.2)
