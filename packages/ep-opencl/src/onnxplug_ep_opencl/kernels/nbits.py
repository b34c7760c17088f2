"""MatMulNBits of domain com.microsoft: weights stay packed on the device."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call
from onnxplug_ep_opencl.kernels.shared import whole_groups
from onnxplug_ep_opencl.launch import Job
from onnxplug_kernel_text.nodes.nbits import matmul_nbits

_BITS = (2, 4, 8)
_WORD = 8
"""Weights that a kernel reads together, which lie in one block."""


def matmul(call: Call) -> Job:
    """The launches; EPFail where the device's groups are too small to share tiles."""
    made = matmul_nbits(call)
    assert made is not None
    return whole_groups(call.target, call.op_type, made)


def otherwise(node: NodeView) -> str | None:
    """Weights that lie otherwise."""
    bits, block = node.attributes.get("bits", 4), node.attributes.get("block_size", 0)
    if node.attributes.get("weight_prepacked", 0):
        return "weight_prepacked"
    return None if bits in _BITS and block % _WORD == 0 else f"{bits} bits in blocks of {block}"
