"""Pooling over sliding windows and over all of space."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_kernels.arithmetic import mean
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import FAIL, Refusal, braced, require_range
from onnxplug_kernels.windows import Windows, windows


@op("MaxPool", 1, 22)
def max_pool(
    xp: Any,
    x: Any,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
    n_outputs: int = 1,
) -> Any:
    """The largest element of each window and, when asked for, its index in ``x`` as a flat tensor (int64)."""
    moves = windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    values = widen(xp, x)
    lowest = -math.inf if xp.isdtype(values.dtype, "real floating") else int(xp.iinfo(values.dtype).min)
    padded = moves.pad(xp, values, lowest)
    if n_outputs > 1:
        y, indices = _max_with_indices(xp, padded, x.shape, moves, storage_order)
        return narrow(xp, y, x.dtype), indices
    return narrow(xp, _along_axes(xp.maximum, padded, moves), x.dtype)


def _max_with_indices(
    xp: Any, padded: Any, shape: Sequence[int], moves: Windows, storage_order: int
) -> tuple[Any, Any]:
    spatial = shape[2:]
    if storage_order == 0:
        units = [math.prod(spatial[axis + 1 :]) for axis in range(moves.rank)]
    else:
        units = [math.prod(spatial[:axis]) for axis in range(moves.rank)]
    may_be_nan = xp.isdtype(padded.dtype, "real floating")
    best: Any = None
    index: Any = None
    for position in moves.positions():
        candidate = padded[moves.index(position)]
        place, inside = _places(xp, position, spatial, units, moves)
        if best is None:
            best = xp.asarray(candidate, copy=True)
            index = xp.broadcast_to(xp.where(inside, place, -1), candidate.shape)
            continue
        # The first of equal elements counts, and NaN counts as largest; padding never counts.
        better = candidate > best
        if may_be_nan:
            better = better | (xp.isnan(candidate) & ~xp.isnan(best))
        better = better | ((index < 0) & inside)
        best, index = xp.where(better, candidate, best), xp.where(better, place, index)
    images = xp.reshape(xp.arange(shape[0] * shape[1], dtype=xp.int64), (shape[0], shape[1], *(1,) * moves.rank))
    return best, index + images * math.prod(spatial)


def _places(
    xp: Any, position: Sequence[int], spatial: Sequence[int], units: Sequence[int], moves: Windows
) -> tuple[Any, Any]:
    """(flat index within one image, whether it lies inside the image) of a kernel element, for every window."""
    place = xp.zeros((1,) * moves.rank, dtype=xp.int64)
    inside = xp.ones((1,) * moves.rank, dtype=xp.bool)
    for axis, element in enumerate(position):
        start = element * moves.dilations[axis] - moves.begins[axis]
        steps = xp.arange(moves.output[axis], dtype=xp.int64) * moves.strides[axis] + start
        steps = xp.reshape(steps, (1,) * axis + (-1,) + (1,) * (moves.rank - axis - 1))
        place = place + steps * units[axis]
        inside = inside & (steps >= 0) & (steps < spatial[axis])
    return place, inside


@op("AveragePool", 1, 22)
def average_pool(
    xp: Any,
    x: Any,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """The mean of each window over its elements in the input, or with ``count_include_pad`` also in the padding."""
    moves = windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    total = _along_axes(xp.add, moves.pad(xp, widen(xp, x)), moves)
    return narrow(xp, total / _counts(xp, x.shape[2:], moves, count_include_pad, total.dtype), x.dtype)


def _counts(xp: Any, spatial: Sequence[int], moves: Windows, include_pad: int, dtype: Any) -> Any:
    """How many elements each window averages, broadcastable to the output."""
    counts: Any = 1.0
    for axis in range(moves.rank):
        first = -moves.begins[axis] if include_pad else 0
        seen = moves.seen(axis, first, spatial[axis] + (moves.ends[axis] if include_pad else 0))
        if len(set(seen)) == 1:
            counts = counts * max(1, seen[0])
        else:
            shape = (-1,) + (1,) * (moves.rank - axis - 1)
            counts = counts * xp.reshape(xp.asarray([max(1, n) for n in seen], dtype=dtype), shape)
    return counts


@op("LpPool", 1, 22)
def lp_pool(
    xp: Any,
    x: Any,
    *,
    kernel_shape: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    p: float = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """The p-norm of each window."""
    if kernel_shape is None:
        raise ValueError("LpPool has no kernel_shape")
    moves = windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    powers = moves.pad(xp, _power(xp, widen(xp, x), p))
    return narrow(xp, _root(xp, _along_axes(xp.add, powers, moves), p), x.dtype)


def _along_axes(combine: Callable[[Any, Any], Any], padded: Any, moves: Windows) -> Any:
    """Combine the elements of each window, one axis after the other."""
    y = padded
    lead = padded.ndim - moves.rank
    for axis in range(moves.rank):
        before = (slice(None),) * (lead + axis)
        y_next = y[(*before, moves.steps(axis, 0), ...)]
        for element in range(1, moves.kernel[axis]):
            y_next = combine(y_next, y[(*before, moves.steps(axis, element), ...)])
        y = y_next
    # A kernel of ones combines nothing: do not hand out a view of the input.
    return y if any(k > 1 for k in moves.kernel) else y + 0


def _power(xp: Any, x: Any, p: float) -> Any:
    if p == 2:
        return x * x
    return xp.abs(x) if p == 1 else xp.abs(x) ** p


def _root(xp: Any, total: Any, p: float) -> Any:
    if p == 2:
        return xp.sqrt(total)
    return total if p == 1 else total ** (1 / p if p else math.inf)  # the limit, as in C++


@op("GlobalAveragePool", 1, 22)
def global_average_pool(xp: Any, x: Any) -> Any:
    """The mean over the spatial axes, kept with size 1."""
    return narrow(xp, mean(xp, widen(xp, x), _spatial(x)), x.dtype)


@op("GlobalMaxPool", 1, 22)
def global_max_pool(xp: Any, x: Any) -> Any:
    """The maximum over the spatial axes, kept with size 1."""
    return narrow(xp, xp.max(widen(xp, x), axis=_spatial(x), keepdims=True), x.dtype)


@op("GlobalLpPool", 1, 22)
def global_lp_pool(xp: Any, x: Any, *, p: float = 2) -> Any:
    """The p-norm over the spatial axes, kept with size 1."""
    total = xp.sum(_power(xp, widen(xp, x), p), axis=_spatial(x), keepdims=True)
    return narrow(xp, _root(xp, total, p), x.dtype)


def _spatial(x: Any) -> tuple[int, ...]:
    """The spatial axes. Refusal for images without an element, as onnxruntime has it, and for what is none."""
    if x.ndim < 3:
        raise Refusal("Input dimension cannot be less than 3.", FAIL)
    if 0 in x.shape[2:] and 0 not in x.shape[:2]:
        raise Refusal(f"an image of shape {braced(x.shape[2:])} has no elements", FAIL)
    return tuple(range(2, x.ndim))


@op("MaxUnpool", 9, 22, host_inputs=(2,), portable=False)
def max_unpool(
    xp: Any,
    x: Any,
    indices: Any,
    output_shape: Any = None,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Any:
    """Put the elements of ``x`` back where MaxPool found them, zeros elsewhere.

    ``indices`` count in the shape that kernel, strides and pads imply; a larger ``output_shape`` adds zeros at the end.
    """
    rank = len(kernel_shape)
    strides = strides or [1] * rank
    pads = pads or [0] * (2 * rank)
    if tuple(indices.shape) != tuple(x.shape):
        raise ValueError(f"indices {tuple(indices.shape)} are not one for each element of {tuple(x.shape)}")
    spatial = [
        (n - 1) * s + k - pads[axis] - pads[axis + rank]
        for axis, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel_shape, strict=True))
    ]
    shape = (*x.shape[:2], *spatial)
    wanted = shape if output_shape is None else tuple(int(n) for n in output_shape)
    if len(wanted) != len(shape) or any(n < m for n, m in zip(wanted, shape, strict=False)):
        raise ValueError(f"output_shape {list(wanted)} is less than {list(shape)}")
    flat = xp.zeros((math.prod(shape),), dtype=x.dtype)
    require_range(
        xp, indices, flat.size, f"Index value out of bounds. Got: {{value}}. Valid range is [0, {flat.size})."
    )
    flat[xp.reshape(indices, (-1,))] = xp.reshape(x, (-1,))
    y = xp.reshape(flat, shape)
    if wanted == shape:
        return y
    common = tuple(slice(min(n, m)) for n, m in zip(shape, wanted, strict=True))
    larger = xp.zeros(wanted, dtype=x.dtype)
    larger[common] = y[common]
    return larger
