"""The sub-graph that a Gradient node names by the tensors at its ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onnxplug.contract.errors import InvalidGraph


def named_subgraph(gradient: Any, attributes: Mapping[str, Any], nodes: Sequence[Any]) -> Any:
    """A GraphProto from ``xs`` and ``zs`` to ``y`` (attributes of the NodeProto ``gradient``), made of ``nodes``. What else
    it reads comes from outside. InvalidGraph where the names do not fit."""
    from onnx import GraphProto

    ends = [*attributes["xs"], *attributes.get("zs", ())]
    if len(ends) != len(gradient.input):
        raise _invalid(gradient, f"xs and zs name {len(ends)} tensors, the node has {len(gradient.input)} inputs")
    if len(gradient.output) > len(attributes["xs"]):
        raise _invalid(
            gradient, f"xs name {len(attributes['xs'])} tensors, the node has {len(gradient.output)} outputs"
        )
    makers = {name: node for node in nodes for name in node.output if name}
    needed: set[int] = set()
    waiting = [attributes["y"]]
    while waiting:
        name = waiting.pop()
        maker = None if name in ends else makers.get(name)
        if maker is gradient:
            raise _invalid(gradient, f"y '{attributes['y']}' depends on the node itself")
        if maker is not None and id(maker) not in needed:
            needed.add(id(maker))
            waiting.extend(_reads(maker))
    if not needed and attributes["y"] not in ends:
        raise _invalid(gradient, f"no node beside it makes y '{attributes['y']}'")
    graph = GraphProto(name=attributes["y"])
    for name in ends:
        graph.input.add().name = name
    for node in nodes:
        if id(node) in needed:
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.output[:] = ["" if name in ends else name for name in node.output]
    graph.output.add().name = attributes["y"]
    return graph


def _reads(node: Any) -> Iterator[str]:
    """Every name that a node may read: inputs, what its nested graphs read, and what a Gradient names."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == attribute.GRAPH:
            yield from (output.name for output in attribute.g.output)
            for inner in attribute.g.node:
                yield from _reads(inner)
        elif node.op_type == "Gradient":
            yield from (name.decode() for name in (attribute.s, *attribute.strings))


def _invalid(gradient: Any, text: str) -> Exception:
    where = f'("{gradient.name}", Gradient, "{gradient.domain}", 1)'
    return InvalidGraph(f"This is an invalid model. In Node, {where}, Error {text}.")
