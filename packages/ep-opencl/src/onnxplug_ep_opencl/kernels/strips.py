"""Depthwise convolutions on processors, as products of which every row has an image of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug_ep_opencl.kernels.planes import two_dimensions
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_kernel_text.elementwise import Operand
from onnxplug_kernel_text.strips import Strips, depthwise
from onnxplug_kernel_text.types import SIZES, accumulated

LARGEST = 49
"""Elements of a window up to which all of them are in the text."""
_SHARE = 8
"""Work-items for each of the device's units."""
_NEAR = 128 << 10
"""Bytes of the image that a work-item brings near at once: a part of the second cache."""


def strips(numbers: Sequence[int], each: int) -> Strips | None:
    """The form for windows described by ``factors.WINDOW``; None for those that are too large or of three dimensions and more."""
    both = two_dimensions(numbers)
    if both is None:
        return None
    (_, _, w0, _, g0, _), (_, _, w1, m1, g1, _) = both
    return Strips((w0, w1), (g0, g1), m1, each) if 0 < w0 * w1 <= LARGEST else None


def launch_strips(
    target: Target,
    name: str,
    tile: Strips,
    numbers: Sequence[int],
    text: tuple[Operand, Operand, Sequence[Operand], Operand, str],
    refs: Sequence[Ref],
    batch: tuple[int, ...],
    channels: int,
    strides: Sequence[int],
    scratch: Ref,
) -> Job:
    """The launch: of ``text``, which are weights, images, other operands, the result and the epilogue, at ``refs``; the points of a joined
    ``batch``, each with so many ``channels``."""
    both = two_dimensions(numbers)
    assert both is not None
    (h0, o0, _, m0, _, p0), (h1, o1, _, _, _, p1) = both
    type_ = text[3].type
    size, run = SIZES[accumulated(type_)], tile.run(o1, type_)
    wanted = _SHARE * target.units
    band = o0
    while band > 1 and tile.rows(band, m0) * run * tile.step * size > _NEAR:
        band = -(-band // 2)
    band = min(band, -(-o0 // -(-wanted // (math.prod(batch) * channels))))
    bands = -(-o0 // band)
    jobs = math.prod(batch) * channels * bands
    workers, room = min(jobs, wanted), tile.rows(band, m0) * run * tile.step
    scalars = [channels, jobs, workers, bands, band, room, run, h0, h1, o0, o1, p0, p1, m0, *batch[1:], *strides]
    places = [*refs[:2], Ref(scratch.number, size, scratch.offset // size), *refs[2:]]
    source = depthwise(name, *text, tile)
    return Job([Launch(source, name, places, [np.int64(n) for n in scalars], (workers,), (1,))], workers * room * size)
