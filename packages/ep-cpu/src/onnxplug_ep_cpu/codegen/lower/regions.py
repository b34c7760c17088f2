"""Pooling of regions of interest."""

from __future__ import annotations

import math
import struct

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.regions import MOST, RegionMeans
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import channels_last


def _supports(node: NodeView) -> str | None:
    x, boxes, images = node.inputs
    if attributes(node, mode="avg")["mode"] != "avg":
        return "only means of samples are generated"
    known = typed(x) or typed(boxes, FLOATS) or typed(images, {"int64"})
    return known or (None if rank(x) == 4 else "its operand is no image")


@lowering("RoiAlign", supports=_supports)
def roi_align(b: Lowering, node: NodeView) -> None:
    """Means of bilinear samples in the bins of each region."""
    (x, boxes, images), (y,) = node.inputs, node.outputs
    assert x is not None and boxes is not None and images is not None and y is not None
    given = attributes(
        node,
        coordinate_transformation_mode="half_pixel",
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
    result = b.output(y, channels_last(4))
    if result.size == 0:
        return
    order = channels_last(4)
    made = result if result.is_channels_last and result.transposed(order).is_dense else b.scratch(shape, order)
    lanes, (regions, _, rows, columns) = b.target.lanes, shape
    vectors = next((n for n in (4, 2) if n * lanes <= channels), 1)
    args: list[int | Ref] = [
        made.ref, source.ref, corners.ref, whose.ref, Ref(STATUS_WORD), count, height, width, channels, rows, columns,
        max(0, given["sampling_ratio"]), *(4 * source.strides[d] for d in (0, 2, 3)), _bits(given["spatial_scale"]),
        _bits(0.5 if half else 0.0),
    ]  # fmt: skip
    samples = given["sampling_ratio"] ** 2 or 4
    items = regions * rows * -(-channels // (vectors * lanes))
    work = items * columns * samples * (10.0 + 2.0 * vectors)
    b.program.call(RegionMeans(vectors, channels < lanes, not half), args, items, work, even=False)
    if made is not result:
        copy(b.program, b.target, made, result)


def _bits(number: float) -> int:
    """A float32 as an argument."""
    (bits,) = struct.unpack("<i", struct.pack("<f", number))
    return int(bits)
