from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

# the first call of a compiled loop takes seconds; the same examples in every run
settings.register_profile("ordiff", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("ordiff")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20261115)
