"""Linear quantization with constant parameters, block by block through float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug.contract import Into, TensorSpec
from onnxplug_ep_cpu.kernels.blocks import BLOCK, Scratch, spans
from onnxplug_ep_cpu.kernels.forms import Specs, given, into, normal_axis, scalar

_FLOAT32 = np.dtype(np.float32)
_SMALL = frozenset({"int8", "uint8", "int16", "uint16"})


@into("QuantizeLinear", 10, 28, dtypes=frozenset({"float32"}))
def quantize_linear(
    inputs: Specs,
    outputs: Specs,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
) -> Into | None:
    """``saturate(round(x / scale) + zero point)``, ties to even, per tensor or per axis."""
    x, y = inputs[0], outputs[0]
    parameters = None if block_size or precision else _parameters(inputs, x, axis)
    if parameters is None or y.dtype.name not in _SMALL:
        return None
    shape, blocks = parameters
    limits = np.iinfo(y.dtype)
    low, high = scalar(limits.min, _FLOAT32), scalar(limits.max, _FLOAT32)
    space = Scratch()
    scratch_of = space.array((max(math.prod(p.stop - p.start for p in part) for part, _, _ in blocks),), _FLOAT32)

    def call(*operands: Any) -> None:
        x, y, scratch = operands[0].reshape(shape), operands[-2].reshape(shape), scratch_of(operands[-1])
        for part, scale, zero in blocks:
            source = x[part]
            value = scratch[: source.size].reshape(source.shape)
            np.divide(source, scale, value)
            np.rint(value, value)
            np.add(value, zero, value)
            np.fmax(value, low, value)  # of NaN the lower limit
            np.minimum(value, high, out=value)
            np.copyto(y[part], value, casting="unsafe")

    return Into(call, space.nbytes)


@into("DequantizeLinear", 10, 28, dtypes=_SMALL)
def dequantize_linear(
    inputs: Specs, outputs: Specs, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Into | None:
    """``(x - zero point) * scale`` per tensor or per axis."""
    x, y = inputs[0], outputs[0]
    parameters = None if block_size or y.dtype != _FLOAT32 else _parameters(inputs, x, axis)
    if parameters is None:
        return None
    shape, blocks = parameters

    def call(*operands: Any) -> None:
        x, y = operands[0].reshape(shape), operands[-1].reshape(shape)
        for part, scale, zero in blocks:
            target = y[part]
            np.copyto(target, x[part])
            np.subtract(target, zero, target)
            np.multiply(target, scale, target)

    return Into(call)


Blocks = list[tuple[tuple[slice, slice, slice], np.ndarray, np.ndarray]]


def _parameters(inputs: Specs, x: TensorSpec, axis: int) -> tuple[tuple[int, ...], Blocks] | None:
    """(shape to see the tensor in, its blocks with their scale and zero point), or None when those are not constant."""
    scale = inputs[1]
    zero = inputs[2] if given(inputs, 2) else None
    if (
        scale is None
        or scale.constant is None
        or scale.dtype != _FLOAT32
        or (zero is not None and zero.constant is None)
    ):
        return None
    scales = scale.constant.reshape(-1, 1)
    zeros = np.zeros_like(scales) if zero is None else zero.constant.reshape(-1, 1).astype(_FLOAT32)
    outer, channels, inner = 1, 1, math.prod(x.shape)
    if scales.size > 1:
        if len(scale.shape) != 1:
            return None
        axis = normal_axis(axis, len(x.shape)) if len(x.shape) > 1 else 0
        outer, channels, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    blocks = [
        ((slice(o, p), slice(a, b), slice(i, j)), scales[a:b], zeros[a:b])
        for i, j in spans(inner, BLOCK)
        for a, b in spans(channels, BLOCK // (j - i))
        for o, p in spans(outer, BLOCK // ((j - i) * (b - a)))
    ]
    return (outer, channels, inner), blocks
