"""Operators of com.microsoft on quantized tensors that are computed as the operator on floats, between two kernels that change the type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView, TensorSpec
from onnxplug_ep_opencl.kernels import lines, window
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import launch
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text.layout import dense, space
from onnxplug_kernel_text.nodes.qlinear import several
from onnxplug_kernel_text.quantize import saturated

_FLOATS: dict[str, tuple[str, int, Callable[[Call], Job | Sequence[Launch]]]] = {
    "QLinearAveragePool": ("AveragePool", 11, window.mean_pool),
    "QLinearReduceMean": ("ReduceMean", 13, lines.reduce),
    "QLinearSoftmax": ("Softmax", 13, lines.softmax),
}
"""The operators on floats, their versions, their lowerings."""
OPERATORS = tuple(_FLOATS)


def refuses(node: NodeView) -> str | None:
    """Scales that are no single numbers, and pooling of images of a rank that is not known."""
    return (
        window.unknown_rank(node) if node.op_type == "QLinearAveragePool" and several(node) is None else several(node)
    )


def through_floats(call: Call) -> Job:
    """The launches: the input as float32, the operator, its result as the type of the output."""
    op_type, version, lower = _FLOATS[call.op_type]
    if op_type == "Softmax" and call.attributes.get("opset", 13) < 13:
        version = 11
    x, out = call.input(0), call.output()
    if math.prod(out.shape) == 0:
        return Job()
    begins = [0]
    for spec in (x, out):
        begins.append(begins[-1] + -(-math.prod(spec.shape) * 4 // ALIGNMENT) * ALIGNMENT)
    number = call.scratch(1).number
    floats, made = (Ref(number, 4, begin // 4) for begin in begins[:2])
    plain = [TensorSpec(np.dtype(np.float32), spec.shape) for spec in (x, out)]
    attributes = {"axis": -1, **call.attributes} if op_type == "Softmax" else call.attributes
    inner = replace(
        call, op_type=op_type, version=version, attributes=attributes, inputs=plain[:1], outputs=plain[1:], packed=()
    )
    lowered = lower(inner)
    job = lowered if isinstance(lowered, Job) else Job(lowered)
    places = {0: begins[0], 1: begins[1], 2: begins[2]}

    def moved(ref: Ref) -> Ref:
        return ref if ref.number < 0 else Ref(number, ref.size, ref.offset + places[ref.number] // ref.size)

    between = [replace(step, tensors=[moved(ref) for ref in step.tensors]) for step in job.launches]
    before = _converted(
        call, "floats", (call.read(0), x), (1, 2), (floats, "f32"), lambda zero: f"y0 = ((f32)x0{zero}) * x1;"
    )
    type_ = text_type(out.dtype)
    zero = "x2" if call.given(4) is not None else None
    if zero is not None and call.op_type == "QLinearAveragePool":  # added before rounding, as onnxruntime does
        stored = saturated("y0", f"x0 / x1 + (f32){zero}", None, type_)
    else:
        stored = saturated("y0", "x0 / x1", zero, type_)
    after = _converted(call, "numbers", (made, plain[1]), (3, 4), (call.write(), type_), lambda _: stored)
    return Job([*before, *between, *after], begins[2] + job.workspace)


def _converted(
    call: Call,
    name: str,
    source: tuple[Ref, TensorSpec],
    parameters: tuple[int, int],
    target: tuple[Ref, str],
    body: Callable[[str], str],
) -> list[Launch]:
    """A pass over all elements, with a scale and perhaps a zero point."""
    ref, spec = source
    given = [n for n in parameters if call.given(n) is not None]
    reads = [(ref, text_type(spec.dtype)), *((call.read(n), text_type(call.input(n).dtype)) for n in given)]
    walk = dense(spec.shape)
    walked = space(spec.shape, [walk, *[(0,) * len(walk)] * len(given), walk])
    zero = " - (f32)x2" if len(given) > 1 else ""
    return launch(call.target, name, reads, [target], walked, body(zero))
