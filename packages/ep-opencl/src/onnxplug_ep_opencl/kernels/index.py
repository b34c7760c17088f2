"""Operators whose indices follow from shapes: interpolation, running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import copy, group_of
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_kernel_text import indexing
from onnxplug_kernel_text.types import SIZES, arithmetic
from onnxplug_kernels.ops.resize import resize_plans, upsample_plans
from onnxplug_kernels.refusals import Refusal

_LINE = 512
"""Elements of a resampled image that a work-item of a processor has."""


def _launch(
    call: Call, name: str, source: str, refs: Sequence[Ref], points: int, *scalars: int, alone: bool = False
) -> list[Launch]:
    """One work-item for each of ``points``; none where there are none. ``alone``: each is a group."""
    if points == 0:
        return []
    group = 1 if alone else group_of(call.target, points)
    items = -(-points // group) * group
    return [Launch(source, name, refs, [np.int64(n) for n in (points, *scalars)], (items,), (group,))]


def _copied(call: Call, index: int = 0) -> list[Launch]:
    """An input into the first output, as it is."""
    shape = call.input(index).shape
    return copy(call.target, "copy", call.read(index), call.write(), (math.prod(shape),), ((1,), (1,)))


def cumulated(call: Call) -> list[Launch]:
    """CumSum and CumProd."""
    shape, axis_value = call.input(0).shape, call.value(1)
    if axis_value is None:
        return []
    axis = int(axis_value.reshape(-1)[0])
    if not -len(shape) <= axis < len(shape):
        raise Refusal(f"axis {axis} is not one of the tensor's, which has {len(shape)}")
    if math.prod(shape) == 0:
        return []
    axis %= len(shape)
    exclusive, backwards = bool(call.attributes.get("exclusive", 0)), bool(call.attributes.get("reverse", 0))
    multiplied = call.op_type == "CumProd"
    source = indexing.running(call.op_type, text_type(call.input(0).dtype), exclusive, backwards, multiplied)
    points = math.prod(shape) // shape[axis]
    refs = [call.read(0), call.write()]
    return _launch(call, call.op_type, source, refs, points, shape[axis], math.prod(shape[axis + 1 :]))


def unresizable(node: NodeView) -> str | None:
    """What of Resize needs more than a weighted sum."""
    if node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return "coordinate_transformation_mode tf_crop_and_resize, whose region of interest is data"
    return None


_PLANNED = frozenset(
    {
        "antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside",
        "keep_aspect_ratio_policy", "mode", "nearest_mode",
    }
)  # fmt: skip


def resize(call: Call) -> Job:
    """Resize and Upsample, one axis after the other; what lies between is kept in float32 or float64."""
    shape, type_ = list(call.input(0).shape), text_type(call.output().dtype)
    mode = call.attributes.get("mode", "nearest")
    if call.op_type == "Upsample" or call.version == 10:
        scales = call.value(1) if call.version > 8 else np.array(call.attributes["scales"])
        assert scales is not None
        plans = upsample_plans(shape, scales.tolist(), mode)
    else:
        given = {name: call.attributes[name] for name in _PLANNED & call.attributes.keys()}
        plans = resize_plans(shape, None, call.value(2), call.value(3), **given)
    if math.prod(call.output().shape) == 0:
        return Job()
    if not plans:
        return Job(_copied(call))
    held, launches, between = arithmetic(type_), [], 0
    order = sorted(plans, key=lambda axis: (len(plans[axis].indices) / shape[axis], -axis))
    source, from_type = call.read(0), type_
    for step, axis in enumerate(order):
        plan, extent = plans[axis], shape[axis]
        shape[axis] = len(plan.indices)
        to_type = type_ if step == len(order) - 1 else held
        count = math.prod(shape)
        target = call.write() if step == len(order) - 1 else call.scratch(SIZES[held], between)
        between += count if step < len(order) - 1 else 0
        tables = [call.owned.table(plan.indices.astype(np.int32))]
        if plan.weights is not None:
            tables.append(call.owned.table(plan.weights.astype(np.float64 if held == "f64" else np.float32)))
        scalars = [shape[axis], math.prod(shape[axis + 1 :]), extent]
        alone = call.target.processor
        if alone:
            each = min(shape[axis], max(1, _LINE // scalars[1]))
            count = math.prod(shape[:axis]) * -(-shape[axis] // each)
            scalars.append(each)
        text = indexing.resampled(
            call.op_type, from_type, to_type, plan.indices.shape[1], plan.weights is not None, lines=alone
        )
        launches += _launch(call, call.op_type, text, [source, *tables, target], count, *scalars, alone=alone)
        source, from_type = target, to_type
    return Job(launches, between * SIZES[held])
