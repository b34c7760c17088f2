"""DLPack over NumPy's own, with the element types that NumPy lacks: a capsule's type code is read and written in place
(dlpack.h: DLManagedTensor begins with DLTensor)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from onnxplug.contract.types import element_of, numpy_dtype

CPU = 1
_NAME = b"dltensor"
_UINT = 1
_ELSEWHERE = "Only host memory can be imported by DLPack; feed device tensors of this library as OrtValue"
_CODES = {
    "bfloat16": 4, "float8e4m3fn": 10, "float8e4m3fnuz": 11, "float8e5m2": 12, "float8e5m2fnuz": 13, "float8e8m0": 14,
}  # fmt: skip
"""DLDataTypeCode of the types that NumPy does not exchange."""
_ELEMENTS = {code: element for element, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
    )  # fmt: skip


class _Held:
    """A capsule of host memory in the form that ``np.from_dlpack`` asks for."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **protocol: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def exported(array: np.ndarray, protocol: dict[str, Any]) -> Any:
    """A capsule over the array's memory (a copy of it where it is read-only). RuntimeError for strings and for types
    DLPack has none for."""
    element = element_of(array.dtype)
    if element == "string":
        raise RuntimeError("Unexpected data type of 8: strings cannot be exchanged by DLPack")
    if not array.flags.writeable:
        array = array.copy()
    if element not in _CODES and array.dtype.isbuiltin == 1:
        return array.__dlpack__(**protocol)
    if element not in _CODES:
        raise RuntimeError(f"tensor({element}) cannot be exchanged by DLPack")
    capsule = array.view(f"u{array.dtype.itemsize}").__dlpack__()
    _header(capsule).code = _CODES[element]
    return capsule


def imported(data: Any) -> np.ndarray:
    """The array over the memory of a capsule, or of an object with ``__dlpack__``. TypeError for anything else,
    RuntimeError for memory that is not the host's."""
    if type(data).__name__ != "PyCapsule":
        if not hasattr(data, "__dlpack__"):
            raise TypeError("from_dlpack expected a valid DLPack capsule named 'dltensor'")
        if hasattr(data, "__dlpack_device__") and data.__dlpack_device__()[0] != CPU:
            raise RuntimeError(_ELSEWHERE)
        if isinstance(data, np.ndarray):
            return np.from_dlpack(data)
        data = data.__dlpack__()
    header = _header(data)
    if header.device_type != CPU:
        raise RuntimeError(_ELSEWHERE)
    element = _ELEMENTS.get(header.code)
    if element is None:
        return _writable(np.from_dlpack(_Held(data)))
    header.code = _UINT
    return _writable(np.from_dlpack(_Held(data))).view(numpy_dtype(element))


def _writable(array: np.ndarray) -> np.ndarray:
    """The array as one that may be written: NumPy takes every capsule of the old form for read-only."""
    if array.flags.writeable or not array.flags.c_contiguous or array.size == 0:
        return array
    block = (ctypes.c_ubyte * array.nbytes).from_address(array.ctypes.data)
    block.owner = array  # type: ignore[attr-defined]  # whoever holds the block holds what was imported
    return np.frombuffer(memoryview(block), np.uint8).view(array.dtype).reshape(array.shape)


def is_dlpack_uint8_tensor(capsule: Any) -> bool:
    """Whether a capsule holds uint8, as boolean tensors did before DLPack had a code for them."""
    header = _header(capsule)
    return (header.code, header.bits, header.lanes) == (_UINT, 8, 1)


def _header(capsule: Any) -> _Tensor:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        address = pointer(capsule, _NAME)
    except ValueError:
        raise TypeError("from_dlpack expected a valid DLPack capsule named 'dltensor'") from None
    return _Tensor.from_address(address)
