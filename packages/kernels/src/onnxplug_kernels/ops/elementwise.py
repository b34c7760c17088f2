"""Arithmetic on two or more tensors: Add, Sub, Mul, Div, Mod, Pow, Max, Min, Sum, Mean, Clip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from onnxplug_kernels.arithmetic import (
    in_float32,
    integer_power,
    is_integer,
    no_zero,
    truncated_quotient,
    truncated_remainder,
)
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.legacy import limited_broadcast
from onnxplug_kernels.precision import is_inexact, largest, narrow, widen
from onnxplug_kernels.refusals import FAIL, Refusal, braced


@op("Add", 7, 14)
def add(xp: Any, a: Any, b: Any) -> Any:
    """``a + b``; integers wrap."""
    return xp.add(a, b)


@op("Sub", 7, 14)
def sub(xp: Any, a: Any, b: Any) -> Any:
    """``a - b``; integers wrap."""
    return xp.subtract(a, b)


@op("Mul", 7, 14)
def mul(xp: Any, a: Any, b: Any) -> Any:
    """``a * b``; integers wrap."""
    return xp.multiply(a, b)


@op("Div", 7, 14)
def div(xp: Any, a: Any, b: Any) -> Any:
    """``a / b``; integers are rounded toward zero, and not divided by zero."""
    return truncated_quotient(xp, a, no_zero(xp, b)) if is_integer(a.dtype) else xp.divide(a, b)


@op("Pow", 7, 15)
@in_float32
def pow_(xp: Any, base: Any, exponent: Any) -> Any:
    """``base ** exponent`` in the type of ``base``; floats of two types are computed in the wider one."""
    if is_integer(base.dtype):
        if is_integer(exponent.dtype):
            return integer_power(xp, base, exponent)
        power = xp.pow(xp.astype(base, xp.float64), xp.astype(exponent, xp.float64))
        return xp.astype(xp.asarray(power), base.dtype)
    if is_integer(exponent.dtype):
        exponent = xp.astype(exponent, base.dtype)
    return narrow(xp, xp.asarray(xp.pow(base, exponent)), base.dtype)


for _op_type, _until, _function in (
    ("Add", 6, add),
    ("Sub", 6, sub),
    ("Mul", 6, mul),
    ("Div", 6, div),
    ("Pow", 1, pow_),
):
    op(_op_type, 1, _until)(limited_broadcast(_function))


@op("Mod", 10, 28)
@in_float32
def mod(xp: Any, a: Any, b: Any, *, fmod: int = 0) -> Any:
    """The remainder of ``a / b`` with the sign of ``b`` (fmod=0, Python's) or of ``a`` (fmod=1, C's)."""
    if is_integer(a.dtype):
        b = no_zero(xp, b)
        return truncated_remainder(xp, a, b) if fmod else xp.remainder(a, b)
    if not fmod:
        return xp.remainder(a, b)
    return xp.copysign(xp.remainder(xp.abs(a), xp.abs(b)), a)


@op("Max", 8, 13)
def max_(xp: Any, *inputs: Any, consumed_inputs: Sequence[int] | None = None) -> Any:
    """The largest element over all inputs; NaN wherever one has it."""
    return reduce(xp.maximum, inputs) if len(inputs) > 1 else xp.asarray(inputs[0], copy=True)


@op("Min", 8, 13)
def min_(xp: Any, *inputs: Any, consumed_inputs: Sequence[int] | None = None) -> Any:
    """The smallest element over all inputs; NaN wherever one has it."""
    return reduce(xp.minimum, inputs) if len(inputs) > 1 else xp.asarray(inputs[0], copy=True)


@op("Sum", 8, 13)
@in_float32
def sum_(xp: Any, *inputs: Any, consumed_inputs: Sequence[int] | None = None) -> Any:
    """The elementwise sum over all inputs."""
    return reduce(xp.add, inputs) if len(inputs) > 1 else xp.asarray(inputs[0], copy=True)


@op("Mean", 8, 13)
@in_float32
def mean(xp: Any, *inputs: Any, consumed_inputs: Sequence[int] | None = None) -> Any:
    """The elementwise mean over all inputs."""
    return reduce(xp.add, inputs) / len(inputs)


def _of_one_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """The form before version 8, which had no broadcasting."""

    def alike(xp: Any, *inputs: Any, consumed_inputs: Sequence[int] | None = None) -> Any:
        if len({tuple(x.shape) for x in inputs}) > 1:
            raise Refusal(
                f"All inputs must have the same shape, got {', '.join(braced(x.shape) for x in inputs)}", FAIL
            )
        return function(xp, *inputs)

    alike.__doc__ = f"{function.__doc__} All inputs have one shape."
    return alike


for _name, _folded in (("Max", max_), ("Min", min_), ("Sum", sum_), ("Mean", mean)):
    op(_name, 1, 6)(_of_one_shape(_folded))


@op("Clip", 11, 13)
def clip(xp: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    """``x`` limited to [low, high], by default the finite numbers of its type; ``high`` everywhere if ``low`` exceeds it."""
    limits: list[Any] = [None, None]
    if is_inexact(x.dtype):
        limits = [-largest(xp, x.dtype), largest(xp, x.dtype)]
    for place, (name, bound) in enumerate((("min", low), ("max", high))):
        if bound is None:
            continue
        if tuple(bound.shape) not in ((), (1,)):
            raise Refusal(f"{name} should be a scalar.")
        limits[place] = xp.reshape(widen(xp, bound), ())
    return narrow(xp, xp.clip(widen(xp, x), *limits), x.dtype)


@op("Clip", 1, 6)
@in_float32
def clip_1(
    xp: Any,
    x: Any,
    *,
    min: float = -3.4028234663852886e38,
    max: float = 3.4028234663852886e38,
    consumed_inputs: Sequence[int] | None = None,
) -> Any:
    """``x`` limited to [min, max], which are attributes."""
    return xp.clip(x, min, max)
