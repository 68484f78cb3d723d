"""What the compiled loops of several threads share: counters, and locks to wait at.

What a thread wrote before it changed a counter is seen by every thread that has read the change. Locks are those of the
interpreter's own threads, by their addresses; to wait at them needs no interpreter lock. Loops that use these functions
are cached by the file that they are in: after a change here, touch `_sparse.py`.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_pointer, _int = ir.IntType(8).as_pointer(), ir.IntType(32)


def _address(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


def _changed(how: str) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw(how, _address(context, builder, signature, args), args[2], "acq_rel")

    return code


def _call(builder: Any, name: str, result: Any, *values: Any) -> Any:
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


@intrinsic
def add(typing: Any, counters: Any, at: Any, by: Any) -> Any:
    """counters[at] += by, and what it was before; int64."""
    return types.int64(counters, types.intp, types.int64), _changed("add")


@intrinsic
def read(typing: Any, counters: Any, at: Any) -> Any:
    """counters[at], int64."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_address(context, builder, signature, args), "acquire", 8)

    return types.int64(counters, types.intp), code


@intrinsic
def exchange(typing: Any, counters: Any, at: Any, value: Any) -> Any:
    """counters[at] = value, and what it was before; int64."""
    return types.int64(counters, types.intp, types.int64), _changed("xchg")


@intrinsic
def replace(typing: Any, counters: Any, at: Any, old: Any, new: Any) -> Any:
    """counters[at] = new if it is old, and whether it was."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _address(context, builder, signature, args)
        return builder.extract_value(builder.cmpxchg(place, args[2], args[3], "acq_rel", "acquire"), 1)

    return types.boolean(counters, types.intp, types.int64, types.int64), code


# instructions that wait some 10 to 40 ns, with their operands
_PAUSES: dict[str, tuple[str, tuple[int, ...]]] = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "aarch64": ("llvm.aarch64.isb", (15,)),
}
_MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}


@intrinsic
def pause(typing: Any) -> Any:
    """For loops that look at a counter again and again: leaves more of a shared core to its other thread."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        machine = platform.machine().lower()
        if found := _PAUSES.get(_MACHINE.get(machine, machine)):
            name, operands = found
            _call(builder, name, ir.VoidType(), *(ir.Constant(_int, value) for value in operands))
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def acquire(typing: Any, lock: Any) -> Any:
    """Wait until a lock is released, and have it."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _call(builder, "PyThread_acquire_lock", _int, builder.inttoptr(args[0], _pointer), ir.Constant(_int, 1))
        return context.get_dummy_value()

    return types.void(types.intp), code


@intrinsic
def release(typing: Any, lock: Any) -> Any:
    """Let one who waits for a lock have it."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _call(builder, "PyThread_release_lock", ir.VoidType(), builder.inttoptr(args[0], _pointer))
        return context.get_dummy_value()

    return types.void(types.intp), code
