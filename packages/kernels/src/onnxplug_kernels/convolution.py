"""Convolution as matrix products: pointwise, depthwise and general, in the type of its inputs."""

from __future__ import annotations

import itertools
import math
from typing import Any

from onnxplug_kernels.precision import per_channel
from onnxplug_kernels.refusals import Refusal, braced
from onnxplug_kernels.windows import Windows, pad

# Columns are gathered in blocks of about this size, so that the product reads them from cache.
BLOCK_BYTES = 4 << 20
# Depthwise partial sums are kept in blocks that stay in the first cache levels.
DEPTHWISE_BLOCK = 1 << 16


def convolve(xp: Any, x: Any, w: Any, moves: Windows, group: int, bias: Any = None) -> Any:
    """Cross-correlate (N, C, *spatial) with (M, C/group, *kernel); ``moves`` holds strides, padding and output size."""
    padded = moves.pad(xp, x)
    if all(k == 1 for k in moves.kernel):
        y = _pointwise(xp, padded, w, moves, group)
    elif w.shape[1] == 1 and group > 1:
        y = _depthwise(xp, padded, w, moves)
    else:
        y = _by_columns(xp, padded, w, moves, group)
    if bias is not None:
        y += per_channel(xp, bias, y.ndim, y.shape[1])
    return y


def _pointwise(xp: Any, padded: Any, w: Any, moves: Windows, group: int) -> Any:
    batch, channels = padded.shape[:2]
    x = padded[moves.index((0,) * moves.rank)]
    y = xp.matmul(
        xp.reshape(w, (group, w.shape[0] // group, w.shape[1])),
        xp.reshape(x, (batch, group, channels // group, math.prod(moves.output))),
    )
    return xp.reshape(y, (batch, w.shape[0], *moves.output))


def _by_columns(xp: Any, padded: Any, w: Any, moves: Windows, group: int) -> Any:
    """Copy what every window sees into columns, some rows of output at a time, and multiply them with the weights."""
    batch, channels = padded.shape[:2]
    rows, *rest = moves.output
    weights = xp.reshape(w, (group, w.shape[0] // group, w.shape[1] * math.prod(moves.kernel)))
    y = xp.empty((batch, w.shape[0], *moves.output), dtype=padded.dtype)
    if 0 in y.shape:
        return y
    row_bytes = 8 * channels * math.prod(moves.kernel) * math.prod(rest)
    step = max(1, min(rows, BLOCK_BYTES // max(1, row_bytes)))
    columns = None
    for image in range(batch):
        for start in range(0, rows, step):
            sizes = (min(step, rows - start), *rest)
            shape = (channels, *moves.kernel, *sizes)
            if columns is None or columns.shape != shape:
                columns = xp.empty(shape, dtype=padded.dtype)
            _fill(columns, padded[image, :, start * moves.strides[0] :, ...], moves, sizes)
            block = xp.matmul(weights, xp.reshape(columns, (group, weights.shape[2], math.prod(sizes))))
            y[image, :, start : start + sizes[0], ...] = xp.reshape(block, (w.shape[0], *sizes))
    return y


def _fill(columns: Any, strip: Any, moves: Windows, sizes: tuple[int, ...]) -> None:
    """Fill (channels, *kernel, *sizes) from (channels, *spatial), element by element or window by window."""
    every = slice(None)
    if math.prod(sizes) < math.prod(moves.kernel):
        for place in itertools.product(*(range(n) for n in sizes)):
            starts = [o * s for o, s in zip(place, moves.strides, strict=True)]
            spans = (
                slice(start, start + (k - 1) * d + 1, d)
                for start, k, d in zip(starts, moves.kernel, moves.dilations, strict=True)
            )
            columns[(..., *place)] = strip[(every, *spans)]
        return
    for position in moves.positions():
        starts = [p * d for p, d in zip(position, moves.dilations, strict=True)]
        spans = (
            slice(start, start + (n - 1) * s + 1, s) for start, n, s in zip(starts, sizes, moves.strides, strict=True)
        )
        columns[(every, *position, ...)] = strip[(every, *spans)]


def _depthwise(xp: Any, padded: Any, w: Any, moves: Windows) -> Any:
    """One input channel per output channel, summed kernel element by kernel element.

    Each image is laid out flat, one copy per phase of the strides, so that what a kernel element meets is one run of
    memory. Runs cross the ends of rows; the elements computed there are cut off at the end.
    """
    batch, channels = padded.shape[:2]
    pitch = tuple(-(-n // s) for n, s in zip(padded.shape[2:], moves.strides, strict=True))
    whole = pad(
        xp,
        padded,
        (0,) * moves.rank,
        tuple(p * s - n for p, s, n in zip(pitch, moves.strides, padded.shape[2:], strict=True)),
    )
    unit = tuple(math.prod(pitch[axis + 1 :]) for axis in range(moves.rank))
    length = sum((n - 1) * u for n, u in zip(moves.output, unit, strict=True)) + 1
    total = moves.output[0] * unit[0]
    multiplier = w.shape[0] // channels
    y = xp.empty((batch, w.shape[0], *moves.output), dtype=padded.dtype)
    if 0 in y.shape:
        return y
    weights = xp.reshape(w, (channels, multiplier, 1, *moves.kernel))
    block = max(1, DEPTHWISE_BLOCK // (total * multiplier))
    for image in range(batch):
        for start in range(0, channels, block):
            part = slice(start, min(channels, start + block))
            phases: dict[tuple[int, ...], Any] = {}
            sums = xp.zeros((part.stop - start, multiplier, total), dtype=padded.dtype)
            for position in moves.positions():
                reach = tuple(p * d for p, d in zip(position, moves.dilations, strict=True))
                phase = tuple(r % s for r, s in zip(reach, moves.strides, strict=True))
                if phase not in phases:
                    own = (slice(f, None, s) for f, s in zip(phase, moves.strides, strict=True))
                    phases[phase] = xp.reshape(whole[(image, part, *own)], (part.stop - start, 1, -1))
                first = sum(r // s * u for r, s, u in zip(reach, moves.strides, unit, strict=True))
                run = phases[phase][:, :, first : first + length]
                sums[:, :, :length] += run * weights[(part, slice(None), slice(None), *position)]
            rows = xp.reshape(sums, ((part.stop - start) * multiplier, moves.output[0], *pitch[1:]))
            inside = rows[(..., *(slice(n) for n in moves.output[1:]))]
            y[image, start * multiplier : part.stop * multiplier, ...] = inside
    return y


def convolve_integers(xp: Any, x: Any, w: Any, x_zero_point: Any, w_zero_point: Any, moves: Windows, group: int) -> Any:
    """The exact integer convolution of two 8-bit tensors less their zero points, as whole numbers in a floating type.

    Products of floating matrices are much faster than of integer ones. float32 is exact while no sum of magnitudes
    can pass 2**24, float64 always.
    """
    x = _without_zero_point(xp, x, x_zero_point, (1,) * x.ndim)
    w = _without_zero_point(xp, w, w_zero_point, (-1,) + (1,) * (w.ndim - 1))
    bound = 0
    if 0 not in x.shape and 0 not in w.shape:
        weight_sums = xp.sum(xp.abs(w), axis=tuple(range(1, w.ndim)))
        bound = int(xp.max(xp.abs(x))) * int(xp.max(weight_sums))
    dtype = xp.float32 if bound < 1 << 24 else xp.float64
    return convolve(xp, xp.astype(x, dtype), xp.astype(w, dtype), moves, group)


def _without_zero_point(xp: Any, values: Any, zero_point: Any, shape: tuple[int, ...]) -> Any:
    values = xp.astype(values, xp.int32)
    if zero_point is None:
        return values
    single = zero_point.ndim == 0 or zero_point.shape[0] == 1
    zero_point = xp.astype(zero_point, xp.int32)
    if single:
        return values - xp.reshape(zero_point, (1,) * len(shape))
    if zero_point.shape[0] != values.shape[0]:
        raise Refusal(
            f"zero points of shape {braced(zero_point.shape)} are not one for each of {values.shape[0]} channels"
        )
    return values - xp.reshape(zero_point, shape)
