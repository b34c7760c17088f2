"""Results in the form in which programs get them. onnxruntime's 64-bit integers are C's ``long long``, which NumPy tells from its own
``int64`` where that is ``long``: equal, but printed with the type."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import MapType, OptionalType, SequenceType, TensorType, ValueType
from onnxplug.session.sparse import SparseTensor

_WIDE = {np.dtype(np.int64): np.dtype(np.longlong), np.dtype(np.uint64): np.dtype(np.ulonglong)}
_ELEMENTS = ("int64", "uint64")


def handed(value: Any) -> Any:
    """The result as a program gets it: arrays of 64-bit integers, also those in a sequence, are viewed as C's ``long long``, a sparse
    tensor is the extension class's; all else is ``value`` itself."""
    if value.__class__ is np.ndarray:
        wide = _WIDE.get(value.dtype)
        return value if wide is None else value.view(wide)
    if value.__class__ is list and value and value[0].__class__ is not dict:
        return list(map(handed, value))
    return value._get_c_tensor() if value.__class__ is SparseTensor else value


def viewed_as(type_: ValueType | None) -> np.dtype | None:
    """What a tensor of this type is viewed as; None for what is no tensor of wide integers."""
    return _WIDE.get(type_.dtype) if isinstance(type_, TensorType) else None


def may_differ(type_: ValueType | None) -> bool:
    """Whether ``handed`` may change results of this type."""
    while isinstance(type_, SequenceType | OptionalType):
        type_ = type_.element
    if isinstance(type_, MapType):
        return False
    return not isinstance(type_, TensorType) or type_.element in _ELEMENTS
