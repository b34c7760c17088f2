"""Running sums and products along an axis: CumSum, CumProd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxplug_kernels.arithmetic import in_float32
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.refusals import INVALID_ARGUMENT, Refusal


@op("CumSum", 11, 14, host_inputs=(1,))
@in_float32
def cumsum(xp: Any, x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    """Element j is the sum of those up to j; without j itself if exclusive, from the end if reverse."""
    return _accumulate(xp, xp.cumulative_sum, x, _axis(axis), exclusive, reverse)


@op("CumProd", 26, host_inputs=(1,))
@in_float32
def cumprod(xp: Any, x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    """Element j is the product of those up to j; without j itself if exclusive, from the end if reverse."""
    return _accumulate(xp, xp.cumulative_prod, x, _axis(axis), exclusive, reverse)


def _axis(axis: Any) -> int:
    if tuple(axis.shape) not in ((), (1,)):
        raise Refusal("Axis tensor must contain exactly one element", INVALID_ARGUMENT)
    return int(axis.item())


def _accumulate(xp: Any, cumulate: Callable[..., Any], x: Any, axis: int, exclusive: int, reverse: int) -> Any:
    if not x.ndim:
        raise Refusal("Cannot apply CumSum operator on a scalar", INVALID_ARGUMENT)
    if reverse:
        x = xp.flip(x, axis=axis)
    y = cumulate(x, axis=axis, dtype=x.dtype, include_initial=bool(exclusive))
    if exclusive:
        last = (slice(None),) * (axis % x.ndim) + (slice(x.shape[axis]), ...)
        y = y[last]
    return xp.flip(y, axis=axis) if reverse else y
