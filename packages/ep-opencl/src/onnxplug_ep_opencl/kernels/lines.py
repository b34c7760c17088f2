"""Kernels that walk lines of a tensor: reductions, softmax, normalisations, running sums. On processors one work-item a line, on other
devices one group of work-items a line where lines are long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import copy, fill, launch
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.norm import across_channels, normalisation
from onnxplug_kernel_text.reduce import arg_reduction, reduction
from onnxplug_kernel_text.softmax import softmax as softmax_text

GROUP = 128
LONG = 64
"""Elements of a line from which on a group shares it."""


def together(target: Target, length: int) -> int:
    """Work-items of a group that shares a line; 0: a work-item has it alone."""
    return min(GROUP, target.largest_group) if not target.registers and length >= LONG else 0


def spread(target: Target, lines: int, group: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Work-items for that many lines and their grouping."""
    if group:
        return (lines * group,), (group,)
    alone = 1 if target.processor else 64
    return (-(-lines // alone) * alone,), (alone,)


def integers(*numbers: int) -> list[np.generic]:
    """Arguments of type i64."""
    return [np.int64(n) for n in numbers]


def reduce(call: Call) -> list[Launch]:
    """ReduceSum and its family. Dimensions come as attribute ``axes`` or as the second input; none means all, or with
    ``noop_with_empty_axes`` no reduction."""
    x = call.input(0)
    axes = call.numbers(1, "axes")
    if not axes and call.attributes.get("noop_with_empty_axes", 0):
        axes = []
    elif not axes:
        axes = list(range(len(x.shape)))
    return _reduced(call, call.op_type, {axis % len(x.shape) for axis in axes} if x.shape else set())


def whole(call: Call) -> list[Launch]:
    """GlobalAveragePool and GlobalMaxPool, and AveragePool of one window: reductions over the spatial dimensions."""
    operator = "ReduceMax" if call.op_type == "GlobalMaxPool" else "ReduceMean"
    return _reduced(call, operator, set(range(2, len(call.input(0).shape))))


def lp_norm(call: Call) -> Job:
    """LpNormalization: where the norm is zero the result is zero."""
    x, type_ = call.input(0), text_type(call.input(0).dtype)
    axis = call.attributes.get("axis", -1) % len(x.shape)
    norms = tuple(1 if k == axis else extent for k, extent in enumerate(x.shape))
    made = call.scratch(x.dtype.itemsize)
    if math.prod(x.shape) == 0:
        return Job()
    before = _reduced(call, f"ReduceL{call.attributes.get('p', 2)}", {axis}, (made, math.prod(norms)))
    walks = [dense(x.shape), broadcast(norms, x.shape), dense(x.shape)]
    inputs = [(call.read(0), type_), (made, type_)]
    body = "y0 = x1 == 0 ? 0 : x0 / x1;"
    after = launch(call.target, "divided", inputs, [(call.write(), type_)], space(x.shape, walks), body)
    return Job([*before, *after], math.prod(norms) * x.dtype.itemsize)


def _reduced(call: Call, operator: str, over: set[int], into: tuple[Ref, int] | None = None) -> list[Launch]:
    """``into``: where so many results go, if not to the output."""
    x, type_ = call.input(0), text_type(call.input(0).dtype)
    strides = dense(x.shape)
    kept = space(*_part(x.shape, strides, [k for k in range(len(x.shape)) if k not in over]))
    gone = space(*_part(x.shape, strides, sorted(over)))
    target, points = (call.write(), math.prod(call.output().shape)) if into is None else into
    length = gone.points
    if points == 0:
        return []
    group = together(call.target, length)
    source = reduction(call.op_type, operator, type_, len(kept.shape), len(gone.shape), group)
    scalars = integers(points, *kept.shape[1:], *kept.strides[0], *gone.shape, *gone.strides[0])
    return [Launch(source, call.op_type, [call.read(0), target], scalars, *spread(call.target, points, group))]


def _part(
    shape: Sequence[int], strides: Sequence[int], axes: Sequence[int]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    return tuple(shape[k] for k in axes), [tuple(strides[k] for k in axes)]


def arg(call: Call) -> list[Launch]:
    """ArgMax and ArgMin."""
    x = call.input(0)
    axis = call.attributes.get("axis", 0) % max(len(x.shape), 1)
    length, stride = (x.shape[axis], math.prod(x.shape[axis + 1 :])) if x.shape else (1, 1)
    points = math.prod(call.output().shape)
    group = together(call.target, length)
    last = bool(call.attributes.get("select_last_index", 0))
    source = arg_reduction(call.op_type, call.op_type == "ArgMax", last, text_type(x.dtype), group)
    scalars = integers(points, length, stride)
    return [Launch(source, call.op_type, [call.read(0), call.write()], scalars, *spread(call.target, points, group))]


def softmax(call: Call) -> list[Launch]:
    """Softmax, LogSoftmax and Hardmax; before version 13 over all dimensions from ``axis`` on."""
    x = call.input(0)
    if math.prod(x.shape) == 0:
        return []
    rank = max(len(x.shape), 1)
    axis = call.attributes.get("axis", -1 if call.version >= 13 else 1)
    if call.version < 13:
        axis += rank * (axis < 0)
        length, stride = math.prod(x.shape[axis:]), 1
    else:
        length, stride = (x.shape[axis], math.prod(x.shape[axis % rank + 1 :])) if x.shape else (1, 1)
    points = math.prod(x.shape) // length
    group = together(call.target, length)
    source = softmax_text(call.op_type, call.op_type, text_type(x.dtype), group)
    scalars = integers(points, length, stride)
    return [Launch(source, call.op_type, [call.read(0), call.write()], scalars, *spread(call.target, points, group))]


def _normalised(
    call: Call,
    lines: int,
    length: int,
    pick: tuple[int, int, int],
    *,
    bias: bool,
    centred: bool,
    statistics: Mapping[int, str] = MappingProxyType({}),
) -> list[Launch]:
    if lines * length == 0:
        return []
    group = together(call.target, length)
    types = text_type(call.input(0).dtype), text_type(call.input(1).dtype)
    source = normalisation(
        call.op_type, *types, bias=bias, centred=centred, statistics=[*statistics.values()], group=group
    )
    refs = [call.read(0), call.read(1), *([call.read(2)] if bias else []), call.write()]
    refs += [call.write(n) for n in statistics]
    epsilon = np.float32(call.attributes.get("epsilon", 1e-5))
    scalars = [*integers(lines, length, *pick), epsilon]
    return [Launch(source, call.op_type, refs, scalars, *spread(call.target, lines, group))]


def layer_norm(call: Call) -> list[Launch]:
    """LayerNormalization and RMSNormalization."""
    shape = call.input(0).shape
    axis = call.attributes.get("axis", -1) % len(shape)
    lines, length = math.prod(shape[:axis]), math.prod(shape[axis:])
    centred = call.op_type == "LayerNormalization"
    made = {1: "mean", 2: "spread"}
    wanted = {n: s for n, s in made.items() if n < len(call.outputs) and call.outputs[n] is not None}
    bias = call.given(2) is not None
    return _normalised(call, lines, length, (1, 0, 1), bias=bias, centred=centred, statistics=wanted)


def instance_norm(call: Call) -> list[Launch]:
    """InstanceNormalization: lines are the channels of each image."""
    shape = call.input(0).shape
    length = math.prod(shape[2:])
    return _normalised(call, shape[0] * shape[1], length, (shape[1], 1, max(length, 1)), bias=True, centred=True)


def group_norm(call: Call) -> list[Launch]:
    """GroupNormalization: lines are groups of channels; version 18 has a scale for each group, 21 for each channel."""
    shape, groups = call.input(0).shape, call.attributes["num_groups"]
    spatial = math.prod(shape[2:])
    length = shape[1] // groups * spatial
    pick = (groups, 1, max(length, 1)) if call.version < 21 else (groups, shape[1] // groups, max(spatial, 1))
    return _normalised(call, shape[0] * groups, length, pick, bias=True, centred=True)


def batch_norm(call: Call) -> list[Launch]:
    """BatchNormalization as it is at inference."""
    x = call.input(0)
    channels = (x.shape[1] if len(x.shape) > 1 else 1, *[1] * (len(x.shape) - 2))
    walks = [dense(x.shape), *[broadcast(channels, x.shape)] * 4, dense(x.shape)]
    inputs = [(call.read(n), text_type(call.input(n).dtype)) for n in range(5)]
    epsilon = np.float32(call.attributes.get("epsilon", 1e-5))
    body = f"y0 = (x0 - x3) * (x1 / sqrt(x4 + {float(epsilon)!r}f)) + x2;"
    return launch(call.target, call.op_type, inputs, [(call.write(), text_type(x.dtype))], space(x.shape, walks), body)


def lrn(call: Call) -> list[Launch]:
    """LRN."""
    shape, size = call.input(0).shape, call.attributes["size"]
    points = math.prod(shape)
    if points == 0:
        return []
    numbers = [call.attributes.get(n, d) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))]
    scalars = [
        *integers(points, shape[1], math.prod(shape[2:]), size),
        np.float32(numbers[0] / size),
        *map(np.float32, numbers[1:]),
    ]
    group = 64
    source = across_channels(call.op_type, text_type(call.input(0).dtype))
    items = -(-points // group) * group
    return [Launch(source, call.op_type, [call.read(0), call.write()], scalars, (items,), (group,))]


def dropout(call: Call) -> list[Launch]:
    """Dropout at inference: the input, and a mask: of ones, before version 12 of zeros, as onnxruntime and the CPU provider have it."""
    shape = call.input(0).shape
    walk = dense(shape)
    made = copy(call.target, call.op_type, call.read(0), call.write(), shape, (walk, walk))
    if len(call.outputs) > 1 and call.outputs[1] is not None:
        mask = call.output(1)
        made += fill(
            call.target,
            "mask",
            Ref(len(call.inputs) + 1, mask.dtype.itemsize),
            text_type(mask.dtype),
            math.prod(shape),
            "1" if call.version >= 12 else "0",
        )
    return made
