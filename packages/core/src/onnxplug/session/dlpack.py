"""DLPack over NumPy's own, with the element types that NumPy lacks: a capsule's type code is read and written in place
(dlpack.h: DLManagedTensor begins with DLTensor)."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

from onnxplug.contract.types import element_of, numpy_dtype

CPU = 1
_KINDS = {2: "cuda", 13: "cuda"}  # kDLCUDA, kDLCUDAManaged
"""Devices of other libraries' tensors whose memory can be used."""
_LEGACY_STREAM = 1
"""CUDA's default stream, as DLPack numbers streams."""
_NAME, _VERSIONED = b"dltensor", b"dltensor_versioned"
_UINT = 1
_ELSEWHERE = "Only memory of the host and of CUDA devices can be imported by DLPack"
_CODES = {
    "bfloat16": 4, "float8e4m3fn": 10, "float8e4m3fnuz": 11, "float8e5m2": 12, "float8e5m2fnuz": 13, "float8e8m0": 14,
}  # fmt: skip
"""DLDataTypeCode of the types that NumPy does not exchange."""
_ELEMENTS = {code: element for element, code in _CODES.items()}
_LETTERS = {0: "i", _UINT: "u", 2: "f", 5: "c"}
_BOOL = 6


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )  # fmt: skip


class Elsewhere(NamedTuple):
    """A dense tensor in memory of a device that another library has, as long as ``owner`` lives."""

    kind: str
    device_id: int
    address: int
    dtype: np.dtype
    shape: tuple[int, ...]
    owner: Any


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


def elsewhere(data: Any) -> Elsewhere | None:
    """The tensor of a capsule, or of an object with ``__dlpack__``, that is in memory of a device; None for any other. RuntimeError for
    devices and types that are not taken, and for tensors with gaps."""
    if type(data).__name__ != "PyCapsule":
        if not hasattr(data, "__dlpack_device__") or (device := int(data.__dlpack_device__()[0])) == CPU:
            return None
        if device not in _KINDS:
            raise RuntimeError(_ELSEWHERE)
        data = data.__dlpack__(stream=_LEGACY_STREAM)
    tensor = _header(data)
    if tensor.device_type == CPU:
        return None
    dtype = _dtype_of(tensor)
    if tensor.device_type not in _KINDS or dtype is None:
        raise RuntimeError(
            _ELSEWHERE if dtype else f"A tensor of DLPack's type {tensor.code} with {tensor.bits} bits is not taken"
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    steps = tensor.strides[: tensor.ndim] if tensor.strides else None
    dense = [math.prod(shape[n + 1 :]) for n in range(tensor.ndim)]
    if steps is not None and any(n > 1 and s != d for n, s, d in zip(shape, steps, dense, strict=True)):
        raise RuntimeError("ORT only supports contiguous tensor for now.")
    address = (tensor.data or 0) + tensor.byte_offset
    return Elsewhere(_KINDS[tensor.device_type], tensor.device_id, address, dtype, shape, data)


def _dtype_of(tensor: _Tensor) -> np.dtype | None:
    """The type of elements, None where there is none like it."""
    element = _ELEMENTS.get(tensor.code)
    if element is not None:
        return numpy_dtype(element)
    try:
        found = np.dtype("?" if tensor.code == _BOOL else f"{_LETTERS[tensor.code]}{tensor.bits // 8}")
    except (KeyError, TypeError):
        return None
    return found if tensor.lanes == 1 and found.itemsize * 8 == tensor.bits else None


def keeping(capsule: Any, owner: Any) -> Any:
    """``capsule``, whose tensor keeps ``owner`` alive, too: another library may hold it longer than anybody else."""
    name = _VERSIONED if _is_versioned(capsule) else _NAME
    address = _address(capsule, name)
    managed = (_ManagedVersioned if name is _VERSIONED else _Managed).from_address(address)
    _exported[address] = owner, managed.deleter
    managed.deleter = ctypes.cast(_deleter, ctypes.c_void_p)
    return capsule


_exported: dict[int, tuple[Any, int | None]] = {}
"""Of tensors that were exported: their owner, and what deletes them."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _delete(address: int) -> None:
    _, deleter = _exported.pop(address)
    if deleter:
        _Deleter(deleter)(address)


_deleter = _Deleter(_delete)


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
    return _Tensor.from_address(_address(capsule, _NAME))


def _address(capsule: Any, name: bytes) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        address: int = pointer(capsule, name)
    except ValueError:
        raise TypeError("from_dlpack expected a valid DLPack capsule named 'dltensor'") from None
    return address


def _is_versioned(capsule: Any) -> bool:
    named = ctypes.pythonapi.PyCapsule_IsValid
    named.argtypes = (ctypes.py_object, ctypes.c_char_p)
    return bool(named(capsule, _VERSIONED))
