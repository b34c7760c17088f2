"""What is known of blocked tensors (see ``onnxplug.graph.blocked``) before they are made ordinary ones: which they are, how many
channels of them are padding, and what tells how long a block is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from onnxplug.contract.errors import InvalidGraph
from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.contract.types import TensorType
from onnxplug.graph.blocked import Filter, is_depthwise
from onnxplug.graph.blocked_schemas import blocked_schemas
from onnxplug.graph.check import check_node
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.schemas import NCHWC
from onnxplug.graph.value import Value

ELEMENTWISE = frozenset(
    {
        "Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "FastGelu", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Max",
        "Min", "Mish", "Mul", "Neg", "QuickGelu", "Relu", "Selu", "Sigmoid", "Softplus", "Sqrt", "Sub", "Sum", "Swish", "Tanh",
    }
)  # fmt: skip
"""What may stand between blocked operators, of ONNX and of onnxruntime: it does not look at where an element lies."""


class Channels:
    """What is known of the channels of blocked values that have equally many: ``padded`` to whole blocks, of which readers need the
    first ``needed``, or all."""

    __slots__ = ("all", "needed", "padded", "values")

    def __init__(self, value: Value, padded: int | None) -> None:
        self.values, self.padded, self.needed, self.all = [value], padded, 0, False

    def count(self, block: int) -> int | None:
        """How many there are without the padding; None for as many as there happen to be."""
        if self.all or self.padded is None:
            return self.padded if self.all else self.needed or None
        return min(self.padded, max(self.needed, self.padded - block + 1))


class Layout:
    """The blocked nodes of one graph, nested graphs apart."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.channels: dict[Value, Channels] = {}
        self.filters: dict[Node, Filter] = {}
        self.lengths: list[tuple[str, int]] = []
        for node in graph.nodes:
            self._note(node)
        if any(v in self.channels for v in graph.outputs):
            raise InvalidGraph(f"The graph '{graph.name}' gives a tensor with blocked channels as its output")

    def _note(self, node: Node) -> None:
        captured = [v for v in node.captures if v in self.channels]
        if node.domain == NCHWC:
            schema = blocked_schemas().get(node.op_type)
            if schema is None:
                raise OrtNotImplemented(
                    f"{node.label} (node '{node.name}') is not an operator of onnxruntime's on blocks that is known"
                )
            check_node(node, schema, [(a.name, a.type) for a in node.attribute_protos])
            if None in node.outputs:
                raise unfit(node)
            _NOTES.get(node.op_type, Layout._note_same)(self, node)
        elif captured or any(v in self.channels for v in node.inputs):
            kept = node.domain in ("", "com.microsoft") and not captured
            note = _NOTES_BETWEEN.get(node.op_type, Layout._note_elementwise if node.op_type in ELEMENTWISE else None)
            if not kept or note is None:
                raise OrtNotImplemented(f"{node.label} (node '{node.name}') reads a tensor with blocked channels")
            note(self, node)

    def _begin(self, value: Value, padded: int | None) -> Channels:
        made = self.channels[value] = Channels(value, padded)
        return made

    def _join(self, node: Node, *values: Value | None) -> None:
        """All these have equally many channels; those not known yet are made by the node."""
        known = [self.channels[v] for v in values if v in self.channels and v is not None]
        first = known[0]
        for other in known[1:]:
            if other is first:
                continue
            if None not in (first.padded, other.padded) and first.padded != other.padded:
                raise unfit(node)
            first.padded = first.padded or other.padded
            first.needed, first.all = max(first.needed, other.needed), first.all or other.all
            first.values += other.values
            self.channels.update(dict.fromkeys(other.values, first))
        for value in values:
            if value is not None and value not in self.channels:
                self.channels[value] = first
                first.values.append(value)

    def _note_conv(self, node: Node) -> None:
        x, weight, _, addend = (*node.inputs, None, None, None)[:4]
        kind = weight.type if weight is not None and weight.is_constant else None
        shape = (kind.static_shape or ()) if isinstance(kind, TensorType) and kind.element == "float" else ()
        group = int(node.attributes.get("group", 1))
        if x is None or weight is None or len(shape) != 4 or group < 1 or not math.prod(shape):
            raise unfit(node)
        blocked, depthwise = self.channels.get(x), is_depthwise(shape, group)
        each = self.filters[node] = Filter(node.name, weight, shape, group, blocked is not None and not depthwise)
        made, inputs = self._begin(only_output(node), shape[0]), shape[1] * group
        if blocked is None and group > 1:
            raise unfit(node)
        if blocked is not None:
            if blocked.padded not in (None, inputs):
                raise unfit(node)
            blocked.padded = inputs
            if each.is_depthwise:
                self._join(node, only_output(node), x)
            elif group > 1:
                blocked.all = made.all = True
        if addend is not None:
            if addend not in self.channels:
                raise unfit(node)
            self._join(node, only_output(node), addend)

    def _note_input(self, node: Node) -> None:
        self._begin(only_output(node), None)

    def _note_output(self, node: Node) -> None:
        x, count = first_input(node), int(node.attributes.get("channels", 0))
        if x not in self.channels or count < 1:
            raise unfit(node)
        self.channels[x].needed = max(self.channels[x].needed, count)

    def _note_same(self, node: Node) -> None:
        if first_input(node) not in self.channels:
            raise unfit(node)
        self._join(node, first_input(node), only_output(node))

    def _note_elementwise(self, node: Node) -> None:
        others = [v for v in node.inputs if v is not None and v not in self.channels]
        if any(v.constant is None or v.constant.size != 1 for v in others):
            raise OrtNotImplemented(
                f"{node.label} (node '{node.name}') reads a tensor with blocked channels and another without"
            )
        self._join(node, *(v for v in node.inputs if v in self.channels), only_output(node))

    def _note_concat(self, node: Node) -> None:
        parts = [self.channels[v] for v in node.inputs if v in self.channels and v is not None]
        if len(parts) < len(node.inputs) or node.attributes.get("axis") not in (1, -3):
            raise OrtNotImplemented(
                f"{node.label} (node '{node.name}') reads tensors with blocked channels otherwise than to join channels"
            )
        for part in parts:
            part.all = True
        sizes = [part.padded for part in parts if part.padded is not None]
        self._begin(only_output(node), sum(sizes) if len(sizes) == len(parts) else None).all = True

    def _note_reshape(self, node: Node) -> None:
        """Channels are split into blocks to be added up, and joined again."""
        shape = node.inputs[1].constant if len(node.inputs) > 1 and node.inputs[1] is not None else None
        sizes = [] if shape is None else shape.tolist()
        if [n != 0 for n in sizes] not in ([False, True, False, False, True], [False, True, False, False]):
            raise OrtNotImplemented(
                f"{node.label} (node '{node.name}') reads a tensor with blocked channels otherwise than to split them"
            )
        if len(sizes) == 5:
            self.lengths.append((node.name, sizes[4]))
        self._note_same(node)

    def aligned(self) -> Iterator[tuple[str, int, int]]:
        """ReorderOutputs with the channels they give and those they read."""
        for node in self.graph.nodes:
            if node.domain == NCHWC and node.op_type == "ReorderOutput":
                padded = self.channels[first_input(node)].padded
                if padded is not None:
                    yield node.name, int(node.attributes["channels"]), padded


def first_input(node: Node) -> Value:
    """The operand of a node that has been checked to have one."""
    value = node.inputs[0]
    assert value is not None
    return value


def only_output(node: Node) -> Value:
    """The result of a node that has been checked to have one."""
    value = node.outputs[0]
    assert value is not None
    return value


def unfit(node: Node) -> Exception:
    """InvalidGraph for a node that onnxruntime would not have written."""
    return InvalidGraph(
        f"{node.label} (node '{node.name}') does not fit the tensors with blocked channels that it reads"
    )


_Step = Callable[[Layout, Node], None]
_NOTES: Mapping[str, _Step] = {
    "Conv": Layout._note_conv,
    "ReorderInput": Layout._note_input,
    "ReorderOutput": Layout._note_output,
}
_NOTES_BETWEEN: Mapping[str, _Step] = {"Concat": Layout._note_concat, "Reshape": Layout._note_reshape}
