"""Convolution of displaced samples: these are taken first, as an image with a row for each element of the kernel."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView
from onnxplug.contract.sizes import least
from onnxplug_ep_cpu.codegen.kernels.grid import GridSample
from onnxplug_ep_cpu.codegen.lower.choice import Algorithm, Layer
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.conv import biased, convolved_by
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.grid import BLOCK, check_offsets
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.support import attributes, floats, rank
from onnxplug_ep_cpu.codegen.lower.taps import window
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor, channels_last
from onnxplug_kernels.windows import Windows


def _supports(node: NodeView) -> str | None:
    return floats(node) or (None if rank(node.inputs[0]) == 4 else "its operand is no image")


@lowering("DeformConv", supports=_supports)
def deform_conv(b: Lowering, node: NodeView) -> None:
    """Samples (N, C, elements of the kernel, places of the result), and a convolution that takes the elements of each place."""
    (x, w, offset, *rest), (y,) = node.inputs, node.outputs
    assert x is not None and w is not None and offset is not None and y is not None
    bias, mask = [*rest, None, None][:2]
    given = attributes(node, group=1, offset_group=1)
    source, moved, shape, weights = b.channels_last(x), b.dense(offset), b.shape(y), b.shape(w)
    images, channels = source.shape[:2]
    moves = window(node, source.shape[2:], weights[2:])
    parts, area, pixels = given["offset_group"], math.prod(weights[2:]), math.prod(moves.output)
    if channels != weights[1] * given["group"] or channels % parts:
        raise Unsupported("the groups do not suit the image")
    if 0 in (*source.shape, *shape) or shape != (images, weights[0], *moves.output):
        raise Unsupported("the filters do not suit the image")
    if moved.shape != (images, parts * area * 2, *moves.output):
        raise Unsupported("the offsets do not suit the result")
    check_offsets(source)
    shares = None if mask is None else b.dense(mask)
    if shares is not None and shares.shape != (images, parts * area, *moves.output):
        raise Unsupported("the mask does not suit the result")
    samples = b.scratch((images, channels, area, pixels), channels_last(4))
    for part in range(parts):
        plane = moved.shift(part * area * 2 * pixels)
        _sampled(b, source, _places(b, plane, moves), shares, part, parts, samples)
    along = Windows((area, 1), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0), (1, pixels))
    layer = Layer(shape, (*weights[:2], area, 1), along, given["group"], b.varies(y))
    b.pend(y, biased(b, convolved_by(b, samples, w, layer, Algorithm("direct")), bias))


def _places(b: Lowering, moved: Tensor, moves: Windows) -> Tensor:
    """(N, 2, *kernel, *output) places in pixels, x before y, of offsets that are given y before x for each element of the kernel."""
    images, (tall, wide), (height, width) = moved.shape[0], moves.kernel, moves.output
    shape, image, plane = (images, *moves.kernel, *moves.output), moved.strides[0], height * width
    made = b.scratch((images, 2, *moves.kernel, *moves.output))
    for axis in range(2):
        steps = moves.strides[axis], moves.dilations[axis]
        home = np.arange(moves.output[axis]) * steps[0] - moves.begins[axis]
        lines = b.tensor_of((np.arange(moves.kernel[axis])[:, None] * steps[1] + home).astype(np.float32))
        strides = (0, height, 0, 1, 0) if axis == 0 else (0, 0, width, 0, 1)
        offsets = moved.shift(axis * plane).viewed(shape, (image, wide * 2 * plane, 2 * plane, width, 1))
        result = made.shift((1 - axis) * tall * wide * plane).viewed(shape, (made.strides[0], *made.strides[2:]))
        write_map(
            b.program,
            b.target,
            (("leaf", 0), ("leaf", 1), ("add", 0, 1)),
            [offsets, lines.viewed(shape, strides)],
            result,
        )
    return made


def _sampled(
    b: Lowering, source: Tensor, places: Tensor, shares: Tensor | None, part: int, parts: int, samples: Tensor
) -> None:
    """Append the call that samples one part of the channels, which share their places."""
    images, channels, height, width = source.shape
    own, count = channels // parts, math.prod(samples.shape[2:])
    block = least(count, BLOCK)
    blocks = -(-count // block)
    image, result = source.shift(part * own), samples.shift(part * own)
    args: list[int | Ref] = [
        result.ref, image.ref, places.ref, height, width, own, count, block, blocks, 4 * channels, 4 * samples.strides[0],
        4 * source.strides[2], 4 * source.strides[3], 4 * source.strides[0], 4 * places.strides[0],
    ]  # fmt: skip
    if shares is not None:
        args += [shares.shift(part * count).ref, 4 * shares.strides[0]]
    kernel = GridSample("linear", "zeros", aligned=False, pixels=True, shared=shares is not None)
    b.program.call(kernel, args, blocks * images, images * count * (6.0 + own))
