"""GridSample."""

from __future__ import annotations

import math

from onnxplug.contract import Fail, NodeView
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import fill, group_of
from onnxplug_ep_opencl.kernels.lines import integers
from onnxplug_ep_opencl.launch import Launch
from onnxplug_kernel_text import sample


def unknown(node: NodeView) -> str | None:
    """A mode that the operator does not have."""
    mode, padding = node.attributes.get("mode", "linear"), node.attributes.get("padding_mode", "zeros")
    known = mode in sample.MODES and padding in sample.PADDINGS
    return None if known else f"mode {mode!r} with padding_mode {padding!r} is not known"


def grid_sample(call: Call) -> list[Launch]:
    """Samples of images at the places of the second operand, of which each is all channels' work-item."""
    x, grid, out = call.input(0).shape, call.input(1).shape, call.output().shape
    rank, type_ = len(x) - 2, text_type(call.input(0).dtype)
    if len(grid) != len(x) or grid[0] != x[0] or grid[-1] != rank:
        raise Fail(f"{call.op_type}: no grid of shape {grid} for an input of shape {x}")
    if 0 in out:
        return []
    if 0 in x:
        return fill(call.target, call.op_type, call.write(), type_, math.prod(out), "0")
    mode = sample.MODES[call.attributes.get("mode", "linear")]
    padding, aligned = call.attributes.get("padding_mode", "zeros"), bool(call.attributes.get("align_corners", 0))
    grid_type = text_type(call.input(1).dtype)
    source = sample.grid_sample(call.op_type, type_, grid_type, rank, mode, padding, aligned)
    places = math.prod(out[2:])
    points = places * x[0]
    group = group_of(call.target, points)
    refs = [call.read(0), call.read(1), call.write()]
    scalars = integers(points, places, x[1], *x[2:])
    return [Launch(source, call.op_type, refs, scalars, (-(-points // group) * group,), (group,))]
