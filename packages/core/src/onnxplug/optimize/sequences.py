"""Sequences whose members the graph says, and optionals of which it says whether they hold something: what reads them reads the
members themselves.

``SequenceAt`` of a ``SequenceConstruct`` is one of its inputs, ``ConcatFromSequence`` a ``Concat``, ``SequenceLength`` a constant;
``SplitToSequence`` is a ``Split`` where nothing else reads it. What is left is tensors, which providers fuse and compile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from onnxplug.contract.records import record
from onnxplug.contract.types import OptionalType
from onnxplug.graph.infer import infer_parts
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.making import plain_node
from onnxplug.graph.value import Value
from onnxplug.optimize.fold import make_constant

_SPLITTING = ("Split", "Squeeze", "SequenceConstruct")
MOST = 32
"""Members up to which a tensor is split into them."""
_FROM = 13
"""Opset from which lengths and axes are inputs of Split, Squeeze and Unsqueeze."""
_ONE = np.array(1)


def resolve_sequences(graph: Graph, context: Any) -> bool:
    """Replace operators on sequences with known members, and on optionals with a known state, by ones on these."""
    if not any(n.op_type in _RULES and n.domain == "" for n in graph.nodes):
        return False
    return _Resolver(graph).run()


@record(slots=True)
class _Resolver:
    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    members: dict[Value, list[Value]] = field(default_factory=dict)
    held: dict[Value, Value | None] = field(default_factory=dict)
    """Optional -> what it holds."""
    readers: set[Node] = field(default_factory=set)

    def run(self) -> bool:
        old = self.graph.nodes
        for node in old:
            rule = _RULES.get(node.op_type) if node.domain == "" else None
            if rule is None or not rule(self, node):
                self.nodes.append(node)
        if self.nodes == old:
            return False
        self.graph.nodes = self.nodes
        infer_parts(self.graph, self.readers)
        return True

    # ---- what is known of a sequence

    def of(self, node: Node) -> list[Value] | None:
        """The members of the sequence a node reads first."""
        sequence = node.inputs[0]
        return None if sequence is None else self.members.get(sequence)

    def is_read_by_members(self, sequence: Value, count: int) -> bool:
        """Whether all that reads the sequence could read its ``count`` members instead."""
        own = set(self.graph.nodes)
        return sequence not in self.graph.outputs and all(
            node in own
            and node.domain == ""
            and node.inputs[:1] == [sequence]
            and sequence not in node.inputs[1:]
            and sequence not in node.captures
            and node.op_type in _READERS
            and _takes(node, count, self.graph.opset("") or 0)
            for node in sequence.consumers
        )

    # ---- what is made

    def add(self, node: Node, op_type: str, inputs: Sequence[Value], outputs: Sequence[Value], **ints: int) -> bool:
        """A node that does, or helps to do, what ``node`` did."""
        made = plain_node(self.graph, node, op_type, inputs, outputs, **ints)
        self.nodes.append(made)
        for value in outputs:
            self.readers.update(value.consumers)
        return True

    def value(self, node: Node) -> Value:
        return Value(self.graph.names.value(f"{node.name}_part"))

    def decide(self, node: Node, array: np.ndarray) -> bool:
        """The one output of the node is known."""
        (result,) = node.outputs
        assert result is not None
        make_constant(self.graph, result, array)
        self.readers.update(result.consumers)
        return True

    def is_taken(self, value: Value, *op_types: str) -> bool:
        """Whether operators take values of this one's type, which not all do that those on sequences do."""
        schemas = (self.graph.schemas.find("", op_type, self.graph.opset("") or 0) for op_type in op_types)
        return value.type is None or all(str(value.type) in schema.inputs[0].types for schema in schemas)

    def hand_on(self, node: Node, value: Value) -> bool:
        return self.is_taken(value, "Identity") and self.add(node, "Identity", [value], _results(node))


Rule = Callable[[_Resolver, Node], bool]


def _construct(known: _Resolver, node: Node) -> bool:
    known.members[_results(node)[0]] = [v for v in node.inputs if v is not None]
    return False


def _changed(known: _Resolver, node: Node) -> bool:
    """SequenceInsert, SequenceErase."""
    members = known.of(node)
    if members is None or not _takes(node, len(members), known.graph.opset("") or 0):
        return False
    place, left = _place(node, len(members)), list(members)
    assert place is not None
    if node.op_type == "SequenceErase":
        del left[place]
    else:
        assert node.inputs[1] is not None
        left.insert(place, node.inputs[1])
    known.members[_results(node)[0]] = left
    return known.add(node, "SequenceConstruct", left, _results(node))


def _split(known: _Resolver, node: Node) -> bool:
    lengths, (sequence,), axis = _lengths(node), _results(node), int(node.attributes.get("axis", 0))
    if lengths is None or not 0 < len(lengths) <= MOST or (known.graph.opset("") or 0) < _FROM:
        return False
    (source, *given), parts = node.inputs, [known.value(node) for _ in lengths]
    assert source is not None
    if not known.is_read_by_members(sequence, len(lengths)) or not known.is_taken(source, *_SPLITTING):
        return False
    sizes = known.graph.add_constant(f"{node.name}_lengths", np.array(lengths, np.int64))
    known.add(node, "Split", [source, sizes], parts, axis=axis)
    if not any(given) and not node.attributes.get("keepdims", 1):
        axes, slices = known.graph.add_constant(f"{node.name}_axes", np.array([axis])), parts
        parts = [known.value(node) for _ in lengths]
        for one, part in zip(slices, parts, strict=True):
            known.add(node, "Squeeze", [one, axes], [part])
    known.members[sequence] = parts
    return known.add(node, "SequenceConstruct", parts, [sequence])  # for a reader that stays after all


def _at(known: _Resolver, node: Node) -> bool:
    members = known.of(node)
    place = None if members is None else _place(node, len(members))
    return members is not None and place is not None and known.hand_on(node, members[place])


def _length(known: _Resolver, node: Node) -> bool:
    members = known.of(node)
    return members is not None and known.decide(node, np.array(len(members), np.int64))


def _concat(known: _Resolver, node: Node) -> bool:
    members, axis = known.of(node), int(node.attributes["axis"])
    if members is None or not _takes(node, len(members), known.graph.opset("") or 0):
        return False
    stacked = bool(node.attributes.get("new_axis", 0))
    if not _fit(members, axis, stacked) or not known.is_taken(members[0], "Concat", "Unsqueeze"):
        return False
    if stacked:
        axes, slices = known.graph.add_constant(f"{node.name}_axes", np.array([axis])), members
        members = [known.value(node) for _ in members]
        for one, part in zip(slices, members, strict=True):
            known.add(node, "Unsqueeze", [one, axes], [part])
    return known.add(node, "Concat", members, _results(node), axis=axis)


def _optional(known: _Resolver, node: Node) -> bool:
    known.held[_results(node)[0]] = node.inputs[0] if node.inputs else None
    return False


def _has_element(known: _Resolver, node: Node) -> bool:
    given = node.inputs[0] if node.inputs else None
    if given is None or given in known.held:
        return known.decide(node, np.array(given is not None and known.held[given] is not None))
    return _is_there(given) and known.decide(node, np.array(True))


def _get_element(known: _Resolver, node: Node) -> bool:
    given = node.inputs[0]
    held = given if given is None or _is_there(given) else known.held.get(given)
    return held is not None and known.hand_on(node, held)


_READERS: Mapping[str, Rule] = {
    "ConcatFromSequence": _concat, "SequenceAt": _at, "SequenceErase": _changed, "SequenceInsert": _changed,
    "SequenceLength": _length,
}  # fmt: skip
_RULES: Mapping[str, Rule] = {
    **_READERS, "Optional": _optional, "OptionalGetElement": _get_element, "OptionalHasElement": _has_element,
    "SequenceConstruct": _construct, "SplitToSequence": _split,
}  # fmt: skip


def _results(node: Node) -> list[Value]:
    return [v for v in node.outputs if v is not None]


def _takes(node: Node, count: int, opset: int) -> bool:
    """Whether a reader of a sequence of ``count`` members does what members and its other operands already say."""
    if node.op_type == "ConcatFromSequence":
        return count > 0 and (opset >= _FROM or not node.attributes.get("new_axis", 0))
    if node.op_type == "SequenceErase" and count == 1:
        return False  # a sequence of nothing is no SequenceConstruct
    return node.op_type == "SequenceLength" or _place(node, count) is not None


def _place(node: Node, count: int) -> int | None:
    """Where in a sequence of ``count`` members the node takes, puts or erases one; None where that is not known or there is
    no such place."""
    at, last = (2, count) if node.op_type == "SequenceInsert" else (1, count - 1)
    position = node.inputs[at] if at < len(node.inputs) else None
    if position is None:
        return last
    if position.constant is None or position.constant.size != 1:
        return None
    place = int(position.constant.item())
    return place % count if -count <= place < 0 else place if 0 <= place <= last else None


def _lengths(node: Node) -> list[int] | None:
    """The parts' lengths, which use up what is split as far as that is known."""
    source, split = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    shape, axis = None if source is None else source.shape, int(node.attributes.get("axis", 0))
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    total = shape[axis]
    size = _ONE if split is None else split.constant
    if size is None:
        return None
    if size.ndim:
        lengths = [int(n) for n in size]
        fit = not isinstance(total, int) or total == sum(lengths)
        return lengths if fit and min(lengths, default=0) >= 0 else None
    step = int(size)
    if not isinstance(total, int) or step < 1:
        return None
    return [min(step, total - start) for start in range(0, total, step)]


def _fit(members: Sequence[Value], axis: int, stacked: bool) -> bool:
    """Whether members, as far as their shapes are known, can be joined: what cannot is for the run to say."""
    shapes = [v.shape for v in members if v.shape is not None]
    rank = len(shapes[0]) if shapes else None
    if rank is None or any(len(shape) != rank for shape in shapes) or not -(rank + stacked) <= axis < rank + stacked:
        return rank is None
    along = None if stacked else axis % rank
    columns = [
        {d for d in dims if isinstance(d, int)} for at, dims in enumerate(zip(*shapes, strict=True)) if at != along
    ]
    return all(len(known) <= 1 for known in columns)


def _is_there(value: Value) -> bool:
    """Whether a value is something in any case: all are that are known not to be optional."""
    return value.type is not None and not isinstance(value.type, OptionalType)
