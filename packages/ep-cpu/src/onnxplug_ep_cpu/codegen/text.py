"""Operators on strings as loops over arrays of ``str`` objects (see ``objects``). Each stands in for a kernel of the catalogue, which
says what it computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.objects import MOST_RANK, Array, Function

OBJECT, INT64, BOOL = (np.dtype(t) for t in (object, np.int64, np.bool_))
_EQUAL = 2
"""Py_EQ."""


def strings_of(f: Function, number: int = 0) -> Array:
    """An operand of the dtype that is the first of the function's own words, which is that of strings as a rule."""
    return f.array(number, f.own(0))


def broadcast(f: Function, operands: Sequence[Array]) -> tuple[Array, list[str]]:
    """The operand that has the result's shape, and of each the step from element to element: 1 for those of the same shape, 0
    for those of one element and no more dimensions."""
    lead = operands[0]
    for x in operands[1:]:
        longer = f.value(f"icmp sgt i64 {x.rank}, {lead.rank}")
        longer = f.value(f"and i1 {longer}, {f.value(f'icmp eq i64 {x.size}, {lead.size}')}")
        taken = f.either(f.value(f"icmp sgt i64 {x.size}, {lead.size}"), longer)
        rank, size, dims = (
            f.select(taken, kind, own, other)
            for kind, own, other in ((I64, x.rank, lead.rank), (I64, x.size, lead.size), (PTR, x.dims, lead.dims))
        )
        lead = Array(lead.object, lead.data, rank, dims, size, lead.dtype, lead.flags)
    steps = []
    for x in operands:
        same = f.value(f"icmp eq i64 {x.rank}, {lead.rank}")
        with f.each(f.select(same, I64, x.rank, "0"), ("i1", same)) as loop:
            equal = f.value(f"icmp eq i64 {f.item(I64, x.dims, loop.index)}, {f.item(I64, lead.dims, loop.index)}")
            loop.next = [f.value(f"and i1 {loop.vars[0]}, {equal}")]
        same, less = loop.vars[0], f.value(f"icmp sle i64 {x.rank}, {lead.rank}")
        one = f.value(f"and i1 {less}, {f.value(f'icmp eq i64 {x.size}, 1')}")
        f.needs(f.either(same, one))
        steps.append(f.value(f"zext i1 {same} to i64"))
    return lead, steps


@contextmanager
def _each_pair(f: Function, made_of: np.dtype) -> Iterator[tuple[str, str, str, str]]:
    """Each two elements of two operands of strings, broadcast, and the data and the index that what is made of them goes to."""
    operands = strings_of(f, 0), strings_of(f, 1)
    lead, steps = broadcast(f, operands)
    made, data = f.new(lead.rank, lead.dims, made_of.num)
    with f.each(lead.size) as loop:
        a, b = (f.element(o.data, f.mul(loop.index, step)) for o, step in zip(operands, steps, strict=True))
        yield a, b, data, loop.index
    f.give(made)


@contextmanager
def each_word(f: Function, x: Array, made_of: np.dtype) -> Iterator[tuple[str, str, str]]:
    """Each element of an operand of strings, and the data and the index that what is made of it goes to."""
    made, data = f.new(x.rank, x.dims, made_of.num)
    with f.each(x.size) as loop:
        yield f.element(x.data, loop.index), data, loop.index
    f.give(made)


@record(frozen=True)
class Concat:
    """StringConcat."""

    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        with _each_pair(f, OBJECT) as (a, b, data, index):
            joined = f.call("PyUnicode_Concat", a, b)
            f.raises(f.is_there(joined))
            f.put(PTR, joined, data, index)


@record(frozen=True)
class Equal:
    """Equal of strings."""

    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        with _each_pair(f, BOOL) as (a, b, data, index):
            equal = f.call("PyObject_RichCompareBool", a, b, _EQUAL)
            f.raises(f.value(f"icmp sge i32 {equal}, 0"))
            f.put("i8", f.value(f"trunc i32 {equal} to i8"), data, index, 1)


@record(frozen=True)
class Change:
    """Each string as a function of one argument gives it (own: 1). Of shapes [C] and [1, C], C > 0."""

    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, change = strings_of(f), f.own(1)
        f.needs(f.value(f"icmp sgt i64 {x.size}, 0"))
        f.needs(f.value(f"icmp sgt i64 {x.rank}, 0"))
        last = f.item(I64, x.dims, f.sub(x.rank, 1))
        f.needs(f.value(f"icmp eq i64 {last}, {x.size}"))
        f.needs(f.value(f"icmp sle i64 {x.rank}, 2"))
        with each_word(f, x, OBJECT) as (word, data, index):
            changed = f.call("PyObject_CallOneArg", change, word)
            f.raises(f.is_there(changed))
            f.put(PTR, changed, data, index)


@record(frozen=True)
class Matches:
    """Whether a function of one argument (own: 1) gives anything but None (own: 2)."""

    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, matches, none = strings_of(f), f.own(1), f.own(2)
        with each_word(f, x, BOOL) as (word, data, index):
            found = f.call("PyObject_CallOneArg", matches, word)
            f.raises(f.is_there(found))
            f.put("i8", f.value(f"zext i1 {f.value(f'icmp ne ptr {found}, {none}')} to i8"), data, index, 1)
            f.call("Py_DecRef", found)


def longer(f: Function, x: Array, last: str) -> tuple[str, str]:
    """Rank and dimensions of an array with one more axis than ``x``."""
    f.needs(f.value(f"icmp slt i64 {x.rank}, {MOST_RANK}"))
    dims = f.room()
    with f.each(x.rank) as loop:
        f.put(I64, f.item(I64, x.dims, loop.index), dims, loop.index)
    f.put(I64, last, dims, x.rank)
    return f.add(x.rank, 1), dims


@record(frozen=True)
class Split:
    """StringSplit at a separator (own: 1; null for runs of white space), so often (own: 2); an empty string (own: 3) fills rows."""

    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, separator, limit, empty = strings_of(f), f.own(1), f.own(2, I64), f.own(3)
        f.needs(f.value(f"icmp sgt i64 {x.size}, 0"))
        pair = f.call("PyTuple_New", 2)
        f.needs(f.is_there(pair))
        f.guard(pair)
        counts, lengths = f.further(x.rank, x.dims, INT64.num)
        f.call("PyTuple_SetItem", pair, 1, counts)
        rows = f.call("PyList_New", x.size)
        f.needs(f.is_there(rows))
        f.call("PyTuple_SetItem", pair, 0, rows)  # until the result takes its place, so that one reference drops all
        with f.each(x.size, (I64, "0")) as loop:
            word = f.element(x.data, loop.index)
            row = f.call("PyUnicode_Split", word, separator, limit)
            f.raises(f.is_there(row))
            f.call("PyList_SetItem", rows, loop.index, row)
            same = f.call("PyObject_RichCompareBool", word, empty, _EQUAL)
            length = f.select(f.value(f"icmp eq i32 {same}, 1"), I64, "0", f.call("PyList_Size", row))
            f.put(I64, length, lengths, loop.index)
            loop.next = [f.select(f.less(loop.vars[0], length), I64, length, loop.vars[0])]
        width = loop.vars[0]
        made, data = f.further(*longer(f, x, width), OBJECT.num)
        with f.each(x.size) as each:
            row, length = f.call("PyList_GetItem", rows, each.index), f.item(I64, lengths, each.index)
            _fill(f, row, length, empty, data, f.mul(each.index, width), width)
        f.call("PyTuple_SetItem", pair, 0, made)
        f.give(pair)


def _fill(f: Function, row: str, length: str, pad: str, data: str, start: str, width: str) -> None:
    """So many objects of a list, and the pad behind them, as ``width`` elements of an array."""
    with f.each(length) as loop:
        word = f.call("PyList_GetItem", row, loop.index)
        f.call("Py_IncRef", word)
        f.put(PTR, word, data, f.add(start, loop.index))
    with f.loop(length, width) as loop:
        f.call("Py_IncRef", pad)
        f.put(PTR, pad, data, f.add(start, loop.index))


@record(frozen=True)
class Tokens:
    """Tokenizer: what a function of one argument (own: 1) makes of each string, a list (own: 2, the type), between two marks if
    ``marked`` (own: 4 and 5), with a pad (own: 3) behind shorter ones."""

    marked: bool
    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, split, kind, pad = strings_of(f), f.own(1), f.own(2), f.own(3)
        f.needs(f.value(f"icmp sgt i64 {x.size}, 0"))
        f.needs(f.value(f"icmp ule i64 {f.sub(x.rank, 1)}, 1"))
        rows = f.call("PyList_New", x.size)
        f.needs(f.is_there(rows))
        f.guard(rows)
        with f.each(x.size, (I64, "0")) as loop:
            row = f.call("PyObject_CallOneArg", split, f.element(x.data, loop.index))
            f.raises(f.is_there(row))
            f.call("PyList_SetItem", rows, loop.index, row)
            f.needs_type(row, kind)
            length = f.call("PyList_Size", row)
            loop.next = [f.select(f.less(loop.vars[0], length), I64, length, loop.vars[0])]
        most = loop.vars[0]
        marks = self.marked and f.value(f"zext i1 {f.value(f'icmp sgt i64 {most}, 0')} to i64")
        width = f.add(most, f.shl(marks, 1)) if marks else most
        made, data = f.further(*longer(f, x, width), OBJECT.num)
        with f.each(x.size) as each:
            row, start = f.call("PyList_GetItem", rows, each.index), f.mul(each.index, width)
            length = f.call("PyList_Size", row)
            if marks:
                with f.when(f.value(f"icmp ne i64 {marks}, 0")):
                    for number, place in ((4, start), (5, f.add(f.add(start, length), 1))):
                        mark = f.own(number)
                        f.call("Py_IncRef", mark)
                        f.put(PTR, mark, data, place)
                start = f.add(start, marks)
                _fill(f, row, length, pad, data, start, length)
                start, rest = f.add(f.add(start, length), marks), f.sub(most, length)
                _fill(f, row, "0", pad, data, start, rest)
            else:
                _fill(f, row, length, pad, data, start, width)
        f.call("Py_DecRef", rows)
        f.give(made)
