"""Sequences to which a loop appends in some of its trips: each trip has an item, and whether it counts.

``if keep: out.append(x)`` is exported as an If around the append, or as an append of what an If gives: an item, or one without elements
along the axis of the join. The If then gives an item in any case, of zeros where none is wanted, and is a choice between tensors.
"""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract.records import record
from onnxplug.contract.types import TensorType
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.making import plain_node
from onnxplug.graph.value import Value
from onnxplug.optimize.select import MOST


@record(frozen=True, slots=True)
class Filtered:
    """Output ``at`` of the If ``choice`` gives, from the branch of name ``of``, the ``item``; ``insert`` is the node in that branch that
    appends it, None where the item is what the branch gives."""

    choice: Node
    at: int
    of: str
    item: Value
    insert: Node | None

    def settle(self, body: Graph) -> tuple[Value, Value]:
        """The item of each trip and whether it counts, both made in ``body``, whose If gives nothing else in this place now, and is gone
        where it gave nothing else."""
        choice, item = self.choice, self.item
        branch, (other,) = choice.subgraphs[self.of], [g for n, g in choice.subgraphs.items() if n != self.of]
        small = _small(item)
        if self.insert is not None:
            branch.nodes.remove(self.insert)
        if self.insert is None or item in set(branch.values()):
            assert small is not None
            branch.outputs[self.at] = item
            other.outputs[self.at] = other.add_constant(f"{choice.name}_none", np.zeros(*small))
            item = choice.outputs[self.at] = Value(body.names.value(f"{choice.name}_item"), item.type)
        else:
            del choice.outputs[self.at], branch.outputs[self.at], other.outputs[self.at]
        counts = Value(body.names.value(f"{choice.name}_counts"))
        op_type = "Identity" if self.of == "then_branch" else "Not"
        at = body.nodes.index(choice)
        body.nodes[at : at + (not choice.outputs)] = [plain_node(body, choice, op_type, choice.inputs[:1], [counts])]
        return item, counts


def appended_in_branch(body: Graph, inside: Value, outside: Value) -> Filtered | None:
    """An If that gives the sequence it was given, in one branch with an item more at its end."""
    choice = outside.producer
    if not _is_choice(body, choice) or inside.consumers != [choice] or outside.consumers:
        return None
    assert choice is not None
    at, found = choice.outputs.index(outside), None
    for name, branch in choice.subgraphs.items():
        made = branch.outputs[at]
        node = None if made is inside else made.producer
        if [n for n in branch.nodes if inside in n.reads] != ([] if node is None else [node]):
            return None
        if branch.outputs.count(made) > 1 or (node is not None and (made.consumers or node.inputs[0] is not inside)):
            return None
        if node is not None and node.op_type == "SequenceInsert" and not any(node.inputs[2:]) and found is None:
            item = node.inputs[1]
            found = None if item is None else Filtered(choice, at, name, item, node)
        elif node is not None and (node.op_type != "Identity" or node.domain):
            return None
    return found if found is not None and _small(found.item) is not None else None


def appended_or_nothing(body: Graph, item: Value, insert: Node, axis: int) -> Filtered | None:
    """An If whose result is appended: an item in one branch, in the other one of the same sizes but for none along ``axis``."""
    choice = item.producer
    if not _is_choice(body, choice) or item.consumers != [insert] or item in body.outputs:
        return None
    assert choice is not None
    at = choice.outputs.index(item)
    for name, branch in choice.subgraphs.items():
        (other,) = [g for n, g in choice.subgraphs.items() if n != name]
        full, none = branch.outputs[at], other.outputs[at]
        small, shape = _small(full), none.type.static_shape if isinstance(none.type, TensorType) else None
        if (
            small is None
            or shape is None
            or none.is_noted
            or none.dtype != small[1]
            or not -len(shape) <= axis < len(shape)
        ):
            continue
        if shape[axis] == 0 and shape == tuple(np.where(np.arange(len(shape)) == axis % len(shape), 0, small[0])):
            return Filtered(choice, at, name, full, None)
    return None


def _is_choice(body: Graph, node: Node | None) -> bool:
    return (
        node is not None and node.op_type == "If" and not node.domain and node in body.nodes
        and None not in node.outputs and node.inputs[0] is not None and node.inputs[0].shape == ()
    )  # fmt: skip


def _small(item: Value) -> tuple[tuple[int, ...], np.dtype] | None:
    """Shape and type of an item that each trip may have."""
    shape = item.type.static_shape if isinstance(item.type, TensorType) else None
    if shape is None or item.is_noted or item.dtype is None or item.dtype.kind == "O" or 0 in shape:
        return None
    return (shape, item.dtype) if math.prod(shape) <= MOST else None
