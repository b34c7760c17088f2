"""Which branches of a graph the shapes of one signature decide.

Exporters write an If for what depends on a rank or on the size of a dimension (a squeeze of dimensions of size 1, a batch that may
be missing). Shape arithmetic gives its condition before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxplug.contract.kernels import TensorSpec
from onnxplug.graph.ir import Graph, Node, Value
from onnxplug.graph.schemas import Evaluate
from onnxplug.plan.infer import Inference
from onnxplug.plan.specs import of_constant

Specs = Mapping[Value, TensorSpec | None]


def may_decide(graph: Graph) -> bool:
    """Whether shapes may decide a condition of the graph: it is computed from nothing but shapes and constants."""
    of_shapes: set[Value | None] = {None}
    for node in graph.nodes:
        reads = [v for v in (node.inputs[:1] if is_branch(node) else node.reads) if v is None or not v.is_constant]
        asks = node.op_type in ("Shape", "Size") and node.domain == ""
        if asks or of_shapes.issuperset(reads):
            if is_branch(node):
                return True
            of_shapes.update(node.outputs)
    return False


def is_branch(node: Node) -> bool:
    """Whether the node is ONNX's If."""
    return node.op_type == "If" and node.domain == ""


def decisions(graph: Graph, inputs: Specs, inference: Inference, evaluate: Evaluate) -> dict[Node, bool]:
    """The Ifs whose conditions follow from the specs of the graph's inputs and captures, those in branches taken included, and
    what they are."""
    as_declared = all(s is None or v.shape is None or len(v.shape) == len(s.shape) for v, s in inputs.items())
    specs = {value: inference.same(spec) for value, spec in inputs.items()}
    decided: dict[Node, bool] = {}

    def of(value: Value | None) -> TensorSpec | None:
        if value is None:
            return None
        return specs[value] if value in specs else of_constant(value)

    def walk(graph: Graph) -> None:
        for node in graph.nodes:
            condition = of(node.inputs[0]) if is_branch(node) else None
            if condition is not None and condition.constant is not None and condition.constant.size == 1:
                decided[node] = bool(condition.constant.item())
                branch = node.subgraphs["then_branch" if decided[node] else "else_branch"]
                walk(branch)
                found = list(map(of, branch.outputs))
            elif node.subgraphs:
                found = [None] * len(node.outputs)
            else:
                found = list(inference.outputs(node, [of(v) for v in node.inputs], as_declared, evaluate))
            for made, spec in zip(node.outputs, found, strict=False):
                if made is not None:
                    specs[made] = spec

    walk(graph)
    return decided
