"""What Slices give, where data decide where they begin: which sizes they leave alone, and which are a single element in each trip of
a loop."""

from __future__ import annotations

from typing import Any

from onnxplug.contract.types import TensorType
from onnxplug.graph.infer import infer_parts
from onnxplug.graph.infer_slices import axes_of, cut_type
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.making import plain_node
from onnxplug.graph.type_rules import merge
from onnxplug.optimize.offsets import is_there_in_trips, offset


def size_slices(graph: Graph, context: Any) -> bool:
    """Note the sizes that Slices do not cut, of which onnx says nothing where places are computed; in bodies of Loops, read by a Gather
    what is one element in each trip, the trip's own."""
    owner, changed = graph.owner, set[Node]()
    for at, node in enumerate(list(graph.nodes)):
        if axes_of(node) is None:
            continue
        if owner is not None and _is_own(owner, node):
            graph.nodes[at] = _gather(graph, node)
            changed.add(graph.nodes[at])
        elif _note_sizes(node):
            changed.update(v for value in node.outputs if value is not None for v in value.consumers)
    if changed:
        graph.refresh()
        infer_parts(graph, changed)
    return bool(changed)


def _note_sizes(node: Node) -> bool:
    """Whether more is known now of what a Slice gives."""
    known, (result,) = cut_type(node), node.outputs
    type_ = None if result is None else merge(result.type, known)
    if known is None or result is None or type_ == result.type:
        return False
    result.type = type_
    return True


def _is_own(loop: Node, node: Node) -> bool:
    """Whether a Slice gives the element of a list at the trip's number, or so many further on, and there is one in each trip."""
    source, start, end = node.inputs[:3]
    steps = node.inputs[4] if len(node.inputs) > 4 else None
    if source is None or start is None or end is None or axes_of(node) != [0]:
        return False
    if steps is not None and (steps.constant is None or (steps.constant != 1).any()):
        return False
    (base, first), (other, last) = offset(start), offset(end)
    if other is not base or last != first + 1 or start.shape != (1,):
        return False
    return is_there_in_trips(loop, start, source)


def _gather(graph: Graph, node: Node) -> Node:
    (result,) = node.outputs
    assert result is not None
    result.type = None if not isinstance(result.type, TensorType) else TensorType(result.type.element)
    return plain_node(graph, node, "Gather", node.inputs[:2], [result], axis=0)
