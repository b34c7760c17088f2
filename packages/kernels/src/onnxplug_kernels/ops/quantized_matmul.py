"""Matrix products of quantized tensors: MatMulInteger, QLinearMatMul."""

from __future__ import annotations

import math
from typing import Any

from onnxplug_kernels.arithmetic import is_integer
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.refusals import Refusal, braced


@op("MatMulInteger", 10)
def matmul_integer(xp: Any, a: Any, b: Any, a_zero_point: Any = None, b_zero_point: Any = None) -> Any:
    """The int32 product of 8-bit matrices less their zero points, one each or one for each row of A and column of B."""
    return _int32(xp, _product(xp, a, b, a_zero_point, b_zero_point))


@op("QLinearMatMul", 10, 21)
def qlinear_matmul(
    xp: Any,
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
) -> Any:
    """The product of quantized matrices, quantized again: halves to even, what is beyond the range to its end."""
    for name, one, zero in (("a", a_scale, a_zero_point), ("b", b_scale, b_zero_point), ("y", y_scale, y_zero_point)):
        if math.prod(one.shape) != math.prod(zero.shape):
            shapes = f"{name}_scale has shape {braced(one.shape)}, {name}_zero_point {braced(zero.shape)}"
            raise Refusal(f"{shapes}: they must be of one")
    scale = _per_row(xp, _single(xp, a_scale), a) * _single(xp, b_scale) / _per_row(xp, _single(xp, y_scale), a)
    y = xp.astype(_product(xp, a, b, a_zero_point, b_zero_point), xp.float32, copy=False) * scale
    zero_point = xp.astype(_per_row(xp, y_zero_point, a), xp.float32)
    if not is_integer(y_zero_point.dtype):
        return _float8(xp, y + zero_point, y_zero_point.dtype)
    y = xp.round(y) + zero_point
    limits = xp.iinfo(y_zero_point.dtype)
    return xp.astype(xp.clip(y, float(limits.min), float(limits.max)), y_zero_point.dtype)


def _product(xp: Any, a: Any, b: Any, a_zero_point: Any, b_zero_point: Any) -> Any:
    """The product less the zero points, as floats; exact for integers, whose partial sums stay below 2**24 or 2**53."""
    exact = xp.float32 if a.shape[-1] * 255 * 255 < 2**24 else xp.float64
    left, right = xp.astype(a, exact), xp.astype(b, exact)
    if a_zero_point is not None:
        left = left - xp.astype(_per_row(xp, a_zero_point, a), exact)
    if b_zero_point is not None:
        right = right - xp.astype(b_zero_point, exact)
    return xp.asarray(xp.matmul(left, right))


def _int32(xp: Any, product: Any) -> Any:
    # By way of int64, because a float beyond int32 has no defined conversion to it.
    wide = xp.astype(product, xp.int64) if product.dtype == xp.float64 else product
    return xp.astype(wide, xp.int32)


def _per_row(xp: Any, values: Any, matrix: Any) -> Any:
    """A vector over the rows of a matrix, shaped to broadcast against it."""
    return xp.reshape(values, (-1, 1)) if values.ndim == 1 and matrix.ndim > 1 else values


def _single(xp: Any, scale: Any) -> Any:
    return xp.astype(scale, xp.float32, copy=False)


def _float8(xp: Any, y: Any, dtype: Any) -> Any:
    """Rounded to a float8 type, what is beyond its range to the end of it."""
    import ml_dtypes

    highest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]  # ml_dtypes has no hints for it
    return xp.astype(xp.clip(y, -highest, highest), dtype)
