"""CuPy as the array namespace of ``onnxplug_kernels``: itself, but for functions that lack what the Array API standard gives them, that
do not know bfloat16, that are inexact, or that cannot be recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from onnxplug_ep_cuda.kernels.products import factors, multiplication

_BFLOAT16, _BITS = np.dtype(ml_dtypes.bfloat16), np.uint16
_REALS = "fV"
"""Kinds of floats: bfloat16 is no type of NumPy's own."""


class Namespace:
    """Attributes are CuPy's unless they are here. Needs no driver until a function is called."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.linalg = SimpleNamespace(det=cupy.linalg.det, inv=cupy.linalg.inv, diagonal=self._diagonal)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cupy, name)
        setattr(self, name, found)
        return found

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

    def _diagonal(self, x: Any, /) -> Any:
        return self._cupy.diagonal(x, axis1=-2, axis2=-1)
