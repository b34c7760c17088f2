"""DFT and STFT as products with the matrix of the transform, which is made on the host: up to ``LARGEST`` of its elements that takes less
time than moving the data to another provider."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from onnxplug.contract import NodeView
from onnxplug_ep_opencl.kernels.call import Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import copy
from onnxplug_ep_opencl.kernels.product import Product, Side, multiply, panels
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.tiles import Work, usual
from onnxplug_ep_opencl.launch import Job, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text.factors import Packed
from onnxplug_kernel_text.layout import dense
from onnxplug_kernel_text.tile import Tile
from onnxplug_kernel_text.types import SIZES, arithmetic

LARGEST = 1 << 23


def dft(call: Call) -> Job:
    """DFT, also of one side."""
    x, out = call.input(0).shape, call.output().shape
    given = call.value(2) if call.given(2) is not None else None
    axis = int(call.attributes.get("axis", 1) if call.version < 20 else -2 if given is None else given.reshape(-1)[0])
    axis %= len(x)
    if axis == len(x) - 1:
        raise ValueError("DFT along the last axis, which holds the real and imaginary parts")
    length = call.value(1)
    points = x[axis] if length is None else int(length.reshape(-1)[0])
    outer, inner = math.prod(x[:axis]), math.prod(x[axis + 1 : -1])
    if math.prod(out) == 0:
        return Job()
    matrix = transform(min(x[axis], points), x[-1], points, out[axis])
    lines, size = outer * inner, call.input(0).dtype.itemsize
    source, made, used = call.read(0), call.write(), 0
    moved = inner > 1
    places = (outer, inner, x[axis], x[-1]), (outer, inner, out[axis], out[-1])
    if moved:  # the axis becomes the last
        made_at = -(-math.prod(x) * size // ALIGNMENT) * ALIGNMENT
        source, made = call.scratch(size), call.scratch(size, made_at // size)
        used = -(-(made_at + math.prod(out) * size) // ALIGNMENT) * ALIGNMENT
    job = _product(call, matrix, (), lines, [(), ()], x[axis] * x[-1], (source, made), used)
    if not moved:
        return job
    before = copy(
        call.target, "axis_last", call.read(0), source, places[0], (_turned(x, axis, inner), dense(places[0]))
    )
    after = copy(call.target, "axis_back", made, call.write(), places[1], (dense(places[1]), _turned(out, axis, inner)))
    return Job([*before, *job.launches, *after], used + job.workspace)


def _turned(shape: Sequence[int], axis: int, inner: int) -> tuple[int, ...]:
    """The strides of (before the axis, behind it, the axis, parts)."""
    return (shape[axis] * inner * shape[-1], shape[-1], inner * shape[-1], 1)


def stft(call: Call) -> Job:
    """STFT: frames overlap where they lie, the window is part of the matrix."""
    signal, out = call.input(0).shape, call.output().shape
    step = call.value(1)
    assert step is not None
    if math.prod(out) == 0:
        return Job()
    given = call.value(3) if call.given(3) is not None else None
    window = None if call.given(2) is None else call.input(2).constant
    length = int(given.reshape(-1)[0]) if given is not None else signal[1] if window is None else window.shape[0]
    parts = signal[2] if len(signal) > 2 else 1
    matrix = transform(length, parts, length, out[2])
    if window is not None:
        matrix = matrix * np.repeat(window.reshape(-1).astype(np.float64), parts)[:, None]
    apart, whole = signal[1] * parts, math.prod(out[1:])
    strides = [(apart,), (whole,)]
    row = int(step.reshape(-1)[0]) * parts
    return _product(call, matrix, (signal[0],), out[1], strides, row, (call.read(0), call.write()), 0)


def transform(depth: int, parts: int, points: int, count: int) -> np.ndarray:
    """(depth * parts, count * 2): from ``depth`` numbers of so many parts, real and imaginary, the first ``count`` of their transform of
    ``points``."""
    angle = -2 * np.pi / points * (np.outer(np.arange(depth), np.arange(count)) % points)
    cosine, sine = np.cos(angle), np.sin(angle)
    full = np.array([[cosine, sine], [-sine, cosine]])[:parts]  # (parts, made, depth, count)
    return full.transpose(2, 0, 3, 1).reshape(depth * parts, count * 2)


def _product(
    call: Call,
    matrix: np.ndarray,
    batch: tuple[int, ...],
    rows: int,
    strides: Sequence[tuple[int, ...]],
    row: int,
    refs: tuple[Ref, Ref],
    used: int,
) -> Job:
    """The product of lines ``row`` elements apart with a matrix; ``strides`` over the batch of both, ``refs`` where they are."""
    type_ = text_type(call.output().dtype)
    depth, columns = matrix.shape
    held = arithmetic(type_)
    numbers = matrix.astype(np.float64 if SIZES[held] == 8 else np.float32)
    tile = usual(call.target, Work(type_, "as it is", "packed", math.prod(batch), rows, columns, depth))
    none = (0,) * len(batch)
    if isinstance(tile, Tile):
        right = Side(call.owned.table(panels(numbers.T, tile.columns)), held, none, form=Packed)
    else:
        right = Side(call.owned.table(numbers), held, none, columns, 1)
    left, out = (Side(ref, type_, own, n, 1) for ref, own, n in zip(refs, strides, (row, columns), strict=True))
    made = Product(left, right, out, batch, rows, columns, depth, tile)
    return multiply(call.target, call.op_type, made, call.scratch(1, used))


def packs(node: NodeView, target: Target) -> tuple[int, ...]:
    """STFT's window."""
    return (2,) if len(node.inputs) > 2 and node.inputs[2] is not None else ()


def refuses(node: NodeView) -> str | None:
    """Transforms whose matrix is not known to be small enough, or a window that is not constant; and inverse ones: ONNX's own data has of
    their sums the rounding errors of an FFT."""
    x = node.inputs[0]
    shape = () if x is None or x.shape is None else x.shape
    given = {n: v.constant for n, v in enumerate(node.inputs) if v is not None}
    if node.op_type == "STFT":
        window = given.get(2)
        if 2 in given and window is None:
            return "the window is not constant"
        known = given.get(3)
        extent = known.item() if known is not None else None if 3 in given else None if window is None else window.size
        if extent is None and not {2, 3} & set(given) and len(shape) > 1:
            extent = shape[1]
    else:
        if node.attributes.get("inverse", 0):
            return "an inverse transform"
        axis = node.attributes.get("axis", 1) if node.since_version < 20 else -2
        if 2 in given:
            known = given[2]
            if known is None:
                return "the axis is not constant"
            axis = int(known.reshape(-1)[0])
        if not shape:
            return "the rank of the input must be known"
        extent = shape[axis % len(shape)]
        if 1 in given:
            known = given[1]
            extent = None if known is None else known.reshape(-1)[0].item()
    if not shape or not isinstance(shape[-1], int) or not isinstance(extent, int):
        return "the length of the transform is not known"
    parts = shape[-1] if node.op_type == "DFT" or len(shape) > 2 else 1
    onesided = node.attributes.get("onesided", int(node.op_type == "STFT"))
    elements = extent * parts * 2 * (extent // 2 + 1 if onesided else extent)
    return None if elements <= LARGEST else f"a transform of {extent} points is too long for a product with its matrix"
