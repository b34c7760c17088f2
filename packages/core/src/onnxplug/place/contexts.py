"""EPContext nodes: where a model keeps what a provider compiled in an earlier session, and getting it back."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract.claims import CompiledRegion
from onnxplug.contract.errors import Fail
from onnxplug.graph.ir import Graph, Node
from onnxplug.place.locate import CompiledGroup
from onnxplug.place.partition import Group
from onnxplug.place.regions import make_region

Read = Callable[[str], bytes]
"""Gives the data that a model names but does not hold."""


def restore(graph: Graph, group: Group, read: Read | None) -> CompiledGroup:
    """What the provider of an EPContext node's group compiled, ready to run. Fail when its data cannot be had."""
    (node,), provider = group.nodes, group.provider
    assert provider is not None
    unit = provider.call("load_region", blob=payload(node, graph.folder, read))
    if not isinstance(unit, CompiledRegion):
        raise Fail(f"{provider.name}: load_region must return a CompiledRegion, it gave {unit!r} (node '{node.name}')")
    inputs, outputs = [v for v in node.inputs if v is not None], [v for v in node.outputs if v is not None]
    if len(inputs) != len(node.inputs) or len(outputs) != len(node.outputs):
        raise Fail(f"EPContext node '{node.name}' leaves out an operand")
    return CompiledGroup(make_region(graph, group).region, unit, inputs, outputs)


def payload(node: Node, folder: str, read: Read | None) -> bytes:
    """The data of an EPContext node: from the node (embed_mode 1, the default), from ``read``, else from a file in the
    model's folder."""
    held = next((bytes(a.s) for a in node.attribute_protos if a.name == "ep_cache_context"), None)
    if held is None or not node.attributes.get("main_context", 1):
        raise Fail(f"EPContext node '{node.name}' has no context of its own")
    if node.attributes.get("embed_mode", 1):
        return held
    from pathlib import Path  # not for models without such a node

    name = held.decode("utf-8", "surrogateescape")
    if read is not None:
        return read(name)
    try:
        root = Path(folder).resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise Fail(f"EPContext node '{node.name}': '{name}' escapes the model directory '{root}'")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise Fail(f"EPContext node '{node.name}': '{name}' cannot be read: {error}") from error
