"""Products in vector registers: code that the compiler does not find by itself.

Of single rows four edges at a time, whose column numbers are read in pairs. Of quads, four adjacent rows at once: they
share a list of columns, and ``data`` (C, 4) holds their four entries of each column, so that a value f_j is loaded once
for all four; columns come in groups of `GROUP`. Loops that use these functions are cached by the file that they are in:
after a change here, touch `_sparse.py`.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

ROWS, GROUP = 4, 4

_number, _short, _long = ir.DoubleType(), ir.IntType(32), ir.IntType(64)
_four = ir.VectorType(_number, ROWS)


def _require(numbers: tuple[Any, ...], indices: tuple[Any, ...]) -> None:
    """Addresses know nothing of strides and types: with others than contiguous float64 and integers do not compile."""
    for array in numbers + indices:
        right = array.dtype == types.float64 if array in numbers else isinstance(array.dtype, types.Integer)
        if array.layout != "C" or not right:
            raise TypingError(f"a contiguous array of float64 or indices is needed here; got {array}.")


class _Code:
    """Instructions on the arguments of a call, of which arrays are addresses."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self.builder = builder
        self.args = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, args, strict=True)
        ]

    def at(self, array: Any, index: Any) -> Any:
        """The address of four numbers that begin at an index."""
        return self.builder.bitcast(self.builder.gep(array, [index]), _four.as_pointer())

    def load(self, address: Any) -> Any:
        value = self.builder.load(address)
        value.align = 8
        return value

    def store(self, value: Any, address: Any) -> None:
        self.builder.store(value, address).align = 8

    def times(self, index: Any, factor: int) -> Any:
        return self.builder.mul(index, ir.Constant(index.type, factor))

    def plus(self, index: Any, number: int) -> Any:
        return self.builder.add(index, ir.Constant(index.type, number))

    def row(self, indptr: Any, i: Any) -> tuple[Any, Any, Any, Any]:
        """Where the edges of a row begin, where whole eights and whole fours of them end, and where they end."""
        first, last = (self._index(indptr, self.plus(i, k), self.builder.sext) for k in (0, 1))
        count = self.builder.sub(last, first)
        eights, fours = (
            self.builder.add(first, self.builder.and_(count, ir.Constant(i.type, -size))) for size in (8, 4)
        )
        return first, eights, fours, last

    def column(self, columns: Any, e: Any) -> Any:
        return self._index(columns, e, self.builder.zext)

    def _index(self, array: Any, at: Any, extended: Any) -> Any:
        value = self.builder.load(self.builder.gep(array, [at]))
        return value if value.type.width == at.type.width else extended(value, at.type)

    def columns(self, columns: Any, e: Any) -> list[Any]:
        """Those of four edges; short ones two at a time, as halves of a long number."""
        if columns.type.pointee.width == 64 or sys.byteorder == "big":
            return [self.column(columns, self.plus(e, g)) for g in range(4)]
        found = []
        for first in (0, 2):
            place = self.builder.gep(columns, [self.plus(e, first)])
            two = self.builder.load(self.builder.bitcast(place, _long.as_pointer()))
            two.align = 4
            found += [
                self.builder.and_(two, ir.Constant(_long, 2**32 - 1)),
                self.builder.lshr(two, ir.Constant(_long, 32)),
            ]
        return found

    def gathered(self, array: Any, columns: list[Any]) -> Any:
        four = ir.Constant(_four, ir.Undefined)
        for place, j in enumerate(columns):
            value = self.builder.load(self.builder.gep(array, [j]))
            four = self.builder.insert_element(four, value, ir.Constant(_short, place))
        return four

    def repeated(self, array: Any, index: Any) -> Any:
        """One number, four times."""
        nothing, value = ir.Constant(_four, ir.Undefined), self.builder.load(self.builder.gep(array, [index]))
        first = self.builder.insert_element(nothing, value, ir.Constant(_short, 0))
        return self.shuffled(first, first, [0] * ROWS)

    def shuffled(self, a: Any, b: Any, which: list[int]) -> Any:
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_short, len(which)), which))

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, of numbers or of fours."""
        name = "llvm.fmuladd.v4f64" if a.type == _four else "llvm.fmuladd.f64"
        kind = ir.FunctionType(a.type, [a.type] * 3)
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [a, b, c])

    def multiply_and_add_to(self, place: Any, a: Any, b: Any) -> None:
        self.builder.store(self.multiply_add(a, b, self.builder.load(place)), place)

    def sums(self, count: int) -> list[Any]:
        """Sums that begin at 0."""
        zero = ir.Constant(_four, [0.0] * ROWS)
        room = [cgutils.alloca_once(self.builder, _four) for _ in range(count)]
        for one in room:
            self.builder.store(zero, one)
        return room

    def total(self, parts: list[Any]) -> Any:
        first, *others = (self.builder.load(part) for part in parts)
        for other in others:
            first = self.builder.fadd(first, other)
        return first

    def steps(self, first: Any, last: Any, by: int) -> Any:
        """A loop."""
        return cgutils.for_range_slice(self.builder, first, last, ir.Constant(first.type, by), first.type)


@intrinsic
def pull_row(typing: Any, indptr: Any, i: Any, columns: Any, data: Any, f: Any) -> Any:
    """Σ_e data[e] f[columns[e]] over the edges e of row i."""
    _require((data, f), (indptr, columns))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c = _Code(context, builder, signature, args)
        ends, row, names, p, values = c.args
        first, eights, fours, last = c.row(ends, row)
        parts, rest = c.sums(2), cgutils.alloca_once_value(builder, ir.Constant(_number, 0.0))

        def add(part: Any, e: Any) -> None:
            c.multiply_and_add_to(part, c.load(c.at(p, e)), c.gathered(values, c.columns(names, e)))

        with c.steps(first, eights, 8) as (e, _):
            add(parts[0], e)
            add(parts[1], c.plus(e, 4))
        with builder.if_then(builder.icmp_unsigned("!=", eights, fours)):
            add(parts[0], eights)
        with c.steps(fours, last, 1) as (e, _):
            value = builder.load(builder.gep(values, [c.column(names, e)]))
            c.multiply_and_add_to(rest, builder.load(builder.gep(p, [e])), value)
        four = c.total(parts)
        two = builder.fadd(c.shuffled(four, four, [0, 1]), c.shuffled(four, four, [2, 3]))
        both = builder.fadd(*(builder.extract_element(two, ir.Constant(_short, half)) for half in (0, 1)))
        return builder.fadd(both, builder.load(rest))

    return types.float64(indptr, types.intp, columns, data, f), code


@intrinsic
def push_row(typing: Any, indptr: Any, i: Any, columns: Any, data: Any, factor: Any, out: Any) -> Any:
    """out[columns[e]] += factor data[e] over the edges e of row i, whose columns are all different."""
    _require((data, out), (indptr, columns))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c = _Code(context, builder, signature, args)
        ends, row, names, p, weight, target = c.args
        first, _, fours, last = c.row(ends, row)
        with c.steps(first, fours, 4) as (e, _):
            places = [builder.gep(target, [j]) for j in c.columns(names, e)]
            sums = [
                c.multiply_add(builder.load(builder.gep(p, [c.plus(e, g)])), weight, builder.load(place))
                for g, place in enumerate(places)
            ]
            for place, value in zip(places, sums, strict=True):
                builder.store(value, place)
        with c.steps(fours, last, 1) as (e, _):
            place = builder.gep(target, [c.column(names, e)])
            c.multiply_and_add_to(place, builder.load(builder.gep(p, [e])), weight)
        return context.get_dummy_value()

    return types.void(indptr, types.intp, columns, data, types.float64, out), code


@intrinsic
def pull_four(typing: Any, first: Any, last: Any, columns: Any, data: Any, f: Any, out: Any, at: Any) -> Any:
    """out[at + r] += Σ_e data[e, r] f[columns[e]] over the columns from first to last, r = 0 … 3."""
    _require((data, f, out), (columns,))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c = _Code(context, builder, signature, args)
        begin, end, names, p, values, target, row = c.args
        parts = c.sums(GROUP)
        with c.steps(begin, end, GROUP) as (e, _):
            for g, part in enumerate(parts):
                here = c.plus(e, g)
                c.multiply_and_add_to(
                    part, c.load(c.at(p, c.times(here, ROWS))), c.repeated(values, c.column(names, here))
                )
        place = c.at(target, row)
        c.store(builder.fadd(c.load(place), c.total(parts)), place)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, columns, data, f, out, types.intp), code


@intrinsic
def pull_four_twice(typing: Any, first: Any, last: Any, columns: Any, data: Any, f: Any, out: Any, at: Any) -> Any:
    """The same for two functions, (m, 2) flattened: out[2 (at + r) + c] += Σ_e data[e, r] f[2 columns[e] + c]."""
    _require((data, f, out), (columns,))

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c = _Code(context, builder, signature, args)
        begin, end, names, p, values, target, row = c.args
        ones, others = c.sums(GROUP // 2), c.sums(GROUP // 2)
        with c.steps(begin, end, GROUP) as (e, _):
            for g in range(GROUP):
                here = c.plus(e, g)
                j, four = c.times(c.column(names, here), 2), c.load(c.at(p, c.times(here, ROWS)))
                c.multiply_and_add_to(ones[g % 2], four, c.repeated(values, j))
                c.multiply_and_add_to(others[g % 2], four, c.repeated(values, c.plus(j, 1)))
        one, other = c.total(ones), c.total(others)
        for half, which in enumerate(([0, 4, 1, 5], [2, 6, 3, 7])):
            place = c.at(target, c.plus(c.times(row, 2), ROWS * half))
            c.store(builder.fadd(c.load(place), c.shuffled(one, other, which)), place)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, columns, data, f, out, types.intp), code
