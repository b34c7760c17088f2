"""Give every value its memory space and insert the copies: once per value and direction, between any two spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxplug.contract.claims import CompiledRegion, Region
from onnxplug.contract.memory import HOST, Device
from onnxplug.contract.records import record
from onnxplug.contract.types import is_device_type
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value
from onnxplug.place.partition import Group
from onnxplug.place.units import ControlUnit, CopyUnit, KernelUnit, Located, PlacedGraph, RegionUnit, Unit


@record(frozen=True, slots=True, eq=False)
class CompiledGroup:
    """A fused group's region, what it became, and its boundary values."""

    region: Region
    unit: CompiledRegion
    inputs: Sequence[Value]
    outputs: Sequence[Value]


Compiled = Mapping[int, CompiledGroup]
"""Compiled groups by the id of the group."""


@record(eq=False, slots=True)
class Draft:
    """A graph whose nodes have owners; nested graphs likewise, keyed by owner node and attribute."""

    graph: Graph
    groups: list[Group]
    bodies: dict[Node, dict[str, Draft]]


@record(slots=True)
class _Wants:
    """A unit before copies: what it reads and writes, and where."""

    ins: list[Located | None]
    outs: list[Located | None]


def locate(
    draft: Draft,
    compiled: Compiled,
    outputs: Sequence[Device | None] = (),
    inputs: Sequence[Device | None] = (),
    captures: Sequence[Located] | None = None,
) -> PlacedGraph:
    """Units with copies. ``outputs``/``inputs`` force where the graph's outputs and inputs live (None: wherever is
    natural); ``captures`` are those of a nested graph, more than it needs perhaps, where that is settled."""
    nested = {node: _bodies(node, bodies, compiled) for node, bodies in draft.bodies.items()}
    wants = [_wants(group, compiled, nested) for group in draft.groups]
    placed_inputs = _input_homes(draft.graph, wants, inputs)
    captures = _capture_homes(draft.graph, wants) if captures is None else captures
    homes = dict((*placed_inputs, *captures))
    units: list[Unit] = []
    present: set[Located] = set(homes.items())

    def bring(operand: Located | None) -> None:
        if operand is None or operand in present or operand[0].is_constant:
            return
        value, device = operand
        units.append(CopyUnit(((value, homes[value]),), ((value, device),)))
        present.add(operand)

    for group, want in zip(draft.groups, wants, strict=True):
        for operand in want.ins:
            bring(operand)
        units.append(_unit(group, want, compiled, nested))
        for made in want.outs:
            if made is not None:
                homes[made[0]] = made[1]
                present.add(made)
    results = []
    for index, value in enumerate(draft.graph.outputs):
        forced = outputs[index] if index < len(outputs) else None
        if forced is not None and is_device_type(value.type):
            device = forced
        elif draft.graph.parent is None and (value, HOST) in present:
            device = HOST  # where the caller wants it, and some node had it copied to
        else:
            device = homes.get(value, HOST)
        bring((value, device))
        results.append((value, device))
    return PlacedGraph(draft.graph, tuple(units), tuple(placed_inputs), tuple(captures), tuple(results))


def _wants(group: Group, compiled: Compiled, nested: Mapping[Node, Mapping[str, PlacedGraph]]) -> _Wants:
    provider = group.provider
    if provider is None:
        return _control_wants(group.nodes[0], nested[group.nodes[0]])
    if group.fused is not None:
        made = compiled[id(group)]
        return _Wants(
            [(v, _device(v, provider.device, i in made.unit.host_inputs)) for i, v in enumerate(made.inputs)],
            [(v, _device(v, provider.device, i in made.unit.host_outputs)) for i, v in enumerate(made.outputs)],
        )
    node, definition = group.nodes[0], group.definition
    assert definition is not None
    return _Wants(
        [
            None if v is None else (v, _device(v, provider.device, i in definition.host_inputs))
            for i, v in enumerate(node.inputs)
        ],
        [
            None if v is None else (v, _device(v, provider.device, i in definition.host_outputs))
            for i, v in enumerate(node.outputs)
        ],
    )


def _device(value: Value, device: Device, host: bool) -> Device:
    return HOST if host or not is_device_type(value.type) else device


def _unit(group: Group, want: _Wants, compiled: Compiled, nested: Mapping[Node, Mapping[str, PlacedGraph]]) -> Unit:
    ins, outs = tuple(want.ins), tuple(want.outs)
    if group.provider is None:
        return ControlUnit(ins, outs, group.nodes[0], nested[group.nodes[0]])
    if group.fused is not None:
        made = compiled[id(group)]
        return RegionUnit(ins, outs, made.region, tuple(group.nodes), group.provider, made.unit)
    assert group.definition is not None
    return KernelUnit(ins, outs, group.nodes[0], group.provider, group.definition)


def _input_homes(graph: Graph, wants: Sequence[_Wants], forced: Sequence[Device | None]) -> list[Located]:
    asked = _asked(wants)
    homes = []
    for index, value in enumerate(graph.inputs):
        device = forced[index] if index < len(forced) else None
        homes.append((value, device or _natural(asked.get(value, ()))))
    return homes


def _capture_homes(graph: Graph, wants: Sequence[_Wants]) -> list[Located]:
    asked = _asked(wants)
    return (
        [(v, _natural(asked.get(v, ()))) for v in graph.free_values() if not v.is_constant]
        if graph.parent is not None
        else []
    )


def _asked(wants: Sequence[_Wants]) -> dict[Value, list[Device]]:
    asked: dict[Value, list[Device]] = {}
    for want in wants:
        for operand in want.ins:
            if operand is not None:
                asked.setdefault(operand[0], []).append(operand[1])
    return asked


def _natural(devices: Sequence[Device]) -> Device:
    """Where all readers want it; the host when they differ."""
    return devices[0] if devices and all(d == devices[0] for d in devices) else HOST


# ---- control flow: where bodies take their inputs and leave their outputs


def _bodies(node: Node, drafts: Mapping[str, Draft], compiled: Compiled) -> dict[str, PlacedGraph]:
    if node.op_type == "If":
        then = locate(drafts["then_branch"], compiled)
        return {
            "then_branch": then,
            "else_branch": locate(drafts["else_branch"], compiled, [d for _, d in then.outputs]),
        }
    if node.domain:  # one that generates text: tokens and scores are the host's, and so is what goes from step to step
        sizes = {name: (len(body.graph.outputs), len(body.graph.inputs)) for name, body in drafts.items()}
        return {n: locate(d, compiled, [HOST] * sizes[n][0], [HOST] * sizes[n][1]) for n, d in drafts.items()}
    body = drafts["body"]
    if node.op_type == "Loop":
        carried = len(node.inputs) - 2
        first = locate(body, compiled)
        spaces = [d for _, d in first.inputs[2:]]  # a carried value stays where the body reads it
        scans = len(body.graph.outputs) - 1 - carried
        return {"body": locate(body, compiled, [HOST, *spaces, *[HOST] * scans], [HOST, HOST, *spaces])}
    scanned = int(node.attributes["num_scan_inputs"])
    states = len(body.graph.inputs) - scanned
    scans = len(body.graph.outputs) - states
    if node.since_version == 8:  # the core slices and joins batches, on the host
        return {"body": locate(body, compiled, [HOST] * (states + scans), [HOST] * (states + scanned))}
    spaces = [d for _, d in locate(body, compiled).inputs[:states]]
    return {"body": locate(body, compiled, [*spaces, *[HOST] * scans], [*spaces, *[HOST] * scanned])}


def _control_wants(node: Node, bodies: Mapping[str, PlacedGraph]) -> _Wants:
    if node.op_type == "If":
        given: list[Device] = [HOST]
        made = [d for _, d in bodies["then_branch"].outputs]
    elif node.domain:
        given, made = [HOST] * len(node.inputs), [HOST] * len(node.outputs)
    elif node.op_type == "Loop":
        given = [d for _, d in bodies["body"].inputs]
        made = [d for _, d in bodies["body"].outputs[1:]]
    else:
        old = [HOST] if node.since_version == 8 else []
        given = [*old, *[d for _, d in bodies["body"].inputs]]
        made = [d for _, d in bodies["body"].outputs]
    ins: list[Located | None] = [
        None if v is None else (v, _device(v, d, False)) for v, d in zip(node.inputs, given, strict=False)
    ]
    outs: list[Located | None] = [
        None if v is None else (v, _device(v, d, False)) for v, d in zip(node.outputs, made, strict=False)
    ]
    for body in bodies.values():
        ins.extend(body.captures)
    return _Wants(ins, outs)
