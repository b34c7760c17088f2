"""Padding: zeros around an image become the padding of the convolution that reads it; else elements are written around the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, axis_of, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor


def _supports(node: NodeView) -> str | None:
    mode = node.attributes.get("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        return f"mode is {mode!r}"
    constant = mode == "constant"
    if constant and len(node.inputs) > 2 and node.inputs[2] is not None and node.inputs[2].constant is None:
        return "padding with a computed number is not generated"
    known = {*SIZES, *FLOATS} if constant else SIZES
    return typed(node.inputs[0], known) or typed(node.outputs[0], known)


@lowering("Pad", supports=_supports)
def pad(b: Lowering, node: NodeView) -> None:
    """The input with a constant, or with its own elements, around it."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None
    shape, (before, value) = b.shape(y), _amounts(b, node, rank(x))
    after = tuple(n - m - p for n, m, p in zip(shape, b.shape(x), before, strict=True))
    cut = tuple((max(0, -low), max(0, -high)) for low, high in zip(before, after, strict=True))
    before, after = tuple(max(0, low) for low in before), tuple(max(0, high) for high in after)
    reader = b.prepared.reader.get(y.name)
    mode = node.attributes.get("mode", "constant")
    in_image = mode == "constant" and len(shape) >= 3 and not any((*before[:2], *after[:2])) and value == 0.0
    source = b.read(x)
    if in_image and reader is not None and reader.op_type in ("Conv", "FusedConv") and reader.inputs[0] is y:
        source = b.channels_last(x)
    for axis, (low, high) in enumerate(cut):  # padding by less than nothing
        if source.shape[axis] < low + high:
            raise Unsupported("more is cut off than there is")
        source = part(source, axis, low, source.shape[axis] - high)
    order = tuple(sorted(range(len(shape)), key=lambda d: (-source.strides[d], d)))
    if mode != "constant":
        _surround(b, mode, source, b.output(y, order, source.element), before)
        return

    computed = source.element in FLOATS
    border = b.tensor_of(np.full(1, value, np.float32 if computed else source.element))

    def emit(expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        inside = target
        for axis, (low, size) in enumerate(zip(before, source.shape, strict=True)):
            for start, stop in ((0, low), (low + size, shape[axis])):
                write_map(b.program, b.target, expr, [border], part(inside, axis, start, stop))
            inside = part(inside, axis, low, low + size)
        if expr == ex.IDENTITY:
            copy(b.program, b.target, source, inside)
        else:
            write_map(b.program, b.target, expr, [source], inside)

    if not computed:
        emit(ex.IDENTITY, [], b.output(y, order, source.element))
        return
    padding = (source, before) if in_image and source.is_channels_last else None
    b.pend(y, Pending(shape, ex.IDENTITY, [None], emit, lambda leaf: False, order, padding=padding))


def _surround(b: Lowering, mode: str, source: Tensor, result: Tensor, before: Ints) -> None:
    """Write the elements in the middle, then axis by axis what they, or what has been written along the axes before, repeat."""
    if result.size == 0:
        return
    inside = result
    for axis, (low, size) in enumerate(zip(before, source.shape, strict=True)):
        inside = part(inside, axis, low, low + size)
    copy(b.program, b.target, source, inside)
    for axis, (low, size) in enumerate(zip(before, source.shape, strict=True)):
        slab = replace(inside.shift(-low * inside.strides[axis]), shape=_with(inside.shape, axis, result.shape[axis]))
        high = result.shape[axis] - low - size
        if max(low, high) > {"edge": max(low, high) if size else 0, "reflect": size - 1, "wrap": size}[mode]:
            raise Unsupported(f"more is added than there is to {mode}")
        step = {"edge": 0, "reflect": -1, "wrap": 1}[mode]
        for start, count, first in (
            (0, low, {"edge": low, "reflect": 2 * low, "wrap": size}[mode]),
            (low + size, high, {"edge": low + size - 1, "reflect": low + size - 2, "wrap": low}[mode]),
        ):
            if count:
                strides = _with(slab.strides, axis, step * slab.strides[axis])
                shape = _with(slab.shape, axis, count)
                view = slab.shift(first * slab.strides[axis]).viewed(shape, strides)
                copy(b.program, b.target, view, part(slab, axis, start, start + count))
        inside = slab


def _with(sizes: Ints, axis: int, size: int) -> Ints:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def _amounts(b: Lowering, node: NodeView, dims: int) -> tuple[Ints, float | int]:
    """(what is added before each dimension, with what)."""
    if "pads" in node.attributes:
        return tuple(node.attributes["pads"][:dims]), float(node.attributes.get("value", 0.0))
    pads, value, axes = ([*map(b.constant, node.inputs[1:]), None, None, None])[:3]
    if pads is None:
        raise Unsupported("the padding depends on data")
    places = range(dims) if axes is None else [axis_of(int(axis), dims) for axis in axes]
    before = [0] * dims
    for place, amount in zip(places, pads[: len(pads) // 2], strict=True):
        before[place] = int(amount)
    return tuple(before), 0.0 if value is None else value.reshape(-1)[0].item()


def part(tensor: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """The entries of a dimension from ``start`` to before ``stop``."""
    return replace(tensor.shift(start * tensor.strides[axis]), shape=_with(tensor.shape, axis, stop - start))
