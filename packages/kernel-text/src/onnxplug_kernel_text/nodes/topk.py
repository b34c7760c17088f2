"""TopK."""

from __future__ import annotations

import math

from onnxplug_kernel_text import topk
from onnxplug_kernel_text.nodes.call import NodeCall
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers, text_type

INSERTED = 1024
"""Elements that a work-item at most inserts one by one into those that it keeps; for more it sorts the line."""


def top_k(call: NodeCall, block: int) -> Job:
    """The first elements in order of size, a line by each work-item, ``block`` of them in a group. ValueError for more than there are."""
    x, given = call.input(0), call.value(1)
    k = int(call.attributes["k"] if given is None else given.reshape(-1)[0])
    axis = call.attributes.get("axis", -1)
    extent = x.shape[axis] if -len(x.shape) <= axis < len(x.shape) else 0
    if not 0 <= k <= extent:
        raise ValueError(f"k is {k}, axis {axis} of {x.shape} has {extent} elements")
    points = math.prod(x.shape) // max(extent, 1)
    if points * k == 0:
        return Job()
    scalars = integers(points, extent, k, math.prod(x.shape[axis % len(x.shape) + 1 :]))
    type_, largest = text_type(x.dtype), bool(call.attributes.get("largest", 1))
    refs, workspace = [call.read(0)], 0
    if k > INSERTED:
        wanted = [call.wanted(number) is not None for number in range(2)]
        refs += [call.scratch(4), *(call.write(number) for number, asked in enumerate(wanted) if asked)]
        workspace = points * extent * 8
        text = topk.top_of_sorted(call.op_type, type_, largest, *wanted)
    else:
        for number, size in enumerate((x.dtype.itemsize, 8)):
            if call.wanted(number) is not None:
                refs.append(call.write(number))
            else:
                refs.append(call.scratch(size))
                workspace = points * k * size
        text = topk.top_k(call.op_type, type_, largest)
    return Job([Launch(text, call.op_type, tuple(refs), scalars, -(-points // block), block)], workspace)
