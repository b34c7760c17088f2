"""MatMulNBits and GatherBlockQuantized of domain com.microsoft: weights stay packed on the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call
from onnxplug_ep_opencl.kernels.elementwise import launch
from onnxplug_ep_opencl.kernels.lines import alone
from onnxplug_ep_opencl.kernels.shared import described, unfit, whole_groups
from onnxplug_ep_opencl.launch import Job, Launch
from onnxplug_kernel_text.layout import space
from onnxplug_kernel_text.nodes.launch import Job as Described
from onnxplug_kernel_text.nodes.nbits import FewBits, few_bits, gather_blocks, matmul_nbits
from onnxplug_kernel_text.packed_product import COLUMNS, packed_product

_BITS = (2, 4, 8)
_WORD = 8
"""Weights that a kernel reads together, which lie in one block."""


def matmul(call: Call) -> Job:
    """The launches; EPFail where the device's groups are too small to share tiles."""
    made, lanes = few_bits(call), call.target.vector // 4
    lanes = next((n for n in (16, 8) if n <= lanes and made is not None and made.block % n == 0), 0)
    if made is not None and lanes and call.target.registers:
        return _by_columns(call, made, lanes)
    grouped = matmul_nbits(call)
    if grouped is None:
        unfit(call)
    return whole_groups(call.target, call.op_type, grouped)


def _by_columns(call: Call, made: FewBits, lanes: int) -> Job:
    """The launches for a processor: rows are floats first, as long as all blocks."""
    target, rows, width, (a, *others) = call.target, made.rows, made.blocks * made.block, made.tensors
    launches, used = list[Launch](), 0
    if made.form.type != "f32" or width > made.depth:
        wide, behind = call.scratch(4), width - made.depth
        walked = space((rows, made.depth), [(made.depth, 1), (width, 1)])
        launches += launch(target, "wide", [(a, made.form.type)], [(wide, "f32")], walked, "y0 = x0;")
        ends = replace(wide, offset=made.depth)
        launches += launch(target, "ends", [], [(ends, "f32")], space((rows, behind), [(width, 1)]), "y0 = 0;")
        a, used = wide, 4 * rows * width
    text = packed_product(call.op_type, made.form, lanes)
    scalars = [np.int64(n) for n in (rows, made.columns, made.blocks, made.block)]
    launches.append(Launch(text, call.op_type, (a, *others), scalars, (-(-made.columns // COLUMNS),), (1,)))
    return Job(launches, used)


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
