"""Mathematical functions of one tensor, element by element: Abs ... Tanh, Erf, IsNaN, IsInf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_kernels.arithmetic import in_float32, is_integer
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.special import erf


def _standard(name: str) -> Callable[..., Any]:
    """The kernel that is one function of the Array API standard."""

    def function(xp: Any, x: Any, *, consumed_inputs: Sequence[int] | None = None) -> Any:
        return getattr(xp, name)(x)

    function.__doc__ = f"``xp.{name}`` of each element."
    return function


# Operator: the standard's name, first and last schema version. Round takes halves to the even neighbour in both.
for _op_type, (_name, _since, _until) in {
    "Abs": ("abs", 1, 13),
    "Acos": ("acos", 7, 22),
    "Acosh": ("acosh", 9, 22),
    "Asin": ("asin", 7, 22),
    "Asinh": ("asinh", 9, 22),
    "Atan": ("atan", 7, 22),
    "Atanh": ("atanh", 9, 22),
    "Ceil": ("ceil", 1, 13),
    "Cos": ("cos", 7, 22),
    "Cosh": ("cosh", 9, 22),
    "Exp": ("exp", 1, 13),
    "Floor": ("floor", 1, 13),
    "Log": ("log", 1, 13),
    "Neg": ("negative", 1, 13),
    "Reciprocal": ("reciprocal", 1, 13),
    "Round": ("round", 11, 22),
    "Sin": ("sin", 7, 22),
    "Sinh": ("sinh", 9, 22),
    "Sqrt": ("sqrt", 1, 13),
    "Tan": ("tan", 7, 22),
    "Tanh": ("tanh", 1, 13),
}.items():
    op(_op_type, _since, _until)(_standard(_name))


@op("Sign", 9, 13)
@in_float32
def sign(xp: Any, x: Any) -> Any:
    """-1, 0 or 1, by the sign of each element; 0 of both zeros."""
    return xp.sign(x)


@op("Erf", 9, 13)
@in_float32
def erf_(xp: Any, x: Any) -> Any:
    """The error function; of integers (Erf-9), rounded toward zero."""
    if is_integer(x.dtype):
        return xp.astype(erf(xp, xp.astype(x, xp.float64)), x.dtype)
    return erf(xp, x)


@op("IsNaN", 9, 20)
def isnan(xp: Any, x: Any) -> Any:
    """True where an element is not a number."""
    return xp.isnan(x)


@op("IsInf", 10, 20)
def isinf(xp: Any, x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    """True where an element is infinite, with a sign that is asked for."""
    infinite = xp.isinf(x)
    if not detect_negative:
        infinite = infinite & ~xp.signbit(x)
    if not detect_positive:
        infinite = infinite & xp.signbit(x)
    return infinite
