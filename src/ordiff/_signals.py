"""Signals while something must not be torn: Ctrl-C waits for it, a request to end the process becomes an exception."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def _handler_of(number: int) -> Any:
    """The handler of a signal where it can be changed: in the main thread, and unless it is not Python's."""
    return signal.getsignal(number) if threading.current_thread() is threading.main_thread() else None


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Ctrl-C takes effect on leaving: a compilation or an import that it tears would leave broken parts behind."""
    before = _handler_of(signal.SIGINT)
    if before is None:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def termination_raises() -> Iterator[None]:
    """SIGTERM raises SystemExit, so that what is half-written is removed; a handler of the caller is kept."""
    before = _handler_of(signal.SIGTERM)
    if before is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
