"""Normalisation by statistics of the input itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from onnxplug_kernels.arithmetic import mean
from onnxplug_kernels.catalogue import op
from onnxplug_kernels.dtypes import dtype_in
from onnxplug_kernels.precision import EPSILON, narrow, per_channel, widen
from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal, braced, require_axis, spreads


@op("InstanceNormalization", 1, 22)
def instance_normalization(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any,
    *,
    consumed_inputs: Sequence[int] | None = None,
    epsilon: float = EPSILON,
) -> Any:
    """Standardize each channel of each instance, then scale and shift per channel."""
    y = _standardized(xp, widen(xp, x), tuple(range(2, x.ndim)), epsilon)[0]
    y *= per_channel(xp, widen(xp, scale), x.ndim, x.shape[1])
    y += per_channel(xp, widen(xp, b), x.ndim, x.shape[1])
    return narrow(xp, y, x.dtype)


@op("LayerNormalization", 1)
@op("LayerNormalization", 17)
def layer_normalization(
    xp: Any,
    x: Any,
    scale: Any,
    b: Any = None,
    *,
    axis: int = -1,
    epsilon: float = EPSILON,
    stash_type: int = 1,
    n_outputs: int = 1,
) -> Any:
    """Standardize over the axes from ``axis`` on, scale and shift; mean and inverse deviation come in ``stash_type``.

    float16 and bfloat16 are rounded once, after scale and shift, whatever ``stash_type`` says; double stays double.
    Version 1 is what onnxruntime writes into models older than opset 17; there ``scale`` may have a type of its own,
    which is that of the result.
    """
    require_scales(x, scale, b)
    y, centre, inverse = _standardized(xp, widen(xp, x), tuple(range(require_axis(axis, x.ndim), x.ndim)), epsilon)
    y *= widen(xp, scale)
    if b is not None:
        y += widen(xp, b)
    stash = dtype_in(xp, stash_type)
    return (narrow(xp, y, scale.dtype), narrow(xp, centre, stash), narrow(xp, inverse, stash))[:n_outputs]


@op("GroupNormalization", 18)
def group_normalization_18(xp: Any, x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = EPSILON) -> Any:
    """Standardize each group of channels of each instance, then scale and shift per group."""
    groups = _grouped(xp, widen(xp, x), num_groups)
    y = _standardized(xp, groups, (2,), epsilon)[0]
    y *= per_channel(xp, widen(xp, scale), 3, num_groups)
    y += per_channel(xp, widen(xp, bias), 3, num_groups)
    return narrow(xp, xp.reshape(y, x.shape), x.dtype)


@op("GroupNormalization", 21)
def group_normalization(
    xp: Any, x: Any, scale: Any, bias: Any, *, num_groups: int, epsilon: float = EPSILON, stash_type: int = 1
) -> Any:
    """Standardize each group of channels of each instance, then scale and shift per channel."""
    groups = _grouped(xp, widen(xp, x), num_groups)
    y = xp.reshape(_standardized(xp, groups, (2,), epsilon)[0], x.shape)
    y *= per_channel(xp, widen(xp, scale), x.ndim, x.shape[1])
    y += per_channel(xp, widen(xp, bias), x.ndim, x.shape[1])
    return narrow(xp, y, x.dtype)


def _grouped(xp: Any, x: Any, groups: int) -> Any:
    if x.shape[1] % groups:
        raise Refusal(f"{x.shape[1]} channels do not divide into {groups} groups", FAIL)
    return xp.reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))


def _standardized(xp: Any, x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """(a fresh array of mean 0 and variance 1 over ``axes``, mean, inverse standard deviation)."""
    centre = mean(xp, x, axes)
    y = x - centre
    inverse = 1 / xp.sqrt(mean(xp, y * y, axes) + epsilon)
    y *= inverse
    return y, centre, inverse


@op("RMSNormalization", 23)
def rms_normalization(
    xp: Any, x: Any, scale: Any, *, axis: int = -1, epsilon: float = EPSILON, stash_type: int = 1
) -> Any:
    """Divide by the root mean square over the axes from ``axis`` on, times ``scale``, in the type of ``scale``."""
    require_scales(x, scale)
    values = widen(xp, x)
    mean_square = mean(xp, values * values, range(require_axis(axis, x.ndim), x.ndim))
    return narrow(xp, values / xp.sqrt(mean_square + epsilon) * widen(xp, scale), scale.dtype)


def require_scales(x: Any, *factors: Any) -> None:
    """Refusal for a scale or a bias that does not broadcast to ``x``."""
    if all(each is None or spreads(each.shape, x.shape) for each in factors):
        return
    text = "Scale and (optional) bias must match X.shape[axis:] or be NumPy-broadcastable to it."
    given = ", ".join(braced(each.shape) for each in factors if each is not None)
    raise Refusal(f"{text} X has shape {braced(x.shape)}, they have {given}", INVALID_ARGUMENT)


@op("LpNormalization", 1, 22)
def lp_normalization(xp: Any, x: Any, *, axis: int = -1, p: int = 2) -> Any:
    """Divide by the 1- or 2-norm along ``axis``; where that is zero the result is zero."""
    values, axis = widen(xp, x), require_axis(axis, max(1, x.ndim))
    if p == 1:
        norm = xp.sum(xp.abs(values), axis=axis, keepdims=True)
    elif p == 2:
        norm = xp.sqrt(xp.sum(values * values, axis=axis, keepdims=True))
    else:
        raise ValueError(f"p is {p}; LpNormalization knows 1 and 2")
    return narrow(xp, values / xp.where(norm == 0, xp.ones_like(norm), norm), x.dtype)


@op("MeanVarianceNormalization", 9, 13)
def mean_variance_normalization(xp: Any, x: Any, *, axes: Sequence[int] = (0, 2, 3)) -> Any:
    """Take off the mean over ``axes`` and divide by the standard deviation plus 1e-9, as the function body does."""
    axes = tuple({axis % x.ndim for axis in axes})  # some may be there twice
    values = widen(xp, x)
    y = values - mean(xp, values, axes)
    y = y - mean(xp, y, axes)  # what the first one was rounded by, which counts far from zero
    deviation = xp.sqrt(mean(xp, y * y, axes))
    return narrow(xp, y / (deviation + 1e-9), x.dtype)


@op("MeanVarianceNormalization", 1)
def mean_variance_normalization_1(xp: Any, x: Any, *, across_channels: int = 0, normalize_variance: int = 1) -> Any:
    """One of ONNX's experiments, as onnxruntime runs it: over the batch and space, and the channels where ``across_channels``; without
    ``normalize_variance`` the mean is taken off only."""
    axes = [axis for axis in range(x.ndim) if axis != 1 or across_channels]
    if normalize_variance:
        return mean_variance_normalization(xp, x, axes=axes)
    values = widen(xp, x)
    return narrow(xp, values - mean(xp, values, tuple(axes)), x.dtype)


@op("LRN", 1, 13)
def lrn(
    xp: Any, x: Any, *, size: int, alpha: float = 9.999999747378752e-05, beta: float = 0.75, bias: float = 1.0
) -> Any:
    """Divide by a power of the sum of squares over ``size`` neighbouring channels."""
    values = widen(xp, x)
    channels = x.shape[1]
    squares = values * values
    total = xp.zeros_like(squares)
    for offset in range(-min((size - 1) // 2, channels), min(size // 2, channels) + 1):
        own = slice(max(0, -offset), channels - max(0, offset))
        other = slice(max(0, offset), channels + min(0, offset))
        if own.start < own.stop:
            total[:, own, ...] += squares[:, other, ...]
    total *= alpha / size
    total += bias
    if beta == 0.75:
        root = xp.sqrt(total)
        return narrow(xp, values / (root * xp.sqrt(root)), x.dtype)
    return narrow(xp, values / total**beta, x.dtype)
