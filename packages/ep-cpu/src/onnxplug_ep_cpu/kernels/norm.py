"""Normalisation: by given statistics, by those of the input, along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxplug.contract import Into, TensorSpec
from onnxplug_ep_cpu.kernels.blocks import BLOCK, Scratch, spans
from onnxplug_ep_cpu.kernels.forms import FLOAT, Specs, given, into, normal_axis, scalar
from onnxplug_kernels.precision import EPSILON, MOMENTUM


@into("BatchNormalization", 7, 15, dtypes=FLOAT, inplace=(0,))
def batch_normalization(
    inputs: Specs,
    outputs: Specs,
    *,
    epsilon: float = EPSILON,
    momentum: float = MOMENTUM,
    spatial: int = 1,
    training_mode: int = 0,
) -> Into | None:
    """Inference with constant statistics: (x - mean) scale / sqrt(var + epsilon) + b, per channel."""
    x, *parameters = inputs
    if training_mode or not spatial or len(outputs) > 1 or len(x.shape) < 2:
        return None
    if any(p is None or p.constant is None for p in parameters):
        return None
    scale, b, mean, var = (p.constant.astype(x.dtype, copy=False) for p in parameters)
    images, channels, size = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    factor = (scale / np.sqrt(var + x.dtype.type(epsilon)))[:, None]
    mean, b = mean[:, None], b[:, None]
    blocks = [
        (image, slice(a, z), mean[a:z], factor[a:z], b[a:z])
        for image in range(images)
        for a, z in spans(channels, BLOCK // size)
    ]

    def call(*operands: Any) -> None:
        x, y = operands[0].reshape(images, channels, size), operands[-1].reshape(images, channels, size)
        for image, part, m, f, shift in blocks:
            target = y[image, part]
            np.subtract(x[image, part], m, target)
            np.multiply(target, f, target)
            np.add(target, shift, target)

    return Into(call)


@into("LayerNormalization", 1, 17, dtypes=FLOAT, inplace=(0,))
def layer_normalization(
    inputs: Specs, outputs: Specs, *, axis: int = -1, epsilon: float = EPSILON, stash_type: int = 1
) -> Into | None:
    """Standardize over the axes from ``axis`` on, scale and shift."""
    x, scale = inputs[:2]
    axis = normal_axis(axis, len(x.shape))
    biased, size = given(inputs, 2), math.prod(x.shape[axis:])
    broadcasts = [p for p in (scale, inputs[2] if biased else None) if p is not None and math.prod(p.shape) != size]
    if len(outputs) > 1 or broadcasts or scale.dtype != x.dtype:
        return None

    def after(operands: Any, y: np.ndarray, rows: slice) -> None:
        np.multiply(y, operands[1].reshape(-1), y)
        if biased:
            np.add(y, operands[2].reshape(-1), y)

    return _standardize(x, math.prod(x.shape[:axis]), size, epsilon, after, len(inputs))


@into("InstanceNormalization", 6, 22, dtypes=FLOAT, inplace=(0,))
def instance_normalization(inputs: Specs, outputs: Specs, *, epsilon: float = EPSILON) -> Into | None:
    """Standardize each channel of each instance, then scale and shift per channel."""
    x = inputs[0]
    channels, size = x.shape[1], math.prod(x.shape[2:])
    if any(p.shape != (channels,) for p in inputs[1:3]):
        return None

    def after(operands: Any, y: np.ndarray, channel: slice) -> None:
        np.multiply(y, operands[1][channel, None], y)
        np.add(y, operands[2][channel, None], y)

    return _standardize(x, channels, size, epsilon, after, len(inputs))


def _standardize(x: TensorSpec, period: int, size: int, epsilon: float, after: Any, arity: int) -> Into:
    """Rows of ``size`` with mean 0 and variance 1, block by block, then ``after(operands, block of y, its rows)``.

    No block crosses a multiple of ``period`` rows, from which on rows are counted again.
    """
    count, small, one = scalar(size, x.dtype), scalar(epsilon, x.dtype), scalar(1, x.dtype)
    rows = math.prod(x.shape) // size
    step = max(1, min(period, BLOCK // size))
    blocks = [
        (slice(start + a, start + b), slice(a, b)) for start in range(0, rows, period) for a, b in spans(period, step)
    ]
    space = Scratch()
    sums_of = space.array((step,), x.dtype)

    def call(*operands: Any) -> None:
        x, y = operands[0].reshape(rows, size), operands[arity].reshape(rows, size)
        sums = sums_of(operands[-1])
        for block, counted in blocks:
            target, total = y[block], sums[: block.stop - block.start]
            column = total.reshape(-1, 1)
            np.add.reduce(x[block], 1, out=total)
            np.divide(total, count, total)
            np.subtract(x[block], column, target)
            np.vecdot(target, target, total)
            np.divide(total, count, total)
            np.add(total, small, total)
            np.sqrt(total, total)
            np.divide(one, total, total)
            np.multiply(target, column, target)
            after(operands, target, counted)

    return Into(call, space.nbytes)


@into("RMSNormalization", 23, 23, dtypes=FLOAT, inplace=(0,))
@into("SimplifiedLayerNormalization", 1, 1, dtypes=FLOAT, inplace=(0,))
@into("SimplifiedLayerNormalization", 1, 1, dtypes=FLOAT, inplace=(0,), domain="com.microsoft")
def rms_normalization(
    inputs: Specs, outputs: Specs, *, axis: int = -1, epsilon: float = EPSILON, stash_type: int = 1
) -> Into | None:
    """Divide by the root of the mean square over the axes from ``axis`` on, times ``scale``."""
    x, scale = inputs[0], inputs[1]
    size = math.prod(x.shape[normal_axis(axis, len(x.shape)) :])
    if len(outputs) > 1 or scale.dtype != x.dtype or math.prod(scale.shape) != size:
        return None
    count, small, rows = scalar(size, x.dtype), scalar(epsilon, x.dtype), math.prod(x.shape) // size
    step = max(1, min(rows, BLOCK // size))
    blocks = [slice(a, b) for a, b in spans(rows, step)]
    space = Scratch()
    sums_of = space.array((step,), x.dtype)

    def call(x: np.ndarray, scale: np.ndarray, y: np.ndarray, workspace: np.ndarray) -> None:
        x, y, scale, sums = x.reshape(rows, size), y.reshape(rows, size), scale.reshape(-1), sums_of(workspace)
        for block in blocks:
            source, target, total = x[block], y[block], sums[: block.stop - block.start]
            np.vecdot(source, source, total)
            np.divide(total, count, total)
            np.add(total, small, total)
            np.sqrt(total, total)
            np.divide(source, total.reshape(-1, 1), target)
            np.multiply(target, scale, target)

    return Into(call, space.nbytes)


@into("LRN", 1, 13, dtypes=FLOAT, inplace=(0,))
def lrn(
    inputs: Specs,
    outputs: Specs,
    *,
    size: int,
    alpha: float = 9.999999747378752e-05,
    beta: float = 0.75,
    bias: float = 1.0,
) -> Into | None:
    """Divide by a power of the sum of squares over ``size`` neighbouring channels."""
    x = inputs[0]
    images, channels, places = x.shape[0], x.shape[1], math.prod(x.shape[2:])
    step = max(1, min(places, BLOCK // channels))
    blocks = [slice(a, b) for a, b in spans(places, step)]
    factor, shift, power = (scalar(v, x.dtype) for v in (alpha / size, bias, beta))
    neighbours = [
        (slice(max(0, -o), channels - max(0, o)), slice(max(0, o), channels + min(0, o)))
        for o in range(-min((size - 1) // 2, channels - 1), min(size // 2, channels - 1) + 1)
    ]
    space = Scratch()
    squares_of, totals_of = (space.array((channels * step,), x.dtype) for _ in range(2))

    def call(x: np.ndarray, y: np.ndarray, workspace: np.ndarray) -> None:
        x, y = x.reshape(images, channels, places), y.reshape(images, channels, places)
        squares, totals = squares_of(workspace), totals_of(workspace)
        for image in range(images):
            for block in blocks:
                source = x[image, :, block]
                square, total = (t[: source.size].reshape(source.shape) for t in (squares, totals))
                np.square(source, square)
                total.fill(0)
                for own, other in neighbours:
                    np.add(total[own], square[other], total[own])
                np.multiply(total, factor, total)
                np.add(total, shift, total)
                if beta == 0.75:
                    np.sqrt(total, total)
                    np.sqrt(total, square)
                    np.multiply(total, square, total)
                else:
                    np.power(total, power, total)
                np.divide(source, total, y[image, :, block])

    return Into(call, space.nbytes)


@into("Softmax", 13, 13, dtypes=FLOAT, inplace=(0,))
def softmax(inputs: Specs, outputs: Specs, *, axis: int = -1) -> Into | None:
    """exp(x) divided by its sum along the axis."""
    return _along(inputs, axis, whole=False, log=False)


@into("LogSoftmax", 13, 13, dtypes=FLOAT, inplace=(0,))
def log_softmax(inputs: Specs, outputs: Specs, *, axis: int = -1) -> Into | None:
    """The logarithm of softmax along the axis."""
    return _along(inputs, axis, whole=False, log=True)


@into("Softmax", 1, 11, dtypes=FLOAT, inplace=(0,))
def softmax_1(inputs: Specs, outputs: Specs, *, axis: int = 1) -> Into | None:
    """Softmax over all axes from the given one on, taken as one."""
    return _along(inputs, axis, whole=True, log=False)


@into("LogSoftmax", 1, 11, dtypes=FLOAT, inplace=(0,))
def log_softmax_1(inputs: Specs, outputs: Specs, *, axis: int = 1) -> Into | None:
    """LogSoftmax over all axes from the given one on, taken as one."""
    return _along(inputs, axis, whole=True, log=True)


def _along(inputs: Specs, axis: int, *, whole: bool, log: bool) -> Into | None:
    """Softmax of x seen as (rows, size, inner) along the middle axis, block by block of rows."""
    x = inputs[0]
    if not -len(x.shape) <= axis < len(x.shape):
        return None
    axis = normal_axis(axis, len(x.shape))
    rows, size = math.prod(x.shape[:axis]), math.prod(x.shape[axis:]) if whole else x.shape[axis]
    inner = 1 if whole else math.prod(x.shape[axis + 1 :])
    shape = (rows, size, inner) if inner > 1 else (rows, size)
    step = max(1, min(rows, BLOCK // (size * inner)))
    blocks = [slice(a, b) for a, b in spans(rows, step)]
    space = Scratch()
    sums_of = space.array((step, 1, *shape[2:]), x.dtype)
    powers_of = space.array((step, *shape[1:]) if log else (0,), x.dtype)

    def call(x: np.ndarray, y: np.ndarray, workspace: np.ndarray) -> None:
        x, y, sums, powers = x.reshape(shape), y.reshape(shape), sums_of(workspace), powers_of(workspace)
        for block in blocks:
            source, target, total = x[block], y[block], sums[: block.stop - block.start]
            np.maximum.reduce(source, 1, out=total, keepdims=True)
            np.subtract(source, total, target)
            e = np.exp(target, powers[: len(target)] if log else target)
            np.add.reduce(e, 1, out=total, keepdims=True)
            if log:
                np.log(total, total)
                np.subtract(target, total, target)
            else:
                np.divide(target, total, target)

    return Into(call, space.nbytes)
