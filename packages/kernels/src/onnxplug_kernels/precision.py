"""Half-precision inputs are computed in float32 and rounded once, at the end."""

from __future__ import annotations

import functools
import math
from typing import Any

from onnxplug_kernels.refusals import Refusal, braced

# Attribute defaults as a float attribute holds them.
EPSILON = 9.999999747378752e-06
"""1e-5."""
MOMENTUM = 0.8999999761581421
"""0.9."""


@functools.lru_cache(maxsize=64, typed=True)
def is_half(dtype: Any) -> bool:
    """True for float16 and bfloat16, of whichever array library."""
    return str(dtype).endswith("float16")


@functools.lru_cache(maxsize=64, typed=True)
def is_inexact(dtype: Any) -> bool:
    """True for floating and complex types, bfloat16 and narrower ones included."""
    return "float" in str(dtype) or "complex" in str(dtype)


def largest(xp: Any, dtype: Any) -> float:
    """The largest finite number of a floating type."""
    if is_half(dtype):  # which not every ``xp`` knows
        return (2 - 2**-7) * 2.0**127 if str(dtype).endswith("bfloat16") else 65504.0
    return float(xp.finfo(dtype).max)


def widen(xp: Any, x: Any) -> Any:
    """``x`` in the type its arithmetic is done in: float32 for float16 and bfloat16, otherwise as it is."""
    return xp.astype(x, xp.float32) if is_half(x.dtype) else x


def narrow(xp: Any, x: Any, dtype: Any) -> Any:
    """``x`` as ``dtype``; the same array where it has that type already."""
    return x if x.dtype == dtype else xp.astype(x, dtype)


def from_float(xp: Any, x: Any, dtype: Any) -> Any:
    """``x`` as ``dtype``; to an integer type it is rounded half to even and saturated."""
    if is_inexact(dtype):
        return narrow(xp, x, dtype)
    if dtype == xp.bool:
        return x >= 0.5
    limits = xp.iinfo(dtype)
    highest = float(limits.max)
    if highest > limits.max:
        highest = math.nextafter(highest, 0)
    return xp.astype(xp.clip(xp.round(x), float(limits.min), highest), dtype)


def per_channel(xp: Any, values: Any, rank: int, channels: int | None) -> Any:
    """A vector over channels, shaped to broadcast against an array of ``rank`` whose axis 1 holds the channels.

    Unless ``channels`` is None, it must have one element for each.
    """
    if channels is not None and tuple(values.shape) != (channels,):
        raise Refusal(f"a vector with one element for each of {channels} channels has shape {braced(values.shape)}")
    return xp.reshape(values, (1, -1) + (1,) * (rank - 2))
