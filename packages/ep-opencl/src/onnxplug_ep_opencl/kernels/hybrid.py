"""Operators of hybrid language models, mixtures of experts and optimized diffusion models: the launches that they have on any device, as
this provider's."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from onnxplug.contract import TensorSpec
from onnxplug_ep_opencl.kernels import lines
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import launch
from onnxplug_ep_opencl.kernels.entry import FLOATS, MS, Entry
from onnxplug_ep_opencl.kernels.lines import alone, side_by_side
from onnxplug_ep_opencl.kernels.quantized import passing
from onnxplug_ep_opencl.kernels.shared import described
from onnxplug_ep_opencl.launch import Job
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.nodes import diffusion, experts, hybrid
from onnxplug_kernel_text.nodes.launch import Job as Described
from onnxplug_kernel_text.nodes.lines import Division
from onnxplug_kernel_text.types import arithmetic

_SPAN = 64
"""Columns of a state that a work-item of a processor has, whose compilers make vectors of them."""


@described
def linear_attention(call: Call) -> Described | None:
    """LinearAttention."""
    return hybrid.linear_attention(call, _SPAN if call.target.processor else 1, alone(call.target))


@described
def causal_convolution(call: Call) -> Described | None:
    """CausalConvWithState."""
    return hybrid.causal_convolution(call, alone(call.target))


def _shared(call: Call) -> Division:
    target = call.target
    return Division(lambda count, length, stride: side_by_side(target, length), alone(target))


@described
def gated_norm(call: Call) -> Described | None:
    """GatedRMSNorm."""
    return hybrid.gated_norm(call, _shared(call))


@described
def group_norm(call: Call) -> Described | None:
    """GroupNorm and SkipGroupNorm."""
    return diffusion.group_norm(call, _shared(call))


def bias_softmax(call: Call) -> Job:
    """BiasSoftmax: the softmax of a sum, in whose place it is."""
    out, type_ = call.output(), text_type(call.output().dtype)
    held = arithmetic(type_)
    place = call.write() if held == type_ else call.scratch(4)
    walk = dense(out.shape)
    walked = space(out.shape, [walk, broadcast(call.input(1).shape, out.shape), walk])
    inputs = [(call.read(n), type_) for n in range(2)]
    total = launch(call.target, "total", inputs, [(place, held)], walked, "y0 = x0 + x1;")
    wide = TensorSpec(np.dtype(np.float64 if held == "f64" else np.float32), out.shape)
    axis = {"axis": call.attributes.get("axis", 1) % max(len(out.shape), 1)}
    plain = lines.softmax(replace(call, op_type="Softmax", version=11, attributes=axis, inputs=[wide], outputs=[wide]))
    steps = [replace(step, tensors=[place, place]) for step in plain.launches]
    if held == type_:
        return Job([*total, *steps])
    rounded = launch(
        call.target, "rounded", [(place, held)], [(call.write(), type_)], space(out.shape, [walk] * 2), "y0 = x0;"
    )
    return Job([*total, *steps, *rounded], math.prod(out.shape) * 4)


@described
def mixture(call: Call) -> Described | None:
    """MoE and QMoE."""
    target = call.target
    return experts.mixture(call, alone(target), target.vector // 4 if target.processor and target.registers else 0)


@described
def router(call: Call) -> Described | None:
    """MoEGroupRouter."""
    return experts.router(call, alone(call.target))


def entries() -> list[Entry]:
    """What is claimed."""
    held = FLOATS[:3]
    return [
        *[
            made
            for domain, since in (("", 27), (MS, 1))
            for made in (
                Entry("LinearAttention", since, since, {"T": held, "S": held}, linear_attention, domain=domain),
                Entry(
                    "CausalConvWithState", since, since, {"T": held}, causal_convolution, refuse=hybrid.unconvolved,
                    domain=domain,
                ),
            )
        ],
        Entry("GatedRMSNorm", 1, 1, {"T": held}, gated_norm, domain=MS),
        Entry("LinearAttentionGate", 1, 1, {"T": held}, passing(hybrid.gates), domain=MS),
        *[
            Entry(n, 1, 1, {"T": ("float16", "float"), "M": ("float16", "float")}, group_norm, domain=MS)
            for n in ("GroupNorm", "SkipGroupNorm")
        ],
        *[
            Entry(n, 1, 1, {"T": held}, passing(made), refuse=diffusion.rounded, domain=MS)
            for n, made in (
                ("BiasAdd", diffusion.bias_add), ("BiasSplitGelu", diffusion.split_gelu), ("SwiGLU", diffusion.swiglu)
            )
        ],
        Entry("BiasSoftmax", 1, 1, {"T": ("float16", "float", "double")}, bias_softmax, domain=MS),
        Entry("MoE", 1, 1, {"T": held}, mixture, refuse=experts.unmixed, domain=MS),
        Entry("MoEGroupRouter", 1, 1, {"T": held, "TF": ("float",)}, router, refuse=experts.unrouted, domain=MS),
        Entry(
            "QMoE", 1, 1, {"T": held, "T1": ("uint8",), "T2": held, "T4": ()}, mixture, refuse=experts.unmixed,
            domain=MS,
        ),
    ]  # fmt: skip
