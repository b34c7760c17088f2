"""Convolution of quantized tensors over channels-last data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.qdepthwise import QDepthwise
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.declared import image_shape, pend_image, read_image
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pending_products import as_pixels, pixel_operand
from onnxplug_ep_cpu.codegen.lower.products import Gather, Matrix
from onnxplug_ep_cpu.codegen.lower.qdot import FEW_CHANNELS, gathered, quad_product, readable, unfolded
from onnxplug_ep_cpu.codegen.lower.qgemm import (
    EIGHT_BITS,
    integer_product,
    pack,
    pending_integer,
    remaining_zero,
    scalar,
    tile_rows,
    widened,
)
from onnxplug_ep_cpu.codegen.lower.qsliding import slides, sliding
from onnxplug_ep_cpu.codegen.lower.quads import QuadWeights, quad_weights
from onnxplug_ep_cpu.codegen.lower.quantized import (
    MS,
    constant_numbers,
    is_depthwise,
    parameters,
    quantized_types,
    single,
)
from onnxplug_ep_cpu.codegen.lower.qwinograd import Winograd, direct_time, fits, surplus, winograd_time
from onnxplug_ep_cpu.codegen.lower.requantize import scaled
from onnxplug_ep_cpu.codegen.lower.support import number, rank, typed
from onnxplug_ep_cpu.codegen.lower.taps import even_pixels, offsets, window
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last, follows
from onnxplug_ep_cpu.codegen.tuning import fastest
from onnxplug_kernels.windows import Windows

EXACT = 2**24 // 255**2
"""Taps whose sum of 8-bit products float32 holds exactly."""
DIRECT, WINOGRAD = "direct", "Winograd F(2x2, 3x3)"
"""Algorithms."""
PIXELS = 32
"""Output pixels of one item of a depthwise convolution."""

Emit = Callable[[ex.Expr, list[tuple[str, Tensor]], Tensor], None]


def convolution(
    b: Lowering,
    node: NodeView,
    shape: Ints,
    x: ValueView,
    x_zero: Tensor,
    w: ValueView,
    w_zero: np.ndarray | None,
    bias: np.ndarray | None,
) -> Pending:
    """Sums of (x - zero point) (w - zero points) + bias in int32, pending."""
    weights, groups = b.shape(w), node.attributes.get("group", 1)
    given = image_shape(b, node, x)
    moves = window(node, given[2:], weights[2:])
    added = np.zeros(shape[1], np.int32) if bias is None else bias
    varies = any(v is not None and b.varies(v) for v in node.outputs)
    if is_depthwise(node, w) and moves_taps(moves) <= EXACT:
        assert w.constant is not None
        filters = _less_zero(w.constant, w_zero).reshape(shape[1], -1).T
        image = read_image(b, node, x)
        if x_zero.buffer.array is None:
            image = widened(b, image, x_zero)
        return pending_sums(b, shape, depthwise(b, shape, image, x_zero, moves, filters, added, varies))

    order = channels_last(len(shape))

    def by(b: Lowering, source: Tensor, algorithm: str) -> Pending:
        if algorithm == WINOGRAD:
            image = _gapless(b, source, order)
            return pending_sums(b, shape, Winograd(b, image, x_zero, w, w_zero, shape, moves, added))
        held = b.tensor_of(np.ascontiguousarray(added, np.int32))
        quads = _quad_weights(b, groups, w, w_zero) if 0 not in shape else None
        if quads is not None:
            return pending_sums(b, shape, _quad_product(b, shape, source, x_zero, quads, moves, held, varies))
        wide = widened(b, _gapless(b, source, order), x_zero)
        return pending_sums(b, shape, _product(b, groups, shape, wide, w, w_zero, moves, held, varies))

    # Windows of few channels are gathered from wherever the image lies.
    few = moves_taps(moves) > 1 and given[1] < FEW_CHANNELS
    source = read_image(b, node, x, dense=not few)
    times = {DIRECT: direct_time(b.target, shape, weights)}
    grows = b.prepared.settings.winograd and b.prepared.choices.may_grow(w.name)
    if grows and fits(b.target, shape, weights, moves, groups, added):
        times[WINOGRAD] = winograd_time(b.target, shape, weights)
    layer = ("integer Conv", source.element, source.shape, shape, weights, moves, groups)
    algorithm = fastest(b, layer, source.shape, times, by, source.element)
    if len(times) > 1:
        b.prepared.choices.note(node.name, algorithm, w.name, surplus(weights) if algorithm == WINOGRAD else 0)
    return by(b, source, algorithm)


def _gapless(b: Lowering, source: Tensor, order: Ints) -> Tensor:
    return source if follows(source.shape, source.strides, order) else b.copied(source, order)


def pending_sums(b: Lowering, shape: Ints, emit: Emit) -> Pending:
    return pending_integer(b, shape, 1, channels_last(len(shape)), emit, lambda t: even_pixels(t) is not None)


def moves_taps(moves: Windows) -> int:
    """Taps of a window."""
    return math.prod(moves.kernel)


def _less_zero(weights: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
    points = 0 if zero is None else zero.astype(np.float32).reshape(-1, *[1] * (weights.ndim - 1))
    return weights.astype(np.float32) - points


def _quad_weights(b: Lowering, groups: int, w: ValueView, w_zero: np.ndarray | None) -> QuadWeights | None:
    """The filters as a matrix [tap and channel, output], for a kernel of bytes; not of a convolution in groups."""
    outputs, channels, *kernel = b.shape(w)
    if groups != 1:
        return None
    sizes = channels * math.prod(kernel), outputs
    taps = math.prod(kernel)
    return quad_weights(b, w, "taps", sizes, lambda _: (channels, 1, taps, channels * taps), w_zero)


def _quad_product(
    b: Lowering,
    shape: Ints,
    source: Tensor,
    x_zero: Tensor,
    weights: QuadWeights,
    moves: Windows,
    bias: Tensor,
    varies: bool,
) -> Emit:
    row, gather = None, None
    zero = x_zero.viewed((1,), (1,))
    if moves_taps(moves) == 1:
        row = offsets(source, moves).even()
    if row is not None:
        a = (readable(b, source, weights.k), row, source.strides[0])
    elif (gather := gathered(b, source, zero, weights, moves, varies)) is not None:
        a = (source, 0, source.strides[0])
    else:
        a = unfolded(b, source, zero, moves)
    pixels, outputs = math.prod(shape[2:]), shape[1]

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        found = [(kind, leaf, pixel_operand(kind, leaf, shape, outputs)) for kind, leaf in operands]
        c = as_pixels(target, outputs)
        quad_product(b, pixels, shape[0], a, zero, weights, c, target.element, expr, found, bias, varies, gather)

    return emit


def _product(
    b: Lowering,
    groups: int,
    shape: Ints,
    source: Tensor,
    w: ValueView,
    w_zero: np.ndarray | None,
    moves: Windows,
    bias: Tensor,
    varies: bool,
) -> Emit:
    channels = b.shape(w)[1]
    outputs, pixels = shape[1] // groups, math.prod(shape[2:])

    def by_tap(array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array.reshape(groups, outputs, channels, -1), (3, 2, 1), (1, 2, 3))

    weights = pack(b, w, groups, by_tap, w_zero, outputs)
    rows = tile_rows(b.target, pixels, weights.vectors, varies) if pixels else 1
    table = offsets(source, moves)
    gather, row = None, table.even() if moves_taps(moves) == 1 else None
    if row is None:
        zeros = b.tensor_of(np.zeros(channels + 2, np.int16))
        fresh = channels * math.prod(moves.strides)
        gather = Gather(table.shape[1], table.by_tile(b, rows), zeros.ref, fresh)

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        if 0 in shape:
            return
        found = [(kind, leaf, pixel_operand(kind, leaf, shape, outputs)) for kind, leaf in operands]
        integer_product(
            b, (pixels, outputs), (shape[0], groups), Matrix(source.ref, row or 0, (source.strides[0], channels)), weights,
            as_pixels(target, outputs), target.element, expr, found, bias, rows, gather,
        )  # fmt: skip

    return emit


def depthwise(
    b: Lowering,
    shape: Ints,
    source: Tensor,
    x_zero: Tensor,
    moves: Windows,
    weights: np.ndarray,
    bias: np.ndarray,
    varies: bool,
) -> Emit:
    """Sums of a window of each channel; ``weights`` are [tap, channel] float32."""
    if slides(b.target, shape, moves):
        return sliding(b, shape, source, x_zero, moves, weights, bias, varies)
    table = offsets(source, moves)
    zero = remaining_zero(source, x_zero)
    padding = b.tensor_of(np.full(shape[1], zero, source.element))
    factors = constant_numbers(b, weights)
    held = b.tensor_of((bias - zero * weights.sum(axis=0, dtype=np.float64)).astype(np.int32))
    pixels = math.prod(shape[2:])

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        if 0 in shape:
            return
        kernel = QDepthwise(
            source.element, expr, tuple((kind, leaf.element) for kind, leaf in operands), target.element
        )
        blocks, to = -(-pixels // PIXELS), as_pixels(target, shape[1])
        unit = target.itemsize
        args: list[int | Ref] = [
            source.ref, factors.ref, target.ref, pixels, shape[1], PIXELS, blocks, source.itemsize * source.strides[0],
            unit * to.batch[0], unit * to.row, table.ref(b), table.shape[1], padding.ref, held.ref,
        ]  # fmt: skip
        for kind, leaf in operands:
            found = pixel_operand(kind, leaf, shape, shape[1])
            args += [found.ref, leaf.itemsize * found.row, leaf.itemsize * found.batch[0], 0]
        work = shape[0] * pixels * shape[1] * (1.0 + 1.2 * table.shape[1]) / b.target.lanes
        b.program.call(kernel, args, shape[0] * blocks, work)

    return emit


def along_channels(vector: Tensor, dims: int) -> Tensor:
    """A vector of channels, shaped to broadcast against an image."""
    return replace(vector, shape=(vector.size, *[1] * (dims - 2)), strides=(1, *[0] * (dims - 2)))


# ---- operators


def weights_support(node: NodeView, position: int) -> str | None:
    """Why a convolution's weights are not generated, or None."""
    w = node.inputs[position]
    if w is None or w.constant is None:
        return "filters that are computed are not generated"
    return None if rank(node.inputs[0]) in (3, 4, 5) else "the rank is not one of an image"


def _qlinear_supports(node: NodeView) -> str | None:
    reason = quantized_types(node, 0, 3) or typed(node.outputs[0], EIGHT_BITS) or parameters(node, 1, 2, 6, 7)
    reason = reason or parameters(node, 4, 5, 8, arrays=(4, 5, 8))
    return reason or weights_support(node, 3)


@lowering("QLinearConv", supports=_qlinear_supports)
@lowering("QLinearConv", domain=MS, supports=_qlinear_supports)
def qlinear_conv(b: Lowering, node: NodeView) -> None:
    """Convolution, quantized again."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = [*node.inputs, None][:9]
    (y,) = node.outputs
    assert x is not None and w is not None and y is not None and w_scale is not None and w_scale.constant is not None
    shape = image_shape(b, node, y)
    pending = convolution(b, node, shape, x, scalar(b, x_zero, b.element(x)), w, b.constant(w_zero), b.constant(bias))
    scale = np.float32(number(x_scale) or 0) * w_scale.constant.astype(np.float32) / np.float32(number(y_scale) or 0)
    pend_image(b, node, y, scaled(b, y, pending, scale, y_zero, lambda vector: along_channels(vector, len(shape))))


def _integer_supports(node: NodeView) -> str | None:
    x_zero = node.inputs[2] if len(node.inputs) > 2 else None
    return quantized_types(node, 0, 1) or weights_support(node, 1) or parameters(node, 3, arrays=(3,)) or single(x_zero)


@lowering("ConvInteger", supports=_integer_supports)
def conv_integer(b: Lowering, node: NodeView) -> None:
    """Convolution in int32."""
    (x, w, x_zero, w_zero), (y,) = [*node.inputs, None, None][:4], node.outputs
    assert x is not None and w is not None and y is not None
    zero = scalar(b, x_zero, b.element(x))
    b.pend(y, convolution(b, node, b.shape(y), x, zero, w, b.constant(w_zero), None))
