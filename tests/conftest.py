from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

from ordiff import _absorbing

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
        monkeypatch.setattr(_absorbing, "_MAX_FACTORED", 0)
        monkeypatch.setattr(_absorbing, "_AGGREGATES", (1, 50))
    return request.param
