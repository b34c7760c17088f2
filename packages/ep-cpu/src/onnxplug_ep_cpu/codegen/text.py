"""Operators on strings as loops over arrays of ``str`` objects (see ``objects``). Each stands in for a kernel of the catalogue, which
says what it computes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.objects import MOST_RANK, Array, Function

OBJECT, INT64, BOOL, FLOAT, DOUBLE = (np.dtype(t) for t in (object, np.int64, np.bool_, np.float32, np.float64))
_EQUAL = 2
"""Py_EQ."""


def _strings(f: Function, number: int = 0) -> Array:
    """An operand of strings: the first of the function's own words is their dtype."""
    return f.array(number, f.own(0))


@record(frozen=True, slots=True)
class _Pair:
    """Two operands of strings that broadcast, and the shape of the result."""

    rank: str
    dims: str
    count: str
    a: tuple[str, str]
    b: tuple[str, str]

    def elements(self, f: Function, index: str) -> tuple[str, str]:
        x, y = (f.element(data, f.mul(index, step)) for data, step in (self.a, self.b))
        return x, y


def _broadcast(f: Function) -> _Pair:
    """Of equal shapes, or one of one element and no more dimensions."""
    x, y = _strings(f, 0), _strings(f, 1)
    ranks = f.value(f"icmp eq i64 {x.rank}, {y.rank}")
    with f.each(f.select(ranks, I64, x.rank, "0"), ("i1", ranks)) as loop:
        equal = f.value(f"icmp eq i64 {f.item(I64, x.dims, loop.index)}, {f.item(I64, y.dims, loop.index)}")
        loop.next = [f.value(f"and i1 {loop.vars[0]}, {equal}")]
    alike = loop.vars[0]
    one_y, one_x = (
        f.value(f"and i1 {f.value(f'icmp eq i64 {one.size}, 1')}, {f.value(f'icmp sle i64 {one.rank}, {all_.rank}')}")
        for one, all_ in ((y, x), (x, y))
    )
    first = f.either(alike, one_y)
    f.needs(f.either(first, one_x))
    step_x, step_y = f.select(first, I64, "1", "0"), f.select(f.value(f"xor i1 {one_y}, true"), I64, "1", "0")
    step_y = f.select(alike, I64, "1", step_y)
    rank, size = f.select(first, I64, x.rank, y.rank), f.select(first, I64, x.size, y.size)
    return _Pair(rank, f.select(first, PTR, x.dims, y.dims), size, (x.data, step_x), (y.data, step_y))


@record(frozen=True)
class Concat:
    """StringConcat."""

    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        pair = _broadcast(f)
        made, data = f.new(pair.rank, pair.dims, OBJECT.num)
        with f.each(pair.count) as loop:
            x, y = pair.elements(f, loop.index)
            joined = f.call("PyUnicode_Concat", x, y)
            f.raises(f.is_there(joined))
            f.put(PTR, joined, data, loop.index)
        f.give(made)


@record(frozen=True)
class Equal:
    """Equal of strings."""

    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        pair = _broadcast(f)
        made, data = f.new(pair.rank, pair.dims, BOOL.num)
        with f.each(pair.count) as loop:
            x, y = pair.elements(f, loop.index)
            equal = f.call("PyObject_RichCompareBool", x, y, _EQUAL)
            f.raises(f.value(f"icmp sge i32 {equal}, 0"))
            f.put("i8", f.value(f"trunc i32 {equal} to i8"), data, loop.index, 1)
        f.give(made)


@record(frozen=True)
class Change:
    """Each string as a function of one argument gives it (own: 1). Of shapes [C] and [1, C], C > 0."""

    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, change = _strings(f), f.own(1)
        f.needs(f.value(f"icmp sgt i64 {x.size}, 0"))
        f.needs(f.value(f"icmp sgt i64 {x.rank}, 0"))
        last = f.item(I64, x.dims, f.sub(x.rank, 1))
        f.needs(f.value(f"icmp eq i64 {last}, {x.size}"))
        f.needs(f.value(f"icmp sle i64 {x.rank}, 2"))
        made, data = f.new(x.rank, x.dims, OBJECT.num)
        with f.each(x.size) as loop:
            changed = f.call("PyObject_CallOneArg", change, f.element(x.data, loop.index))
            f.raises(f.is_there(changed))
            f.put(PTR, changed, data, loop.index)
        f.give(made)


@record(frozen=True)
class Matches:
    """Whether a function of one argument (own: 1) gives anything but None (own: 2)."""

    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, matches, none = _strings(f), f.own(1), f.own(2)
        made, data = f.new(x.rank, x.dims, BOOL.num)
        with f.each(x.size) as loop:
            found = f.call("PyObject_CallOneArg", matches, f.element(x.data, loop.index))
            f.raises(f.is_there(found))
            f.put("i8", f.value(f"zext i1 {f.value(f'icmp ne ptr {found}, {none}')} to i8"), data, loop.index, 1)
            f.call("Py_DecRef", found)
        f.give(made)


@record(frozen=True)
class Lookup:
    """The values of strings, or of int64 numbers, in a dict (own: 1), and another (own: 2, an object) for those that are not
    in it; as objects, int64 or float32."""

    words: bool
    kind: str
    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, table, default = _strings(f), f.own(1), f.own(2)
        dtype = np.dtype(self.kind)
        made, data = f.new(x.rank, x.dims, dtype.num)
        with f.each(x.size) as loop:
            if self.words:
                key = f.element(x.data, loop.index)
            else:
                key = f.call("PyLong_FromLongLong", f.item(I64, x.data, loop.index))
                f.raises(f.is_there(key))
            found = f.call("PyDict_GetItemWithError", table, key)
            if not self.words:
                f.call("Py_DecRef", key)
            there = f.is_there(found)
            f.raises(f.either(there, f.is_calm()))
            _put_value(f, dtype, f.select(there, PTR, found, default), data, loop.index)
        f.give(made)


def _put_value(f: Function, dtype: np.dtype, value: str, data: str, index: str) -> None:
    """A Python object that fits into the dtype, as an element of it."""
    if dtype == OBJECT:
        f.call("Py_IncRef", value)
        f.put(PTR, value, data, index)
    elif dtype == INT64:
        f.put(I64, f.call("PyLong_AsLongLong", value), data, index)
    else:
        single = f.value(f"fptrunc double {f.call('PyFloat_AsDouble', value)} to float")
        f.put("float", single, data, index, 4)


@record(frozen=True)
class OneHot:
    """1.0 at the place of each string in a dict (own: 1) along a new last axis of so many (own: 2)."""

    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, table, count = _strings(f), f.own(1), f.own(2, I64)
        made, data = f.new(*_longer(f, x, count), FLOAT.num)
        f.intrinsic(
            "llvm.memset.p0.i64",
            "void",
            (PTR, data),
            ("i8", "0"),
            (I64, f.mul(f.mul(x.size, count), 4)),
            ("i1", "false"),
        )
        with f.each(x.size) as loop:
            found = f.call("PyDict_GetItemWithError", table, f.element(x.data, loop.index))
            there = f.is_there(found)
            f.raises(f.either(there, f.is_calm()))
            with f.when(there):
                place = f.add(f.mul(loop.index, count), f.call("PyLong_AsLongLong", found))
                f.put("float", "1.0", data, place, 4)
        f.give(made)


def _longer(f: Function, x: Array, last: str) -> tuple[str, str]:
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
        x, separator, limit, empty = _strings(f), f.own(1), f.own(2, I64), f.own(3)
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
        made, data = f.further(*_longer(f, x, width), OBJECT.num)
        with f.each(x.size) as row_loop:
            row = f.call("PyList_GetItem", rows, row_loop.index)
            length, start = f.item(I64, lengths, row_loop.index), f.mul(row_loop.index, width)
            with f.each(length) as loop:
                word = f.call("PyList_GetItem", row, loop.index)
                f.call("Py_IncRef", word)
                f.put(PTR, word, data, f.add(start, loop.index))
            with f.loop(length, width) as loop:
                f.call("Py_IncRef", empty)
                f.put(PTR, empty, data, f.add(start, loop.index))
        f.call("PyTuple_SetItem", pair, 0, made)
        f.give(pair)


@record(frozen=True)
class Numbers:
    """Cast of strings to float32, float64 or int64."""

    kind: str
    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, dtype = _strings(f), np.dtype(self.kind)
        made, data = f.new(x.rank, x.dims, dtype.num)
        with f.each(x.size) as loop:
            word = f.element(x.data, loop.index)
            if dtype == INT64:  # what is no whole number, or none of 64 bits, is the fallback's
                number = f.call("PyNumber_Long", word)
                f.needs(f.is_there(number))
                value = f.call("PyLong_AsLongLong", number)
                f.call("Py_DecRef", number)
                f.needs(f.is_calm())
                f.put(I64, value, data, loop.index)
            else:
                number = f.call("PyFloat_FromString", word)
                f.raises(f.is_there(number))
                value = f.call("PyFloat_AsDouble", number)
                f.call("Py_DecRef", number)
                if dtype == FLOAT:
                    f.put("float", f.value(f"fptrunc double {value} to float"), data, loop.index, 4)
                else:
                    f.put("double", value, data, loop.index)
        f.give(made)


DIGITS = {"float32": (8, 9), "float64": (8, 9, 15, 16, 17)}
"""Significant digits that the text of a float is tried with until it reads back as the same."""


@record(frozen=True)
class Texts:
    """Cast of float32, float64 (own: 1 to 3: the texts of NaN and both infinities) or int64 to strings."""

    kind: str
    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        dtype = np.dtype(self.kind)
        x = f.array(0, f.own(0))
        made, data = f.new(x.rank, x.dims, OBJECT.num)
        with f.each(x.size) as loop:
            if dtype == INT64:
                number = f.call("PyLong_FromLongLong", f.item(I64, x.data, loop.index))
                f.raises(f.is_there(number))
                text = f.call("PyObject_Str", number)
                f.call("Py_DecRef", number)
                f.raises(f.is_there(text))
                f.put(PTR, text, data, loop.index)
            else:
                kind = "float" if dtype == FLOAT else "double"
                value = f.item(kind, x.data, loop.index, dtype.itemsize)
                f.put(PTR, self._text(f, kind, value), data, loop.index)
        f.give(made)

    def _text(self, f: Function, kind: str, value: str) -> str:
        """The shortest of ``DIGITS`` that reads back as the same; onnxruntime's words for what is no number."""
        wide = value if kind == "double" else f.value(f"fpext float {value} to double")
        size = f.intrinsic("llvm.fabs.f64", "double", ("double", wide))
        infinite = f.value(f"fcmp oeq double {size}, 0x7FF0000000000000")
        named_so = f.either(infinite, f.value(f"fcmp uno double {wide}, {wide}"))
        named, written, done = (f.label(hint) for hint in ("named", "written", "done"))
        f.do(f"br i1 {named_so}, label %{named}, label %{written}")
        f.start(named)
        above = f.value(f"fcmp ogt double {wide}, 0.0")
        word = f.select(infinite, PTR, f.select(above, PTR, f.own(2), f.own(3)), f.own(1))
        f.call("Py_IncRef", word)
        f.do(f"br label %{done}")
        f.start(written)
        found = [(word, named)]
        for precision in DIGITS[self.kind]:
            text = f.call("PyOS_double_to_string", wide, ord("g"), precision, 0, "null")
            f.raises(f.is_there(text))
            if precision != DIGITS[self.kind][-1]:
                again = f.call("PyOS_string_to_double", text, "null", "null")
                again = f.value(f"fptrunc double {again} to float") if kind == "float" else again
                taken, other = f.label("taken"), f.label("other")
                f.do(f"br i1 {f.value(f'fcmp oeq {kind} {again}, {value}')}, label %{taken}, label %{other}")
                f.start(taken)
            made = f.call("PyUnicode_FromString", text)
            f.call("PyMem_Free", text)
            f.raises(f.is_there(made))
            found.append((made, f.block))
            f.do(f"br label %{done}")
            if precision != DIGITS[self.kind][-1]:
                f.start(other)
                f.call("PyMem_Free", text)
        f.start(done)
        return f.value("phi ptr " + ", ".join(f"[{value}, %{block}]" for value, block in found))


@record(frozen=True)
class Take:
    """Gather of strings along their first axis, by int64 indices."""

    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        x, at = _strings(f, 0), f.array(1, f.own(1))
        f.needs(f.value(f"icmp sgt i64 {x.rank}, 0"))
        rank = f.sub(f.add(x.rank, at.rank), 1)
        f.needs(f.value(f"icmp sle i64 {rank}, {MOST_RANK}"))
        dims, rows, inner = f.room(), f.item(I64, x.dims, "0"), f.product(x.dims, 1, x.rank)
        with f.each(at.rank) as loop:
            f.put(I64, f.item(I64, at.dims, loop.index), dims, loop.index)
        with f.loop(1, x.rank) as loop:
            f.put(I64, f.item(I64, x.dims, loop.index), dims, f.sub(f.add(at.rank, loop.index), 1))
        made, data = f.new(rank, dims, OBJECT.num)
        with f.each(at.size) as loop:
            index = f.item(I64, at.data, loop.index)
            index = f.select(f.less(index, 0), I64, f.add(index, rows), index)
            f.needs(f.value(f"icmp ult i64 {index}, {rows}"))
            start, target = f.mul(index, inner), f.mul(loop.index, inner)
            with f.each(inner) as part:
                word = f.element(x.data, f.add(start, part.index))
                f.call("Py_IncRef", word)
                f.put(PTR, word, data, f.add(target, part.index))
        f.give(made)
