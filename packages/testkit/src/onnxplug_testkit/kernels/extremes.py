"""Values at the edges of types: what is mixed into the operands of operators that are defined there. Floats are of single precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from onnxplug import SparseTensor
from onnxplug_testkit.kernels.sparse import refilled

SPECIALS = (0.0, -0.0, np.nan, np.inf, -np.inf, 1e-30, -1e-30, 1.0, -1.0, 6e4)
"""For operators whose every element is computed by itself."""
MOVED = (*SPECIALS, 1e-40)
"""For operators that only move elements: a number below the normal ones is moved like any other."""
COMPARED = (np.nan, np.inf, -np.inf, -1.0, 6e4)
"""For the greatest and the least of several, which NaN is whenever it is among them; of two zeros it may be either."""
CUT = (np.nan, -1.0, 6e4, 3e38, -3e38)
"""For Clip: a bound that is left out is the largest finite number by its text, and none by its body of other operators."""
SPREADING = (np.nan, np.inf, -np.inf)
"""For sums: what becomes of them does not depend on their order."""
MASKED = (-np.inf, 1e3)
"""For what masks make of scores, and scores whose exponential is no number of any type."""
STEEP = (1e3, -1e3)
"""For what takes exponentials and logarithms of sums of them."""

Wide = Literal["", "all", "sum", "product", "products"]
"""How large integers may be: of their whole type, as the terms of a sum or a product of two, as the factors of a sum of products, as
what is multiplied by itself twice."""

_KEPT = frozenset({"min", "max", "weights"})
"""Formal inputs that stay as drawn: limits, lest they change their order, and weights, whose sum is divided by and would cancel."""


def special(rng: np.random.Generator, formal: str, value: Any, specials: Sequence[float], wide: Wide) -> Any:
    """A copy of an operand with a third of its elements replaced, or most of its integers."""
    if isinstance(value, SparseTensor):
        return refilled(value, special(rng, formal, value.values(), specials, wide))
    if not isinstance(value, np.ndarray) or formal in _KEPT:
        return value
    if value.dtype.kind == "f" and specials:
        return _mixed(rng, value, np.array(specials, np.float32))
    if value.dtype.kind in "iu" and wide:
        return _mixed(rng, value, _large(value.dtype, wide), 0.6)
    return value


def _mixed(rng: np.random.Generator, array: np.ndarray, mixed_in: np.ndarray, share: float = 0.35) -> np.ndarray:
    flat = array.copy().reshape(-1)
    chosen = rng.random(flat.size) < share
    if np.isneginf(mixed_in).any() and not np.isnan(mixed_in).any():
        chosen[:: max(1, array.shape[-1] if array.ndim else 1)] = False  # a row keeps a number
    with np.errstate(all="ignore"):
        flat[chosen] = mixed_in[rng.integers(0, len(mixed_in), int(chosen.sum()))].astype(array.dtype)
    return flat.reshape(array.shape)


def _large(dtype: np.dtype, wide: Wide) -> np.ndarray:
    """Numbers about the largest, close enough to each other that narrower types and floats confuse them."""
    width, signed = dtype.itemsize * 8, dtype.kind == "i"
    bits = {
        "all": width - signed, "sum": width - {32: 6, 64: 10}.get(width, 3), "product": width // 2 - 1,
        "products": width // 2 - (3 if width > 16 else 5),
    }[wide]  # fmt: skip
    top = 2 ** max(bits, 1) - 1
    numbers = [top, top - 1, top // 2 + 1, top // 2, top // 3]
    return np.array(numbers + ([-n for n in numbers] if signed else []), dtype)
