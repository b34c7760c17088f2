"""The first elements in order of size."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import Fail, NodeView
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.lines import spread
from onnxplug_ep_opencl.launch import Job, Launch
from onnxplug_kernel_text import topk

SORTED = 4096
"""Elements that are kept in order at most: a work-item inserts them one by one."""


def endless(node: NodeView) -> str | None:
    """TopK of more elements than one work-item keeps in order."""
    x, k = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    known = [node.attributes["k"]] if "k" in node.attributes else []
    if k is not None and k.constant is not None and k.constant.size == 1:
        known.append(k.constant.item())
    if x is not None and x.shape:
        extent = x.shape[node.attributes.get("axis", -1) % len(x.shape)]
        known += [extent] if isinstance(extent, int) else []
    return None if known and min(known) <= SORTED else f"it is not known to be at most {SORTED} elements"


def top_k(call: Call) -> Job:
    """TopK."""
    x, given = call.input(0), call.value(1)
    k = int(call.attributes["k"] if given is None else given.reshape(-1)[0])
    axis = call.attributes.get("axis", -1)
    extent = x.shape[axis] if -len(x.shape) <= axis < len(x.shape) else 0
    if not 0 <= k <= extent:
        raise Fail(f"TopK: k is {k}, axis {axis} of {x.shape} has {extent} elements")
    points = math.prod(x.shape) // max(extent, 1)
    if points * k == 0:
        return Job()
    sizes, refs, workspace = (x.dtype.itemsize, 8), [call.read(0)], 0
    for number, size in enumerate(sizes):
        if call.wanted(number) is not None:
            refs.append(call.write(number))
        else:
            refs.append(call.scratch(size))
            workspace = points * k * size
    source = topk.top_k(call.op_type, text_type(x.dtype), bool(call.attributes.get("largest", 1)))
    scalars = [np.int64(n) for n in (points, extent, k, math.prod(x.shape[axis % len(x.shape) + 1 :]))]
    return Job([Launch(source, call.op_type, refs, scalars, *spread(call.target, points, 0))], workspace)
