"""Operators of hybrid language models and mixtures of experts: the launches that they have on any device, as this provider's."""

from __future__ import annotations

from onnxplug_ep_opencl.kernels.call import Call
from onnxplug_ep_opencl.kernels.lines import alone, side_by_side
from onnxplug_ep_opencl.kernels.shared import described
from onnxplug_kernel_text.nodes import experts, hybrid
from onnxplug_kernel_text.nodes.launch import Job as Described
from onnxplug_kernel_text.nodes.lines import Division

_SPAN = 32
"""Columns of a state that a work-item of a processor has, whose compilers make vectors of them."""


@described
def linear_attention(call: Call) -> Described | None:
    """LinearAttention."""
    return hybrid.linear_attention(call, _SPAN if call.target.processor else 1, alone(call.target))


@described
def causal_convolution(call: Call) -> Described | None:
    """CausalConvWithState."""
    return hybrid.causal_convolution(call, alone(call.target))


@described
def gated_norm(call: Call) -> Described | None:
    """GatedRMSNorm."""
    target = call.target
    return hybrid.gated_norm(call, Division(lambda count, length, stride: side_by_side(target, length), alone(target)))


@described
def mixture(call: Call) -> Described | None:
    """MoE and QMoE."""
    return experts.mixture(call, alone(call.target))
