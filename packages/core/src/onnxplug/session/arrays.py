"""Host arrays of what users give, and what they may ask for: dtypes, shapes, memory, DLPack."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract.types import ELEMENT_NAMES, element_of, numpy_dtype
from onnxplug.session import dlpack


def tensor_array(value: Any, not_numeric: str) -> np.ndarray:
    """``value`` as a C-contiguous array in native byte order, itself where it is one. RuntimeError with ``not_numeric``
    for what is not an array or holds text or times, and for a dtype that ONNX does not have.
    """
    if not isinstance(value, np.ndarray) or not _is_numeric(value.dtype):
        raise RuntimeError(not_numeric)
    check_dtype(value.dtype)
    if type(value) is np.ndarray and value.flags.c_contiguous and value.dtype.isnative:
        return value
    native = value.dtype.newbyteorder("=") if value.dtype.kind in "iufc" else value.dtype
    return np.ascontiguousarray(value, dtype=native).reshape(value.shape)


def is_text(dtype: np.dtype) -> bool:
    """Whether arrays of this dtype hold strings, void included, structured as well: onnxruntime takes all of it as text."""
    return dtype.kind in "OUST" or issubclass(dtype.type, np.void)


def _is_numeric(dtype: np.dtype) -> bool:
    """Whether the numbers of this dtype may make a value: onnxruntime counts times among what is text."""
    return not is_text(dtype) and dtype.kind not in "Mm"


def host_memory(dims: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array; RuntimeError where there cannot be one of that size."""
    try:
        return np.empty(dims, dtype)
    except ValueError:
        raise RuntimeError(f"Calculation for Tensor storage size overflowed: {dtype}{list(dims)}") from None


def from_dlpack(data: Any, as_bool: bool = False) -> np.ndarray:
    """The array that shares memory with ``data``, bytes read as booleans where ``as_bool``; RuntimeError for one with gaps."""
    array = dlpack.imported(data)
    if not array.flags.c_contiguous:
        raise RuntimeError("ORT only supports contiguous tensor for now.")
    return array.view(np.bool_) if as_bool and array.dtype == np.uint8 else array


def check_dtype(dtype: np.dtype) -> str:
    """The ONNX element name of ``dtype``; RuntimeError in onnxruntime's words where there is none."""
    try:
        return element_of(dtype)
    except KeyError:
        raise RuntimeError(f"Numpy_type {dtype.num} can't be converted to MLDataType.") from None


_NUMBERS: dict[type, np.dtype] = {
    each: np.dtype(each)
    for each in (
        np.float32, np.float16, np.float64, np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8, np.bool_,
    )
}  # fmt: skip


def element_dtype(element_type: Any, strings: str) -> np.dtype:
    """The dtype of a NumPy type or TensorProto.DataType number; RuntimeError with ``strings`` where it holds
    text or times.
    """
    if element_type.__class__ is type and (known := _NUMBERS.get(element_type)) is not None:
        return known  # as nearly always
    if isinstance(element_type, int):
        if element_type not in ELEMENT_NAMES:
            raise RuntimeError(f"tensor type {element_type} is not supported")
        dtype = numpy_dtype(ELEMENT_NAMES[element_type])
    else:
        try:
            dtype = np.dtype(element_type)
        except TypeError as error:
            raise RuntimeError(f"Not a valid numpy type: {error}") from None
    if not _is_numeric(dtype):
        raise RuntimeError(strings)
    check_dtype(dtype)
    return dtype


def shape_tuple(shape: Sequence[int]) -> tuple[int, ...]:
    """Dimensions as integers; TypeError for anything else, RuntimeError for a negative one."""
    try:
        dims = tuple(map(operator.index, shape))
    except TypeError:
        raise TypeError(
            f"incompatible function arguments: expected a sequence of int as shape, got {shape!r}"
        ) from None
    if dims and min(dims) < 0:
        raise RuntimeError(f"Tensor shape.Size() must be >= 0, got {list(dims)}")
    return dims
