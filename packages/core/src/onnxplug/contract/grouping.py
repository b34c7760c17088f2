"""Helpers for ``get_capability``: maximal convex groups of supported nodes, and the shape computation to leave on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from onnxplug.contract.graph import GraphView, NodeView

_SHAPE_OPERATORS = frozenset({"Shape", "Size"})


@dataclass(slots=True, eq=False)
class _Unit:
    """Nodes that count as one: a group in the making, or a single unsupported node. Ancestors are a bit set over unit numbers."""

    number: int
    nodes: list[NodeView] = field(default_factory=list)
    ancestors: int = 0


def convex_groups(graph: GraphView, supported: Callable[[NodeView], bool]) -> list[list[NodeView]]:
    """Groups of supported nodes, as large as this greedy way finds, that may all be claimed as fused regions at once.

    No path leaves a group and comes back, also not through another group; so the graph stays acyclic when each becomes one node.
    """
    units: list[_Unit] = []
    unit_of: dict[int, _Unit] = {}
    groups: list[_Unit] = []
    for node in graph.nodes:
        feeding = list(dict.fromkeys(unit_of[id(p)] for p in _producers(node) if id(p) in unit_of))
        home = _home(feeding, groups) if supported(node) else None
        if home is None:
            home = _Unit(len(units))
            units.append(home)
            if supported(node):
                groups.append(home)
        home.nodes.append(node)
        unit_of[id(node)] = home
        _depend(home, [u for u in feeding if u is not home], units)
    return [group.nodes for group in groups]


def _home(feeding: Iterable[_Unit], groups: list[_Unit]) -> _Unit | None:
    """The group that feeds the node and that no other feeding unit depends on."""
    feeding = list(feeding)
    for unit in feeding:
        if unit in groups and not any(other.ancestors >> unit.number & 1 for other in feeding if other is not unit):
            return unit
    return None


def _depend(unit: _Unit, feeding: Iterable[_Unit], units: Iterable[_Unit]) -> None:
    added = 0
    for other in feeding:
        added |= other.ancestors | 1 << other.number
    unit.ancestors |= added
    for later in units:
        if later.ancestors >> unit.number & 1:
            later.ancestors |= added


def _producers(node: NodeView) -> Iterable[NodeView]:
    for value in (*node.inputs, *node.captures):
        if value is not None and value.producer is not None:
            yield value.producer


def prefer_host(graph: GraphView) -> list[NodeView]:
    """Nodes that only compute shapes: Shape and Size, and integer or boolean nodes fed by nothing but those and constants.

    A provider with memory of its own declines them, so that a handful of numbers is not sent to the device and back.
    """
    chosen: dict[int, NodeView] = {}
    for node in graph.nodes:
        if node.domain == "" and node.op_type in _SHAPE_OPERATORS:
            chosen[id(node)] = node
            continue
        given = [v for v in node.inputs if v is not None and v.constant is None]
        if not given or node.subgraphs or any(v.producer is None or id(v.producer) not in chosen for v in given):
            continue
        if all(v is None or (v.dtype is not None and v.dtype.kind in "iub") for v in node.outputs):
            chosen[id(node)] = node
    return list(chosen.values())
