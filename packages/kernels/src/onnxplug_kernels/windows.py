"""Geometry of a kernel that slides over the spatial axes, shared by convolution and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal, braced


@dataclass(frozen=True, slots=True)
class Windows:
    """Where a sliding kernel looks; every field has one entry per spatial axis.

    ``begins`` and ``ends`` are the declared padding. ``overhang`` is how far the last window reaches beyond it, which
    happens when the output size was rounded up.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    overhang: tuple[int, ...]
    output: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.kernel)

    def positions(self) -> Iterator[tuple[int, ...]]:
        """Every element of the kernel, last axis fastest."""
        return itertools.product(*(range(k) for k in self.kernel))

    def steps(self, axis: int, position: int) -> slice:
        """Along one axis of the padded input, the elements that kernel element ``position`` meets, in output order."""
        start, stride = position * self.dilations[axis], self.strides[axis]
        return slice(start, start + max(0, (self.output[axis] - 1) * stride + 1), stride)

    def index(self, position: Sequence[int]) -> tuple[Any, ...]:
        """``steps`` of every axis, as an index into a padded (..., *spatial) array."""
        return (..., *(self.steps(axis, p) for axis, p in enumerate(position)))

    def seen(self, axis: int, first: int, stop: int) -> list[int]:
        """How many elements of each window along one axis lie in ``first`` <= place < ``stop`` of the input."""
        kernel, stride, dilation = self.kernel[axis], self.strides[axis], self.dilations[axis]
        starts = (o * stride - self.begins[axis] for o in range(self.output[axis]))
        before = ((-(-(first - start) // dilation), -(-(stop - start) // dilation)) for start in starts)
        return [min(max(end, 0), kernel) - min(max(begin, 0), kernel) for begin, end in before]

    def pad(self, xp: Any, x: Any, value: float = 0) -> Any:
        """``x`` with its spatial axes padded so that all windows lie inside."""
        ends = tuple(e + o for e, o in zip(self.ends, self.overhang, strict=True))
        return pad(xp, x, self.begins, ends, value)


def windows(
    spatial: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int | None = None,
) -> Windows:
    """Resolve window attributes for an input of ``spatial`` sizes (ONNX operator spec, MaxPool-22 and Conv-22).

    ``ceil_mode`` is pooling's, None elsewhere: a pooling window that lacks less than a stride sees what there is.
    """
    rank = len(kernel)
    if len(spatial) != rank:
        raise ValueError(f"the kernel has {rank} axes but the input has {len(spatial)} spatial axes")
    strides = tuple(strides or (1,) * rank)
    dilations = tuple(dilations or (1,) * rank)
    pads = tuple(pads or (0,) * (2 * rank))
    for name, given, due in ("pads", pads, 2 * rank), ("dilations", dilations, rank), ("strides", strides, rank):
        if len(given) != due:
            fewer = "Not enough" if len(given) < due else "Too many"
            raise Refusal(f"{fewer} elements in {name}. Expected: {due} Got: {len(given)}", INVALID_ARGUMENT)
    if min(*strides, *dilations, *kernel, 1) < 1:
        raise ValueError(f"kernel {list(kernel)}, strides {strides} and dilations {dilations} must be positive")
    axes = [
        _axis(n, (k - 1) * d + 1, s, pads[i], pads[i + rank], auto_pad, ceil_mode)
        for i, (n, k, s, d) in enumerate(zip(spatial, kernel, strides, dilations, strict=True))
    ]
    begins, ends, overhang, output = zip(*axes, strict=True) if axes else ((), (), (), ())
    return Windows(tuple(kernel), strides, dilations, begins, ends, overhang, output)


def filtered(spatial: Sequence[int], kernel: Sequence[int], **given: Any) -> Windows:
    """``windows`` of a convolution, which must have one along every axis, as onnxruntime has it: ValueError for a smaller image."""
    moves = windows(spatial, kernel, **given)
    if min(moves.output, default=1) < 1:
        raise Refusal(f"Invalid input shape: {braced(spatial)}", INVALID_ARGUMENT)
    return moves


def _axis(
    size: int, extent: int, stride: int, begin: int, end: int, auto_pad: str, ceil_mode: int | None
) -> tuple[int, int, int, int]:
    """(begin, end, overhang, output size) of one axis."""
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output = -(-size // stride)
        total = max(0, (output - 1) * stride + extent - size)
        begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        return begin, total - begin, 0, output
    if auto_pad == "VALID":
        begin = end = 0
    elif auto_pad not in ("NOTSET", ""):
        raise ValueError(f"auto_pad is {auto_pad!r}; it must be NOTSET, SAME_UPPER, SAME_LOWER or VALID")
    room = size + begin + end - extent
    if ceil_mode is None:
        output = max(0, room // stride + 1)
    else:
        # Without ceil_mode cut towards zero, as onnx's shape inference and onnxruntime have it for pooling.
        output = (room // stride if room >= 0 and not ceil_mode else -(-room // stride)) + 1
    if ceil_mode and (output - 1) * stride >= size + begin:
        # A window that would start in the end padding sees nothing of the input and is dropped.
        output -= 1
    if output < 0:
        raise Refusal("Calculated output dimension is negative. Check kernel_shape, pads, strides and dilations.", FAIL)
    return begin, end, max(0, (output - 1) * stride - room), output


def pad(xp: Any, x: Any, begins: Sequence[int], ends: Sequence[int], value: float = 0) -> Any:
    """``x`` with ``value`` around its last ``len(begins)`` axes; ``x`` itself when nothing is to be added."""
    if not any(begins) and not any(ends):
        return x
    lead = x.ndim - len(begins)
    sizes = x.shape[lead:]
    shape = (*x.shape[:lead], *(b + n + e for b, n, e in zip(begins, sizes, ends, strict=True)))
    padded = xp.zeros(shape, dtype=x.dtype) if value == 0 else xp.full(shape, value, dtype=x.dtype)
    padded[(..., *(slice(b, b + n) for b, n in zip(begins, sizes, strict=True)))] = x
    return padded


def fold(xp: Any, columns: Any, moves: Windows, sizes: Sequence[int]) -> Any:
    """Add window contents up at the places they were taken from: the transpose of gathering windows.

    ``columns`` is (batch, channels, *kernel, *output); the result is (batch, channels, *sizes), padding included.
    """
    image = xp.zeros((*columns.shape[:2], *sizes), dtype=columns.dtype)
    apart = all((k - 1) * d < s for k, d, s in zip(moves.kernel, moves.dilations, moves.strides, strict=True))
    for position in moves.positions():
        part = columns[(slice(None), slice(None), *position, ...)]
        if apart:
            image[moves.index(position)] = part
        else:
            image[moves.index(position)] += part
    return image
