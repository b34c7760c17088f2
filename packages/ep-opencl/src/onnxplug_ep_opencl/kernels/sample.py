"""RoiAlign."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView
from onnxplug.contract.errors import RuntimeException
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import fill, group_of
from onnxplug_ep_opencl.launch import Launch
from onnxplug_kernel_text import roi
from onnxplug_kernel_text.nodes.launch import integers
from onnxplug_kernel_text.types import SIZES, arithmetic
from onnxplug_kernels.refusals import Refusal

_SHIFTED = "half_pixel"


def unknown_pooling(node: NodeView) -> str | None:
    """A mode that RoiAlign does not have."""
    mode, moved = node.attributes.get("mode", "avg"), node.attributes.get("coordinate_transformation_mode", _SHIFTED)
    known = mode in ("avg", "max") and moved in (_SHIFTED, "output_half_pixel")
    return None if known else f"mode {mode!r} with coordinate_transformation_mode {moved!r} is not known"


def roi_align(call: Call) -> list[Launch]:
    """Bins of regions, of which each is all channels' work-item."""
    x, regions, images, out = call.input(0).shape, call.input(1).shape, call.input(2).shape, call.output().shape
    if len(x) != 4 or len(regions) != 2 or regions[1] != 4 or images != regions[:1]:
        raise Refusal(f"no regions of shape {regions} with images {images} for an input of shape {x}")
    type_, given = text_type(call.input(0).dtype), call.attributes
    if 0 in out:
        return []
    if 0 in x:
        return fill(call.target, call.op_type, call.write(), type_, math.prod(out), "0")
    shifted = call.version >= 16 and given.get("coordinate_transformation_mode", _SHIFTED) == _SHIFTED
    source = roi.roi_align(call.op_type, type_, text_type(call.input(2).dtype), given.get("mode", "avg") == "max")
    fault, *marks = call.fault()
    marks += [
        call.fault("All 'rois' values must be finite")[1],
        call.fault("a region has too many samples", RuntimeException)[1],
    ]
    points = out[0] * out[2] * out[3]
    group, real = group_of(call.target, points), np.float64 if SIZES[arithmetic(type_)] == 8 else np.float32
    refs = [call.read(0), call.read(1), call.read(2), call.write(), fault]
    scalars = [
        *integers(*marks, points, out[2], out[3], *x, given.get("sampling_ratio", 0)),
        real(given.get("spatial_scale", 1.0)), real(0.5 if shifted else 0), real(0 if shifted else 1),
    ]  # fmt: skip
    return [Launch(source, call.op_type, refs, scalars, (-(-points // group) * group,), (group,))]
