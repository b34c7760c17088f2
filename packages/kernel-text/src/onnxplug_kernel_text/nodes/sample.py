"""GridSample, RoiAlign and MaxRoiPool."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_kernel_text import roi, sample
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, filled, integers, text_type
from onnxplug_kernel_text.types import FLOATS, SIZES, arithmetic

_SHIFTED = "half_pixel"


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


def unknown_pooling(node: NodeView) -> str | None:
    """A mode that RoiAlign does not have."""
    mode, moved = node.attributes.get("mode", "avg"), node.attributes.get("coordinate_transformation_mode", _SHIFTED)
    known = mode in ("avg", "max") and moved in (_SHIFTED, "output_half_pixel")
    return None if known else f"mode {mode!r} with coordinate_transformation_mode {moved!r} is not known"


def roi_align(call: NodeCall, fault: Ref, marks: Sequence[int], block: int) -> Job | None:
    """RoiAlign: bins of regions, of which each is all channels' work-item. ``fault``: a tensor of one i32, where one of the three ``marks``
    is left for an image that is not there, a region that is not finite, one with too many samples; such bins are zero. None for types
    that are not written."""
    x, regions, images, out = call.input(0).shape, call.input(1).shape, call.input(2).shape, call.output().shape
    if len(x) != 4 or len(regions) != 2 or regions[1] != 4 or images != regions[:1]:
        raise ValueError(f"no regions of shape {regions} with images {images} for an input of shape {x}")
    type_, given = text_type(call.input(0).dtype), call.attributes
    if type_ not in FLOATS:
        return None
    if 0 in out:
        return Job()
    if 0 in x:
        return Job([filled(call.write(), type_, math.prod(out), "0").launch(call.op_type, block)])
    shifted = call.version >= 16 and given.get("coordinate_transformation_mode", _SHIFTED) == _SHIFTED
    text = roi.roi_align(call.op_type, type_, text_type(call.input(2).dtype), given.get("mode", "avg") == "max")
    points, real = out[0] * out[2] * out[3], np.float64 if SIZES[arithmetic(type_)] == 8 else np.float32
    refs = (call.read(0), call.read(1), call.read(2), call.write(), fault)
    numbers = integers(*marks, points, out[2], out[3], *x, given.get("sampling_ratio", 0))
    places = real(given.get("spatial_scale", 1.0)), real(0.5 if shifted else 0), real(0 if shifted else 1)
    return Job([Launch(text, call.op_type, refs, (*numbers, *places), -(-points // block), block)])


def max_roi_pool(call: NodeCall, fault: tuple[Ref, int], block: int) -> Job | None:
    """MaxRoiPool: a work-item a bin. ``fault``: where to tell of an image that is not there, by which number; such bins are zero. None for
    types that are not written."""
    x, regions, out = call.input(0).shape, call.input(1).shape, call.output().shape
    type_ = text_type(call.input(0).dtype)
    if type_ not in FLOATS or call.input(1).dtype != call.input(0).dtype:
        return None
    if len(x) != 4 or len(regions) != 2 or regions[1] != 5 or len(out) != 4 or out[:2] != (regions[0], x[1]):
        raise ValueError(f"no regions of shape {regions} for an input of shape {x}")
    points = math.prod(out)
    if points == 0:
        return Job()
    if 0 in x:
        return Job([filled(call.write(), type_, points, "0").launch(call.op_type, block)])
    numbers = integers(fault[1], points, *out[2:], *x)
    refs = call.read(0), call.read(1), call.write(), fault[0]
    scale = np.float32(call.attributes.get("spatial_scale", 1.0))
    text = roi.max_roi(call.op_type, type_)
    return Job([Launch(text, call.op_type, refs, (*numbers, scale), -(-points // block), block)])
