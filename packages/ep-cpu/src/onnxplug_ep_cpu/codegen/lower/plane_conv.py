"""Convolution of images that lie plane by plane, as they enter and leave a graph, without turning them channels-last: where that costs
less than what the turning spares."""

from __future__ import annotations

import math
from dataclasses import replace

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.fuse import ELEMENTWISE
from onnxplug_ep_cpu.codegen.kernels.plane_filters import PlaneFilters
from onnxplug_ep_cpu.codegen.lower.choice import Layer
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.depthwise import ORDINARY
from onnxplug_ep_cpu.codegen.lower.fitting import fitting
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.matrices import product_of_tensors
from onnxplug_ep_cpu.codegen.lower.packing import in_form
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor

LEAST_PIXELS = 64
"""Of an image whose channels are multiplied plane by plane: the right operand of a product has so many columns."""
WIDEST = 63
"""Taps across that the kernel unrolls."""
STRIDES = 8
"""Largest step across that vectors are shuffled for."""
MOST_PRODUCTS = 400
"""Products of a block that are written out."""
SUMS = 4
"""Vectors that are made together."""
HELD = 8192
"""Floats of what is copied for a block: half of a first-level cache."""
LARGEST = 1 << 16
"""Floats of it at most, as it lies on a thread's stack."""
LONGEST = 1024
"""Columns of a part of a row."""
TURNING = 6.0
"""Cycles that turning a vector of the source and one of the result take."""


def stays(b: Lowering, source: Tensor | Pending, y: ValueView) -> bool:
    """Whether the source lies plane by plane and the result leaves the region like that, as it is or after element-wise work that the
    convolution's kernel takes over."""
    if not isinstance(source, Tensor) or source.element != "float32" or 0 in source.shape:
        return False
    if source.strides[-1] != 1 or (source.is_channels_last and source.shape[1] > 1):
        return False
    while y.name not in b.outputs:
        readers = y.consumers
        if len(readers) != 1 or readers[0].domain or readers[0].op_type not in ELEMENTWISE:
            return False
        (made,) = readers[0].outputs
        others = (v for v in readers[0].inputs if v is not None and v is not y)
        if made is None or not all(b.is_constant(v) for v in others):
            return False
        y = made
    return True


def by_planes(b: Lowering, source: Tensor, w: ValueView, layer: Layer) -> Pending | None:
    """The layer as a pending value whose channels are planes; None where other ways cost less."""
    if len(layer.shape) > 4 or 0 in layer.shape or w.name not in b.prepared.constant:
        return None
    if _is_product(source, layer):
        return _product(b, source, w, layer)
    return _filters(b, source, w, layer) if _is_filtered(b.target, source, layer) else None


# ---- one tap


def _is_product(source: Tensor, layer: Layer) -> bool:
    shape, moves = layer.shape, layer.moves
    alone = layer.groups == 1 and layer.taps == 1 and shape[2:] == source.shape[2:]
    still = set(moves.strides) == {1} and not any(moves.begins)
    return alone and still and layer.weights[1] > 1 and (layer.varies or math.prod(shape[2:]) >= LEAST_PIXELS)


def _product(b: Lowering, source: Tensor, w: ValueView, layer: Layer) -> Pending | None:
    """Filters times the pixels of all channels."""
    shape, (outputs, channels) = layer.shape, layer.weights[:2]
    right = source.reshaped((shape[0], channels, math.prod(shape[2:])))
    if right is None:
        return None
    left = _rows(b, w, outputs * channels).viewed((outputs, channels), (channels, 1))
    flat = (*shape[:2], right.shape[2])
    made = product_of_tensors(b, flat, left, right)
    takes, anchor = made.takes, made.anchor
    assert takes is not None and anchor is not None
    kept, taken = anchor, takes

    def view(tensor: Tensor) -> Tensor | None:
        fits = len(tensor.shape) <= len(shape) and tensor.element == "float32"
        return tensor.broadcast(shape).reshaped(flat) if fits else None

    def fits(leaf: Tensor) -> bool:
        found = view(leaf)
        return leaf.size == 1 or (found is not None and taken(found))

    def emit(expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        with fitting(b, target, tuple(range(len(shape))), lambda t: view(t) is not None) as written:
            to = view(written)
            assert to is not None
            kept(expr, [leaf if leaf.size == 1 else found for leaf in leaves if (found := view(leaf)) is not None], to)

    return replace(made, shape=shape, anchor=emit, takes=fits, order=tuple(range(len(shape))))


def _rows(b: Lowering, w: ValueView, size: int) -> Tensor:
    """Filters as they are, each a row."""

    def fill(given: Tensor, result: Tensor) -> None:
        copy(b.packing, b.target, given.viewed((size,), (1,)), result)

    return in_form(b, w, "rows", (size,), fill)


# ---- one channel


def _is_filtered(target: Target, source: Tensor, layer: Layer) -> bool:
    """Whether each result has one input channel, and rows fill vectors well enough."""
    rows, columns = ORDINARY if layer.varies else (1, *layer.shape[2:])[-2:]
    height, width = (1, *layer.weights[2:])[-2:]
    if layer.weights[1] != 1 or width > WIDEST or height * width > MOST_PRODUCTS or layer.taps == 1:
        return False
    if layer.moves.strides[-1] > STRIDES or layer.moves.begins[-1] < 0 or source.shape[1] != layer.groups:
        return False
    taps = height * width / 2
    planes = rows * -(-columns // target.lanes) * (taps + 5)
    return planes < rows * columns / target.lanes * (taps + 2 + TURNING)


def _filters(b: Lowering, source: Tensor, w: ValueView, layer: Layer) -> Pending | None:
    shape, moves, lanes = layer.shape, layer.moves, b.target.lanes
    height, width = (1, *layer.weights[2:])[-2:]
    strides, dilations, begins = (
        (one, *many)[-2:] for one, many in ((1, moves.strides), (1, moves.dilations), (0, moves.begins))
    )
    rows, columns = (1, *shape[2:])[-2:]
    parts = -(-columns // LONGEST)
    part = -(-columns // parts)
    together, vectors = _tile(rows, part, lanes, height, width)
    span = (width - 1) * dilations[1] + 1
    reach = (part - 1) * strides[1] + span
    room = -(-(reach // strides[1] + 3 * lanes + 2) // lanes) * lanes + lanes * vectors
    deep = (height - 1) * dilations[0] + 1
    fitting_rows = (HELD // (room * strides[1]) - deep) // strides[0] + 1
    block = min(rows, max(together, fitting_rows // together * together))
    lines = (block - 1) * strides[0] + deep
    if lines * room * strides[1] > LARGEST:
        return None
    packed = _rows(b, w, math.prod(layer.weights))
    blocks = -(-rows // block)
    tall, wide = (1, *source.shape[2:])[-2:]
    source_image, source_plane, source_row = _steps(source)
    groups = layer.groups

    def kind(leaf: Tensor) -> str | None:
        if leaf.element != "float32" or len(leaf.shape) > len(shape):
            return None
        if leaf.size == 1:
            return "scalar"
        view = leaf.broadcast(shape)
        moving = [d for d, n in enumerate(shape) if n != 1 and view.strides[d] != 0]
        if moving == [1]:
            return "channel"
        return "full" if view.strides[-1] == 1 and len(moving) == sum(n != 1 for n in shape) else None

    def emit(expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        with fitting(b, target, tuple(range(len(shape))), lambda t: t.strides[-1] == 1 or t.shape[-1] == 1) as written:
            image, plane, row = _steps(written)
            args: list[int | Ref] = [
                written.ref, source.ref, packed.ref, groups, shape[1] // groups, parts, part, blocks, block, rows, columns,
                tall, wide, begins[0], begins[1], lines, reach, room, row, plane, image,
                source_row, source_plane, source_image,
            ]  # fmt: skip
            for leaf in leaves:
                of_image, of_plane, of_row = _steps(leaf.broadcast(shape))
                args += [leaf.ref, of_row, of_plane, of_image]
            kinds = tuple(kind(leaf) or "" for leaf in leaves)
            kernel = PlaneFilters(
                height,
                width,
                (strides[0], strides[1]),
                (dilations[0], dilations[1]),
                begins[1] % strides[1],
                together,
                vectors,
                part < lanes,
                expr,
                kinds,
            )
            work = math.prod(shape[:2]) * rows * -(-columns // lanes) * (height * width / 2 + 5)
            b.program.call(kernel, args, shape[0] * groups * blocks * parts, work, even=False)

    return Pending(shape, ex.IDENTITY, [None], emit, lambda leaf: kind(leaf) is not None, tuple(range(len(shape))))


def _tile(rows: int, columns: int, lanes: int, height: int, width: int) -> tuple[int, int]:
    """Rows and vectors of results that are made together: what rows of taps share is read once. Vectors that lie above each other share
    more than those beside each other."""
    together = max(1, min(SUMS if height > 1 else 1, rows, MOST_PRODUCTS // (height * width)))
    vectors = 1
    while 2 * vectors * together <= SUMS and 2 * vectors * lanes <= columns:
        vectors *= 2
    return together, vectors


def _steps(tensor: Tensor) -> Ints:
    """Bytes between images, planes and rows."""
    row = tensor.strides[2] if len(tensor.shape) > 3 else 0
    return 4 * tensor.strides[0], 4 * tensor.strides[1], 4 * row
