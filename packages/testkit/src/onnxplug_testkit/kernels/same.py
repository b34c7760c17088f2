"""Nodes that mean the same as others: newer versions, general forms, and the nodes that an operator stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
from onnx import helper

from onnxplug_testkit.kernels.spelled import VERSION, spelled

Attributes = dict[str, Any]
Said = tuple[int, list[onnx.NodeProto]]
"""Version of ai.onnx, and nodes from the same inputs to the same outputs."""
Same = Callable[[onnx.ModelProto, onnx.NodeProto, Attributes], Said | None]
MS = "com.microsoft"

_same: dict[tuple[str, str], list[tuple[range, Same]]] = {}


def same_nodes(made: onnx.ModelProto) -> onnx.ModelProto | None:
    """A one-node model with its node replaced; None where no other form is known."""
    node, version = made.graph.node[0], made.opset_import[0].version
    given = {a.name: _plain(helper.get_attribute_value(a)) for a in node.attribute}
    found = next((s for versions, s in _same.get((node.domain, node.op_type), ()) if version in versions), None)
    if found is None and node.domain != MS:
        return None
    said = _spelled(made, node, given) if found is None else found(made, node, given)
    if said is None:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(made)
    del model.graph.node[:], model.opset_import[:]
    model.graph.node.extend(said[1])
    model.opset_import.append(helper.make_opsetid("", said[0]))
    if any(each.domain for each in said[1]):
        model.opset_import.append(helper.make_opsetid(MS, 1))
    return model


def _spelled(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    nodes = spelled(node, given, [shape_of(made, name) for name in node.input if name])
    return None if nodes is None else (VERSION, nodes)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def enter(*op_types: str, domain: str = "", since: int = 1, until: int = 99) -> Callable[[Same], Same]:
    """Enter a function that says what operators of some versions mean."""

    def entered(function: Same) -> Same:
        for op_type in op_types:
            _same.setdefault((domain, op_type), []).append((range(since, until + 1), function))
        return function

    return entered


def like(node: onnx.NodeProto, op_type: str = "", inputs: list[str] | None = None, **attributes: Any) -> onnx.NodeProto:
    """A node with the operands of another."""
    given = list(node.input) if inputs is None else inputs
    return helper.make_node(op_type or node.op_type, given, list(node.output), node.name, **attributes)


def shape_of(made: onnx.ModelProto, name: str) -> list[int]:
    """The shape that a graph input is declared with, or that an initializer has."""
    value = next((v for v in made.graph.input if v.name == name), None)
    if value is None:
        return list(next(t for t in made.graph.initializer if t.name == name).dims)
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


# ---- newer versions


@enter("GridSample", since=16, until=16)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 20 renamed the modes."""
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    mode = given.get("mode", "bilinear")
    return 20, [like(node, **{**given, "mode": renamed.get(mode, mode)})]


@enter("Cast", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 6 made the type a number."""
    return 6, [like(node, to=onnx.TensorProto.DataType.Value(given["to"]))]


@enter("Clip", "Split", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Clip's memory hint and Split's optional second input went; Split computes the parts it is not told."""
    version = {"Clip": 6, "Split": 2}[node.op_type]
    return (
        (version, [like(node, **{k: v for k, v in given.items() if k != "consumed_inputs"})])
        if len(node.input) < 2
        else None
    )


@enter("RNN", "GRU", "LSTM", until=3)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """The attribute output_sequence says what asking for the first output says."""
    return 7, [like(node, **{k: v for k, v in given.items() if k != "output_sequence"})]


@enter("LpPool", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 2 made p a whole number."""
    return 11, [like(node, **{**given, "p": int(given.get("p", 2.0))})]


@enter("MaxRoiPool", "Multinomial", since=22)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 22 added types only."""
    return 21, [like(node, **given)]


@enter("Tile", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """A count for one axis is a list of counts, one elsewhere."""
    x, tiles, axis = node.input
    return 13, [
        helper.make_node("Constant", [], ["axes"], value_ints=list(range(len(shape_of(made, x))))),
        helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("Cast", [axis], ["chosen"], to=onnx.TensorProto.INT64),
        helper.make_node("Cast", [tiles], ["count"], to=onnx.TensorProto.INT64),
        helper.make_node("Equal", ["axes", "chosen"], ["here"]),
        helper.make_node("Where", ["here", "count", "one"], ["repeats"]),
        like(node, inputs=[x, "repeats"]),
    ]


@enter("Upsample", until=8)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 9 made the scales an operand."""
    scales = given.get("scales") or [1.0, 1.0, given["height_scale"], given["width_scale"]]
    constant = helper.make_node("Constant", [], ["scales"], value=helper.make_tensor("", 1, [len(scales)], scales))
    return 9, [constant, like(node, inputs=[node.input[0], "scales"], mode=given.get("mode", "nearest"))]


# ---- general forms


@enter("GlobalLpPool")
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """LpPool with a window as large as the image."""
    return 18, [like(node, "LpPool", kernel_shape=shape_of(made, node.input[0])[2:], p=int(given.get("p", 2)))]


@enter("LayerNormalization", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """onnxruntime's own operator became the standard's."""
    return 17, [like(node, **given)]


@enter("GroupNormalization", since=18, until=20)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 18 had one scale and bias for each group, 21 has one for each channel."""
    groups, channels = given["num_groups"], shape_of(made, node.input[0])[1]
    nodes = [
        helper.make_node("Constant", [], ["column"], value_ints=[groups, 1]),
        helper.make_node("Constant", [], ["table"], value_ints=[groups, channels // groups]),
        helper.make_node("Constant", [], ["row"], value_ints=[channels]),
    ]
    for name in node.input[1:]:
        nodes.append(helper.make_node("Reshape", [name, "column"], [f"{name}_column"]))
        nodes.append(helper.make_node("Expand", [f"{name}_column", "table"], [f"{name}_table"]))
        nodes.append(helper.make_node("Reshape", [f"{name}_table", "row"], [f"{name}_row"]))
    return 21, [*nodes, like(node, inputs=[node.input[0], *(f"{name}_row" for name in node.input[1:])], **given)]


@enter("SimplifiedLayerNormalization", until=1)
@enter("SimplifiedLayerNormalization", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """RMSNormalization, whose inverse deviation is 1/sqrt(mean(x^2) + epsilon)."""
    x, axis = node.input[0], given.get("axis", -1)
    rank = len(shape_of(made, x))
    epsilon = helper.make_node("Constant", [], ["epsilon"], value_float=given.get("epsilon", 1e-5))
    axes = helper.make_node("Constant", [], ["axes"], value_ints=list(range(axis % rank, rank)))
    normed = helper.make_node("RMSNormalization", list(node.input), [node.output[0]], node.name, **given)
    if len(node.output) < 2:
        return 23, [normed]
    return 23, [
        normed, epsilon, axes, helper.make_node("Mul", [x, x], ["squares"]), helper.make_node("ReduceMean", ["squares", "axes"], ["mean"]),
        helper.make_node("CastLike", ["epsilon", "mean"], ["small"]), helper.make_node("Add", ["mean", "small"], ["sum"]),
        helper.make_node("Sqrt", ["sum"], ["deviation"]), helper.make_node("Reciprocal", ["deviation"], [node.output[1]]),
    ]  # fmt: skip


@enter("QLinearMatMul")
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Dequantize, multiply, quantize."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.input
    return 21, [
        helper.make_node("DequantizeLinear", [a, a_scale, a_zero], ["left"]),
        helper.make_node("DequantizeLinear", [b, b_scale, b_zero], ["right"]),
        helper.make_node("MatMul", ["left", "right"], ["product"]),
        like(node, "QuantizeLinear", ["product", y_scale, y_zero]),
    ]
