"""Resize and its predecessor Upsample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.interpolation import Resampling, coordinates, nearest, resample, weighted
from onnxplug_kernels.precision import from_float, is_inexact, widen
from onnxplug_kernels.refusals import Refusal, require_axis


@op("Upsample", 1)
def upsample_1(xp: Any, x: Any, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Any:
    """Enlarge the height and width of (N, C, H, W)."""
    return _upsample(xp, x, [1.0, 1.0, height_scale, width_scale], mode)


@op("Upsample", 7)
def upsample_7(xp: Any, x: Any, *, scales: Sequence[float], mode: str = "nearest") -> Any:
    """Enlarge every axis by its scale."""
    return _upsample(xp, x, scales, mode)


@op("Upsample", 9, 10, host_inputs=(1,))
def upsample(xp: Any, x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    """Enlarge every axis by its scale."""
    return _upsample(xp, x, scales.tolist(), mode)


@op("Resize", 10, host_inputs=(1,))
def resize_10(xp: Any, x: Any, scales: Any, *, mode: str = "nearest") -> Any:
    """Scale every axis, output element i lying at i / scale.

    The specification leaves the rounding of nearest open; like ONNX Runtime, up where an axis shrinks, down otherwise.
    """
    return _upsample(xp, x, scales.tolist(), mode)


def _upsample(xp: Any, x: Any, scales: Sequence[float], mode: str) -> Any:
    return _apply(xp, x, upsample_plans(x.shape, scales, mode), 0.0, cut=mode == "linear")


def upsample_plans(shape: Sequence[int], scales: Sequence[float], mode: str) -> dict[int, Resampling]:
    """How Upsample and Resize-10 resample a tensor of ``shape``: the axes that change, each for itself."""
    if len(scales) != len(shape):
        raise ValueError(f"{len(scales)} scales for {len(shape)} axes")
    if not min(scales, default=1) > 0:
        raise Refusal("Scale value should be greater than 0.")
    plans: dict[int, Resampling] = {}
    for axis, (size, scale) in enumerate(zip(shape, scales, strict=True)):
        output = _scaled(size, scale)
        if scale == 1 or size == 0:
            continue
        at = coordinates("asymmetric", size, output, scale, rounded=mode == "nearest")
        if mode == "nearest":
            plans[axis] = nearest(at, size, "ceil" if scale < 1 else "floor")
        else:
            plans[axis] = weighted(at, size, "linear" if mode == "bilinear" else mode)
    return plans


@op("Resize", 11, 19, host_inputs=(1, 2, 3))
def resize(
    xp: Any,
    x: Any,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:
    """Resample ``axes`` to ``sizes`` or by ``scales``: nearest, linear or cubic, one axis after the other."""
    plans = resize_plans(
        x.shape, roi, scales, sizes, antialias=antialias, axes=axes, exclude_outside=exclude_outside, mode=mode,
        coordinate_transformation_mode=coordinate_transformation_mode, cubic_coeff_a=cubic_coeff_a,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy, nearest_mode=nearest_mode,
    )  # fmt: skip
    return _apply(xp, x, plans, extrapolation_value, cut=mode == "linear" and not antialias)


def resize_plans(
    shape: Sequence[int],
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> dict[int, Resampling]:
    """How Resize (since version 11) resamples a tensor of ``shape``: the axes that change, each for itself."""
    axes = [require_axis(axis, len(shape)) for axis in axes] if axes is not None else list(range(len(shape)))
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    if crop and (roi is None or roi.size != 2 * len(axes)):
        raise ValueError(f"tf_crop_and_resize needs a roi of {2 * len(axes)} numbers")
    regions = [(float(roi[i]), float(roi[i + len(axes)])) if crop else (0.0, 1.0) for i in range(len(axes))]
    extents = [shape[axis] for axis in axes]
    outputs, factors = _targets(extents, scales, sizes, keep_aspect_ratio_policy)

    plans: dict[int, Resampling] = {}
    for axis, size, output, factor, region in zip(axes, extents, outputs, factors, regions, strict=True):
        if size == 0 or output == 0:
            plans[axis] = Resampling(np.zeros((output, 1), np.int64), None)
            continue
        if output == size and factor == 1 and region == (0.0, 1.0):
            continue
        at = coordinates(coordinate_transformation_mode, size, output, factor, region, rounded=mode == "nearest")
        if mode == "nearest":
            plan = nearest(at, size, nearest_mode)
        else:
            stretch = max(1.0, 1 / factor) if antialias else 1.0
            plan = weighted(
                at, size, mode, cubic_coeff_a=cubic_coeff_a, stretch=stretch, exclude_outside=bool(exclude_outside)
            )
        if crop and (outside := (at < 0) | (at > size - 1)).any():
            plan = Resampling(plan.indices, plan.weights, outside)
        plans[axis] = plan
    return plans


def _targets(extents: Sequence[int], scales: Any, sizes: Any, policy: str) -> tuple[list[int], list[float]]:
    """(output size, scale) of each axis that is resized. The specification multiplies sizes with the share of a roi too; its inference of
    shapes, its reference and onnxruntime do not."""
    if sizes is not None and sizes.size and scales is not None and scales.size:
        raise Refusal("Only one of scales or sizes must be provided as input.")
    if sizes is None or sizes.size == 0:
        if scales is None or scales.size != len(extents):
            raise ValueError(f"neither sizes nor scales hold a number for each of {len(extents)} axes")
        factors = [float(s) for s in scales]
        if not min(factors, default=1) > 0:
            raise Refusal("Scale value should be greater than 0.")
        return [_scaled(n, s) for n, s in zip(extents, factors, strict=True)], factors
    if sizes.size != len(extents):
        raise ValueError(f"{sizes.size} sizes for {len(extents)} axes")
    wanted = [int(n) for n in sizes]
    if min(wanted, default=0) < 0:
        raise ValueError(f"sizes {wanted} must not be negative")
    if any(w == 0 < n for w, n in zip(wanted, extents, strict=True)):
        raise Refusal("Scale value should be greater than 0.")
    if any(n == 0 < w for w, n in zip(wanted, extents, strict=True)):
        raise Refusal("Input dim is zero but required output dim is non-zero.")
    factors = [w / n if n else 1.0 for w, n in zip(wanted, extents, strict=True)]
    if policy == "stretch":
        return wanted, factors
    if policy not in ("not_larger", "not_smaller"):
        raise ValueError(f"keep_aspect_ratio_policy {policy!r} is not known")
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [int(factor * n + 0.5) for n in extents], [factor] * len(extents)


def _scaled(size: int, scale: float) -> int:
    """floor(size * scale) in float32, as shape inference has it."""
    return int(np.floor(np.float32(size) * np.float32(scale)))


_ROUNDINGS = 2.0**-20
"""More than the roundings of a weighted sum in double take from an integer that a type of 32 bits holds."""


def _apply(xp: Any, x: Any, plans: dict[int, Resampling], extrapolation_value: float, *, cut: bool = False) -> Any:
    """Resample every planned axis; integers are computed in double, rounded and saturated. The specification leaves open how they become
    integers again: what lies between two is ``cut`` down where ONNX Runtime does that."""
    if not plans:
        return xp.asarray(x, copy=True)
    picked = all(plan.weights is None for plan in plans.values())
    y = x
    if not picked:
        y = widen(xp, x) if is_inexact(x.dtype) else xp.astype(x, xp.float64)

    def growth(axis: int) -> tuple[float, int]:
        # Shrinking axes go first; of enlarged ones the last, whose elements are the slowest to gather.
        return len(plans[axis].indices) / max(1, x.shape[axis]), -axis

    for axis in sorted(plans, key=growth):
        y = resample(xp, y, axis, plans[axis])
    for axis, plan in plans.items():
        if plan.outside is not None:
            outside = xp.reshape(xp.asarray(plan.outside), (-1,) + (1,) * (x.ndim - axis - 1))
            y = xp.where(outside, xp.asarray(extrapolation_value, dtype=y.dtype), y)
    if picked:
        return y
    if cut and not is_inexact(x.dtype):
        y = xp.trunc(y + xp.sign(y) * _ROUNDINGS)
    return from_float(xp, y, x.dtype)
