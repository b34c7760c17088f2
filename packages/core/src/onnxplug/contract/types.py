"""Types of values: dense tensors and the non-tensor types of ONNX, and how element types map to NumPy dtypes.

Element types carry ONNX's short names ("float", "int64", "bfloat16", ...); a shape is a tuple of ``int`` (known),
``str`` (symbol) or ``None`` (unknown) dimensions, or ``None`` when even the rank is unknown. ``str(type)`` is
onnxruntime's type string, ``tensor(float)``.
"""

from __future__ import annotations

import functools

import numpy as np

from onnxplug.contract.records import record

Dim = int | str | None
Shape = tuple[Dim, ...]

# TensorProto.DataType (onnx.proto): code -> (short name, NumPy or ml_dtypes name)
_ELEMENTS: dict[int, tuple[str, str]] = {
    1: ("float", "float32"), 2: ("uint8", "uint8"), 3: ("int8", "int8"), 4: ("uint16", "uint16"), 5: ("int16", "int16"),
    6: ("int32", "int32"), 7: ("int64", "int64"), 8: ("string", "object"), 9: ("bool", "bool"), 10: ("float16", "float16"),
    11: ("double", "float64"), 12: ("uint32", "uint32"), 13: ("uint64", "uint64"), 14: ("complex64", "complex64"),
    15: ("complex128", "complex128"), 16: ("bfloat16", "bfloat16"), 17: ("float8e4m3fn", "float8_e4m3fn"),
    18: ("float8e4m3fnuz", "float8_e4m3fnuz"), 19: ("float8e5m2", "float8_e5m2"), 20: ("float8e5m2fnuz", "float8_e5m2fnuz"),
    21: ("uint4", "uint4"), 22: ("int4", "int4"), 23: ("float4e2m1", "float4_e2m1fn"), 24: ("float8e8m0", "float8_e8m0fnu"),
    25: ("uint2", "uint2"), 26: ("int2", "int2"), 27: ("float6e2m3", "float6_e2m3fn"),
    28: ("float6e3m2", "float6_e3m2fn"),
}  # fmt: skip
ELEMENT_NAMES: dict[int, str] = {code: names[0] for code, names in _ELEMENTS.items()}
ELEMENT_CODES: dict[str, int] = {name: code for code, name in ELEMENT_NAMES.items()}


@functools.cache
def numpy_dtype(element: str) -> np.dtype:
    """The dtype that holds ``element`` ("float" -> float32, "string" -> object, "bfloat16" -> ml_dtypes' bfloat16)."""
    name = _ELEMENTS[ELEMENT_CODES[element]][1]
    try:
        dtype: np.dtype = np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype


@functools.cache
def element_of(dtype: np.dtype) -> str:
    """The ONNX element name of a NumPy dtype; strings of any NumPy kind are "string". KeyError where ONNX has no such
    type."""
    if dtype.kind in "UOST" and dtype.names is None:
        return "string"
    native = dtype.newbyteorder("=") if dtype.kind in "iufc" else dtype
    for name, numpy_name in _ELEMENTS.values():
        if native.name == numpy_name:
            return name
    raise KeyError(str(dtype))


@record(frozen=True, slots=True)
class TensorType:
    """A dense tensor."""

    element: str
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"tensor({self.element})"

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type of the elements."""
        return numpy_dtype(self.element)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape when every dimension is a number, else None."""
        if self.shape is None:
            return None
        known = tuple(d for d in self.shape if isinstance(d, int))
        return known if len(known) == len(self.shape) else None


@record(frozen=True, slots=True)
class SparseTensorType:
    """A sparse tensor (COO)."""

    element: str
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"sparse_tensor({self.element})"


@record(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    element: ValueType

    def __str__(self) -> str:
        return f"seq({self.element})"


@record(frozen=True, slots=True)
class OptionalType:
    """A value or nothing (``None``)."""

    element: ValueType

    def __str__(self) -> str:
        return f"optional({self.element})"


@record(frozen=True, slots=True)
class MapType:
    """A dictionary."""

    key: str
    value: ValueType

    def __str__(self) -> str:
        return f"map({self.key},{self.value})"


ValueType = TensorType | SparseTensorType | SequenceType | OptionalType | MapType


def is_device_type(type_: ValueType | None) -> bool:
    """Whether values of this type may live in a device's memory: dense tensors of fixed-size elements. All else stays
    on the host."""
    return isinstance(type_, TensorType) and type_.element != "string"
