"""RNN, GRU and LSTM: the inputs of all steps by cuBLAS into scratch memory, then one generated kernel over time, a block a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract import Into, NodeView, fits
from onnxplug_ep_cuda.codegen.launch import Call, Job
from onnxplug_ep_cuda.codegen.lines import together
from onnxplug_ep_cuda.codegen.passes import BLOCK
from onnxplug_ep_cuda.faults import Faults
from onnxplug_ep_cuda.kernels.products import multiplication, product
from onnxplug_ep_cuda.memory import ALIGNMENT
from onnxplug_kernel_text.nodes.recurrent import DEFAULTS, Layer, begins, rows
from onnxplug_kernels.activations import named_activations

OPERATORS = frozenset({("", op) for op in DEFAULTS})
SHARED = 48 << 10
"""Bytes of memory that a block may share without asking."""
_VECTOR = 32
_TYPES = (np.dtype(np.float32), np.dtype(np.float64))
"""Narrower ones are added up in float32, which cuBLAS would have to leave behind."""


def lowered(call: Call) -> tuple[Job, int] | None:
    """What follows the product, in scratch memory that begins with the product's result, and how many elements that has; None for what is
    left to the portable kernel."""
    x, directions = call.input(0), call.input(2).shape[0]
    if x.dtype not in _TYPES:
        return None
    names, alphas, betas = (call.attributes.get(n) for n in ("activations", "activation_alpha", "activation_beta"))
    functions = named_activations(names, alphas, betas, DEFAULTS[call.op_type], directions)
    layer = Layer(call, functions, _VECTOR, max(together(1, 4 * call.input(2).shape[-1], 1), 64))
    if layer.shared > SHARED:
        return None
    width = layer.width
    starts = begins([n * width for n in layer.elements], ALIGNMENT)
    projected, weights, state = (call.scratch(width, begin // width) for begin in starts[:3])
    before = [part.launch("turned", BLOCK) for part in layer.laid_out(weights)]
    fault = call.fault() if call.given(4) is not None else None
    return Job([*before, *layer.launches(projected, weights, state, fault)], starts[3]), layer.elements[0]


def form(node: NodeView, inputs: Any, outputs: Any, *, faults: Faults | None = None, **_: Any) -> Into | None:
    """The writing form of a node; None for what is left to the portable kernel, which refuses operands that do not go together."""
    call = Call.of(node, inputs, outputs, faults)
    if not fits(node, [None if spec is None else spec.shape for spec in inputs]):
        return None
    found = lowered(call)
    if found is None:
        return None
    (job, elements), (count, columns, depth), dtype = found, rows(call), call.input(0).dtype
    factors = product((count, depth), (columns, depth), trans_b=True)
    multiply = None if factors is None else multiplication(factors, dtype, tf32=False)
    if multiply is None:
        return None
    from onnxplug_ep_cuda.codegen.bound import BoundJob

    rest, number = BoundJob(job, faults), len(inputs) + len(outputs)

    def run(*operands: Any) -> None:
        import cupy

        multiply(operands[0], operands[1], cupy.ndarray((elements,), dtype, operands[number].data))
        rest(*operands)

    return Into(run, job.workspace)
