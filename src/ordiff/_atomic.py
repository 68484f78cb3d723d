"""Counters that the compiled loops of several threads share: read and added to without a lock.

What a thread wrote before it added to a counter is seen by every thread that has read the new count. Loops that use
them are cached by the file that they are in: after a change here, touch `_sparse.py`.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic


def _address(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


@intrinsic
def add(typing: Any, counters: Any, at: Any, by: Any) -> Any:
    """counters[at] += by, and what it was before; int64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _address(context, builder, signature, args), args[2], "acq_rel")

    return types.int64(counters, types.intp, types.int64), code


@intrinsic
def read(typing: Any, counters: Any, at: Any) -> Any:
    """counters[at], int64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_address(context, builder, signature, args), "acquire", 8)

    return types.int64(counters, types.intp), code
