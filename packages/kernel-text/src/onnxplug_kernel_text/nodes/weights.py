"""MatMul of floats by a constant matrix of 2 or 4 bits behind a DequantizeLinear, as the MatMulNBits that reads the matrix packed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxplug.contract import EPFail, GraphView, NodeView, TensorSpec, ValueView
from onnxplug_kernel_text.nodes.call import NodeCall
from onnxplug_kernel_text.nodes.chains import element
from onnxplug_kernel_text.nodes.launch import Job
from onnxplug_kernel_text.nodes.nbits import matmul_nbits
from onnxplug_kernel_text.nodes.pattern import only_reader

FUSED = "weights"

_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4}
_FLOATS = frozenset({"float", "float16", "bfloat16"})
_WORD = 8
"""Weights of a word, which has one scale and one zero point."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """DequantizeLinear and MatMul, the factor on the left and the product; what MatMulNBits is told: its attributes and, by the names
    that the region has for them, packed weights, scales and zero points (left out where they are in the middle)."""

    nodes: Sequence[NodeView]
    x: ValueView
    y: ValueView
    attributes: Mapping[str, int]
    constants: Mapping[str, np.ndarray]


def patterns(graph: GraphView, taken: Callable[[NodeView], bool]) -> Iterator[Pattern]:
    """Every such product among nodes that ``taken`` does not name. No node is in two of them."""
    results = {id(value) for value in graph.outputs}
    for node in graph.nodes:
        if node.op_type == "MatMul" and not node.domain:
            found = _product(node, results)
            if found is not None and not any(taken(n) for n in found.nodes):
                yield found


def lowered(pattern: Pattern, specs: Mapping[str, TensorSpec]) -> Job:
    """The launches for known shapes; operands are the factor on the left, the constants and the result. EPFail where the shapes are none
    of a product's."""
    inputs = [specs[pattern.x.name], *(TensorSpec(a.dtype, a.shape) for a in pattern.constants.values())]
    job = matmul_nbits(NodeCall("MatMulNBits", 1, pattern.attributes, inputs, [specs[pattern.y.name]]))
    if job is None:
        depth, columns = pattern.attributes["K"], pattern.attributes["N"]
        raise EPFail(f"MatMul of {pattern.y.name}: {inputs[0].shape} is not multiplied by ({depth}, {columns})")
    return job


def _product(head: NodeView, results: set[int]) -> Pattern | None:
    x, weights, y = head.inputs[0], head.inputs[1], head.outputs[0]
    node = None if weights is None else weights.producer
    if x is None or y is None or node is None or node.op_type != "DequantizeLinear" or node.domain:
        return None
    if only_reader(weights, results) is None or element(x) not in _FLOATS or element(x) != element(weights):
        return None
    made = _packed(node)
    return None if made is None else Pattern([node, head], x, y, *made)


def _packed(node: NodeView) -> tuple[Mapping[str, int], Mapping[str, np.ndarray]] | None:
    """A DequantizeLinear of constants as attributes and operands of MatMulNBits; None for other weights, and for scales along the depth
    that are not those of blocks of whole words."""
    numbers, scale, zero = [*node.inputs, None][:3]
    type_, bits = element(numbers), _BITS.get(str(element(numbers)), 0)
    if numbers is None or scale is None or not bits or element(scale) not in _FLOATS:
        return None
    if any(v is not None and v.constant is None for v in (numbers, scale, zero)):
        return None
    matrix, scales = np.asarray(numbers.constant), np.asarray(scale.constant)
    if matrix.ndim != 2 or 0 in matrix.shape:
        return None
    depth, columns = matrix.shape
    axis, block = node.attributes.get("axis", 1) % 2, node.attributes.get("block_size", 0)
    if block and (axis or block % _WORD or scales.shape != (-(-depth // block), columns)):
        return None
    if not block and scales.size > 1 and (not axis or scales.shape != (columns,)):
        return None
    block = block or -(-depth // _WORD) * _WORD
    shape = (-(-depth // block), columns)
    middle = 1 << bits - 1 if type_ is not None and type_.startswith("int") else 0
    made = {numbers.name: _by_column(matrix.astype(np.int8) + middle, bits, block * shape[0])}
    made[scale.name] = np.ascontiguousarray(np.broadcast_to(scales, shape).T)
    if zero is not None or not middle:
        points = np.int8(0) if zero is None else np.asarray(zero.constant).astype(np.int8)
        words = -(-shape[0] * bits // 8) * 8 // bits
        name = f"{numbers.name} zero" if zero is None else zero.name
        made[name] = _by_column(np.broadcast_to(points + middle, shape), bits, words)
    return {"K": depth, "N": columns, "block_size": block, "bits": bits}, made


def _by_column(numbers: np.ndarray, bits: int, length: int) -> np.ndarray:
    """The columns of a matrix as rows of bytes, lowest bits first, filled up to ``length`` numbers."""
    rows = np.zeros((numbers.shape[1], length), np.uint8)
    rows[:, : numbers.shape[0]] = numbers.T
    each = rows.reshape(len(rows), -1, 8 // bits) << np.arange(0, 8, bits, dtype=np.uint8)
    packed: np.ndarray = np.bitwise_or.reduce(each, axis=-1)
    return packed
