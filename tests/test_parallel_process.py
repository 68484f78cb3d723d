"""Threads, in processes of their own with the default number of them: nothing hangs, and all bits are the same."""

from __future__ import annotations

import multiprocessing
import os
import sys

import numba
import numpy as np
import pytest

import processes

SECONDS = 300  # a busy machine that has yet to compile needs a third of it


def results(way, path, **environ):
    """What every run of the work gave: name → one array a run."""
    command = [sys.executable, "-c", "import parallel_work; parallel_work.main()", way, str(path)]
    processes.run(command, processes.environment(**environ), SECONDS)
    runs = {}
    with np.load(path) as arrays:
        for key in arrays:
            runs.setdefault(key.rsplit("/", 1)[0], []).append(arrays[key])
    return runs


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """By one thread."""
    return results("here", tmp_path_factory.mktemp("serial") / "result.npz", **processes.ONE_THREAD)


WAYS = ["here, then forked", "spawned", "four threads", "joblib, loky", "joblib, threading"]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_same_bits_whoever_does_the_work(way, serial, tmp_path):
    if "forked" in way and "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system has no fork")
    check(results(way, tmp_path / "result.npz"), serial)


@pytest.mark.slow
def test_the_same_bits_with_more_threads_than_cores(serial, tmp_path):
    check(results("here", tmp_path / "result.npz", NUMBA_NUM_THREADS="5"), serial)


def check(found, serial):
    assert found.keys() == serial.keys()
    different = {
        f"{name}, run {number}": np.abs(array - serial[name][0]).max()
        for name, arrays in found.items()
        for number, array in enumerate(arrays)
        if not np.array_equal(array, serial[name][0])
    }
    assert not different, "\n".join(f"{name}: {size:.1e}" for name, size in different.items())


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="not one of several workers")
def test_a_worker_has_one_thread():
    assert numba.config.NUMBA_NUM_THREADS == 1
    assert all(os.environ[name] == "1" for name in processes.ONE_THREAD)


def test_a_process_that_hangs_is_ended():
    with pytest.raises(AssertionError, match="not done in"):
        processes.run([sys.executable, "-c", "import time; time.sleep(60)"], processes.environment(), 0.2)
