"""Convolution by Winograd's minimal filtering: when it pays, and its calls, chunk by chunk so that tiles stay in cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.winograd import FilterTransform, InputTransform, OutputTransform
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Pending
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.products import Matrix, choose_tile, panel_vectors, pending_product, product
from onnxplug_ep_cpu.codegen.lower.taps import even_pixels, offsets
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last
from onnxplug_kernels.windows import Windows

PART = 8
"""Vectors of channels one item of a transform does."""
CHUNK = 3 << 18
"""Bytes of transformed tiles that pass through a chunk's three calls."""


def times(target: Target, shape: Ints, channels: int, moves: Windows) -> dict[int, float]:
    """The m of F(m x m, 3 x 3) -> estimated cycles on one thread, for a result of ``shape``; 0 is direct convolution, nothing
    is estimated where there is no choice."""
    plain = moves.kernel == (3, 3) and moves.strides == (1, 1) and moves.dilations == (1, 1)
    fits = plain and min(channels, shape[1]) >= target.lanes and math.prod(shape) > 0
    return {size: _time(target, shape, channels, size) for size in (0, 2, 4)} if fits else {0: 0.0}


def surplus(size: int, weights: Ints) -> int:
    """Bytes that transformed filters have more than filters."""
    return 4 * math.prod(weights[:2]) * ((size + 2) ** 2 - math.prod(weights[2:])) if size else 0


def _time(target: Target, shape: Ints, channels: int, size: int) -> float:
    """Estimated cycles on one thread: products, transforms, and filters that are too large for the cache."""
    images, outputs, height, width = shape
    planes, rows = (
        (9, images * height * width) if size == 0 else ((size + 2) ** 2, images * _tiles(height, width, size))
    )
    tile = choose_tile(target, rows, outputs)
    rounded = -(-rows // tile.rows) * tile.rows
    products = planes * rounded * outputs * channels / (2 * target.lanes) * 1.1
    filters = 4 * planes * channels * outputs
    stream = filters / 6 if filters > target.l2 // 2 else 0.0
    if size == 0:
        return max(products, stream)
    transforms = rows * (channels + outputs) / target.lanes * (planes * 2.6 + 20)
    return max(products, stream) + transforms + 2000


def _tiles(height: int, width: int, size: int) -> int:
    return -(-height // size) * -(-width // size)


def winograd(b: Lowering, source: Tensor, w: ValueView, shape: Ints, moves: Windows, size: int) -> Pending:
    """The convolution of ``source`` with filters ``w`` as a pending value."""
    images, outputs, height, width = shape
    channels = source.shape[1]
    across = -(-width // size)
    tiles = -(-height // size) * across
    side = size + 2
    squares = Windows((side, side), (size, size), (1, 1), moves.begins, (0, 0), (0, 0), (tiles // across, across))
    table = b.tensor_of(offsets(source, squares))
    pixels = b.tensor_of(_pixels(height, width, size))
    zeros = b.zeros(channels)
    filters = _filters(b, w, size)
    # Planes lie a cache line further apart than their size, lest equal elements of all meet in one cache set.
    chunk = _chunk(b, images * tiles, channels, outputs, side)
    gap = 16
    planes_in, planes_out = chunk * channels + gap, chunk * outputs + gap

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        order = channels_last(4)
        written = target if even_pixels(target) is not None else b.scratch(target.shape, order)
        further: list[int | Ref] = []
        for kind, leaf in operands:
            steps = _steps(leaf.broadcast(shape)) if kind == "full" else (0, 0)
            further += [leaf.ref, *steps]
        taken, made = b.scratch((side * side, planes_in)), b.scratch((side * side, planes_out))
        finish = OutputTransform(size, expr, tuple(kind for kind, _ in operands))
        for first in range(0, images * tiles, chunk):
            count = min(chunk, images * tiles - first)
            _transform(
                b, InputTransform(size), [taken.ref, source.ref, table.ref, zeros.ref, first, tiles], channels,
                [4 * source.strides[0], 4 * planes_in], count, side,
            )  # fmt: skip
            product(
                b, (count, outputs, channels), (1, side * side), Matrix(taken.ref, channels, (0, planes_in)),
                Matrix(filters.ref, 0, (0, filters.size // (side * side))), Matrix(made.ref, outputs, (0, planes_out)),
                choose_tile(b.target, count, outputs), ex.IDENTITY, [],
            )  # fmt: skip
            _transform(
                b, finish, [written.ref, made.ref, pixels.ref, first, tiles], outputs,
                [*_steps(written), 4 * planes_out, *further], count, side,
            )  # fmt: skip
        if written is not target:
            copy(b.program, b.target, written, target)

    return pending_product(b, shape, 1, channels_last(4), emit)


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
    side: int,
) -> None:
    part = PART * b.target.lanes
    parts = -(-channels // part)
    work = count * channels / b.target.lanes * side * side
    b.program.call(kernel, [*head, channels, parts, part, *tail], count * parts, work)


def _chunk(b: Lowering, tiles: int, channels: int, outputs: int, side: int) -> int:
    """Tiles of one chunk: even chunks, of whole row tiles of the product."""
    # Every chunk reads all filters: it should not have much less of its own to read and write.
    fitting = max(12, CHUNK // (4 * side * side * max(channels, outputs)), channels * outputs // (channels + outputs))
    if tiles <= fitting * 3 // 2:
        return tiles
    rows = choose_tile(b.target, fitting, outputs).rows
    even = -(-tiles // -(-tiles // fitting))
    return -(-even // rows) * rows


def _pixels(height: int, width: int, size: int) -> np.ndarray:
    """[tile][element] numbers of the pixels of an image that tiles write; ones outside repeat the tile's first."""
    rows, columns = (np.arange(-(-n // size) * size).reshape(-1, size) for n in (height, width))
    numbers = rows[:, None, :, None] * width + columns[None, :, None, :]
    outside = (rows[:, None, :, None] >= height) | (columns[None, :, None, :] >= width)
    numbers = np.where(outside, numbers[:, :, :1, :1], numbers)
    return np.ascontiguousarray(numbers.reshape(-1, size * size), np.int32)


def _filters(b: Lowering, w: ValueView, size: int) -> Tensor:
    """Transformed filters as panels, made once."""
    outputs, channels = b.shape(w)[:2]
    vectors = panel_vectors(b.target, outputs)
    width = vectors * b.target.lanes
    panels = -(-outputs // width)
    planes = (size + 2) ** 2

    def fill(source: Tensor, result: Tensor) -> None:
        by_tap = b.scratch((9, channels, outputs))
        lies = Tensor(source.buffer, (9, channels, outputs), (1, 9, 9 * channels), source.offset)
        copy(b.packing, b.target, lies, by_tap)
        b.packing.call(
            FilterTransform(size, vectors),
            [
                result.ref, by_tap.ref, outputs, channels, panels, 4 * channels * outputs,
                4 * panels * channels * width,
            ],
            channels * panels,
            3.0 * planes * channels * outputs / b.target.lanes,
        )  # fmt: skip

    return b.pack(w, ("winograd", size, vectors), (planes * panels * channels * width,), fill)
