"""Truth values and comparisons: And, Or, Xor, Not, Equal, Greater, Less, GreaterOrEqual, LessOrEqual, Where."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.legacy import limited_broadcast


@op("And", 7)
def and_(xp: Any, a: Any, b: Any) -> Any:
    """True where both are."""
    return xp.logical_and(a, b)


@op("Or", 7)
def or_(xp: Any, a: Any, b: Any) -> Any:
    """True where either is."""
    return xp.logical_or(a, b)


@op("Xor", 7)
def xor(xp: Any, a: Any, b: Any) -> Any:
    """True where exactly one is."""
    return xp.logical_xor(a, b)


@op("Not", 1)
def not_(xp: Any, x: Any) -> Any:
    """True where the input is not."""
    return xp.logical_not(x)


@op("Equal", 7, 19)
def equal(xp: Any, a: Any, b: Any) -> Any:
    """``a == b``, strings included (Equal-19)."""
    return xp.equal(a, b)


@op("Greater", 7, 13)
def greater(xp: Any, a: Any, b: Any) -> Any:
    """``a > b``."""
    return xp.greater(a, b)


@op("Less", 7, 13)
def less(xp: Any, a: Any, b: Any) -> Any:
    """``a < b``."""
    return xp.less(a, b)


@op("GreaterOrEqual", 12, 16)
def greater_or_equal(xp: Any, a: Any, b: Any) -> Any:
    """``a >= b``."""
    return xp.greater_equal(a, b)


@op("LessOrEqual", 12, 16)
def less_or_equal(xp: Any, a: Any, b: Any) -> Any:
    """``a <= b``."""
    return xp.less_equal(a, b)


@op("Where", 9, 16)
def where(xp: Any, condition: Any, x: Any, y: Any) -> Any:
    """``x`` where the condition holds, else ``y``."""
    return xp.where(condition, x, y)


for _op_type, _function in (
    ("And", and_),
    ("Or", or_),
    ("Xor", xor),
    ("Equal", equal),
    ("Greater", greater),
    ("Less", less),
):
    op(_op_type, 1)(limited_broadcast(_function))
