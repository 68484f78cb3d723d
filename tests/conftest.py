from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings

# the first call of a compiled loop takes seconds; the same examples in every run
settings.register_profile("ordiff", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("ordiff")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)


@pytest.fixture
def set_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """So many threads work, as if NUMBA_NUM_THREADS had been that from the start."""

    def set_threads(n: int) -> None:
        def not_started() -> None:
            raise ValueError

        monkeypatch.setattr("numba.threading_layer", not_started)
        monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", n)

    return set_threads
