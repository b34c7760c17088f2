"""Sizes that come with a run: what regions do where data, not shapes, say how large a result is made.

Such a node begins a region of its own, which also has what is computed behind it: the region is bound when the sizes are known, and
what lies before it only once. What makes the sizes stays outside, as a region is bound before it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onnxplug.contract import GraphView, NodeView, ValueView

OPERANDS = {
    ("", "Resize"): (2, 3),
    ("", "Upsample"): (1,),
    ("", "Tile"): (1,),
    ("com.microsoft", "GroupQueryAttention"): (6,),
}
"""Operators whose sizes may come with a run, and the operands that are sizes, scales, repeats or lengths. Not Expand: what it makes of
sizes above 1 is known without its operand, whose values the plan then does not give and nothing would check."""


class Awaited:
    """``behind``: ids of the nodes that are bound when sizes have come, in topological order; ``makers``: of those that make the
    sizes. ``shapes``: ids of the nodes whose results follow from shapes; ``alone``: of those that are in no region."""

    def __init__(self, graph: GraphView, shapes: Collection[int], alone: Collection[int]) -> None:
        self.behind: set[int] = set()
        self.makers: set[int] = set()
        for node in graph.nodes:
            if id(node) in alone:
                continue
            waits = [v for v in sizes(node) if v.producer is None or id(v.producer) not in shapes]
            self.makers.update(id(v.producer) for v in waits if v.producer is not None)
            read = (v.producer for v in (*node.inputs, *node.captures) if v is not None)
            if waits or any(id(producer) in self.behind for producer in read if producer is not None):
                self.behind.add(id(node))


def sizes(node: NodeView) -> list[ValueView]:
    """The operands that are sizes or scales and no constants."""
    places = OPERANDS.get((node.domain, node.op_type), ())
    given = [node.inputs[place] for place in places if place < len(node.inputs)]
    return [value for value in given if value is not None and value.constant is None]


def names(nodes: Iterable[NodeView]) -> set[str]:
    """The names of all sizes and scales of these nodes."""
    return {value.name for node in nodes for value in sizes(node)}
