"""GatherBlockQuantized: rows of a table of few bits, in floats."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.blocks import BlockRows
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.quantized import MS
from onnxplug_ep_cpu.codegen.lower.support import INTEGERS, attributes, require, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_kernels.ops.contrib_matmul import unpacked


def _supports(node: NodeView) -> str | None:
    data, indices, scales, zeros = [*node.inputs, None][:4]
    held = [v for v in (data, scales, zeros) if v is not None]
    if any(v.constant is None for v in held) or data is None or data.constant is None or data.constant.ndim != 2:
        return "only constant matrices are generated"
    given = attributes(node, bits=4, gather_axis=0, quantize_axis=1)
    if (
        data.dtype != np.uint8
        or given["bits"] not in (2, 4, 8)
        or (given["gather_axis"], given["quantize_axis"]) != (0, 1)
    ):
        return "only rows of packed numbers with blocks along them are generated"
    return typed(scales) or typed(indices, INTEGERS) or typed(node.outputs[0])


@lowering("GatherBlockQuantized", domain=MS, supports=_supports)
def gather_block_quantized(b: Lowering, node: NodeView) -> None:
    """Each row is turned into floats where it is wanted."""
    data, indices, scales, zeros = [*node.inputs, None][:4]
    (y,) = node.outputs
    assert data is not None and indices is not None and scales is not None and y is not None
    given = attributes(node, bits=4, block_size=128)
    bits, (count, size), lanes = int(given["bits"]), b.shape(data), b.target.lanes
    width = size * 8 // bits
    block = int(given["block_size"]) or width
    blocks, common = -(-width // block), block * bits // (8 * lanes)
    if size % lanes or block * bits % (8 * lanes) or b.shape(scales) != (count, blocks) or count == 0:
        raise Unsupported("blocks that are no whole vectors are not generated")
    step = b.prepared.packed(scales, "rows of blocks", np.ascontiguousarray)
    points = step
    if zeros is not None:
        held = zeros.constant
        assert held is not None
        require(None if held.shape == (count, -(-blocks * bits // 8)) else "the zero points do not suit the scales")
        points = b.prepared.packed(
            zeros,
            ("rows of blocks", bits, blocks),
            lambda array: np.ascontiguousarray(unpacked(np, array, bits)[:, :blocks], np.float32),
        )
    places, result = b.dense(indices), b.output(y)
    tables = [b.tensor_of(array).ref for array in (step, points)]
    args: list[int | Ref] = [result.ref, b.dense(data).ref, places.ref, *tables]
    args += [count, size // lanes, blocks, common, size, width]
    items = math.prod(places.shape)
    kernel = BlockRows(bits, 8 * places.itemsize, 2 ** (bits - 1) if zeros is None else None)
    b.program.call(kernel, args, items, items * size * 8.0 / bits / lanes, even=False)
