"""Linear quantization."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import ElementType, dtype_in, element_type, integer_range
from onnxplug_kernels.ops.cast import cast_to
from onnxplug_kernels.refusals import require_axis


@op("QuantizeLinear", 10, 21)
def quantize_linear_10(
    xp: Any,
    x: Any,
    y_scale: Any,
    y_zero_point: Any = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    """QuantizeLinear-28 divided in float32, also by half scales: before version 23, ONNX leaves the precision open and ONNX Runtime
    divides so."""
    return quantize_linear(
        xp,
        x,
        y_scale,
        y_zero_point,
        axis=axis,
        saturate=saturate,
        block_size=block_size,
        output_dtype=output_dtype,
        precision=ElementType.FLOAT,
    )


@op("QuantizeLinear", 23, 28)
def quantize_linear(
    xp: Any,
    x: Any,
    y_scale: Any,
    y_zero_point: Any = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Any:
    """``saturate(round(x / y_scale) + y_zero_point)``, ties to even, per tensor, axis or block (QuantizeLinear-28); of NaN the
    least integer, as ONNX Runtime has it on x86.

    The result has the type of ``y_zero_point``, else ``output_dtype``, else uint8; the division is done in
    ``precision``, else in the type of ``y_scale``.
    """
    given = None if y_zero_point is None else _code(xp, y_zero_point)
    target = given or output_dtype or ElementType.UINT8
    if output_dtype not in (0, target):
        raise ValueError(f"QuantizeLinear: output_dtype {output_dtype} is not the type of y_zero_point")
    divide = dtype_in(xp, precision) if precision else _arithmetic(xp, y_scale)
    scale = spread(xp, xp.astype(y_scale, divide), x.shape, axis, block_size)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = xp.astype(x, divide) / scale
        # Sums with a zero point need not be exact in half precision.
        wide = quotient if divide == xp.float64 else xp.astype(quotient, xp.float32)
        zero = 0 if y_zero_point is None else spread(xp, xp.astype(y_zero_point, wide.dtype), x.shape, axis, block_size)
        limits = integer_range(target)
        if limits is None:
            return cast_to(xp, xp.asarray(wide + zero), target, saturate=bool(saturate))
        held = xp.asarray(xp.clip(xp.round(wide) + zero, *limits))
        lowest = xp.asarray(limits[0], dtype=held.dtype)
        return xp.astype(xp.where(xp.isnan(held), lowest, held), dtype_in(xp, target))


@op("DequantizeLinear", 10, 28)
def dequantize_linear(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Any:
    """``(x - x_zero_point) * x_scale`` per tensor, axis or block, in ``output_dtype`` or the type of ``x_scale``."""
    dtype = dtype_in(xp, output_dtype) if output_dtype else _arithmetic(xp, x_scale)
    work = xp.float64 if dtype == xp.float64 else xp.float32
    value = xp.astype(x, work)
    if x_zero_point is not None:
        value = value - spread(xp, xp.astype(x_zero_point, work), x.shape, axis, block_size)
    product = value * spread(xp, xp.astype(x_scale, work), x.shape, axis, block_size)
    return xp.astype(xp.asarray(product), dtype, copy=False)


@op("DynamicQuantizeLinear", 11)
def dynamic_quantize_linear(xp: Any, x: Any) -> tuple[Any, Any, Any]:
    """``x`` as uint8 with the scale and zero point that make its range, 0 included, fill [0, 255]; also these two. NaN is 0, and
    not of the range."""
    zero = xp.zeros((), dtype=xp.float32)
    odd = xp.isnan(x)
    ranged = xp.where(odd, zero, x)
    low = xp.minimum(xp.min(ranged), zero) if x.size else zero
    high = xp.maximum(xp.max(ranged), zero) if x.size else zero
    # All zeros have no range; like ONNX Runtime, any scale then serves, and 1 divides safely.
    scale = xp.where(high == low, xp.ones_like(zero), (high - low) / 255)
    zero_point = xp.clip(xp.round(-low / scale), 0, 255)
    y = xp.where(odd, zero, xp.clip(xp.round(x / scale) + zero_point, 0, 255))
    return xp.astype(y, xp.uint8), scale, xp.asarray(zero_point, dtype=xp.uint8)


def spread(xp: Any, parameter: Any, shape: tuple[int, ...], axis: int, block_size: int) -> Any:
    """A scale or zero point, per tensor, per axis or per block, shaped so that it broadcasts against ``shape``."""
    rank = len(shape)
    if parameter.size == 1:
        return xp.reshape(parameter, ())
    axis = 0 if rank == 1 else require_axis(axis, rank)
    if parameter.ndim == 1 and not block_size:
        if parameter.shape[0] != shape[axis]:
            raise ValueError(f"{parameter.shape[0]} scales or zero points for {shape[axis]} elements of axis {axis}")
        return xp.reshape(parameter, tuple(-1 if i == axis else 1 for i in range(rank)))
    block = block_size or -(-shape[axis] // parameter.shape[axis])
    whole = xp.repeat(parameter, block, axis=axis)
    fitted = whole[tuple(slice(n) for n in shape)]
    if fitted.shape != tuple(shape):
        raise ValueError(f"scales or zero points {parameter.shape} in blocks of {block} do not cover {tuple(shape)}")
    return fitted


def _arithmetic(xp: Any, scale: Any) -> Any:
    """The type that a scale's type stands for in arithmetic: float32 for the two that are not for computing."""
    return scale.dtype if _computes(scale.dtype) else xp.float32


@functools.lru_cache(maxsize=64, typed=True)
def _computes(dtype: Any) -> bool:
    return str(dtype).endswith(("float16", "float32", "float64"))


def _code(xp: Any, zero_point: Any) -> int:
    """The ONNX element type of an array of ``xp``."""
    if isinstance(zero_point, np.ndarray):
        return element_type(zero_point.dtype)
    return next(code for code in ElementType if dtype_in(xp, code) == zero_point.dtype)
