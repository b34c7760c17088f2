"""Element types in arithmetic: halves computed in float32, integers with ONNX's rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

from onnxplug_kernels import precision
from onnxplug_kernels.refusals import Refusal

# typed: dtypes of two libraries may have one hash, and are not to be compared
_remembered = lru_cache(maxsize=None, typed=True)
is_half = _remembered(precision.is_half)


@_remembered
def is_integer(dtype: Any) -> bool:
    """True for the signed and unsigned integers of any array library (NumPy's own test knows no bfloat16)."""
    return str(dtype).rpartition(".")[2].startswith(("int", "uint"))


@_remembered
def is_unsigned(dtype: Any) -> bool:
    """True for the unsigned integers of any array library."""
    return str(dtype).rpartition(".")[2].startswith("uint")


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a kernel compute in float32 where its first input is float16 or bfloat16.

    Inputs of that type are widened; what comes back as float32 is rounded to it, once. Other types go straight through.
    """

    @wraps(function)
    def computed_wide(xp: Any, first: Any, *others: Any, **attributes: Any) -> Any:
        dtype = first.dtype
        if not is_half(dtype):
            return function(xp, first, *others, **attributes)
        wide = [xp.astype(x, xp.float32) if getattr(x, "dtype", None) == dtype else x for x in (first, *others)]
        result = function(xp, *wide, **attributes)
        if isinstance(result, tuple):
            return tuple(_rounded(xp, y, dtype) for y in result)
        return _rounded(xp, result, dtype)

    return computed_wide


def _rounded(xp: Any, y: Any, dtype: Any) -> Any:
    # asarray: operations on 0-d NumPy arrays give scalars, which astype refuses.
    return xp.astype(xp.asarray(y), dtype) if y.dtype == xp.float32 else y


def mean(xp: Any, x: Any, axes: Sequence[int]) -> Any:
    """The mean over ``axes``, kept with size 1; NaN of no elements, without NumPy's warning."""
    return xp.sum(x, axis=tuple(axes), keepdims=True) / math.prod(x.shape[axis] for axis in axes)


def no_zero(xp: Any, b: Any) -> Any:
    """``b``, divisors of integers. Refusal where one is zero: there is no number to give instead."""
    if bool(xp.any(b == 0)):
        raise Refusal("Integer division by zero")
    return b


def truncated_quotient(xp: Any, a: Any, b: Any) -> Any:
    """``a / b`` of integers, rounded toward zero; ``b`` has no zero."""
    quotient = xp.floor_divide(a, b)
    if is_unsigned(a.dtype):
        return quotient
    rounded_down = (quotient < 0) & (quotient * b != a)
    return xp.where(rounded_down, quotient + 1, quotient)


def truncated_remainder(xp: Any, a: Any, b: Any) -> Any:
    """C's ``a % b`` of integers: the sign is that of ``a``."""
    remainder = xp.remainder(a, b)
    if is_unsigned(a.dtype):
        return remainder
    return xp.where((remainder != 0) & ((a < 0) != (b < 0)), remainder - b, remainder)


def integer_power(xp: Any, base: Any, exponent: Any) -> Any:
    """``base ** exponent`` of integers, wrapping; a negative exponent gives the reciprocal rounded toward zero."""
    wide, power = xp.astype(base, xp.int64), xp.astype(exponent, xp.int64)
    result = xp.pow(wide, xp.maximum(power, 0))
    if not is_unsigned(exponent.dtype):
        reciprocal = xp.where(wide == -1, 1 - 2 * (power & 1), xp.astype(wide == 1, xp.int64))
        result = xp.where(power < 0, reciprocal, result)
    return xp.astype(xp.asarray(result), base.dtype)
