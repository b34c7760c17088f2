"""Functions of Python's own calling convention over arrays of Python objects: generated code that calls the interpreter's C API.

They hold the interpreter's lock, and touch objects through exported functions alone, which count references. What a function does
not take (another type, a view with gaps, shapes that broadcast in unusual ways) it hands to the kernel in whose place it stands,
with the arguments it was called with; that kernel also says what is wrong with data.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.emit import I64, PTR, Emitter, Loop
from onnxplug_ep_cpu.codegen.entry import (
    DATA,
    DIMENSIONS,
    DTYPE,
    ELEMENT,
    FLAGS,
    RANK,
    TYPE,
    Method,
)
from onnxplug_ep_cpu.codegen.interpreter import API, addresses
from onnxplug_ep_cpu.codegen.target import Target, host_target

MOST_RANK = 32
"""Dimensions for which functions make room."""
_ELEMENT_MASK = int.from_bytes(b"\xff\xff\xff\0\xff\xff\xff\xff", sys.byteorder, signed=True)
"""What tells element types apart in the word of a dtype: not the former flags."""
_PLACES = {name: place for place, name in enumerate(API)}
_ARRAY, _FALLBACK, _OWN = len(API), len(API) + 1, len(API) + 2
"""Places of ``numpy.ndarray``, of the kernel that takes what the function does not, and of the function's own words."""


@record(frozen=True, slots=True)
class Array:
    """An array: where its object, its elements, its dimensions and its dtype are; how many dimensions and elements; its flags."""

    object: str
    data: str
    rank: str
    dims: str
    size: str
    dtype: str
    flags: str


class Function(Emitter):
    """Writes one function of so many operands. A block that leaves early goes to one of two places: ``needs`` to the fallback,
    whatever was made being dropped; ``raises`` out of the function, with the exception that is set."""

    def __init__(self, name: str, target: Target, operands: int) -> None:
        super().__init__(name, target)
        self.lines[0] = f"define ptr @{name}(ptr %self, ptr %args, i64 %n) #0 {{"
        self._made: str | None = None
        self._words = self.load(PTR, self.at("%self", DATA), 8)
        self._entry: dict[str, str] = {}
        self._at = len(self.lines)
        self.needs(self.value(f"icmp eq i64 %n, {operands}"))

    def finish(self) -> str:
        if self._made is not None:
            self.start("dropped")
            self.call("Py_DecRef", self._made)
            self.do("br label %fallback")
            self.start("failed")
            self.call("Py_DecRef", self._made)
            self.do("ret ptr null")
        self.start("fallback")
        self.call("PyErr_Clear")
        other = self.word(_FALLBACK)
        self.do(f"ret ptr {self.call('PyObject_Vectorcall', other, '%args', '%n', 'null')}")
        lines = [*self.lines[: self._at], *self._entry.values(), *self.lines[self._at :]]
        attributes = "attributes #0 = { nounwind }"
        return "\n".join([*self.declared.values(), *lines, "}", attributes, ""])

    # ---- words and calls

    def word(self, place: int, type_: str = PTR) -> str:
        return self.load(type_, self.at(self._words, 8 * place), 8)

    def own(self, number: int, type_: str = PTR) -> str:
        """One of the function's own words."""
        return self.word(_OWN + number, type_)

    def call(self, name: str, *arguments: str | int) -> str:
        """Call a function of ``API``."""
        result, types = API[name]
        place = f"%api.{name}"
        if name not in self._entry:
            self._entry[name] = (
                f"  {place}.p = getelementptr i8, ptr {self._words}, i64 {8 * _PLACES[name]}\n"
                f"  {place} = load ptr, ptr {place}.p, align 8"
            )
        given = ", ".join(f"{t} {v}" for t, v in zip(types.split(", ") if types else (), arguments, strict=True))
        if result == "void":
            self.do(f"call void {place}({given})")
            return ""
        return self.value(f"call {result} {place}({given})")

    # ---- ways out

    def needs(self, condition: str) -> None:
        """Go on if ``condition``, else to the fallback."""
        self._unless(condition, "fallback" if self._made is None else "dropped")

    def raises(self, condition: str) -> None:
        """Go on if ``condition``, else give the exception that is set."""
        self._unless(condition, "failed")

    def _unless(self, condition: str, other: str) -> None:
        following = self.label("on")
        self.do(f"br i1 {condition}, label %{following}, label %{other}")
        self.start(following)

    def either(self, a: str, b: str) -> str:
        return self.value(f"or i1 {a}, {b}")

    def is_calm(self) -> str:
        """Whether no exception is set."""
        return self.value(f"icmp eq ptr {self.call('PyErr_Occurred')}, null")

    def is_there(self, pointer: str) -> str:
        return self.value(f"icmp ne ptr {pointer}, null")

    # ---- arrays

    def array(self, number: int, dtype: str) -> Array:
        """The operand of a number; the fallback takes what is no dense array of the dtype (an object's address)."""
        found = self.dense(self.load(PTR, self.at("%args", 8 * number), 8))
        self.needs(self.value(f"icmp eq i64 {self.element_word(found.dtype)}, {self.element_word(dtype)}"))
        return found

    def any_array(self, number: int) -> Array:
        """The operand of a number, of any type and strides."""
        return self._array(self.load(PTR, self.at("%args", 8 * number), 8), 0)

    def dense(self, found: str) -> Array:
        """An object that is a dense array."""
        return self._array(found, DENSE)

    def _array(self, found: str, wanted: int) -> Array:
        self.needs_type(found, self.array_type())
        flags = self.load("i32", self.at(found, FLAGS))
        self.needs(self.value(f"icmp eq i32 {self.value(f'and i32 {flags}, {wanted}')}, {wanted}"))
        rank = self.value(f"sext i32 {self.load('i32', self.at(found, RANK))} to i64")
        data, dims, dtype = (self.load(PTR, self.at(found, place), 8) for place in (DATA, DIMENSIONS, DTYPE))
        return Array(found, data, rank, dims, self.product(dims, 0, rank), dtype, flags)

    def array_type(self) -> str:
        """``numpy.ndarray``."""
        return self.word(_ARRAY)

    def needs_type(self, found: str, kind: str) -> None:
        """That the object is of a type, and of no other derived from it."""
        self.needs(self.is_there(found))
        self.needs(self.value(f"icmp eq ptr {self.load(PTR, self.at(found, TYPE), 8)}, {kind}"))

    def element_word(self, dtype: str) -> str:
        """What tells a dtype from others; an array that was unpickled has an object of its own for one."""
        return self.and_(self.load(I64, self.at(dtype, ELEMENT), 8), _ELEMENT_MASK)

    def axis(self, axis: int, rank: str) -> str:
        """The axis counted from the front, which there is."""
        found = self.add(rank if axis < 0 else 0, axis)
        self.needs(self.value(f"icmp ult i64 {found}, {rank}"))
        return found

    def product(self, dims: str, first: int | str, last: int | str) -> str:
        """The elements of dimensions ``first`` to ``last``."""
        with self.loop(first, last, carried=((I64, "1"),)) as loop:
            loop.next = [self.mul(loop.vars[0], self.item(I64, dims, loop.index))]
        return loop.vars[0]

    def item(self, type_: str, data: str, index: str, size: int = 8) -> str:
        """The item of an index, of ``size`` bytes."""
        return self.load(type_, self.at(data, self.mul(index, size)), size)

    def put(self, type_: str, value: str, data: str, index: str, size: int = 8) -> None:
        self.store(type_, value, self.at(data, self.mul(index, size)), size)

    def element(self, data: str, index: str) -> str:
        """An object of an array, borrowed."""
        found = self.item(PTR, data, index)
        self.needs(self.is_there(found))
        return found

    def new(self, rank: str, dims: str, number: str | int) -> tuple[str, str]:
        """A new array of the dtype of a number, with its elements: objects are null, others anything. From here on the ways out
        drop it; the first of a function's arrays."""
        assert self._made is None
        made, data = self.further(rank, dims, number, "fallback")
        self._made = made
        return made, data

    def further(self, rank: str, dims: str, number: str | int, otherwise: str = "dropped") -> tuple[str, str]:
        """As ``new``, but nothing drops it."""
        short = self.value(f"trunc i64 {rank} to i32")
        kind = self.array_type()
        made = self.call("PyArray_New", kind, short, dims, number, "null", "null", 0, 0, "null")
        self._unless(self.is_there(made), otherwise)
        return made, self.load(PTR, self.at(made, DATA), 8)

    def view(self, x: Array, rank: str, dims: str, data: str, strides: str = "null") -> str:
        """A new array that shows memory of ``x``, dense unless it has strides of its own; without what keeps that alive, for which
        ``keep`` asks."""
        flags, number = (
            self.value(f"and i32 {x.flags}, {_SHOWN_FLAGS}"),
            self.load("i32", self.at(x.dtype, ELEMENT + 4)),
        )
        short = self.value(f"trunc i64 {rank} to i32")
        made = self.call("PyArray_New", self.array_type(), short, dims, number, strides, data, 0, flags, "null")
        self.needs(self.is_there(made))
        return made

    def keep(self, view: str, x: Array) -> None:
        """The view, which the ways out drop, keeps alive what it shows."""
        self.call("Py_IncRef", x.object)
        self.needs(self.value(f"icmp eq i32 {self.call('PyArray_SetBaseObject', view, x.object)}, 0"))

    def guard(self, made: str) -> None:
        """From here on the ways out drop this object."""
        assert self._made is None
        self._made = made

    def copy(self, target: str, source: str, nbytes: str) -> None:
        self.intrinsic("llvm.memcpy.p0.p0.i64", "void", (PTR, target), (PTR, source), (I64, nbytes), ("i1", "false"))

    def clear(self, target: str, nbytes: str) -> None:
        """Zeros."""
        self.intrinsic("llvm.memset.p0.i64", "void", (PTR, target), ("i8", "0"), (I64, nbytes), ("i1", "false"))

    def room(self) -> str:
        """Memory for an array's dimensions."""
        return self.value(f"alloca [{MOST_RANK} x i64], align 8")

    def give(self, made: str) -> None:
        self.do(f"ret ptr {made}")

    @contextmanager
    def each(self, count: str, *carried: tuple[str, str]) -> Iterator[Loop]:
        with self.loop(0, count, carried=carried) as loop:
            yield loop


_SHOWN_FLAGS = 0x100 | 0x400
"""NPY_ARRAY_ALIGNED and NPY_ARRAY_WRITEABLE, which a view has of what it shows."""
DENSE = 0x1 | 0x100
"""NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED."""


class Written(Protocol):
    """A description of a function, from which it is generated."""

    @property
    def operands(self) -> int:
        """How many it takes."""

    def __hash__(self) -> int:
        """Equal ones are the same function."""

    def emit(self, f: Function) -> None:
        """Write it."""


def make(written: Written, fallback: Callable[..., Any], *own: int, held: Any = None) -> Callable[..., Any]:
    """The function of a description, which finds ``own`` words in its record. ``held`` is what they are the addresses of."""
    words = np.array([*addresses(), id(np.ndarray), id(fallback), *own], np.int64)
    made: Callable[..., Any] = _new()(ctypes.addressof(_method(written)), words, (fallback, held))
    return made


@functools.cache
def _method(written: Written) -> Method:
    """The function's compiled code as the interpreter calls it, made once in a process."""
    name, target = type(written).__name__.lower(), host_target()
    function = Function(name, target, written.operands)
    written.emit(function)
    code = compiler(target).load(function.finish())
    method = Method.fast(name, code.get_function_address(name))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object((method, code)))  # functions read them even at the interpreter's end
    return method


@functools.cache
def _new() -> Any:
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    return prototype(("PyCFunction_NewEx", ctypes.pythonapi))
