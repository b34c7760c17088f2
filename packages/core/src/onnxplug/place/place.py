"""Placement from end to end: partition every graph, compile fused regions last, locate values, record who owns what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.contract.claims import CompiledRegion
from onnxplug.contract.errors import STATUS_ERRORS, Fail
from onnxplug.contract.logs import Log
from onnxplug.graph.ir import Graph, Node
from onnxplug.place.locate import Compiled, CompiledGroup, Draft, locate
from onnxplug.place.partition import Group, Partitioner, is_context
from onnxplug.place.regions import make_region
from onnxplug.place.units import CORE, PlacedGraph, Placement, SessionProvider

if TYPE_CHECKING:
    from onnxplug.place.contexts import Read

log = Log("onnxplug.place")


def place(
    graph: Graph,
    providers: Sequence[SessionProvider],
    tidy: Callable[[Graph], None],
    allow_fallback: bool = True,
    read: Read | None = None,
    like: PlacedGraph | None = None,
) -> Placement:
    """Place ``graph`` on ``providers`` (priority order). ``read`` gives what EPContext nodes keep outside of the model. Inputs,
    captures and outputs live where they do in ``like``, in whose stead the graph may be run.

    A region whose compilation fails bars its provider from fusing those nodes and placement is made again, with a warning;
    with ``allow_fallback`` false the failure is raised.
    """
    partitioner = Partitioner(providers, tidy)
    while True:
        draft = _draft(graph, partitioner)
        compiled = _compile_all(draft, partitioner, allow_fallback, read)
        if compiled is not None:
            main = locate(draft, compiled) if like is None else _in_place_of(like, draft, compiled)
            owners = {node.name: owner for node, owner in _owners(draft) if owner != CORE}
            return Placement(main, owners, partitioner.reasons, providers)


def _in_place_of(like: PlacedGraph, draft: Draft, compiled: Compiled) -> PlacedGraph:
    outputs, inputs = ([device for _, device in side] for side in (like.outputs, like.inputs))
    return locate(draft, compiled, outputs, inputs, like.captures)


def _draft(graph: Graph, partitioner: Partitioner) -> Draft:
    groups = partitioner.partition(graph)
    bodies = {
        node: {name: _draft(body, partitioner) for name, body in node.subgraphs.items()}
        for group in groups
        if group.provider is None
        for node in group.nodes
    }
    return Draft(graph, groups, bodies)


def _all_groups(draft: Draft) -> Iterator[tuple[Draft, Group]]:
    for group in draft.groups:
        yield draft, group
        if group.provider is None:
            for body in draft.bodies[group.nodes[0]].values():
                yield from _all_groups(body)


def _owners(draft: Draft) -> Iterator[tuple[Node, str]]:
    for _, group in _all_groups(draft):
        owner = group.provider.name if group.provider else CORE
        for node in group.nodes:
            yield node, owner
            if group.provider is not None:  # a construct claimed whole: its bodies belong to the same provider
                for body in node.subgraphs.values():
                    yield from ((inner, owner) for inner in body.walk())


def _compile_all(
    draft: Draft, partitioner: Partitioner, allow_fallback: bool, read: Read | None
) -> dict[int, CompiledGroup] | None:
    """Compile every fused group; None when one failed and placement must be made again."""
    fused = [(d, g) for d, g in _all_groups(draft) if g.fused is not None]
    contexts = [(d, g) for d, g in fused if is_context(g.nodes[0])]
    compiled = {}
    if contexts:
        from onnxplug.place.contexts import restore

        compiled = {id(g): restore(d.graph, g, read) for d, g in contexts}
    fused = [pair for pair in fused if pair not in contexts]
    for provider in partitioner.providers:
        own = [(d, g) for d, g in fused if g.provider is provider]
        if not own:
            continue
        regions = [make_region(d.graph, g) for d, g in own]
        try:
            units = provider.call("compile", regions=[made.region for made in regions])
            if not _are_compiled(units, len(regions)):
                raise Fail(
                    f"{provider.name}: compile() must return one CompiledRegion for each of {len(regions)} regions"
                )
        except STATUS_ERRORS as error:
            if not allow_fallback:
                raise
            log.warning(
                "%s could not compile %d region(s), their nodes are placed anew: %s",
                provider.name,
                len(own),
                error,
            )
            text = getattr(error, "text", str(error))
            partitioner.barred.update({(provider.name, n.name): text for _, g in own for n in g.nodes})
            return None
        for (_, group), made, unit in zip(own, regions, units, strict=True):
            compiled[id(group)] = CompiledGroup(made.region, unit, made.inputs, made.outputs)
    return compiled


def _are_compiled(units: Any, count: int) -> bool:
    return (
        isinstance(units, Sequence) and len(units) == count and all(isinstance(unit, CompiledRegion) for unit in units)
    )
