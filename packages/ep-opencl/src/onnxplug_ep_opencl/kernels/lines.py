"""Kernels that walk lines of a tensor: reductions, softmax, normalisations. On processors one work-item a line, on other devices one group
of work-items a line where lines are long."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import copy, fill, launch
from onnxplug_ep_opencl.kernels.shared import described
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.nodes import lines
from onnxplug_kernel_text.nodes.launch import Job as Described
from onnxplug_kernel_text.nodes.lines import Division
from onnxplug_kernels.refusals import FAIL, Refusal, braced

GROUP = 128
LONG = 64
"""Elements of a line from which on a group shares it."""
_SIDE_BY_SIDE = 16
"""Work-items that share a line of a sum on processors, whose compilers make one vector of them."""


def together(target: Target, length: int) -> int:
    """Work-items of a group that shares a line; 0: a work-item has it alone."""
    return group_within(target, GROUP) if not target.registers and length >= LONG else 0


def group_within(target: Target, wanted: int) -> int:
    """A power of two that the device takes, ``wanted`` at most."""
    return min(wanted, 1 << (target.largest_group.bit_length() - 1))


def alone(target: Target) -> int:
    """Work-items of a group that have a line each."""
    return 1 if target.processor else group_within(target, 64)


def division(target: Target) -> Division:
    """How lines are divided."""
    return Division(lambda count, length, stride: together(target, length), alone(target))


def _walked(describe: Callable[[Call, Division], Described | None]) -> Callable[[Call], Job]:
    return described(lambda call: describe(call, division(call.target)))


reduce, arg, softmax = _walked(lines.reduce), _walked(lines.arg), _walked(lines.softmax)
lp_norm, lrn, _whole = _walked(lines.lp_norm), _walked(lines.lrn), _walked(lines.whole)
layer_norm, instance_norm, group_norm = map(_walked, (lines.layer_norm, lines.instance_norm, lines.group_norm))


def whole(call: Call) -> Job:
    """GlobalAveragePool and GlobalMaxPool, and AveragePool of one window. Refusal for images without an element, as onnxruntime has it."""
    x = call.input(0).shape
    if len(x) < 3:
        raise Refusal("Input dimension cannot be less than 3.", FAIL)
    if 0 in x[2:] and 0 not in x[:2]:
        raise Refusal(f"an image of shape {braced(x[2:])} has no elements", FAIL)
    return _whole(call)


def side_by_side(target: Target, length: int) -> int:
    """Work-items that share a line of a kernel that is written for groups."""
    return group_within(target, _SIDE_BY_SIDE if target.registers or length < LONG else GROUP)


@described
def skip_norm(call: Call) -> Described | None:
    """SkipLayerNormalization and SkipSimplifiedLayerNormalization."""
    target = call.target
    return lines.skip_norm(call, Division(lambda count, length, stride: side_by_side(target, length), alone(target)))


def batch_norm(call: Call) -> list[Launch]:
    """BatchNormalization as it is at inference."""
    x = call.input(0)
    channels = (x.shape[1] if len(x.shape) > 1 else 1, *[1] * (len(x.shape) - 2))
    walks = [dense(x.shape), *[broadcast(channels, x.shape)] * 4, dense(x.shape)]
    inputs = [(call.read(n), text_type(call.input(n).dtype)) for n in range(5)]
    epsilon = np.float32(call.attributes.get("epsilon", 1e-5))
    body = f"y0 = (x0 - x3) * (x1 / sqrt(x4 + {float(epsilon)!r}f)) + x2;"
    return launch(call.target, call.op_type, inputs, [(call.write(), text_type(x.dtype))], space(x.shape, walks), body)


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
