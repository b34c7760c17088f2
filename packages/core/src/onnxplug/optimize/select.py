"""Branches that cost less than branching: both are computed, and the condition selects.

What surrounds an If then is one straight line again, which providers fuse and compile; a loop whose body branched can run without
coming back for each trip.
"""

from __future__ import annotations

import math
from typing import Any

from onnxplug.contract.types import TensorType
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value

MOST = 4096
"""Elements that all nodes of both branches may make."""

TOTAL = frozenset(
    {
        "Abs", "Add", "And", "Ceil", "Clip", "Concat", "Cos", "Elu", "Equal", "Erf", "Exp", "Expand", "Flatten", "Floor", "Gelu", "Greater",
        "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log",
        "LogSoftmax", "Max", "Min", "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Reciprocal", "ReduceL1", "ReduceL2",
        "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape", "Round", "Selu",
        "Shape", "Sigmoid", "Sign", "Sin", "Softmax", "Softplus", "Softsign", "Sqrt", "Squeeze", "Sub", "Sum", "Swish", "Tanh",
        "ThresholdedRelu", "Transpose", "Unsqueeze", "Where", "Xor",
    }
)  # fmt: skip
"""Operators that give a result for whatever elements they are given, in no more time than it takes to read and write them."""
BY_SHAPES = frozenset({"Expand", "Reshape", "Squeeze", "Unsqueeze"}) | {op for op in TOTAL if op.startswith("Reduce")}
"""Those of them whose further operands may not fit the first."""
TOTAL_IN_FLOATS = frozenset({"Div", "Gemm", "MatMul", "Pow"})
MOST_PRODUCTS = 1 << 15
"""Multiplications of one matrix product: they take as long as it takes to branch."""


def select_branches(graph: Graph, context: Any) -> bool:
    """Replace an If of two small branches, in which nothing can fail, by their nodes and a Where for each result."""
    schema = graph.schemas.find("", "Where", graph.opset("") or 0)
    if schema is None:
        return False
    changed = False
    for node in list(graph.nodes):
        if node.op_type == "If" and node.domain == "" and _is_small(node):
            _select(graph, node, schema)
            changed = True
    return changed


def _is_small(node: Node) -> bool:
    condition, branches = node.inputs[0], list(node.subgraphs.values())
    asked = _shape(condition)
    if (
        asked is None
        or math.prod(asked) != 1
        or None in node.outputs
        or (condition is not None and condition.is_constant)
    ):
        return False
    made = [v for branch in branches for n in branch.nodes for v in n.outputs if v is not None]
    if not all(_is_total(n) for branch in branches for n in branch.nodes):
        return False
    shapes = list(map(_shape, made))
    if None in shapes or sum(math.prod(shape) for shape in shapes if shape is not None) > MOST:
        return False
    results = zip(*[branch.outputs for branch in branches], strict=True)
    return all(
        (shape := _shape(one)) is not None and shape == _shape(other) and len(shape) >= len(asked)
        and math.prod(shape) <= MOST and one.dtype == other.dtype
        for one, other in results
    )  # fmt: skip


def _is_total(node: Node) -> bool:
    if node.domain or node.subgraphs:
        return False
    if node.op_type in ("Gemm", "MatMul") and not _is_small_product(node):
        return False
    if node.op_type in TOTAL_IN_FLOATS:
        return all(v is not None and v.dtype is not None and v.dtype.kind in "fV" for v in node.inputs)
    if node.op_type in BY_SHAPES and not all(v is None or v.is_constant for v in node.inputs[1:]):
        return False
    return node.op_type in TOTAL


def _is_small_product(node: Node) -> bool:
    first, second, made = (_shape(v) for v in (*node.inputs[:2], node.outputs[0]))
    if not first or not second or made is None:
        return False
    depth = first[0] if node.attributes.get("transA", 0) else first[-1]
    return math.prod(made) * depth <= MOST_PRODUCTS


def _shape(value: Value | None) -> tuple[int, ...] | None:
    """The shape of a dense tensor of numbers, where all of it is known."""
    known = value is not None and isinstance(value.type, TensorType) and value.type.element != "string"
    return value.type.static_shape if known else None  # type: ignore[union-attr]


def _select(graph: Graph, node: Node, schema: Any) -> None:
    then, other = node.subgraphs["then_branch"], node.subgraphs["else_branch"]
    nodes = [*then.nodes, *other.nodes]
    for branch in (then, other):
        graph.initializers.update({v.name: v for v in branch.initializers.values()})
    for result, yes, no in zip(node.outputs, then.outputs, other.outputs, strict=True):
        assert result is not None
        name = graph.names.node(f"{node.name}_select")
        nodes.append(Node(name, "Where", "", schema.since_version, [node.inputs[0], yes, no], [result], schema=schema))
        nodes[-1].origin = node.origin
        result.type = yes.type
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = nodes
