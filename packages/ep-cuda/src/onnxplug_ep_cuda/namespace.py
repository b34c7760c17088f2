"""CuPy as the array namespace of ``onnxplug_kernels``: itself, but for functions that lack what the Array API standard gives them, that
do not know bfloat16, that are inexact, or that cannot be recorded; and with a look at indices that nobody waits for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from onnxplug.contract import NodeView
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug_ep_cuda.faults import Faults
from onnxplug_ep_cuda.fourier import Transforms
from onnxplug_ep_cuda.kernels.move import parts
from onnxplug_ep_cuda.kernels.products import factors, multiplication
from onnxplug_kernels.refusals import FAIL

_BFLOAT16, _BITS = np.dtype(ml_dtypes.bfloat16), np.uint16
_REALS = "fV"
"""Kinds of floats: bfloat16 is no type of NumPy's own."""


class Recorder(Protocol):
    """What keeps recordings."""

    @property
    def recording(self) -> bool:
        """Whether what is queued is recorded."""

    def sent(self, array: np.ndarray) -> Any:
        """A host array on the device, in a way that can be recorded."""


class Namespace:
    """Attributes are CuPy's unless they are here. Needs no driver until a function is called."""

    def __init__(
        self,
        cupy: Any,
        recorder: Recorder | None = None,
        transforms: Transforms | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._cupy, self._recorder, self._faults, self._node = cupy, recorder, faults, ""
        self.fft = cupy.fft if transforms is None else transforms
        self.linalg = SimpleNamespace(det=cupy.linalg.det, inv=self._inverse, diagonal=self._diagonal)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        setattr(self, name, found)
        return found

    def of(self, node: NodeView) -> Namespace:
        """The same for one node, whose name is told with its errors."""
        made = Namespace.__new__(Namespace)
        made.__dict__.update(self.__dict__)
        if self._faults is not None:
            made._node = node.name
        return made

    def watch(self, indices: Any, low: int, high: int, status: str | None = None) -> bool:
        """Have the device tell of indices that are not in ``low`` to ``high`` - 1; False where nobody would read that. ``status``: see
        ``onnxplug_kernels.refusals``."""
        if self._faults is None:
            return False
        from onnxplug_ep_cuda.codegen.bound import watch

        watch(self._faults, self._node, indices, low, high, Fail if status == FAIL else InvalidArgument)
        return True

    def asarray(self, obj: Any, /, *, dtype: Any = None, copy: bool | None = None) -> Any:
        """CuPy's, which refuses arrays of the host while a stream is recorded."""
        if self._recording and isinstance(obj, np.ndarray | list | tuple):
            array = np.asarray(obj, dtype)
            if array.ndim:  # a single number is a kernel's argument
                assert self._recorder is not None
                return self._recorder.sent(np.ascontiguousarray(array))
        return self._cupy.asarray(obj, dtype=dtype, copy=copy)

    def concat(self, arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
        """CuPy's, which sends the addresses of many arrays to the device: refused while a stream is recorded."""
        if not self._recording:
            return self._cupy.concat(arrays, axis=axis)
        first, at = arrays[0], axis % arrays[0].ndim
        sizes = [array.shape[at] for array in arrays]
        shape = (*first.shape[:at], sum(sizes), *first.shape[at + 1 :])
        made = self._cupy.empty(shape, np.result_type(*(array.dtype for array in arrays)))
        for array, span in zip(arrays, parts(sizes, at, first.ndim), strict=True):
            if math.prod(array.shape):
                made[span] = array
        return made

    def stack(self, arrays: Sequence[Any], /, *, axis: int = 0) -> Any:
        """See ``concat``."""
        if not self._recording:
            return self._cupy.stack(arrays, axis=axis)
        return self.concat([self._cupy.expand_dims(array, axis) for array in arrays], axis=axis)

    @property
    def _recording(self) -> bool:
        return self._recorder is not None and self._recorder.recording

    def argsort(self, x: Any, /, *, axis: int = -1, stable: bool = True) -> Any:
        """Indices that sort ``x``; CuPy always sorts stably."""
        return self._cupy.argsort(self._widened(x), axis=axis)

    def where(self, condition: Any, x: Any, y: Any, /) -> Any:
        """CuPy's, which makes float32 of bfloat16."""
        if any(getattr(operand, "dtype", None) == _BFLOAT16 for operand in (x, y)):
            x, y = (self._cupy.asarray(operand, dtype=_BFLOAT16).view(_BITS) for operand in (x, y))
            return self._cupy.where(condition, x, y).view(_BFLOAT16)
        return self._cupy.where(condition, x, y)

    def remainder(self, a: Any, b: Any, /) -> Any:
        """With the sign of ``b``; exact for floats, of which CuPy subtracts a rounded multiple."""
        if a.dtype.kind not in _REALS:
            return self._cupy.remainder(a, b)
        rest = self._cupy.fmod(a, b)
        rest = self.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
        return self.where(rest == 0, self._cupy.copysign(rest, b), rest)

    def tril(self, x: Any, /, *, k: int = 0) -> Any:
        """See ``where``."""
        return self._cupy.tril(x.view(_BITS), k).view(_BFLOAT16) if x.dtype == _BFLOAT16 else self._cupy.tril(x, k)

    def triu(self, x: Any, /, *, k: int = 0) -> Any:
        """See ``where``."""
        return self._cupy.triu(x.view(_BITS), k).view(_BFLOAT16) if x.dtype == _BFLOAT16 else self._cupy.triu(x, k)

    def round(self, x: Any, /) -> Any:
        """See ``where``."""
        return self._cupy.round(self._widened(x)).astype(x.dtype, copy=False)

    def _widened(self, x: Any) -> Any:
        return x.astype(self._cupy.float32) if x.dtype == _BFLOAT16 else x

    def matmul(self, a: Any, b: Any, /) -> Any:
        """Products of real floats by cuBLAS; all others by CuPy, whose calls of cuBLAS cannot be recorded."""
        if a.dtype != b.dtype and a.dtype.kind == b.dtype.kind == "f":
            a, b = (x.astype(np.promote_types(a.dtype, b.dtype), copy=False) for x in (a, b))
        made = factors(self._cupy, a, b) if a.dtype == b.dtype else None
        multiply = None if made is None else multiplication(made[2], a.dtype, tf32=False)
        if made is None or multiply is None:
            return self._cupy.matmul(a, b)
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        y = self._cupy.empty((*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ())), a.dtype)
        multiply(made[0], made[1], y)
        return y

    def _inverse(self, x: Any, /) -> Any:
        """CuPy's, which says nothing of a singular matrix but leaves infinities, beside numbers, where it divided by zero: NaN."""
        y = self._cupy.linalg.inv(x)
        return self._cupy.where(self._cupy.isfinite(y).all(axis=(-2, -1), keepdims=True), y, math.nan)

    def _diagonal(self, x: Any, /) -> Any:
        return self._cupy.diagonal(x, axis1=-2, axis2=-1)
