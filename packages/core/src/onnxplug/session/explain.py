"""The answer to "which provider ran this node, and why not mine?"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from onnxplug.contract.grouping import prefer_host
from onnxplug.contract.records import record
from onnxplug.place import ControlUnit, CopyUnit, PlacedGraph, RegionUnit
from onnxplug.session.pipeline import Built
from onnxplug.session.selection import Selection


@record(frozen=True, slots=True)
class Explanation:
    """Placement of a session in full. ``to_dict`` is fit for JSON; ``str`` reads as text. Runs whose shapes decide a condition may
    have added regions, and nodes then show the one that was made last.

    Nodes and providers tell apart what only computes ``shapes``: providers of devices leave it to the host, and what of it follows from
    the inputs' shapes is computed when a run is planned, not when it runs. ``copies`` are those inside the model, one for each value and
    direction; ``edges`` those of inputs and outputs that live on a device.
    """

    model: str
    providers: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    regions: list[dict[str, Any]]
    copies: list[dict[str, str]]
    edges: list[dict[str, str]]
    removed: dict[str, str]
    inlined: list[dict[str, str]]
    skipped: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain containers."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        counts = Counter(n["provider"] for n in self.nodes)
        lines = [
            f"{self.model}: {len(self.nodes)} nodes, {len(self.copies)} copies, {len(self.removed)} removed by the optimizer"
        ]
        for p in self.providers:
            shapes = f", {p['shapes']} of which only compute shapes" if p["shapes"] else ""
            lines.append(f"  {p['name']}: {counts.get(p['name'], 0)} nodes{shapes}")
        lines += [f"  {name} is not used: {reason}" for name, reason in self.skipped.items()]
        for region in self.regions:
            shown = ", ".join(f"{name} {fact}" for name, fact in region["facts"].items() if not isinstance(fact, dict))
            lines += [f"region {region['name']}: {len(region['nodes'])} nodes" + (f", {shown}" if shown else "")]
        for node in self.nodes:
            lines.append(f"{node['name']} ({node['op_type']}-{node['since_version']}): {node['provider']}")
            lines += [f"    {name}: {reason}" for name, reason in node["reasons"].items()]
        return "\n".join(lines)


def explain(built: Built, selection: Selection) -> Explanation:
    """The explanation of a built session."""
    owners, reasons = owners_of(built), built.placement.reasons
    mains = [placement.main for placement in (built.placement, *built.variants)]
    units = [unit for main in mains for placed in _graphs(main) for unit in placed.units]
    regions = [_region(unit) for unit in units if isinstance(unit, RegionUnit)]
    in_region = {name: region["name"] for region in regions for name in region["nodes"]}
    nodes = []
    shapes = _shape_nodes(built.graph)
    for node, graph in _nodes(built.graph, built.graph.name):
        owner = owners.get(node.name)
        if owner is None:
            continue  # If, Loop and Scan that the core runs
        nodes.append(
            {
                "name": node.name, "op_type": node.op_type, "domain": node.domain, "since_version": node.since_version, "provider": owner,
                "region": in_region.get(node.name), "graph": graph, "shapes": id(node) in shapes,
                "reasons": {p: text for p, text in reasons.of(node).items() if p != owner},
            }
        )  # fmt: skip
    counts, of_shapes = Counter(owners.values()), Counter(n["provider"] for n in nodes if n["shapes"])
    return Explanation(
        model=str(built.model.path or built.graph.name or "model"),
        providers=[
            {"name": i.name, "options": i.option_strings, "nodes": counts[i.name], "shapes": of_shapes[i.name]}
            for i in selection.instances
        ],
        nodes=nodes,
        regions=regions,
        copies=[_copy(unit) for unit in units if isinstance(unit, CopyUnit)],
        edges=_edges(built.placement.main),
        removed=dict(built.optimizer.removed),
        inlined=[{"node": node, "function": function} for node, function in reasons.inlined],
        skipped=dict(selection.skipped),
    )


def owners_of(built: Built) -> dict[str, str]:
    """{node name: provider}; as it was placed last."""
    return {name: owner for each in (built.placement, *built.variants) for name, owner in each.owners.items()}


def _graphs(placed: PlacedGraph) -> Iterator[PlacedGraph]:
    yield placed
    for unit in placed.units:
        if isinstance(unit, ControlUnit):
            for body in unit.bodies.values():
                yield from _graphs(body)


def _nodes(graph: Any, name: str) -> Iterator[tuple[Any, str]]:
    for node in graph.nodes:
        yield node, name
        for attribute, body in node.subgraphs.items():
            yield from _nodes(body, f"{node.name}.{attribute}")


def _shape_nodes(graph: Any) -> set[int]:
    """Which nodes only compute shapes, those of nested graphs included."""
    found = {id(node) for node in prefer_host(graph)}
    for node in graph.nodes:
        for body in node.subgraphs.values():
            found |= _shape_nodes(body)
    return found


def _region(unit: RegionUnit) -> dict[str, Any]:
    nodes = [n.name for n in unit.nodes]
    try:
        facts = dict(unit.compiled.facts())
    except Exception as error:  # an explanation is wanted most of a provider that has faults
        facts = {"facts": f"{type(error).__name__}: {error}"}
    return {"name": unit.region.name, "provider": unit.provider.name, "nodes": nodes, "facts": facts}


def _copy(unit: CopyUnit) -> dict[str, str]:
    (source,), (target,) = unit.ins, unit.outs
    assert source is not None and target is not None
    return {"value": source[0].name, "from": str(source[1]), "to": str(target[1])}


def _edges(main: PlacedGraph) -> list[dict[str, str]]:
    host = "cpu:0"
    inward = [{"value": v.name, "from": host, "to": str(d)} for v, d in main.inputs if str(d) != host and v.consumers]
    return inward + [{"value": v.name, "from": str(d), "to": host} for v, d in main.outputs if str(d) != host]
