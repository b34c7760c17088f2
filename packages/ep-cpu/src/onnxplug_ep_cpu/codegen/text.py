"""Operators on strings as loops over arrays of ``str`` objects (see ``objects``). Each stands in for a kernel of the catalogue, which
says what it computes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import ClassVar

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.objects import MOST_RANK, Array, Function, make

OBJECT, INT64, BOOL, FLOAT, DOUBLE = (np.dtype(t) for t in (object, np.int64, np.bool_, np.float32, np.float64))
_EQUAL = 2
"""Py_EQ."""


def _strings(f: Function, number: int = 0) -> Array:
    """An operand of the dtype that is the first of the function's own words, which is that of strings as a rule."""
    return f.array(number, f.own(0))


def _broadcast(f: Function, operands: Sequence[Array]) -> tuple[Array, list[str]]:
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


@record(frozen=True)
class Concat:
    """StringConcat."""

    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        x, y = _strings(f, 0), _strings(f, 1)
        lead, steps = _broadcast(f, (x, y))
        made, data = f.new(lead.rank, lead.dims, OBJECT.num)
        with f.each(lead.size) as loop:
            a, b = (f.element(o.data, f.mul(loop.index, step)) for o, step in zip((x, y), steps, strict=True))
            joined = f.call("PyUnicode_Concat", a, b)
            f.raises(f.is_there(joined))
            f.put(PTR, joined, data, loop.index)
        f.give(made)


@record(frozen=True)
class Equal:
    """Equal of strings."""

    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        x, y = _strings(f, 0), _strings(f, 1)
        lead, steps = _broadcast(f, (x, y))
        made, data = f.new(lead.rank, lead.dims, BOOL.num)
        with f.each(lead.size) as loop:
            a, b = (f.element(o.data, f.mul(loop.index, step)) for o, step in zip((x, y), steps, strict=True))
            equal = f.call("PyObject_RichCompareBool", a, b, _EQUAL)
            f.raises(f.value(f"icmp sge i32 {equal}, 0"))
            f.put("i8", f.value(f"trunc i32 {equal} to i8"), data, loop.index, 1)
        f.give(made)


@record(frozen=True)
class Where:
    """Where of strings, by truth values (own: 1, their dtype)."""

    operands: ClassVar[int] = 3

    def emit(self, f: Function) -> None:
        condition, x, y = f.array(0, f.own(1)), _strings(f, 1), _strings(f, 2)
        lead, (step, step_x, step_y) = _broadcast(f, (condition, x, y))
        made, data = f.new(lead.rank, lead.dims, OBJECT.num)
        with f.each(lead.size) as loop:
            holds = f.item("i8", condition.data, f.mul(loop.index, step), 1)
            a, b = f.at(x.data, f.mul(f.mul(loop.index, step_x), 8)), f.at(y.data, f.mul(f.mul(loop.index, step_y), 8))
            word = f.element(f.select(f.value(f"icmp ne i8 {holds}, 0"), PTR, a, b), "0")
            f.call("Py_IncRef", word)
            f.put(PTR, word, data, loop.index)
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
        f.clear(data, f.mul(f.mul(x.size, count), 4))
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
        x, split, kind, pad = _strings(f), f.own(1), f.own(2), f.own(3)
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
        made, data = f.further(*_longer(f, x, width), OBJECT.num)
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
    """Gather of strings along an axis, by int64 indices (own: 1, their dtype); ``flat``: ArrayFeatureExtractor, which takes all
    indices as one row, and none from the end."""

    axis: int
    flat: bool = False
    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        x, at = _strings(f, 0), f.array(1, f.own(1))
        axis = f.axis(self.axis, x.rank)
        indices = "1" if self.flat else at.rank
        rank = f.sub(f.add(x.rank, indices), 1)
        f.needs(f.value(f"icmp sle i64 {rank}, {MOST_RANK}"))
        if self.flat:
            f.needs(f.value(f"icmp sgt i64 {rank}, 1"))  # one row of what has none is another shape
        dims, rows, behind = f.room(), f.item(I64, x.dims, axis), f.add(axis, 1)
        outer, inner = f.product(x.dims, 0, axis), f.product(x.dims, behind, x.rank)
        with f.each(axis) as loop:
            f.put(I64, f.item(I64, x.dims, loop.index), dims, loop.index)
        with f.each(indices) as loop:
            f.put(I64, at.size if self.flat else f.item(I64, at.dims, loop.index), dims, f.add(axis, loop.index))
        with f.loop(behind, x.rank) as loop:
            f.put(I64, f.item(I64, x.dims, loop.index), dims, f.sub(f.add(loop.index, indices), 1))
        made, data = f.new(rank, dims, OBJECT.num)
        with f.each(outer) as block, f.each(at.size) as loop:
            index = f.item(I64, at.data, loop.index)
            if not self.flat:
                index = f.select(f.less(index, 0), I64, f.add(index, rows), index)
            f.needs(f.value(f"icmp ult i64 {index}, {rows}"))
            start = f.mul(f.add(f.mul(block.index, rows), index), inner)
            target = f.mul(f.add(f.mul(block.index, at.size), loop.index), inner)
            with f.each(inner) as part:
                word = f.element(x.data, f.add(start, part.index))
                f.call("Py_IncRef", word)
                f.put(PTR, word, data, f.add(target, part.index))
        f.give(made)


@record(frozen=True)
class Shown:
    """Strings in another shape, a view of them. Reshape to ``numbers``, of which one may be -1 and none 0; Flatten at an axis, the
    number; Unsqueeze, which puts axes in, none of them counted from the end. A second operand says the same."""

    op_type: str
    numbers: tuple[int, ...]
    operands: int

    def emit(self, f: Function) -> None:
        x, dims = _strings(f), f.room()
        if self.op_type == "Reshape":
            rank = self._reshaped(f, x, dims)
        elif self.op_type == "Flatten":
            (at,), rank = self.numbers, "2"
            axis = f.add(x.rank if at < 0 else 0, at)
            f.needs(f.value(f"icmp ule i64 {axis}, {x.rank}"))
            f.put(I64, f.product(x.dims, 0, axis), dims, "0")
            f.put(I64, f.product(x.dims, axis, x.rank), dims, "1")
        else:
            rank = self._unsqueezed(f, x, dims)
        made = f.view(x, rank, dims, x.data)
        f.guard(made)
        f.keep(made, x)
        f.give(made)

    def _reshaped(self, f: Function, x: Array, dims: str) -> str:
        known = math.prod(n for n in self.numbers if n > 0)
        left = f.div(x.size, known) if -1 in self.numbers else "1"
        f.needs(f.value(f"icmp eq i64 {f.mul(left, known)}, {x.size}"))
        for at, number in enumerate(self.numbers):
            f.put(I64, left if number < 0 else str(number), dims, str(at))
        return str(len(self.numbers))

    def _unsqueezed(self, f: Function, x: Array, dims: str) -> str:
        rank = f.add(x.rank, len(self.numbers))
        f.needs(f.value(f"icmp sle i64 {rank}, {MOST_RANK}"))
        f.needs(f.less(max(self.numbers), rank))
        with f.each(rank, (I64, "0")) as loop:
            new = "false"
            for axis in self.numbers:
                new = f.either(new, f.value(f"icmp eq i64 {loop.index}, {axis}"))
            source = f.select(new, I64, "0", loop.vars[0])  # there is one: x has a dimension, or all are new
            place = f.select(f.value(f"icmp eq i64 {x.rank}, 0"), PTR, dims, x.dims)
            f.put(I64, f.select(new, I64, "1", f.item(I64, place, source)), dims, loop.index)
            loop.next = [f.add(loop.vars[0], f.select(new, I64, "0", "1"))]
        return rank


def numbering(numbers: Mapping[str, int]) -> Callable[[np.ndarray], np.ndarray]:
    """What gives the numbers of words as int64, 0 for those that have none."""

    def one_by_one(words: np.ndarray) -> np.ndarray:
        return np.fromiter(map(numbers.get, words.ravel().tolist(), repeat(0)), INT64, words.size)

    none = 0
    own = (OBJECT, numbers, none)
    return make(Lookup(True, INT64.name), one_by_one, *map(id, own), held=own)
