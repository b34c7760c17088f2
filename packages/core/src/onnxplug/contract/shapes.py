"""Shapes whose dimensions are all known: broadcasting, and the order of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Shape = tuple[int, ...]
"""The dimensions of a tensor, all of them known; ``types.Shape`` is what a model declares."""


def declares_last(node: Any) -> bool:
    """Whether a node's image and result have their channels last: its attribute ``channels_last`` or a name ``Nhwc...``, which
    onnxruntime's optimizer gives quantized nodes."""
    return node.op_type.startswith("Nhwc") or bool(node.attributes.get("channels_last", 0))


def channels_second(node: Any, x: Shape | None) -> Shape | None:
    """The shape ``x`` of a node's image, rearranged so that channels come second."""
    return (x[0], x[-1], *x[1:-1]) if x and declares_last(node) else x


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """The shape to which NumPy broadcasts ``shapes`` (at least one), or None where they do not broadcast."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        size = 1
        for n in sizes:  # compared, not hashed: numbers that a provider follows stay open
            if n != 1 and size not in (1, n):
                return None
            size = n if size == 1 else size
        result.append(size)
    return tuple(result)


def operand(shapes: Sequence[Shape | None], index: int) -> Shape | None:
    """The shape of an operand, None where the node has none at that place."""
    return shapes[index] if index < len(shapes) else None


def within(part: Shape | None, whole: Shape) -> bool:
    """Whether ``part`` is left out, or broadcasts to ``whole`` without enlarging it."""
    return part is None or broadcast([part, whole]) == whole


def vectors(size: int, *shapes: Shape | None) -> bool:
    """Whether each of ``shapes`` is left out or that of a vector of ``size``."""
    return all(shape is None or shape == (size,) for shape in shapes)
