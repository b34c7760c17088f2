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
    nodes = spelled(node, given, [_shape(made, name) for name in node.input if name])
    return None if nodes is None else (VERSION, nodes)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _enter(*op_types: str, domain: str = "", since: int = 1, until: int = 99) -> Callable[[Same], Same]:
    def enter(function: Same) -> Same:
        for op_type in op_types:
            _same.setdefault((domain, op_type), []).append((range(since, until + 1), function))
        return function

    return enter


def _node(
    like: onnx.NodeProto, op_type: str = "", inputs: list[str] | None = None, **attributes: Any
) -> onnx.NodeProto:
    """A node with the operands of another."""
    given = list(like.input) if inputs is None else inputs
    return helper.make_node(op_type or like.op_type, given, list(like.output), like.name, **attributes)


def _shape(made: onnx.ModelProto, name: str) -> list[int]:
    """The shape that a graph input is declared with, or that an initializer has."""
    value = next((v for v in made.graph.input if v.name == name), None)
    if value is None:
        return list(next(t for t in made.graph.initializer if t.name == name).dims)
    return [d.dim_value for d in value.type.tensor_type.shape.dim]


# ---- newer versions


@_enter("GridSample", since=16, until=16)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 20 renamed the modes."""
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    mode = given.get("mode", "bilinear")
    return 20, [_node(node, **{**given, "mode": renamed.get(mode, mode)})]


@_enter("Cast", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 6 made the type a number."""
    return 6, [_node(node, to=onnx.TensorProto.DataType.Value(given["to"]))]


@_enter("Clip", "Split", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Clip's memory hint and Split's optional second input went; Split computes the parts it is not told."""
    version = {"Clip": 6, "Split": 2}[node.op_type]
    return (
        (version, [_node(node, **{k: v for k, v in given.items() if k != "consumed_inputs"})])
        if len(node.input) < 2
        else None
    )


@_enter("RNN", "GRU", "LSTM", until=3)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """The attribute output_sequence says what asking for the first output says."""
    return 7, [_node(node, **{k: v for k, v in given.items() if k != "output_sequence"})]


@_enter("LpPool", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 2 made p a whole number."""
    return 11, [_node(node, **{**given, "p": int(given.get("p", 2.0))})]


@_enter("MaxRoiPool", "Multinomial", since=22)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 22 added types only."""
    return 21, [_node(node, **given)]


@_enter("Tile", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """A count for one axis is a list of counts, one elsewhere."""
    x, tiles, axis = node.input
    return 13, [
        helper.make_node("Constant", [], ["axes"], value_ints=list(range(len(_shape(made, x))))),
        helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("Cast", [axis], ["chosen"], to=onnx.TensorProto.INT64),
        helper.make_node("Cast", [tiles], ["count"], to=onnx.TensorProto.INT64),
        helper.make_node("Equal", ["axes", "chosen"], ["here"]),
        helper.make_node("Where", ["here", "count", "one"], ["repeats"]),
        _node(node, inputs=[x, "repeats"]),
    ]


@_enter("Upsample", until=8)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 9 made the scales an operand."""
    scales = given.get("scales") or [1.0, 1.0, given["height_scale"], given["width_scale"]]
    constant = helper.make_node("Constant", [], ["scales"], value=helper.make_tensor("", 1, [len(scales)], scales))
    return 9, [constant, _node(node, inputs=[node.input[0], "scales"], mode=given.get("mode", "nearest"))]


# ---- general forms


@_enter("GlobalLpPool")
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """LpPool with a window as large as the image."""
    return 18, [_node(node, "LpPool", kernel_shape=_shape(made, node.input[0])[2:], p=int(given.get("p", 2)))]


@_enter("LayerNormalization", until=1)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """onnxruntime's own operator became the standard's."""
    return 17, [_node(node, **given)]


@_enter("GroupNormalization", since=18, until=20)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Version 18 had one scale and bias for each group, 21 has one for each channel."""
    groups, channels = given["num_groups"], _shape(made, node.input[0])[1]
    nodes = [
        helper.make_node("Constant", [], ["column"], value_ints=[groups, 1]),
        helper.make_node("Constant", [], ["table"], value_ints=[groups, channels // groups]),
        helper.make_node("Constant", [], ["row"], value_ints=[channels]),
    ]
    for name in node.input[1:]:
        nodes.append(helper.make_node("Reshape", [name, "column"], [f"{name}_column"]))
        nodes.append(helper.make_node("Expand", [f"{name}_column", "table"], [f"{name}_table"]))
        nodes.append(helper.make_node("Reshape", [f"{name}_table", "row"], [f"{name}_row"]))
    return 21, [*nodes, _node(node, inputs=[node.input[0], *(f"{name}_row" for name in node.input[1:])], **given)]


@_enter("SimplifiedLayerNormalization", until=1)
@_enter("SimplifiedLayerNormalization", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """RMSNormalization, whose inverse deviation is 1/sqrt(mean(x^2) + epsilon)."""
    x, axis = node.input[0], given.get("axis", -1)
    rank = len(_shape(made, x))
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


@_enter("QLinearMatMul")
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Dequantize, multiply, quantize."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.input
    return 21, [
        helper.make_node("DequantizeLinear", [a, a_scale, a_zero], ["left"]),
        helper.make_node("DequantizeLinear", [b, b_scale, b_zero], ["right"]),
        helper.make_node("MatMul", ["left", "right"], ["product"]),
        _node(node, "QuantizeLinear", ["product", y_scale, y_zero]),
    ]


# ---- com.microsoft


@_enter("BiasAdd", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """x + bias + skip."""
    x, bias, skip = node.input
    return 14, [helper.make_node("Add", [x, bias], ["sum"]), _node(node, "Add", ["sum", skip])]


@_enter("BiasSoftmax", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Softmax(x + bias) over the axis and those behind it, as Softmax-11."""
    return 11, [
        helper.make_node("Add", list(node.input), ["sum"]),
        _node(node, "Softmax", ["sum"], axis=given.get("axis", 1)),
    ]


@_enter("BiasSplitGelu", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """The left half of x + bias times Gelu of the right half."""
    gelu = helper.make_node("Gelu", ["right"], ["gate"])
    halves = helper.make_node("Split", ["sum"], ["left", "right"], axis=-1, num_outputs=2)
    return 20, [helper.make_node("Add", list(node.input), ["sum"]), halves, gelu, _node(node, "Mul", ["left", "gate"])]


@_enter("BiasDropout", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Outside of training nothing is dropped: x + bias + residual, and a mask that is true."""
    x, bias, *rest = node.input
    nodes, total = [helper.make_node("Add", [x, bias], ["sum"])], "sum"
    if rest and rest[0]:
        nodes.append(helper.make_node("Add", ["sum", rest[0]], ["all"]))
        total = "all"
    return 22, [*nodes, _node(node, "Dropout", [total])]


@_enter("FusedMatMulActivation", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """A product, and the activation with its parameters."""
    sloped = {name.removeprefix("activation_"): v for name, v in given.items() if name.startswith("activation_")}
    turned = {name: value for name, value in given.items() if not name.startswith("activation")}
    domain = MS if turned else ""
    product = helper.make_node(
        "FusedMatMul" if turned else "MatMul", list(node.input), ["product"], domain=domain, **turned
    )
    active = helper.make_node(given["activation"], ["product"], list(node.output), node.name, **sloped)
    return 13, [product, active]


@_enter("Unique", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Unique in the order of first appearance; its second output tells where each element went."""
    y, where, counts = node.output
    return 11, [helper.make_node("Unique", list(node.input), [y, "", where, counts], node.name, sorted=0)]


@_enter("QuantizeLinear", "DequantizeLinear", "Gelu", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """These became the standard's."""
    return 21, [_node(node, **given)]


@_enter("GatherBlockQuantized", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Rows of the dequantized table."""
    table, wanted, scales, *zeros = node.input
    if given.get("bits", 4) != 4:
        return None
    blocks = {"axis": given.get("quantize_axis", 1), "block_size": given["block_size"]}
    return 23, [
        helper.make_node("DequantizeLinear", [table, scales, *zeros], ["wide"], **blocks),
        _node(node, "Gather", ["wide", wanted], axis=given.get("gather_axis", 0)),
    ]


@_enter("FusedGemm", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Gemm, and an activation without parameters."""
    plain = {k: v for k, v in given.items() if k in ("alpha", "beta", "transA", "transB")}
    if set(given) - set(plain) - {"activation"}:
        return None
    if not given.get("activation"):
        return 13, [_node(node, "Gemm", **plain)]
    return 13, [helper.make_node("Gemm", list(node.input), ["sum"], **plain), _node(node, given["activation"], ["sum"])]


@_enter("MatMulInteger16", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """The product of the operands in the result's type."""
    to = made.graph.output[0].type.tensor_type.elem_type
    wide = [helper.make_node("Cast", [name], [f"wide_{name}"], to=to) for name in node.input]
    return 13, [*wide, _node(node, "MatMul", [f"wide_{name}" for name in node.input])]


@_enter("QAttention", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Attention on the dequantized operands."""
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero = (*node.input, *[""] * 8)[:8]
    attention = helper.make_node("Attention", ["x", "w", bias, mask], list(node.output), node.name, domain=MS, **given)
    wide = [("x", [x, x_scale, x_zero]), ("w", [w, w_scale, w_zero])]
    return 21, [*(helper.make_node("DequantizeLinear", inputs, [name]) for name, inputs in wide), attention]


@_enter("QLinearSoftmax", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Dequantize, Softmax, quantize; before operator set 13 over the axis and all behind it."""
    x, x_scale, x_zero, y_scale, y_zero = node.input
    axis = given.get("axis", -1)
    shares = [helper.make_node("Softmax", ["wide"], ["shares"], axis=axis)]
    if given["opset"] < 13:
        shares = [
            helper.make_node("Flatten", ["wide"], ["flat"], axis=axis),
            helper.make_node("Softmax", ["flat"], ["rows"], axis=1),
            helper.make_node("Constant", [], ["shape"], value_ints=_shape(made, x)),
            helper.make_node("Reshape", ["rows", "shape"], ["shares"]),
        ]
    wide = helper.make_node("DequantizeLinear", [x, x_scale, *filter(None, [x_zero])], ["wide"])
    return 21, [wide, *shares, _node(node, "QuantizeLinear", ["shares", y_scale, y_zero])]


@_enter("QLinearReduceMean", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Dequantize, average, quantize."""
    x, x_scale, x_zero, y_scale, y_zero = node.input
    return 13, [
        helper.make_node("DequantizeLinear", [x, x_scale, x_zero], ["wide"]),
        helper.make_node("ReduceMean", ["wide"], ["mean"], axes=given["axes"], keepdims=given["keepdims"]),
        _node(node, "QuantizeLinear", ["mean", y_scale, y_zero]),
    ]
