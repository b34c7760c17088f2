"""Resampling along one axis: where the samples lie, which elements they see and with what weight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Indices = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Resampling:
    """Output element i of one axis is the sum of ``weights[i, t]`` times input element ``indices[i, t]`` over t.

    Without weights there is one index each. ``outside`` marks elements that take the extrapolation value instead.
    """

    indices: Indices
    weights: Floats | None
    outside: np.ndarray[Any, np.dtype[np.bool_]] | None = None


_DIVIDING = frozenset({"half_pixel", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn"})


def coordinates(
    transformation: str,
    size: int,
    output: int,
    scale: float,
    roi: tuple[float, float] = (0.0, 1.0),
    *,
    rounded: bool = False,
) -> Floats:
    """Where output elements lie on the input axis (ONNX operator spec, Resize-19, coordinate_transformation_mode).

    ``rounded``: of what only divides by the scale each step is rounded to float32, as in ONNX Runtime: it decides which of two
    elements is nearest.
    """
    at: Floats = np.arange(output, dtype=np.float64)
    if rounded and transformation in _DIVIDING:
        at, scale = at.astype(np.float32), np.float32(scale)  # type: ignore[assignment]
    if transformation == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if transformation == "asymmetric":
        return at / scale
    if transformation == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if output > 1 else np.zeros(output)
    if transformation == "align_corners":
        return at * (size - 1) / (size * scale - 1) if output > 1 else np.zeros(output)
    if transformation == "half_pixel_symmetric":
        return size / 2 * (1 - output / (size * scale)) + (at + 0.5) / scale - 0.5
    if transformation == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    if transformation == "tf_crop_and_resize":
        start, end = roi
        if output > 1:
            return start * (size - 1) + at * (end - start) * (size - 1) / (output - 1)
        return np.full(output, 0.5 * (start + end) * (size - 1))
    raise ValueError(f"coordinate_transformation_mode {transformation!r} is not known")


def nearest(at: Floats, size: int, mode: str) -> Resampling:
    """The element nearest to each coordinate.

    Scales are float32, so coordinates are only known to that precision; rounding them to it keeps 2.9999999 from
    becoming 2.
    """
    at = at.astype(np.float32)
    if mode == "round_prefer_floor":
        indices = np.ceil(at - np.float32(0.5))
    elif mode == "round_prefer_ceil":
        indices = np.floor(at + np.float32(0.5))
    elif mode in ("floor", "ceil"):
        indices = np.floor(at) if mode == "floor" else np.ceil(at)
    else:
        raise ValueError(f"nearest_mode {mode!r} is not known")
    return Resampling(_inside(indices, size).astype(np.int64)[:, None], None)


def weighted(
    at: Floats,
    size: int,
    mode: str,
    *,
    cubic_coeff_a: float = -0.75,
    stretch: float = 1.0,
    exclude_outside: bool = False,
) -> Resampling:
    """Linear or cubic weights at each coordinate; elements beyond the ends repeat the outermost ones.

    ``stretch`` widens the filter, by 1 / scale where an antialiased axis shrinks. ``exclude_outside`` drops what lies
    beyond the ends.
    """
    reach = 1 if mode == "linear" else 2
    taps = math.ceil(2 * reach * stretch)
    first = np.floor(at - reach * stretch).astype(np.int64) + 1
    indices = first[:, None] + np.arange(taps)
    distance = np.abs(indices - at[:, None]) / stretch
    if mode == "linear":
        weights = np.maximum(0.0, 1 - distance)
    elif mode == "cubic":
        weights = _cubic(distance, cubic_coeff_a)
    else:
        raise ValueError(f"mode {mode!r} is not known")
    if exclude_outside:
        weights = np.where((indices < 0) | (indices >= size), 0.0, weights)
    if exclude_outside or stretch != 1:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return Resampling(_inside(indices, size), weights)


def _inside(indices: Any, size: int) -> Any:
    """``numpy.clip`` takes three times as long over a few numbers."""
    return np.minimum(np.maximum(indices, 0), size - 1)


def _cubic(distance: Floats, a: float) -> Floats:
    """Keys' cubic convolution kernel (https://ieeexplore.ieee.org/document/1163711, equation 4)."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def resample(xp: Any, x: Any, axis: int, how: Resampling) -> Any:
    """``x`` resampled along ``axis``; weights are applied in the type of ``x``."""
    if how.weights is None:
        return xp.take(x, xp.asarray(how.indices[:, 0]), axis=axis)
    shape = (-1,) + (1,) * (x.ndim - axis - 1)
    total = None
    for indices, weights in zip(how.indices.T, how.weights.T, strict=True):
        if total is not None and not weights.any():
            continue
        part = xp.take(x, xp.asarray(indices), axis=axis)
        part *= xp.reshape(xp.asarray(weights, dtype=x.dtype), shape)
        if total is None:
            total = part
        else:
            total += part
    return total
