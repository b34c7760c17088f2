"""A program as a function of Python's own calling convention: it finds its operands where the interpreter lays arguments, so
that a small region's run makes no conversion.

The function's ``self`` is a NumPy array of words: a driver's record, and behind it what the function itself reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug_ep_cpu.codegen.loader import Code

DATA = object.__basicsize__
"""Offset of ``PyArrayObject.data``, the first field behind the object's head (numpy/ndarraytypes.h)."""
TYPE = DATA - 8
"""Offset of ``PyObject.ob_type``, the last field of the head."""
DIMENSIONS, STRIDES = DATA + 16, DATA + 24
"""Offsets of ``PyArrayObject.dimensions`` and ``strides``, pointers behind data and number of dimensions."""
RANK, DTYPE, FLAGS = DATA + 8, DATA + 40, DATA + 48
"""Offsets of ``PyArrayObject.nd``, of ``descr`` behind strides and base, and of ``flags``."""
ELEMENT = DATA + 8
"""Offset in ``PyArray_Descr`` of kind, type, byte order and former flags, a byte each, and of the int ``type_num``."""
ITEM_SIZE = ELEMENT + 16
"""Offset there of ``elsize``, behind the flags."""

RECORD_WORDS = 6
_FASTCALL = 0x80
"""METH_FASTCALL: the function takes its ``self``, the address of its arguments and their number."""

ENTRY = f"""
define ptr @entry(ptr %self, ptr %args, i64 %n) {{
entry:
  %wordsp = getelementptr i8, ptr %self, i64 {DATA}
  %record = load ptr, ptr %wordsp
  %own = getelementptr i64, ptr %record, i64 {RECORD_WORDS}
  %count = load i64, ptr %own
  %kindp = getelementptr i64, ptr %own, i64 1
  %kind = load ptr, ptr %kindp
  %savep = getelementptr i64, ptr %own, i64 2
  %save = load ptr, ptr %savep
  %restorep = getelementptr i64, ptr %own, i64 3
  %restore = load ptr, ptr %restorep
  %right = icmp eq i64 %n, %count
  br i1 %right, label %head, label %refuse
head:
  %i = phi i64 [0, %entry], [%i1, %dense]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %look, label %ready
look:
  %at = getelementptr ptr, ptr %args, i64 %i
  %operand = load ptr, ptr %at
  %typep = getelementptr i8, ptr %operand, i64 {TYPE}
  %type = load ptr, ptr %typep
  %array = icmp eq ptr %type, %kind
  br i1 %array, label %shape, label %refuse
shape:
  %flagsp = getelementptr i8, ptr %operand, i64 {FLAGS}
  %flags = load i32, ptr %flagsp
  %bit = and i32 %flags, 1
  %gaps = icmp eq i32 %bit, 0
  br i1 %gaps, label %refuse, label %dense
dense:
  %i1 = add i64 %i, 1
  br label %head
ready:
  %short = icmp eq ptr %save, null
  br i1 %short, label %held, label %free
held:
  call void @launch(ptr null, ptr %record, ptr %args)
  br label %ran
free:
  %state = call ptr %save()
  call void @launch(ptr null, ptr %record, ptr %args)
  call void %restore(ptr %state)
  br label %ran
ran:
  %workspace = load ptr, ptr %args
  %imagep = getelementptr i8, ptr %workspace, i64 {DATA}
  %image = load ptr, ptr %imagep
  %statusp = getelementptr i64, ptr %image, i64 STATUS
  %status = load i64, ptr %statusp
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %answer, label %refuse
answer:
  br label %give
refuse:
  br label %give
give:
  %which = phi i64 [4, %answer], [5, %refuse]
  %resultp = getelementptr i64, ptr %own, i64 %which
  %result = load ptr, ptr %resultp
  %keepp = getelementptr i64, ptr %own, i64 6
  %keep = load ptr, ptr %keepp
  call void %keep(ptr %result)
  ret ptr %result
}}
"""
"""``entry``: True after a run whose data were fine. False where it was not asked with dense arrays, as many as the program has,
and nothing was run; or for data that only the nodes' own kernels can answer to."""


class Method(ctypes.Structure):
    """``PyMethodDef`` (CPython's stable ABI)."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip

    @classmethod
    def fast(cls, name: str, address: int) -> Method:
        """What describes a function of arguments by position."""
        return cls(name.encode(), address, _FASTCALL, None)


def check_layout() -> None:
    """RuntimeError where arrays lie otherwise in memory than generated code takes them to."""
    probe = np.zeros((3, 5))
    at, word, integer = id(probe), ctypes.c_void_p.from_address, ctypes.c_int.from_address
    lies = word(at + DATA).value, word(at + TYPE).value, word(at + DTYPE).value, integer(at + RANK).value
    says = probe.ctypes.data, id(np.ndarray), id(probe.dtype), probe.ndim
    flags, number = integer(at + FLAGS).value, integer(id(probe.dtype) + ELEMENT + 4).value
    sizes, strides = _first(word(at + DIMENSIONS).value), _first(word(at + STRIDES).value)
    width = ctypes.c_ssize_t.from_address(id(probe.dtype) + ITEM_SIZE).value
    rest = probe.flags.num, probe.dtype.num, probe.itemsize, probe.shape[0], probe.strides[0]
    if lies != says or (flags, number, width, sizes, strides) != rest:
        raise RuntimeError("this build of NumPy lays out its arrays in a way that generated code does not know")


class Maker:
    """Makes functions of programs with one of ``code`` that takes them as its ``self``. Keeps the code."""

    def __init__(self, name: str, code: Code, function: str) -> None:
        check_layout()
        self._code, self._method = code, Method.fast(name, code.get_function_address(function))
        api = ctypes.pythonapi
        api.Py_IncRef(ctypes.py_object(self._method))  # functions read it even when they go, at the interpreter's end
        prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self._new = prototype(("PyCFunction_NewEx", api))

    def made(self, record: np.ndarray, own: Sequence[int]) -> Any:
        """The function for a program's record, with what else it reads."""
        words = np.array([*record[:RECORD_WORDS].tolist(), *own], np.int64)
        return self._new(ctypes.addressof(self._method), words, None)


class Entry(Maker):
    """Makes functions of whole programs with the driver's ``entry``."""

    def __init__(self, driver: Code) -> None:
        super().__init__("run", driver, "entry")
        api = ctypes.pythonapi
        self._keep, self._save, self._restore = map(
            address_of, (api.Py_IncRef, api.PyEval_SaveThread, api.PyEval_RestoreThread)
        )

    def function(self, record: np.ndarray, operands: int, lets_go: bool) -> Callable[..., bool]:
        """What runs the whole program of a record on its operands, the workspace first, and says whether it did; for as long as
        the program is kept. ``lets_go``: other threads may use the interpreter meanwhile."""
        free = (self._save, self._restore) if lets_go else (0, 0)
        made: Callable[..., bool] = self.made(
            record, (operands, id(np.ndarray), *free, id(True), id(False), self._keep)
        )
        return made


def _first(numbers: int | None) -> int | None:
    """The first of the numbers at an address."""
    return None if numbers is None else ctypes.c_ssize_t.from_address(numbers).value


def address_of(function: Any) -> int:
    """Of a function that ``ctypes`` knows."""
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None
    return found
