"""Activation functions, written with the elementary operators of expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.elementwise import combine
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.support import REALS, attributes, floats, of, since
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported

MS = "com.microsoft"


def _single(value: Any) -> Any:
    """A default as an attribute would hold it, which is in single precision: it may be computed with in double."""
    return float(np.float32(value)) if isinstance(value, float) else value


def _constant(build: ex.Build, value: float) -> int:
    return build("const", float(value))


def _exponential(build: ex.Build, x: int, inner: float, outer: float, slope: float = 1.0) -> int:
    """slope x where x is not negative, else outer (exp(x inner) - 1)."""
    zero = _constant(build, 0.0)
    tail = build("expm1", build("mul", build("min", x, zero), _constant(build, inner)))
    below = build("mul", tail, _constant(build, outer))
    return build("where", build("less", x, zero), below, build("mul", x, _constant(build, slope)))


def _leaky_relu(build: ex.Build, x: int, alpha: float) -> int:
    return build("where", build("less", x, _constant(build, 0.0)), build("mul", x, _constant(build, alpha)), x)


def _hard_sigmoid(build: ex.Build, x: int, alpha: float, beta: float) -> int:
    line = build("fma", x, _constant(build, alpha), _constant(build, beta))
    return build("max", build("min", line, _constant(build, 1.0)), _constant(build, 0.0))


def softplus(build: ex.Build, x: int) -> int:
    tail = build("log1p", build("exp", build("neg", build("abs", x))))
    return build("add", build("max", x, _constant(build, 0.0)), tail)


def _shrink(build: ex.Build, x: int, bias: float, lambd: float) -> int:
    low, high = _constant(build, -lambd), _constant(build, lambd)
    up, down = build("add", x, _constant(build, bias)), build("sub", x, _constant(build, bias))
    above = build("where", build("greater", x, high), down, _constant(build, 0.0))
    return build("where", build("less", x, low), up, above)


def _swish(build: ex.Build, x: int, alpha: float) -> int:
    return build("mul", x, build("sigmoid", build("mul", x, _constant(build, alpha))))


def _thresholded(build: ex.Build, x: int, alpha: float) -> int:
    return build("where", build("greater", x, _constant(build, alpha)), x, _constant(build, 0.0))


def gelu_of(build: ex.Build, x: int, approximate: str) -> int:
    """The position of x Phi(x), exactly or by the tanh formula."""
    if approximate == "tanh":
        cube = build("mul", build("mul", x, x), x)
        inner = build("fma", cube, _constant(build, 0.044715), x)
        # (1 + tanh(u)) / 2 = sigmoid(2 u)
        return build("mul", x, build("sigmoid", build("mul", inner, _constant(build, math.sqrt(8 / math.pi)))))
    phi = build("add", build("erf", build("mul", x, _constant(build, 1 / math.sqrt(2)))), _constant(build, 1.0))
    return build("mul", build("mul", x, _constant(build, 0.5)), phi)


# Operator -> (defaults of its attributes, the function's position from (builder, x, attributes)).
_Function = Callable[[ex.Build, int, Any], int]
_ACTIVATIONS: dict[str, tuple[dict[str, Any], _Function]] = {
    "Relu": ({}, lambda e, x, a: e("max", x, _constant(e, 0.0))),
    "LeakyRelu": ({"alpha": 0.01}, lambda e, x, a: _leaky_relu(e, x, a["alpha"])),
    "ThresholdedRelu": ({"alpha": 1.0}, lambda e, x, a: _thresholded(e, x, a["alpha"])),
    "Elu": ({"alpha": 1.0}, lambda e, x, a: _exponential(e, x, 1.0, a["alpha"])),
    "Celu": ({"alpha": 1.0}, lambda e, x, a: _exponential(e, x, 1 / a["alpha"], a["alpha"])),
    "HardSigmoid": ({"alpha": 0.2, "beta": 0.5}, lambda e, x, a: _hard_sigmoid(e, x, a["alpha"], a["beta"])),
    "HardSwish": ({}, lambda e, x, a: e("mul", x, _hard_sigmoid(e, x, 1 / 6, 0.5))),
    "Softplus": ({}, lambda e, x, a: softplus(e, x)),
    "Mish": ({}, lambda e, x, a: e("mul", x, e("tanh", softplus(e, x)))),
    "Softsign": ({}, lambda e, x, a: e("div", x, e("add", e("abs", x), _constant(e, 1.0)))),
    "Reciprocal": ({}, lambda e, x, a: e("div", _constant(e, 1.0), x)),
    "Shrink": ({"bias": 0.0, "lambd": 0.5}, lambda e, x, a: _shrink(e, x, a["bias"], a["lambd"])),
    "Swish": ({"alpha": 1.0}, lambda e, x, a: _swish(e, x, a["alpha"])),
    "Gelu": ({"approximate": "none"}, lambda e, x, a: gelu_of(e, x, a["approximate"])),
}


# Activation of a fused product -> (defaults of its parameters, the position from (builder, x, parameters)).
_FUSED: dict[str, tuple[tuple[float, ...], Callable[..., int]]] = {
    "": ((), lambda e, x: x),
    "Affine": ((1.0, 0.0), lambda e, x, a, b: e("fma", x, _constant(e, a), _constant(e, b))),
    "Clip": ((-math.inf, math.inf), lambda e, x, a, b: e("min", e("max", x, _constant(e, a)), _constant(e, b))),
    "Elu": ((1.0,), lambda e, x, a: _exponential(e, x, 1.0, a)),
    "HardSigmoid": ((0.2, 0.5), _hard_sigmoid),
    "HardSwish": ((), lambda e, x: e("mul", x, _hard_sigmoid(e, x, 1 / 6, 0.5))),
    "LeakyRelu": ((0.01,), _leaky_relu),
    "Relu": ((), lambda e, x: e("max", x, _constant(e, 0.0))),
    "ScaledTanh": ((1.0, 1.0), lambda e, x, a, b: e("mul", e("tanh", e("mul", x, _constant(e, b))), _constant(e, a))),
    "Selu": ((1.6732631921768188, 1.0507010221481323), lambda e, x, a, g: _exponential(e, x, 1.0, a * g, g)),
    "Sigmoid": ((), lambda e, x: e("sigmoid", x)),
    "Softplus": ((), softplus),
    "Softsign": ((), lambda e, x: e("div", x, e("add", e("abs", x), _constant(e, 1.0)))),
    "Tanh": ((), lambda e, x: e("tanh", x)),
    "ThresholdedRelu": ((1.0,), _thresholded),
}


def fused_activation(name: str, given: Sequence[float | None]) -> ex.Expr | None:
    """The activation that a product of com.microsoft ends in; None if no code is generated for it."""
    if name not in _FUSED:
        return None
    defaults, function = _FUSED[name]
    numbers = [*given[: len(defaults)], *[None] * (len(defaults) - len(given))]
    build = ex.Build()
    parameters = [d if n is None else n for n, d in zip(numbers, defaults, strict=True)]
    return build.finish(function(build, build("leaf", 0), *parameters))


_RATIONAL = frozenset(
    {"HardSigmoid", "HardSwish", "LeakyRelu", "Reciprocal", "Relu", "Shrink", "Softsign", "ThresholdedRelu"}
)
"""Those that are arithmetic alone."""


@lowering(*_RATIONAL, supports=of(REALS))
@lowering(*(op for op in _ACTIVATIONS if op not in _RATIONAL), supports=floats)
def activation(b: Lowering, node: NodeView) -> None:
    """y = f(x)."""
    defaults, function = _ACTIVATIONS[node.op_type]
    build = ex.Build()
    given = {name: _single(value) for name, value in attributes(node, **defaults).items()}
    if node.op_type == "Celu" and not 0 < given["alpha"] < math.inf:
        raise Unsupported("the sides are told apart by a positive alpha")
    y = function(build, build("leaf", 0), given)
    combine(b, node, build.finish(y), node.inputs)


@lowering("Selu", supports=since(6, floats))
def selu(b: Lowering, node: NodeView) -> None:
    """gamma times x, or times alpha (exp(x) - 1) below 0."""
    given = attributes(node, alpha=1.6732631921768188, gamma=1.0507010221481323)
    build = ex.Build()
    y = _exponential(build, build("leaf", 0), 1.0, given["alpha"] * given["gamma"], given["gamma"])
    combine(b, node, build.finish(y), node.inputs)


@lowering("PRelu", supports=since(7, of(REALS)))
def prelu(b: Lowering, node: NodeView) -> None:
    """x where not negative, else slope x."""
    build = ex.Build()
    x, slope = build("leaf", 0), build("leaf", 1)
    y = build("where", build("less", x, _constant(build, 0.0)), build("mul", x, slope), x)
    combine(b, node, build.finish(y), node.inputs)


@lowering("Gelu", "BiasGelu", "FastGelu", "QuickGelu", supports=floats, domain=MS)
def contrib_gelu(b: Lowering, node: NodeView) -> None:
    """GELU of x plus an optional bias; FastGelu by the tanh formula, QuickGelu x sigmoid(alpha x)."""
    build = ex.Build()
    x, inputs = build("leaf", 0), [v for v in node.inputs if v is not None]
    if len(inputs) > 1:
        x = build("add", x, build("leaf", 1))
    if node.op_type == "QuickGelu":
        y = _swish(build, x, attributes(node, alpha=1.702)["alpha"])
    else:
        y = gelu_of(build, x, "tanh" if node.op_type == "FastGelu" else "none")
    combine(b, node, build.finish(y), inputs)
