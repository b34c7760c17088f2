"""Pooling over windows and over all of space, channels-last."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.sizes import greatest, portion
from onnxplug_ep_cpu.codegen.kernels.pool import Pool
from onnxplug_ep_cpu.codegen.lower import planes
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.declared import image_shape, output_image, read_image
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.maxima import max_pool_with_places
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.quantized import MS
from onnxplug_ep_cpu.codegen.lower.support import floats, rank, single_output, typed
from onnxplug_ep_cpu.codegen.lower.taps import Offsets, evenly, lines, offsets, seeing, window
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last
from onnxplug_kernels.windows import Windows

BYTES = frozenset({"uint8", "int8"})
LONG = 256
"""Taps from which a sum over all of space is taken in two steps: short chains of additions err less, and are shared out."""


def _supports(node: NodeView) -> str | None:
    known = "the rank is not known" if rank(node.inputs[0]) < 3 else None
    return known or single_output(node) or floats(node)


def _windows_support(node: NodeView) -> str | None:
    if node.op_type == "MaxPool" and rank(node.inputs[0]) >= 3:
        if single_output(node) is not None:
            return typed(node.inputs[0])
        if typed(node.inputs[0], BYTES) is None:
            return None
    return _supports(node)


@lowering("MaxPool", "AveragePool", supports=_windows_support)
def pool(b: Lowering, node: NodeView) -> None:
    """The largest element, or the mean, of each window. The largest of dequantized numbers is that of the bytes."""
    x, y = node.inputs[0], node.outputs[0]
    if single_output(node) is not None:
        max_pool_with_places(b, node)
        return
    assert x is not None and y is not None
    largest = node.op_type == "MaxPool"
    source, again = b.unread(x) if largest and _increases(b.values.get(x.name)) else (b.read(x), None)
    moves = window(node, source.shape[2:], tuple(node.attributes["kernel_shape"]))
    if moves.output != b.shape(y)[2:]:  # a last window that sees nothing, which inference may count
        raise Unsupported("the size of the result is not certain")
    scale = None if largest else _shares(b, source, moves, bool(node.attributes.get("count_include_pad", 0)))
    moves = seeing(moves, source.shape[2:])
    order = channels_last(len(source.shape))
    if again is not None:
        source = source if source.is_channels_last else b.copied(source, order)
        made = b.scratch(b.shape(y), order, source.element)
        pooled(b, source, made, offsets(source, moves), None)
        b.define(y, again(made))
    elif source.element == "float32" and (planes.suits(b, source, y) or _is_narrow(b, source)) and planes.sees(moves):
        if not planes.suits(b, source, y):
            source = b.copied(source, tuple(range(len(source.shape))))
        planes.pooled(b, source, b.output(y), lines(source, moves), scale, moves)
    else:
        source = b.channels_last(x)
        pooled(b, source, b.output(y, order, source.element), offsets(source, moves), scale)


def _is_narrow(b: Lowering, source: Tensor) -> bool:
    """Whether vectors of a pixel's channels are so empty that planes are worth turning the image into."""
    return 2 * source.shape[1] <= b.target.lanes and source.shape[-1] <= planes.LONGEST


@lowering("NhwcMaxPool", domain=MS, supports=lambda node: single_output(node) or typed(node.inputs[0], BYTES))
def nhwc_max_pool(b: Lowering, node: NodeView) -> None:
    """The largest byte of each window."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    source = read_image(b, node, x)
    moves = window(node, source.shape[2:], tuple(node.attributes["kernel_shape"]))
    if moves.output != image_shape(b, node, y)[2:]:
        raise Unsupported("the size of the result is not certain")
    pooled(b, source, output_image(b, node, y, source.element), offsets(source, seeing(moves, source.shape[2:])), None)


def averaged(b: Lowering, node: NodeView, source: Tensor, y: ValueView) -> Tensor:
    """The means of the windows of a tensor of floats, whose channels come second, in scratch memory."""
    moves = window(node, source.shape[2:], tuple(node.attributes["kernel_shape"]))
    shape = (*source.shape[:2], *moves.output)
    scale = _shares(b, source, moves, bool(node.attributes.get("count_include_pad", 0)))
    moves = seeing(moves, source.shape[2:])
    if planes.suits(b, source, y) and planes.sees(moves):
        made = b.scratch(shape)
        planes.pooled(b, source, made, lines(source, moves), scale, moves)
        return made
    source = source if source.is_channels_last else b.copied(source, channels_last(len(shape)))
    made = b.scratch(shape, channels_last(len(shape)))
    pooled(b, source, made, offsets(source, moves), scale)
    return made


def _increases(held: Tensor | Pending | None) -> bool:
    """Whether the value is bytes less a zero point, times a positive scale."""
    if not isinstance(held, Pending) or not held.cheap or held.expr[-1][0] != "mul":
        return False
    kind, scale = held.expr[held.expr[-1][2]]
    return kind == "const" and scale > 0 and all(leaf is not None and leaf.element in BYTES for leaf in held.leaves)


@lowering("GlobalMaxPool", "GlobalAveragePool", supports=_supports)
def global_pool(b: Lowering, node: NodeView) -> None:
    """The largest element, or the mean, over space."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    source = b.channels_last(x)
    whole = math.prod(source.shape[2:])
    if not whole or len(source.shape) < 3:
        raise Unsupported("an image without pixels or axes is not pooled")
    target, mean = b.output(y, channels_last(len(source.shape))), node.op_type == "GlobalAveragePool"
    if whole > LONG:
        width = source.shape[-1]
        partial = b.scratch((*source.shape[:-1], 1), channels_last(len(source.shape)))
        moves = _everything((*[1] * (len(source.shape) - 3), width), source.shape[2:-1])
        pooled(b, source, partial, offsets(source, moves), b.derived(_whole, whole // width, 1) if mean else None)
        source = partial
    share = b.derived(_whole, 1, whole) if mean else None
    pooled(b, source, target, offsets(source, _everything(source.shape[2:], ())), share)


def _everything(kernel: tuple[int, ...], output: tuple[int, ...]) -> Windows:
    """A window at every position of the leading axes, over all of the others."""
    n = len(kernel)
    return Windows(kernel, (1,) * n, (1,) * n, (0,) * n, (0,) * n, (0,) * n, (*output, *[1] * (n - len(output))))


def _whole(count: int, elements: int) -> np.ndarray:
    """One over a number of elements, so many times."""
    return np.full(count, 1 / elements, np.float32)


def _shares(b: Lowering, source: Tensor, moves: Windows, include_pad: bool) -> Ref:
    """Where one over the number of elements each window averages lies."""
    return b.derived(_shares_of, source.shape[2:], moves, include_pad)


def _shares_of(sizes: Ints, moves: Windows, include_pad: bool) -> np.ndarray:
    counts = np.ones(1, np.float32)
    for axis, size in enumerate(sizes):
        low, high = (-moves.begins[axis], size + moves.ends[axis]) if include_pad else (0, size)
        begins = np.arange(moves.output[axis]) * moves.strides[axis] - moves.begins[axis]
        first, end = (
            np.clip(-((begins - bound) // moves.dilations[axis]), 0, moves.kernel[axis]) for bound in (low, high)
        )
        counts = np.outer(counts, np.maximum(end - first, 1)).reshape(-1)
    return (1 / counts).astype(np.float32)


def pooled(b: Lowering, source: Tensor, target: Tensor, table: Offsets, scale: Ref | None) -> None:
    """Append the call that fills ``target``: the largest without ``scale``, else sums times each pixel's factor."""
    images, channels = source.shape[:2]
    pixels, taps = table.shape
    kind = "max" if scale is None else "mean"
    lanes = b.target.lanes
    if not target.size:
        return
    times = 4 if source.element in BYTES and channels >= 4 * lanes else 1
    vectors = next((n for n in (4, 2) if n * times * lanes <= channels), 1)
    parts = -(-channels // (vectors * times * lanes))
    block = portion(pixels, 2048 // greatest(1, taps * vectors))
    least = {"uint8": 0, "int8": -128}.get(source.element, -np.inf) if scale is None else 0.0
    neutral, unit = b.tensor_of(np.full(max(channels, lanes), least, source.element)), source.itemsize
    with evenly(b, target) as (written, pixel_step):
        b.program.call(
            Pool(kind, vectors, channels < lanes, source.element, times),
            [
                written.ref, source.ref, table.ref(b), neutral.ref,
                neutral.ref if scale is None else scale,
                pixels, block, taps, channels, unit * pixel_step, unit * written.strides[0], unit * source.strides[0],
            ],
            images * -(-pixels // block) * parts,
            images * pixels * taps * channels / (lanes * times) * 0.8,
            even=False,
        )  # fmt: skip
