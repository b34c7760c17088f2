"""Functions of CPython's and NumPy's C API that generated code calls, and where they are in this process."""

from __future__ import annotations

import ctypes
import functools
import importlib

from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.entry import address_of, check_layout

_NUMPY = {"PyArray_New": 93, "PyArray_SetBaseObject": 282}
"""Places in NumPy's table of functions, which is part of its binary interface (numpy/__multiarray_api.h)."""

API: dict[str, tuple[str, str]] = {
    "PyArray_New": (PTR, "ptr, i32, ptr, i32, ptr, ptr, i32, i32, ptr"),
    "PyArray_SetBaseObject": ("i32", "ptr, ptr"),
    "PyDict_GetItemWithError": (PTR, "ptr, ptr"),
    "PyErr_Clear": ("void", ""),
    "PyErr_Occurred": (PTR, ""),
    "PyFloat_AsDouble": ("double", "ptr"),
    "PyFloat_FromString": (PTR, "ptr"),
    "PyList_GetItem": (PTR, "ptr, i64"),
    "PyList_New": (PTR, "i64"),
    "PyList_SetItem": ("i32", "ptr, i64, ptr"),
    "PyList_Size": (I64, "ptr"),
    "PyLong_AsLongLong": (I64, "ptr"),
    "PyLong_FromLongLong": (PTR, "i64"),
    "PyMem_Free": ("void", "ptr"),
    "PyNumber_Long": (PTR, "ptr"),
    "PyOS_double_to_string": (PTR, "double, i8, i32, i32, ptr"),
    "PyOS_string_to_double": ("double", "ptr, ptr, ptr"),
    "PyObject_CallOneArg": (PTR, "ptr, ptr"),
    "PyObject_RichCompareBool": ("i32", "ptr, ptr, i32"),
    "PyObject_Str": (PTR, "ptr"),
    "PyObject_Vectorcall": (PTR, "ptr, ptr, i64, ptr"),
    "PyTuple_New": (PTR, "i64"),
    "PyTuple_SetItem": ("i32", "ptr, i64, ptr"),
    "PyUnicode_AsUTF8AndSize": (PTR, "ptr, ptr"),
    "PyUnicode_Concat": (PTR, "ptr, ptr"),
    "PyUnicode_FromString": (PTR, "ptr"),
    "PyUnicode_Split": (PTR, "ptr, ptr, i64"),
    "Py_DecRef": ("void", "ptr"),
    "Py_IncRef": ("void", "ptr"),
}
"""Function -> result, and arguments."""


@functools.cache
def addresses() -> tuple[int, ...]:
    """Where the functions of ``API`` are, in its order. RuntimeError for a NumPy whose arrays lie otherwise than generated code takes
    them to."""
    check_layout()
    core = importlib.import_module("numpy._core._multiarray_umath")
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = pointer(core._ARRAY_API, None)
    word = ctypes.sizeof(ctypes.c_void_p)
    found = {name: ctypes.c_void_p.from_address(table + place * word).value or 0 for name, place in _NUMPY.items()}
    return tuple(found.get(name) or address_of(getattr(ctypes.pythonapi, name)) for name in API)
