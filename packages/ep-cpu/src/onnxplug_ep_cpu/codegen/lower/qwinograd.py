"""Convolution of quantized images by integer Winograd filtering, exact, chunk by chunk so that tiles stay in cache."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.bytedots import quad_form
from onnxplug_ep_cpu.codegen.kernels.qwinograd import (
    PLANES,
    POINT,
    RESULTS,
    SIDE,
    TAPS,
    QFilterTransform,
    QInputTransform,
    QOutputTransform,
)
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.products import Matrix
from onnxplug_ep_cpu.codegen.lower.qgemm import Weights, integer_product, tile_rows, tile_vectors, written
from onnxplug_ep_cpu.codegen.lower.taps import elements, even_pixels
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor
from onnxplug_kernels.windows import Windows

CHUNK = 3 << 18
"""Bytes of transformed tiles that pass through a chunk's three calls."""
LARGEST = 255 * 255
"""Magnitude of a product of 8-bit values less their zero points."""


def fits(target: Target, shape: Ints, weights: Ints, moves: Windows, groups: int, bias: np.ndarray) -> bool:
    """Whether the layer can be done so, and exactly: four times the result has to fit int32."""
    if len(shape) != 4 or groups != 1 or weights[2:] != (TAPS, TAPS) or {*moves.strides, *moves.dilations} != {1}:
        return False
    if min(shape[2:]) < RESULTS or 0 in shape or shape[1] < target.lanes or weights[1] < 2 * target.lanes:
        return False
    largest = math.prod(weights[1:]) * LARGEST + int(np.abs(bias.astype(np.int64)).max(initial=0))
    return RESULTS**2 * largest < 2**31


def surplus(weights: Ints) -> int:
    """Bytes that transformed filters have more than filters."""
    return math.prod(weights[:2]) * (2 * PLANES - TAPS * TAPS)


def direct_time(target: Target, shape: Ints, weights: Ints) -> float:
    """Cycles on one thread of products of windows laid out as rows."""
    pixels, depth = shape[0] * math.prod(shape[2:]), math.prod(weights[1:])
    return pixels * depth * (shape[1] * quad_cycles(target) + 1 / target.lanes)


def winograd_time(target: Target, shape: Ints, weights: Ints) -> float:
    """The same of products of pairs, transforms, and filters that come from memory."""
    outputs, channels = weights[:2]
    tiles = shape[0] * math.prod(-(-n // RESULTS) for n in shape[2:])
    products = PLANES * tiles * channels * outputs * pair_cycles(target)
    filters = PLANES * channels * outputs
    stream = filters / 4.0 if 2 * filters > target.l2 // 2 else 0.0
    moved = PLANES * tiles * (2.0 * channels + 4.0 * outputs) / target.lanes
    return products + stream + moved + 4000


def pair_cycles(target: Target) -> float:
    """Cycles of a product of int16 and its sum."""
    return 0.31 / target.lanes if target.is_x86 and target.name != "generic" else 1.0 / target.lanes


def quad_cycles(target: Target) -> float:
    """Cycles of a product of bytes and its sum."""
    form = quad_form(target)
    return pair_cycles(target) if form is None else (0.28 if form == "pairs" else 0.13) / target.lanes


class Winograd:
    """The layer over ``source``, channels last without gaps."""

    def __init__(
        self, b: Lowering, source: Tensor, zero: Tensor, w: ValueView, w_zero: np.ndarray | None, shape: Ints,
        moves: Windows, bias: np.ndarray,
    ) -> None:  # fmt: skip
        self._b, self._source, self._shape = b, source, shape
        starts = [np.minimum(np.arange(0, n, RESULTS), n - RESULTS) for n in shape[2:]]
        reads = [first[:, None] - begin + np.arange(SIDE) for first, begin in zip(starts, moves.begins, strict=True)]
        rows, columns = source.shape[2:]
        self._table = b.tensor_of(elements(reads, (rows, columns), (source.strides[2], source.strides[3])))
        first = starts[0][:, None] * shape[3] + starts[1]
        self._pixels = b.tensor_of(np.ascontiguousarray(first.reshape(-1), np.int32))
        self._weights = _filters(b, w, w_zero)
        added = np.zeros((PLANES, shape[1]), np.int32)
        added[POINT] = RESULTS**2 * bias
        self._added = b.tensor_of(added)
        self._padding = b.zeros(source.shape[1])
        if source.element != "int16":
            self._padding = b.scratch((source.shape[1],), element=source.element)
            write_map(b.program, b.target, ex.IDENTITY, [zero], self._padding)

    def __call__(self, expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        b, source, shape, weights = self._b, self._source, self._shape, self._weights
        channels, outputs, tiles = source.shape[1], shape[1], self._pixels.size
        finish = QOutputTransform(
            weights.vectors, expr, tuple((kind, leaf.element) for kind, leaf in operands), target.element
        )
        further: list[int | Ref] = []
        for kind, leaf in operands:
            further += [leaf.ref, *(_steps(leaf.broadcast(shape)) if kind == "full" else (0, 0))]
        total = shape[0] * tiles
        chunk = _chunk(total, channels, outputs)
        # Planes lie a cache line further apart than their size, lest equal elements of all meet in one cache set.
        taken_step, made_step = chunk * channels + 32, chunk * outputs + 16
        taken = b.scratch((PLANES, taken_step), element="int16")
        made = b.scratch((PLANES, made_step), element="int32")
        for at in range(0, total, chunk):
            count = min(chunk, total - at)
            b.program.call(
                QInputTransform(source.element),
                [
                    taken.ref, source.ref, self._table.ref, self._padding.ref, at, tiles, channels,
                    source.itemsize * source.strides[0], 2 * taken_step,
                ],
                count, count * channels * PLANES / b.target.lanes, even=False,
            )  # fmt: skip
            integer_product(
                b, (count, outputs), (1, PLANES), Matrix(taken.ref, channels, (0, taken_step)), weights,
                Matrix(made.ref, outputs, (0, made_step)), "int32", ex.IDENTITY, [], self._added,
                tile_rows(b.target, count, weights.vectors, b.prepared.varies),
            )  # fmt: skip
            b.program.call(
                finish,
                [
                    target.ref, made.ref, self._pixels.ref, at, tiles, outputs, shape[3], *_steps(target), 4 * made_step,
                    *further,
                ],
                count, count * outputs * PLANES / b.target.lanes, even=False,
            )  # fmt: skip


def _steps(tensor: Tensor) -> tuple[int, int]:
    """Bytes between pixels and between images."""
    pixel = even_pixels(tensor)
    assert pixel is not None, "rows of a result are evenly spaced"
    return tensor.itemsize * pixel, tensor.itemsize * tensor.strides[0]


def _chunk(tiles: int, channels: int, outputs: int) -> int:
    """Tiles of one chunk; every chunk reads all filters, so it should not have much less of its own to read and write."""
    fitting = max(12, CHUNK // (PLANES * (2 * channels + 4 * outputs)), channels * outputs // (channels + outputs))
    return tiles if tiles <= fitting * 3 // 2 else -(-tiles // -(-tiles // fitting))


def _filters(b: Lowering, w: ValueView, zero: np.ndarray | None) -> Weights:
    """Transformed filters as panels, made once."""
    outputs, channels = b.shape(w)[:2]
    vectors = tile_vectors(b.target, outputs)
    width, pairs = vectors * b.target.lanes, -(-channels // 2)
    panels = -(-outputs // width)
    panel = 4 * pairs * width
    points = (
        np.zeros(outputs, np.int16) if zero is None else np.broadcast_to(zero.reshape(-1), outputs).astype(np.int16)
    )

    def fill(source: Tensor, result: Tensor) -> None:
        args: list[int | Ref] = [
            result.ref, source.ref, b.tensor_of(points).ref, outputs, channels, width, panel, panel * panels,
        ]  # fmt: skip
        work = 2.0 * PLANES * channels * panels * width
        b.packing.call(QFilterTransform(b.element(w)), args, panels * width, work)

    form = ("integer winograd", vectors, written(zero))
    packed = in_form(b, w, form, (PLANES * panels * panel // 2,), fill, "int16")
    return Weights(packed, panel * panels, 1, pairs, vectors)
