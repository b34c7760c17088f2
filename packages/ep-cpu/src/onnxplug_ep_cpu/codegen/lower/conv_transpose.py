"""Transposed convolution: output pixels of equal position modulo the strides are a convolution of their own."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.choice import MOST_TAPS, by_channel
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.conv import biased
from onnxplug_ep_cpu.codegen.lower.depthwise import packed_by_channel, sweep
from onnxplug_ep_cpu.codegen.lower.dots import dots, fed_by_channel, packed_rows, suits
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.packing import packed_panels
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pending_products import pending_product
from onnxplug_ep_cpu.codegen.lower.products import Gather, Matrix, product
from onnxplug_ep_cpu.codegen.lower.spread import Transposed, spread
from onnxplug_ep_cpu.codegen.lower.spread import suits as spreads
from onnxplug_ep_cpu.codegen.lower.support import attributes, floats, rank
from onnxplug_ep_cpu.codegen.lower.taps import by_tile, even_steps, evenly
from onnxplug_ep_cpu.codegen.lower.tiles import choose_tile, panel_vectors, varying_tile
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last, dense_strides
from onnxplug_kernels.ops.conv_transpose import placement
from onnxplug_kernels.windows import Windows

MOST_PHASES = 64
"""Parts that a result is computed in, each by a product of its own, where they spare products with zeros."""
_PLACING = ("strides", "dilations", "output_padding", "output_shape", "pads", "auto_pad")


def _supports(node: NodeView) -> str | None:
    more = node.attributes.get("output_padding", ())
    steps, dilations = (node.attributes.get(name, (1,) * len(more)) for name in ("strides", "dilations"))
    if any(a and not 0 <= a < max(s, d) for a, s, d in zip(more, steps, dilations, strict=False)):
        return "more is added than the operator allows"
    return floats(node) or (None if rank(node.inputs[0]) in (3, 4, 5) else "the rank is not known")


@lowering("ConvTranspose", supports=_supports)
def conv_transpose(b: Lowering, node: NodeView) -> None:
    """Every output pixel gathers the taps that reach it; pixels that share their taps are computed together."""
    (x, w, *rest), (y,) = node.inputs, node.outputs
    assert x is not None and w is not None and y is not None
    b.pend(y, biased(b, _gathered(b, node, x, w, y), rest[0] if rest else None))


def _gathered(b: Lowering, node: NodeView, x: ValueView, w: ValueView, y: ValueView) -> Pending:
    if w.constant is not None and not np.isfinite(w.constant).all():
        raise Unsupported("taps that reach no pixel meet zeros, which infinite weights do not leave so")
    weights, spatial, shape = b.shape(w), b.shape(x)[2:], b.shape(y)
    kernel = weights[2:]
    n, groups = len(kernel), node.attributes.get("group", 1)
    given = attributes(node, strides=(1,) * n, dilations=(1,) * n)
    strides, dilations = given["strides"], given["dilations"]
    placed = {name: node.attributes[name] for name in _PLACING if name in node.attributes}
    try:
        begins = tuple(placement(spatial, kernel, **placed)[0])
    except ValueError as error:
        raise Unsupported(str(error)) from error
    if math.prod(spatial) == 1 and math.prod(shape[2:]) <= MOST_PHASES:
        strides = tuple(
            (k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)
        )  # one pixel: its taps never meet
    by = Transposed(kernel, strides, dilations, begins)
    if 0 not in (*b.shape(x), *shape) and spreads(b, weights[0], weights[1], groups, shape, by):
        return spread(b, x, w, shape, by)
    source = b.channels_last(x)
    channels, outputs = source.shape[1] // groups, weights[1]
    vectors = panel_vectors(b.target, outputs)
    few, varies = suits(b, outputs, groups, channels), b.varies(y)
    alone = outputs == channels == 1 and groups > 1 and by_channel(b.target, groups) and set(dilations) == {1}
    alone = alone and all(map(operator.ge, kernel, strides))
    alone = alone and math.prod(-(-k // s) for k, s in zip(kernel, strides, strict=True)) <= MOST_TAPS

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        for phase in itertools.product(*map(range, strides)):
            axes = [_axis(*a) for a in zip(phase, kernel, strides, dilations, begins, strict=True)]
            size = tuple(-(-(n - p) // s) if n > p else 0 for n, p, s in zip(shape[2:], phase, strides, strict=True))
            if math.prod(size) * shape[0] * shape[1] == 0:
                continue
            part = _phase(target, phase, strides, size)
            taps, steps = [tap for tap, _ in axes], tuple(step for _, step in axes)
            pixels, count = math.prod(size), math.prod(map(len, taps))
            if alone:
                ends = [p + begin for p, begin in zip(phase, begins, strict=True)]
                _by_channel(b, source, w, kernel, strides, ends, part, expr, operands)
                continue
            if few:
                packed = _rows(b, w, weights, taps)
                reads = b.derived(_table, spatial, source.strides[2:], size, steps)
                dots(b, source, packed, reads, count, channels, part, expr, operands)
                continue
            packed = _filters(b, w, weights, groups, taps, vectors * b.target.lanes)
            gather, row = None, None
            if set(steps) == {(0,)} and all(map(operator.le, size, spatial)):  # each pixel reads the one in its place
                row = even_steps(size, source.strides[2:])
            tile = varying_tile(b.target, pixels, outputs, vectors, varies, whole=True)
            if row is None:
                tile = choose_tile(b.target, pixels, outputs, 0, True, varies)
                starts = b.derived(_tiled, spatial, source.strides[2:], size, steps, tile.rows)
                gather = Gather(count, starts, b.zeros(channels).ref, channels)
            found = [(k, Matrix(leaf.ref, 0, (0, outputs if k == "column" else 0))) for k, leaf in operands]
            with evenly(b, part) as (whole, pixel):
                product(
                    b, (pixels, outputs, channels), (shape[0], groups),
                    Matrix(source.ref, row or 0, (source.strides[0], channels)), Matrix(packed.ref, 0, (0, packed.size // groups)),
                    Matrix(whole.ref, pixel, (whole.strides[0], outputs)), tile, expr, found, gather=gather,
                )  # fmt: skip

    # Operands with an element for every result would have to be taken apart by phases.
    order = tuple(range(n + 2)) if few else channels_last(n + 2)
    return fed_by_channel(pending_product(b, shape, 1, order, emit))


def _by_channel(
    b: Lowering, source: Tensor, w: ValueView, kernel: Ints, strides: Ints, ends: list[int], part: Tensor, expr: ex.Expr,
    operands: list[tuple[str, Tensor]],
) -> None:  # fmt: skip
    """A phase where every channel has a filter of its own. Its first pixel meets tap ``end % stride`` at input pixel ``end //
    stride`` and the taps a stride further each one pixel earlier: in reverse they are those of an ordinary convolution."""
    taps = [range(end % stride, k, stride)[::-1] for k, stride, end in zip(kernel, strides, ends, strict=True)]
    steps, ones = dense_strides(kernel), (1,) * len(kernel)
    runs = [(sum(k * step for k, step in zip(tap, steps, strict=True)), 1) for tap in itertools.product(*taps)]
    packed = packed_by_channel(b, w, ("transpose", str(runs)), part.shape[1], math.prod(kernel), runs)
    counts = tuple(map(len, taps))
    begins = tuple(n - 1 - end // stride for n, stride, end in zip(counts, strides, ends, strict=True))
    moves = Windows(counts, ones, ones, begins, (0,) * len(kernel), (0,) * len(kernel), part.shape[2:])
    sweep(b, source, packed, moves, expr, operands, part)


def _axis(phase: int, kernel: int, stride: int, dilation: int, begin: int) -> tuple[list[int], Ints]:
    """(taps that reach output pixels phase, phase + stride, ...; how far behind the pixel's number each reads the input)."""
    taps = [k for k in range(kernel) if (phase + begin - k * dilation) % stride == 0]
    return taps, tuple((phase + begin - k * dilation) // stride for k in taps)


def _phase(target: Tensor, phase: Ints, strides: Ints, size: Ints) -> Tensor:
    """The output pixels of a phase."""
    first = sum(p * s for p, s in zip(phase, target.strides[2:], strict=True))
    steps = tuple(s * t for s, t in zip(strides, target.strides[2:], strict=True))
    return replace(target.shift(first), shape=(*target.shape[:2], *size), strides=(*target.strides[:2], *steps))


def _table(spatial: Ints, strides: Ints, pixels: Ints, steps: tuple[Ints, ...]) -> np.ndarray:
    """[pixel, tap] offsets, -1 where a tap meets nothing."""
    at, inside = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    for size, step, count, behind in zip(spatial, strides, pixels, steps, strict=True):
        where = np.arange(count)[:, None] + np.array(behind, np.int64)
        rows = len(at) * len(where)
        taps = at.shape[1] * where.shape[1]
        at = (at[:, None, :, None] + (where * step)[None, :, None, :]).reshape(rows, taps)
        inside = (inside[:, None, :, None] & ((where >= 0) & (where < size))[None, :, None, :]).reshape(rows, taps)
    return np.where(inside, at, -1).astype(np.int32)


def _tiled(spatial: Ints, strides: Ints, pixels: Ints, steps: tuple[Ints, ...], rows: int) -> np.ndarray:
    """The same by tiles of so many pixels."""
    return by_tile(_table(spatial, strides, pixels, steps), rows)


def _filters(b: Lowering, w: ValueView, shape: Ints, groups: int, taps: list[list[int]], width: int) -> Tensor:
    """The panels of evenly spaced taps; [channels, outputs per group, kernel] filters."""
    channels, outputs, *kernel = shape
    area, per_group = math.prod(kernel), channels // groups
    if not all(taps):
        return b.zeros(groups * width)
    first, apart = _spacing(kernel, taps)
    return packed_panels(
        b, w, ("transpose", str(taps), width, groups), (groups, outputs, *map(len, taps), per_group),
        (per_group * outputs * area, area, *apart, outputs * area), width, first,
    )  # fmt: skip


def _rows(b: Lowering, w: ValueView, shape: Ints, taps: list[list[int]]) -> Tensor:
    """The same as rows of channels."""
    channels, outputs, *kernel = shape
    area = math.prod(kernel)
    if not all(taps):
        return b.zeros(1)
    first, apart = _spacing(kernel, taps)
    sizes = (outputs, *map(len, taps), channels)
    return packed_rows(b, w, ("transpose", str(taps)), sizes, (area, *apart, outputs * area), first)


def _spacing(kernel: Sequence[int], taps: list[list[int]]) -> tuple[int, list[int]]:
    """(the first of evenly spaced taps, elements between them along each axis)."""
    steps = dense_strides(kernel)
    first = sum(tap[0] * step for tap, step in zip(taps, steps, strict=True))
    return first, [(tap[1] - tap[0]) * step if len(tap) > 1 else 0 for tap, step in zip(taps, steps, strict=True)]
