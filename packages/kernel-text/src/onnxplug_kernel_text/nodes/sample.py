"""GridSample and RoiAlign."""

from __future__ import annotations

import math

from onnxplug.contract import NodeView
from onnxplug_kernel_text import sample
from onnxplug_kernel_text.nodes.call import NodeCall
from onnxplug_kernel_text.nodes.launch import Job, Launch, filled, integers, text_type
from onnxplug_kernel_text.types import FLOATS


def unknown(node: NodeView) -> str | None:
    """A mode that the operator does not have."""
    mode, padding = node.attributes.get("mode", "linear"), node.attributes.get("padding_mode", "zeros")
    known = mode in sample.MODES and padding in sample.PADDINGS
    return None if known else f"mode {mode!r} with padding_mode {padding!r} is not known"


def grid_sample(call: NodeCall, block: int) -> Job | None:
    """Samples of images at the places of the second operand, of which each is all channels' work-item; None for types that are not
    written."""
    x, grid, out = call.input(0).shape, call.input(1).shape, call.output().shape
    rank, type_, grid_type = len(x) - 2, text_type(call.input(0).dtype), text_type(call.input(1).dtype)
    if type_ not in FLOATS or grid_type not in FLOATS:
        return None
    if len(grid) != len(x) or grid[0] != x[0] or grid[-1] != rank:
        raise ValueError(f"no grid of shape {grid} for an input of shape {x}")
    if 0 in out:
        return Job()
    if 0 in x:
        return Job([filled(call.write(), type_, math.prod(out), "0").launch(call.op_type, block)])
    mode = sample.MODES[call.attributes.get("mode", "linear")]
    padding, aligned = call.attributes.get("padding_mode", "zeros"), bool(call.attributes.get("align_corners", 0))
    text = sample.grid_sample(call.op_type, type_, grid_type, rank, mode, padding, aligned)
    places = math.prod(out[2:])
    points, refs = places * x[0], (call.read(0), call.read(1), call.write())
    scalars = integers(points, places, x[1], *x[2:])
    return Job([Launch(text, call.op_type, refs, scalars, -(-points // block), block)])
