"""DeformConv: samples of the image at displaced places, in scratch memory, and a product of the weights with these; Col2Im."""

from __future__ import annotations

import math

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import group_of
from onnxplug_ep_opencl.kernels.product import Product, Side, multiply
from onnxplug_ep_opencl.kernels.shared import described, shared, unfit
from onnxplug_ep_opencl.kernels.tiles import Work, usual
from onnxplug_ep_opencl.kernels.window import unknown_rank
from onnxplug_ep_opencl.launch import Job
from onnxplug_kernel_text.nodes import displaced
from onnxplug_kernel_text.nodes.launch import Job as Described
from onnxplug_kernel_text.types import SIZES, arithmetic

_ALIGNMENT = 256


def deform_conv(call: Call) -> Job:
    """DeformConv."""
    x, w, out = call.input(0).shape, call.input(1).shape, call.output().shape
    type_, groups = text_type(call.input(0).dtype), call.attributes.get("group", 1)
    held = arithmetic(type_)
    to = call.scratch(SIZES[held])
    elements, places = math.prod(w[2:]), math.prod(out[2:])
    made = displaced.samples(call, to, group_of(call.target, x[0] * elements * places))
    if made is None:
        unfit(call)
    each, depth = w[0] // groups, w[1] * elements
    work = Work(held, "as it is", "as it is", x[0] * groups, each, places, depth)
    left = Side(call.read(1), type_, (0, each * depth), depth, 1)
    right = Side(to, held, (x[1] * elements * places, depth * places), places, 1)
    result = Side(call.write(), type_, (w[0] * places, each * places), places, 1)
    others = [Side(call.read(3), type_, (0, each), 1, 0)] if call.given(3) is not None else []
    product = Product(
        left, right, result, (x[0], groups), each, places, depth, usual(call.target, work), others,
        "y = x + e0;" if others else "y = x;",
    )  # fmt: skip
    used = -(-x[0] * x[1] * elements * places * SIZES[held] // _ALIGNMENT) * _ALIGNMENT
    behind = multiply(call.target, call.op_type, product, call.scratch(1, used))
    return Job([*shared(call.target, made.launches), *behind.launches], used + behind.workspace)


@described
def col2im(call: Call) -> Described | None:
    """Col2Im."""
    return displaced.col2im(call, group_of(call.target, math.prod(call.output().shape)))


def ungrouped(node: NodeView) -> str | None:
    """DeformConv of an input whose rank is not known, or of no groups."""
    least = min(node.attributes.get(name, 1) for name in ("group", "offset_group"))
    return unknown_rank(node) or (None if least > 0 else "no groups of channels")
