"""Models that hold what providers compiled: regions written as EPContext nodes (onnxruntime's EP context design)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.graph.export import model_proto, value_info
from onnxplug.graph.schemas import EP_CONTEXT
from onnxplug.place import ControlUnit, PlacedGraph, RegionUnit
from onnxplug.session.inventory import COMPATIBILITY, compatibility_info
from onnxplug.session.options import SessionOptions
from onnxplug.session.pipeline import Built

Write = Callable[[str, bytes], None]
"""Puts data away under a name that the node then carries."""

ENABLE, FILE, EMBED, PREFIX = (
    "ep.context_enable", "ep.context_file_path", "ep.context_embed_mode", "ep.context_node_name_prefix",
)  # fmt: skip


def beside(model: str) -> Write:
    """Writes data into the folder of a model's file."""

    def write(name: str, data: bytes) -> None:
        try:
            (Path(model).parent / name).write_bytes(data)
        except OSError as error:
            raise Fail(f"Cannot write EPContext data '{name}': {error.strerror or error}") from error

    return write


def save_context(built: Built, options: SessionOptions) -> None:
    """Write the model of a session with config entry ``ep.context_enable`` where its entries say, if any region could be
    exported. Fail when there is such a file."""
    config = options._config_entries
    path = config.get(FILE) or (context_path(str(built.model.path)) if built.model.path else "")
    if not path:
        raise InvalidArgument(f"{ENABLE} needs {FILE} for a model that is not loaded from a file")
    embed = config.get(EMBED, "0") == "1"
    proto, count = with_contexts(built, None if embed else beside(path), Path(path).stem, config.get(PREFIX, ""))
    if not count:
        return
    if os.path.exists(path):
        raise Fail(f"Failed to generate EP context model since the file '{path}' exist already.")
    try:
        Path(path).write_bytes(proto.SerializeToString())
    except OSError as error:
        raise Fail(f"Cannot write the EP context model to '{path}': {error.strerror or error}") from error


def context_path(path: str) -> str:
    """``model_ctx.onnx`` for ``model.onnx``."""
    return f"{path.removesuffix('.onnx')}_ctx.onnx"


def with_contexts(built: Built, write: Write | None, stem: str, prefix: str = "") -> tuple[Any, int]:
    """(ModelProto, number of regions in it): the session's graph with an EPContext node for every compiled region that
    its provider can export. ``write`` None: the nodes hold the data themselves."""
    proto = model_proto(built.graph, built.model.proto)
    units = list(_regions(built.placement.main))
    sources = set()
    for unit in units:
        if len(unit.nodes) == 1 and (unit.nodes[0].domain, unit.nodes[0].op_type) == EP_CONTEXT:
            continue
        blob = unit.compiled.export()
        if blob is None:
            continue
        graph = _graph_with(proto.graph, unit.nodes[0].name)
        if graph is None:
            continue  # the node stands in a function's body, which a file keeps as it was
        held = blob
        if write is not None:
            name = f"{stem}_{unit.provider.source}_{hashlib.blake2b(blob, digest_size=8).hexdigest()}.bin"
            write(name, blob)
            held = name.encode()
        _replace(graph, unit, _context(unit, held, write is None, prefix))
        sources.add(unit.provider.source)
    if sources:
        if EP_CONTEXT[0] not in (each.domain for each in proto.opset_import):
            proto.opset_import.add(domain=EP_CONTEXT[0], version=1)
        for name in sorted(sources):
            proto.metadata_props.add(key=COMPATIBILITY + name, value=compatibility_info(name))
        _drop_unused(proto.graph)
    return proto, sum(node.op_type == EP_CONTEXT[1] for graph in _graphs(proto.graph) for node in graph.node)


def _regions(placed: PlacedGraph) -> Iterator[RegionUnit]:
    for unit in placed.units:
        if isinstance(unit, RegionUnit):
            yield unit
        elif isinstance(unit, ControlUnit):
            for body in unit.bodies.values():
                yield from _regions(body)


def _context(unit: RegionUnit, held: bytes, embedded: bool, prefix: str) -> Any:
    from onnx import helper

    return helper.make_node(
        EP_CONTEXT[1],
        [located[0].name for located in unit.ins if located is not None],
        [located[0].name for located in unit.outs if located is not None],
        f"{prefix}{unit.region.name}",
        domain=EP_CONTEXT[0],
        main_context=1,
        embed_mode=int(embedded),
        ep_cache_context=held,
        source=unit.provider.source,
        partition_name=unit.region.name,
    )


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _graph_with(graph: Any, node: str) -> Any:
    return next((each for each in _graphs(graph) if any(n.name == node for n in each.node)), None)


def _replace(graph: Any, unit: RegionUnit, context: Any) -> None:
    """Put ``context`` where the region's nodes are, and bring the graph into a topological order again."""
    inside = {node.name for node in unit.nodes}
    nodes = [node for node in graph.node if node.name not in inside]
    ordered = _ordered([context, *nodes])
    del graph.node[:]
    graph.node.extend(ordered)
    known = {info.name for info in (*graph.output, *graph.value_info)}
    values = [located[0] for located in unit.outs if located is not None]
    graph.value_info.extend(value_info(value) for value in values if value.name not in known)


def _ordered(nodes: list[Any]) -> list[Any]:
    import graphlib

    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    needs = {i: {makers[name] for name in _reads(node) if name in makers} - {i} for i, node in enumerate(nodes)}
    return [nodes[index] for index in graphlib.TopologicalSorter(needs).static_order()]


def _reads(node: Any) -> Iterable[str]:
    """Names that a node and its nested graphs read; those made inside are unique in the model, so they do no harm."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from _reads(inner)
            yield from (output.name for output in attribute.g.output)


def _drop_unused(graph: Any) -> None:
    """Weights that only compiled regions read are in their data."""
    for each in _graphs(graph):
        used = {name for node in each.node for name in _reads(node)} | {o.name for o in each.output}
        inputs = {info.name for info in each.input}
        kept = [t for t in each.initializer if t.name in used or t.name in inputs]
        if len(kept) < len(each.initializer):
            del each.initializer[:]
            each.initializer.extend(kept)
