"""Hyperbolic functions and their inverses, by exponentials and logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.elementwise import combine
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.support import floats

_FAR = 1e4
"""From here on the logarithm of 2 x serves for the inverses: the error is 1 / (4 x x)."""


def _halves(e: ex.Build, size: int) -> tuple[int, int]:
    """(exp(x) / 2, exp(-x) / 2), the former by squaring so that it is finite wherever the functions are."""
    half = e("const", 0.5)
    root = e("exp", e("mul", size, half))
    return e("mul", e("mul", root, half), root), e("div", half, e("mul", root, root))


def _sinh(e: ex.Build, x: int) -> int:
    size, one = e("abs", x), e("const", 1.0)
    up, down = _halves(e, size)
    less = e("expm1", size)
    near = e("mul", e("add", less, e("div", less, e("add", less, one))), e("const", 0.5))
    return e("copysign", e("where", e("less", size, one), near, e("sub", up, down)), x)


def _cosh(e: ex.Build, x: int) -> int:
    return e("add", *_halves(e, e("abs", x)))


def _logarithm(e: ex.Build, x: int, near: int) -> int:
    """``near`` is log1p's operand for small x."""
    far = e("add", e("log", x), e("const", math.log(2.0)))
    return e("where", e("less", x, e("const", _FAR)), e("log1p", near), far)


def _asinh(e: ex.Build, x: int) -> int:
    size, one = e("abs", x), e("const", 1.0)
    square = e("mul", size, size)
    near = e("add", size, e("div", square, e("add", e("sqrt", e("add", square, one)), one)))
    return e("copysign", _logarithm(e, size, near), x)


def _acosh(e: ex.Build, x: int) -> int:
    above = e("sub", x, e("const", 1.0))
    root = e("mul", e("sqrt", above), e("sqrt", e("add", x, e("const", 1.0))))
    return _logarithm(e, x, e("add", above, root))


def _atanh(e: ex.Build, x: int) -> int:
    size, one = e("abs", x), e("const", 1.0)
    ratio = e("div", e("add", size, size), e("sub", one, size))
    inside = e("mul", e("log1p", ratio), e("const", 0.5))
    return e("copysign", e("where", e("equal", size, one), e("const", math.inf), inside), x)


_FUNCTIONS: dict[str, Callable[[ex.Build, int], int]] = {
    "Sinh": _sinh, "Cosh": _cosh, "Asinh": _asinh, "Acosh": _acosh, "Atanh": _atanh,
}  # fmt: skip


@lowering(*_FUNCTIONS, supports=floats)
def hyperbolic(b: Lowering, node: NodeView) -> None:
    """y = f(x)."""
    build = ex.Build()
    combine(b, node, build.finish(_FUNCTIONS[node.op_type](build, build("leaf", 0))), node.inputs)
