"""Concatenations without copies: parts are written where they belong in the whole."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen.tensor import NARROW, Ints, Tensor, element_of

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.lower.context import Lowering

STACKED = 64
"""Elements of a part from which it is laid out by itself."""


class Joins:
    """Where the parts of a region's concatenations go, from when the first of them is written."""

    def __init__(self) -> None:
        self._places: dict[str, Tensor] = {}

    def place(self, b: Lowering, value: ValueView, order: Ints, element: str) -> Tensor | None:
        """Where a value with its dimensions in ``order`` is written as a part; None where it is none, or cannot lie so there."""
        if value.name not in self._places and not self._begin(b, value, order, element):
            return None
        place = self._places.pop(value.name)
        return place if not order or place.strides[order[-1]] == 1 else None

    def _begin(self, b: Lowering, value: ValueView, order: Ints, element: str) -> bool:
        """Lay out the whole that the value is a part of, if it is of one that is yet to be written."""
        joining = b.prepared.joined.get(value.name)
        if joining is None or value.name in b.outputs or element in NARROW:
            return False
        node, axis = joining
        (whole,) = node.outputs
        assert whole is not None
        if whole.name in b.values or whole.name in b.outputs:
            return False
        if kept_as(b, node):
            return False
        target = b.output(whole, stacked(b, node, axis) or order, element)
        start = 0
        for part in node.inputs:
            assert part is not None
            shape = b.shape(part)
            self._places[part.name] = replace(target.shift(start * target.strides[axis]), shape=shape)
            start += shape[axis]
        return True


def kept_as(b: Lowering, node: NodeView) -> str | None:
    """The type of 16 bits that a concatenation is left in, because most of it lies so already: a cache behind which new rows come;
    None where it is better in float32."""
    (whole,) = node.outputs
    assert whole is not None and whole.dtype is not None
    element = element_of(whole.dtype)
    if element not in NARROW:
        return None
    lies = sum(math.prod(b.shape(part)) for part in node.inputs if part is not None and _lies_as(b, part, element))
    return element if 2 * lies > math.prod(b.shape(whole)) else None


def _lies_as(b: Lowering, value: ValueView, element: str) -> bool:
    held = b.values.get(value.name)
    if held is None:
        return value.name in b.prepared.constant
    return isinstance(held, Tensor) and held.element == element


def stacked(b: Lowering, node: NodeView, axis: int) -> Ints | None:
    """How the result of a concatenation had better lie whose parts are one element wide and lie an element apart in it (corners
    of boxes): part by part, so that each is written in one piece; None for others."""
    (whole,) = node.outputs
    assert whole is not None
    shape = b.shape(whole)
    if axis != len(shape) - 1 or len(node.inputs) != shape[axis] or math.prod(shape) < STACKED * shape[axis]:
        return None
    return (axis, *range(axis)) if all(v is not None and b.shape(v)[axis] == 1 for v in node.inputs) else None
