"""Operators on blocked channels, which onnxruntime puts into models that it optimizes for its own processor, as ONNX's own.

What ``onnxplug.graph.blocked`` says of their layout is undone here: tensors are ordinary ones, of the channels that are not
padding, so that any provider runs such a model, on any processor. Operators that work element by element stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxplug.contract.errors import NotImplemented as OrtNotImplemented
from onnxplug.graph.blocked import Evidence, block_length
from onnxplug.graph.blocked_channels import Layout, first_input, only_output, unfit
from onnxplug.graph.build import arrange
from onnxplug.graph.infer import infer_node
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.making import make_node
from onnxplug.graph.schemas import NCHWC
from onnxplug.graph.value import Value

ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "HardSwish": (), "LeakyRelu": ("alpha",), "Relu": (), "Sigmoid": (),
    "Tanh": (),
}  # fmt: skip
"""What a blocked convolution may end with, and the names of ``activation_params``."""


def unblock(graph: Graph) -> None:
    """Replace the nodes of ``NCHWC`` in a graph and its nested graphs. InvalidGraph for what onnxruntime would not have written,
    NotImplemented for an operator whose blocked form is not known."""
    parts = [Layout(each) for each in _graphs(graph) if any(n.domain == NCHWC for n in each.nodes)]
    if not parts:
        return
    found = Evidence([], [], [])
    for part in parts:
        found.filters.extend(part.filters.values())
        found.aligned.extend(part.aligned())
        found.lengths.extend(part.lengths)
    block = block_length(found, graph.remarks)
    for part in parts:
        _Rewriter(part, block).run()
    arrange(graph)


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for nested in node.subgraphs.values():
            yield from _graphs(nested)


class _Rewriter:
    """Puts ordinary nodes in place of a graph's blocked ones."""

    def __init__(self, layout: Layout, block: int) -> None:
        self.graph, self._layout, self._block = layout.graph, layout, block
        self.opset = self.graph.opset("") or 1
        self._nodes: list[Node] = []

    def run(self) -> None:
        for node, each in self._layout.filters.items():
            if each.reads_blocks:
                read = self._layout.channels[first_input(node)]
                read.needed = max(read.needed, each.shape[1] - each.padding(self._block)[1])
        for value in self._layout.channels:
            value.type = None  # as the model may declare it, with its padding
        for node in self.graph.nodes:
            if node.domain == NCHWC:
                _RULES[node.op_type](self, node)
            elif node.op_type == "Reshape" and only_output(node) in self._layout.channels:
                self._add(node, "Identity", [first_input(node)])
            else:
                if not node.subgraphs:
                    infer_node(self.graph, node)
                self._nodes.append(node)
        self.graph.nodes = self._nodes

    def _add(
        self, node: Node, op_type: str, inputs: Sequence[Value | None], result: Value | None = None, **attributes: Any
    ) -> None:
        """A node that does, or helps to do, what ``node`` did: makes its result if no other."""
        outputs = [result or only_output(node)]
        name = f"{node.name}_{op_type.lower()}"
        self._nodes.append(make_node(self.graph, name, op_type, self.opset, inputs, outputs, attributes, node.origin))

    def _part(self, node: Node) -> Value:
        return Value(self.graph.names.value(f"{node.name}_part"))

    def _constant(self, node: Node, numbers: Any, kind: type = np.int64) -> Value:
        return self.graph.add_constant(f"{node.name}_constant", np.array(numbers, kind))

    def _kept(self, node: Node, op_type: str) -> dict[str, Any]:
        """The attributes that the ordinary operator has too."""
        known = self.graph.schemas.find("", op_type, self.opset).attributes
        return {name: value for name, value in node.attributes.items() if name in known}

    def _cut(self, node: Node, x: Value, channels: int, made: Value) -> None:
        """The first ``channels`` of ``x``."""
        if self.opset < 10:
            self._add(node, "Slice", [x], made, axes=[1], starts=[0], ends=[channels])
        else:
            self._add(node, "Slice", [x, *(self._constant(node, [n]) for n in (0, channels, 1))], made)

    def _conv(self, node: Node) -> None:
        x, weight, bias, addend = (*node.inputs, None, None, None)[:4]
        each, block = self._layout.filters[node], self._block
        assert x is not None and weight is not None
        outputs = self._layout.channels[only_output(node)].count(block) or each.shape[0]
        inputs, attributes = each.shape[1], self._kept(node, "Conv")
        if each.is_depthwise:
            attributes["group"] = outputs
        elif each.reads_blocks and each.group == 1:
            inputs = self._layout.channels[x].count(block) or inputs
        again = partial(each.plain, block, outputs, inputs)
        operands: list[Value | None] = [x, self.graph.add_constant(weight.name, again(), again)]
        if bias is not None:
            if bias.constant is None or bias.constant.shape[0] < outputs:
                raise unfit(node)
            operands.append(self.graph.add_constant(bias.name, bias.constant[:outputs].copy()))
        steps: list[tuple[str, list[Value | None], dict[str, Any]]] = [("Conv", operands, attributes)]
        if addend is not None:
            steps.append(("Add", [addend], {}))
        if "activation" in node.attributes:
            steps += self._activation(node)
        last, before = None, None
        for number, (op_type, operands, attributes) in enumerate(steps):
            result = only_output(node) if number == len(steps) - 1 else self._part(node)
            if last is not None:
                operands = [last, *operands] if op_type != "Mul" else [before, last]
            self._add(node, op_type, operands, result, **attributes)
            last, before = result, last

    def _activation(self, node: Node) -> list[tuple[str, list[Value | None], dict[str, Any]]]:
        """The steps of an activation; a Mul is of what the last two gave."""
        op_type, numbers = node.attributes["activation"], node.attributes.get("activation_params", [])
        names = ACTIVATIONS.get(op_type)
        if names is None or len(numbers) not in (0, len(names)) or (op_type == "Clip" and not numbers):
            raise OrtNotImplemented(
                f"Activation {op_type!r} of {node.label} (node '{node.name}') with {len(numbers)} parameters"
            )
        if op_type == "Clip" and self.opset >= 11:
            return [(op_type, [self._constant(node, number, np.float32) for number in numbers], {})]
        if op_type == "HardSwish" and self.opset < 14:  # is no operator there
            return [("HardSigmoid", [], {"alpha": 1 / 6, "beta": 0.5}), ("Mul", [], {})]
        return [(op_type, [], dict(zip(names, numbers, strict=False)))]

    def _pool(self, node: Node) -> None:
        self._add(node, node.op_type, [first_input(node)], **self._kept(node, node.op_type))

    def _upsample(self, node: Node) -> None:
        scales, mode = [float(n) for n in node.attributes.get("scales", [])], node.attributes.get("mode", "nearest")
        if len(scales) != 4 or scales[:2] != [1, 1] or mode not in ("nearest", "linear"):
            raise unfit(node)
        place = node.attributes.get("coordinate_transformation_mode", "asymmetric")
        if self.opset < 11 and place != "asymmetric":
            raise unfit(node)
        x = first_input(node)
        if self.opset < 9:
            self._add(node, "Upsample", [x], scales=scales, mode=mode)
        elif self.opset < 11:
            self._add(
                node,
                "Upsample" if self.opset < 10 else "Resize",
                [x, self._constant(node, scales, np.float32)],
                mode=mode,
            )
        else:
            region = self._constant(node, [], np.float32) if self.opset < 13 else None
            rounding = "floor" if mode == "nearest" else None
            operands = [x, region, self._constant(node, scales, np.float32)]
            self._add(node, "Resize", operands, mode=mode, coordinate_transformation_mode=place, nearest_mode=rounding)

    def _input(self, node: Node) -> None:
        x, wanted = first_input(node), self._layout.channels[only_output(node)].count(self._block)
        if node.attributes.get("channels_last", 0):
            first = self._part(node)
            self._add(node, "Transpose", [x], first, perm=[0, 3, 1, 2])
            x = first
        have = x.shape[1] if x.shape is not None and len(x.shape) == 4 else None
        if isinstance(have, int) and wanted is not None and have > wanted:
            self._cut(node, x, wanted, only_output(node))
        else:
            self._add(node, "Identity", [x])

    def _output(self, node: Node) -> None:
        x, wanted = first_input(node), int(node.attributes["channels"])
        have, last = self._layout.channels[x].count(self._block), bool(node.attributes.get("channels_last", 0))
        if have != wanted:
            made = self._part(node) if last else only_output(node)
            self._cut(node, x, wanted, made)
            x = made
        if last:
            self._add(node, "Transpose", [x], perm=[0, 2, 3, 1])
        elif have == wanted:
            self._add(node, "Identity", [x])


_Step = Callable[[_Rewriter, Node], None]
_RULES: Mapping[str, _Step] = {
    "Conv": _Rewriter._conv,
    "MaxPool": _Rewriter._pool,
    "AveragePool": _Rewriter._pool,
    "GlobalMaxPool": _Rewriter._pool,
    "GlobalAveragePool": _Rewriter._pool,
    "Upsample": _Rewriter._upsample,
    "ReorderInput": _Rewriter._input,
    "ReorderOutput": _Rewriter._output,
}
