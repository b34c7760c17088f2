"""Words and what stands for them: tables of labels, numbers written as text (see ``objects``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import ClassVar

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.objects import Function, make
from onnxplug_ep_cpu.codegen.text import INT64, OBJECT, each_word, longer, strings_of

_UNDERSCORE = ord("_")
FLOAT, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


@record(frozen=True)
class Lookup:
    """The values of strings, or of int64 numbers, in a dict (own: 1), and another (own: 2, an object) for those that are not
    in it; as objects, int64 or float32."""

    words: bool
    kind: str
    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        x, table, default = strings_of(f), f.own(1), f.own(2)
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
        x, table, count = strings_of(f), f.own(1), f.own(2, I64)
        made, data = f.new(*longer(f, x, count), FLOAT.num)
        f.clear(data, f.mul(f.mul(x.size, count), 4))
        with f.each(x.size) as loop:
            found = f.call("PyDict_GetItemWithError", table, f.element(x.data, loop.index))
            there = f.is_there(found)
            f.raises(f.either(there, f.is_calm()))
            with f.when(there):
                place = f.add(f.mul(loop.index, count), f.call("PyLong_AsLongLong", found))
                f.put("float", "1.0", data, place, 4)
        f.give(made)


@record(frozen=True)
class Numbers:
    """Cast of strings to float32, float64 or int64."""

    kind: str
    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        dtype, room = np.dtype(self.kind), f.value("alloca i64, align 8")
        with each_word(f, strings_of(f), dtype) as (word, data, index):
            _needs_plain(f, word, room)
            if dtype == INT64:  # what is none of 64 bits is the fallback's
                number = f.call("PyNumber_Long", word)
                f.needs(f.is_there(number))
                value = f.call("PyLong_AsLongLong", number)
                f.call("Py_DecRef", number)
                f.needs(f.is_calm())
                f.put(I64, value, data, index)
            else:
                number = f.call("PyFloat_FromString", word)
                f.needs(f.is_there(number))
                value = f.call("PyFloat_AsDouble", number)
                f.call("Py_DecRef", number)
                if dtype == FLOAT:
                    f.put("float", f.value(f"fptrunc double {value} to float"), data, index, 4)
                else:
                    f.put("double", value, data, index)


def _needs_plain(f: Function, word: str, room: str) -> None:
    """What has an underscore or a letter outside ASCII is the fallback's: Python reads numbers that ONNX does not know."""
    text = f.call("PyUnicode_AsUTF8AndSize", word, room)
    f.needs(f.is_there(text))
    with f.each(f.load(I64, room, 8), ("i1", "true")) as loop:
        byte = f.load("i8", f.at(text, loop.index), 1)
        plain = f.value(f"icmp sge i8 {byte}, 0")
        plain = f.value(f"and i1 {plain}, {f.value(f'icmp ne i8 {byte}, {_UNDERSCORE}')}")
        loop.next = [f.value(f"and i1 {loop.vars[0]}, {plain}")]
    f.needs(loop.vars[0])


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


def numbered(words: Iterable[str], numbers: dict[str, int]) -> np.ndarray:
    """The words' numbers, int64; new ones get the next, from 1 on."""
    return np.array([numbers.setdefault(word, len(numbers) + 1) for word in words], INT64)


def numbering(numbers: Mapping[str, int]) -> Callable[[np.ndarray], np.ndarray]:
    """What gives the numbers of words as int64, 0 for those that have none."""

    def one_by_one(words: np.ndarray) -> np.ndarray:
        return np.fromiter(map(numbers.get, words.ravel().tolist(), repeat(0)), INT64, words.size)

    none = 0
    own = (OBJECT, numbers, none)
    return make(Lookup(True, INT64.name), one_by_one, *map(id, own), held=own)
