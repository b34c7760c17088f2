"""A tensor as generated code sees it: a buffer, an offset, a shape and strides. Views cost nothing."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Buffer, Ref

Ints = tuple[int, ...]

NARROW = ("float16", "bfloat16")
"""Floats of 16 bits."""


@record(frozen=True, slots=True)
class Tensor:
    """``offset`` in bytes, ``strides`` in elements (0 where broadcast); ``element`` is NumPy's name of the type."""

    buffer: Buffer
    shape: Ints
    strides: Ints
    offset: int = 0
    element: str = "float32"

    @property
    def ref(self) -> Ref:
        return Ref(self.buffer, self.offset)

    @property
    def itemsize(self) -> int:
        return SIZES[self.element]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Row-major without gaps."""
        return follows(self.shape, self.strides, range(len(self.shape)))

    @property
    def is_channels_last(self) -> bool:
        """Channels (dimension 1) next to each other; pixels may be further apart than that."""
        return len(self.shape) >= 3 and (self.strides[1] == 1 or self.shape[1] == 1) and 0 not in self.strides

    def shift(self, elements: int) -> Tensor:
        """The same view further on."""
        return Tensor(self.buffer, self.shape, self.strides, self.offset + elements * self.itemsize, self.element)

    def viewed(self, shape: Ints, strides: Ints) -> Tensor:
        """The same start under another shape."""
        return Tensor(self.buffer, shape, strides, self.offset, self.element)

    def transposed(self, order: Sequence[int]) -> Tensor:
        return self.viewed(tuple(self.shape[d] for d in order), tuple(self.strides[d] for d in order))

    def broadcast(self, shape: Ints) -> Tensor:
        """A view of a larger shape, by ONNX's multidirectional rule; Unsupported for one that it does not broadcast to."""
        extra = len(shape) - len(self.shape)
        if extra < 0 or any(mine not in (1, theirs) for mine, theirs in zip(self.shape, shape[extra:], strict=True)):
            raise Unsupported(f"{list(self.shape)} does not broadcast to {list(shape)}")
        strides = (0,) * extra + tuple(
            0 if mine == 1 and theirs != 1 else s
            for mine, theirs, s in zip(self.shape, shape[extra:], self.strides, strict=True)
        )
        return self.viewed(shape, strides)

    def reshaped(self, shape: Ints) -> Tensor | None:
        """A view of another shape, or None where only a copy has it."""
        if self.is_dense:
            return self.viewed(shape, dense_strides(shape))
        strides = _reshape_strides(self.shape, self.strides, shape)
        return None if strides is None else self.viewed(shape, strides)


@functools.cache
@functools.cache
def element_of(dtype: np.dtype) -> str:
    """NumPy's name of an element type, which NumPy makes up anew each time."""
    return dtype.name


def is_narrow(dtype: np.dtype | None) -> bool:
    """Whether numbers of the type are computed in float32: it is what they are outside of regions, and where they are moved."""
    return dtype is not None and element_of(dtype) in NARROW


def dense_strides(shape: Sequence[int], order: Sequence[int] | None = None) -> Ints:
    """Strides of a tensor without gaps whose dimensions lie in ``order``, outermost first (default: row-major)."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order if order is not None else range(len(shape))):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def channels_last(rank: int) -> Ints:
    """The order of dimensions with channels innermost."""
    return (0, *range(2, rank), 1)


def follows(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    """Whether ``strides`` are the dense ones of ``order``; dimensions of size 1 do not count."""
    step = 1
    for dim in reversed(order):
        if shape[dim] != 1:
            if strides[dim] != step:
                return False
            step *= shape[dim]
    return True


def _reshape_strides(shape: Ints, strides: Ints, new: Ints) -> Ints | None:
    """NumPy's rule: groups of dimensions of equal size must be contiguous among themselves."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    found: list[int] = []
    at = 0
    target = list(new)
    while len(found) < len(target):
        if target[len(found)] == 1:
            found.append(0)
            continue
        if at >= len(old):
            return None
        start, size = len(found), target[len(found)]
        end, have = at + 1, old[at][0]
        stop = start + 1
        while have != size:
            if size < have:
                if stop >= len(target):
                    return None
                size *= target[stop]
                stop += 1
            else:
                if end >= len(old) or old[end - 1][1] != old[end][0] * old[end][1]:
                    return None
                have *= old[end][0]
                end += 1
        step = old[end - 1][1]
        group = []
        for n in reversed(target[start:stop]):
            group.append(step)
            step *= n
        found.extend(reversed(group))
        at = end
    return tuple(found) if at == len(old) else None
