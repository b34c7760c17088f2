"""Convolution: Conv, ConvInteger, QLinearConv, CausalConvWithState (transposed convolution: ``conv_transpose``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.convolution import convolve, convolve_integers
from onnxplug_kernels.precision import narrow, per_channel, widen
from onnxplug_kernels.refusals import Refusal, braced
from onnxplug_kernels.windows import Windows, filtered, windows


@op("Conv", 1, 22)
def conv(
    xp: Any,
    x: Any,
    w: Any,
    b: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Cross-correlation of (N, C, *spatial) with (M, C/group, *kernel), plus a bias of M."""
    moves = _moves(x, w, kernel_shape, group, auto_pad, dilations, pads, strides)
    y = convolve(xp, widen(xp, x), widen(xp, w), moves, group, None if b is None else widen(xp, b))
    return narrow(xp, y, x.dtype)


@op("ConvInteger", 10)
def conv_integer(
    xp: Any,
    x: Any,
    w: Any,
    x_zero_point: Any = None,
    w_zero_point: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Convolution of 8-bit tensors with their zero points taken off, exact in int32."""
    moves = _moves(x, w, kernel_shape, group, auto_pad, dilations, pads, strides)
    y = convolve_integers(xp, x, w, x_zero_point, w_zero_point, moves, group)
    return xp.astype(xp.astype(y, xp.int64), xp.int32)


@op("QLinearConv", 10)
def qlinear_conv(
    xp: Any,
    x: Any,
    x_scale: Any,
    x_zero_point: Any,
    w: Any,
    w_scale: Any,
    w_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
    b: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Convolution between quantized tensors; the weight's scale and zero point may be one per output channel."""
    moves = _moves(x, w, kernel_shape, group, auto_pad, dilations, pads, strides)
    total = convolve_integers(xp, x, w, x_zero_point, w_zero_point, moves, group)
    if b is not None:
        total = xp.astype(total, xp.float64) + per_channel(xp, xp.astype(b, xp.float64), x.ndim, w.shape[0])
    scale = per_channel(xp, x_scale * w_scale / y_scale, x.ndim, w.shape[0] if math.prod(w_scale.shape) != 1 else None)
    limits = xp.iinfo(y_zero_point.dtype)
    y = xp.round(xp.astype(total, xp.float32) * scale) + xp.astype(xp.reshape(y_zero_point, ()), xp.float32)
    return xp.astype(xp.clip(y, float(limits.min), float(limits.max)), y_zero_point.dtype)


@op("CausalConvWithState", 27)
def causal_conv_with_state(
    xp: Any, x: Any, weight: Any, bias: Any = None, past_state: Any = None, *, activation: str = "none"
) -> tuple[Any, Any]:
    """Depthwise convolution of (N, C, L) that sees only the past; with its last k - 1 inputs as the next state."""
    state = (*x.shape[:2], weight.shape[2] - 1)
    if past_state is not None and tuple(past_state.shape) != state:
        raise Refusal(f"past_state has shape {braced(past_state.shape)}, not {braced(state)}")
    y, sequence = causal_conv(xp, x, weight, bias, past_state, activation, 1)
    return y, xp.asarray(sequence[:, :, x.shape[2] :], copy=True)


def causal_conv(
    xp: Any, x: Any, weight: Any, bias: Any, past_state: Any, activation: str, dilation: int
) -> tuple[Any, Any]:
    """The convolution, and the past with the inputs behind it, of which the last (k - 1) * dilation are the next state."""
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation is {activation!r}; it must be none, silu or swish")
    batch, channels, length = x.shape
    k = weight.shape[2]
    before = (k - 1) * dilation
    past = xp.zeros((batch, channels, before), dtype=x.dtype) if past_state is None else past_state
    sequence = xp.concat([past, x], axis=2)
    y = convolve(
        xp,
        widen(xp, sequence),
        widen(xp, weight),
        windows((length + before,), (k,), dilations=(dilation,)),
        channels,
        None if bias is None else widen(xp, bias),
    )
    if activation != "none":
        y = y / (1 + xp.exp(-y))
    return narrow(xp, y, x.dtype), sequence


def _moves(
    x: Any,
    w: Any,
    kernel_shape: Sequence[int] | None,
    group: int,
    auto_pad: str,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
) -> Windows:
    if x.ndim != w.ndim or x.ndim < 3:
        raise Refusal(f"X num_dims does not match W num_dims. X: {braced(x.shape)} W: {braced(w.shape)}")
    if x.shape[1] != w.shape[1] * group:
        raise Refusal(
            f"Input channels C is not equal to kernel channels * group. C: {x.shape[1]} kernel channels: {w.shape[1]} group: {group}"
        )
    if w.shape[0] % group:
        raise Refusal(f"Output channels M is not divisible by group. M: {w.shape[0]} group: {group}")
    if kernel_shape and tuple(kernel_shape) != tuple(w.shape[2:]):
        raise Refusal(
            f"kernel_shape is not compatible with W shape. kernel_shape: {braced(kernel_shape)} W: {braced(w.shape)} channels_last: 0"
        )
    return filtered(x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
