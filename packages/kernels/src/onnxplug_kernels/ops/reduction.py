"""Reductions over axes: ReduceSum ... ReduceSumSquare, ArgMax, ArgMin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from onnxplug_kernels.arithmetic import in_float32, is_integer, truncated_quotient
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.refusals import require_axis

Axes = tuple[int, ...]
Reduction = Callable[[Any, Any, Axes, bool], Any]


def reduction(
    op_type: str, by_attribute_until: int, by_input_since: int, until: int | None = None
) -> Callable[[Reduction], Reduction]:
    """Enter ``function(xp, x, axes, keepdims)`` in both forms: axes as an attribute, then as an input."""

    def enter(function: Reduction) -> Reduction:
        function = in_float32(function)

        def by_attribute(xp: Any, data: Any, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Any:
            return function(xp, data, _places(axes or range(data.ndim), data.ndim), bool(keepdims))

        def by_input(xp: Any, data: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
            given = () if axes is None else _places(axes.reshape(-1).tolist(), data.ndim)
            if not given and not noop_with_empty_axes:
                given = tuple(range(data.ndim))
            return function(xp, data, given, bool(keepdims))

        by_attribute.__doc__ = by_input.__doc__ = function.__doc__
        op(op_type, 1, by_attribute_until)(by_attribute)
        op(op_type, by_input_since, until, host_inputs=(1,))(by_input)
        return function

    return enter


def _places(axes: Sequence[int], rank: int) -> Axes:
    """The axes counted from the front, each once; none of a scalar, whose axes nobody looks at in onnxruntime."""
    return tuple(dict.fromkeys(require_axis(axis, rank) for axis in axes)) if rank else ()


@reduction("ReduceSum", 11, 13)
def reduce_sum(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The sum over the axes; integers wrap."""
    return xp.sum(x, axis=axes, dtype=x.dtype, keepdims=keepdims)


@reduction("ReduceMean", 13, 18)
def reduce_mean(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The mean over the axes; of integers, rounded toward zero; of nothing, 0 (onnxruntime's choice)."""
    count = math.prod(x.shape[axis] for axis in axes) or 1
    if x.dtype in (xp.int64, xp.uint64):
        return _mean_of_longs(xp, x, axes, keepdims, count)
    total = xp.sum(x, axis=axes, keepdims=keepdims)
    if not is_integer(x.dtype):
        return total / count
    quotient = truncated_quotient(xp, total, xp.asarray(count, dtype=total.dtype))
    return xp.astype(xp.asarray(quotient), x.dtype)


def _mean_of_longs(xp: Any, x: Any, axes: Axes, keepdims: bool, count: int) -> Any:
    """The mean from the elements' quotients and remainders, whose sums stay in 64 bits, where that of the elements may not."""
    divisor = xp.asarray(count, dtype=x.dtype)
    quotients = xp.floor_divide(x, divisor)
    rest = xp.asarray(xp.sum(x - quotients * divisor, axis=axes, keepdims=keepdims))
    below = xp.asarray(xp.sum(quotients, axis=axes, keepdims=keepdims)) + xp.floor_divide(rest, divisor)
    rounded_down = (below < 0) & (xp.remainder(rest, divisor) != 0)
    return xp.where(rounded_down, below + xp.asarray(1, dtype=x.dtype), below)


@reduction("ReduceMax", 13, 18, 20)
def reduce_max(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The largest element over the axes; of none, the lowest value of the type."""
    if x.dtype == xp.bool:
        return xp.any(x, axis=axes, keepdims=keepdims)
    if 0 in x.shape:
        lowest = xp.iinfo(x.dtype).min if is_integer(x.dtype) else -math.inf
        return xp.full(_reduced(x.shape, axes, keepdims), lowest, dtype=x.dtype)
    return xp.max(x, axis=axes, keepdims=keepdims)


@reduction("ReduceMin", 13, 18, 20)
def reduce_min(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The smallest element over the axes; of none, the highest value of the type."""
    if x.dtype == xp.bool:
        return xp.all(x, axis=axes, keepdims=keepdims)
    if 0 in x.shape:
        highest = xp.iinfo(x.dtype).max if is_integer(x.dtype) else math.inf
        return xp.full(_reduced(x.shape, axes, keepdims), highest, dtype=x.dtype)
    return xp.min(x, axis=axes, keepdims=keepdims)


@reduction("ReduceProd", 13, 18)
def reduce_prod(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The product over the axes; integers wrap."""
    return xp.prod(x, axis=axes, dtype=x.dtype, keepdims=keepdims)


@reduction("ReduceL1", 13, 18)
def reduce_l1(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The sum of absolute values over the axes."""
    return xp.sum(xp.abs(x), axis=axes, dtype=x.dtype, keepdims=keepdims)


@reduction("ReduceL2", 13, 18)
def reduce_l2(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The square root of the sum of squares over the axes."""
    return _in_float(xp, x, lambda y: xp.sqrt(xp.sum(y * y, axis=axes, keepdims=keepdims)))


@reduction("ReduceLogSum", 13, 18, 28)
def reduce_log_sum(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The logarithm of the sum over the axes."""
    return _in_float(xp, x, lambda y: xp.log(xp.sum(y, axis=axes, keepdims=keepdims)))


@reduction("ReduceLogSumExp", 13, 18, 28)
def reduce_log_sum_exp(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The logarithm of the sum of exponentials over the axes, the largest taken out so that none overflows."""

    def log_sum_exp(y: Any) -> Any:
        largest = reduce_max(xp, y, axes, True)
        largest = xp.where(xp.isfinite(largest), largest, 0.0)
        total = xp.log(xp.sum(xp.exp(y - largest), axis=axes, keepdims=True)) + largest
        return total if keepdims else xp.reshape(total, _reduced(y.shape, axes, False))

    return _in_float(xp, x, log_sum_exp)


@reduction("ReduceSumSquare", 13, 18)
def reduce_sum_square(xp: Any, x: Any, axes: Axes, keepdims: bool) -> Any:
    """The sum of squares over the axes."""
    return xp.sum(x * x, axis=axes, dtype=x.dtype, keepdims=keepdims)


@op("ArgMax", 1, 13)
def argmax(xp: Any, data: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    """The int64 index of the largest element along the axis, the first or the last of several; 0 of a scalar."""
    return _place(xp, xp.argmax, data, axis, keepdims, select_last_index)


@op("ArgMin", 1, 13)
def argmin(xp: Any, data: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
    """The int64 index of the smallest element along the axis, the first or the last of several; 0 of a scalar."""
    return _place(xp, xp.argmin, data, axis, keepdims, select_last_index)


def _place(xp: Any, search: Callable[..., Any], data: Any, axis: int, keepdims: int, last: int) -> Any:
    if not data.ndim:
        return xp.zeros((), dtype=xp.int64)
    if last:
        data = xp.flip(data, axis=axis)
    found = xp.astype(xp.asarray(search(data, axis=axis, keepdims=bool(keepdims))), xp.int64, copy=False)
    return data.shape[axis] - 1 - found if last else found


def _reduced(shape: Sequence[int], axes: Axes, keepdims: bool) -> tuple[int, ...]:
    kept = (1 if axis in axes else size for axis, size in enumerate(shape) if keepdims or axis not in axes)
    return tuple(kept)


def _in_float(xp: Any, x: Any, function: Callable[[Any], Any]) -> Any:
    """``function(x)``; integers go through float64 and are rounded toward zero, what is beyond their range to its end."""
    if not is_integer(x.dtype):
        return function(x)
    result, most = xp.asarray(function(xp.astype(x, xp.float64))), xp.iinfo(x.dtype).max
    beyond = result >= float(most)
    return xp.where(beyond, xp.asarray(most, dtype=x.dtype), xp.astype(xp.where(beyond, 0.0, result), x.dtype))
