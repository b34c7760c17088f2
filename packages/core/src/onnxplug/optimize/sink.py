"""Shape arithmetic before a loop that its body reads: computed in the body instead, where it costs nothing.

A body's plan knows the shapes of what the body captures, not what is in it. An array of sizes that comes from outside would leave open
whatever is reshaped, expanded or counted by it; computed from the captured tensor's shape, the plan has it before anything runs.
"""

from __future__ import annotations

import math
from typing import Any

from onnxplug.contract.types import TensorType
from onnxplug.graph.infer import infer_parts
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value

MOST = 64
"""Elements of an array of sizes."""
LONGEST = 24
"""Nodes that make one."""

_ASKS = frozenset({"Shape", "Size"})
_ARITHMETIC = frozenset(
    {
        "Add", "Cast", "Concat", "Div", "Gather", "Identity", "Max", "Min", "Mod", "Mul", "Neg", "ReduceProd", "Reshape", "Slice",
        "Squeeze", "Sub", "Unsqueeze",
    }
)  # fmt: skip


def sink_shapes(graph: Graph, context: Any) -> bool:
    """Let the bodies of Loops and Scans compute the sizes they read of what is outside."""
    changed: set[Node] = set()
    for node in graph.nodes:
        if node.op_type not in ("Loop", "Scan") or node.domain:
            continue
        body = node.subgraphs["body"]
        for value in node.captures:
            made = _arithmetic(value)
            if made:
                _sink(body, value, made)
                changed.add(node)
    if changed:
        graph.refresh()
        infer_parts(graph, changed)
    return bool(changed)


def _arithmetic(value: Value) -> list[Node]:
    """The nodes that compute a value from shapes and constants, in order; none where anything else is in it."""
    order: list[Node] = []
    known: set[Value] = set()

    def follow(value: Value | None) -> bool:
        if value is None or value.is_constant or value in known:
            return True
        node = value.producer
        if node is None or node.domain or len(node.outputs) != 1 or not _is_small(value) or len(order) >= LONGEST:
            return False
        if node.op_type not in _ASKS and not (node.op_type in _ARITHMETIC and all(map(follow, node.inputs))):
            return False
        known.add(value)
        order.append(node)
        return len(order) <= LONGEST

    return order if follow(value) else []


def _is_small(value: Value) -> bool:
    shape = value.type.static_shape if isinstance(value.type, TensorType) else None
    return shape is not None and math.prod(shape) <= MOST and value.dtype is not None and value.dtype.kind in "ib"


def _sink(body: Graph, value: Value, nodes: list[Node]) -> None:
    """Compute ``value`` in the body, at its beginning."""
    news: dict[Value, Value] = {}
    copies = []
    for node in nodes:
        (old,) = node.outputs
        assert old is not None
        new = news[old] = Value(body.names.value(old.name), old.type)
        new.is_noted = old.is_noted
        made = node.twin([v if v is None else news.get(v, v) for v in node.inputs], [new])
        made.name = body.names.node(node.name)
        copies.append(made)
    body.replace({value: news[value]})
    body.nodes[:0] = copies
