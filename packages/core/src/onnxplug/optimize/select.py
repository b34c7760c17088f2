"""Branches that cost less than branching: both are computed, and the condition selects.

What surrounds an If then is one straight line again, which providers fuse and compile; a loop whose body branched can run without
coming back for each trip.
"""

from __future__ import annotations

import math
from typing import Any

from onnxplug.contract.types import TensorType
from onnxplug.graph.infer_slices import axes_of
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.schemas import RANDOM
from onnxplug.graph.value import Value
from onnxplug.optimize.offsets import is_there_in_trips

MOST = 4096
"""Elements that all nodes of both branches may make."""

TOTAL = frozenset(
    {
        "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "Cos", "Elu", "Equal", "Erf", "Exp", "Expand", "Flatten", "Floor",
        "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less",
        "LessOrEqual", "Log", "LogSoftmax", "Max", "Min", "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Reciprocal", "ReduceL1",
        "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape",
        "Round", "Selu", "Shape", "Sigmoid", "Sign", "Sin", "Softmax", "Softplus", "Softsign", "Sqrt", "Squeeze", "Sub", "Sum",
        "Swish", "Tanh", "ThresholdedRelu", "Transpose", "Unsqueeze", "Where", "Xor",
    }
)  # fmt: skip
"""Operators that give a result for whatever elements they are given, in no more time than it takes to read and write them."""
BY_SHAPES = frozenset({"Expand", "Reshape", "Squeeze", "Unsqueeze"}) | {op for op in TOTAL if op.startswith("Reduce")}
"""Those of them whose further operands may not fit the first."""
TOTAL_IN_FLOATS = frozenset({"Div", "Gemm", "MatMul", "Pow"})
OPEN = 8
"""What a size is taken for that data decide."""
MOST_PRODUCTS = 1 << 16
"""Multiplications of one matrix product: they take as long as it takes to branch."""


def select_branches(graph: Graph, context: Any) -> bool:
    """Replace an If of two small branches, in which nothing can fail, by their nodes and a Where for each result; one whose branches
    are the same operator, whatever it is, by the operator and a Where for each operand that they have otherwise."""
    schema = graph.schemas.find("", "Where", graph.opset("") or 0)
    if schema is None:
        return False
    changed = False
    for node in list(graph.nodes):
        if node.op_type != "If" or node.domain:
            continue
        if (places := _different(node)) is not None:
            _select_operands(graph, node, schema, places)
        elif _is_small(graph, node):
            _select(graph, node, schema)
        else:
            continue
        changed = True
    return changed


def _is_small(graph: Graph, node: Node) -> bool:
    branches = list(node.subgraphs.values())
    if not _is_asked_once(node):
        return False
    made = [v for branch in branches for n in branch.nodes for v in n.outputs if v is not None]
    if not all(_is_total(n) or _is_row(graph, n) for branch in branches for n in branch.nodes):
        return False
    shapes = [_stretch(v) or _shape(v) for v in made]
    if None in shapes or sum(math.prod(shape) for shape in shapes if shape is not None) > MOST:
        return False
    results = zip(*[branch.outputs for branch in branches], strict=True)
    return all(_are_alike(node, one, other) for one, other in results)


def _is_total(node: Node) -> bool:
    if node.domain or node.subgraphs:
        return False
    if node.op_type in ("Gemm", "MatMul") and not _is_small_product(node):
        return False
    if node.op_type == "Slice":
        return _stretch(node.outputs[0]) is not None
    if node.op_type in TOTAL_IN_FLOATS:
        return all(v is not None and v.dtype is not None and v.dtype.kind in "fV" for v in node.inputs)
    if node.op_type in BY_SHAPES and not all(v is None or v.is_constant for v in node.inputs[1:]):
        return False
    return node.op_type in TOTAL


def _is_row(graph: Graph, node: Node) -> bool:
    """Whether a Gather takes what is there in each trip of the Loop whose body ``graph`` is."""
    if node.op_type != "Gather" or node.domain or node.attributes.get("axis", 0):
        return False
    source, place = node.inputs
    return source is not None and place is not None and is_there_in_trips(graph.owner, place, source)


def _is_small_product(node: Node) -> bool:
    first, second, made = (_shape(v) for v in (*node.inputs[:2], node.outputs[0]))
    if not first or not second or made is None:
        return False
    depth = first[0] if node.attributes.get("transA", 0) else first[-1]
    return math.prod(made) * depth <= MOST_PRODUCTS


def _shape(value: Value | None) -> tuple[int, ...] | None:
    """The shape of a dense tensor of numbers, where all of it is known."""
    type_ = None if value is None else value.type
    return type_.static_shape if isinstance(type_, TensorType) and type_.element != "string" else None


def _stretch(value: Value | None) -> tuple[int, ...] | None:
    """The shape that is taken for what a Slice cuts at one place that data decide, where nothing but reductions to known shapes reads
    it; None where something else may come of it."""
    node = None if value is None else value.producer
    axes = None if node is None else axes_of(node)
    if value is None or node is None or axes is None or len(axes) != 1:
        return None
    steps = node.inputs[4] if len(node.inputs) > 4 else None
    if any(v is None or v.shape != (1,) for v in node.inputs[1:3]):
        return None
    if steps is not None and (steps.constant is None or (steps.constant != 1).any()):
        return None
    shape = value.shape
    reduced = all(n.op_type.startswith("Reduce") and not n.domain and n.inputs[0] is value for n in value.consumers)
    if shape is None or not value.consumers or not reduced:
        return None
    return tuple(n if isinstance(n, int) else OPEN for n in shape)


def _different(node: Node) -> list[int] | None:
    """Of an If whose branches are one node each, alike but for operands from outside of known sizes: the places of these."""
    branches = [node.subgraphs["then_branch"], node.subgraphs["else_branch"]]
    if any(len(branch.nodes) != 1 for branch in branches) or not _is_asked_once(node):
        return None
    (yes,), (no,) = (branch.nodes for branch in branches)
    if any(branch.outputs != made.outputs for branch, made in zip(branches, (yes, no), strict=True)):
        return None
    if (yes.domain, yes.op_type, yes.since_version, yes.overload) != (
        no.domain,
        no.op_type,
        no.since_version,
        no.overload,
    ):
        return None
    if yes.subgraphs or yes.op_type in RANDOM or yes.signature != no.signature or len(yes.inputs) != len(no.inputs):
        return None
    places = [at for at, (one, other) in enumerate(zip(yes.inputs, no.inputs, strict=True)) if one is not other]
    pairs = [(yes.inputs[at], no.inputs[at]) for at in places]
    return places if places and all(_are_alike(node, one, other) for one, other in pairs) else None


def _is_asked_once(node: Node) -> bool:
    """Whether the condition of an If that gives all its results is computed and one element."""
    asked = _shape(node.inputs[0])
    constant = node.inputs[0] is not None and node.inputs[0].is_constant
    return asked is not None and math.prod(asked) == 1 and None not in node.outputs and not constant


def _are_alike(node: Node, one: Value | None, other: Value | None) -> bool:
    """Whether one of two values can be selected."""
    shape, asked = _shape(one), _shape(node.inputs[0])
    return (
        one is not None and other is not None and shape is not None and asked is not None and shape == _shape(other)
        and len(shape) >= len(asked) and math.prod(shape) <= MOST and one.dtype == other.dtype
    )  # fmt: skip


def _select_operands(graph: Graph, node: Node, schema: Any, places: list[int]) -> None:
    (yes,), (no,) = node.subgraphs["then_branch"].nodes, node.subgraphs["else_branch"].nodes
    for branch in node.subgraphs.values():
        graph.initializers.update({v.name: v for v in branch.initializers.values()})
    inputs, nodes = list(yes.inputs), []
    for at in places:
        one, other = yes.inputs[at], no.inputs[at]
        assert one is not None and other is not None
        inputs[at] = Value(graph.names.value(f"{node.name}_operand"), one.type)
        nodes.append(_where(graph, node, schema, one, other, inputs[at]))
    made = yes.twin(inputs, node.outputs)
    made.origin = node.origin
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = [*nodes, made]


def _where(graph: Graph, node: Node, schema: Any, yes: Value, no: Value, result: Value | None) -> Node:
    name = graph.names.node(f"{node.name}_select")
    made = Node(name, "Where", "", schema.since_version, [node.inputs[0], yes, no], [result], schema=schema)
    made.origin = node.origin
    return made


def _select(graph: Graph, node: Node, schema: Any) -> None:
    then, other = node.subgraphs["then_branch"], node.subgraphs["else_branch"]
    nodes = [*then.nodes, *other.nodes]
    for branch in (then, other):
        graph.initializers.update({v.name: v for v in branch.initializers.values()})
    for result, yes, no in zip(node.outputs, then.outputs, other.outputs, strict=True):
        assert result is not None
        nodes.append(_where(graph, node, schema, yes, no, result))
        result.type = yes.type
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = nodes
