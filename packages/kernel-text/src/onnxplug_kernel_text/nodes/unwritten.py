"""Quantized nodes whose kernels are not written, whatever sizes their open shapes turn out to have: for providers that have no other
kernel to go to when a run brings them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from onnxplug.contract import NodeView, ValueView
from onnxplug_kernel_text.nodes.chains import element

_SMALL = frozenset({"int8", "uint8", "int16", "uint16"})
_UNKNOWN = "shapes of factors, scales and zero points must be known"


@dataclass(frozen=True)
class Operands:
    """Numbers of a product's inputs: the factors, the right one's zero point, parameters of rows, of columns, those that are one number, a
    bias of columns."""

    left: int
    right: int
    zero: int
    rows: Collection[int] = ()
    columns: Collection[int] = ()
    single: Collection[int] = ()
    bias: int | None = None


PRODUCTS: Mapping[str, Operands] = {
    "MatMulInteger": Operands(0, 1, 3, (2,), (3,)),
    "QLinearMatMul": Operands(0, 3, 5, (1, 2, 6, 7), (4, 5)),
    "MatMulIntegerToFloat": Operands(0, 1, 5, (2, 4), (3, 5), (), 6),
    "DynamicQuantizeMatMul": Operands(0, 1, 3, (), (2, 3), (), 4),
    "QAttention": Operands(0, 1, 7, (), (4, 7), (3, 6), 2),
    "QGemm": Operands(0, 3, 5, (), (4, 5), (1, 2, 7, 8)),
    "ConvInteger": Operands(0, 1, 3, (), (3,), (2,)),
    "QLinearConv": Operands(0, 3, 5, (), (4, 5), (1, 2, 6, 7)),
}
"""Operator -> its operands; for convolutions the right factor are the weights."""


def is_convolution(node: NodeView) -> bool:
    """Whether a product is a convolution."""
    return node.op_type in ("ConvInteger", "QLinearConv")


def product(node: NodeView) -> str | None:
    """Of products and convolutions of 8-bit tensors."""
    operands = PRODUCTS[node.op_type]
    left, right = _rank(node, operands.left), _rank(node, operands.right)
    convolution = is_convolution(node)
    if left is None or right is None:
        return _UNKNOWN
    if convolution and left < 3:
        return "an input without spatial dimensions"
    if not convolution and right > 2 and left > 2 and not _same_batches(node, operands):
        return "batches of matrices that may be broadcast against each other"
    one = convolution or right <= 2
    rows = one and left <= 2
    for numbers, lines in ((operands.single, False), (operands.rows, rows), (operands.columns, one)):
        for value in (_given(node, n) for n in numbers):
            if value is not None and value.shape is None:
                return _UNKNOWN
            if value is not None and not _fits(value, lines=lines):
                return (
                    "scales or zero points that are neither one number nor a vector over rows or columns of one product"
                )
    bias = None if operands.bias is None else _given(node, operands.bias)
    return "a bias that is not known to be a vector" if bias is not None and len(bias.shape or ()) != 1 else None


def quantization(node: NodeView) -> str | None:
    """Of QuantizeLinear and DequantizeLinear."""
    x, scale = node.inputs[0], node.inputs[1]
    if node.op_type == "QuantizeLinear" and element(scale) != "float":
        return f"a scale of type {element(scale)}; quotients are made in float32"
    if node.attributes.get("precision", 0) not in (0, 1):
        return "quotients are made in float32 (precision)"
    if node.op_type == "QuantizeLinear" and element(node.outputs[0]) not in _SMALL:
        return f"numbers of type {element(node.outputs[0])}"
    parameters = [value for value in node.inputs[1:3] if value is not None]
    if x is None or any(value.shape is None for value in parameters):
        return _UNKNOWN
    if all(_fits(value, lines=False) for value in parameters):
        return None
    if x.shape is None:
        return "the rank of the input must be known"
    if all(len(v.shape or ()) < 2 for v in parameters) and not node.attributes.get("block_size", 0):
        return None
    return None if _blocks(node, parameters) else "blocks that are not known to divide the axis"


def _blocks(node: NodeView, parameters: Collection[ValueView]) -> bool:
    """Whether all parameters have an entry for each of equal blocks of an axis."""
    shapes = [tuple(value.shape or ()) for value in parameters]
    x, block = node.inputs[0], node.attributes.get("block_size", 0)
    whole = () if x is None else tuple(x.shape or ())
    if not whole or any(len(shape) != len(whole) or shape != shapes[0] for shape in shapes):
        return False
    axis = 0 if len(whole) == 1 else node.attributes.get("axis", 1) % len(whole)
    extent, count = whole[axis], shapes[0][axis]
    if not isinstance(extent, int) or not isinstance(count, int) or not count or extent % count:
        return False
    others = (*whole[:axis], *whole[axis + 1 :])
    known = all(isinstance(d, int) for d in others) and others == (*shapes[0][:axis], *shapes[0][axis + 1 :])
    return known and block in (0, extent // count)


def _same_batches(node: NodeView, operands: Operands) -> bool:
    """Whether both factors have the same matrices."""
    batches = [tuple(v.shape or ())[:-2] for n in (operands.left, operands.right) if (v := node.inputs[n]) is not None]
    return batches[0] == batches[1] and None not in batches[0]


def _fits(value: ValueView, *, lines: bool) -> bool:
    """Whether a parameter is one number or, where ``lines`` may have their own, a vector."""
    shape = value.shape or ()
    return all(extent == 1 for extent in shape) or (lines and len(shape) == 1)


def _given(node: NodeView, number: int) -> ValueView | None:
    return node.inputs[number] if number < len(node.inputs) else None


def _rank(node: NodeView, number: int) -> int | None:
    value = node.inputs[number]
    return None if value is None or value.shape is None else len(value.shape)
