"""Pooling of regions of interest."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen.kernels.region_maxima import RegionMaxima
from onnxplug_ep_cpu.codegen.kernels.regions import MOST, RegionSamples
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, floats, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor, channels_last


def _supports(node: NodeView) -> str | None:
    x, boxes, images = node.inputs
    if attributes(node, mode="avg")["mode"] not in ("avg", "max"):
        return "only means and maxima of samples are generated"
    known = typed(x) or typed(boxes, FLOATS) or typed(images, {"int64"})
    return known or (None if rank(x) == 4 else "its operand is no image")


@lowering("RoiAlign", supports=_supports)
def roi_align(b: Lowering, node: NodeView) -> None:
    """Means or maxima of bilinear samples in the bins of each region."""
    (x, boxes, images), (y,) = node.inputs, node.outputs
    assert x is not None and boxes is not None and images is not None and y is not None
    given = attributes(
        node,
        coordinate_transformation_mode="half_pixel",
        mode="avg",
        output_height=1,
        output_width=1,
        sampling_ratio=0,
        spatial_scale=1.0,
    )
    half = node.since_version >= 16 and given["coordinate_transformation_mode"] == "half_pixel"
    source, corners, whose, shape = b.channels_last(x), b.dense(boxes), b.dense(images), b.shape(y)
    count, channels, height, width = source.shape
    if count * height * width == 0 < math.prod(shape):
        raise Unsupported("there is no image to sample")
    if corners.shape != (shape[0], 4) or whose.shape != (shape[0],):
        raise Unsupported("the regions do not suit the result")
    if given["sampling_ratio"] > MOST:
        raise Unsupported(f"more than {MOST} samples a bin along an axis are not generated")

    def call(made: Tensor, vectors: int, parts: int) -> None:
        args: list[int | Ref] = [
            made.ref, source.ref, corners.ref, whose.ref, Ref(STATUS_WORD), count, height, width, channels, *shape[2:],
            max(0, given["sampling_ratio"]), *(4 * source.strides[d] for d in (0, 2, 3)), _bits(given["spatial_scale"]),
            _bits(0.5 if half else 0.0),
        ]  # fmt: skip
        items, samples = shape[0] * shape[2] * parts, given["sampling_ratio"] ** 2 or 4
        kernel = RegionSamples(vectors, channels < b.target.lanes, not half, given["mode"] == "max")
        b.program.call(kernel, args, items, items * shape[3] * samples * (10.0 + 2.0 * vectors), even=False)

    _regions(b, y, call)


@lowering(
    "MaxRoiPool",
    supports=lambda node: floats(node) or (None if rank(node.inputs[0]) == 4 else "its operand is no image"),
)
def max_roi_pool(b: Lowering, node: NodeView) -> None:
    """The largest pixels in the bins of each region."""
    (x, boxes), (y,) = node.inputs, node.outputs
    assert x is not None and boxes is not None and y is not None
    scale = attributes(node, spatial_scale=1.0)["spatial_scale"]
    source, corners, shape = b.channels_last(x), b.dense(boxes), b.shape(y)
    count, channels, height, width = source.shape
    if count * height * width == 0 or corners.shape != (shape[0], 5):
        raise Unsupported("there are no images, or the regions do not suit the result")

    def call(made: Tensor, vectors: int, parts: int) -> None:
        args: list[int | Ref] = [
            made.ref, source.ref, corners.ref, Ref(STATUS_WORD), count, height, width, channels, *shape[2:],
            *(4 * source.strides[d] for d in (0, 2, 3)), _bits(scale),
        ]  # fmt: skip
        items = shape[0] * shape[2] * parts
        pixels = 4.0 + height * width / (2 * shape[2] * shape[3])
        kernel = RegionMaxima(vectors, channels < b.target.lanes)
        b.program.call(kernel, args, items, items * shape[3] * pixels * (2.0 + vectors), even=False)

    _regions(b, y, call)


def _regions(b: Lowering, y: ValueView, call: Callable[[Tensor, int, int], None]) -> None:
    """Append the call that makes ``y``, [region, channel, row, column], as ``call`` does for a result without gaps whose channels are
    last, vectors of a block of channels and the number of blocks."""
    shape, order, lanes = b.shape(y), channels_last(4), b.target.lanes
    result = b.output(y, order)
    if result.size == 0:
        return
    made = result if result.is_channels_last and result.transposed(order).is_dense else b.scratch(shape, order)
    vectors = next((n for n in (4, 2) if n * lanes <= shape[1]), 1)
    call(made, vectors, -(-shape[1] // (vectors * lanes)))
    if made is not result:
        copy(b.program, b.target, made, result)


def _bits(number: float) -> int:
    """A float32 as an argument."""
    (bits,) = struct.unpack("<i", struct.pack("<f", number))
    return int(bits)
