"""Derivatives of operators that work element by element, with broadcasting."""

from __future__ import annotations

import math

from onnxplug.graph.calculus import Adjoints, Underivable, Writer, given, operand, result, rule
from onnxplug.graph.ir import Node
from onnxplug.graph.value import Value


def _broadcast(t: Writer, node: Node, *adjoints: Value | None) -> Adjoints:
    """Adjoints in the result's shape, each summed back to its input's."""
    if "axis" in node.attributes:
        raise Underivable("it broadcasts along an axis of its own, as operator sets before 7 did")
    return [None if g is None or v is None else t.collect(g, v) for g, v in zip(adjoints, node.inputs, strict=True)]


@rule("Add")
def add(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Both pass."""
    return _broadcast(t, node, dy, dy)


@rule("Sub")
def sub(t: Writer, node: Node, dy: Value) -> Adjoints:
    """The second with its sign changed."""
    return _broadcast(t, node, dy, t("Neg", dy))


@rule("Mul")
def mul(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * b and dy * a."""
    return _broadcast(t, node, t("Mul", dy, given(node, 1)), t("Mul", dy, given(node)))


@rule("Div")
def div(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy / b and -dy * y / b."""
    b = given(node, 1)
    share = t("Div", dy, b)
    return _broadcast(t, node, share, t("Neg", t("Mul", share, result(node))))


@rule("Pow")
def pow_(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * b * a ** (b - 1) and dy * y * log(a)."""
    a, b = given(node), t.cast(given(node, 1), given(node))
    slope = t("Mul", b, t("Pow", a, t("Sub", b, t.number(1, b))))
    if given(node, 1) not in t.active:
        return _broadcast(t, node, t("Mul", dy, slope), None)
    zero = t.number(0, a)
    safe = t(
        "Where", t("Greater", a, zero), a, t.number(1, a)
    )  # by the exponent there is none where the base is not positive
    by_exponent = t("Mul", t("Mul", dy, result(node)), t("Log", safe))
    return _broadcast(t, node, t("Mul", dy, slope), t.cast(by_exponent, given(node, 1)))


@rule("Sum")
def sum_(t: Writer, node: Node, dy: Value) -> Adjoints:
    """All pass."""
    return _broadcast(t, node, *[dy] * len(node.inputs))


@rule("Mean")
def mean(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Each gets an equal share."""
    return _broadcast(t, node, *[t("Div", dy, t.number(len(node.inputs), dy))] * len(node.inputs))


@rule("Max", "Min")
def extreme(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Inputs that tie share alike."""
    ties = [t.cast(t("Equal", v, result(node)), dy) for v in node.inputs]
    share = t("Div", dy, t("Sum", *ties))
    return _broadcast(t, node, *[t("Mul", share, tie) for tie in ties])


@rule("Where")
def where(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Each where it was chosen."""
    condition, zero = given(node), t.number(0, dy)
    return _broadcast(t, node, None, t("Where", condition, dy, zero), t("Where", condition, zero, dy))


@rule("Mod")
def mod(t: Writer, node: Node, dy: Value) -> Adjoints:
    """Fmod keeps the sign of a: a - b * trunc(a / b)."""
    a, b = given(node), given(node, 1)
    whole = t("Div", t("Sub", a, result(node)), b)
    return _broadcast(t, node, dy, t("Neg", t("Mul", dy, whole)))


@rule("Identity", "Dropout")
def same(t: Writer, node: Node, dy: Value) -> Adjoints:
    """It passes."""
    training = operand(node, 2)
    if node.op_type == "Dropout" and (
        node.since_version < 7 or (training is not None and (training.constant is None or training.constant.any()))
    ):
        raise Underivable("it may drop elements, and which ones is drawn anew")
    return [dy]


@rule("Cast", "CastLike")
def cast(t: Writer, node: Node, dy: Value) -> Adjoints:
    """It passes, in the input's type."""
    return [t.cast(dy, given(node))]


@rule("Neg")
def neg(t: Writer, node: Node, dy: Value) -> Adjoints:
    """-dy."""
    return [t("Neg", dy)]


@rule("Abs")
def abs_(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * sign(x); none at 0."""
    return [t("Mul", dy, t("Sign", given(node)))]


@rule("Reciprocal")
def reciprocal(t: Writer, node: Node, dy: Value) -> Adjoints:
    """-dy * y ** 2."""
    y = result(node)
    return [t("Neg", t("Mul", dy, t("Mul", y, y)))]


@rule("Exp")
def exp(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * y."""
    return [t("Mul", dy, result(node))]


@rule("Log")
def log(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy / x."""
    return [t("Div", dy, given(node))]


@rule("Sqrt")
def sqrt(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy / (2 * y)."""
    y = result(node)
    return [t("Div", dy, t("Add", y, y))]


@rule("Erf")
def erf(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * 2 / sqrt(pi) * exp(-x ** 2)."""
    x = given(node)
    bell = t("Exp", t("Neg", t("Mul", x, x)))
    return [t("Mul", dy, t("Mul", bell, t.number(2 / math.sqrt(math.pi), x)))]


@rule("Sigmoid")
def sigmoid(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * y * (1 - y)."""
    y = result(node)
    return [t("Mul", dy, t("Mul", y, t("Sub", t.number(1, y), y)))]


@rule("Tanh")
def tanh(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * (1 - y ** 2)."""
    y = result(node)
    return [t("Mul", dy, t("Sub", t.number(1, y), t("Mul", y, y)))]


@rule("Relu")
def relu(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy where x is positive."""
    return [t("Where", t("Greater", result(node), t.number(0, dy)), dy, t.number(0, dy))]


@rule("LeakyRelu")
def leaky_relu(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy, times alpha where x is negative."""
    slope = t.number(node.attributes.get("alpha", 0.01), dy)
    return [t("Where", t("Less", given(node), t.number(0, dy)), t("Mul", dy, slope), dy)]


@rule("Clip")
def clip(t: Writer, node: Node, dy: Value) -> Adjoints:
    """What was not clipped passes."""
    return [t("Where", t("Equal", given(node), result(node)), dy, t.number(0, dy))]


@rule("Sin")
def sin(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * cos(x)."""
    return [t("Mul", dy, t("Cos", given(node)))]


@rule("Cos")
def cos(t: Writer, node: Node, dy: Value) -> Adjoints:
    """-dy * sin(x)."""
    return [t("Neg", t("Mul", dy, t("Sin", given(node))))]


@rule("Tan")
def tan(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * (1 + y ** 2)."""
    y = result(node)
    return [t("Mul", dy, t("Add", t.number(1, y), t("Mul", y, y)))]


@rule("Sinh")
def sinh(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * cosh(x)."""
    return [t("Mul", dy, t("Cosh", given(node)))]


@rule("Cosh")
def cosh(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy * sinh(x)."""
    return [t("Mul", dy, t("Sinh", given(node)))]


@rule("Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh")
def inverse(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy over sqrt(1 - x^2), minus that, 1 + x^2, sqrt(x^2 + 1), sqrt(x^2 - 1), 1 - x^2."""
    x, op = given(node), node.op_type
    one, square = t.number(1, x), t("Mul", x, x)
    below = {"Asin": "-", "Acos": "-", "Atan": "+", "Asinh": "+", "Acosh": "x", "Atanh": "-"}[op]
    root = t("Add", one, square) if below == "+" else t("Sub", one, square) if below == "-" else t("Sub", square, one)
    slope = t("Div", dy, root if op in ("Atan", "Atanh") else t("Sqrt", root))
    return [t("Neg", slope) if op == "Acos" else slope]
