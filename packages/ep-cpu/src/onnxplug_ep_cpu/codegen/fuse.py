"""Patterns: several nodes that one kernel does, found once per region, before shapes are known.

A pattern is entered with ``@pattern`` under the operator of its last node. It looks back from that node and returns a
``Group`` or None. The nodes of a group need lowerings of their own as well: they serve where the shapes of a bind do
not suit the group.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.lower import rank

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.lower.context import Lowering


@record(frozen=True, slots=True, eq=False)
class Group:
    """``nodes`` in topological order; ``lower`` makes the last one's outputs, or returns False before it has done
    anything."""

    nodes: tuple[NodeView, ...]
    lower: Callable[[Lowering], bool]


def asks_shape(node: NodeView) -> bool:
    """Whether the node reads no more of a value than its shape."""
    return node.domain == "" and node.op_type in ("Shape", "Size")


def readers_of(value: ValueView) -> list[NodeView]:
    """The nodes that read what the value holds."""
    return [node for node in value.consumers if not asks_shape(node)]


class Nodes:
    """The nodes of a region as patterns see them."""

    def __init__(self, nodes: Sequence[NodeView], outputs: Collection[str]) -> None:
        self._at = {id(node): number for number, node in enumerate(nodes)}
        self._outputs = outputs

    def position(self, node: NodeView) -> int:
        """The node's place in topological order."""
        return self._at[id(node)]

    def maker(self, value: ValueView | None, *operators: str, domain: str = "", readers: int = 1) -> NodeView | None:
        """The node that makes ``value``, if it is one of ``operators`` in the region and so many nodes, all of them
        inside, read its one result."""
        if value is None or value.producer is None or value.name in self._outputs:
            return None
        node, found = value.producer, readers_of(value)
        if len(found) != readers:
            return None
        known = id(node) in self._at and node.op_type in operators and node.domain == domain
        known = known and all(id(reader) in self._at for reader in found)
        return node if known and all(v is None or v is value for v in node.outputs) else None

    def reader(self, value: ValueView | None, *operators: str) -> NodeView | None:
        """The one node in the region that reads ``value``, if it is one of ``operators``."""
        found = [] if value is None or value.name in self._outputs else readers_of(value)
        if len(found) != 1:
            return None
        node = found[0]
        return node if id(node) in self._at and node.op_type in operators and node.domain == "" else None


ELEMENTWISE = frozenset(
    (
        "Abs", "Add", "And", "Atan", "Cast", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp",
        "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Less",
        "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal",
        "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum",
        "Swish", "Tanh", "ThresholdedRelu", "Where", "Xor",
    )
)  # fmt: skip


def joined_readers(nodes: Sequence[NodeView], outputs: Collection[str]) -> set[str]:
    """Values read by several element-wise nodes that all end in one result (x * sigmoid(x)): one reader in effect,
    since equal parts of an expression are computed once."""
    inside, result = {id(node) for node in nodes}, dict[int, int]()

    def end(value: ValueView | None) -> int | None:
        """The node that all readers of the value lead to."""
        readers = [] if value is None or value.name in outputs else readers_of(value)
        ends = {result.get(id(reader)) for reader in readers if id(reader) in inside}
        return ends.pop() if len(ends) == 1 and all(id(reader) in inside for reader in readers) else None

    for node in reversed(nodes):
        if node.op_type in ELEMENTWISE and node.domain == "":
            result[id(node)] = end(node.outputs[0]) or id(node)
    made = (value for node in nodes for value in node.outputs if value is not None)
    return {value.name for value in made if len(readers_of(value)) > 1 and end(value) is not None}


Match = Callable[[NodeView, Nodes], Group | None]
_patterns: dict[tuple[str, str], list[Match]] = {}


def pattern(op_type: str, domain: str = "") -> Callable[[Match], Match]:
    """Enter a pattern whose last node is of this operator."""

    def enter(match: Match) -> Match:
        bisect.insort(_patterns.setdefault((domain, op_type), []), match, key=lambda m: rank(m.__module__))
        return match

    return enter


def steps(nodes: Sequence[NodeView], outputs: Collection[str]) -> list[NodeView | Group]:
    """The region's nodes in order, groups in the place of their last node. Later nodes find their groups first."""
    within = Nodes(nodes, outputs)
    found: dict[int, Group] = {}
    taken: set[int] = set()
    for node in reversed(nodes):
        if id(node) in taken:
            continue
        for match in _patterns.get((node.domain, node.op_type), ()):
            group = match(node, within)
            if group is not None and not any(id(member) in taken for member in group.nodes):
                found[id(node)] = group
                taken.update(id(member) for member in group.nodes)
                break
    return [found.get(id(node), node) for node in nodes if id(node) in found or id(node) not in taken]
