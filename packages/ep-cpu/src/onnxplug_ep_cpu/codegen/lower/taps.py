"""Where the taps of a sliding window read: tables of offsets that spare kernels the geometry."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from onnxplug.contract import NodeView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.fitting import fitting
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last
from onnxplug_kernels.windows import Windows, windows

_WINDOW = ("strides", "dilations", "pads", "auto_pad", "ceil_mode")


def window(node: NodeView, spatial: Ints, kernel: Ints) -> Windows:
    """The geometry of a convolution or pooling node."""
    given = {k: v for k, v in node.attributes.items() if k in _WINDOW}
    moves = windows(spatial, kernel, **({"ceil_mode": 0, **given} if "Pool" in node.op_type else given))
    if any(n < 1 for n in moves.output):  # their least one would be a question of which it is
        raise Unsupported("no window fits into the image")
    return moves


def seeing(moves: Windows, spatial: Ints) -> Windows:
    """The windows without the outer taps that see nothing but padding: what is left of an image may be far smaller than the
    window it is pooled with."""
    kernel, begins = [], []
    for axis, size in enumerate(spatial):
        dilation, begin, taps = moves.dilations[axis], moves.begins[axis], moves.kernel[axis]
        first = min(max(0, -(-(begin - (moves.output[axis] - 1) * moves.strides[axis]) // dilation)), taps - 1)
        kernel.append(max(1, min(taps, (size + begin - 1) // dilation + 1) - first))
        begins.append(begin - first * dilation)
    return replace(moves, kernel=tuple(kernel), begins=tuple(begins))


def blind(moves: Windows, spatial: Ints) -> bool:
    """Whether some window sees nothing but padding. Its sum is exactly 0, which Winograd's differences of sums, whose error is that
    of the greatest element near by, do not give."""
    return any(_blind(moves, axis, size) for axis, size in enumerate(spatial))


def _blind(moves: Windows, axis: int, size: int) -> bool:
    taps, dilation = moves.kernel[axis], moves.dilations[axis]
    if dilation > size or moves.output[axis] == 0:  # the next tap to one before the image may lie behind it
        return 0 in moves.seen(axis, 0, size)
    first = -moves.begins[axis]
    return first + (taps - 1) * dilation < 0 or first + (moves.output[axis] - 1) * moves.strides[axis] >= size


@record(frozen=True, slots=True)
class Offsets:
    """[output pixel, tap] offsets in elements from the start of an image to what a tap reads; -1 where it is padding. ``sizes`` and
    ``strides`` are those of the axes of space."""

    sizes: Ints
    strides: Ints
    moves: Windows

    @property
    def shape(self) -> tuple[int, int]:
        """Pixels and taps."""
        axes = range(len(self.sizes))
        return math.prod(self.moves.output[a] for a in axes), math.prod(self.moves.kernel[a] for a in axes)

    def array(self, b: Lowering) -> np.ndarray:
        """The table itself, which ties the program to the sizes."""
        sizes = tuple(map(int, self.sizes))
        return b.once(("offsets", self), lambda: _offsets(sizes, self.strides, self.moves))

    def ref(self, b: Lowering) -> Ref:
        """Where the table lies."""
        return b.derived(_offsets, self.sizes, self.strides, self.moves)

    def by_tile(self, b: Lowering, rows: int) -> Ref:
        """Where it lies as [tile][tap][row] (see ``by_tile``)."""
        return b.derived(_by_tile, self.sizes, self.strides, self.moves, rows)

    def padded(self) -> bool:
        """Whether some tap reads padding."""
        m = self.moves
        return any(
            m.begins[a] > 0
            or (m.output[a] - 1) * m.strides[a] + (m.kernel[a] - 1) * m.dilations[a] - m.begins[a] >= size
            for a, size in enumerate(self.sizes)
        )

    def even(self) -> int | None:
        """The one stride between the first taps of neighbouring pixels from 0 on, if there is one and none is padding."""
        moves = self.moves
        if any(moves.begins) or any(
            (o - 1) * s >= n for o, s, n in zip(moves.output, moves.strides, self.sizes, strict=True)
        ):
            return None
        return even_steps(moves.output, tuple(s * t for s, t in zip(moves.strides, self.strides, strict=True)))


def offsets(source: Tensor, moves: Windows) -> Offsets:
    """Where the taps of windows over an image read."""
    return Offsets(source.shape[2:], source.strides[2:], moves)


def lines(source: Tensor, moves: Windows) -> Offsets:
    """[line of the result, line of a window] offsets in elements from the start of a plane; -1 where it is padding."""
    return Offsets(source.shape[2:-1], source.strides[2:-1], moves)


def _offsets(sizes: Ints, strides: Ints, moves: Windows) -> np.ndarray:
    return elements([starts(moves, axis) for axis in range(len(sizes))], sizes, strides)


def elements(axes: Sequence[np.ndarray], sizes: Ints, strides: Ints) -> np.ndarray:
    """[place, tap] offsets from [place, tap] coordinates along each axis; -1 outside."""
    at = np.zeros((1, 1), np.int32)
    for where, size, stride in zip(axes, sizes, strides, strict=True):
        grid = at[:, None, :, None] + (where * stride).astype(np.int32)[None, :, None, :]
        # Written again where it is outside only: that is little of a large table, which a mask of all would pass through several times.
        grid.transpose(0, 2, 1, 3)[at < 0] = -1
        grid.transpose(1, 3, 0, 2)[(where < 0) | (where >= size)] = -1
        at = grid.reshape(len(at) * len(where), at.shape[1] * where.shape[1])
    return at


def starts(moves: Windows, axis: int, some: np.ndarray | None = None) -> np.ndarray:
    """[output, tap] coordinates along an axis of the input, in its padding too; of all outputs or of some."""
    outputs, taps = np.arange(moves.output[axis]) if some is None else some, np.arange(moves.kernel[axis])
    return outputs[:, None] * moves.strides[axis] + taps * moves.dilations[axis] - moves.begins[axis]


def _by_tile(sizes: Ints, strides: Ints, moves: Windows, rows: int) -> np.ndarray:
    return by_tile(_offsets(sizes, strides, moves), rows)


def by_tile(pixels: np.ndarray, rows: int) -> np.ndarray:
    """Offsets as [tile][tap][row]; the last tile overlaps the one before it."""
    count = len(pixels)
    first = np.minimum(np.arange(-(-count // rows)) * rows, count - rows)
    return np.ascontiguousarray(pixels[first[:, None] + np.arange(rows)].transpose(0, 2, 1), np.int32)


def torn(moves: Windows, axis: int, size: int) -> bool:
    """Whether some window sees, along an axis, padding with some of its taps and the image with others."""
    stride, begin, count = moves.strides[axis], moves.begins[axis], moves.output[axis]
    reach = (moves.kernel[axis] - 1) * moves.dilations[axis]
    before = min(count, max(0, -(-begin // stride)))  # windows whose first tap lies before the image
    behind = max(
        before, min(count, (size + begin - reach - 1) // stride + 1)
    )  # the first whose last tap lies behind it
    where = starts(moves, axis, np.r_[0:before, behind:count])
    inside = (where >= 0) & (where < size)
    return bool((inside.any(1) & ~inside.all(1)).any())


@contextmanager
def evenly(b: Lowering, target: Tensor, images: bool = False) -> Iterator[tuple[Tensor, int]]:
    """Where to write what ``target`` is to hold, channels-last, and the one stride between its pixels, as of ``even_pixels``; what
    has been written elsewhere is copied to it in the end."""
    with fitting(b, target, channels_last(len(target.shape)), lambda t: even_pixels(t, images) is not None) as written:
        step = even_pixels(written, images)
        assert step is not None
        yield written, step


def even_pixels(tensor: Tensor, images: bool = False) -> int | None:
    """The one stride between neighbouring pixels of an image, or, with ``images``, of all images; None if there is none."""
    axes = (0, *range(2, len(tensor.shape))) if images else range(2, len(tensor.shape))
    return even_steps(tuple(tensor.shape[a] for a in axes), tuple(tensor.strides[a] for a in axes))


def even_steps(sizes: Ints, strides: Ints) -> int | None:
    """The one stride between neighbouring places of several axes, if there is one."""
    dims = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1]
    for (_, outer), (n, inner) in itertools.pairwise(dims):
        if outer != n * inner:
            return None
    return dims[-1][1] if dims else 0
