"""Element types: ONNX's ``TensorProto.DataType`` codes and the dtypes that hold them.

Types NumPy lacks (bfloat16, the float8, float6 and float4 families, 4- and 2-bit integers) come from ml_dtypes, one
element per item whatever their width. Strings are arrays of Python ``str`` with dtype ``object``.
"""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import Any

import numpy as np


class ElementType(IntEnum):
    """The codes of ``TensorProto.DataType``; ``name.lower()`` is the word in a schema's ``tensor(...)``."""

    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26
    FLOAT6E2M3 = 27
    FLOAT6E3M2 = 28


_NUMPY: dict[ElementType, np.dtype[Any]] = {
    code: np.dtype(scalar)
    for code, scalar in {
        ElementType.FLOAT: np.float32,
        ElementType.UINT8: np.uint8,
        ElementType.INT8: np.int8,
        ElementType.UINT16: np.uint16,
        ElementType.INT16: np.int16,
        ElementType.INT32: np.int32,
        ElementType.INT64: np.int64,
        ElementType.STRING: np.object_,
        ElementType.BOOL: np.bool_,
        ElementType.FLOAT16: np.float16,
        ElementType.DOUBLE: np.float64,
        ElementType.UINT32: np.uint32,
        ElementType.UINT64: np.uint64,
        ElementType.COMPLEX64: np.complex64,
        ElementType.COMPLEX128: np.complex128,
    }.items()
}
_CODES = {dtype: code for code, dtype in _NUMPY.items()}
_ML_DTYPES = {
    ElementType.BFLOAT16: "bfloat16",
    ElementType.FLOAT8E4M3FN: "float8_e4m3fn",
    ElementType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    ElementType.FLOAT8E5M2: "float8_e5m2",
    ElementType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    ElementType.UINT4: "uint4",
    ElementType.INT4: "int4",
    ElementType.FLOAT4E2M1: "float4_e2m1fn",
    ElementType.FLOAT8E8M0: "float8_e8m0fnu",
    ElementType.UINT2: "uint2",
    ElementType.INT2: "int2",
    ElementType.FLOAT6E2M3: "float6_e2m3fn",
    ElementType.FLOAT6E3M2: "float6_e3m2fn",
}
"""Names in ml_dtypes, which is imported when a model has one of them."""


@functools.cache
def _others() -> dict[ElementType, np.dtype[Any]]:
    import ml_dtypes

    return {code: np.dtype(getattr(ml_dtypes, name)) for code, name in _ML_DTYPES.items()}


FLOAT8 = frozenset(
    {ElementType.FLOAT8E4M3FN, ElementType.FLOAT8E4M3FNUZ, ElementType.FLOAT8E5M2, ElementType.FLOAT8E5M2FNUZ}
)
SUB_BYTE_INTEGERS = {ElementType.UINT4: 4, ElementType.INT4: 4, ElementType.UINT2: 2, ElementType.INT2: 2}


def numpy_dtype(code: int) -> np.dtype[Any]:
    """The NumPy dtype of an ONNX element type."""
    try:
        known = ElementType(code)
        return _NUMPY[known] if known in _NUMPY else _others()[known]
    except (KeyError, ValueError):
        raise ValueError(f"{code} is not the code of an ONNX element type") from None


@functools.lru_cache(maxsize=256)
def dtype_in(xp: Any, code: int) -> Any:
    """What ``xp`` calls an ONNX element type; NumPy's dtype where ``xp`` has no name for it."""
    dtype = numpy_dtype(code)
    return (
        getattr(xp, dtype.name, dtype) if dtype.kind != "O" else dtype
    )  # whose name NumPy puts together anew each time


def element_type(dtype: Any) -> ElementType:
    """The ONNX element type of a NumPy dtype; every string dtype is STRING."""
    dtype = np.dtype(dtype)
    if dtype.kind in "UST":
        return ElementType.STRING
    found = _CODES.get(dtype)
    if found is None:
        found = next((code for code, other in _others().items() if other == dtype), None)
    if found is None:
        raise ValueError(f"dtype {dtype} holds no ONNX element type")
    return found


def is_string(x: Any) -> bool:
    """Whether an array holds strings, as objects or in NumPy's fixed-width form."""
    return getattr(x.dtype, "kind", "") in ("O", "U", "T")


@functools.cache
def integer_range(code: int) -> tuple[int, int] | None:
    """Least and greatest value of an integer element type, or None for the other types."""
    dtype = numpy_dtype(code)
    if dtype.kind in "iu":
        plain = np.iinfo(dtype)
        return int(plain.min), int(plain.max)
    if ElementType(code) in SUB_BYTE_INTEGERS:
        import ml_dtypes

        info = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        return int(info.min), int(info.max)
    return None
