"""Images whose channels come last, as onnxruntime leaves them in models of 8 bits that it optimized: turned to have them second, computed
so, and turned back."""

from __future__ import annotations

import math
from dataclasses import replace

from onnxplug.contract import TensorSpec
from onnxplug_ep_opencl.kernels.call import Call, Lower
from onnxplug_ep_opencl.kernels.elementwise import copy
from onnxplug_ep_opencl.launch import Job, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_ep_opencl.shapes import channels_second
from onnxplug_kernel_text.layout import dense

_SECOND = {"NhwcMaxPool": "MaxPool"}
"""Operators of images with channels last, and what they are with channels second; others have an attribute."""


def turning(lower: Lower) -> Lower:
    """The lowering of an operator of one image and one result, by one that has channels second."""

    def lowered(call: Call) -> Job:
        if call.op_type not in _SECOND and not call.attributes.get("channels_last", 0):
            return _job(lower, call)
        x, out = (replace(spec, shape=channels_second(spec.shape)) for spec in (call.input(0), call.output()))
        inner = replace(
            call,
            op_type=_SECOND.get(call.op_type, call.op_type),
            attributes={**call.attributes, "channels_last": 0},
            inputs=[x, *call.inputs[1:]],
            outputs=[out],
        )
        job = _job(lower, inner)
        begins = [0]
        for spec in (x, out):
            begins.append(begins[-1] + -(-_nbytes(spec) // ALIGNMENT) * ALIGNMENT)
        scratch = call.scratch(1).number
        begin = {0: begins[0], len(call.inputs): begins[1], scratch: begins[2]}

        def moved(ref: Ref) -> Ref:
            at = begin.get(ref.number)
            return ref if at is None else Ref(scratch, ref.size, ref.offset + at // ref.size)

        between = [replace(step, tensors=[moved(ref) for ref in step.tensors]) for step in job.launches]
        source, made = (
            Ref(scratch, spec.dtype.itemsize, b // spec.dtype.itemsize)
            for spec, b in zip((x, out), begins, strict=False)
        )
        last = call.output().shape
        before = copy(
            call.target,
            "second",
            call.read(0),
            source,
            x.shape,
            (channels_second(dense(call.input(0).shape)), dense(x.shape)),
        )
        n, c, *rest = dense(out.shape)
        after = copy(call.target, "last", made, call.write(), last, ((n, *rest, c), dense(last)))
        return Job([*before, *between, *after], begins[2] + job.workspace)

    return lowered


def _job(lower: Lower, call: Call) -> Job:
    made = lower(call)
    return made if isinstance(made, Job) else Job(made)


def _nbytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize
