"""Operators that join, cut, pad and reorder whole blocks of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import is_string
from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal, braced, require_axis, watched


def along(axis: int, index: slice | int) -> tuple[Any, ...]:
    """The index that applies ``index`` to one axis, counted from the front, and takes the others whole."""
    return (slice(None),) * axis + (index, ...)


def parts(x: Any, lengths: Sequence[int], axis: int) -> list[Any]:
    """``x`` cut along ``axis`` into consecutive parts of ``lengths``, which must use it up."""
    axis = require_axis(axis, x.ndim)
    if min(lengths, default=0) < 0:
        raise Refusal("Invalid value in 'split' input. All values must be >= 0.", FAIL)
    left = x.shape[axis]
    for size in lengths:
        if size > left:
            told = f"Split size {size} exceeds the remaining size of the selected axis, {left}."
            raise Refusal(f"Invalid value in 'split'. {told}", INVALID_ARGUMENT)
        left -= size
    if left:
        raise _unfit(x, axis, lengths, len(lengths))
    spans = zip(lengths, accumulate(lengths), strict=True)
    if not axis:
        return [x[end - n : end, ...] for n, end in spans]
    before = (slice(None),) * axis
    return [x[(*before, slice(end - n, end), ...)] for n, end in spans]


@op("Concat", 1)
def concat_v1(xp: Any, *inputs: Any, axis: int = 1) -> Any:
    """The inputs one after the other along ``axis``."""
    return concat(xp, *inputs, axis=axis)


@op("Concat", 4, 13)
def concat(xp: Any, *inputs: Any, axis: int) -> Any:
    """The inputs one after the other along ``axis``. Those of no length there may have any other sizes, as in onnxruntime: caches of
    nothing are fed for one batch and used for another."""
    return xp.concat([x for x in inputs if x.shape[axis]] or inputs[:1], axis=axis)


@op("Split", 1, 11, host_inputs=(1,))
def split_by_attribute(
    xp: Any, x: Any, lengths: np.ndarray | None = None, *, n_outputs: int, axis: int = 0, split: list[int] | None = None
) -> tuple[Any, ...]:
    """``x`` cut along ``axis`` into parts of the given lengths (an input or attribute), by default equal ones."""
    wanted = split if lengths is None else lengths.tolist()
    return tuple(parts(x, _for_all(x, axis, wanted, n_outputs) if wanted else _equal(x, axis, n_outputs), axis))


@op("Split", 13, 18, host_inputs=(1,))
def split(
    xp: Any, x: Any, lengths: np.ndarray | None = None, *, n_outputs: int, axis: int = 0, num_outputs: int | None = None
) -> tuple[Any, ...]:
    """``x`` cut along ``axis`` into ``lengths``, if there are any, else ``num_outputs`` parts (the last maybe shorter), else equally."""
    if lengths is not None and lengths.size:
        return tuple(parts(x, _for_all(x, axis, lengths.tolist(), n_outputs), axis))
    total = x.shape[axis]
    if num_outputs is None:
        return tuple(parts(x, _equal(x, axis, n_outputs), axis))
    if num_outputs > total:
        raise ValueError(f"Invalid num_outputs value of {num_outputs}. Size of dimension being split is {total}")
    size = -(-total // num_outputs)
    return tuple(parts(x, [size] * (num_outputs - 1) + [max(total - size * (num_outputs - 1), 0)], axis))


def _for_all(x: Any, axis: int, lengths: list[int], count: int) -> list[int]:
    if len(lengths) != count:
        raise _unfit(x, require_axis(axis, x.ndim), lengths, count)
    return lengths


def _unfit(x: Any, axis: int, lengths: Sequence[int], count: int) -> Refusal:
    return Refusal(
        f"Cannot split using values in 'split' attribute. Axis={axis} Input shape={braced(x.shape)} NumOutputs={count} Num entries "
        f"in 'split' (must equal number of outputs) was {len(lengths)} Sum of sizes in 'split' (must equal size of selected axis) was "
        f"{sum(lengths)}"
    )


def _equal(x: Any, axis: int, count: int) -> list[int]:
    total = x.shape[axis]
    if total % count:
        raise Refusal(
            f"Input cannot be split evenly on selected axis. Input shape={braced(x.shape)} Axis={require_axis(axis, x.ndim)} "
            f"NumOutputs={count}"
        )
    return [total // count] * count


_ALL, _NONE = slice(None), slice(0, 0)


@op("Slice", 1)
def slice_by_attribute(xp: Any, x: Any, *, starts: list[int], ends: list[int], axes: list[int] | None = None) -> Any:
    """``x[starts:ends]`` along ``axes``."""
    return _slice(x, starts, ends, axes, None)


@op("Slice", 10, 13, host_inputs=(1, 2, 3, 4))
def slice_(
    xp: Any,
    x: Any,
    starts: np.ndarray,
    ends: np.ndarray,
    axes: np.ndarray | None = None,
    steps: np.ndarray | None = None,
) -> Any:
    """``x[starts:ends:steps]`` along ``axes``, by default the leading ones (ONNX operator spec, Slice-13)."""
    if len(starts.shape) != 1:
        raise Refusal("Starts must be a 1-D array", FAIL)
    for name, given in ("ends", ends), ("axes", axes), ("steps", steps):
        if given is not None and given.shape != starts.shape:
            raise Refusal(f"Starts and {name} shape mismatch", FAIL)
    along, by = None if axes is None else axes.tolist(), None if steps is None else steps.tolist()
    return _slice(x, starts.tolist(), ends.tolist(), along, by)


def _slice(x: Any, starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None) -> Any:
    shape = x.shape
    index: list[Any] = [_ALL] * len(shape)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = number if axes is None else axes[number]
        if not -len(shape) <= axis < len(shape):
            raise Refusal("'axes' has an axis outside of the tensor dimension count")
        if index[axis] is not _ALL:
            raise Refusal("'axes' has duplicates")
        index[axis] = _bounded(start, end, 1 if steps is None else steps[number], shape[axis])
    return x[tuple(index)]


def _bounded(start: int, end: int, step: int, n: int) -> slice:
    """The slice with bounds inside the dimension, since the Array API leaves others undefined."""
    if step == 0:
        raise Refusal("'step' value cannot be 0")
    if n == 0:
        return _NONE
    start, end, step = slice(start, end, step).indices(n)
    if step > 0:
        return slice(start, end if end > start else start, step)
    start = max(start, 0)  # which Python takes for nothing, and ONNX for the first element
    return slice(start, None if end < 0 else min(end, start), step)


@op("Pad", 1)
def pad_v1(xp: Any, x: Any, *, paddings: list[int], mode: str = "constant", value: float = 0.0) -> Any:
    """``x`` with ``paddings`` elements (all begins, then all ends) added around it."""
    return _pad(xp, x, paddings, list(range(x.ndim)), mode, value)


@op("Pad", 2)
def pad_v2(xp: Any, x: Any, *, pads: list[int], mode: str = "constant", value: float = 0.0) -> Any:
    """``x`` with ``pads`` elements (all begins, then all ends) added around it, or taken off where negative."""
    return _pad(xp, x, pads, list(range(x.ndim)), mode, value)


@op("Pad", 11, 25, host_inputs=(1, 2, 3))
def pad(
    xp: Any,
    x: Any,
    pads: np.ndarray,
    constant_value: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    *,
    mode: str = "constant",
) -> Any:
    """``x`` with ``pads`` elements (all begins, then all ends) added along ``axes``, or taken off where negative.

    ``mode`` is constant, reflect (without repeating the border), edge or wrap (ONNX operator spec, Pad-25).
    """
    if constant_value is not None and constant_value.size:
        value = constant_value.reshape(-1)[0]
        value = value if is_string(constant_value) else value.item()
    else:
        value = "" if is_string(x) else 0
    return _pad(xp, x, pads.reshape(-1).tolist(), list(range(x.ndim)) if axes is None else axes.tolist(), mode, value)


def _pad(xp: Any, x: Any, pads: list[int], axes: list[int], mode: str, value: Any) -> Any:
    if len(pads) != 2 * len(axes):
        raise Refusal("Pads tensor size should be equal to twice the input dimension count ")
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(axes):
        axis = require_axis(axis, x.ndim)
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    if any(n + b + a < 0 for n, b, a in zip(x.shape, before, after, strict=True)):
        raise ValueError(f"Pad: pads {pads} take more from axes {axes} than {x.shape} has")
    cropped = tuple(
        slice(max(-b, 0), max(n + min(a, 0), max(-b, 0))) for n, b, a in zip(x.shape, before, after, strict=True)
    )
    sizes, x = x.shape, x[(*cropped, ...)]
    # What is taken off beyond the last element comes out of what the other side adds.
    added = [
        (max(b, 0) - max(-a - n, 0), max(a, 0) - max(-b - n, 0)) for n, b, a in zip(sizes, before, after, strict=True)
    ]
    if mode == "constant":
        return _surround(xp, x, added, value)
    for axis, (b, a) in enumerate(added):
        if b or a:
            x = xp.take(x, xp.asarray(_mirror(mode, x.shape[axis], b, a)), axis=axis)
    return x


def _surround(xp: Any, x: Any, added: list[tuple[int, int]], value: Any) -> Any:
    shape = tuple(n + b + a for n, (b, a) in zip(x.shape, added, strict=True))
    padded = xp.full(shape, value, dtype=object if is_string(x) else x.dtype)
    padded[(*(slice(b, b + n) for n, (b, _) in zip(x.shape, added, strict=True)), ...)] = x
    return padded


def _mirror(mode: str, n: int, before: int, after: int) -> np.ndarray:
    """For each position of a padded axis, the index of the element of the ``n`` that stands there."""
    if n == 0:
        raise ValueError(f"Pad: mode {mode} cannot extend an axis without elements")
    position = np.arange(-before, n + after, dtype=np.int64)
    if mode == "edge":
        return np.clip(position, 0, n - 1)
    if mode == "wrap":
        return position % n
    if mode == "reflect":
        period = max(2 * (n - 1), 1)
        return (n - 1) - np.abs(position % period - (n - 1)) if n > 1 else np.zeros_like(position)
    raise ValueError(f"Pad: unknown mode {mode!r}")


@op("DepthToSpace", 1, 28)
def depth_to_space(xp: Any, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    """Blocks of channels of an NCHW tensor moved into height and width, ``blocksize`` times larger each."""
    n, c, h, w = x.shape
    b, depth = blocksize, c // blocksize**2
    if c % b**2:
        raise Refusal(
            "DepthToSpace requires input depth to be a multiple of (block_size * block_size)", INVALID_ARGUMENT
        )
    if mode == "DCR":
        blocks = xp.permute_dims(xp.reshape(x, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        blocks = xp.permute_dims(xp.reshape(x, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return xp.reshape(blocks, (n, depth, h * b, w * b))


@op("SpaceToDepth", 1, 28)
def space_to_depth(xp: Any, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    """Blocks of height and width of an NCHW tensor moved into channels: the inverse of DepthToSpace."""
    n, c, h, w = x.shape
    b = blocksize
    for name, size in ("height", h), ("width", w):
        if size % b:
            raise Refusal(f"SpaceToDepth requires input {name} to be a multiple of block_size", INVALID_ARGUMENT)
    blocks = xp.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return xp.reshape(xp.permute_dims(blocks, order), (n, c * b * b, h // b, w // b))


@op("ReverseSequence", 10, 28)
def reverse_sequence(xp: Any, x: Any, sequence_lens: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    """``x`` with the first ``sequence_lens[i]`` steps of batch entry i in reverse order, the others as they are."""
    if {batch_axis, time_axis} != {0, 1}:
        raise ValueError("ReverseSequence: batch_axis and time_axis must be 0 and 1, or 1 and 0")
    if tuple(sequence_lens.shape) != (x.shape[batch_axis],):
        raise Refusal(
            f"sequence_lens shape must be {{batch_size}}. Got:{braced(sequence_lens.shape)}. batch_size={x.shape[batch_axis]}",
            INVALID_ARGUMENT,
        )
    steps = xp.reshape(xp.arange(x.shape[time_axis], dtype=xp.int64), (-1, 1) if time_axis == 0 else (1, -1))
    told = watched(xp, sequence_lens, 0, x.shape[time_axis] + 1, FAIL)
    if not told and bool(xp.any((sequence_lens < 0) | (sequence_lens > x.shape[time_axis]))):
        raise Refusal(f"Invalid sequence length. Value must be in range [0,{x.shape[time_axis]}]")
    lengths = xp.reshape(sequence_lens, (1, -1) if time_axis == 0 else (-1, 1))
    index = xp.where(steps < lengths, lengths - 1 - steps, steps)
    return xp.take_along_axis(x, xp.reshape(index, (*index.shape, *(1,) * (x.ndim - 2))), axis=time_axis)


@op("Compress", 9, 28)
def compress(xp: Any, x: Any, condition: Any, *, axis: int | None = None) -> Any:
    """The slices of ``x`` along ``axis`` (elements of the flattened ``x`` without one) where ``condition`` is true; what it
    has beyond them is not looked at, and it may have any shape, as in onnxruntime."""
    if condition.ndim != 1:
        condition = xp.reshape(condition, (-1,))
    if axis is None:
        x, axis = xp.reshape(x, (-1,)), 0
    axis = require_axis(axis, x.ndim)
    if condition.shape[0] > x.shape[axis]:
        condition = condition[: x.shape[axis]]
    if isinstance(x, np.ndarray):
        return x.compress(condition, axis)  # in a third of the time
    return xp.take(x, xp.nonzero(condition)[0], axis=axis)
