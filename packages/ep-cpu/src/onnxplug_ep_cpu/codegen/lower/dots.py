"""Convolution to a few channels, ordinary or transposed: one dot product for each result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from onnxplug.contract import ValueView
from onnxplug.contract.sizes import least
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.dots import Dots
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, dense_strides

MOST = 4
"""Results of a pixel; of more a vector holds enough."""
BLOCK = 512
"""Columns of one item."""


def suits(b: Lowering, outputs: int, groups: int, depth: int) -> bool:
    """Whether the sums are few and long enough that adding up the lanes of each costs less than empty lanes do."""
    return groups == 1 and outputs <= MOST and outputs < b.target.lanes and depth >= 2 * b.target.lanes


def dots(
    b: Lowering, source: Tensor, filters: Tensor, table: Ref, taps: int, channels: int, target: Tensor, expr: ex.Expr,
    operands: Sequence[tuple[str, Tensor]],
) -> None:  # fmt: skip
    """Append the call that fills ``target``; ``table`` has the int32 offsets of [pixel, tap]."""
    images, outputs, *spatial = target.shape
    columns = spatial[-1]
    rows = math.prod(spatial[:-1])
    flat = target.reshaped((images, outputs, rows, columns))
    if flat is None:
        flat = b.scratch((images, outputs, rows, columns))
    width = padded(b, channels)
    block = least(columns, BLOCK)
    args: list[int | Ref] = [
        flat.ref, source.ref, filters.ref, b.zeros(width).ref, table, taps,
        channels, width, rows, columns, block, *(4 * stride for stride in flat.strides), 4 * source.strides[0],
        *(leaf.ref for _, leaf in operands),
    ]  # fmt: skip
    kinds = tuple(kind for kind, _ in operands)
    kernel = Dots(outputs, channels % b.target.lanes > 0, flat.strides[3] != 1 and columns > 1, expr, kinds)
    items = images * rows * -(-columns // block)
    vectors = taps * width // b.target.lanes
    work = 0.4 * images * rows * columns * (vectors * (0.5 + 0.5 * outputs) + 3 * outputs + 2)
    b.program.call(kernel, args, items, work, even=False)
    if flat.buffer is not target.buffer:
        copy(b.program, b.target, flat.viewed(target.shape, dense_strides(target.shape)), target)


def fed_by_channel(pending: Pending) -> Pending:
    """The pending value, but for operands with an element for every result."""
    takes, channels = pending.takes, pending.shape[1]
    assert takes is not None
    return replace(pending, takes=lambda leaf: leaf.size <= channels and takes(leaf))


def packed_rows(
    b: Lowering, w: ValueView, form: tuple[object, ...], shape: Ints, strides: Ints, first: int, joined: bool = False
) -> Tensor:
    """Filters [output, *taps, channel], given by their strides from an element on, as rows of channels padded to whole vectors;
    ``joined``: rows of the channels of all taps of the last axis."""
    outputs, *taps, channels = shape
    lines, steps = (taps[:-1], (channels,)) if joined else (taps, ())
    row = channels * taps[-1] if joined else channels
    width = padded(b, row)

    def fill(given: Tensor, result: Tensor) -> None:
        lies = given.shift(first).viewed(shape, strides)
        apart = (*(width * s for s in dense_strides((outputs, *lines))), *steps, 1)
        copy(b.packing, b.target, lies, result.viewed(shape, apart))

    return in_form(b, w, ("dots", *form, joined), (outputs * math.prod(lines) * width,), fill)


def padded(b: Lowering, channels: int) -> int:
    """Channels of whole vectors."""
    return -(-channels // b.target.lanes) * b.target.lanes
