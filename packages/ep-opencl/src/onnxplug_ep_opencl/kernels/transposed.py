"""ConvTranspose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.product import Product, Side, left_panels, multiply
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.tiles import Work, by_registers, usual
from onnxplug_ep_opencl.kernels.window import direct
from onnxplug_ep_opencl.launch import Job, Launch
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text import windows
from onnxplug_kernel_text.factors import Packed
from onnxplug_kernel_text.fold import folded_rows
from onnxplug_kernel_text.nodes.windows import interleaved, steps
from onnxplug_kernel_text.tile import Tile
from onnxplug_kernel_text.types import SIZES
from onnxplug_kernels.ops.conv_transpose import placement

_TYPES = ("f32", "f64")
"""Of products whose sums are added up further."""
_COLUMNS = 16 << 20
"""Bytes of columns that several images may take together."""


def conv_transpose(call: Call) -> Job:
    """ConvTranspose: on processors a product that makes columns, which are added up in the image; else each element of the output gathers
    what reaches it."""
    x, w, out = call.input(0).shape, call.input(1).shape, call.output().shape
    strides, gaps = steps(call, len(x) - 2)
    given, auto = call.attributes, call.attributes.get("auto_pad", "NOTSET")
    told = out[2:] if "output_shape" in given or auto.startswith("SAME") else None
    before, _ = placement(
        x[2:], w[2:], strides=strides, dilations=gaps, output_padding=given.get("output_padding"), output_shape=told,
        pads=given.get("pads"), auto_pad=auto,
    )  # fmt: skip
    if by_registers(call.target) and text_type(call.output().dtype) in _TYPES:
        return _folded(call, interleaved(out[2:], x[2:], w[2:], strides, gaps, before))
    groups = given.get("group", 1)
    numbers = interleaved(x[2:], out[2:], w[2:], strides, gaps, before)
    sizes = (w[1] * groups, w[1], x[1] // groups, x[1])
    source = windows.transposed_convolution(
        call.op_type, text_type(call.output().dtype), len(x) - 2, call.given(2) is not None
    )
    return direct(call, source, (*sizes, *numbers), 1)


def packs(node: NodeView, target: Target) -> tuple[int, ...]:
    """The weights, where they are constant and packed for tiles in registers."""
    value = node.inputs[1]
    constant = None if value is None else value.constant
    return (1,) if constant is not None and by_registers(target) and text_type(constant.dtype) in _TYPES else ()


def _folded(call: Call, numbers: Sequence[int]) -> Job:
    """The launches of a product, the weights turned, and of a sum; some images at a time. ``numbers``: ``factors.WINDOW`` of the columns in
    the image that is made."""
    x, out = call.input(0).shape, call.output().shape
    if math.prod(out) == 0:
        return Job()
    rows, spots, size = _rows(call), math.prod(x[2:]), out[0] and call.output().dtype.itemsize
    groups = call.attributes.get("group", 1)
    each = max(1, min(x[0], _COLUMNS // max(1, groups * rows * spots * size)))
    columns = call.scratch(size)
    used = -(-each * groups * rows * spots * size // ALIGNMENT) * ALIGNMENT
    launches: list[Launch] = []
    workspace = used
    for first in range(0, x[0], each):
        count = min(each, x[0] - first)
        made = _columns(call, first, count)
        product = multiply(call.target, call.op_type, made, call.scratch(1, used))
        lines = count * math.prod(out[1:-1])
        scalars = [np.int64(n) for n in (lines, out[1], *numbers)]
        image = replace(call.write(), offset=first * math.prod(out[1:]))
        bias = [call.read(2)] if call.given(2) is not None else []
        text = folded_rows("folded", text_type(call.output().dtype), len(x) - 2, bias=bool(bias))
        launches += [*product.launches, Launch(text, "folded", [columns, *bias, image], scalars, (lines,), (1,))]
        workspace = max(workspace, used + product.workspace)
    return Job(launches, workspace)


def _rows(call: Call) -> int:
    """Rows of the columns of a group: channels times elements of the window."""
    return math.prod(call.input(1).shape[1:])


def _columns(call: Call, first: int, count: int) -> Product:
    """The product that makes the columns of ``count`` images."""
    x, type_ = call.input(0).shape, text_type(call.output().dtype)
    groups, rows, spots = call.attributes.get("group", 1), _rows(call), math.prod(x[2:])
    depth = x[1] // groups
    lies = "packed" if 1 in call.packed else "turned"
    work = Work(type_, lies, "as it is", count * groups, rows, spots, depth)
    tile = usual(call.target, work, call.owned.widths if call.packed else ())
    right = Side(replace(call.read(0), offset=first * x[1] * spots), type_, (x[1] * spots, depth * spots), spots, 1)
    if 1 in call.packed:
        assert isinstance(tile, Tile)
        ref = left_panels(call, lambda: _turned(call, groups), tile.rows, right)
        left = Side(ref, type_, (0, -(-rows // tile.rows) * tile.rows * depth), form=Packed)
    else:
        left = Side(call.read(1), type_, (0, depth * rows), 1, rows)
    made = Side(call.scratch(SIZES[type_]), type_, (groups * rows * spots, rows * spots), spots, 1)
    return Product(left, right, made, (count, groups), rows, spots, depth, tile)


def _turned(call: Call, groups: int) -> np.ndarray:
    """The constant weights as (groups, rows, depth) matrices."""
    value = call.input(1).constant
    assert value is not None
    return np.swapaxes(value.reshape(groups, value.shape[0] // groups, -1), 1, 2)
