"""A DequantizeLinear for each product that reads one, as quantizing providers look for: they take it together with the product.

Models whose blocks end in a sum have one for several readers: the convolutions that come next and the sum behind them. A provider whose
regions are single products could give it to one of these only, and the others would be products of floats.
"""

from __future__ import annotations

from typing import Any

from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_DOMAINS = frozenset({"", "com.microsoft"})


def dequantize_apart(graph: Graph, context: Any) -> bool:
    """Let products that share a DequantizeLinear, with one another or with other nodes, have one each."""
    own, results = set(graph.nodes), set(graph.outputs)
    nodes, changed = list[Node](), False
    for node in graph.nodes:
        nodes.append(node)
        (value,) = node.outputs[:1] or (None,)
        if node.op_type != "DequantizeLinear" or node.domain not in _DOMAINS or value is None or _is_constant(node):
            continue
        readers = list(dict.fromkeys(value.consumers))
        products = [n for n in readers if n in own and n.op_type in _PRODUCTS and not n.domain]
        shared = value in results or len(products) < len(readers)
        for reader in products if shared else products[1:]:
            nodes.append(_again(graph, node, value, reader))
            changed = True
    graph.nodes = nodes
    return changed


def _is_constant(node: Node) -> bool:
    given = node.inputs[0]
    return given is None or given.is_constant


def _again(graph: Graph, node: Node, value: Value, reader: Node) -> Node:
    """The same node once more, for one reader."""
    new = Value(graph.names.value(value.name), value.type)
    made = node.twin(node.inputs, [new])
    made.name = graph.names.node(node.name)
    reader.inputs = [new if v is value else v for v in reader.inputs]
    return made
