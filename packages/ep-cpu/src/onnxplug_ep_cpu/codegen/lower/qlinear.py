"""Element-wise operators and concatenation of quantized tensors: com.microsoft's QLinear operators without products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Pending, attributes
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.qgemm import LIMITS, saturated
from onnxplug_ep_cpu.codegen.lower.quantized import (
    MS,
    floats_of,
    number,
    parameters,
    quantized_types,
    wants_wide,
    zero_of,
)
from onnxplug_ep_cpu.codegen.tensor import Tensor


def _unary_supports(node: NodeView) -> str | None:
    return quantized_types(node, 0) or parameters(node, 1, 2, 3, 4)


def _binary_supports(node: NodeView) -> str | None:
    return quantized_types(node, 0, 3) or parameters(node, 1, 2, 4, 5, 6, 7)


@lowering("QLinearAdd", "QLinearMul", domain=MS, supports=_binary_supports)
def binary(b: Lowering, node: NodeView) -> None:
    """a + b or a * b, broadcast, quantized again: scales and zero points are brought together first, as MLAS does (qladd_avx2.cpp,
    qlmul.cpp), and the zero point of the result is added before rounding, so that numbers halfway between two go the same way."""
    a, c = node.inputs[0], node.inputs[3]
    assert a is not None and c is not None
    numbers = [(b.read(x), *_parameters(node, at)) for x, at in ((a, 0), (c, 3))]
    step, zero = _parameters(node, 5)
    build = ex.Build()
    value = (_sum if node.op_type == "QLinearAdd" else _product)(build, numbers, step, zero)
    _quantized(b, node, build, value, [a, c], zero, 0)


Number = tuple[Tensor, np.float32, int]
"""A quantized tensor, its scale and its zero point."""


def _sum(build: ex.Build, numbers: list[Number], step: np.float32, zero: int) -> int:
    """(a - zero point) * scale + (b - zero point) * scale, over ``step``, plus ``zero``: two products and one constant."""
    (a_scale, a_zero), (b_scale, b_zero) = ((s / step, _remaining(t, z)) for t, s, z in numbers)
    fixed = np.float32(zero) - np.float32(float(a_scale) * a_zero + float(b_scale * np.float32(b_zero)))
    value = build("fma", build("leaf", 1), build("const", float(b_scale)), build("const", float(fixed)))
    return build("fma", build("leaf", 0), build("const", float(a_scale)), value)


def _product(build: ex.Build, numbers: list[Number], step: np.float32, zero: int) -> int:
    """(a - zero point) * (b - zero point), exact, times one factor, plus ``zero``."""
    less = []
    for leaf, (tensor, _, point) in enumerate(numbers):
        value, rest = build("leaf", leaf), _remaining(tensor, point)
        less.append(build("sub", value, build("const", float(rest))) if rest else value)
    (_, a_scale, _), (_, b_scale, _) = numbers
    value = build("mul", build("mul", *less), build("const", float(a_scale * b_scale / step)))
    return build("add", value, build("const", float(zero))) if zero else value


def _remaining(tensor: Tensor, zero: int) -> int:
    """The zero point that is yet to be taken from a tensor: none from int16."""
    return 0 if tensor.element == "int16" else zero


@lowering("QLinearSigmoid", "QLinearLeakyRelu", domain=MS, supports=_unary_supports)
def unary(b: Lowering, node: NodeView) -> None:
    """A function of the dequantized value, quantized again."""
    (x, *_) = node.inputs
    assert x is not None
    build = ex.Build()
    value = _operand(b, build, node, 0, 0)
    if node.op_type == "QLinearSigmoid":
        value = build("sigmoid", value)
    else:
        slope = build("const", attributes(node, alpha=0.01)["alpha"])
        value = build("where", build("less", value, build("const", 0.0)), build("mul", slope, value), value)
    step, zero = _parameters(node, 2)
    _quantized(b, node, build, build("div", value, build("const", float(step))), [x], zero, zero)


def _parameters(node: NodeView, position: int) -> tuple[np.float32, int]:
    """The scale and the zero point behind an operand or, at the end, of the result."""
    step, zero = number(node.inputs[position + 1]), zero_of([*node.inputs, None][position + 2])
    assert step is not None and zero is not None
    return np.float32(step), zero


def _operand(b: Lowering, build: ex.Build, node: NodeView, position: int, leaf: int) -> int:
    x, (step, point) = node.inputs[position], _parameters(node, position)
    assert x is not None
    return floats_of(build, build("leaf", leaf), b.read(x), build("const", float(step)), point)


def _quantized(
    b: Lowering, node: NodeView, build: ex.Build, value: int, inputs: list[ValueView], zero: int, added: int
) -> None:
    """The result, of zero point ``zero``, from a value in its units; ``added`` of the zero point comes after rounding."""
    (y,) = node.outputs
    assert y is not None
    element = b.element(inputs[0])
    wide = wants_wide(b, y, zero)
    limits = (build("const", float(limit - added)) for limit in LIMITS[element])
    result = build("quantize", value, *limits, build("int32", added - zero if wide else added))
    tensors: list[Tensor | None] = [b.read(x) for x in inputs]
    pending = Pending(b.shape(y), build.finish(result), tensors, element="int16" if wide else element)
    b.values[y.name] = pending
    b.read(y)


def _concat_supports(node: NodeView) -> str | None:
    count = len(node.inputs)
    parts = range(2, count, 3)
    known = parameters(node, 0, 1, *(p + 1 for p in parts), *(p + 2 for p in parts))
    return known or quantized_types(node, *parts)


@lowering("QLinearConcat", domain=MS, supports=_concat_supports)
def concat(b: Lowering, node: NodeView) -> None:
    """Inputs side by side, each brought to the scale and zero point of the result."""
    (y,) = node.outputs
    assert y is not None
    step, zero = number(node.inputs[0]), zero_of(node.inputs[1])
    assert step is not None and zero is not None
    shape, element = b.shape(y), b.element(y)
    axis = node.attributes["axis"] % len(shape)
    whole = b.output(y, element=element)
    start = 0
    for position in range(2, len(node.inputs), 3):
        x = node.inputs[position]
        assert x is not None
        tensor = b.read(x)
        part = replace(whole.shift(start * whole.strides[axis]), shape=tensor.shape)
        start += tensor.shape[axis]
        if number(node.inputs[position + 1]) == step and zero_of(node.inputs[position + 2]) == zero:
            copy(b.program, b.target, tensor, part)
            continue
        build = ex.Build()
        value = build("div", _operand(b, build, node, position, 0), build("const", step))
        write_map(b.program, b.target, build.finish(saturated(build, value, zero, element, False)), [tensor], part)
