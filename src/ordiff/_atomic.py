"""What the compiled loops of several threads share: counters, locks to wait at, and work that one does for another.

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
from numba.core.errors import TypingError
from numba.extending import intrinsic

_pointer, _int, _long = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
_work = ir.FunctionType(_long, [_pointer])


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


@intrinsic
def nap(typing: Any, lock: Any, microseconds: Any) -> Any:
    """Wait so long at a lock that nobody releases, so that others have the core."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lock, time = builder.inttoptr(args[0], _pointer), args[1]
        _call(builder, "PyThread_acquire_lock_timed", _int, lock, time, ir.Constant(_int, 0))
        return context.get_dummy_value()

    return types.void(types.intp, types.int64), code


@intrinsic
def job(typing: Any, loop: Any, args: Any) -> Any:
    """The address of work for another thread, where `do` is loop(*args), an int64. It must not fail.

    It is there until the function that made it returns, and keeps no array alive: they must be that function's own
    arguments. In memory it is the address of a function, and then the arguments.
    """
    called = typing.resolve_function_type(loop, args.types, {})
    if types.unliteral(called.return_type) != types.int64:
        raise TypingError(f"a job must return an int64; got {called.return_type}.")

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        compiled = loop.dispatcher.get_compile_result(called)
        context.add_linking_libs([compiled.library])
        kind = ir.LiteralStructType([_work.as_pointer(), values[1].type])
        function = ir.Function(builder.module, _work, builder.module.get_unique_name("job"))
        function.linkage = "internal"
        inside = ir.IRBuilder(function.append_basic_block())
        given = inside.extract_value(inside.load(inside.bitcast(function.args[0], kind.as_pointer())), 1)
        each = cgutils.unpack_tuple(inside, given, len(args.types))
        inside.ret(context.call_internal_no_propagate(inside, compiled.fndesc, called, each)[1])
        place = cgutils.alloca_once(builder, kind)
        for at, value in enumerate((function, values[1])):
            builder.store(value, cgutils.gep_inbounds(builder, place, 0, at))
        return builder.ptrtoint(place, _long)

    return types.int64(loop, args), code


@intrinsic
def do(typing: Any, address: Any) -> Any:
    """A job of another thread, and what it returns."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = builder.load(builder.inttoptr(args[0], _work.as_pointer().as_pointer()))
        return builder.call(function, [builder.inttoptr(args[0], _pointer)])

    return types.int64(types.int64), code
