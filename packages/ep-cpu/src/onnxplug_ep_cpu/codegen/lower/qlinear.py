"""Element-wise operators and concatenation of quantized tensors: com.microsoft's QLinear operators without products."""

from __future__ import annotations

from dataclasses import replace

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.qbinary import combined, remaining
from onnxplug_ep_cpu.codegen.lower.qgemm import saturated
from onnxplug_ep_cpu.codegen.lower.quantized import MS, floats_of, parameters, quantized_types, wants_wide, zero_of
from onnxplug_ep_cpu.codegen.lower.support import attributes, axis_of, number, typed
from onnxplug_ep_cpu.codegen.tensor import Tensor


def _unary_supports(node: NodeView) -> str | None:
    return quantized_types(node, 0) or parameters(node, 1, 2, 3, 4)


def _binary_supports(node: NodeView) -> str | None:
    return quantized_types(node, 0, 3) or parameters(node, 1, 2, 4, 5, 6, 7)


@lowering("QLinearAdd", "QLinearMul", domain=MS, supports=_binary_supports)
def binary(b: Lowering, node: NodeView) -> None:
    """a + b or a * b, broadcast, quantized again."""
    (y,) = node.outputs
    assert y is not None
    numbers, leaves = [], list[Tensor | None]()
    for leaf, position in enumerate((0, 3)):
        x, (scale, point) = node.inputs[position], _parameters(node, position)
        assert x is not None
        leaves.append(b.read(x))
        numbers.append((leaf, scale, remaining(b.read(x), point)))
    step, zero = _parameters(node, 5)
    wide, element = wants_wide(b, y, zero), b.element(y)
    expr = combined("add" if node.op_type == "QLinearAdd" else "mul", numbers, step, zero, element, wide)
    b.values[y.name] = Pending(b.shape(y), expr, leaves, element="int16" if wide else element)
    b.read(y)


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
    (y,), (step, zero) = node.outputs, _parameters(node, 2)
    assert y is not None
    element, wide = b.element(x), wants_wide(b, y, zero)
    result = saturated(build, build("div", value, build("const", step)), zero, element, wide)
    pending = Pending(b.shape(y), build.finish(result), [b.read(x)], element="int16" if wide else element)
    b.values[y.name] = pending
    b.read(y)


def _where_supports(node: NodeView) -> str | None:
    return typed(node.inputs[0], {"bool"}) or quantized_types(node, 1, 4) or parameters(node, 2, 3, 5, 6, 7, 8)


@lowering("QLinearWhere", domain=MS, supports=_where_supports)
def where(b: Lowering, node: NodeView) -> None:
    """One of two dequantized values, quantized again."""
    condition, x, _, _, y, *_ = node.inputs
    (z,), (step, zero) = node.outputs, _parameters(node, 6)
    assert condition is not None and x is not None and y is not None and z is not None
    build = ex.Build()
    chosen = build("where", build("leaf", 0), _operand(b, build, node, 1, 1), _operand(b, build, node, 4, 2))
    element, wide = b.element(z), wants_wide(b, z, zero)
    result = saturated(build, build("div", chosen, build("const", step)), zero, element, wide)
    leaves: list[Tensor | None] = [b.read(v) for v in (condition, x, y)]
    b.values[z.name] = Pending(b.shape(z), build.finish(result), leaves, element="int16" if wide else element)
    b.read(z)


def _parameters(node: NodeView, position: int) -> tuple[float, int]:
    """The scale and the zero point behind an operand or, at the end, of the result."""
    step, zero = number(node.inputs[position + 1]), zero_of([*node.inputs, None][position + 2])
    assert step is not None and zero is not None
    return step, zero


def _operand(b: Lowering, build: ex.Build, node: NodeView, position: int, leaf: int) -> int:
    x, (step, point) = node.inputs[position], _parameters(node, position)
    assert x is not None
    return floats_of(build, build("leaf", leaf), b.read(x), build("const", step), point)


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
    axis = axis_of(node.attributes["axis"], len(shape))
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
