"""Convolution as matrix products: windows become columns in the workspace, a band of output rows at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract import Into, TensorSpec
from onnxplug_ep_cpu.kernels.blocks import Scratch, spans
from onnxplug_ep_cpu.kernels.forms import FLOAT, Specs, given, into
from onnxplug_kernels.windows import Windows, filtered

# Columns are gathered in bands of about this size: enough for the product's threads, and within the last cache level.
BAND_BYTES = 4 << 20


@into("Conv", 1, 22, dtypes=FLOAT)
def conv(
    inputs: Specs,
    outputs: Specs,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Into | None:
    """(N, C, *spatial) with (M, C/group, *kernel), plus a bias of M."""
    x, w = inputs[0], inputs[1]
    if given(inputs, 2) and inputs[2].shape != w.shape[:1]:
        return None
    moves = filtered(x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    still = all(s == 1 for s in moves.strides) and not any(moves.begins)
    pointwise = all(k == 1 for k in moves.kernel) and still and moves.output == x.shape[2:]
    return (_pointwise if pointwise else _by_columns)(x, w, moves, group, given(inputs, 2))


def _pointwise(x: TensorSpec, w: TensorSpec, moves: Windows, group: int, biased: bool) -> Into:
    """Kernels of one element that meet every element of the input: the input is the matrix of columns."""
    batch, channels = x.shape[:2]
    features, size = w.shape[0], math.prod(moves.output)

    def call(*operands: Any) -> None:
        x, w, y = operands[0], operands[1], operands[-1]
        columns = x.reshape(batch, group, channels // group, size)
        np.matmul(
            w.reshape(group, features // group, channels // group),
            columns,
            y.reshape(batch, group, features // group, size),
        )
        if biased:
            _add_bias(y.reshape(batch, features, size), operands[2])

    return Into(call)


def _by_columns(x: TensorSpec, w: TensorSpec, moves: Windows, group: int, biased: bool) -> Into:
    batch, channels = x.shape[:2]
    features, depth = w.shape[0], math.prod(w.shape[1:])
    rows, *rest = moves.output
    width = math.prod(rest)
    itemsize = x.dtype.itemsize
    band = max(1, min(rows, BAND_BYTES // max(1, channels * math.prod(moves.kernel) * width * itemsize)))
    padded_shape = tuple(b + n + e for b, n, e in zip(moves.begins, x.shape[2:], moves.ends, strict=True))
    needs_padding = padded_shape != x.shape[2:]
    inside = (slice(None), *(slice(b, b + n) for b, n in zip(moves.begins, x.shape[2:], strict=True)))

    space = Scratch()
    columns_of = space.array((channels * math.prod(moves.kernel) * band * width,), x.dtype)
    padded_of = space.array((channels, *padded_shape) if needs_padding else (0,), x.dtype)

    # Strides, in bytes, of a view (C, *kernel, *output) of one padded image.
    steps = tuple(itemsize * math.prod(padded_shape[axis + 1 :]) for axis in range(moves.rank))
    view_strides = (
        itemsize * math.prod(padded_shape),
        *(d * step for d, step in zip(moves.dilations, steps, strict=True)),
        *(s * step for s, step in zip(moves.strides, steps, strict=True)),
    )
    bands = [
        (
            (channels, *moves.kernel, stop - start, *rest),
            start * moves.strides[0] * steps[0],
            start * width,
            stop * width,
        )
        for start, stop in spans(rows, band)
    ]

    def call(*operands: Any) -> None:
        x, w, y, workspace = operands[0], operands[1], operands[-2], operands[-1]
        weights = w.reshape(group, features // group, depth)
        y = y.reshape(batch, group, features // group, rows * width)
        bias = operands[2].reshape(group, features // group, 1) if biased else None
        columns = columns_of(workspace)
        padded = padded_of(workspace)
        if needs_padding:
            padded.fill(0)
        for image in range(batch):
            source = x[image]
            if needs_padding:
                padded[inside] = source
                source = padded
            elif not source.flags.c_contiguous:
                source = np.ascontiguousarray(source)
            for shape, offset, first, last in bands:
                part = columns[: math.prod(shape)]
                np.copyto(part.reshape(shape), np.ndarray(shape, source.dtype, source, offset, view_strides))
                target = y[image, :, :, first:last]
                np.matmul(weights, part.reshape(group, depth, last - first), target)
                if bias is not None:
                    np.add(target, bias, target)

    return Into(call, space.nbytes)


def _add_bias(y: np.ndarray, bias: np.ndarray) -> None:
    np.add(y, bias.reshape(-1, 1), y)
