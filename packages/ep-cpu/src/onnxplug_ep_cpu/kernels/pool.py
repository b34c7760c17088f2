"""Pooling over sliding windows and over all of space."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import Into, TensorSpec
from onnxplug_ep_cpu.kernels.blocks import BLOCK, Scratch, spans
from onnxplug_ep_cpu.kernels.forms import FLOAT, INTEGER, Specs, into, lowest, scalar
from onnxplug_kernels.windows import Windows, windows


@into("MaxPool", 1, 22, dtypes=FLOAT | INTEGER | {"float16"})
def max_pool(
    inputs: Specs,
    outputs: Specs,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Into | None:
    """The largest element of each window, without its index."""
    x = inputs[0]
    if len(outputs) > 1:
        return None
    moves = windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    return Into(*_pooling(np.maximum, x, moves, lowest(x.dtype)))


@into("AveragePool", 1, 22, dtypes=FLOAT)
def average_pool(
    inputs: Specs,
    outputs: Specs,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Into | None:
    """The mean of each window, over its elements inside the input or, with ``count_include_pad``, the padding."""
    x = inputs[0]
    moves = windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    total, workspace = _pooling(np.add, x, moves, scalar(0, x.dtype))
    counts = _counts(x, moves, bool(count_include_pad))

    def call(x: np.ndarray, y: np.ndarray, workspace: Any = None) -> None:
        total(x, y, workspace)
        np.divide(y, counts, y)

    return Into(call, workspace)


@into("GlobalAveragePool", 1, 22, dtypes=FLOAT)
def global_average_pool(inputs: Specs, outputs: Specs) -> Into | None:
    """The mean over the spatial axes."""
    x = inputs[0]
    if len(x.shape) < 3:
        return None
    size = math.prod(x.shape[2:])
    rows, count = math.prod(x.shape[:2]), scalar(size, x.dtype)

    def call(x: np.ndarray, y: np.ndarray) -> None:
        np.add.reduce(x.reshape(rows, size), 1, out=y.reshape(rows))
        np.divide(y, count, y)

    return Into(call)


@into("GlobalMaxPool", 1, 22, dtypes=FLOAT)
def global_max_pool(inputs: Specs, outputs: Specs) -> Into | None:
    """The maximum over the spatial axes."""
    axes = tuple(range(2, len(inputs[0].shape)))
    if not axes:
        return None
    return Into(lambda x, y: np.maximum.reduce(x, axes, out=y, keepdims=True))


def _pooling(combine: np.ufunc, x: TensorSpec, moves: Windows, first: np.ndarray) -> tuple[Callable[..., None], int]:
    """(``call(x, y, workspace)`` that combines the elements of each window into ``y``, bytes of workspace).

    Windows are combined along one axis after the other; elements outside the input are passed over.
    """
    images = math.prod(x.shape[:2])
    shapes = [(*moves.output[:axis], *x.shape[2 + axis :]) for axis in range(1, moves.rank)]
    step = max(1, min(images, 4 * BLOCK // math.prod(x.shape[2:])))
    space = Scratch()
    between = [space.array((step, *shape), x.dtype) for shape in shapes]
    passes = [_taps(axis, x.shape[2 + axis], moves) for axis in range(moves.rank)]
    blocks = [slice(a, b) for a, b in spans(images, step)]

    def call(x: np.ndarray, y: np.ndarray, workspace: Any = None) -> None:
        x, y = x.reshape(images, *x.shape[2:]), y.reshape(images, *y.shape[2:])
        temporary = [array(workspace) for array in between]
        for block in blocks:
            source = x[block]
            for (whole, partial), target in zip(
                passes, (*(t[: len(source)] for t in temporary), y[block]), strict=True
            ):
                if len(whole) > 1:
                    combine(source[whole[0]], source[whole[1]], out=target)
                else:
                    np.copyto(target, source[whole[0]] if whole else first)
                for seen in whole[2:]:
                    combine(target, source[seen], out=target)
                for seen, window in partial:
                    out = target[window]
                    combine(out, source[seen], out=out)
                source = target

    return call, space.nbytes


def _taps(axis: int, size: int, moves: Windows) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """What kernel elements meet of the input along an axis: in every window, or in some, which are then given."""
    before, stride, windows_ = (slice(None),) * (1 + axis), moves.strides[axis], moves.output[axis]
    whole, partial = [], []
    begin, dilation = moves.begins[axis], moves.dilations[axis]
    # The others meet the input in no window.
    least, most = max(0, -(((windows_ - 1) * stride - begin) // dilation)), (size - 1 + begin) // dilation
    for element in range(least, min(most + 1, moves.kernel[axis])):
        offset = element * dilation - begin
        start = max(0, -(offset // stride))  # the first window whose element is not before the input
        stop = min(windows_, (size - 1 - offset) // stride + 1)
        seen = (*before, slice(start * stride + offset, (stop - 1) * stride + offset + 1, stride))
        if stop - start == windows_:
            whole.append(seen)
        elif start < stop:
            partial.append((seen, (*before, slice(start, stop))))
    return whole, partial


def _counts(x: TensorSpec, moves: Windows, include_pad: bool) -> np.ndarray:
    """How many elements each window averages, broadcastable to the output."""
    counts = np.ones((), dtype=x.dtype)
    for axis, size in enumerate(x.shape[2:]):
        first = -moves.begins[axis] if include_pad else 0
        stop = size + (moves.ends[axis] if include_pad else 0)
        seen = np.maximum(moves.seen(axis, first, stop), 1)
        counts = counts[..., None] * seen.astype(x.dtype)
    return counts
