"""How much memory an object holds: Dask asks for it, to know when a worker's is full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp


class Sized:
    """A class whose ``sys.getsizeof`` counts the arrays that its attributes hold, each once."""

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sum({a.ctypes.data: a.nbytes for a in _arrays(self)}.values())


def _arrays(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _arrays(one)
    elif sp.issparse(value) or type(value).__module__.startswith("ordiff."):
        for one in vars(value).values():
            yield from _arrays(one)
