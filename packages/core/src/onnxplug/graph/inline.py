"""Function inlining: a node whose operator has a body (model-local function or schema function) as the body's nodes."""

from __future__ import annotations

from onnxplug.graph.build import SEPARATOR
from onnxplug.graph.functions import function_body, unfold
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value


def function_nodes(graph: Graph, node: Node) -> list[Node] | None:
    """The nodes of the function that defines the node's operator, making the node's outputs; None when there is none. Names
    become ``node/inner``."""
    function = function_body(graph, node)
    if function is None:
        return None
    nodes, results = unfold(graph, node, function)
    made = {v for n in nodes for v in n.outputs if v is not None}
    given: dict[Value, Value] = {}
    for wanted, result in zip(node.outputs, results, strict=True):
        if wanted is None or result is None:
            continue
        if result in made and result not in given:
            _put(nodes, result, wanted)
            given[result] = wanted
        else:  # an input of the function, or an output given twice: the node's output keeps its name
            nodes.append(_identity(graph, node, given.get(result, result), wanted))
    return nodes


def _put(nodes: list[Node], old: Value, new: Value) -> None:
    """Let the nodes make and read ``new`` in place of ``old``."""
    for node in nodes:
        node.outputs = [new if v is old else v for v in node.outputs]
        node.inputs = [new if v is old else v for v in node.inputs]
        for body in node.subgraphs.values():
            body.replace({old: new})


def _identity(graph: Graph, node: Node, source: Value, result: Value) -> Node:
    schema = graph.schemas.find("", "Identity", graph.opsets.get("", 1))
    name = graph.names.node(node.name + SEPARATOR + "Identity")
    made = Node(name, "Identity", "", schema.since_version, [source], [result], schema=schema)
    made.origin = node.origin
    return made
