"""GatherBlockQuantized and UnfoldTensor of domain ``com.microsoft``."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.ops.contrib_matmul import unpacked
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import FAIL, Refusal, braced, require_axis

MS = "com.microsoft"


@op("GatherBlockQuantized", 1, domain=MS)
def gather_block_quantized(
    xp: Any,
    data: Any,
    indices: Any,
    scales: Any,
    zero_points: Any = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Any:
    """Gather from weights that are quantized in blocks along ``quantize_axis``, and dequantize what was taken.

    uint8 holds numbers of ``bits``, packed along the last axis, and their zero points, by default 2 ** (bits - 1);
    other types hold one number an item, with zero points of 0 by default. What an index outside the axis asks for is
    zero.
    """
    rank = data.ndim
    if block_size and (block_size < 16 or block_size & (block_size - 1)):
        raise Refusal(f"'block_size' must be a power of 2 and not smaller than 16, got {block_size}", FAIL)
    gather_axis, quantize_axis = require_axis(gather_axis, rank), require_axis(quantize_axis, rank)
    packed, size = data.dtype == xp.uint8, data.shape[gather_axis]
    _require_blocks(data, scales, zero_points, bits if packed else 8, block_size, quantize_axis)
    index = xp.where(indices < 0, indices + size, indices)
    inside = (index >= 0) & (index < size)
    index = xp.reshape(xp.where(inside, index, xp.zeros_like(index)), (-1,))

    def taken(x: Any) -> Any:
        return x if x.shape[gather_axis] == 1 and size > 1 else xp.take(x, index, axis=gather_axis)

    values = unpacked(xp, taken(data), bits) if packed else taken(data)
    work = widen(xp, scales).dtype
    length = values.shape[quantize_axis]

    def spread(x: Any) -> Any:
        if x.shape[quantize_axis] == 1:
            return x
        block = xp.arange(length, dtype=xp.int64) // (block_size or length)
        return xp.take(x, block, axis=quantize_axis)

    values = xp.astype(values, work)
    if zero_points is not None:
        zero = taken(zero_points)
        zero = unpacked(xp, zero, bits)[..., : scales.shape[-1]] if packed else zero
        values = values - spread(xp.astype(zero, work))
    elif packed:
        values = values - float(1 << (bits - 1))
    y = values * spread(widen(xp, taken(scales)))
    mask = xp.reshape(inside, (index.shape[0], *(1,) * (rank - 1 - gather_axis)))
    y = xp.where(mask, y, xp.zeros_like(y))
    shape = (*y.shape[:gather_axis], *indices.shape, *y.shape[gather_axis + 1 :])
    return narrow(xp, xp.reshape(y, shape), scales.dtype)


def _require_blocks(data: Any, scales: Any, zero_points: Any, bits: int, block_size: int, axis: int) -> None:
    """Refusal for scales that are not one for each block along ``axis``, and zero points that are not one for each
    scale. Scales of floats may be the same along other axes."""
    whole = (*data.shape[:-1], data.shape[-1] * 8 // bits)
    blocks = -(-whole[axis] // block_size) if block_size else 1
    due = (*whole[:axis], blocks, *whole[axis + 1 :])
    alike = "float" in str(data.dtype)
    pairs = enumerate(zip(scales.shape, due, strict=False))
    if len(scales.shape) != len(due) or any(n != m and (n != 1 or k == axis or not alike) for k, (n, m) in pairs):
        raise Refusal(
            f"data and scales do not match shapes. scales: {braced(scales.shape)}, expected: {braced(due)}", FAIL
        )
    points = (*due[:-1], -(-due[-1] * bits // 8))
    if zero_points is not None and tuple(zero_points.shape) != points:
        raise Refusal(
            f"scales and zero_points shape does not match. zero_points: {braced(zero_points.shape)}, expected: {braced(points)}",
            FAIL,
        )


@op("UnfoldTensor", 1, domain=MS)
def unfold_tensor(xp: Any, x: Any, *, size: int, dim: int = -1, step: int = 1) -> Any:
    """The windows of ``size`` elements along an axis, ``step`` apart, as a new last axis."""
    dim = require_axis(dim, x.ndim)
    if size < 1 or step < 1 or size > x.shape[dim]:
        raise Refusal(f"there are no windows of {size} elements, {step} apart, in {x.shape[dim]}")
    count = (x.shape[dim] - size) // step + 1
    starts = xp.arange(count, dtype=xp.int64) * step
    index = xp.reshape(starts[:, None] + xp.arange(size, dtype=xp.int64), (-1,))
    taken = xp.reshape(xp.take(x, index, axis=dim), (*x.shape[:dim], count, size, *x.shape[dim + 1 :]))
    return xp.moveaxis(taken, dim + 1, -1)
