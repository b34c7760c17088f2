"""Transposed convolution to a few channels, on planes: what lies in a row is computed together, a vector of columns at a time."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.spread import MOST_SUMS, Spread
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.dots import MOST, fed_by_channel
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.pad import part
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pending_products import pending_product
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, dense_strides

STRIDES = (1, 2, 4)
"""Steps of columns that vectors are interleaved for."""
MOST_TAPS = 8
"""Of a row, which the kernel unrolls."""
LONG = 64
"""Channels for each result from which on dot products take less."""
WIDEST = 4
"""Vectors of columns that are taken together."""


@record(frozen=True, slots=True)
class Transposed:
    """The axes of a transposed convolution: sizes of the kernel and of its steps, and how many results are cut off in front."""

    kernel: Ints
    strides: Ints
    dilations: Ints
    begins: Ints


def suits(b: Lowering, channels: int, outputs: int, groups: int, shape: Ints, by: Transposed) -> bool:
    """Whether results of a few channels fill vectors by columns, and sums are not so long that they do by channels."""
    few = groups == 1 and outputs <= MOST and channels < LONG * outputs and len(by.kernel) in (1, 2)
    steps = few and by.strides[-1] in STRIDES and by.kernel[-1] <= MOST_TAPS
    return steps and -(-shape[-1] // by.strides[-1]) >= b.target.lanes // 2


def spread(b: Lowering, x: ValueView, w: ValueView, shape: Ints, by: Transposed) -> Pending:
    """The result, by planes."""
    source = b.read(x)
    images, channels, *spatial = source.shape
    height, width = (1, *spatial)[-2:]
    outputs, rows, columns = shape[1], *(1, *shape[2:])[-2:]
    kernel, strides, dilations, begins = (
        (one, *axes)[-2:]
        for one, axes in ((1, by.kernel), (1, by.strides), (1, by.dilations), (0, by.begins))
    )  # fmt: skip
    taps = _across(kernel[1], strides[1], dilations[1], begins[1])
    left = max(0, -min(shift for _, shift in taps))
    lanes, positions = b.target.lanes, -(-columns // strides[1])
    wide = max(1, min(WIDEST, MOST_SUMS // (len(taps) * outputs), -(-positions // lanes)))
    reach = -(-positions // (wide * lanes)) * wide * lanes + left + max(shift for _, shift in taps)
    padded = _padded(
        b, source.viewed((images, channels, height, width), _planes(source)), left, max(reach, left + width)
    )
    packed = _packed(b, w, (channels, outputs, *kernel))
    steps = 4 * padded.strides[2], 4 * packed.size // kernel[0]
    table = _down(rows, height, kernel[0], strides[0], dilations[0], begins[0], steps)
    moved = tuple((phase, left + shift) for phase, shift in taps)

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        flat = target.reshaped((images, outputs, rows, columns))
        if flat is None or flat.strides[3] != 1:
            flat = b.scratch((images, outputs, rows, columns))
        args: list[int | Ref] = [
            flat.ref, padded.ref, packed.ref, b.tensor_of(table).ref, 8 * table.shape[1], channels,
            4 * padded.strides[1], 4 * padded.strides[0], rows, columns, *(4 * stride for stride in flat.strides[:3]),
            *(leaf.ref for _, leaf in operands),
        ]  # fmt: skip
        kernel_ = Spread(outputs, strides[1], moved, wide, expr, tuple(kind for kind, _ in operands))
        products = (table.shape[1] // 2) * channels * len(taps) * outputs
        work = images * rows * -(-positions // lanes) * (0.5 * products + 4.0 * outputs * strides[1])
        b.program.call(kernel_, args, images * rows, work, even=False)
        if flat.buffer is not target.buffer:
            copy(b.program, b.target, flat.viewed(target.shape, dense_strides(target.shape)), target)

    return fed_by_channel(pending_product(b, shape, 1, tuple(range(len(shape))), emit))


def _planes(source: Tensor) -> Ints:
    """Strides of images, channels, rows and columns; a signal is one row."""
    return source.strides if len(source.strides) == 4 else (*source.strides[:2], 0, source.strides[2])


def _across(kernel: int, stride: int, dilation: int, begin: int) -> list[tuple[int, int]]:
    """Of each tap of a row the results that meet it, modulo the stride, and how far from the column of equal number it lies."""
    found = []
    for tap in range(kernel):
        phase = (tap * dilation - begin) % stride
        found.append((phase, (phase + begin - tap * dilation) // stride))
    return found


def _down(
    rows: int, height: int, kernel: int, stride: int, dilation: int, begin: int, steps: tuple[int, int]
) -> np.ndarray:
    """Of each row of the result how many taps of a column meet rows, then of each of these where its row and its weights are, in
    bytes: planes may have more of them than 32 bits count."""
    found = []
    for row in range(rows):
        places = [(row + begin - tap * dilation, tap) for tap in range(kernel)]
        found.append([
            (at // stride, tap) for at, tap in places if at % stride == 0 and 0 <= at // stride < height
        ])  # fmt: skip
    table = np.zeros((rows, 1 + 2 * max(map(len, found), default=0)), np.int64)
    for line, met in zip(table, found, strict=True):
        line[0] = len(met)
        line[1 : 1 + 2 * len(met)] = np.array(met, np.int64).reshape(-1, 2).dot(np.diag(steps)).ravel()
    return table


def _padded(b: Lowering, source: Tensor, left: int, width: int) -> Tensor:
    """Planes with columns of zeros at both sides."""
    images, channels, rows, columns = source.shape
    made = b.scratch((images, channels, rows, width))
    nothing = b.zeros(1).viewed((1,), (0,))
    for start, stop in ((0, left), (left + columns, width)):
        if start < stop:
            write_map(b.program, b.target, ex.IDENTITY, [nothing], part(made, 3, start, stop))
    copy(b.program, b.target, source, part(made, 3, left, left + columns))
    return made


def _packed(b: Lowering, w: ValueView, sizes: Ints) -> Tensor:
    """[tap of a column][channel][tap of a row][output]."""
    channels, outputs, down, across = sizes
    strides = (across, outputs * down * across, 1, down * across)

    def fill(given: Tensor, result: Tensor) -> None:
        shape = (down, channels, across, outputs)
        copy(b.packing, b.target, given.viewed(shape, strides), result.viewed(shape, dense_strides(shape)))

    return in_form(b, w, ("spread",), (math.prod(sizes),), fill)
