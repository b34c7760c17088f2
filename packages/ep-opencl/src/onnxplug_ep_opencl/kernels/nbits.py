"""MatMulNBits and GatherBlockQuantized of domain com.microsoft: weights stay packed on the device."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call
from onnxplug_ep_opencl.kernels.lines import alone
from onnxplug_ep_opencl.kernels.shared import described, unfit, whole_groups
from onnxplug_ep_opencl.launch import Job
from onnxplug_kernel_text.nodes.launch import Job as Described
from onnxplug_kernel_text.nodes.nbits import gather_blocks, matmul_nbits

_BITS = (2, 4, 8)
_WORD = 8
"""Weights that a kernel reads together, which lie in one block."""


def matmul(call: Call) -> Job:
    """The launches; EPFail where the device's groups are too small to share tiles."""
    made = matmul_nbits(call)
    if made is None:
        unfit(call)
    return whole_groups(call.target, call.op_type, made)


def otherwise(node: NodeView) -> str | None:
    """Weights that lie otherwise."""
    bits, block = node.attributes.get("bits", 4), node.attributes.get("block_size", 0)
    if node.attributes.get("weight_prepacked", 0):
        return "weight_prepacked"
    return None if bits in _BITS and block % _WORD == 0 else f"{bits} bits in blocks of {block}"


@described
def gather(call: Call) -> Described | None:
    """GatherBlockQuantized."""
    return gather_blocks(call, alone(call.target))


def unblocked(node: NodeView) -> str | None:
    """Tables that are not matrices of bytes with a scale for each block of each row."""
    attributes = {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1, **node.attributes}
    table, _, *others = node.inputs
    ranks = {None if v.shape is None else len(v.shape) for v in (table, *others) if v is not None}
    if ranks != {2} or attributes["gather_axis"] not in (0, -2) or attributes["quantize_axis"] not in (1, -1):
        return "rows of matrices only, with blocks along them"
    bits, block = attributes["bits"], attributes["block_size"]
    return None if bits in _BITS and block > 0 else f"{bits} bits in blocks of {block}"
