"""Convolution by Winograd's minimal filtering, chunk by chunk so that tiles stay in cache."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import ValueView
from onnxplug.contract.sizes import computed, least
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.filtering import Axis
from onnxplug_ep_cpu.codegen.kernels.winograd import FilterTransform, InputTransform, OutputTransform
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pending_products import pending_product
from onnxplug_ep_cpu.codegen.lower.products import Matrix, product
from onnxplug_ep_cpu.codegen.lower.taps import elements, even_pixels
from onnxplug_ep_cpu.codegen.lower.tiles import choose_tile, panel_vectors, varying_tile
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last
from onnxplug_kernels.windows import Windows

PART = 8
"""Vectors of channels one item of a transform does where there are few tiles."""
MANY_TILES = 64
"""From so many on an item does all channels of a tile."""
CHUNK = 3 << 18
"""Bytes of transformed tiles that pass through a chunk's three calls."""


def two(numbers: Ints, missing: int) -> tuple[int, int]:
    """Of rows and columns; a line is an image of one row."""
    rows, columns = (missing, *numbers)[-2:]
    return rows, columns


def starts_of(size: int, outputs: int, dilation: int) -> np.ndarray:
    """The first result of each tile along an axis; those of a tile are ``dilation`` apart."""
    phases = [np.arange(phase, size, dilation * outputs) for phase in range(min(dilation, size))]
    return np.concatenate(phases) if phases else np.zeros(0, np.int64)


def tiles_of(size: int, outputs: int, dilation: int) -> int:
    """How many there are."""
    whole, rest = divmod(size, dilation * outputs)
    return whole * dilation + least(dilation, rest)


def _reads(
    size: Ints,
    outputs: Ints,
    dilations: Ints,
    sides: Ints,
    begins: Ints,
    strides: Ints,
    spatial: tuple[int, int],
    steps: tuple[int, int],
) -> np.ndarray:
    """[tile][element] offsets of what tiles read."""
    starts = map(starts_of, size, outputs, dilations)
    where = [
        first[:, None] * stride - begin + np.arange(side) * d
        for first, side, d, begin, stride in zip(starts, sides, dilations, begins, strides, strict=True)
    ]
    return elements(where, spatial, steps)


def _writes(size: tuple[int, int], outputs: Ints, dilations: Ints) -> np.ndarray:
    """[tile][element] pixels that tiles write; the first of a tile in place of those beside the image."""
    starts = map(starts_of, size, outputs, dilations)
    where = [first[:, None] + np.arange(n) * d for first, n, d in zip(starts, outputs, dilations, strict=True)]
    numbers = elements(where, size, (size[1], 1))
    tile, element = np.nonzero(numbers < 0)
    numbers[tile, element] = numbers[tile, 0]
    return numbers


def winograd(
    b: Lowering, source: Tensor, w: ValueView, shape: Ints, moves: Windows, axes: tuple[Axis, Axis], groups: int
) -> Pending:
    """The convolution of ``source`` with filters ``w`` as a pending value."""
    images, outputs = shape[:2]
    channels, per_group = source.shape[1], outputs // groups
    planes = math.prod(axis.planes for axis in axes)
    size, spatial = two(shape[2:], 1), two(source.shape[2:], 1)
    dilations, begins, strides = two(moves.dilations, 1), two(moves.begins, 0), two(moves.strides, 1)
    steps = two(source.strides[2:], 0)

    made = tuple(axis.outputs for axis in axes)
    tiles = math.prod(map(tiles_of, size, made, dilations))
    table = b.derived(_reads, size, made, dilations, tuple(axis.side for axis in axes), begins, strides, spatial, steps)
    pixels = b.derived(_writes, size, made, dilations)
    zeros = b.zeros(channels)
    filters = _filters(b, w, axes, groups)
    # Planes lie a cache line further apart than their size, lest equal elements of all meet in one cache set.
    chunk = _chunk(b, images * tiles, channels, outputs, planes, groups)
    gap = 16
    planes_in, planes_out = chunk * channels + gap, chunk * outputs + gap
    per_plane = filters.size // planes

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        further: list[int | Ref] = []
        for kind, leaf in operands:
            steps = _steps(leaf.broadcast(shape)) if kind == "full" else (0, 0)
            further += [leaf.ref, *steps]
        taken, made = b.scratch((planes, planes_in)), b.scratch((planes, planes_out))
        finish = OutputTransform(*axes, expr, tuple(kind for kind, _ in operands))
        chunks = -(-images * tiles // chunk) if images * tiles != chunk else 1
        whole: range | None = None  # calls of the product, to describe which takes longest, of a whole chunk
        for number in range(chunks):
            last = number == chunks - 1
            first, count = number * chunk, images * tiles - number * chunk if last else chunk
            _transform(
                b, InputTransform(*axes), [taken.ref, source.ref, table, zeros.ref, first, tiles], channels,
                [4 * source.strides[0], 4 * planes_in], count, planes,
            )  # fmt: skip
            if whole is None or last:
                begin = len(b.program.calls)
                tile = varying_tile(
                    b.target, count, per_group, panel_vectors(b.target, per_group), b.prepared.varies, whole=True
                )
                product(
                    b, (count, per_group, channels // groups), (planes, groups),
                    Matrix(taken.ref, channels, (planes_in, channels // groups)),
                    Matrix(filters.ref, 0, (per_plane, per_plane // groups)),
                    Matrix(made.ref, outputs, (planes_out, per_group)), tile, ex.IDENTITY, [],
                    grouped=groups > 1,
                )  # fmt: skip
                whole = range(begin, len(b.program.calls))
            else:
                b.program.repeat(whole)
            _transform(
                b, finish, [target.ref, made.ref, pixels, first, tiles], outputs,
                [*_steps(target), 4 * planes_out, Ref(STATUS_WORD), *further], count, planes,
            )  # fmt: skip

    return pending_product(b, shape, 1, channels_last(len(shape)), emit, lambda t: even_pixels(t) is not None)


def _steps(tensor: Tensor) -> tuple[int, int]:
    """Bytes between pixels and between images."""
    pixel = even_pixels(tensor)
    assert pixel is not None
    return 4 * pixel, 4 * tensor.strides[0]


def _transform(
    b: Lowering,
    kernel: InputTransform | OutputTransform,
    head: Sequence[int | Ref],
    channels: int,
    tail: Sequence[int | Ref],
    count: int,
    planes: int,
) -> None:
    part = channels + (PART * b.target.lanes - channels) * computed(operator.lt, count, MANY_TILES)
    parts = -(-channels // part)
    work = count * channels / b.target.lanes * planes
    b.program.call(kernel, [*head, channels, parts, part, *tail], count * parts, work, even=False)


def _chunk(b: Lowering, tiles: int, channels: int, outputs: int, planes: int, groups: int) -> int:
    """Tiles of one chunk: even chunks, of whole row tiles of the product."""
    # Every chunk reads all filters: it should not have much less of its own to read and write.
    filters = channels * outputs // groups // (channels + outputs)
    fitting = max(12, CHUNK // (4 * planes * max(channels, outputs)), filters)
    if tiles <= fitting * 3 // 2:
        return tiles
    rows = choose_tile(b.target, fitting, outputs // groups).rows
    even = -(-tiles // -(-tiles // fitting))
    return -(-even // rows) * rows


def _filters(b: Lowering, w: ValueView, axes: tuple[Axis, Axis], groups: int) -> Tensor:
    """Transformed filters as panels, made once."""
    outputs, channels = b.shape(w)[:2]
    vectors = panel_vectors(b.target, outputs // groups)
    width = vectors * b.target.lanes
    panels = -(-(outputs // groups) // width)
    taps, planes = math.prod(a.taps for a in axes), math.prod(a.planes for a in axes)

    def factors() -> Tensor:
        rows, columns = (np.array(axis.filters, np.float64) for axis in axes)
        return b.tensor_of(np.kron(rows, columns).astype(np.float32))

    def fill(source: Tensor, result: Tensor) -> None:
        by_tap = b.scratch((taps, channels, outputs), element=source.element)
        lies = source.viewed((taps, channels, outputs), (1, taps, taps * channels))
        copy(b.packing, b.target, lies, by_tap)
        b.packing.call(
            FilterTransform(vectors, source.element),
            [
                result.ref, by_tap.ref, b.once(("filters", axes), factors).ref, outputs, channels, panels,
                source.itemsize * channels * outputs, 4 * groups * panels * channels * width, groups, taps, planes,
            ],
            channels * groups * panels,
            0.5 * taps * planes * channels * outputs / b.target.lanes,
        )  # fmt: skip

    form = ("winograd", axes, vectors, groups)
    return in_form(b, w, form, (planes * groups * panels * channels * width,), fill, widens=True)
