"""What lowerings of quantized operators share: parameters, readers of a value, values between integers and floats.

Where the target multiplies bytes they stay bytes. Otherwise a quantized tensor may lie as int16 less its zero point inside a
region, which is how integer products then read it; so it does where every reader can take that and one asks for it.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.bytedots import quad_form
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.qgemm import EIGHT_BITS
from onnxplug_ep_cpu.codegen.lower.support import number, typed
from onnxplug_ep_cpu.codegen.tensor import Tensor

MS = "com.microsoft"
# (domain, operator) -> positions of a quantized operand, and how far behind it its zero point is.
PRODUCTS = {
    ("", "QLinearConv"): ((0,), 2),
    (MS, "QLinearConv"): ((0,), 2),
    ("", "ConvInteger"): ((0,), 2),
    ("", "MatMulInteger"): ((0,), 2),
    ("", "QLinearMatMul"): ((0,), 2),
    (MS, "QGemm"): ((0,), 2),
    (MS, "MatMulIntegerToFloat"): ((0,), 4),
}
EITHER = {
    (MS, "QLinearAdd"): ((0, 3), 2),
    (MS, "QLinearMul"): ((0, 3), 2),
    (MS, "QLinearSigmoid"): ((0,), 2),
    (MS, "QLinearLeakyRelu"): ((0,), 2),
    (MS, "QLinearGlobalAveragePool"): ((0,), 2),
    (MS, "QLinearAveragePool"): ((0,), 2),
    ("", "DequantizeLinear"): ((0,), 2),
    (MS, "DequantizeLinear"): ((0,), 2),
}
FLOAT_PRODUCTS = frozenset({"Conv", "MatMul", "Gemm"})


def zero_of(value: ValueView | None) -> int | None:
    """A zero point: 0 where it is left out, None where it is not one constant."""
    if value is None:
        return 0
    found = number(value)
    return None if found is None else int(found)


def parameters(node: NodeView, *positions: int, arrays: Collection[int] = ()) -> str | None:
    """Why inputs at ``positions`` are not constants of one element (those in ``arrays``: of any shape), or None."""
    for position in positions:
        value = node.inputs[position] if position < len(node.inputs) else None
        if value is not None and (value.constant is None or (position not in arrays and value.constant.size != 1)):
            return f"'{value.name}', a scale or zero point, is computed or more than one"
    return None


def single(value: ValueView | None) -> str | None:
    """Why a zero point or scale is not known to be a single one."""
    if value is None or (value.shape is not None and all(n == 1 for n in value.shape)):
        return None
    return f"'{value.name}', a scale or zero point, is more than one"


def quantized_types(node: NodeView, *positions: int) -> str | None:
    """Why inputs at ``positions`` are not 8-bit tensors, or None."""
    return next((reason for p in positions if (reason := typed(node.inputs[p], EIGHT_BITS))), None)


def is_depthwise(node: NodeView, weights: ValueView | None) -> bool:
    """A convolution of each channel by itself."""
    shape = None if weights is None else weights.shape
    group = node.attributes.get("group", 1)
    return shape is not None and group > 1 and shape[0] == group and shape[1] == 1


def wants_wide(b: Lowering, value: ValueView, zero: int | ValueView) -> bool:
    """Whether to write the value as int16 less its zero point: a constant, or a value computed beside it."""
    if quad_form(b.target) or value.name in b.outputs or not value.consumers or b.element(value) not in EIGHT_BITS:
        return False
    found = [_reads(node, value, zero) for node in value.consumers]
    return "int16" in found and "8 bits" not in found


def _reads(node: NodeView, value: ValueView, zero: int | ValueView) -> str:
    key = (node.domain, node.op_type)
    positions, behind = PRODUCTS.get(key) or EITHER.get(key) or ((), 0)
    at = [i for i, v in enumerate(node.inputs) if v is not None and v.name == value.name]
    if not at or any(i not in positions or not _same(node, i + behind, zero) for i in at):
        return "8 bits"
    if node.op_type == "DequantizeLinear":
        readers = node.outputs[0].consumers if node.outputs[0] is not None else ()
        wide = any(r.op_type in FLOAT_PRODUCTS and _by_integers(r) for r in readers)
        return "int16" if wide else "either"
    return "int16" if key in PRODUCTS and not is_depthwise(node, _weights(node)) else "either"


def _weights(node: NodeView) -> ValueView | None:
    at = {"QLinearConv": 3, "ConvInteger": 1}.get(node.op_type)
    return None if at is None else node.inputs[at]


def _by_integers(node: NodeView) -> bool:
    """A float product whose weights are dequantized, so that it will be one of integers."""
    weights = node.inputs[1]
    maker = None if weights is None else weights.producer
    if maker is None or maker.op_type != "DequantizeLinear" or is_depthwise(node, weights):
        return False
    return maker.inputs[0] is not None and maker.inputs[0].constant is not None


def _same(node: NodeView, position: int, zero: int | ValueView) -> bool:
    given = node.inputs[position] if position < len(node.inputs) else None
    if isinstance(zero, int):
        return zero_of(given) == zero
    return given is not None and given.name == zero.name


def floats_of(build: ex.Build, leaf: int, tensor: Tensor, scale: int, zero: int) -> int:
    """(leaf - zero point) * scale in an expression; int16 tensors are without their zero point already."""
    if zero and tensor.element != "int16":
        leaf = build("sub", leaf, build("const", float(zero)))
    return build("mul", leaf, scale)


LEAST_DIVISOR, MOST_DIVISOR = 2.0**-60, 2.0**60
"""Between them nothing that rounds to other integers than 0, within some limits, is too small or too large on the way."""


def divided(b: Lowering, build: ex.Build, value: int, step: float) -> int:
    """value / step, which is about to be rounded to an integer within limits: the same integer, by multiplications, for a processor
    that has nothing else to do while it divides."""
    if (
        b.target.name != "avx512" or not LEAST_DIVISOR <= step <= MOST_DIVISOR
    ):  # narrower vectors are divided fast enough
        return build("div", value, build("const", step))
    divisor = np.float32(step)
    high = np.float32(1) / divisor
    low = np.float32((1.0 - float(high) * float(divisor)) / float(divisor))
    ratio = build("ratio", value, *(build("const", float(n)) for n in (divisor, high, low)))
    return build("where", build("isnan", ratio), value, ratio)


def constant_numbers(b: Lowering, array: np.ndarray) -> Tensor:
    """Float32 numbers that a kernel reads along its columns."""
    return b.tensor_of(np.ascontiguousarray(array, np.float32))
