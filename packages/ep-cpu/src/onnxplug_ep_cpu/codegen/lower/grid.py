"""Sampling of images at the places of a grid, and even grids that matrices move."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView
from onnxplug.contract.sizes import least
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.grid import GridSample
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import attributes, floats, rank, typed
from onnxplug_ep_cpu.codegen.lower.taps import evenly
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor, channels_last
from onnxplug_kernels.ops.grid_sample import even_places

_MODES = {"nearest": "nearest", "bilinear": "linear", "linear": "linear", "cubic": "cubic", "bicubic": "cubic"}
BLOCK = 256
"""Places of one item."""


def _supports(node: NodeView) -> str | None:
    given = attributes(node, mode="linear", padding_mode="zeros")
    if given["mode"] not in _MODES or given["padding_mode"] not in ("zeros", "border", "reflection"):
        return f"mode {given['mode']!r} with padding_mode {given['padding_mode']!r} is not generated"
    dims = rank(node.inputs[0])
    if dims == 5 and _MODES[given["mode"]] == "cubic":
        return "cubic samples of bodies are not generated"
    return floats(node) or (None if dims in (4, 5) else "its operand is neither image nor body")


@lowering("GridSample", supports=_supports)
def grid_sample(b: Lowering, node: NodeView) -> None:
    """Interpolation of the nearest pixels, of images and of bodies."""
    (x, grid), (y,) = node.inputs, node.outputs
    assert x is not None and grid is not None and y is not None
    given = attributes(node, mode="linear", padding_mode="zeros", align_corners=0)
    source, places, shape = b.channels_last(x), b.dense(grid), b.shape(y)
    result = b.output(y, channels_last(len(shape)))
    if result.size == 0:
        return
    images, channels, *depth, height, width = source.shape
    axes = 2 + len(depth)
    if 0 in source.shape or places.shape != (images, *shape[2:], axes):
        raise Unsupported("the grid does not suit the image")
    check_offsets(source)
    count = math.prod(shape[2:])
    block = least(count, BLOCK)
    blocks = -(-count // block)
    kernel = GridSample(_MODES[given["mode"]], given["padding_mode"], bool(given["align_corners"]), axes=axes)
    with evenly(b, result) as (made, pixel):
        args: list[int | Ref] = [
            made.ref, source.ref, places.ref, height, width, channels, count, block, blocks, 4 * pixel,
            4 * made.strides[0], 4 * source.strides[-2], 4 * source.strides[-1], 4 * source.strides[0], 4 * places.strides[0],
        ]  # fmt: skip
        if depth:
            args += [0, 0, depth[0], 4 * source.strides[2]]
        work = (6.0 + 1.0 * channels) * max(1, kernel.taps // 4)
        b.program.call(kernel, args, blocks * images, images * count * work)


def check_offsets(source: Tensor) -> None:
    """Unsupported for images whose pixels 32-bit offsets do not reach."""
    if 4 * sum((n - 1) * step for n, step in zip(source.shape[2:], source.strides[2:], strict=True)) >= 1 << 31:
        raise Unsupported("the image is too large to be sampled by 32-bit offsets")


@lowering("AffineGrid", supports=lambda node: typed(node.inputs[0]) or typed(node.outputs[0]))
def affine_grid(b: Lowering, node: NodeView) -> None:
    """Every coordinate as its matrix has it of those of an even grid; written coordinate by coordinate."""
    (theta, size), (y,) = node.inputs, node.outputs
    assert theta is not None and size is not None and y is not None
    sizes, matrices, shape = b.numbers(size), b.read(theta), b.shape(y)
    dims = len(shape) - 2
    if (
        sizes is None
        or [shape[0], *shape[1:-1]] != [sizes[0], *sizes[2:]]
        or matrices.shape != (shape[0], dims, dims + 1)
    ):
        raise Unsupported("the matrices do not suit the size")
    build, leaves, aligned = ex.Build(), list[Tensor | None](), bool(attributes(node, align_corners=0)["align_corners"])
    images, row, column = matrices.strides

    def leaf(tensor: Tensor) -> int:
        leaves.append(tensor)
        return build("leaf", len(leaves) - 1)

    def entry(number: int) -> int:
        """A column of the matrices, the same for all places."""
        return leaf(matrices.shift(number * column).viewed((shape[0], *[1] * dims, dims), (images, *[0] * dims, row)))

    total = entry(dims)
    for axis in reversed(range(dims)):  # coordinates come innermost axis first
        line = b.tensor_of(even_places(shape[1 + axis], aligned).astype(np.float32))
        places = line.viewed((*line.shape, *[1] * (dims - axis)), (1, *[0] * (dims - axis)))
        total = build("fma", entry(dims - 1 - axis), leaf(places), total)
    b.pend(y, Pending(shape, build.finish(total), leaves, order=(0, dims + 1, *range(1, dims + 1))))
