"""Nodes that do nothing, or whose results nobody reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug.contract.types import TensorType
from onnxplug.graph.ir import Graph, Node, Value


def drop_dead(graph: Graph, context: Any) -> bool:
    """Remove nodes none of whose outputs is read."""
    live = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(v in live for v in node.outputs if v is not None):
            kept.append(node)
            live.update(node.reads)
    changed = len(kept) != len(graph.nodes)
    graph.nodes = kept[::-1]
    return changed


def drop_identities(graph: Graph, context: Any) -> bool:
    """Let readers of a no-op's output read its input; the node itself goes where its output is no graph output of
    another name."""
    changed = False
    for node in list(graph.nodes):
        rule = _NO_OPS.get(node.op_type) if node.domain == "" else None
        if rule is None or node.inputs[0] is None or node.outputs[0] is None or not rule(node):
            continue
        source, result = node.inputs[0], node.outputs[0]
        if result in graph.outputs:
            if not _rename(graph, node, source, result):
                continue
        else:
            graph.replace(result, source)
            source.type = source.type or result.type
        graph.nodes.remove(node)
        graph.refresh()
        changed = True
    return changed


def inline_constant_branches(graph: Graph, context: Any) -> bool:
    """Replace an If whose condition is constant by the nodes of its branch."""
    changed = False
    for node in list(graph.nodes):
        if node.op_type != "If" or node.domain or node.inputs[0] is None or node.inputs[0].constant is None:
            continue
        branch = node.subgraphs["then_branch" if bool(node.inputs[0].constant.reshape(-1)[0]) else "else_branch"]
        made = {v for n in branch.nodes for v in n.outputs if v is not None}
        if any(
            r in graph.outputs and (b not in made or branch.outputs.count(b) > 1)
            for r, b in zip(node.outputs, branch.outputs, strict=False)
        ):
            continue
        at = graph.nodes.index(node)
        graph.nodes[at : at + 1] = branch.nodes
        for value in branch.values():
            if value in made or value.is_constant:
                value.name = f"{node.name}/{value.name}"
        for value in branch.initializers.values():
            graph.initializers[value.name] = value
        for result, inner in zip(node.outputs, branch.outputs, strict=False):
            if result is None:
                continue
            if result in graph.outputs:
                inner.name = result.name
            inner.type = inner.type or result.type
            graph.replace(result, inner)
        graph.refresh()
        changed = True
    return changed


def _rename(graph: Graph, node: Node, source: Value, result: Value) -> bool:
    """Let the producer of ``source`` make the graph output directly; impossible for inputs, constants, outputs and
    values of outer graphs."""
    producer = source.producer
    if producer is None or producer not in graph.nodes or source in graph.outputs:
        return False
    source.name, source.type = result.name, source.type or result.type
    graph.replace(result, source)
    return True


# ---- what is a no-op


def _always(node: Node) -> bool:
    return True


def _dropout(node: Node) -> bool:
    if (
        len(node.outputs) > 1
        and node.outputs[1] is not None
        and (node.outputs[1].consumers or node.outputs[1].producer is None)
    ):
        return False
    if node.since_version < 7:
        return bool(node.attributes.get("is_test", 0))
    training = node.inputs[2] if len(node.inputs) > 2 else None
    return training is None or (training.constant is not None and not training.constant.reshape(-1)[0])


def _same_type(node: Node) -> bool:
    source, result = node.inputs[0], node.outputs[0]
    return (
        source is not None and result is not None and source.type is not None and str(source.type) == str(result.type)
    )


def _same_shape(node: Node) -> bool:
    source, result = node.inputs[0], node.outputs[0]
    if (
        source is None
        or result is None
        or not isinstance(source.type, TensorType)
        or not isinstance(result.type, TensorType)
    ):
        return False
    return source.type.static_shape is not None and source.type.static_shape == result.type.static_shape


def _transpose(node: Node) -> bool:
    perm = node.attributes.get("perm")
    return perm is not None and list(perm) == list(range(len(perm)))


def _pad(node: Node) -> bool:
    pads: Any = node.attributes.get("pads", node.attributes.get("paddings"))
    if pads is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        pads = node.inputs[1].constant
    return pads is not None and not np.any(pads)


def _single(node: Node) -> bool:
    return len(node.inputs) == 1


_NO_OPS: dict[str, Callable[[Node], bool]] = {
    "Identity": _same_type, "Dropout": _dropout, "Cast": _same_type, "CastLike": _same_type, "Transpose": _transpose, "Pad": _pad,
    "Reshape": _same_shape, "Flatten": _same_shape, "Expand": _same_shape, "Concat": _single, "Sum": _single, "Max": _single,
    "Min": _single, "Mean": _single,
}  # fmt: skip
