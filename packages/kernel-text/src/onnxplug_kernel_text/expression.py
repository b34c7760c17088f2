"""Element-wise operators of ONNX as expressions of the dialect.

``expression(operator, values, types, result, attributes)`` gives the text of one operator over the texts of its operands, which must be
names or literals: they may appear several times. Types are those of ``types``; the result has the arithmetic type of ``result``.
``statements`` does so for any number of operands, and declares a variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug_kernel_text.activations import ACTIVATIONS
from onnxplug_kernel_text.call import Call, Write, template
from onnxplug_kernel_text.types import FLOATS, SIGNED, SIZES, arithmetic, highest, literal, lowest, raw

_LARGEST = {
    "f16": 65504.0,
    "bf16": 3.3895313892515355e38,
    "f32": 3.4028234663852886e38,
    "f64": 1.7976931348623157e308,
}
"""The largest number of each type, beside infinity."""


def _larger(a: str, b: str) -> str:
    return f"(({a} != {a} || {a} > {b}) ? {a} : {b})"


def _smaller(a: str, b: str) -> str:
    return f"(({a} != {a} || {a} < {b}) ? {a} : {b})"


def _abs(call: Call) -> str:
    if call.is_float:
        return f"fabs({call.values[0]})"
    if call.types[0] in SIGNED:
        return f"({call.held})({call.values[0]} < 0 ? -{call.values[0]} : {call.values[0]})"
    return call.values[0]


def _divide(call: Call) -> str:
    a, b = call.values
    if call.is_float:
        return f"({a} / {b})"
    if call.types[0] in SIGNED:  # the two quotients that would trap the processor
        return f"({call.held})({b} == 0 ? 0 : {b} == -1 ? {_negated(a, call.held)} : {a} / {b})"
    return f"({call.held})({b} == 0 ? 0 : {a} / {b})"


def _negated(a: str, held: str) -> str:
    """Minus ``a`` with wrap-around, in the signed type."""
    return f"({held})(({'u' + held[1:]})0 - ({'u' + held[1:]}){a})"


def _power(call: Call) -> str:
    """Squares and cubes are products: the function costs compilers for processors a hundred times as much."""
    a, b = call.values[0], convert(call.values[1], call.types[1], call.types[0])
    return f"({b} == 2 ? {a} * {a} : {b} == 3 ? {a} * {a} * {a} : pow({a}, {b}))"


def _modulo(call: Call) -> str:
    a, b = call.values
    if call.is_float and call.attributes.get("fmod", 0):
        return f"fmod({a}, {b})"
    if call.is_float:  # with the divisor's sign, that of a zero included
        rest = f"fmod({a}, {b})"
        return f"({rest} == 0 ? copysign({call.number(0)}, {b}) : ({rest} < 0) != ({b} < 0) ? {rest} + {b} : {rest})"
    if call.types[0] not in SIGNED:
        return f"({call.held})({b} == 0 ? 0 : {a} % {b})"
    rest = f"({b} == 0 || {b} == -1 ? 0 : {a} % {b})"
    if call.attributes.get("fmod", 0):
        return f"({call.held}){rest}"
    return f"({call.held})({rest} + ({rest} != 0 && ({rest} < 0) != ({b} < 0) ? {b} : 0))"


def _shift(call: Call) -> str:
    """Counts below zero or beyond the width shift every bit out; what is signed keeps its sign to the right (BitShift-28)."""
    a, b = call.values
    left, bits = call.attributes["direction"] == "LEFT", 8 * SIZES[call.types[0]]
    if call.types[0] not in SIGNED:
        return f"({call.held})({b} >= {bits} ? 0 : {a} {'<<' if left else '>>'} {b})"
    out = f"{b} < 0 || {b} >= {bits}"
    return (
        f"({call.held})({out} ? 0 : ({raw(bits // 8)}){a} << {b})"
        if left
        else f"({call.held})({a} >> ({out} ? {bits - 1} : {b}))"
    )


def _is_inf(call: Call) -> str:
    (a,) = call.values
    positive, negative = call.attributes.get("detect_positive", 1), call.attributes.get("detect_negative", 1)
    signs = "1" if positive and negative else f"{a} > 0" if positive else f"{a} < 0" if negative else "0"
    return f"(isinf({a}) && {signs})"


def _clip(call: Call) -> str:
    value = call.values[0]
    bounds = list(call.values[1:3]) + [""] * (3 - len(call.values))
    largest = _LARGEST.get(call.types[0])
    for position, (name, sign) in enumerate((("min", -1), ("max", 1))):
        if name in call.attributes:
            bounds[position] = call.number(call.attributes[name])
        elif not bounds[position] and largest is not None:
            bounds[position] = call.number(sign * largest)
    low, high = bounds
    if low:
        value = f"({value} < {low} ? {low} : {value})"
    return f"({value} > {high} ? {high} : {value})" if high else value


def _cast(call: Call) -> str:
    return convert(call.values[0], call.types[0], call.result)


def convert(value: str, source: str, target: str) -> str:
    """A value of one type as another: fractions are cut off, integers wrap, everything but zero is true."""
    if target == source:
        return value
    if target == "b8":
        return f"(b8)({value} != 0)"
    if target in FLOATS:
        return f"({arithmetic(target)}){value}"
    if source in FLOATS and target in ("i8", "i16", "u8", "u16", "u32", "i32"):
        return f"({target})(i64){value}"
    return f"({target}){value}"


def _sign(call: Call) -> str:
    (a,) = call.values
    if call.is_float:
        return f"({a} > 0 ? {call.number(1)} : {a} < 0 ? {call.number(-1)} : {a} == 0 ? {call.number(0)} : {a})"
    return f"({call.held})(({a} > 0) - ({a} < 0))"


def _dequantize(call: Call) -> str:
    x, scale, *zero = call.values
    return f"(((f32){x}{f' - (f32){zero[0]}' if zero else ''}) * {scale})"


def _quantize(call: Call) -> str:
    x, scale, *zero = call.values
    shifted = f"rint({x} / {scale}){f' + (f32){zero[0]}' if zero else ''}"
    low, high = (f"(f32){bound(call.result)}" for bound in (lowest, highest))
    return f"({call.result})fmin(fmax({shifted}, {low}), {high})"


_WRITERS: dict[str, Write] = {
    "Add": template("({t})({a} + {b})"),
    "Sub": template("({t})({a} - {b})"),
    "Mul": template("({t})({a} * {b})"),
    "Div": _divide,
    "Mod": _modulo,
    "Pow": _power,
    "And": template("({a} && {b})"),
    "Or": template("({a} || {b})"),
    "Xor": template("({a} != {b})"),
    "Not": template("(!{a})"),
    "Equal": template("({a} == {b})"),
    "Less": template("({a} < {b})"),
    "LessOrEqual": template("({a} <= {b})"),
    "Greater": template("({a} > {b})"),
    "GreaterOrEqual": template("({a} >= {b})"),
    "BitwiseAnd": template("({t})({a} & {b})"),
    "BitwiseOr": template("({t})({a} | {b})"),
    "BitwiseXor": template("({t})({a} ^ {b})"),
    "BitwiseNot": template("({t})(~{a})"),
    "BitShift": _shift,
    "Sum": template("({t})({a} + {b})"),
    "Mean": template("({a} + {b})"),
    "Max": lambda c: _larger(*c.values),
    "Min": lambda c: _smaller(*c.values),
    "Where": template("({a} ? {b} : {c})"),
    "Identity": template("{a}"),
    "Cast": _cast,
    "CastLike": _cast,
    "Abs": _abs,
    "Neg": lambda c: f"(-{c.values[0]})" if c.is_float else _negated(c.values[0], c.held),
    "Sign": _sign,
    "Reciprocal": template("({one} / {a})"),
    "Sqrt": template("sqrt({a})"),
    "Exp": template("EXP({a})"),
    "Log": template("log({a})"),
    "Floor": template("floor({a})"),
    "Ceil": template("ceil({a})"),
    "Round": template("rint({a})"),
    "Erf": template("ERF({a})"),
    "Sin": template("sin({a})"),
    "Cos": template("cos({a})"),
    "Tan": template("tan({a})"),
    "Asin": template("asin({a})"),
    "Acos": template("acos({a})"),
    "Atan": template("atan({a})"),
    "Sinh": template("sinh({a})"),
    "Cosh": template("cosh({a})"),
    "Tanh": template("tanh({a})"),
    "Asinh": template("asinh({a})"),
    "Acosh": template("acosh({a})"),
    "Atanh": template("atanh({a})"),
    "IsNaN": template("({a} != {a})"),
    "IsInf": _is_inf,
    **ACTIVATIONS,
    "Clip": _clip,
    "DequantizeLinear": _dequantize,  # with one scale for all elements, in f32
    "QuantizeLinear": _quantize,
}
OPERATORS = frozenset(_WRITERS)
"""The operators that ``expression`` writes."""
VARIADIC = frozenset({"Sum", "Mean", "Max", "Min"})
"""Those that take any number of operands, of which ``expression`` joins two."""


def expression(
    operator: str, values: Sequence[str], types: Sequence[str], result: str, attributes: Mapping[str, Any]
) -> str:
    """The text of one operator. KeyError for one that is not in ``OPERATORS``."""
    return _WRITERS[operator](Call(values, types, result, attributes))


def with_defaults(operator: str, version: int, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Attributes, with the limits that Clip has before opset 11 where none are given: infinities are cut down to them."""
    if operator == "Clip" and version < 11:
        return {"min": -_LARGEST["f32"], "max": _LARGEST["f32"], **attributes}
    return attributes


def statements(
    name: str, operator: str, values: Sequence[str], types: Sequence[str], result: str, attributes: Mapping[str, Any]
) -> list[str]:
    """Statements that declare ``name`` and give it the value of one operator."""
    held = arithmetic(result)
    if operator not in VARIADIC:
        return [f"{held} {name} = {expression(operator, values, types, result, attributes)};"]
    lines = [f"{held} {name} = {values[0]};"]
    lines += [f"{name} = {expression(operator, [name, v], types, result, attributes)};" for v in values[1:]]
    if operator == "Mean":
        lines.append(f"{name} = {name} / {literal(len(values), types[0])};")
    return lines
