"""Sampling of images at the places of a grid."""

from __future__ import annotations

import math

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.grid import GridSample
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Unsupported, attributes
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.support import floats, rank
from onnxplug_ep_cpu.codegen.lower.taps import evenly
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import channels_last

_MODES = {"nearest": "nearest", "bilinear": "linear", "linear": "linear"}
BLOCK = 256
"""Places of one item."""


def _supports(node: NodeView) -> str | None:
    given = attributes(node, mode="linear", padding_mode="zeros")
    if given["mode"] not in _MODES or given["padding_mode"] not in ("zeros", "border", "reflection"):
        return f"mode {given['mode']!r} with padding_mode {given['padding_mode']!r} is not generated"
    return floats(node) or (None if rank(node.inputs[0]) == 4 else "its operand is no image")


@lowering("GridSample", supports=_supports)
def grid_sample(b: Lowering, node: NodeView) -> None:
    """Interpolation of the nearest pixels."""
    (x, grid), (y,) = node.inputs, node.outputs
    assert x is not None and grid is not None and y is not None
    given = attributes(node, mode="linear", padding_mode="zeros", align_corners=0)
    source, places, shape = b.channels_last(x), b.dense(grid), b.shape(y)
    result = b.output(y, channels_last(4))
    if result.size == 0:
        return
    images, channels, height, width = source.shape
    if height * width == 0 or places.shape != (images, *shape[2:], 2):
        raise Unsupported("the grid does not suit the image")
    if 4 * height * max(source.strides[2], width * source.strides[3]) >= 1 << 31:
        raise Unsupported("the image is too large to be sampled by 32-bit offsets")
    count = math.prod(shape[2:])
    block = min(count, BLOCK)
    blocks = -(-count // block)
    kernel = GridSample(_MODES[given["mode"]], given["padding_mode"], bool(given["align_corners"]))
    with evenly(b, result) as (made, pixel):
        args: list[int | Ref] = [
            made.ref, source.ref, places.ref, height, width, channels, count, block, blocks, 4 * pixel,
            4 * made.strides[0], 4 * source.strides[2], 4 * source.strides[3], 4 * source.strides[0], 4 * places.strides[0],
        ]  # fmt: skip
        b.program.call(kernel, args, blocks * images, images * count * (6.0 + 1.0 * channels))
