"""Pooling and resampling of what lies plane by plane, as images enter and leave a graph, without turning it channels-last."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import ValueView
from onnxplug.contract.sizes import greatest, portion
from onnxplug_ep_cpu.codegen.kernels.byteplanes import BytePlanes
from onnxplug_ep_cpu.codegen.kernels.planes import Planes
from onnxplug_ep_cpu.codegen.lower.blends import Blends
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.taps import Offsets
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, dense_strides
from onnxplug_kernels.windows import Windows

WIDEST = 16
"""Taps across that the kernel unrolls."""
STRIDES = 4
"""Largest step of a window across that vectors are shuffled for."""
LONGEST = 16384
"""Columns of a row that fits into a thread's stack."""
BATCH = 8
"""Rows that are combined before their columns are, if they are not more than ``HELD`` elements."""
HELD = 8192
ITEM = 8192
"""Steps of one item."""


def suits(b: Lowering, source: Tensor, y: ValueView) -> bool:
    """Whether the operator had better work on planes: its operand lies so, and its result, if it does not leave the region like
    that, is not larger, so that turning it later costs no more. One channel lies either way."""
    made, alone = b.shape(y), source.shape[1] == 1
    lies = (
        source.strides[-1] == 1 and (alone or not source.is_channels_last) and source.shape[-1] <= LONGEST >= made[-1]
    )
    return lies and 0 not in made and (alone or y.name in b.outputs or math.prod(made) <= source.size)


def sees(moves: Windows) -> bool:
    """Whether the kernel can do these windows, and there are more than one in a row: sums of whole rows go by channels."""
    few = moves.kernel[-1] <= WIDEST and moves.strides[-1] <= STRIDES
    return few and moves.begins[-1] >= 0 and moves.output[-1] > 1


def pooled(b: Lowering, source: Tensor, target: Tensor, rows: Offsets, shares: Ref | None, moves: Windows) -> None:
    """Append the call that fills ``target`` with the largest elements or, by ``shares`` of each, the means of windows; ``rows`` as
    the kernel has them."""
    across = moves.kernel[-1], moves.strides[-1], moves.dilations[-1], moves.begins[-1]
    tables = rows.ref(b), 0 if shares is None else shares, 0, 0
    _call(b, source, target, "max" if shares is None else "mean", rows.shape, tables, *across)


def resampled(b: Lowering, source: Tensor, target: Tensor, by: Blends) -> None:
    """Append the call that fills ``target`` with weighted sums, by rows and then by columns."""
    tables = *by.of_lines(b), *by.of_columns(b, turned=True)
    _call(b, source, target, "weighted", by.rows, tables, by.across.taps, 1, 1, 0)


def bytes_resampled(b: Lowering, source: Tensor, target: Tensor, by: Blends) -> None:
    """As ``resampled``, of bytes, as which what is blended of them is cut down."""
    lanes, (count, down), (made, across) = b.target.lanes, by.rows, by.columns
    images, channels, *_, width = source.shape
    flat = target.reshaped((images, channels, count, made))
    if flat is None:
        flat = b.scratch((images, channels, count, made), element=target.element)
    row = (down * width + 8 * down * across * made) // lanes
    block = portion(count, ITEM // greatest(1, row))
    b.program.call(
        BytePlanes(source.element, down, across, width < lanes, made < lanes),
        [
            flat.ref, source.ref, *by.of_lines(b), *by.of_columns(b, turned=True), channels,
            count, block, width, made, *flat.strides[:3], *source.strides[:2],
        ],
        images * channels * -(-count // block),
        images * channels * count * (row + 10),
        even=False,
    )  # fmt: skip
    if flat.buffer is not target.buffer:
        copy(b.program, b.target, flat.viewed(target.shape, dense_strides(target.shape)), target)


def _call(
    b: Lowering, source: Tensor, target: Tensor, kind: str, lines: Ints, tables: Sequence[int | Ref], taps: int,
    stride: int, dilation: int, left: int,
) -> None:  # fmt: skip
    """``lines``: of the result, and of the source for each; ``tables``: of lines, their shares, columns and their weights; 0 for none."""
    lanes, (count, down), (rows, shares, columns, weights) = b.target.lanes, lines, tables
    images, channels, *_, width = source.shape
    made = target.shape[-1]
    flat = target.reshaped((images, channels, count, made))
    if flat is None:
        flat = b.scratch((images, channels, count, made))
    reach = (-(-made // lanes) * lanes - 1) * stride + (taps - 1) * dilation + stride
    room = -(-(max(reach, left + width) + lanes * stride) // lanes) * lanes
    neutral = b.derived(np.full, greatest(width, lanes), -math.inf if kind == "max" else 0.0, np.float32)
    row = down * width + taps * made
    block = portion(count, ITEM * lanes // row)
    batch = max(1, min(block, BATCH, HELD // room))

    b.program.call(
        Planes(kind, taps, stride, dilation, width < lanes, made < lanes),
        [
            flat.ref, source.ref, rows, neutral, shares, columns, weights, channels, count, block, down, width, made, left, room,
            *(4 * stride for stride in flat.strides[:3]), 4 * source.strides[0], 4 * source.strides[1], batch,
        ],
        images * channels * -(-count // block),
        images * channels * count * (row / lanes * 0.6 + 10),
        even=False,
    )  # fmt: skip
    if flat.buffer is not target.buffer:
        copy(b.program, b.target, flat.viewed(target.shape, dense_strides(target.shape)), target)
