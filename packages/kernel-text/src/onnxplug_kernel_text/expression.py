"""Element-wise operators of ONNX as expressions of the dialect.

``expression(operator, values, types, result, attributes)`` gives the text of one operator over the texts of its operands, which must be
names or literals: they may appear several times. Types are those of ``types``; the result has the arithmetic type of ``result``.
``statements`` does so for any number of operands, and declares a variable.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxplug_kernel_text.types import FLOATS, SIGNED, SIZES, arithmetic, highest, literal, lowest, raw


@dataclass(frozen=True)
class Call:
    """One operator to be written: operand texts, their types, the result's type, the node's attributes."""

    values: Sequence[str]
    types: Sequence[str]
    result: str
    attributes: Mapping[str, Any]

    @property
    def held(self) -> str:
        return arithmetic(self.types[0])

    @property
    def is_float(self) -> bool:
        return self.types[0] in FLOATS

    def number(self, value: float) -> str:
        """A literal of the first operand's type."""
        return literal(value, self.types[0])

    def attribute(self, name: str, default: float) -> str:
        """A float attribute; ``default`` as such an attribute holds it, which is seen where the arithmetic is in double."""
        return self.number(self.attributes.get(name, _single(default)))


_LARGEST = 3.4028234663852886e38
"""The largest number of single precision."""


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


Write = Callable[[Call], str]


def _format(text: str) -> Write:
    """A template over ``{a}``, ``{b}``, ``{c}`` (operands), ``{t}`` (their arithmetic type), ``{one}`` and ``{zero}``."""

    def write(call: Call) -> str:
        names = dict(zip("abc", call.values, strict=False))
        return text.format(**names, t=call.held, one=call.number(1), zero=call.number(0))

    return write


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
    for name, position in (("min", 0), ("max", 1)):
        if name in call.attributes:
            bounds[position] = call.number(call.attributes[name])
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


def _gelu(call: Call) -> str:
    (a,) = call.values
    half, one = call.number(0.5), call.number(1)
    if call.attributes.get("approximate", "none") == "tanh":
        inner = f"{call.number(0.7978845608028654)} * ({a} + {call.number(0.044715)} * {a} * {a} * {a})"
        return f"({half} * {a} * ({one} + tanh({inner})))"
    return f"({half} * {a} * ({one} + ERF({a} * {call.number(0.7071067811865476)})))"


def _elu(call: Call) -> str:
    (a,), alpha = call.values, call.attribute("alpha", 1.0)
    return f"({a} < 0 ? {alpha} * expm1({a}) : {a})"


def _selu(call: Call) -> str:
    (a,) = call.values
    alpha = call.attribute("alpha", 1.67326319217681884765625)
    gamma = call.attribute("gamma", 1.05070102214813232421875)
    return f"({gamma} * ({a} > 0 ? {a} : {alpha} * expm1({a})))"


def _celu(call: Call) -> str:
    (a,), alpha = call.values, call.attribute("alpha", 1.0)
    return f"({a} < 0 ? {alpha} * expm1({a} / {alpha}) : {a})"


def _leaky(call: Call) -> str:
    (a,) = call.values
    return f"({a} < 0 ? {call.attribute('alpha', 0.01)} * {a} : {a})"


def _hard_sigmoid(call: Call) -> str:
    return _between(call, f"({call.attribute('alpha', 0.2)} * {call.values[0]} + {call.attribute('beta', 0.5)})")


def _hard_swish(call: Call) -> str:
    (a,) = call.values
    return f"({a} * {_between(call, f'({call.number(1 / 6)} * {a} + {call.number(0.5)})')})"


def _between(call: Call, line: str) -> str:
    """A value cut to 0 .. 1."""
    zero, one = call.number(0), call.number(1)
    return f"({line} < {zero} ? {zero} : {line} > {one} ? {one} : {line})"


def _sign(call: Call) -> str:
    (a,) = call.values
    if call.is_float:
        return f"({a} > 0 ? {call.number(1)} : {a} < 0 ? {call.number(-1)} : {a} == 0 ? {call.number(0)} : {a})"
    return f"({call.held})(({a} > 0) - ({a} < 0))"


def _thresholded(call: Call) -> str:
    (a,) = call.values
    return f"({a} > {call.attribute('alpha', 1.0)} ? {a} : {call.number(0)})"


def _shrink(call: Call) -> str:
    (a,) = call.values
    lambd, bias = (call.attributes.get(name, default) for name, default in (("lambd", 0.5), ("bias", 0.0)))
    held = call.held
    low, high = literal(-lambd, "f32"), literal(lambd, "f32")
    step = literal(bias, "f32")
    return f"({held})({a} < {low} ? {a} + {step} : {a} > {high} ? {a} - {step} : 0)"


def _swish(call: Call) -> str:
    (a,) = call.values
    return f"({a} / ({call.number(1)} + EXP(-{call.attribute('alpha', 1.0)} * {a})))"


def _dequantize(call: Call) -> str:
    x, scale, *zero = call.values
    return f"(((f32){x}{f' - (f32){zero[0]}' if zero else ''}) * {scale})"


def _quantize(call: Call) -> str:
    x, scale, *zero = call.values
    shifted = f"rint({x} / {scale}){f' + (f32){zero[0]}' if zero else ''}"
    low, high = (f"(f32){bound(call.result)}" for bound in (lowest, highest))
    return f"({call.result})fmin(fmax({shifted}, {low}), {high})"


_SOFTPLUS = "(({a} > {zero} ? {a} : {zero}) + log1p(EXP(-fabs({a}))))"
_SIGMOID = "({one} / ({one} + EXP(-{a})))"

_WRITERS: dict[str, Write] = {
    "Add": _format("({t})({a} + {b})"),
    "Sub": _format("({t})({a} - {b})"),
    "Mul": _format("({t})({a} * {b})"),
    "Div": _divide,
    "Mod": _modulo,
    "Pow": lambda c: f"pow({c.values[0]}, {convert(c.values[1], c.types[1], c.types[0])})",
    "And": _format("({a} && {b})"),
    "Or": _format("({a} || {b})"),
    "Xor": _format("({a} != {b})"),
    "Not": _format("(!{a})"),
    "Equal": _format("({a} == {b})"),
    "Less": _format("({a} < {b})"),
    "LessOrEqual": _format("({a} <= {b})"),
    "Greater": _format("({a} > {b})"),
    "GreaterOrEqual": _format("({a} >= {b})"),
    "BitwiseAnd": _format("({t})({a} & {b})"),
    "BitwiseOr": _format("({t})({a} | {b})"),
    "BitwiseXor": _format("({t})({a} ^ {b})"),
    "BitwiseNot": _format("({t})(~{a})"),
    "BitShift": _shift,
    "Sum": _format("({t})({a} + {b})"),
    "Mean": _format("({a} + {b})"),
    "Max": lambda c: _larger(*c.values),
    "Min": lambda c: _smaller(*c.values),
    "Where": _format("({a} ? {b} : {c})"),
    "Identity": _format("{a}"),
    "Cast": _cast,
    "CastLike": _cast,
    "Abs": _abs,
    "Neg": lambda c: f"(-{c.values[0]})" if c.is_float else _negated(c.values[0], c.held),
    "Sign": _sign,
    "Reciprocal": _format("({one} / {a})"),
    "Sqrt": _format("sqrt({a})"),
    "Exp": _format("EXP({a})"),
    "Log": _format("log({a})"),
    "Floor": _format("floor({a})"),
    "Ceil": _format("ceil({a})"),
    "Round": _format("rint({a})"),
    "Erf": _format("ERF({a})"),
    "Sin": _format("sin({a})"),
    "Cos": _format("cos({a})"),
    "Tan": _format("tan({a})"),
    "Asin": _format("asin({a})"),
    "Acos": _format("acos({a})"),
    "Atan": _format("atan({a})"),
    "Sinh": _format("sinh({a})"),
    "Cosh": _format("cosh({a})"),
    "Tanh": _format("tanh({a})"),
    "Asinh": _format("asinh({a})"),
    "Acosh": _format("acosh({a})"),
    "Atanh": _format("atanh({a})"),
    "IsNaN": _format("({a} != {a})"),
    "IsInf": _is_inf,
    "Relu": _format("({a} < {zero} ? {zero} : {a})"),
    "Sigmoid": _format(_SIGMOID),
    "Softplus": _format(_SOFTPLUS),
    "Softsign": _format("({a} / ({one} + fabs({a})))"),
    "Mish": _format("({a} * tanh(" + _SOFTPLUS + "))"),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Elu": _elu,
    "Selu": _selu,
    "Celu": _celu,
    "Gelu": _gelu,
    "LeakyRelu": _leaky,
    "PRelu": _format("({a} < 0 ? ({t})({a} * {b}) : {a})"),
    "ThresholdedRelu": _thresholded,
    "Shrink": _shrink,
    "Swish": _swish,
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
        return {"min": -_LARGEST, "max": _LARGEST, **attributes}
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
