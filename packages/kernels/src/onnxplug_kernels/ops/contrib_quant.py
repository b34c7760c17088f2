"""Operators on 8-bit tensors with one scale and zero point each, in domain ``com.microsoft``.

Each computes in float32 on the dequantized values and quantizes the result: halves to even, what is beyond the range to
its end. Sums and products of two bring scales and zero points together first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_kernels.activations import sigmoid
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.conv import qlinear_conv
from onnxplug_kernels.ops.join import concat
from onnxplug_kernels.ops.pool import average_pool, max_pool
from onnxplug_kernels.ops.quantize import dequantize_linear, quantize_linear_10
from onnxplug_kernels.refusals import require_axis

MS = "com.microsoft"


@op("QuantizeLinear", 1, domain=MS)
def quantize_linear_(xp: Any, x: Any, y_scale: Any, y_zero_point: Any = None, *, axis: int = 1) -> Any:
    """QuantizeLinear-21 by tensor or by axis."""
    return quantize_linear_10(xp, x, y_scale, y_zero_point, axis=axis)


@op("DequantizeLinear", 1, domain=MS)
def dequantize_linear_(xp: Any, x: Any, x_scale: Any, x_zero_point: Any = None, *, axis: int = 1) -> Any:
    """DequantizeLinear-21 by tensor or by axis."""
    return dequantize_linear(xp, x, x_scale, x_zero_point, axis=axis)


@op("QLinearAdd", 1, domain=MS)
def qlinear_add(
    xp: Any, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c_scale: Any, c_zero: Any = None
) -> Any:
    """a + b, broadcast. As MLAS computes it (``qladd_avx2.cpp``): each operand is multiplied by its scale over the result's, fused with
    the addition, and the zero points are one constant, so that the result's is added before rounding."""
    step = xp.reshape(c_scale, ())
    first, second = xp.reshape(a_scale, ()) / step, xp.reshape(b_scale, ()) / step
    fixed = _point(xp, c_zero) - _fused(xp, _point(xp, a_zero), first, second * _point(xp, b_zero))
    total = _fused(xp, xp.astype(b, xp.float32), second, fixed)
    return _saturated(xp, _fused(xp, xp.astype(a, xp.float32), first, total), a.dtype)


@op("QLinearMul", 1, domain=MS)
def qlinear_mul(
    xp: Any, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c_scale: Any, c_zero: Any = None
) -> Any:
    """a * b, broadcast. As MLAS computes it (``qlmul.cpp``): the product, which is exact, times one factor; the zero point of the result
    is added before rounding."""
    factor = xp.reshape(a_scale, ()) * xp.reshape(b_scale, ()) / xp.reshape(c_scale, ())
    left = xp.astype(a, xp.float32) - _point(xp, a_zero)
    right = xp.astype(b, xp.float32) - _point(xp, b_zero)
    return _saturated(xp, left * right * factor + _point(xp, c_zero), a.dtype)


@op("QLinearSigmoid", 1, domain=MS)
def qlinear_sigmoid(xp: Any, x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None) -> Any:
    """Sigmoid."""
    return _quantized(xp, sigmoid(xp, _floats(xp, x, x_scale, x_zero)), y_scale, y_zero, x.dtype)


@op("QLinearLeakyRelu", 1, domain=MS)
def qlinear_leaky_relu(
    xp: Any, x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any = None, *, alpha: float = 0.01
) -> Any:
    """x where it is positive, otherwise alpha * x."""
    value = _floats(xp, x, x_scale, x_zero)
    return _quantized(xp, xp.where(value >= 0, value, alpha * value), y_scale, y_zero, x.dtype)


@op("QLinearSoftmax", 1, domain=MS)
def qlinear_softmax(
    xp: Any, x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any, *, opset: int, axis: int = -1
) -> Any:
    """Softmax along ``axis`` or, for an ``opset`` before 13, over all axes from there on taken as one."""
    axis = require_axis(axis, x.ndim)
    shape = x.shape if opset >= 13 else (*x.shape[:axis], -1)
    axis = axis if opset >= 13 else -1
    value = xp.reshape(_floats(xp, x, x_scale, None), shape)
    powers = xp.exp(value - xp.max(value, axis=axis, keepdims=True))
    y = powers / xp.sum(powers, axis=axis, keepdims=True)
    return _quantized(xp, xp.reshape(y, x.shape), y_scale, y_zero, x.dtype)


@op("QLinearWhere", 1, domain=MS)
def qlinear_where(
    xp: Any,
    condition: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    y: Any,
    y_scale: Any,
    y_zero: Any,
    z_scale: Any,
    z_zero: Any,
) -> Any:
    """x where the condition holds, otherwise y."""
    chosen = xp.where(condition, _floats(xp, x, x_scale, x_zero), _floats(xp, y, y_scale, y_zero))
    return _quantized(xp, chosen, z_scale, z_zero, x.dtype)


@op("QLinearConcat", 1, domain=MS)
def qlinear_concat(xp: Any, y_scale: Any, y_zero: Any, *inputs: Any, axis: int) -> Any:
    """The inputs, each followed by its scale and zero point, one behind the other."""
    parts = []
    for x, scale, zero in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True):
        parts.append(_quantized(xp, _floats(xp, x, scale, zero), y_scale, y_zero, x.dtype))
    return concat(xp, *parts, axis=axis)


@op("QLinearReduceMean", 1, domain=MS)
def qlinear_reduce_mean(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    y_scale: Any,
    y_zero: Any = None,
    *,
    axes: Sequence[int] = (),
    keepdims: int = 1,
) -> Any:
    """The mean over ``axes``, or over all."""
    value = _floats(xp, x, x_scale, x_zero)
    mean = xp.mean(value, axis=tuple(axes) or None, keepdims=bool(keepdims))
    return _quantized(xp, mean, y_scale, y_zero, x.dtype)


@op("QLinearAveragePool", 1, domain=MS)
def qlinear_average_pool(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    y_scale: Any,
    y_zero: Any = None,
    *,
    channels_last: int = 0,
    **attributes: Any,
) -> Any:
    """AveragePool on (N, C, *spatial), or on (N, *spatial, C) with ``channels_last``; the zero point is added before rounding."""

    def pooled(value: Any) -> Any:
        y = average_pool(xp, _floats(xp, value, x_scale, x_zero), **attributes)
        return _saturated(xp, y / xp.reshape(y_scale, ()) + _point(xp, y_zero), x.dtype)

    return _channels_second(xp, x, pooled) if channels_last else pooled(x)


@op("QLinearGlobalAveragePool", 1, domain=MS)
def qlinear_global_average_pool(
    xp: Any, x: Any, x_scale: Any, x_zero: Any, y_scale: Any, y_zero: Any, *, channels_last: int = 0
) -> Any:
    """The mean of each channel, its spatial axes kept with size 1."""
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    mean = xp.mean(_floats(xp, x, x_scale, x_zero), axis=axes, keepdims=True)
    return _quantized(xp, mean, y_scale, y_zero, x.dtype)


@op("QLinearConv", 1, domain=MS)
def qlinear_conv_(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    b: Any = None,
    *,
    channels_last: int = 0,
    **attributes: Any,
) -> Any:
    """QLinearConv-10, on (N, *spatial, C) with ``channels_last``; the weight stays (M, C/group, *kernel)."""

    def convolved(value: Any) -> Any:
        return qlinear_conv(xp, value, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b, **attributes)

    return _channels_second(xp, x, convolved) if channels_last else convolved(x)


@op("NhwcMaxPool", 1, domain=MS)
def nhwc_max_pool(xp: Any, x: Any, **attributes: Any) -> Any:
    """MaxPool on (N, *spatial, C)."""

    def pooled(value: Any) -> Any:
        y = max_pool(xp, value, **attributes)
        return y[0] if isinstance(y, tuple) else y

    return _channels_second(xp, x, pooled)


def _channels_second(xp: Any, x: Any, function: Callable[[Any], Any]) -> Any:
    """``function`` of x with its last axis moved behind the first, and its result arranged like x."""
    return xp.moveaxis(function(xp.moveaxis(x, -1, 1)), 1, -1)


def _point(xp: Any, zero_point: Any) -> Any:
    """A zero point as float32; 0 where it is left out."""
    return xp.astype(xp.reshape(xp.asarray(0) if zero_point is None else zero_point, ()), xp.float32)


def _fused(xp: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once: in float64 a number of 8 bits times a float is exact."""
    return xp.astype(xp.astype(a, xp.float64) * xp.astype(b, xp.float64) + xp.astype(c, xp.float64), xp.float32)


def _saturated(xp: Any, y: Any, dtype: Any) -> Any:
    """The nearest integers, halves to even, within the limits of the type."""
    limits = xp.iinfo(dtype)
    return xp.astype(xp.clip(xp.round(y), float(limits.min), float(limits.max)), dtype)


def _floats(xp: Any, x: Any, scale: Any, zero_point: Any) -> Any:
    value = xp.astype(x, xp.float32)
    if zero_point is not None:
        value = value - xp.astype(xp.reshape(zero_point, ()), xp.float32)
    return value * xp.reshape(scale, ())


def _quantized(xp: Any, y: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    zero = 0.0 if zero_point is None else xp.astype(xp.reshape(zero_point, ()), xp.float32)
    limits = xp.iinfo(dtype)
    y = xp.round(y / xp.reshape(scale, ())) + zero
    return xp.astype(xp.clip(y, float(limits.min), float(limits.max)), dtype)
