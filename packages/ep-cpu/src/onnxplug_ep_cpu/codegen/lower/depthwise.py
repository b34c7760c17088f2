"""Depthwise convolution: every channel with a filter of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.depthwise import Block, Depthwise
from onnxplug_ep_cpu.codegen.kernels.neighbours import Neighbours
from onnxplug_ep_cpu.codegen.lower.bands import by_bands, met, write_rows
from onnxplug_ep_cpu.codegen.lower.choice import Layer
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.pad import part
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pending_products import pending_product
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.recipes import remembered
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last
from onnxplug_kernels.windows import Windows

FEWEST = 4
"""Vectors of channels one item does at least: a few cache lines of every pixel."""
MOST_WRITTEN = 49
"""Taps of the largest filter whose rows are all written out."""
MOST_ROWS, MOST_PIXELS = 8, 8
"""Results of a block that may lie below and beside each other."""
MOST_PRODUCTS = 400
"""Products of a block that are written out; with more its code is slow to make and to fetch."""
ORDINARY = (56, 56)
"""The sides of an image that blocks are chosen for where they are open."""


def depthwise(b: Lowering, source: Tensor | Pending, w: ValueView, layer: Layer, band: int = 0) -> Pending:
    """The convolution as a pending value; a line is an image of one row, an image a body of one layer. A pending ``source`` is made for
    each ``band`` of so many rows of the result."""
    shape, moves, channels, taps = layer.shape, layer.moves, layer.weights[0], layer.taps
    packed = packed_by_channel(b, w, "depthwise", channels, taps, [(0, taps)])
    read = _repeated(b, source, channels) if isinstance(source, Tensor) else source
    held: list[Tensor] = []

    def near(first: int, stop: int) -> tuple[Tensor, Windows]:
        """What some rows of the result are made of, and the windows over it."""
        begin, low = moves.begins[0] - first * moves.strides[0], 0
        if isinstance(read, Tensor):
            there = read
        else:
            low, high = met(moves, read.shape[2], first, stop)
            if not held or held[0].shape[2] < high - low:
                rows = (stop - first) * moves.strides[0] + (moves.kernel[0] - 1) * moves.dilations[0]
                held[:] = [b.scratch((*read.shape[:2], max(rows, high - low), read.shape[3]), channels_last(4))]
            there = part(held[0], 2, 0, high - low)
            write_rows(b, read, low, high, there)
        return there, replace(moves, begins=(begin + low, *moves.begins[1:]))

    def rows(first: int, stop: int) -> Pending:
        def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
            there, here = near(first, stop)
            sweep(b, there, packed, here, expr, operands, target, layer.varies)

        return pending_product(b, (*shape[:2], stop - first, *shape[3:]), 1, channels_last(len(shape)), emit)

    def some(first: int, stop: int) -> Pending:
        made = rows(first, stop)
        return replace(made, anchor=by_bands(first, stop, band, rows)) if 0 < band < stop - first else made

    whole = some(0, shape[2])
    return replace(whole, banded=some) if len(shape) == 4 else whole


def packed_by_channel(
    b: Lowering, w: ValueView, form: object, channels: int, area: int, runs: Sequence[tuple[int, int]]
) -> Tensor:
    """Filters of ``area`` taps, one for each channel, as [vector of channels][tap][lane]: of ``runs`` of (first tap, how many)."""
    lanes, taps = b.target.lanes, sum(count for _, count in runs)
    blocks, wide = -(-channels // lanes), min(channels, lanes)

    def fill(given: Tensor, result: Tensor) -> None:
        for block, start, count in ((0, 0, channels // lanes), (blocks - 1, channels - wide, 1)):
            at = block * taps * lanes
            for first, many in runs:
                lies = given.shift(start * area + first).viewed((count, many, wide), (lanes * area, 1, area))
                copy(b.packing, b.target, lies, result.shift(at).viewed(lies.shape, (taps * lanes, lanes, 1)))
                at += many * lanes

    return in_form(b, w, form, (blocks * taps * lanes,), fill)


def sweep(
    b: Lowering, source: Tensor, packed: Tensor, moves: Windows, expr: ex.Expr, operands: Sequence[tuple[str, Tensor]],
    target: Tensor, varies: bool = False,
) -> None:  # fmt: skip
    """Append the call that fills ``target``, all of what ``moves`` make or some of its rows. ``varies``: by a kernel for any size."""
    if not _is_even(target):
        flat = b.scratch(target.shape, channels_last(len(target.shape)))
        sweep(b, source, packed, moves, expr, operands, flat, varies)
        copy(b.program, b.target, flat, target)
        return
    (depth, height, width), strides, dilations, begins = (
        (one, one, *many)[-3:]
        for one, many in ((1, moves.kernel), (1, moves.strides), (1, moves.dilations), (0, moves.begins))
    )
    shape, lanes = target.shape, b.target.lanes
    channels, taps = shape[1], depth * height * width
    layers, rows, columns = (1, 1, *shape[2:])[-3:]
    deep, tall, wide = (1, 1, *source.shape[2:])[-3:]
    image, layer, row, pixel = _steps(source)
    out_image, _, out_row, out_pixel = _steps(target)
    bodies = len(shape) > 4
    windows = (depth if bodies else 0, height, width), strides[1:], dilations[1:]
    down, over = ORDINARY if varies else (1, *moves.output)[-2:]
    block = choose_block(b.target, down, over, *windows)
    if block.rows > rows or block.pixels > columns:
        block = choose_block(b.target, rows, columns, *windows)
    lines = layers * -(-rows // block.rows)
    vectors = -(-channels // lanes)
    parts = -(-vectors // max(FEWEST, b.target.l1 // 3 // (4 * lanes * taps)))
    part = -(-vectors // parts) * lanes
    parts = -(-vectors * lanes // part)
    args: list[int | Ref] = [
        target.ref, source.ref, packed.ref, b.zeros(wide * pixel // 4 + lanes).ref, channels, parts, part, lines, rows,
        columns, tall, wide, begins[1], begins[2], out_pixel, out_row, out_image, pixel, row, image, height, deep, begins[0],
        strides[0], dilations[0], layer,
    ]  # fmt: skip
    for kind, leaf in operands:
        leaf_image, leaf_row, leaf_pixel = 0, 0, 0
        if kind == "full":
            leaf = leaf.broadcast(shape)
            leaf = leaf if _is_even(leaf) else b.copied(leaf, channels_last(len(shape)))
            leaf_image, _, leaf_row, leaf_pixel = _steps(leaf)
        args += [leaf.ref, leaf_pixel, leaf_row, leaf_image]
    kinds = tuple(kind for kind, _ in operands)
    kernel = Depthwise(
        0 if block.rolled else height, width, (strides[1], strides[2]), (dilations[1], dilations[2]), block, expr, kinds,
        depth if bodies else 0, channels < lanes, varies or 4 * math.prod(shape) > b.target.l2 // 4,
    )  # fmt: skip
    work = shape[0] * layers * rows * columns * max(1, channels / lanes) * (0.25 * taps + 1)
    b.program.call(kernel, args, shape[0] * lines * parts, work, even=False)


@remembered
def choose_block(target: Target, rows: int, columns: int, kernel: Ints, strides: Ints, dilations: Ints) -> Block:
    """The block of results of least time: what its taps share is read once, few of them are made twice, and sums and weights
    of a row stay in registers. ``kernel`` is that of ``Depthwise``: its depth is 0 for images."""
    depth, height, width = kernel
    taps = max(1, depth) * height * width
    rolled = depth == 0 and height > 1 and taps > MOST_WRITTEN

    def time(block: Block) -> float:
        sums = block.rows * block.pixels
        down = len(Neighbours(block.rows, height, strides[0], dilations[0]).uses())
        across = len(Neighbours(block.pixels, width, strides[1], dilations[1]).uses())
        held = taps + sums < target.registers - 1
        loads = max(1, depth) * down * across + (taps if held else block.rows * taps)
        each = max(sums * taps / 2, loads / 2, 2 * taps) + sums + 8
        return each * -(-rows // block.rows) * -(-columns // block.pixels)

    def fits(r: int, p: int) -> bool:
        weights = min(taps, r * width, target.registers // 3)
        registers = r * p <= target.registers // 2 and r * p + weights + 2 <= target.registers
        return r * p == 1 or (registers and r * p * (width if rolled else taps) <= MOST_PRODUCTS)

    tall, wide = 1 if depth or rolled else min(MOST_ROWS, rows), min(MOST_PIXELS, columns)
    sizes = itertools.product(range(1, tall + 1), range(1, wide + 1))
    found = [Block(r, p, rolled) for r, p in sizes if fits(r, p)]
    return min(found, key=lambda block: (time(block), block.rows))


def _repeated(b: Lowering, source: Tensor, channels: int) -> Tensor:
    """The source with every channel as often as there are filters for it."""
    given = source.shape[1]
    if given == channels:
        return source
    times, last = channels // given, len(source.shape) - 1
    pixels = channels_last(last + 1)[:-1]
    made = b.scratch((source.shape[0], channels, *source.shape[2:]), channels_last(last + 1))
    shape = (*(source.shape[d] for d in pixels), given, times)
    parts = made.viewed(shape, (*(made.strides[d] for d in pixels), times, 1))
    copy(b.program, b.target, source.viewed(shape, (*(source.strides[d] for d in pixels), source.strides[1], 0)), parts)
    return made


def _is_even(tensor: Tensor) -> bool:
    """Whether the rows of all layers of a body lie evenly."""
    return len(tensor.shape) < 5 or tensor.strides[2] == tensor.shape[3] * tensor.strides[3] or tensor.shape[2] == 1


def _steps(tensor: Tensor) -> Ints:
    """Bytes between images, layers, rows and pixels."""
    layer, row, pixel = (0, 0, *tensor.strides[2:])[-3:]
    return 4 * tensor.strides[0], 4 * layer, 4 * row, 4 * pixel
