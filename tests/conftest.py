from __future__ import annotations

import os
import signal
from collections.abc import Callable

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several: set before NumPy and numba are imported, which read it
    from processes import ONE_THREAD, own_cache

    os.environ.update(ONE_THREAD)
    os.environ["NUMBA_CACHE_DIR"] = str(own_cache(os.environ["PYTEST_XDIST_WORKER"]))

import numpy as np
import pytest
from hypothesis import settings

from inline_client import InlineClient

# a shell starts its background jobs with interrupts ignored, and tests send some
signal.signal(signal.SIGINT, signal.default_int_handler)

# the first call of a compiled loop takes seconds; the same examples in every run
settings.register_profile("ordiff", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("ordiff")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)


@pytest.fixture(params=["factored", "two levels"])
def solver(request, monkeypatch):
    """Both preconditioners of the systems of absorbing chains, on systems of any size."""
    if request.param == "two levels":
        monkeypatch.setattr("ordiff._absorbing._MAX_FACTORED", 0)
        monkeypatch.setattr("ordiff._absorbing._AGGREGATES", (1, 50))
    return request.param


@pytest.fixture
def set_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """So many threads work, as if NUMBA_NUM_THREADS had been that from the start."""

    def set_threads(n: int) -> None:
        def not_started() -> None:
            raise ValueError

        monkeypatch.setattr("numba.threading_layer", not_started)
        monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", n)

    return set_threads


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> InlineClient:
    """What asks for a Dask client gets one whose worker is this process."""
    client = InlineClient()
    monkeypatch.setattr("ordiff.distributed._client", lambda _: client)
    monkeypatch.setattr("ordiff.distributed._wait", lambda *_: None)
    return client
