"""The first elements in order of size."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import Fail
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.lines import spread
from onnxplug_ep_opencl.launch import Job, Launch
from onnxplug_kernel_text import topk

INSERTED = 1024
"""Elements that a work-item at most inserts one by one into those that it keeps; for more it sorts the line."""


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
    scalars = [np.int64(n) for n in (points, extent, k, math.prod(x.shape[axis % len(x.shape) + 1 :]))]
    type_, largest = text_type(x.dtype), bool(call.attributes.get("largest", 1))
    refs, workspace = [call.read(0)], 0
    if k > INSERTED:
        wanted = [call.wanted(number) is not None for number in range(2)]
        refs += [call.scratch(4), *(call.write(number) for number, asked in enumerate(wanted) if asked)]
        workspace = points * extent * 8
        source = topk.top_of_sorted(call.op_type, type_, largest, *wanted)
    else:
        for number, size in enumerate((x.dtype.itemsize, 8)):
            if call.wanted(number) is not None:
                refs.append(call.write(number))
            else:
                refs.append(call.scratch(size))
                workspace = points * k * size
        source = topk.top_k(call.op_type, type_, largest)
    return Job([Launch(source, call.op_type, refs, scalars, *spread(call.target, points, 0))], workspace)
