"""A graph once more, for changes that the first one is not to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value


def copied(graph: Graph, outputs: Sequence[Value], decided: Mapping[Node, bool]) -> Graph:
    """The graph with these of its outputs, nested graphs included. Values, nodes and graphs are new, under the same names;
    constants' arrays and the values that a nested graph captures are shared. An If among ``decided`` has the constant for its
    condition that is said there."""
    news: dict[Value, Value] = {}
    made = _copied(graph, graph.parent, decided, news)
    made.outputs = [news.get(value, value) for value in outputs]
    made.refresh()
    return made


def _copied(graph: Graph, parent: Graph | None, decided: Mapping[Node, bool], news: dict[Value, Value]) -> Graph:
    made = Graph(graph.name, graph.opsets, graph.schemas, parent)
    made.folder, made.functions, made.names, made.owner = graph.folder, graph.functions, graph.names, graph.owner
    made.sparse_outputs = graph.sparse_outputs
    for value in graph.values():
        news[value] = value.copied()
    made.inputs = [news[value] for value in graph.inputs]
    made.initializers = {name: news[value] for name, value in graph.initializers.items()}
    for node in graph.nodes:
        made.nodes.append(_node(node, made, decided, news))
    made.outputs = [news.get(value, value) for value in graph.outputs]
    return made


def _node(node: Node, graph: Graph, decided: Mapping[Node, bool], news: dict[Value, Value]) -> Node:
    inputs, outputs = ([None if v is None else news.get(v, v) for v in side] for side in (node.inputs, node.outputs))
    if node in decided:
        inputs = [graph.add_constant(f"{node.name}_condition", np.array(decided[node]))]
    made = node.twin(inputs, outputs)
    for name, body in node.subgraphs.items():
        made.subgraphs[name] = _copied(body, graph, decided, news)
        made.subgraphs[name].owner = made
    return made
