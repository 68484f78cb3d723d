"""Interrupts: none tears a compilation, an import or a search, and none is lost."""

from __future__ import annotations

import signal
import sys
import threading

import numpy as np
import pytest

from ordiff._compiled import csr
from ordiff._signals import deferred_interrupts, termination_raises
from processes import environment, run


def test_an_interrupt_waits_until_the_end():
    done = []

    def work() -> None:
        with deferred_interrupts(), deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_inside_comes_with_the_interrupt():
    def work() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("inside")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)


def test_other_threads_change_no_handlers():
    found = []

    def work() -> None:
        with deferred_interrupts(), termination_raises():
            found.append((signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(signal.default_int_handler, signal.SIG_DFL)]


def test_sigterm_raises_and_a_handler_of_the_caller_stays():
    with termination_raises(), pytest.raises(SystemExit) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    own = []
    before = signal.signal(signal.SIGTERM, lambda *_: own.append(1))
    try:
        with termination_raises():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert own == [1]


def test_an_interrupted_compilation_is_finished_first(monkeypatch):
    @csr.compiled()
    def double(x):
        return 2 * x

    if not hasattr(double, "compile"):
        pytest.skip("the loops are plain Python")
    # the first thing that a compilation does
    monkeypatch.setattr(double._cache, "load_overload", _interrupted(double._cache.load_overload))
    with pytest.raises(KeyboardInterrupt):
        double(np.arange(3.0))
    assert len(double.signatures) == 1


def _interrupted(function):
    def interrupted(*args):
        signal.raise_signal(signal.SIGINT)
        return function(*args)

    return interrupted


def test_an_interrupted_import_is_whole():
    code = (
        "import builtins, signal, ordiff\n"
        "real, asked = builtins.__import__, []\n"
        "def interrupted(name, *rest):\n"
        "    if name.startswith('sklearn') and not asked:\n"
        "        asked.append(name); signal.raise_signal(signal.SIGINT)\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = interrupted\n"
        "try:\n    ordiff.SnapshotSDE\n"
        "except KeyboardInterrupt:\n    print('interrupted', asked)\n"
        "print(ordiff.SnapshotSDE(0))\n"
    )
    printed = run([sys.executable, "-c", code], environment(), 120)
    assert "interrupted ['sklearn" in printed
    assert "SnapshotSDE(start=0)" in printed
