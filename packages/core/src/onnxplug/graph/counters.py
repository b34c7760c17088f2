"""What the body of a Loop is told of its trips, in the shape that it declares."""

from __future__ import annotations

import numpy as np

from onnxplug.contract.types import TensorType
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value


def declares_rows(body: Graph) -> bool:
    """Whether the body declares a trip's number or condition with one dimension or more. ONNX says scalars; tf2onnx writes
    tensors of one element for the number, which onnxruntime gives."""
    return any(value.shape for value in body.inputs[:2])


def reshape_counters(node: Node) -> None:
    """Let the body of a Loop be given scalars, and make of them the tensors of one element that it declares."""
    from onnxplug.graph.making import plain_node

    body = node.subgraphs["body"]
    one = body.add_constant(f"{node.name}_one", np.array([1], np.int64))
    for at, value in enumerate(body.inputs[:2]):
        if value.shape and isinstance(value.type, TensorType):
            element = value.type.element
            scalar = body.inputs[at] = Value(body.names.value(f"{value.name}_scalar"), TensorType(element, ()))
            value.type = TensorType(element, (1,))
            body.nodes.insert(0, plain_node(body, node, "Reshape", [scalar, one], [value]))
    body.refresh()
