"""What operators of com.microsoft stand for: the standard's, or the nodes of a decomposition."""

from __future__ import annotations

import onnx
from onnx import helper

from onnxplug_testkit.kernels.same import MS, Attributes, Said, enter, like, shape_of


@enter("BiasAdd", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """x + bias + skip."""
    x, bias, skip = node.input
    return 14, [helper.make_node("Add", [x, bias], ["sum"]), like(node, "Add", ["sum", skip])]


@enter("BiasSoftmax", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Softmax(x + bias) over the axis and those behind it, as Softmax-11."""
    return 11, [
        helper.make_node("Add", list(node.input), ["sum"]),
        like(node, "Softmax", ["sum"], axis=given.get("axis", 1)),
    ]


@enter("BiasSplitGelu", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """The left half of x + bias times Gelu of the right half."""
    gelu = helper.make_node("Gelu", ["right"], ["gate"])
    halves = helper.make_node("Split", ["sum"], ["left", "right"], axis=-1, num_outputs=2)
    return 20, [helper.make_node("Add", list(node.input), ["sum"]), halves, gelu, like(node, "Mul", ["left", "gate"])]


@enter("BiasDropout", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Outside of training nothing is dropped: x + bias + residual, and a mask that is true."""
    x, bias, *rest = node.input
    nodes, total = [helper.make_node("Add", [x, bias], ["sum"])], "sum"
    if rest and rest[0]:
        nodes.append(helper.make_node("Add", ["sum", rest[0]], ["all"]))
        total = "all"
    return 22, [*nodes, like(node, "Dropout", [total])]


@enter("FusedMatMulActivation", domain=MS)
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


@enter("Unique", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Unique in the order of first appearance; its second output tells where each element went."""
    y, where, counts = node.output
    return 11, [helper.make_node("Unique", list(node.input), [y, "", where, counts], node.name, sorted=0)]


@enter("QuantizeLinear", "DequantizeLinear", "Gelu", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """These became the standard's."""
    return 21, [like(node, **given)]


@enter("GatherBlockQuantized", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Rows of the dequantized table."""
    table, wanted, scales, *zeros = node.input
    if given.get("bits", 4) != 4:
        return None
    blocks = {"axis": given.get("quantize_axis", 1), "block_size": given["block_size"]}
    return 23, [
        helper.make_node("DequantizeLinear", [table, scales, *zeros], ["wide"], **blocks),
        like(node, "Gather", ["wide", wanted], axis=given.get("gather_axis", 0)),
    ]


@enter("FusedGemm", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Gemm, and an activation without parameters."""
    plain = {k: v for k, v in given.items() if k in ("alpha", "beta", "transA", "transB")}
    if set(given) - set(plain) - {"activation"}:
        return None
    if not given.get("activation"):
        return 13, [like(node, "Gemm", **plain)]
    return 13, [helper.make_node("Gemm", list(node.input), ["sum"], **plain), like(node, given["activation"], ["sum"])]


@enter("MatMulInteger16", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """The product of the operands in the result's type."""
    to = made.graph.output[0].type.tensor_type.elem_type
    wide = [helper.make_node("Cast", [name], [f"wide_{name}"], to=to) for name in node.input]
    return 13, [*wide, like(node, "MatMul", [f"wide_{name}" for name in node.input])]


@enter("QAttention", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Attention on the dequantized operands."""
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero = (*node.input, *[""] * 8)[:8]
    attention = helper.make_node("Attention", ["x", "w", bias, mask], list(node.output), node.name, domain=MS, **given)
    wide = [("x", [x, x_scale, x_zero]), ("w", [w, w_scale, w_zero])]
    return 21, [*(helper.make_node("DequantizeLinear", inputs, [name]) for name, inputs in wide), attention]


@enter("QLinearSoftmax", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Dequantize, Softmax, quantize; before operator set 13 over the axis and all behind it."""
    x, x_scale, x_zero, y_scale, y_zero = node.input
    axis = given.get("axis", -1)
    shares = [helper.make_node("Softmax", ["wide"], ["shares"], axis=axis)]
    if given["opset"] < 13:
        shares = [
            helper.make_node("Flatten", ["wide"], ["flat"], axis=axis),
            helper.make_node("Softmax", ["flat"], ["rows"], axis=1),
            helper.make_node("Constant", [], ["shape"], value_ints=shape_of(made, x)),
            helper.make_node("Reshape", ["rows", "shape"], ["shares"]),
        ]
    wide = helper.make_node("DequantizeLinear", [x, x_scale, *filter(None, [x_zero])], ["wide"])
    return 21, [wide, *shares, like(node, "QuantizeLinear", ["shares", y_scale, y_zero])]


@enter("QLinearAdd", "QLinearMul", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Dequantize both, add or multiply, quantize to the type of the operands."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (*node.input, "")[:8]
    return 21, [
        _dequantized("left", a, a_scale, a_zero),
        _dequantized("right", b, b_scale, b_zero),
        helper.make_node(node.op_type.removeprefix("QLinear"), ["left", "right"], ["wide"]),
        _requantized(made, node, "wide", y_scale, y_zero),
    ]


@enter("QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearReduceMean", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """Dequantize, compute, quantize to the type of the operand."""
    x, x_scale, x_zero, y_scale, y_zero = (*node.input, "")[:5]
    if given.pop("channels_last", 0):
        return None
    nodes = [_dequantized("wide", x, x_scale, x_zero)]
    operands = ["wide"]
    if axes := given.pop("axes", None):
        nodes.append(helper.make_node("Constant", [], ["axes"], value_ints=axes))
        operands.append("axes")
    return 21, [
        *nodes,
        helper.make_node(node.op_type.removeprefix("QLinear"), operands, ["result"], **given),
        _requantized(made, node, "result", y_scale, y_zero),
    ]


def _dequantized(made: str, x: str, scale: str, zero: str) -> onnx.NodeProto:
    return helper.make_node("DequantizeLinear", [x, scale, *filter(None, [zero])], [made])


def _requantized(made: onnx.ModelProto, node: onnx.NodeProto, x: str, scale: str, zero: str) -> onnx.NodeProto:
    """Quantized to the zero point's type, or to that of the results where there is none."""
    if zero:
        return like(node, "QuantizeLinear", [x, scale, zero])
    return like(node, "QuantizeLinear", [x, scale], output_dtype=made.graph.output[0].type.tensor_type.elem_type)


@enter("ConvTransposeWithDynamicPads", domain=MS)
def _(made: onnx.ModelProto, node: onnx.NodeProto, given: Attributes) -> Said | None:
    """ConvTranspose, where no operand tells the pads."""
    x, w, pads, bias = (*node.input, "", "")[:4]
    return None if pads else (11, [like(node, "ConvTranspose", [x, w, *filter(None, [bias])], **given)])
