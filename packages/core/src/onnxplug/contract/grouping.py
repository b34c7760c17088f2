"""Helpers for ``get_capability``: maximal convex groups of supported nodes, and the shape computation to leave on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from onnxplug.contract.graph import GraphView, NodeView, ValueView
from onnxplug.contract.records import record

_SHAPE_OPERATORS = frozenset({"Shape", "Size"})
_IN_FLOAT = frozenset(
    {
        "Abs", "Add", "Cast", "Ceil", "Clip", "Concat", "Div", "Floor", "Gather", "Identity", "Max", "Min", "Mul", "Neg", "Pow",
        "Reciprocal", "Relu", "Reshape", "Round", "Slice", "Sqrt", "Squeeze", "Sub", "Unsqueeze",
    }
)  # fmt: skip
"""Operators with which exporters compute sizes in floating point: half of the input, rounded up."""
_SCALES = {"Resize": 2, "Upsample": 1}
"""Operators with an operand in floating point that decides their output's shape."""


@record(slots=True, eq=False)
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
        takes = supported(node)
        if takes and len(feeding) > 1:
            feeding = _united(feeding, groups, units, unit_of)
        home = _home(feeding, groups) if takes else None
        if home is None:
            home = _Unit(len(units))
            units.append(home)
            if takes:
                groups.append(home)
        home.nodes.append(node)
        unit_of[id(node)] = home
        _depend(home, [u for u in feeding if u is not home], units)
    place = {id(node): number for number, node in enumerate(graph.nodes)}
    return [sorted(group.nodes, key=lambda node: place[id(node)]) for group in groups]


def _united(feeding: list[_Unit], groups: list[_Unit], units: list[_Unit], unit_of: dict[int, _Unit]) -> list[_Unit]:
    """The feeding units after groups among them have become one, where no path between two of them leads through a third
    unit."""
    kept: list[_Unit] = []
    for unit in feeding:
        home = next((k for k in kept if k in groups and unit in groups and not _between(k, unit, units)), None)
        if home is None:
            kept.append(unit)
            continue
        home.nodes += unit.nodes
        unit_of.update((id(node), home) for node in unit.nodes)
        groups.remove(unit)
        units[unit.number] = home
        added = (home.ancestors | unit.ancestors) & ~(1 << home.number | 1 << unit.number)
        home.ancestors = added
        for other in units:
            if other.ancestors >> home.number & 1 or other.ancestors >> unit.number & 1:
                other.ancestors |= added | 1 << home.number
    return kept


def _between(a: _Unit, b: _Unit, units: Iterable[_Unit]) -> bool:
    """Whether a path from one unit to the other leads through a third."""
    return any(
        c is not a
        and c is not b
        and (
            (c.ancestors >> a.number & 1 and b.ancestors >> c.number & 1)
            or (c.ancestors >> b.number & 1 and a.ancestors >> c.number & 1)
        )
        for c in units
    )


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
    if added | unit.ancestors == unit.ancestors:
        return
    unit.ancestors |= added
    if len(unit.nodes) == 1:
        return  # nothing depends on a unit just made
    for later in units:
        if later.ancestors >> unit.number & 1:
            later.ancestors |= added


def _producers(node: NodeView) -> Iterable[NodeView]:
    for value in (*node.inputs, *node.captures):
        if value is not None and value.producer is not None:
            yield value.producer


def prefer_host(graph: GraphView) -> list[NodeView]:
    """Nodes that only compute shapes: Shape and Size, and integer or boolean nodes fed by nothing but those and constants; also
    floating-point arithmetic on such numbers whose result is read by such nodes, or only scales a tensor.

    A provider with memory of its own declines them, so that a handful of numbers is not sent to the device and back.
    """
    chosen: dict[int, NodeView] = {}
    in_float: dict[int, NodeView] = {}
    for node in graph.nodes:
        if node.domain == "" and node.op_type in _SHAPE_OPERATORS:
            chosen[id(node)] = node
            continue
        if not _fed_by(node, chosen):
            continue
        if all(v is None or (v.dtype is not None and v.dtype.kind in "iub") for v in node.outputs):
            chosen[id(node)] = node
        elif node.domain == "" and node.op_type in _IN_FLOAT:
            chosen[id(node)] = in_float[id(node)] = node
    if in_float:
        _drop_data(graph, chosen, in_float)
    return list(chosen.values())


def _fed_by(node: NodeView, chosen: Mapping[int, NodeView]) -> bool:
    """Whether the node computes with what chosen nodes make, and with constants."""
    given = [v for v in node.inputs if v is not None and not v.is_constant]
    fed = all(v.producer is not None and id(v.producer) in chosen for v in given)
    return bool(given) and not node.subgraphs and fed


def _drop_data(graph: GraphView, chosen: dict[int, NodeView], in_float: Mapping[int, NodeView]) -> None:
    """Take out what computes in floating point for anything but shapes, and what is fed by it."""
    outputs = {id(v) for v in graph.outputs}

    def decides_shapes(value: ValueView) -> bool:
        return id(value) not in outputs and all(
            id(reader) in chosen
            or (reader.domain == "" and value in reader.inputs[_SCALES.get(reader.op_type, len(reader.inputs)) :])
            for reader in value.consumers
        )

    dropped = True
    while dropped:
        dropped = False
        for node in reversed(list(chosen.values())):
            lost = id(node) in in_float and not all(v is None or decides_shapes(v) for v in node.outputs)
            if lost or (node.op_type not in _SHAPE_OPERATORS and not _fed_by(node, chosen)):
                del chosen[id(node)]
                dropped = True
