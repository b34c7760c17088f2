"""NonMaxSuppression, whose result has as many rows as the data decides."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_kernel_text.nodes.call import NodeCall
from onnxplug_kernel_text.nodes.launch import Job, Launch, integers
from onnxplug_kernel_text.suppression import chosen, non_max_suppression

ALIGNMENT = 256
"""Bytes that parts of the scratch memory begin at multiples of."""


def largest(node: NodeView, inputs: Sequence[TensorSpec | None]) -> TensorSpec:
    """The rows of as many boxes as there may be. ValueError where boxes and scores do not belong together, and for a share of an area
    that is none."""
    boxes, scores = inputs[:2]
    assert boxes is not None and scores is not None
    counts = (scores.shape[0], scores.shape[2]) if len(scores.shape) == 3 else ()
    if len(boxes.shape) != 3 or boxes.shape[2] != 4 or boxes.shape[:2] != counts:
        raise ValueError(f"no scores of shape {scores.shape} for boxes {boxes.shape}")
    if not 0 <= (overlap := _number(inputs, 3, 0.0)) <= 1:
        raise ValueError(f"iou_threshold {overlap} is not in [0, 1]")
    most = _number(inputs, 2, 0)
    return TensorSpec(np.dtype(np.int64), (math.prod(scores.shape[:2]) * max(0, min(int(most), counts[1])), 3))


def suppress(call: NodeCall, alone: int, group: int) -> Job:
    """The launches: what each class of each image keeps, then the rows of all and, to a second output of one int64, how many they are.
    ``group`` work-items share a class; 0: one has it alone, ``alone`` of them in a group."""
    images, classes, n = call.input(1).shape
    lines, name = images * classes, call.op_type
    if call.output().shape[0] == 0:
        return Job()
    most, overlap = min(int(_number(call.inputs, 2, 0)), n), _number(call.inputs, 3, 0.0)
    given = call.given(4)
    threshold = given is not None and math.prod(given.shape) > 0
    begin = -(-lines * 8 // ALIGNMENT) * ALIGNMENT
    counts, scratch = call.scratch(8), call.scratch(4, begin // 4)
    text = non_max_suppression(name, bool(call.attributes.get("center_point_box", 0)), threshold, group)
    limits = (np.float32(overlap), np.float32(_number(call.inputs, 4, 0.0)))
    numbers, grid = integers(lines, classes, n, most), -(-lines // alone)
    tensors = (call.read(0), call.read(1), scratch, counts)
    first = Launch(text, name, tensors, (*numbers, *limits), lines if group else grid, group or alone)
    rows = (scratch, counts, call.write(0), call.write(1))
    last = Launch(chosen(f"{name}_rows"), f"{name}_rows", rows, integers(lines, classes, n), grid, alone)
    return Job([first, last], begin + lines * n * 8)


def _number(inputs: Sequence[TensorSpec | None], index: int, default: float) -> float:
    """The value of a host input that is one number."""
    spec = inputs[index] if index < len(inputs) else None
    if spec is None or spec.constant is None or spec.constant.size == 0:
        return default
    number: float = spec.constant.reshape(-1)[0].item()  # exact where it is an int64
    return number
