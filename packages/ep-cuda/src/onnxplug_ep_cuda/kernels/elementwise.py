"""Operators that are one function of CuPy, element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from onnxplug.contract import Into

# Operator -> CuPy's name of it. Their results have the type of the inputs, or are bool.
UFUNCS = {
    "Abs": "absolute", "Acos": "arccos", "Acosh": "arccosh", "Add": "add", "And": "logical_and", "Asin": "arcsin",
    "Asinh": "arcsinh", "Atan": "arctan", "Atanh": "arctanh", "BitwiseAnd": "bitwise_and", "BitwiseNot": "invert",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Equal": "equal",
    "Exp": "exp", "Floor": "floor", "Greater": "greater", "GreaterOrEqual": "greater_equal", "IsNaN": "isnan",
    "Less": "less", "LessOrEqual": "less_equal", "Log": "log", "Mul": "multiply", "Neg": "negative", "Not": "logical_not",
    "Or": "logical_or", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Sub": "subtract", "Tan": "tan", "Tanh": "tanh",
    "Xor": "logical_xor",
}  # fmt: skip


def forms() -> Mapping[tuple[str, str], Callable[..., Into | None]]:
    """The writing forms of these operators."""
    return {("", op_type): functools.partial(_ufunc, name) for op_type, name in UFUNCS.items()}


def _ufunc(name: str, inputs: Any, outputs: Any, **attributes: Any) -> Into | None:
    if attributes:
        return None  # the old broadcasting rule of Add-1 and its like
    import cupy

    function = getattr(cupy, name)

    def call(*operands: Any) -> None:
        function(*operands[:-1], out=operands[-1])

    return Into(call)
