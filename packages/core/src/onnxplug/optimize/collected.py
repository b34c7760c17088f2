"""Sequences that a loop only fills, of tensors of one shape, and that are joined behind it: rows of one tensor.

Exporters write ``[f(k) for k in range(n)]`` and what concatenates or stacks it as a Loop that carries a sequence. What each trip gives
to a tensor is laid there by the loop, and providers see tensors only. Where only some trips append, it is the rows of those trips.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import TensorType
from onnxplug.graph.infer import infer_parts
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.making import plain_node
from onnxplug.graph.type_rules import stacked
from onnxplug.graph.value import Value
from onnxplug.optimize.filtered import Filtered, appended_in_branch, appended_or_nothing


def collect_sequences(graph: Graph, context: Any) -> bool:
    """Let Loops stack what they appended to sequences that begin empty and are only joined; joined without any trip, such a sequence is
    a tensor of no rows."""
    changed: set[Node] = set()
    for node in list(graph.nodes):
        if node.op_type != "Loop" or node.domain:
            continue
        for place in reversed(range(len(node.inputs) - 2)):
            readers = _joins(graph, node.outputs[place])
            found = _appended(node, place, readers) if readers else None
            item = found.item if isinstance(found, Filtered) else found
            if found is None or item is None or not all(_fits(reader, item) for reader in readers):
                continue
            _stack(graph, node, place, found, readers)
            changed.add(node)
            graph.refresh()
    if changed:
        infer_parts(graph, changed)
    return bool(changed)


def _appended(node: Node, place: int, readers: list[Node]) -> Value | Filtered | None:
    """What each trip puts at the end of a sequence of dense tensors that begins empty, if it does nothing else to it; or what some
    do."""
    body, given = node.subgraphs["body"], node.inputs[2 + place]
    inside, outside = body.inputs[2 + place], body.outputs[1 + place]
    begin, insert = None if given is None else given.producer, outside.producer
    if begin is None or begin.op_type != "SequenceEmpty" or insert is None or insert not in body.nodes:
        return None
    if outside.consumers or body.outputs.count(outside) > 1 or inside in body.outputs:
        return None
    if insert.op_type != "SequenceInsert" or insert.inputs[0] is not inside or any(insert.inputs[2:]):
        return appended_in_branch(body, inside, outside)
    item = insert.inputs[1]
    if inside.consumers != [insert] or item is None or item.is_noted or not isinstance(item.type, TensorType):
        return None
    shape = item.type.static_shape
    if (shape is not None and 0 not in shape) or all(reader.attributes.get("new_axis", 0) for reader in readers):
        return item  # along a new axis, only tensors of one shape are joined
    axes = {reader.attributes["axis"] for reader in readers if not reader.attributes.get("new_axis", 0)}
    return appended_or_nothing(body, item, insert, axes.pop()) if len(axes) == 1 else None


def _joins(graph: Graph, sequence: Value | None) -> list[Node]:
    """The nodes that join a sequence, if nothing else reads it."""
    if sequence is None or sequence in graph.outputs:
        return []
    joins = all(n in graph.nodes and n.op_type == "ConcatFromSequence" and not n.domain for n in sequence.consumers)
    return list(sequence.consumers) if joins else []


def _fits(join: Node, item: Value) -> bool:
    """Whether items have the axis along which they are joined."""
    if item.shape is None and join.attributes["axis"] != 0:
        return False
    rank = len(item.shape or ()) + bool(join.attributes.get("new_axis", 0))
    return -rank <= int(join.attributes["axis"]) < rank


def _stack(graph: Graph, node: Node, place: int, found: Value | Filtered, readers: list[Node]) -> None:
    body = node.subgraphs["body"]
    inside = body.inputs[2 + place]
    del node.inputs[2 + place], node.outputs[place], body.inputs[2 + place], body.outputs[1 + place]
    parts = found.settle(body) if isinstance(found, Filtered) else (found,)
    _drop_readers(body, inside)
    item, stacks = parts[0], [Value(graph.names.value(f"{node.name}_rows"), stacked(v.type)) for v in parts]
    body.outputs.extend(parts)
    node.outputs.extend(stacks)
    rows = stacks[0]
    if len(stacks) > 1:
        rows = Value(graph.names.value(f"{node.name}_kept"))
        kept = plain_node(graph, node, "Compress", stacks, [rows], axis=0)
        graph.nodes.insert(graph.nodes.index(node) + 1, kept)
    for join in readers:
        at = graph.nodes.index(join)
        graph.nodes[at : at + 1] = _joined(graph, join, rows, item)


def _drop_readers(graph: Graph, value: Value) -> None:
    """Remove what reads a value that is no longer there; nobody reads its results."""
    graph.nodes = [node for node in graph.nodes if value not in node.inputs]
    for node in graph.nodes:
        for branch in node.subgraphs.values():
            _drop_readers(branch, value)


def _joined(graph: Graph, join: Node, rows: Value, item: Value) -> list[Node]:
    """What joins the items that are stacked along the first axis."""
    shape, new = list(item.shape or ()), bool(join.attributes.get("new_axis", 0))
    axis, made, nodes = join.attributes["axis"] % (len(shape) + new), rows, []
    (result,) = join.outputs
    assert result is not None

    def add(op_type: str, inputs: list[Value], last: bool, **ints: Any) -> Value:
        target = result if last else Value(graph.names.value(f"{join.name}_part"))
        nodes.append(plain_node(graph, join, op_type, inputs, [target], **ints))
        return target

    if axis:
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
        made = add("Transpose", [made], new, perm=order)
    if not new:
        shape[axis] = -1
        add("Reshape", [made, graph.add_constant(f"{join.name}_shape", np.array(shape, np.int64))], True)
    elif not axis:
        add("Identity", [made], True)
    return nodes
