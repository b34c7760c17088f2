"""Operations on the bits of integers: BitShift, BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.arithmetic import is_unsigned
from onnxplug_kernels.catalogue import op


@op("BitShift", 11, 28)
def bit_shift(xp: Any, x: Any, y: Any, *, direction: str) -> Any:
    """``x`` shifted by ``y`` bits; a right shift of signed integers repeats the sign (BitShift-28).

    Counts below zero or beyond the width shift every bit out.
    """
    width = xp.iinfo(x.dtype).bits
    out = (y < 0) | (y >= width)
    if direction == "LEFT":
        return xp.where(out, 0, xp.bitwise_left_shift(x, xp.where(out, 0, y)))
    if is_unsigned(x.dtype):
        return xp.where(out, 0, xp.bitwise_right_shift(x, xp.where(out, 0, y)))
    return xp.bitwise_right_shift(x, xp.where(out, width - 1, y))


@op("BitwiseAnd", 18)
def bitwise_and(xp: Any, a: Any, b: Any) -> Any:
    """The bits set in both."""
    return xp.bitwise_and(a, b)


@op("BitwiseOr", 18)
def bitwise_or(xp: Any, a: Any, b: Any) -> Any:
    """The bits set in either."""
    return xp.bitwise_or(a, b)


@op("BitwiseXor", 18)
def bitwise_xor(xp: Any, a: Any, b: Any) -> Any:
    """The bits set in exactly one."""
    return xp.bitwise_xor(a, b)


@op("BitwiseNot", 18)
def bitwise_not(xp: Any, x: Any) -> Any:
    """Every bit inverted."""
    return xp.bitwise_invert(x)
