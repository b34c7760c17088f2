"""Pooling over windows and over all of space, channels-last."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.kernels.pool import Pool
from onnxplug_ep_cpu.codegen.lower import planes
from onnxplug_ep_cpu.codegen.lower.context import Lowering, Unsupported
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.support import floats, rank, single_output
from onnxplug_ep_cpu.codegen.lower.taps import even_pixels, lines, offsets, seeing, starts, window
from onnxplug_ep_cpu.codegen.tensor import Tensor, channels_last
from onnxplug_kernels.windows import Windows

LONG = 256
"""Taps from which a sum over all of space is taken in two steps: short chains of additions err less, and are shared out."""


def _supports(node: NodeView) -> str | None:
    known = "the rank is not known" if rank(node.inputs[0]) < 3 else None
    return known or single_output(node) or floats(node)


@lowering("MaxPool", "AveragePool", supports=_supports)
def pool(b: Lowering, node: NodeView) -> None:
    """The largest element, or the mean, of each window."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None and y is not None
    source = b.read(x)
    moves = window(node, source.shape[2:], tuple(node.attributes["kernel_shape"]))
    if moves.output != b.shape(y)[2:]:  # a last window that sees nothing, which inference may count
        raise Unsupported("the size of the result is not certain")
    largest = node.op_type == "MaxPool"
    scale = None if largest else _shares(source, moves, bool(node.attributes.get("count_include_pad", 0)))
    moves = seeing(moves, source.shape[2:])
    if planes.suits(b, source, y) and planes.sees(moves):
        planes.pooled(b, source, b.output(y), lines(b, source, moves), scale, moves)
        return
    source = b.channels_last(x)
    pooled(b, source, b.output(y, channels_last(len(source.shape))), offsets(b, source, moves), scale)


@lowering("GlobalMaxPool", "GlobalAveragePool", supports=_supports)
def global_pool(b: Lowering, node: NodeView) -> None:
    """The largest element, or the mean, over space."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    source, target = b.channels_last(x), b.output(y)
    whole = math.prod(source.shape[2:])
    mean = node.op_type == "GlobalAveragePool"
    if whole > LONG:
        width = source.shape[-1]
        partial = b.scratch((*source.shape[:-1], 1), channels_last(len(source.shape)))
        moves = _everything((*[1] * (len(source.shape) - 3), width), source.shape[2:-1])
        pooled(b, source, partial, offsets(b, source, moves), np.ones(whole // width, np.float32) if mean else None)
        source = partial
    share = np.full(1, 1 / max(1, whole), np.float32) if mean else None
    pooled(b, source, target, offsets(b, source, _everything(source.shape[2:], ())), share)


def _everything(kernel: tuple[int, ...], output: tuple[int, ...]) -> Windows:
    """A window at every position of the leading axes, over all of the others."""
    n = len(kernel)
    return Windows(kernel, (1,) * n, (1,) * n, (0,) * n, (0,) * n, (0,) * n, (*output, *[1] * (n - len(output))))


def _shares(source: Tensor, moves: Windows, include_pad: bool) -> np.ndarray:
    """One over the number of elements each window averages."""
    counts = np.ones(1, np.float32)
    for axis, size in enumerate(source.shape[2:]):
        low, high = (-moves.begins[axis], size + moves.ends[axis]) if include_pad else (0, size)
        where = starts(moves, axis)
        counts = np.outer(counts, np.maximum(((where >= low) & (where < high)).sum(1), 1)).reshape(-1)
    return (1 / counts).astype(np.float32)


def pooled(b: Lowering, source: Tensor, target: Tensor, table: np.ndarray, scale: np.ndarray | None) -> None:
    """Append the call that fills ``target``: the largest without ``scale``, else sums by pixel's or tap's factors."""
    images, channels = source.shape[:2]
    pixels, taps = table.shape
    kind = "max" if scale is None else "mean" if scale.ndim == 1 else "weighted"
    lanes = b.target.lanes
    if not target.size:
        return
    vectors = next((n for n in (4, 2) if n * lanes <= channels), 1)
    parts = -(-channels // (vectors * lanes))
    block = max(1, min(pixels, 2048 // max(1, taps * vectors)))
    neutral = b.tensor_of(np.full(max(channels, lanes), -np.inf if scale is None else 0.0, np.float32))
    written = target if even_pixels(target) is not None else b.scratch(target.shape, channels_last(len(target.shape)))
    pixel_step = even_pixels(written)
    assert pixel_step is not None
    b.program.call(
        Pool(kind, vectors, channels < lanes),
        [
            written.ref, source.ref, b.tensor_of(table).ref, neutral.ref,
            neutral.ref if scale is None else b.tensor_of(scale).ref,
            pixels, block, taps, channels, 4 * pixel_step, 4 * written.strides[0], 4 * source.strides[0],
        ],
        images * -(-pixels // block) * parts,
        images * pixels * taps * channels / lanes * 0.8,
        even=False,
    )  # fmt: skip
    if written is not target:
        copy(b.program, b.target, written, target)
