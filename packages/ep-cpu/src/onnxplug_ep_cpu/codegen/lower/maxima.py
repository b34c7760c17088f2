"""MaxPool that tells where the largest elements are, and MaxUnpool, which puts them back."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.sizes import portion
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.kernels.maxima import Maxima
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.scatter import moved
from onnxplug_ep_cpu.codegen.lower.support import typed
from onnxplug_ep_cpu.codegen.lower.taps import offsets, seeing, window
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor, channels_last, dense_strides

BLOCK = 2048
"""Elements that an item reads."""


def max_pool_with_places(b: Lowering, node: NodeView) -> None:
    """The largest element of each window, and its index in the whole operand."""
    (x,), (y, indices) = node.inputs, node.outputs
    assert x is not None and indices is not None
    source = b.channels_last(x)
    images, channels, *spatial = source.shape
    moves = window(node, source.shape[2:], tuple(node.attributes["kernel_shape"]))
    shape = b.shape(indices)
    if moves.output != shape[2:]:  # a last window that sees nothing, which inference may count
        raise Unsupported("the size of the result is not certain")
    order = channels_last(len(shape))
    values, places = b.scratch(shape, order), b.scratch(shape, order, "int64")
    if y is not None:
        b.define(y, values)
    b.define(indices, places)
    if not values.size:
        return
    moves = seeing(moves, source.shape[2:])
    by_column = node.attributes.get("storage_order", 0)
    steps = dense_strides(spatial, range(len(spatial))[::-1]) if by_column else dense_strides(spatial)
    plane = Tensor(source.buffer, source.shape, (0, 0, *steps))
    tables = [_inside(offsets(tensor, moves).array(b)) for tensor in (source, plane)]
    pixels, taps = tables[0].shape
    block, lanes = portion(pixels, BLOCK // taps), b.target.lanes
    args: list[int | Ref] = [
        values.ref, places.ref, source.ref, *(b.tensor_of(table).ref for table in tables), pixels, block, taps, channels,
        4 * source.strides[0], math.prod(spatial),
    ]  # fmt: skip
    items = images * -(-pixels // block) * -(-channels // lanes)
    b.program.call(Maxima(channels < lanes), args, items, values.size * taps / lanes * 2.0)


def _inside(table: np.ndarray) -> np.ndarray:
    """Offsets with the first tap inside the image, which can only be found once, in place of those outside."""
    outside = table < 0
    if not outside.any():
        return table
    first = np.argmin(outside, 1)[:, None]
    if np.take_along_axis(outside, first, 1).any():
        raise Unsupported("a window sees nothing")
    return np.where(outside, np.take_along_axis(table, first, 1), table)


def _unpool_supports(node: NodeView) -> str | None:
    if len(node.inputs) > 2:
        return "a shape that is given is not generated"
    known = next((r for v in (node.inputs[0], *node.outputs) if (r := typed(v, SIZES))), None)
    return known or typed(node.inputs[1], {"int64"})


@lowering("MaxUnpool", supports=_unpool_supports)
def max_unpool(b: Lowering, node: NodeView) -> None:
    """Zeros, with the elements at the places that MaxPool found them in."""
    (x, indices), (y,) = node.inputs, node.outputs
    assert x is not None and indices is not None and y is not None
    if b.shape(x) != b.shape(indices):
        raise Unsupported("there is no place for each element")
    source, names = _flat(b, x), _flat(b, indices)
    place = b.output(y, element=source.element)
    out = place if place.is_dense else b.scratch(place.shape, element=source.element)
    write_map(b.program, b.target, ex.IDENTITY, [b.tensor_of(np.zeros(1, source.element))], out)
    if source.size:
        moved(b, "none", 0, out.viewed((out.size,), (1,)), source, names, negative=False)
    if out is not place:
        copy(b.program, b.target, out, place)


def _flat(b: Lowering, value: ValueView) -> Tensor:
    tensor = b.dense(value)
    return tensor.viewed((tensor.size,), (1,))
