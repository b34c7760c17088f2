"""Arithmetic, logic and comparison of one, two or more tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.case import Case, Draw, strategy
from operators.values import FLOATS, is_float

MEMORY_HINT = {"consumed_inputs": [0, 1]}
"""An attribute of opset 1 that changes nothing."""


def legacy_broadcast(d: Draw, shape: tuple[int, ...], last: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of a second operand and its attributes; versions up to ``last`` broadcast a run of axes only when told."""
    if d.version > last:
        return d.broadcastable(shape), {}
    hint = MEMORY_HINT if d.version == 1 and "consumed_inputs" in d.schema.attributes and d.flag() else {}
    if not shape or not d.flag():
        return shape, dict(hint)
    start = d.integer(0, len(shape) - 1)
    stop = d.integer(start + 1, len(shape))
    axis = {"axis": start} if stop < len(shape) or d.flag() else {}
    return shape[start:stop], {"broadcast": 1, **axis, **hint}


@strategy(
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Log", "Mish",
    "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "Not",
    "BitwiseNot",
)  # fmt: skip
def unary(d: Draw) -> Case:
    hint = {"consumed_inputs": [0]} if "consumed_inputs" in d.schema.attributes and d.flag() else {}
    return Case([d.tensor(d.shape(), special=True)], hint)


@strategy("IsNaN", "IsInf")
def is_special(d: Draw) -> Case:
    attributes = d.maybe(detect_negative=d.pick(0, 1), detect_positive=d.pick(0, 1)) if d.op_type == "IsInf" else {}
    return Case([d.tensor(d.shape(), special=True)], attributes)


@strategy("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
def binary(d: Draw) -> Case:
    shape = d.shape()
    other, attributes = legacy_broadcast(d, shape, 6)
    element = d.element()
    a, b = d.tensor(shape, element, special=True), d.tensor(other, element, special=True)
    if d.op_type == "Div" and not is_float(element):
        b = np.where(b == 0, np.ones((), b.dtype), b)  # undefined
    if d.version > 6 and d.flag():
        a, b = b, a
        if d.op_type == "Div" and not is_float(element):
            b = np.where(b == 0, np.ones((), b.dtype), b)
    return Case([a, b], attributes)


@strategy("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(d: Draw) -> Case:
    shape = d.shape()
    return Case([d.tensor(shape, special=True), d.tensor(d.broadcastable(shape), special=True)])


@strategy("BitShift")
def bit_shift(d: Draw) -> Case:
    shape = d.shape()
    bits = d.tensor((), d.element()).dtype.itemsize * 8
    amounts = d.tensor(d.broadcastable(shape), d.element(), 0, bits - 1)
    return Case([d.tensor(shape, special=True), amounts], {"direction": d.pick("LEFT", "RIGHT")})


@strategy("Mod")
def mod(d: Draw) -> Case:
    shape, element = d.shape(), d.element()
    fmod = 1 if is_float(element) and d.version < 28 else d.pick(0, 1)
    divisor = d.tensor(d.broadcastable(shape), element, special=is_float(element))
    if not is_float(element):
        divisor = np.where(divisor == 0, np.ones((), divisor.dtype), divisor)
    return Case([d.tensor(shape, element, special=True), divisor], {"fmod": fmod} if fmod or d.flag() else {})


@strategy("Pow")
def power(d: Draw) -> Case:
    shape, element = d.shape(), d.element()
    other, attributes = legacy_broadcast(d, shape, 1)
    exponent = d.element("T1") if d.version >= 12 else element
    special = is_float(element) and is_float(exponent)
    low = 0 if not is_float(element) or not is_float(exponent) else -3
    base = d.tensor(shape, element, 0 if is_float(exponent) and not is_float(element) else -4, 4, special=special)
    return Case([base, d.tensor(other, exponent, low, 3, special=special)], attributes)


@strategy("Max", "Min", "Sum", "Mean")
def variadic(d: Draw) -> Case:
    shape = d.shape()
    hint = {"consumed_inputs": [0]} if "consumed_inputs" in d.schema.attributes and d.flag() else {}
    count = d.pick(2, 1, 3, 5)
    shapes = [shape if d.version < 8 or i == 0 else d.broadcastable(shape) for i in range(count)]
    return Case([d.tensor(s, special=True) for s in shapes], hint)


@strategy("Clip")
def clip(d: Draw) -> Case:
    x = d.tensor(d.shape(), special=True)
    if d.version < 11:
        attributes = d.maybe(min=-1.5, max=d.pick(2.0, -1.5))
        return Case([x], {**attributes, **({"consumed_inputs": [0]} if d.version == 1 and d.flag() else {})})
    low, high = (-2, 2) if "uint" not in d.element() else (1, 3)
    bounds = [d.optional(lambda v=value: np.asarray(v).astype(x.dtype)) for value in (low, high)]
    return Case([x, *bounds])


@strategy("Where")
def where(d: Draw) -> Case:
    shape = d.shape()
    shapes = [shape, *(d.broadcastable(shape) for _ in range(2))]
    order = d.pick(0, 1, 2)
    condition, a, b = shapes[order:] + shapes[:order]
    element = d.element("T")
    return Case([d.tensor(condition, "bool"), d.tensor(a, element, special=True), d.tensor(b, element, special=True)])


@strategy("Elu", "LeakyRelu", "ThresholdedRelu", "Celu", "Selu", "HardSigmoid", "Shrink", "Gelu", "Swish")
def activation(d: Draw) -> Case:
    options: dict[str, dict[str, Any]] = {
        "Selu": {"alpha": 1.3, "gamma": 0.7},
        "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
        "Shrink": {"lambd": 1.5, "bias": 0.5},
        "Gelu": {"approximate": d.pick("none", "tanh")},
    }
    attributes = d.maybe(**options.get(d.op_type, {"alpha": d.pick(0.5, 2.0)}))
    hint = {"consumed_inputs": [0]} if "consumed_inputs" in d.schema.attributes and d.flag() else {}
    special = d.op_type != "Shrink" or d.element() in FLOATS
    return Case([d.tensor(d.shape(), special=special)], {**attributes, **hint})


@strategy("PRelu")
def prelu(d: Draw) -> Case:
    shape = d.shape(1 if d.version < 7 else 0)
    if d.version < 7:
        slope: tuple[int, ...] = d.pick((1,), (shape[1] if len(shape) > 1 else 1,))
    else:
        slope = d.broadcastable(shape)
    hint = {"consumed_inputs": [0]} if d.version == 1 and d.flag() else {}
    return Case([d.tensor(shape, special=True), d.tensor(slope)], hint)


@strategy("SwiGLU")
def swiglu(d: Draw) -> Case:
    shape = d.shape()
    return Case([d.tensor(shape), d.tensor(shape)], d.maybe(alpha=d.pick(1.0, 1.7)))
