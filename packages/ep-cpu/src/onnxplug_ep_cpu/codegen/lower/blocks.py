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

_BYTES = 16
"""The longest vector of bytes that is turned into floats at once; rows are made of them, and they of blocks or blocks of them."""


def _sizes(dtype: np.dtype, width: int, bits: int, block: int) -> tuple[int, int, int]:
    """Bits of a number, and bytes of a row and of a block of them, two numbers of 4 bits being a byte."""
    if dtype != np.uint8:
        return 4, 1 if width % 2 else width // 2, block // 2 or width // 2
    return bits, width, block * bits // 8 or width


def _supports(node: NodeView) -> str | None:
    data, indices, scales, zeros = [*node.inputs, None][:4]
    held = [v for v in (data, scales, zeros) if v is not None]
    if any(v.constant is None for v in held) or data is None or data.constant is None or data.constant.ndim != 2:
        return "only constant matrices are generated"
    given = attributes(node, bits=4, gather_axis=0, quantize_axis=1)
    if (
        (data.dtype != np.uint8 and data.constant.dtype.name not in ("int4", "uint4"))
        or (data.dtype == np.uint8 and given["bits"] not in (2, 4, 8))
        or (given["gather_axis"], given["quantize_axis"]) != (0, 1)
    ):
        return "only rows of packed numbers with blocks along them are generated"
    together = int(node.attributes.get("block_size", 128))
    _, row, block = _sizes(data.constant.dtype, data.constant.shape[1], given["bits"], together)
    if (
        not row
        or together in (1, 2, 4, 8)
        or together & (together - 1)
        or row % _BYTES
        or (block % _BYTES and _BYTES % block)
    ):
        return "rows or blocks that are no whole vectors are not generated"
    return typed(scales) or typed(indices, INTEGERS) or typed(node.outputs[0])


@lowering("GatherBlockQuantized", domain=MS, supports=_supports)
def gather_block_quantized(b: Lowering, node: NodeView) -> None:
    """Each row is turned into floats where it is wanted."""
    data, indices, scales, zeros = [*node.inputs, None][:4]
    (y,) = node.outputs
    assert data is not None and indices is not None and scales is not None and y is not None
    given = attributes(node, bits=4, block_size=128)
    assert data.dtype is not None
    (count, columns), lanes, form = b.shape(data), b.target.lanes, data.dtype.name
    packed, half = form == "uint8", 8 if form == "int4" else 0
    bits, size, block = _sizes(data.dtype, columns, int(given["bits"]), int(given["block_size"]))
    width, blocks = size * 8 // bits, -(-size // block)
    if b.shape(scales) != (count, blocks) or count == 0:
        raise Unsupported("scales that do not suit the rows are not generated")
    step = b.prepared.packed(scales, "rows of blocks", np.ascontiguousarray)
    points, zero = step, 2 ** (bits - 1) if packed else half
    if zeros is not None:
        held = zeros.constant
        assert held is not None
        fits = held.shape == (count, -(-blocks * bits // 8) if packed else blocks)
        require(None if fits else "the zero points do not suit the scales")

        def numbers(array: np.ndarray) -> np.ndarray:
            whole = unpacked(np, array, bits)[:, :blocks] if packed else array.astype(np.float32) + half
            return np.ascontiguousarray(whole, np.float32)

        points = b.prepared.packed(zeros, ("rows of blocks", form, bits, blocks), numbers)
    table = b.dense(data) if packed else b.tensor_of(b.prepared.packed(data, "rows", lambda array: _pairs(array, half)))
    places, result = b.dense(indices), b.output(y)
    tables = [b.tensor_of(array).ref for array in (step, points)]
    args: list[int | Ref] = [result.ref, table.ref, places.ref, *tables]
    args += [count, size // lanes, blocks, max(1, block // lanes), size, width]
    items = math.prod(places.shape)
    kernel = BlockRows(bits, 8 * places.itemsize, zero if zeros is None else None, max(1, lanes // block))
    b.program.call(kernel, args, items, items * size * 8.0 / bits / lanes, even=False)


def _pairs(array: np.ndarray, half: int) -> np.ndarray:
    """Numbers of 4 bits as bytes of two codes from 0 on, the first in the lower bits."""
    codes = (array.astype(np.int8) + half).astype(np.uint8)
    return codes[:, ::2] | codes[:, 1::2] << 4
