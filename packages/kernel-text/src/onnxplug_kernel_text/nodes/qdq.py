"""Conv and MatMul of floats between DequantizeLinear and QuantizeLinear, as the convolution or product of the integers behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnxplug.contract import EPFail, GraphView, NodeView, TensorSpec, ValueView
from onnxplug_kernel_text.nodes.call import NodeCall
from onnxplug_kernel_text.nodes.chains import element
from onnxplug_kernel_text.nodes.integers import Multiplication, grouped, qlinear_conv, qlinear_matmul
from onnxplug_kernel_text.nodes.launch import Job
from onnxplug_kernel_text.nodes.pattern import only_reader

FUSED = "quantized"

_BYTES = frozenset({"int8", "uint8"})
_SAME = 1e-5
"""How far the scale of a bias may be from the product of the other two, relatively."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """The nodes, and the values as QLinearConv or QLinearMatMul takes them: x, w with scale and zero point each, scale and zero point of
    y, for a convolution the bias. ``relu``: there is a Relu before the result is quantized."""

    nodes: Sequence[NodeView]
    head: NodeView
    values: Sequence[ValueView | None]
    y: ValueView
    relu: bool


def patterns(graph: GraphView, taken: Callable[[NodeView], bool]) -> Iterator[Pattern]:
    """Every such product among nodes that ``taken`` does not name. No node is in two of them."""
    results = {id(value) for value in graph.outputs}
    for node in graph.nodes:
        if node.op_type in ("Conv", "MatMul") and not node.domain:
            found = _around(node, results)
            if found is not None and not any(taken(n) for n in found.nodes):
                yield found


def _around(head: NodeView, results: set[int]) -> Pattern | None:
    convolution = head.op_type == "Conv"
    after, between = only_reader(head.outputs[0], results), list[NodeView]()
    if after is not None and after.op_type == "Relu" and not after.domain:
        between, after = [after], only_reader(after.outputs[0], results)
    x, w = (_dequantized(value, results) for value in head.inputs[:2])
    if x is None or w is None or x is w or not _quantizes(after) or not _whole(x):
        return None
    assert after is not None
    weights = w.inputs[0]
    if weights is None or weights.shape is None or element(x.inputs[0]) not in _BYTES or element(weights) not in _BYTES:
        return None
    axis, rank = w.attributes.get("axis", 1), len(weights.shape)
    if not _whole(w) and axis % rank != (0 if convolution else rank - 1):
        return None
    if not convolution and not _multiplied(x.inputs[0], weights, each=not _whole(w)):
        return None
    nodes, values = [x, w, head, *between, after], [*_three(x), *_three(w), *after.inputs[1:3]]
    if convolution and len(head.inputs) > 2 and head.inputs[2] is not None:
        bias = _dequantized(head.inputs[2], results)
        if bias is None or not _scaled(bias, x, w):
            return None
        nodes.append(bias)
        values.append(bias.inputs[0])
    y = after.outputs[0]
    return None if y is None else Pattern(nodes, head, values, y, bool(between))


def multiplication(pattern: Pattern, call: NodeCall) -> Multiplication:
    """The product as which a pattern is computed; operands of the ``call`` are the pattern's values and its result. EPFail where the
    shapes are none of a product's."""
    made = (qlinear_conv if pattern.head.op_type == "Conv" else qlinear_matmul)(call, relu=pattern.relu)
    if made is None:
        shapes = [spec.shape for spec in call.inputs if spec is not None]
        raise EPFail(f"{pattern.head.op_type} of {pattern.y.name}: no product of integers has operands of {shapes}")
    return made


def lowered(pattern: Pattern, specs: Mapping[str, TensorSpec]) -> Job:
    """The launches for known shapes, by tiles in local memory; operands are the pattern's values and its result."""
    head = pattern.head
    inputs = [None if v is None else specs[v.name] for v in pattern.values]
    call = NodeCall(f"QLinear{head.op_type}", 10, head.attributes, inputs, [specs[pattern.y.name]])
    return grouped(call.op_type, multiplication(pattern, call))


def _dequantized(value: ValueView | None, results: set[int]) -> NodeView | None:
    """The DequantizeLinear that makes a value for one reader only, its parameters constants in float32."""
    node = None if value is None else value.producer
    if (
        value is None
        or node is None
        or node.op_type != "DequantizeLinear"
        or node.domain
        or only_reader(value, results) is None
    ):
        return None
    return node if not node.attributes.get("block_size", 0) and _constant(node) and element(value) == "float" else None


def _quantizes(node: NodeView | None) -> bool:
    """A QuantizeLinear to bytes with one scale and one zero point."""
    if node is None or node.op_type != "QuantizeLinear" or node.domain or node.attributes.get("block_size", 0):
        return False
    given = len(node.inputs) > 2 and node.inputs[2] is not None
    return given and _constant(node) and _whole(node) and element(node.outputs[0]) in _BYTES


def _constant(node: NodeView) -> bool:
    """Constant parameters: a scale in float32, its zero point."""
    scale = node.inputs[1]
    known = all(v is None or v.constant is not None for v in node.inputs[1:])
    return (
        known
        and scale is not None
        and element(scale) == "float"
        and scale.constant is not None
        and scale.constant.ndim < 2
    )


def _whole(node: NodeView) -> bool:
    """One scale for all elements."""
    return all(v is None or (v.constant is not None and v.constant.size == 1) for v in node.inputs[1:])


def _three(node: NodeView) -> list[ValueView | None]:
    """Numbers, scale and zero point of a DequantizeLinear."""
    return [*node.inputs, None][:3]


def _multiplied(a: ValueView | None, b: ValueView, *, each: bool) -> bool:
    """Whether the batches of two factors are one batch; with a scale for ``each`` column of b, that b is a matrix."""
    if a is None or a.shape is None or b.shape is None or min(len(a.shape), len(b.shape)) < 2:
        return False
    return len(b.shape) == 2 or (not each and tuple(a.shape[:-2]) == tuple(b.shape[:-2]))


def _scaled(bias: NodeView, x: NodeView, w: NodeView) -> bool:
    """Whether a bias counts in products of the other two scales."""
    scales = [
        np.asarray(v.constant, np.float64).reshape(-1) for node in (bias, x, w) if (v := node.inputs[1]) is not None
    ]
    zero = bias.inputs[2] if len(bias.inputs) > 2 else None
    plain = zero is None or (zero.constant is not None and not np.any(zero.constant))
    return (
        plain
        and element(bias.inputs[0]) == "int32"
        and bool(np.allclose(scales[0], scales[1] * scales[2], rtol=_SAME, atol=0))
    )
