"""Operators over windows of images: convolutions, pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import group_of
from onnxplug_ep_opencl.kernels.lines import whole
from onnxplug_ep_opencl.kernels.planes import Layout, two_dimensions
from onnxplug_ep_opencl.kernels.product import Product, Side, left_panels, multiply, tile_of
from onnxplug_ep_opencl.kernels.strips import LARGEST, strips
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.tiles import Work, by_registers
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_ep_opencl.shapes import require_windows
from onnxplug_kernel_text import windows
from onnxplug_kernel_text.factors import Packed, Shifted, Windows
from onnxplug_kernel_text.local_product import LocalTile
from onnxplug_kernel_text.max_rows import max_rows
from onnxplug_kernel_text.nodes.windows import as_they_lie, padding_after, window_numbers
from onnxplug_kernel_text.tile import Tile
from onnxplug_kernel_text.types import SIZES

FEW = 2
"""Output channels of a group up to which a tile of a product would stay mostly empty."""


_LANES = 16
"""Elements that a work-item of a processor computes together: two vectors of AVX2."""
_IN_VECTORS = ("f32", "f64")
_NARROW = 32
"""Bytes of vectors where rows are too short for the device's."""
_SHARE = 8
"""Work-items for each of the device's units."""


def unknown_rank(node: NodeView) -> str | None:
    """Kernels are written for a number of spatial dimensions."""
    value = node.inputs[0]
    if value is None or value.shape is None:
        return "the rank of the input must be known"
    return None if len(value.shape) > 2 else "an input without spatial dimensions"


def packs(node: NodeView, target: Target) -> tuple[int, ...]:
    """The weights, where they are constant and packed for tiles in registers."""
    value = node.inputs[1]
    if value is None or value.constant is None or not by_registers(target):
        return ()
    return () if value.constant.shape[0] // node.attributes.get("group", 1) <= FEW else (1,)


def conv(call: Call) -> Job:
    """Conv."""
    product = as_product(call)
    if product is not None:
        return multiply(call.target, call.op_type, product, call.scratch(1))
    x, w = call.input(0).shape, call.input(1).shape
    lanes, groups = lanes_of(call), call.attributes.get("group", 1)
    source = windows.convolution(
        call.op_type, text_type(call.output().dtype), len(x) - 2, lanes, call.given(2) is not None
    )
    numbers = window_numbers(call, x[2:], call.output().shape[2:], w[2:])
    return direct(call, source, (w[0], w[0] // groups, w[1], x[1], *numbers), lanes)


def as_product(call: Call) -> Product | None:
    """Conv as products, for each image and group one of the weights and the windows; None where tiles would stay mostly empty. Refusal
    where there is no window."""
    x, w, out = call.input(0).shape, call.input(1).shape, call.output().shape
    require_windows(x, out)
    groups, type_ = call.attributes.get("group", 1), text_type(call.output().dtype)
    each, depth, spots, plane = w[0] // groups, math.prod(w[1:]), math.prod(out[2:]), math.prod(x[2:])
    numbers = window_numbers(call, x[2:], out[2:], w[2:])
    if each <= FEW:
        return _depthwise(call, numbers) if _has_strips(w, call.target) else None
    pointwise = as_they_lie(numbers)
    lies = "as it is" if pointwise else f"windows {w[2:]} {numbers[3::6]} {numbers[4::6]}"
    work = Work(type_, "packed" if 1 in call.packed else "as it is", lies, x[0] * groups, each, spots, depth)
    tile = tile_of(call, work, as_product)
    images = x[1] * plane, w[1] * plane
    if pointwise:
        right = Side(call.read(0), type_, images, plane, 1)
    else:
        right = _windows(call, numbers, images) if isinstance(tile, LocalTile) else _laid_out(call, numbers, images)
    if 1 in call.packed:
        assert isinstance(tile, Tile)
        rows = tile.rows
        ref = left_panels(call, lambda: _constant(call).reshape(groups, each, depth), rows, right)
        left = Side(ref, type_, (0, -(-each // rows) * rows * depth), form=Packed)
    else:
        left = Side(call.read(1), type_, (0, each * depth), depth, 1)
    made = Side(call.write(), type_, (w[0] * spots, each * spots), spots, 1)
    others = [Side(call.read(2), type_, (0, each), 1, 0)] if call.given(2) is not None else []
    body = "y = x + e0;" if others else "y = x;"
    parts = ((x[0],), (w[0],), out[2:]) if groups == 1 else None
    if groups == 1:
        left, right, made, *others = (replace(side, batch=side.batch[:1]) for side in (left, right, made, *others))
    batch = (x[0],) if groups == 1 else (x[0], groups)
    return Product(left, right, made, batch, each, spots, depth, tile, others, body, parts)


def _windows(call: Call, numbers: Sequence[int], images: tuple[int, int]) -> Side:
    """The windows of the input, which start ``images`` elements apart for each image and each group."""
    type_ = text_type(call.input(0).dtype)
    return Side(call.read(0), type_, images, form=Windows, windows=(call.input(1).shape[1], *numbers))


def _laid_out(call: Call, numbers: Sequence[int], images: tuple[int, int]) -> Side:
    """The same by way of planes, where these can be counted."""
    x, own = call.input(0).shape, call.input(1).shape[1]
    both = two_dimensions(numbers)
    if both is None:
        return _windows(call, numbers, images)
    layout = Layout(*both, x[0] * x[1], own)
    if own * layout.image >= 2**31:
        return _windows(call, numbers, images)
    columns = both[1][1]
    return Side(
        call.read(0), text_type(call.input(0).dtype), (x[1] * layout.image, own * layout.image), form=Shifted,
        windows=(columns, layout.extents[1]), layout=layout, table=call.owned.table(layout.table()),
    )  # fmt: skip


def _depthwise(call: Call, numbers: Sequence[int]) -> Product | None:
    """Conv with one channel a group, computed in strips."""
    x, w, out = call.input(0).shape, call.input(1).shape, call.output().shape
    type_, plane, spots, depth = text_type(call.output().dtype), math.prod(x[2:]), math.prod(out[2:]), math.prod(w[2:])
    tile = strips(numbers, w[0] // x[1])
    assert tile is not None
    left = Side(call.read(1), type_, (0,), depth, 1)
    right = Side(call.read(0), type_, (x[1] * plane,), form=Windows, windows=(1, *numbers))
    made = Side(call.write(), type_, (w[0] * spots,), spots, 1)
    others = [Side(call.read(2), type_, (0,), 1, 0)] if call.given(2) is not None else []
    body, parts = "y = x + e0;" if others else "y = x;", ((x[0],), (w[0],), out[2:])
    return Product(left, right, made, (x[0],), w[0], spots, depth, tile, others, body, parts)


def _has_strips(w: Sequence[int], target: Target) -> bool:
    """Whether weights of few output channels for each group are those of a convolution computed in strips."""
    return by_registers(target) and w[1] == 1 and len(w) <= 4 and 0 < math.prod(w[2:]) <= LARGEST


def is_product(node: NodeView, target: Target) -> bool:
    """Whether ``as_product`` makes one product of a Conv with weights of this shape, in which rows are the output's channels."""
    value, groups = node.inputs[1], node.attributes.get("group", 1)
    w = () if value is None or value.shape is None else value.shape
    sizes = [n for n in w if isinstance(n, int)]
    if not w or len(sizes) < len(w):
        return groups == 1 and bool(sizes) and w[0] == sizes[0] > FEW
    return groups == 1 if sizes[0] // groups > FEW else _has_strips(sizes, target)


def direct(call: Call, source: str, scalars: Sequence[int], lanes: int) -> Job:
    """The launch of a convolution that is no product: a work-item for each ``lanes`` elements of the output."""
    refs = [call.read(0), call.read(1), *([call.read(2)] if call.given(2) is not None else []), call.write()]
    return _launch(call, source, refs, scalars, lanes)


def max_pool(call: Call) -> Job:
    """MaxPool, with indices where they are wanted."""
    x, out = call.input(0).shape, call.output().shape
    indices = len(call.outputs) > 1 and call.outputs[1] is not None
    type_ = text_type(call.input(0).dtype)
    column_major, lanes = bool(call.attributes.get("storage_order", 0)), lanes_of(call)
    numbers = window_numbers(call, x[2:], out[2:], call.attributes["kernel_shape"])
    taps = None if indices else _taps(type_, numbers, lanes)
    if taps is not None:
        return _in_rows(call, type_, taps, numbers)
    source = windows.max_pool(call.op_type, type_, len(x) - 2, lanes, indices, column_major)
    refs = [call.read(0), call.write(), *([call.write(1)] if indices else [])]
    return _launch(call, source, refs, numbers, lanes)


def _in_rows(call: Call, type_: str, taps: windows.Taps, numbers: Sequence[int]) -> Job:
    """MaxPool without indices, row by row."""
    *heads, extent = call.output().shape
    lines = math.prod(heads)
    if lines == 0:
        return Job()
    vector = call.target.vector if extent * SIZES[type_] >= call.target.vector else _NARROW
    each = -(-lines // (_SHARE * call.target.units))
    source = max_rows(call.op_type, type_, taps, max(vector, _NARROW))
    scalars = [np.int64(n) for n in (lines, each, *numbers)]
    return Job([Launch(source, call.op_type, [call.read(0), call.write()], scalars, (-(-lines // each),), (1,))])


def mean_pool(call: Call) -> Job:
    """AveragePool and LpPool."""
    x, out, shape = call.input(0).shape, call.output().shape, call.attributes["kernel_shape"]
    rank, lanes = len(x) - 2, lanes_of(call)
    numbers = window_numbers(call, x[2:], out[2:], shape)
    one = tuple(shape) == x[2:] and set(numbers[1::6]) == {1} == set(numbers[4::6])  # window: the whole image
    if one and call.op_type == "AveragePool" and not any(call.attributes.get("pads", [])):
        return whole(call)
    counted = [0, 0] * rank
    if call.attributes.get("count_include_pad", 0):
        before, after = numbers[5::6], padding_after(call, x[2:], out[2:], shape)
        counted = [n for b, a in zip(before, after, strict=True) for n in (-b, a)]
    power = float(call.attributes.get("p", 2)) if call.op_type == "LpPool" else None
    type_ = text_type(call.input(0).dtype)
    source = windows.mean_pool(call.op_type, type_, rank, lanes, power, None if power else _taps(type_, numbers, lanes))
    return _launch(call, source, [call.read(0), call.write()], (*counted, *numbers), lanes)


def _taps(type_: str, numbers: Sequence[int], lanes: int) -> windows.Taps | None:
    """Windows as part of the text, where strips are computed as vectors: of floats, since Intel's compiler takes minutes over those of
    bytes."""
    taps = list(zip(numbers[2::6], numbers[3::6], numbers[4::6], strict=True))
    small = math.prod(wide for wide, _, _ in taps) <= LARGEST
    return taps if lanes > 1 and small and type_ in _IN_VECTORS else None


def lanes_of(call: Call) -> int:
    """Elements of the output a work-item computes."""
    return _LANES if call.target.registers and call.output().shape[-1] >= _LANES // 2 else 1


def _launch(call: Call, source: str, refs: Sequence[Ref], scalars: Sequence[int], lanes: int) -> Job:
    """A work-item for each ``lanes`` elements of the output."""
    *lines, extent = call.output().shape
    count, wide = math.prod(lines), -(-extent // lanes)
    if count * wide == 0:
        return Job()
    group = group_of(call.target, wide) if lanes == 1 else 1
    items = (-(-wide // group) * group, count)
    return Job([Launch(source, call.op_type, refs, [np.int64(n) for n in (count, *scalars)], items, (group, 1))])


def _constant(call: Call) -> np.ndarray:
    value = call.input(1).constant
    assert value is not None
    return value
