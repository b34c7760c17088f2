"""Iteration spaces: the fewest dimensions over which all operands of a kernel can be walked by strides, and which of their strides
are worth having in the text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Strides = tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """Extents, and for each operand its stride in every dimension, in elements."""

    shape: tuple[int, ...]
    strides: tuple[Strides, ...]

    @property
    def points(self) -> int:
        """How many there are."""
        return math.prod(self.shape)

    @property
    def patterns(self) -> tuple[tuple[int | None, ...], ...]:
        """Strides as an ``elementwise.Operand`` takes them: 0 anywhere and 1 in the last dimension are text, the rest are arguments."""
        last = len(self.shape) - 1
        return tuple(
            tuple(s if s == 0 or (s == 1 and k == last) else None for k, s in enumerate(own)) for own in self.strides
        )

    @property
    def scalars(self) -> list[int]:
        """Values of an element-wise kernel's arguments, in their order."""
        free = [
            stride
            for own, pattern in zip(self.strides, self.patterns, strict=True)
            for stride, fixed in zip(own, pattern, strict=True)
            if fixed is None
        ]
        return [self.points, *self.shape[1:], *free]


def dense(shape: Sequence[int]) -> Strides:
    """Strides of a row-major tensor."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * shape[k + 1]
    return tuple(strides)


def broadcast(shape: Sequence[int], to: Sequence[int]) -> Strides:
    """Strides with which a dense tensor of ``shape`` is read over ``to`` (ONNX multidirectional broadcasting); ValueError where it is not
    so broadcast."""
    missing = len(to) - len(shape)
    if missing < 0 or any(n not in (1, m) for n, m in zip(shape, to[missing:], strict=True)):
        raise ValueError(f"shape {tuple(shape)} is not broadcast to {tuple(to)}")
    own = dense(shape)
    return (0,) * missing + tuple(0 if n == 1 else s for n, s in zip(shape, own, strict=True))


def space(shape: Sequence[int], strides: Sequence[Strides]) -> Space:
    """The space of ``shape`` with dimensions of extent 1 left out and neighbours joined where every operand allows it."""
    kept = [k for k, extent in enumerate(shape) if extent != 1]
    extents: list[int] = []
    walks: list[list[int]] = [[] for _ in strides]
    for k in kept:
        if extents and all(walk[-1] == own[k] * shape[k] for walk, own in zip(walks, strides, strict=True)):
            extents[-1] *= shape[k]
            for walk, own in zip(walks, strides, strict=True):
                walk[-1] = own[k]
            continue
        extents.append(shape[k])
        for walk, own in zip(walks, strides, strict=True):
            walk.append(own[k])
    if not extents:
        return Space((1,), tuple((0,) for _ in strides))
    return Space(tuple(extents), tuple(map(tuple, walks)))
