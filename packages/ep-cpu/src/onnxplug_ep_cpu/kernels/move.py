"""Operators that place elements elsewhere: one copy between views."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from onnxplug.contract import Into, TensorSpec
from onnxplug_ep_cpu.kernels.forms import Specs, constant_ints, given, into, normal_axis


def _along(axis: int, index: Any) -> tuple[Any, ...]:
    return (slice(None),) * axis + (index,)


@into("Transpose", 1, 25)
def transpose(inputs: Specs, outputs: Specs, *, perm: Sequence[int] | None = None) -> Into | None:
    """``x`` with its dimensions in the order ``perm``, by default reversed."""
    order = tuple(range(len(inputs[0].shape)))[::-1] if perm is None else tuple(perm)
    return Into(lambda x, y: np.copyto(y, x.transpose(order)))


@into("Concat", 4, 13)
def concat(inputs: Specs, outputs: Specs, *, axis: int) -> Into | None:
    """The inputs one after the other."""
    return Into(lambda *operands: np.concatenate(operands[:-1], axis, operands[-1]))


@into("Split", 2, 18)
def split(
    inputs: Specs, outputs: Specs, *, axis: int = 0, split: Sequence[int] | None = None, num_outputs: int | None = None
) -> Into | None:
    """``x`` in parts, whose lengths the outputs have."""
    x = inputs[0]
    axis = normal_axis(axis, len(x.shape))
    stops = list(accumulate(y.shape[axis] for y in outputs))
    parts = [_along(axis, slice(a, b)) for a, b in zip((0, *stops[:-1]), stops, strict=True)]
    first = len(inputs)

    def call(*operands: Any) -> None:
        for part, y in zip(parts, operands[first:], strict=True):
            np.copyto(y, operands[0][part])

    return Into(call)


@into("Slice", 10, 13)
def slice_(inputs: Specs, outputs: Specs) -> Into | None:
    """``x[starts:ends:steps]`` along ``axes``, by default the leading ones."""
    starts, ends = constant_ints(inputs, 1), constant_ints(inputs, 2)
    if starts is None or ends is None:
        return None
    axes = constant_ints(inputs, 3) if given(inputs, 3) else tuple(range(len(starts)))
    steps = constant_ints(inputs, 4) if given(inputs, 4) else (1,) * len(starts)
    return None if axes is None or steps is None else _slice(inputs[0], starts, ends, axes, steps)


@into("Slice", 1, 1)
def slice_1(
    inputs: Specs, outputs: Specs, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Into | None:
    """``x[starts:ends]`` along ``axes``, by default the leading ones."""
    return _slice(inputs[0], starts, ends, axes or range(len(starts)), (1,) * len(starts))


def _slice(
    x: TensorSpec, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Into:
    index = [slice(None)] * len(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # ONNX operator spec, Slice-13, clamps as Python does, but for a start below 0 even where the step is negative.
        first = max(start + x.shape[axis] if start < 0 else start, 0)
        index[axis] = slice(first, end, step)
    kept = tuple(index)
    return Into(lambda *operands: np.copyto(operands[-1], operands[0][kept]))


@into("Expand", 8, 13)
def expand(inputs: Specs, outputs: Specs) -> Into | None:
    """``x`` broadcast to the shape of the output, which inference may tell even of a shape that does not fit ``x``."""
    return None if constant_ints(inputs, 1) is None else Into(lambda x, shape, y: np.copyto(y, x))


@into("Tile", 6, 13)
def tile(inputs: Specs, outputs: Specs) -> Into | None:
    """``x`` repeated along each dimension."""
    x, y = inputs[0], outputs[0]
    pairs = [(b // a, a) for a, b in zip(x.shape, y.shape, strict=True)]
    source, target = tuple(n for _, a in pairs for n in (1, a)), tuple(n for pair in pairs for n in pair)
    return Into(lambda x, repeats, y: np.copyto(y.reshape(target), x.reshape(source)))


@into("Pad", 2, 2)
def pad_2(
    inputs: Specs, outputs: Specs, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0
) -> Into | None:
    """``x`` with elements added around it."""
    return _pad(inputs, pads, range(len(inputs[0].shape)), mode, value)


@into("Pad", 11, 25)
def pad(inputs: Specs, outputs: Specs, *, mode: str = "constant") -> Into | None:
    """``x`` with elements added around it along ``axes``."""
    x, pads = inputs[0], constant_ints(inputs, 1)
    axes = constant_ints(inputs, 3) if given(inputs, 3) else tuple(range(len(x.shape)))
    return None if pads is None or axes is None else _pad(inputs, pads, axes, mode, 0)


def _pad(inputs: Specs, pads: Sequence[int], axes: Sequence[int], mode: str, value: float) -> Into | None:
    x = inputs[0]
    if min(pads, default=0) < 0:
        return None  # crops, which the returning form does
    rank = len(x.shape)
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    inside = tuple(slice(b, b + n) for b, n in zip(before, x.shape, strict=True))
    valued = given(inputs, 2)

    def surround(*operands: Any) -> None:
        y = operands[-1]
        y.fill(operands[2].reshape(-1)[0] if valued else value)
        np.copyto(y[inside], operands[0])

    if mode == "constant":
        return Into(surround)
    copies = [c for axis, n in enumerate(x.shape) for c in _borders(axis, n, before[axis], after[axis], mode)]

    def mirror(*operands: Any) -> None:
        y = operands[-1]
        np.copyto(y[inside], operands[0])
        for border, source in copies:
            np.copyto(y[border], y[source])

    return Into(mirror)


def _borders(axis: int, size: int, before: int, after: int, mode: str) -> list[tuple[Any, Any]]:
    """Along one axis, (index of a slice of the border, index of the slice inside that is repeated there)."""
    sources = np.pad(np.arange(size), (before, after), mode=mode) + before  # type: ignore[call-overload]
    borders = (*range(before), *range(before + size, before + size + after))
    return [(_along(axis, slice(b, b + 1)), _along(axis, slice(sources[b], sources[b] + 1))) for b in borders]


@into("DepthToSpace", 1, 13)
def depth_to_space(inputs: Specs, outputs: Specs, *, blocksize: int, mode: str = "DCR") -> Into | None:
    """Blocks of channels moved into height and width."""
    n, c, h, w = inputs[0].shape
    b, depth = blocksize, c // blocksize**2
    blocks, order = ((n, b, b, depth, h, w), (0, 3, 4, 1, 5, 2))
    if mode != "DCR":
        blocks, order = ((n, depth, b, b, h, w), (0, 1, 4, 2, 5, 3))
    target = (n, depth, h, b, w, b)
    return Into(lambda x, y: np.copyto(y.reshape(target), x.reshape(blocks).transpose(order)))


@into("SpaceToDepth", 1, 13)
def space_to_depth(inputs: Specs, outputs: Specs, *, blocksize: int) -> Into | None:
    """Blocks of height and width moved into channels."""
    n, c, h, w = inputs[0].shape
    b = blocksize
    blocks, target = (n, c, h // b, b, w // b, b), (n, b, b, c, h // b, w // b)
    return Into(lambda x, y: np.copyto(y.reshape(target), x.reshape(blocks).transpose(0, 3, 5, 1, 2, 4)))
