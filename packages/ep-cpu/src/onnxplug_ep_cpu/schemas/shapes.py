"""Arithmetic on shapes whose dimensions may be numbers, symbols or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from onnxplug.contract.types import Dim, Shape
from onnxplug_ep_cpu.schemas.declare import Call


def same(call: Call) -> Sequence[Shape | None]:
    """One output, shaped like the first input."""
    return [call.shape(0)]


def known(dim: Dim) -> int | None:
    """A dimension as a number, or None."""
    return dim if isinstance(dim, int) else None


def plus(a: Dim, b: Dim) -> Dim:
    """The sum of two dimensions."""
    if a == 0 or b == 0:
        return b if a == 0 else a
    return a + b if isinstance(a, int) and isinstance(b, int) else None


def times(a: Dim, b: Dim) -> Dim:
    """The product of two dimensions."""
    if a == 1 or b == 1:
        return b if a == 1 else a
    return a * b if isinstance(a, int) and isinstance(b, int) else None


def over(a: Dim, b: int) -> Dim:
    """A dimension divided by a number, rounded down."""
    return a if b == 1 else a // b if isinstance(a, int) else None


def broadcast(a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape two arrays have together."""
    if a is None or b is None:
        return None
    pairs = zip_longest(reversed(a), reversed(b), fillvalue=1)
    return tuple(_together(x, y) for x, y in pairs)[::-1]


def _together(a: Dim, b: Dim) -> Dim:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    return known(a) or known(b)  # a symbol against a number above 1 is that number


def product(a: Shape | None, b: Shape | None) -> Shape | None:
    """The shape of a matrix product (NumPy's rules)."""
    if not a or not b:
        return None
    batch = broadcast(a[:-2], b[:-2])
    return None if batch is None else (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def swapped(shape: Shape | None, swap: int) -> Shape | None:
    """The shape with its last two axes swapped, if ``swap`` says so."""
    return (*shape[:-2], shape[-1], shape[-2]) if shape is not None and swap and len(shape) > 1 else shape


def dims(shape: Shape | None, rank: int) -> Shape:
    """The dimensions of a shape of known ``rank``; ValueError when it has another."""
    if shape is None:
        return (None,) * rank
    if len(shape) != rank:
        raise ValueError(f"a tensor of rank {rank} is wanted, its shape is {list(shape)}")
    return shape
