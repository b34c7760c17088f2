"""com.microsoft.Attention: the input projection by cuBLAS into scratch memory, the rest by whoever computes attentions."""

from __future__ import annotations

import math
from typing import Any

from onnxplug.contract import Into, NodeView, TensorSpec
from onnxplug_ep_cuda.codegen.launch import Call
from onnxplug_ep_cuda.kernels.products import matmul
from onnxplug_kernel_text.nodes.attention import Attend
from onnxplug_kernel_text.nodes.attention_contrib import Scratch, self_attention


def form(attend: Attend, tf32: bool, node: NodeView, inputs: Any, outputs: Any, **_: Any) -> Into | None:
    """The writing form of a node; None for what is left to the portable kernel."""
    call = Call.of(node, inputs, outputs)
    x, weights = call.input(0), call.input(1)
    projected = TensorSpec(x.dtype, (*x.shape[:2], weights.shape[1]))
    multiply = matmul(tf32, [x, weights], [projected])
    scratch, number = Scratch(call), len(inputs) + len(outputs)
    problem = self_attention(call, scratch.take(math.prod(projected.shape), x.dtype.itemsize), scratch)
    if multiply is None or problem is None or not problem.fits:
        return None
    rest = attend(problem, number)

    def run(*operands: Any) -> None:
        import cupy

        multiply.call(operands[0], operands[1], cupy.ndarray(projected.shape, projected.dtype, operands[number].data))
        rest.call(*operands)

    return Into(run, rest.workspace)
