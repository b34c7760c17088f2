"""Which nodes make chains: element-wise operators whose text there is, in types that kernel text has."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract import GraphView, NodeView, TensorType, ValueView, convex_groups
from onnxplug_kernel_text.expression import OPERATORS
from onnxplug_kernel_text.types import OF_ELEMENT

FUSED = "elementwise"

_BROADCASTING = 7
"""From this version of Add and its like on, operands are broadcast as in NumPy."""
_LEFT = frozenset({"Identity", "BitShift", "Clip", "Mean", "Shrink"})
"""Operators with text that chains leave out: a mere name, attributes of unusual types, operands that may be missing."""
_HALVES = frozenset({"float16", "bfloat16"})


def fusable(node: NodeView) -> bool:
    """Whether a node may be part of a chain."""
    if node.domain or node.op_type not in OPERATORS or node.op_type in _LEFT:
        return False
    if "axis" in node.attributes or "consumed_inputs" in node.attributes or "broadcast" in node.attributes:
        return False
    if len(node.inputs) > 1 and node.since_version < _BROADCASTING:
        return False
    values = (*node.inputs, *node.outputs)
    if any(value is None or element(value) not in OF_ELEMENT for value in values):
        return False
    # Within a kernel halves are held as float32, so a conversion to them would not round.
    return node.op_type not in ("Cast", "CastLike") or element(node.outputs[0]) not in _HALVES


def element(value: ValueView | None) -> str | None:
    """ONNX's name of a tensor's elements, None for other values and unknown types."""
    return value.type.element if value is not None and isinstance(value.type, TensorType) else None


def chains(graph: GraphView, taken: Callable[[NodeView], bool]) -> list[list[NodeView]]:
    """Groups of at least two such nodes that ``taken`` does not name."""
    groups = convex_groups(graph, lambda node: not taken(node) and fusable(node))
    return [group for group in groups if len(group) > 1]
