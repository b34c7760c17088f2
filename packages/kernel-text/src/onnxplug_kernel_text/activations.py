"""Activation functions of ONNX as expressions of the dialect."""

from __future__ import annotations

from onnxplug_kernel_text.call import Call, Write, template
from onnxplug_kernel_text.types import literal


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


_SOFTPLUS = "(({a} > {zero} ? {a} : {zero}) + log1p(EXP(-fabs({a}))))"
_SIGMOID = "({one} / ({one} + EXP(-{a})))"

ACTIVATIONS: dict[str, Write] = {
    "Relu": template("({a} < {zero} ? {zero} : {a})"),
    "Sigmoid": template(_SIGMOID),
    "Softplus": template(_SOFTPLUS),
    "Softsign": template("({a} / ({one} + fabs({a})))"),
    "Mish": template("({a} * tanh(" + _SOFTPLUS + "))"),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Elu": _elu,
    "Selu": _selu,
    "Celu": _celu,
    "Gelu": _gelu,
    "LeakyRelu": _leaky,
    "PRelu": template("({a} < 0 ? ({t})({a} * {b}) : {a})"),
    "ThresholdedRelu": _thresholded,
    "Shrink": _shrink,
    "Swish": _swish,
}
"""What writes each of them."""
