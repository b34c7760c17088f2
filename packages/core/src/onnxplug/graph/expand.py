"""Nodes that no provider takes, written out as other nodes: functions by their bodies, Gradient by derivatives."""

from __future__ import annotations

from collections.abc import Iterable

from onnxplug.graph.build import arrange, is_gradient
from onnxplug.graph.infer import infer_parts
from onnxplug.graph.inline import function_nodes
from onnxplug.graph.ir import Graph, Node


def expand(graph: Graph, nodes: Iterable[Node]) -> list[Node]:
    """Replace those of ``nodes`` that can be written out, one level deep, types inferred; the nodes that went."""
    news = {node: new for node in nodes if (new := written_out(graph, node)) is not None}
    if news:
        graph.nodes = [new for node in graph.nodes for new in news.get(node, (node,))]
        arrange(graph)
        infer_parts(graph, {new for inner in news.values() for new in inner})
    return list(news)


def written_out(graph: Graph, node: Node) -> list[Node] | None:
    """Nodes that do what a node does and make its outputs, or None."""
    if is_gradient(node):
        from onnxplug.graph.gradient import gradient_nodes  # few models need the rules

        return gradient_nodes(graph, node)
    return function_nodes(graph, node)
