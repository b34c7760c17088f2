"""Convolution over channels-last data, as products with gathered rows."""

from __future__ import annotations

import math
from dataclasses import replace

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.activation import fused_activation
from onnxplug_ep_cpu.codegen.lower.bands import after_bands, source_rows
from onnxplug_ep_cpu.codegen.lower.choice import Algorithm, Layer, candidates, quickest, surplus
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.depthwise import depthwise
from onnxplug_ep_cpu.codegen.lower.dots import dots, fed_by_channel, packed_rows, suits
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.norm_affine import grown
from onnxplug_ep_cpu.codegen.lower.packing import packed_panels
from onnxplug_ep_cpu.codegen.lower.pad import part
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.pending_products import anchored, as_pixels, pending_product, pixel_operand
from onnxplug_ep_cpu.codegen.lower.plane_conv import by_planes, stays
from onnxplug_ep_cpu.codegen.lower.products import Gather, Matrix, product
from onnxplug_ep_cpu.codegen.lower.sliding import FEW_CHANNELS, sliding
from onnxplug_ep_cpu.codegen.lower.support import floats, rank, require
from onnxplug_ep_cpu.codegen.lower.taps import Offsets, blind, even_pixels, offsets, seeing, torn, window
from onnxplug_ep_cpu.codegen.lower.tiles import choose_tile, deep_vectors, split, varying_tile
from onnxplug_ep_cpu.codegen.lower.winograd import winograd
from onnxplug_ep_cpu.codegen.recipes import decided
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last, dense_strides
from onnxplug_ep_cpu.codegen.tuning import fastest
from onnxplug_kernels.windows import Windows

THIN = 16
"""Input channels up to which a tap's row is so short that padding is better copied than met in a table."""


def supported(node: NodeView) -> str | None:
    if (reason := floats(node)) is not None:
        return reason
    return None if rank(node.inputs[0]) in (3, 4, 5) else "the rank is not known"


@lowering("Conv", supports=supported)
def conv(b: Lowering, node: NodeView) -> None:
    """Convolution by the algorithm that is expected to be fastest; filters that are computed are packed in each run."""
    (y,) = node.outputs
    assert y is not None
    b.pend(y, _convolved(b, node))


def _fused_supports(node: NodeView) -> str | None:
    return supported(node) or (None if _activation(node) is not None else "an unknown activation")


def _activation(node: NodeView) -> ex.Expr | None:
    return fused_activation(node.attributes.get("activation", ""), node.attributes.get("activation_params", ()))


@lowering("FusedConv", supports=_fused_supports, domain="com.microsoft")
def fused_conv(b: Lowering, node: NodeView) -> None:
    """Convolution, plus a fourth operand, and an activation of the sum."""
    (y,) = node.outputs
    assert y is not None
    pending = _convolved(b, node)
    z = node.inputs[3] if len(node.inputs) > 3 else None
    if z is not None:
        require(None if b.shape(z) == b.shape(y) else "what is added has another shape")
        pending = grown(b, pending, (("leaf", 0), ("leaf", 1), ("add", 0, 1)), [b.read(z)])
    activation = _activation(node)
    assert activation is not None
    b.pend(y, grown(b, pending, activation, []))


def _convolved(b: Lowering, node: NodeView) -> Pending:
    """Filters over the first operand, plus the bias."""
    (x, w, *rest), (y,) = node.inputs, node.outputs
    assert x is not None and w is not None and y is not None
    weights = b.shape(w)
    shape, groups = b.shape(y), node.attributes.get("group", 1)
    moves = window(node, b.shape(x)[2:], weights[2:])
    held, padded = b.pending(x), None
    if isinstance(held, Pending) and held.padding is not None and held.expr == ex.IDENTITY:
        padded, before = held.padding
        moves = replace(moves, begins=tuple(p + q for p, q in zip(moves.begins, before[2:], strict=True)))
    layer = Layer(shape, weights, moves, groups, b.varies(y))
    if stays(b, held, y):
        assert isinstance(held, Tensor)
        planes = by_planes(b, held, w, layer)
        if planes is not None:
            return biased(b, planes, rest[0] if rest else None)
    constant = w.name in b.prepared.constant
    given = b.shape(x) if padded is None else padded.shape
    algorithm = chosen(b, node, layer, given, w, w)
    pointwise = algorithm.kind == "direct" and constant and _is_pointwise(b, layer, given)
    pending = _near(b, held, w, layer, algorithm, pointwise) if isinstance(held, Pending) and constant else None
    if pending is not None:
        return biased(b, pending, rest[0] if rest else None)
    # A few inputs that all lanes share may lie anywhere.
    anywhere = algorithm.kind == "sliding" and not algorithm.spread and weights[1] <= FEW_CHANNELS
    source = padded or (b.read(x) if anywhere else b.channels_last(x))
    pending = convolved_by(b, source, w, layer, algorithm)
    if pointwise:
        pending.banded = lambda first, stop: _rows(b, part(source, 2, first, stop), w, layer, algorithm)
    return biased(b, pending, rest[0] if rest else None)


def chosen(b: Lowering, node: NodeView, layer: Layer, given: Ints, stored: ValueView, w: ValueView) -> Algorithm:
    """The algorithm for an image of shape ``given`` and filters ``w``, which are ``stored`` in the model in whatever order."""
    constant, choices = stored.name in b.prepared.constant, b.prepared.choices
    may_err = constant and b.prepared.settings.winograd and not blind(layer.moves, given[2:])
    grows = may_err and choices.may_grow(stored.name)
    algorithm, count = _quickest(b, layer, given[2:], grows)
    if count > 1 and constant and b.prepared.settings.tune:
        times = candidates(b.target, layer, grows)
        algorithm = fastest(
            b, ("Conv", given, layer), given, times, lambda b, source, a: convolved_by(b, source, w, layer, a)
        )
    if count > 1:
        choices.note(node.name, str(algorithm), stored.name, surplus(algorithm, layer))
    return algorithm


def _quickest(b: Lowering, layer: Layer, spatial: Ints, winograd: bool) -> tuple[Algorithm, int]:
    """The algorithm of least estimated time for an image of these sizes, and among how many it was chosen."""
    if layer.groups == 1 and seeing(layer.moves, spatial).kernel != layer.moves.kernel:
        return Algorithm("direct"), 1  # it alone leaves out taps that see nothing
    return quickest(b.target, layer, winograd)


def _near(
    b: Lowering, held: Pending, w: ValueView, layer: Layer, algorithm: Algorithm, pointwise: bool
) -> Pending | None:
    """The layer over what is made band by band for it; None where that brings nothing."""
    if pointwise:
        bands = after_bands(b, held, lambda rows: _rows(b, rows, w, layer, algorithm))
        return None if bands is None else anchored(layer.shape, 1, channels_last(4), bands, _is_even)
    if algorithm.kind != "depthwise" or layer.weights[0] != layer.groups:
        return None
    band = source_rows(b, held, layer.moves)
    return None if band is None else depthwise(b, held, w, layer, band)


def _is_pointwise(b: Lowering, layer: Layer, given: Ints) -> bool:
    """Whether the layer is a product of each pixel's channels, with the pixel where it was."""
    alone = layer.groups == 1 and layer.taps == 1 and len(given) == 4
    stays = layer.shape[2:] == given[2:] and not any(layer.moves.begins) and set(layer.moves.strides) == {1}
    return alone and stays and not suits(b, layer.weights[0], 1, layer.weights[1])


def _rows(b: Lowering, rows: Tensor, w: ValueView, layer: Layer, algorithm: Algorithm) -> Pending:
    """A pointwise layer over some rows of an image."""
    moves = replace(layer.moves, output=rows.shape[2:])
    return convolved_by(b, rows, w, replace(layer, shape=(*layer.shape[:2], *rows.shape[2:]), moves=moves), algorithm)


def convolved_by(b: Lowering, source: Tensor, w: ValueView, layer: Layer, algorithm: Algorithm) -> Pending:
    """The layer by one algorithm."""
    shape, weights, moves, groups = layer.shape, layer.weights, layer.moves, layer.groups
    if algorithm.kind == "depthwise":
        return depthwise(b, source, w, layer)
    if algorithm.kind == "sliding":
        return sliding(b, source, w, weights, shape, moves, groups, algorithm.spread, layer.varies)
    if algorithm.axes is not None:
        return winograd(b, source, w, shape, moves, algorithm.axes, groups)
    if groups == 1 and weights[1] <= THIN and moves.kernel[-1] > 1 and moves.dilations[-1] == 1:
        source, moves = _widened(b, source, moves)
    if suits(b, weights[0], groups, weights[1] * layer.taps):
        return _dotted(b, source, w, weights, shape, moves)
    return _direct(b, source, w, layer, moves)


def _dotted(b: Lowering, source: Tensor, w: ValueView, weights: Ints, shape: Ints, moves: Windows) -> Pending:
    """As ``_direct``, for a few results of each pixel."""
    begins, moves = moves.begins, seeing(moves, source.shape[2:])
    skipped, steps = _skipped(begins, moves), dense_strides(weights[2:])
    outputs, channels, area = *weights[:2], math.prod(weights[2:])
    together = _joined(source, moves)
    table = offsets(source, together or moves)
    packed = packed_rows(
        b, w, (moves.kernel, skipped), (outputs, *moves.kernel, channels), (channels * area, *steps, area),
        sum(tap * step for tap, step in zip(skipped, steps, strict=True)), together is not None,
    )  # fmt: skip
    reads = table.ref(b), table.shape[1], channels * (moves.kernel[-1] if together else 1)

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        dots(b, source, packed, *reads, target, expr, operands)

    return fed_by_channel(pending_product(b, shape, 1, tuple(range(len(shape))), emit))


def _skipped(begins: Ints, moves: Windows) -> Ints:
    """How many taps of each axis come before the first that sees anything."""
    return tuple((p - q) // d for p, q, d in zip(begins, moves.begins, moves.dilations, strict=True))


def _widened(b: Lowering, source: Tensor, moves: Windows) -> tuple[Tensor, Windows]:
    """The source with the zeros in memory that windows see at its left and right."""
    last, size, before = len(source.shape) - 1, source.shape[-1], moves.begins[-1]
    after = max(0, (moves.output[-1] - 1) * moves.strides[-1] + moves.kernel[-1] - before - size)
    if before <= 0 == after or 0 in source.shape:
        return source, moves
    before = max(before, 0)
    wide = b.scratch((*source.shape[:-1], before + size + after), channels_last(last + 1))
    nothing = b.zeros(1).viewed((1,), (0,))
    for start, stop in ((0, before), (before + size, before + size + after)):
        write_map(b.program, b.target, ex.IDENTITY, [nothing], part(wide, last, start, stop))
    copy(b.program, b.target, source, part(wide, last, before, before + size))
    return wide, replace(moves, begins=(*moves.begins[:-1], min(moves.begins[-1], 0)))


def biased(b: Lowering, pending: Pending, bias: ValueView | None) -> Pending:
    """A product by channel (dimension 1) plus a bias."""
    if bias is None:
        return pending
    given, ones = b.dense(bias), len(pending.shape) - 2
    leaf = Tensor(given.buffer, (pending.shape[1], *[1] * ones), (1, *[0] * ones), given.offset)
    return grown(b, pending, (("leaf", 0), ("leaf", 1), ("add", 0, 1)), [leaf])


def _direct(b: Lowering, source: Tensor, w: ValueView, layer: Layer, moves: Windows) -> Pending:
    """For every tap the row of a pixel's channels; taps across whose channels lie behind each other count as one, those that see
    nothing but padding are left out."""
    shape, weights, groups = layer.shape, layer.weights, layer.groups
    images, outputs, channels = shape[0], shape[1] // groups, weights[1]
    begins, moves = moves.begins, seeing(moves, source.shape[2:])
    pixels, area = math.prod(shape[2:]), math.prod(weights[2:])
    depth, lanes = channels * area, b.target.lanes
    vectors, last, lapped = (
        split(b.target, outputs, depth) if groups == 1 else (deep_vectors(b.target, outputs, depth), 0, False)
    )
    skipped = _skipped(begins, moves)
    steps = dense_strides(weights[2:])
    packed = packed_panels(
        b, w, ("conv", vectors, last, groups, moves.kernel, skipped), (groups, outputs, *moves.kernel, channels),
        (outputs * depth, depth, *steps, area), vectors * lanes,
        sum(tap * step for tap, step in zip(skipped, steps, strict=True)), last=last * lanes, lapped=lapped,
    )  # fmt: skip
    step, fresh = packed.size // groups, channels * math.prod(moves.strides)
    taps, channels, row, table = _reads(source, moves, groups == 1, channels)
    gather = None
    if table is None:
        tile = varying_tile(b.target, pixels, outputs, vectors, layer.varies, whole=True)
    else:
        tile = choose_tile(b.target, pixels, outputs, vectors, True, layer.varies)
        gather = Gather(taps, table.by_tile(b, tile.rows), b.zeros(channels).ref, fresh)
    tile = replace(tile, last=last, lapped=lapped)

    def emit(expr: ex.Expr, operands: list[tuple[str, Tensor]], target: Tensor) -> None:
        found = [(kind, pixel_operand(kind, leaf, shape, outputs)) for kind, leaf in operands]
        product(
            b, (pixels, outputs, channels), (images, groups),
            Matrix(source.ref, row, (source.strides[0], weights[1] * source.strides[1])), Matrix(packed.ref, 0, (0, step)),
            as_pixels(target, outputs), tile, expr, found, gather=gather, grouped=groups > 1,
        )  # fmt: skip

    return pending_product(b, shape, 1, channels_last(len(shape)), emit, _is_even)


def _is_even(tensor: Tensor) -> bool:
    return even_pixels(tensor) is not None


def _reads(source: Tensor, moves: Windows, all_channels: bool, channels: int) -> tuple[int, int, int, Offsets | None]:
    """How many places a pixel's sum reads, how many channels at each, and where: the one step between them, or a table of [pixel,
    place] offsets."""
    taps = math.prod(moves.kernel)
    if taps == 1 and not any(moves.begins) and moves.output == source.shape[2:]:
        step = even_pixels(source) if all(stride == 1 for stride in moves.strides) else None
        if step is not None:
            return 1, channels, step, None
    together = _joined(source, moves) if all_channels else None
    if together is not None:
        taps, channels, moves = taps // moves.kernel[-1], channels * moves.kernel[-1], together
    rows = offsets(source, moves)
    if taps == 1 and (stride := rows.even()) is not None:
        return 1, channels, stride, None
    return taps, channels, 0, rows


def _joined(source: Tensor, moves: Windows) -> Windows | None:
    """The windows with one tap across in place of all, if what these read lies behind each other or is all padding."""
    if moves.kernel[-1] == 1 or moves.dilations[-1] * source.strides[-1] != source.shape[1]:
        return None
    if decided(torn, moves, len(moves.kernel) - 1, source.shape[-1]):
        return None
    return replace(moves, kernel=(*moves.kernel[:-1], 1))
