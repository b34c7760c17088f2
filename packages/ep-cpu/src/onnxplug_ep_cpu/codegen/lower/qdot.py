"""Calling the product kernel that reads bytes as they lie: its tiles, its rows, windows laid out as rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.bytedots import quad_form
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.kernels.qdot import QDot
from onnxplug_ep_cpu.codegen.kernels.quads import OCTET
from onnxplug_ep_cpu.codegen.kernels.unfold import STEP, Unfold
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.products import Gather, Matrix
from onnxplug_ep_cpu.codegen.lower.quads import QuadWeights, quads_of
from onnxplug_ep_cpu.codegen.lower.taps import offsets
from onnxplug_ep_cpu.codegen.lower.tiles import best_rows
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.recipes import remembered
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor, channels_last, follows
from onnxplug_kernels.windows import Windows

FEW_CHANNELS = 16
"""Below so many channels a row of a window is copied at once, from an image with its padding around it."""
UNFOLD_BLOCK = 16
"""Pixels whose windows are laid out by one item."""


@remembered
def quad_rows(target: Target, m: int, vectors: int, lifted: bool, varies: bool) -> int:
    """Rows of a tile: registers filled, little of the result computed twice. ``varies``: see ``best_rows``."""
    spare = vectors + 4 if quad_form(target) == "pairs" else 1 + lifted  # weights of two quads, ones, three products
    most = max(1, (target.registers - spare - vectors) // (vectors + lifted))
    return best_rows(min(most, 8), m, varies, lambda r: math.ceil(m / r) * (r * vectors + vectors + r / 2))


def quad_product(
    b: Lowering,
    m: int,
    batch: int,
    a: tuple[Tensor, int, int],
    zero: Tensor,
    weights: QuadWeights,
    c: Matrix,
    result: str,
    expr: ex.Expr,
    operands: Sequence[tuple[str, Tensor, Matrix]],
    bias: Tensor,
    varies: bool,
    gather: Gather | None = None,
) -> None:
    """Append the call: ``batch`` products of m rows; where that ``varies``, it is another number in other runs. ``a`` is a tensor of
    bytes with its strides from row to row and from product to product; rows that ``gather`` finds have no stride."""
    source, row, step = a
    n, quads = weights.n, quads_of(weights.k)
    lifted = weights.rest is not None
    rows = quad_rows(b.target, m, weights.vectors, lifted, varies)
    kernel = QDot(
        rows, weights.vectors, source.element, expr, tuple((kind, t.element) for kind, t, _ in operands), result,
        n < weights.vectors * b.target.lanes, gather is not None, lifted,
    )  # fmt: skip
    panels, tiles = -(-n // (weights.vectors * b.target.lanes)), -(-m // rows)
    wanted = max(4, tiles * panels * batch // (b.threads * 8))
    reach = min(weights.k, gather.fresh) if gather else weights.k
    block = max(1, min(tiles, (b.target.l2 // 2) // (reach * rows) or 1, wanted))
    blocks = -(-tiles // block)
    unit = SIZES[result]
    args: list[int | Ref] = [
        source.ref, weights.words.ref, c.ref, m, n, quads, row, unit * c.row, block, blocks, panels, step,
        unit * c.batch[0], weights.order.ref, weights.ends.ref, bias.ref, weights.sums.ref, zero.ref,
        weights.places.ref if weights.places is not None else 0,
    ]  # fmt: skip
    args += [gather.table, gather.taps, gather.zeros] if gather else [0, 0, 0]
    args.append(weights.rest.ref if weights.rest is not None else 0)
    for _, leaf, operand in operands:
        args += [operand.ref, leaf.itemsize * operand.row, leaf.itemsize * operand.batch[0]]
    work = batch * (m * n * weights.k / (10.0 * b.target.lanes) + n * weights.k / 20)
    b.program.call(kernel, args, blocks * panels * batch, work)


def readable(b: Lowering, tensor: Tensor, k: int) -> Tensor:
    """Bytes whose last octet may be read whole: what is not scratch memory has nothing behind it."""
    if k % 8 == 0 or tensor.buffer.kind == "scratch":
        return tensor
    return b.copied(tensor, sorted(range(len(tensor.shape)), key=lambda d: (-tensor.strides[d], d)))


def gathered(b: Lowering, x: Tensor, zero: Tensor, weights: QuadWeights, moves: Windows, varies: bool) -> Gather | None:
    """How a product finds the windows of an image, whose size may vary; None where it cannot: a tap's channels are to lie side by
    side, whole octets, which are multiplied in the order they lie."""
    if quad_form(b.target) == "pairs" or x.shape[1] % OCTET or x.strides[1] != 1:
        return None
    rows = quad_rows(b.target, math.prod(moves.output), weights.vectors, weights.rest is not None, varies)
    table = offsets(x, moves)
    padding = _padding(b, zero, x.shape[1], x.element).ref if table.padded() else 0
    return Gather(math.prod(moves.kernel), table.by_tile(b, rows), padding, x.shape[1] * math.prod(moves.strides))


def _padding(b: Lowering, zero: Tensor, size: int, element: str) -> Tensor:
    """What windows read beside the image, and a step behind it."""
    if zero.buffer.array is not None:
        return b.tensor_of(np.full(size + STEP, zero.buffer.array.reshape(-1)[zero.offset], element))
    padding = b.scratch((size + STEP,), element=element)
    write_map(b.program, b.target, ex.IDENTITY, [zero], padding)
    return padding


def in_channels(b: Lowering, x: Tensor) -> Tensor:
    """An image with channels innermost and no gaps, in scratch memory, behind which may be read."""
    order = channels_last(len(x.shape))
    fine = x.buffer.kind == "scratch" and follows(x.shape, x.strides, order)
    return x if fine else b.copied(x, order)


def unfolded(b: Lowering, x: Tensor, zero: Tensor, moves: Windows) -> tuple[Tensor, int, int]:
    """Windows of an image as rows of bytes, ordered as the taps, channels innermost; as ``quad_product`` takes it."""
    if x.shape[1] < FEW_CHANNELS and moves.dilations[-1] == 1:
        source, moves = _surrounded(b, x, zero, moves)
        table = offsets(source, replace(moves, kernel=(*moves.kernel[:-1], 1)))
        size = source.shape[1] * moves.kernel[-1]
    else:
        source = in_channels(b, x)
        table, size = offsets(source, moves), x.shape[1]
    images, pixels, taps = x.shape[0], *table.shape
    row = taps * size + (STEP if size % STEP else 0)
    made = b.scratch((images, pixels, row), element=x.element)
    padding = _padding(b, zero, size, x.element).ref if table.padded() else 0
    args: list[int | Ref] = [
        made.ref, source.ref, table.ref(b), padding, pixels, taps, size, row,
        source.strides[0], UNFOLD_BLOCK, -(-pixels // UNFOLD_BLOCK),
    ]  # fmt: skip
    work = images * pixels * taps * (1.0 + size / STEP)
    b.program.call(Unfold(), args, images * -(-pixels // UNFOLD_BLOCK), work)
    return made, row, pixels * row


def _surrounded(b: Lowering, x: Tensor, zero: Tensor, moves: Windows) -> tuple[Tensor, Windows]:
    """An image in channels-last order with its padding around it, and the geometry that is left."""
    spatial = x.shape[2:]
    ends = [
        max(0, (out - 1) * stride + (kernel - 1) * dilation + 1 - begin - size)
        for out, stride, kernel, dilation, begin, size in zip(
            moves.output, moves.strides, moves.kernel, moves.dilations, moves.begins, spatial, strict=True
        )
    ]
    shape = (*x.shape[:2], *(n + a + e for n, a, e in zip(spatial, moves.begins, ends, strict=True)))
    whole = b.scratch(shape, channels_last(len(shape)), x.element)
    flat = whole.viewed((whole.size,), (1,))
    if shape != x.shape:
        write_map(b.program, b.target, ex.IDENTITY, [zero], flat)
    inner = whole.shift(sum(a * s for a, s in zip(moves.begins, whole.strides[2:], strict=True)))
    copy(b.program, b.target, x, inner.viewed(x.shape, whole.strides))
    return whole, replace(moves, begins=tuple(0 for _ in spatial))
