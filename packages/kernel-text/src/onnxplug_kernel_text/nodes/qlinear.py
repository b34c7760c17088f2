"""Operators of domain com.microsoft on 8-bit tensors with a scale and a zero point each: computed in float32, quantized again."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug.contract import NodeView
from onnxplug_kernel_text.expression import expression
from onnxplug_kernel_text.layout import Strides, broadcast, dense, space
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Job, Launch, Pass, integers, text_type
from onnxplug_kernel_text.quantize import channel_means, saturated
from onnxplug_kernel_text.types import APART, literal

_GROUP = 64
_TENSORS = {"QLinearAdd": {0, 3}, "QLinearMul": {0, 3}, "QLinearWhere": {0, 1, 4}}
"""Inputs that are no parameters, where not the first alone."""


class _Operands:
    """What a kernel reads over a shape, as it is asked for."""

    def __init__(self, call: NodeCall, shape: tuple[int, ...]) -> None:
        self._call, self.shape = call, shape
        self.read: list[tuple[Ref, str]] = []
        self.walks: list[Strides] = []

    def __call__(self, number: int) -> str:
        """The variable of an input."""
        spec = self._call.input(number)
        alone = math.prod(spec.shape) == 1
        self.walks.append((0,) * len(self.shape) if alone else broadcast(spec.shape, self.shape))
        self.read.append((self._call.read(number), text_type(spec.dtype)))
        return f"x{len(self.read) - 1}"

    def zero(self, number: int) -> str | None:
        """The variable of a zero point, None where it is omitted."""
        return None if self._call.given(number) is None else self(number)

    def floats(self, number: int) -> str:
        """The value of a quantized input, which its scale and zero point follow."""
        x, scale, zero = self(number), self(number + 1), self.zero(number + 2)
        return f"(((f32){x}{'' if zero is None else f' - (f32){zero}'}) * {scale})"


def binary(call: NodeCall) -> Pass:
    """QLinearAdd and QLinearMul: scales and zero points are brought together first, rounded as the kernels with NumPy do."""
    operands = _Operands(call, call.output().shape)
    (a, a_scale, a_zero), (b, b_scale, b_zero) = ((operands(n), operands(n + 1), operands.zero(n + 2)) for n in (0, 3))
    scale, zero = operands(6), operands.zero(7)
    points = [f"(f32){name}" if name else "0.0f" for name in (a_zero, b_zero, zero)]
    if call.op_type == "QLinearAdd":
        factors = f"const f32 p = {a_scale} / {scale}, q = {b_scale} / {scale};"
        value = f"fma((f32){a}, p, fma((f32){b}, q, {points[2]} - fma(p, {points[0]}, q * {points[1]})))"
    else:
        factors = f"const f32 p = {a_scale} * {b_scale} / {scale};"
        value = f"((f32){a} - {points[0]}) * ((f32){b} - {points[1]}) * p + {points[2]}"
    out = text_type(call.output().dtype)
    walked = space(operands.shape, [*operands.walks, dense(operands.shape)])
    body = f"{{\n{APART}{factors} {saturated('y0', value, None, out)} }}"
    return Pass(operands.read, (call.write(), out), walked, body)


def unary(call: NodeCall) -> Pass:
    """QLinearSigmoid and QLinearLeakyRelu."""
    operands = _Operands(call, call.output().shape)
    alpha = literal(call.attributes.get("alpha", 0.01), "f32")
    value = f"const f32 a = {operands.floats(0)};"
    made = expression("Sigmoid", ["a"], ["f32"], "f32", {})
    return _quantized(
        call, operands, made if call.op_type == "QLinearSigmoid" else f"(a < 0 ? {alpha} * a : a)", 3, value
    )


def where(call: NodeCall) -> Pass:
    """QLinearWhere."""
    operands = _Operands(call, call.output().shape)
    return _quantized(call, operands, f"({operands(0)} ? {operands.floats(1)} : {operands.floats(4)})", 7)


def concat(call: NodeCall) -> list[Pass] | None:
    """QLinearConcat: a pass for each input; None for inputs that do not lie side by side."""
    whole, start = call.output(), 0
    axis, strides = call.attributes["axis"] % len(whole.shape), dense(whole.shape)
    parts = [call.input(n).shape for n in range(2, len(call.inputs), 3)]
    others = {(*part[:axis], *part[axis + 1 :]) for part in parts}
    if others != {(*whole.shape[:axis], *whole.shape[axis + 1 :])} or any(
        len(part) != len(whole.shape) for part in parts
    ):
        return None
    if sum(part[axis] for part in parts) != whole.shape[axis]:
        return None
    found = []
    for n in range(2, len(call.inputs), 3):
        shape = call.input(n).shape
        operands = _Operands(call, shape)
        value, target = operands.floats(n), call.write(0, start * strides[axis])
        made = _quantized(call, operands, value, 0, target=target, strides=strides)
        start += shape[axis]
        if math.prod(shape):
            found.append(made)
    return found


def global_average(call: NodeCall) -> Job:
    """QLinearGlobalAveragePool: sums are exact, scaled once."""
    x, type_ = call.input(0).shape, text_type(call.output().dtype)
    last = bool(call.attributes.get("channels_last", 0))
    if len(x) < 2 or any(math.prod(spec.shape) != 1 for spec in call.inputs[1:] if spec is not None):
        raise ValueError(f"an image of shape {x}, or scales and zero points that are not one number each")
    images, channels, pixels = x[0], x[-1] if last else x[1], math.prod(x[1:-1] if last else x[2:])
    steps = (channels * pixels, 1, channels) if last else (channels * pixels, pixels, 1)
    zeros = call.given(2) is not None, call.given(4) is not None
    tensors = [call.read(n) for n in range(5) if call.given(n) is not None] + [call.write()]
    scalars = integers(images * channels, channels, pixels, *steps)
    text = channel_means(call.op_type, type_, *zeros)
    return Job([Launch(text, call.op_type, tuple(tensors), scalars, -(-images * channels // _GROUP), _GROUP)])


def several(node: NodeView) -> str | None:
    """Scales and zero points that are not known to be one number each."""
    tensors = set(range(2, len(node.inputs), 3)) if node.op_type == "QLinearConcat" else _TENSORS.get(node.op_type, {0})
    parameters = (value for n, value in enumerate(node.inputs) if n not in tensors and value is not None)
    if any(value.shape is None or any(extent != 1 for extent in value.shape) for value in parameters):
        return "scales and zero points must be known to be one number each"
    return None


def _quantized(
    call: NodeCall,
    operands: _Operands,
    value: str,
    scale: int,
    before: str = "",
    target: Ref | None = None,
    strides: Sequence[int] | None = None,
) -> Pass:
    """``value`` by a scale, which its zero point follows, written to the output or to ``target``."""
    out = text_type(call.output().dtype)
    body = f"{before} {saturated('y0', f'({value}) / {operands(scale)}', operands.zero(scale + 1), out)}"
    shape = operands.shape
    walked = space(shape, [*operands.walks, tuple(strides or dense(shape))])
    return Pass(operands.read, (target or call.write(), out), walked, body)
