"""Products with constant weights that are dequantized in blocks along k: what MatMulNBits is, and onnxruntime makes of them. Weights
with one scale for a column, or for all, are blocks of equal scales, unless both operands are bytes."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen.fuse import Group, Nodes, pattern, readers_of
from onnxplug_ep_cpu.codegen.kernels.digits import CHUNK
from onnxplug_ep_cpu.codegen.kernels.nbits import VECTORS
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.nbits import Weights, by_panel, words_of, write_product
from onnxplug_ep_cpu.codegen.lower.support import typed

BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
_SHARED = 128
"""Numbers of an operand that may share a unit, where no blocks are given: what is far smaller than the largest loses digits."""
_WORD = 32
"""Bits that kernels unpack together; blocks are made of them."""


def _weights(node: NodeView) -> NodeView | None:
    """The DequantizeLinear that makes a product's right operand, and nothing else's."""
    value = node.inputs[1]
    maker = None if value is None else value.producer
    if value is None or maker is None or maker.op_type != "DequantizeLinear" or len(readers_of(value)) != 1:
        return None
    data = maker.inputs[0]
    if any(v is not None and v.constant is None for v in maker.inputs) or data is None:
        return None
    array = data.constant
    if array is None or array.ndim != 2 or not array.size or array.dtype.name not in BITS:
        return None
    turned = _is_turned(node)
    k, n = array.shape[::-1] if turned else array.shape
    block, bits = maker.attributes.get("block_size", 0), BITS[array.dtype.name]
    by_column = maker.attributes.get("axis", 1) % 2 != turned
    if not block:
        shapes = {v.shape for v in maker.inputs[1:] if v is not None}
        fits = (bits < 8 or not _is_dequantized(node.inputs[0])) and k * bits % _WORD == 0
        fits = fits and shapes in ([{()}, {(n,)}] if by_column else [{()}])
    else:
        fits = not by_column and k % block == 0 and block * bits % _WORD == 0
        blocks = (n, k // block) if turned else (k // block, n)
        fits = fits and all(v is None or v.shape == blocks for v in maker.inputs[1:])
    floats = not any(typed(v) for v in (node.inputs[0], maker.inputs[1], value))
    return maker if fits and floats else None


def _is_turned(node: NodeView) -> bool:
    """Whether the right operand has its columns first."""
    return bool(node.op_type == "Gemm" and node.attributes.get("transB", 0))


def _is_dequantized(value: ValueView | None) -> bool:
    return value is not None and value.producer is not None and value.producer.op_type == "DequantizeLinear"


@pattern("MatMul")
@pattern("Gemm")
def product_of_blocks(node: NodeView, nodes: Nodes) -> Group | None:
    """A product whose weights stay as they are."""
    maker = _weights(node)
    if maker is None or nodes.maker(node.inputs[1], "DequantizeLinear") is not maker:
        return None
    if node.op_type == "Gemm":
        given = node.attributes
        if given.get("transA", 0) or given.get("alpha", 1.0) != 1 or given.get("beta", 1.0) != 1:
            return None
    return Group((maker, node), lambda b: _lower(b, maker, node))


def _lower(b: Lowering, maker: NodeView, node: NodeView) -> bool:
    (w, scales, *rest), (x, _, *added), (y,) = maker.inputs, node.inputs, node.outputs
    assert w is not None and scales is not None and x is not None and y is not None
    points = rest[0] if rest else None
    assert w.constant is not None and w.dtype is not None
    turned = _is_turned(node)

    def numbers(array: np.ndarray) -> np.ndarray:
        """Weights, or a number for each block of them, along k first."""
        return array.T if turned and array.ndim == 2 else array

    (k, n), bits, width = numbers(w.constant).shape, BITS[w.dtype.name], VECTORS * b.target.lanes
    half = 2 ** (bits - 1) if w.dtype.name.startswith("int") else 0
    block = maker.attributes.get("block_size", 0) or (math.gcd(k, _SHARED) if k % CHUNK == 0 else k)
    shape, form = (k // block, n), (width, turned)
    packed = b.prepared.packed(
        w, ("blocks", *form), lambda array: words_of(_codes(numbers(array), half, bits), n, width)
    )
    step = b.prepared.packed(
        scales, ("blocks", shape, *form), lambda array: by_panel(np.broadcast_to(numbers(array), shape).T, width)
    )
    offset, zero = step, half
    if points is not None or not half:
        zeros = np.float32(0) if points is None or points.constant is None else points.constant.astype(np.float32)
        zero = None
        offset = b.prepared.packed(
            scales,
            ("offsets of blocks", shape, *form, half, None if points is None else points.name),
            lambda array: by_panel(np.broadcast_to(numbers(-(zeros + half) * array), shape).T, width),
        )
    write_product(b, Weights(bits, block, k, n, packed, step, offset, zero), x, y, added[0] if added else None)
    return True


def _codes(array: np.ndarray, half: int, bits: int) -> np.ndarray:
    """[k, n] numbers as bytes [n, ...] of codes from 0 on, lower bits first along k."""
    codes, together = (array.astype(np.int16) + half).astype(np.uint8).T, 8 // bits
    made = codes[:, ::together].copy()
    for place in range(1, together):
        made |= codes[:, place::together] << bits * place
    return made
