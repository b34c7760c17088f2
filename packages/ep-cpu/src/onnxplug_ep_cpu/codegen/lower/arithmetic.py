"""Arithmetic, comparison, logic and conversion, element by element."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.elementwise import combine
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.halves import multiplies_only
from onnxplug_ep_cpu.codegen.lower.loops import no_zeros, write_map
from onnxplug_ep_cpu.codegen.lower.support import (
    ANY,
    INTEGERS,
    NUMBERS,
    REALS,
    attributes,
    floats,
    of,
    require,
    since,
    typed,
)
from onnxplug_ep_cpu.codegen.tensor import NARROW, element_of, is_narrow
from onnxplug_kernels.precision import largest

_UNARY = {
    "Abs": "abs", "Atan": "atan", "Ceil": "ceil", "Cos": "cos", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Log": "log",
    "Neg": "neg", "Not": "not", "Round": "round", "Sigmoid": "sigmoid", "Sin": "sin", "Sqrt": "sqrt", "Tanh": "tanh",
}  # fmt: skip
_DOUBLE = ("Ceil", "Exp", "Floor", "Log", "Round", "Sigmoid", "Sqrt", "Tanh")
"""Functions of float64, too."""
_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Equal": "equal", "Less": "less", "Greater": "greater",
    "LessOrEqual": "less_equal", "GreaterOrEqual": "greater_equal", "And": "and", "Or": "or", "Xor": "xor",
    "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor",
}  # fmt: skip
_ROUNDED = {"float16": "half", "bfloat16": "bfloat"}
_CASTS = ANY | {"int8", "uint8"}


@lowering(*(op for op in _UNARY if op not in ("Abs", "Neg", "Not", *_DOUBLE)), supports=floats)
@lowering(*_DOUBLE, supports=of(REALS))
@lowering("Abs", "Neg", supports=of(NUMBERS))
@lowering("Not", supports=of({"bool"}))
def unary(b: Lowering, node: NodeView) -> None:
    """y = f(x)."""
    combine(b, node, (("leaf", 0), (_UNARY[node.op_type], 0)), node.inputs)


@lowering("Add", "Sub", "Mul", supports=since(7, of(NUMBERS)))
@lowering("Less", "Greater", "LessOrEqual", "GreaterOrEqual", supports=since(7, of(ANY)))
@lowering("And", "Or", "Xor", supports=since(7, of({"bool"})))
@lowering("Equal", supports=since(7, of(ANY)))
@lowering("BitwiseAnd", "BitwiseOr", "BitwiseXor", supports=of(INTEGERS))
def binary(b: Lowering, node: NodeView) -> None:
    """c = a op b."""
    combine(b, node, (("leaf", 0), ("leaf", 1), (_BINARY[node.op_type], 0, 1)), node.inputs)


@lowering("BitwiseNot", supports=of(INTEGERS))
def bitwise_not(b: Lowering, node: NodeView) -> None:
    """Every bit the other way."""
    (x,) = node.inputs
    assert x is not None
    combine(b, node, (("leaf", 0), (b.element(x), -1), ("xor", 0, 1)), node.inputs)


def _number(value: ValueView | None) -> float | None:
    """The one number of a constant."""
    if value is None or value.constant is None or value.constant.size != 1:
        return None
    number: float = value.constant.reshape(-1)[0].item()
    return number


@lowering("Div", supports=since(7, of(NUMBERS)))
def division(b: Lowering, node: NodeView) -> None:
    """c = a / b; of integers truncated."""
    y, divisor = node.outputs[0], node.inputs[1]
    if typed(y, INTEGERS) is not None or _number(divisor):
        binary(b, node)
        return
    _no_zero(b, divisor)
    combine(b, node, (("leaf", 0), ("leaf", 1), ("quotient", 0, 1)), node.inputs)


@lowering("Mod", supports=of(INTEGERS))
def modulo(b: Lowering, node: NodeView) -> None:
    """Remainder of integers with the sign of the divisor, or with ``fmod`` of the dividend."""
    build, (_, divisor) = ex.Build(), node.inputs
    assert divisor is not None
    x, y, zero = build("leaf", 0), build("leaf", 1), build(b.element(divisor), 0)
    if _number(divisor):
        rest = build("rem", x, y)
    else:
        _no_zero(b, divisor)
        rest = build("sub", x, build("mul", build("quotient", x, y), y))
    if not node.attributes.get("fmod", 0):
        wrong = build("less", build("xor", rest, y), zero)
        wrong = build("and", wrong, build("xor", build("equal", rest, zero), build("bool", 1)))
        rest = build("where", wrong, build("add", rest, y), rest)
    combine(b, node, build.finish(rest), node.inputs)


def _no_zero(b: Lowering, divisor: ValueView | None) -> None:
    """See to it that a zero among divisors is found: NumPy's kernel then says what is wrong."""
    assert divisor is not None
    if divisor.constant is not None and divisor.constant.all():
        return
    no_zeros(b.program, b.dense(divisor))


@lowering("Sum", "Max", "Min", supports=of(NUMBERS))
@lowering("Mean", supports=of(REALS))
def variadic(b: Lowering, node: NodeView) -> None:
    """A chain over all inputs."""
    if node.since_version < 8:  # before broadcasting
        shapes = {b.shape(v) for v in node.inputs if v is not None}
        require(None if len(shapes) == 1 else "its operands are not of one shape")
    build, op = ex.Build(), {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}[node.op_type]
    total = build("leaf", 0)
    for i in range(1, len(node.inputs)):
        total = build(op, total, build("leaf", i))
    if node.op_type == "Mean":
        total = build("div", total, build("const", float(len(node.inputs))))
    combine(b, node, build.finish(total), node.inputs)


@lowering("Sign", supports=of(NUMBERS))
def sign(b: Lowering, node: NodeView) -> None:
    """-1, 0 or 1; NaN stays."""
    (x,) = node.inputs
    assert x is not None
    build, kind = ex.Build(), b.element(x).replace("float32", "const")
    zero, one, below = (build(kind, n) for n in (0, 1, -1))
    y = build("leaf", 0)
    result = build("where", build("greater", y, zero), one, build("where", build("less", y, zero), below, y))
    combine(b, node, build.finish(result), node.inputs)


@lowering("IsNaN", supports=lambda node: typed(node.inputs[0], REALS))
def is_nan(b: Lowering, node: NodeView) -> None:
    """Where x is not a number."""
    combine(b, node, (("leaf", 0), ("isnan", 0)), node.inputs)


@lowering("IsInf", supports=lambda node: typed(node.inputs[0], REALS))
def is_inf(b: Lowering, node: NodeView) -> None:
    """Where x is infinite, of the signs asked for."""
    given = attributes(node, detect_negative=1, detect_positive=1)
    build = ex.Build()
    found = [
        build("equal", build("leaf", 0), build("const", sign * math.inf))
        for sign, wanted in ((-1.0, given["detect_negative"]), (1.0, given["detect_positive"]))
        if wanted
    ]
    result = build("or", *found) if len(found) == 2 else found[0] if found else build("bool", 0)
    combine(b, node, build.finish(result), node.inputs)


@lowering("Tan", "Asin", "Acos", supports=floats)
def angles(b: Lowering, node: NodeView) -> None:
    """What sine, cosine and arc tangent give."""
    build = ex.Build()
    x, one = build("leaf", 0), build("const", 1.0)
    side = build("sqrt", build("mul", build("sub", one, x), build("add", one, x)))
    if node.op_type == "Tan":
        y = build("div", build("sin", x), build("cos", x))
    elif node.op_type == "Asin":
        y = build("atan", build("div", x, side))
    else:
        turned = build("atan", build("div", side, x))
        below = build("less", build("min", x, turned), build("const", 0.0))
        y = build("where", below, build("add", turned, build("const", math.pi)), turned)
    combine(b, node, build.finish(y), node.inputs)


@lowering("Clip", supports=of(NUMBERS))
def clip(b: Lowering, node: NodeView) -> None:
    """min(max(x, low), high), by default the finite numbers; bounds are attributes before version 11."""
    build = ex.Build()
    y = build("leaf", 0)
    if node.since_version < 11:
        given = attributes(node, min=-largest(np, np.float32), max=largest(np, np.float32))
        for op, bound in (("max", given["min"]), ("min", given["max"])):
            y = build(op, y, build("const", float(bound)))
        combine(b, node, build.finish(y), node.inputs[:1])
        return
    bounds = [*node.inputs[1:], None, None][:2]
    inputs = [node.inputs[0]]
    dtype = inputs[0].dtype if inputs[0] is not None else None
    for op, value, sign in zip(("max", "min"), bounds, (-1, 1), strict=True):
        if value is not None:
            y = build(op, y, build("leaf", len(inputs)))
            inputs.append(value)
        elif typed(inputs[0], INTEGERS) is not None:
            y = build(op, y, build("const", sign * largest(np, dtype)))
    combine(b, node, build.finish(y), inputs)


def _pow_supports(node: NodeView) -> str | None:
    x, exponent = node.inputs
    if typed(x, INTEGERS) is None and typed(exponent, INTEGERS) is None:
        return None if _number(exponent) in (1, 2, 3, 4) else "integers are multiplied up to four times"
    if typed(x, {"float64"}) is None:
        small = _number(exponent) in (-4, -3, -2, -1, -0.5, 0.5, 1, 2, 3, 4)
        return None if small else "of float64 only products and roots are generated"
    return typed(x) or typed(node.outputs[0]) or typed(exponent, NUMBERS)


@lowering("Pow", supports=since(7, _pow_supports))
def power(b: Lowering, node: NodeView) -> None:
    """x to a power: by products and roots where it is a small constant."""
    exponent = b.constant(node.inputs[1])
    build = ex.Build()
    x = build("leaf", 0)
    n = float(np.asarray(exponent).reshape(-1)[0]) if exponent is not None and exponent.size == 1 else math.nan
    y: int | None = None
    if abs(n) in (1.0, 2.0, 3.0, 4.0):
        square = build("mul", x, x)
        y = {
            1.0: lambda: x,
            2.0: lambda: square,
            3.0: lambda: build("mul", square, x),
            4.0: lambda: build("mul", square, square),
        }[abs(n)]()
    elif abs(n) == 0.5:
        y = build("sqrt", x)
    if y is not None:
        combine(b, node, build.finish(build("div", build("const", 1.0), y) if n < 0 else y), node.inputs[:1])
        return
    combine(b, node, build.finish(build("pow", x, build("to_float32", build("leaf", 1)))), node.inputs)


_BITS = {"uint8": "bits8", "int8": "bits8", "uint16": "bits16", "int16": "bits16"}
"""Elements that nothing is computed of here, and what they are chosen as."""


def _where_supports(node: NodeView) -> str | None:
    return typed(node.inputs[0], {"bool"}) or next(
        (r for v in (*node.inputs[1:], *node.outputs) if (r := typed(v, ANY | _BITS.keys()))), None
    )


@lowering("Where", supports=_where_supports)
def where(b: Lowering, node: NodeView) -> None:
    """x where the condition holds, else y."""
    expr: ex.Expr = (("leaf", 0), ("leaf", 1), ("leaf", 2), ("where", 0, 1, 2))
    (result,), (condition, *values) = node.outputs, node.inputs
    assert result is not None and condition is not None
    element = b.element(result)
    if element not in _BITS:
        combine(b, node, expr, node.inputs)
        return
    leaves = [replace(b.read(value), element=_BITS[element]) for value in values if value is not None]
    place = b.output(result, element=element)
    write_map(b.program, b.target, expr, [b.read(condition), *leaves], replace(place, element=_BITS[element]))


def _cast_supports(node: NodeView) -> str | None:
    return typed(node.inputs[0], _CASTS) or typed(node.outputs[0], ANY)


@lowering("Cast", supports=since(6, _cast_supports))
@lowering("CastLike", supports=_cast_supports)
def cast(b: Lowering, node: NodeView) -> None:
    """Another element type. What becomes of 16 bits is rounded; what leaves the region so is written so."""
    x, (y,) = node.inputs[0], node.outputs
    assert x is not None and y is not None and y.dtype is not None
    if multiplies_only(b, x, y):
        b.widened[y.name] = x
        return
    narrow = is_narrow(y.dtype)
    expr: ex.Expr = (("leaf", 0), (f"to_{b.element(y)}", 0))
    if narrow and y.dtype != x.dtype and y.name not in b.outputs:
        combine(b, node, (*expr, (_ROUNDED[element_of(y.dtype)], 1)), node.inputs[:1])
        return
    source = b.lies(x) if narrow or is_narrow(x.dtype) else None
    if source is not None and (narrow or source.element in NARROW):
        element = element_of(y.dtype) if narrow else b.element(y)
        plain = {element, source.element} <= {"float32", *NARROW}
        write_map(b.program, b.target, ex.IDENTITY if plain else expr, [source], b.output(y, element=element))
        return
    combine(b, node, expr, node.inputs[:1])
