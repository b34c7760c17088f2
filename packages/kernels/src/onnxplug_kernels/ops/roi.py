"""Pooling of regions of interest: RoiAlign and MaxRoiPool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_kernels.catalogue import op
from onnxplug_kernels.precision import narrow, widen
from onnxplug_kernels.refusals import FAIL, INVALID_ARGUMENT, Refusal, require_range


@op("RoiAlign", 10, host_inputs=(1, 2))
def roi_align_10(xp: Any, x: Any, rois: Any, batch_indices: Any, **attributes: Any) -> Any:
    """RoiAlign without the half-pixel shift, as it was before its attribute came."""
    return roi_align(xp, x, rois, batch_indices, coordinate_transformation_mode="output_half_pixel", **attributes)


@op("RoiAlign", 16, 22, host_inputs=(1, 2))
def roi_align(
    xp: Any,
    x: Any,
    rois: Any,
    batch_indices: Any,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Any:
    """Sample each region of (N, C, H, W) bilinearly on a grid and pool the samples of each bin by mean or maximum.

    Interpolation is separable, so the mean is a product with one matrix per axis.
    """
    require_range(
        xp,
        batch_indices,
        x.shape[0],
        f"batch_indices value {{value}} at index {{at}} is out of range [0, {x.shape[0]})",
    )
    if not np.isfinite(rois).all():
        raise Refusal("All 'rois' values must be finite.", INVALID_ARGUMENT)
    half_pixel = coordinate_transformation_mode == "half_pixel"
    values = widen(xp, x)
    finite = mode != "avg" or bool(xp.all(xp.isfinite(values)))
    exact = np.float64 if rois.dtype == np.float64 else np.float32
    boxes = rois.astype(exact) * exact(spatial_scale) - exact(0.5 if half_pixel else 0.0)
    y = xp.zeros((boxes.shape[0], x.shape[1], output_height, output_width), dtype=values.dtype)
    for region, (box, image) in enumerate(zip(boxes, batch_indices, strict=True)):
        left, top, right, bottom = box
        height, width = bottom - top, right - left
        if not half_pixel:
            height, width = max(height, exact(1)), max(width, exact(1))
        rows = _Samples(top, height, output_height, sampling_ratio, x.shape[2])
        columns = _Samples(left, width, output_width, sampling_ratio, x.shape[3])
        if rows.per_bin * columns.per_bin < 0:  # a region with its corners swapped along one axis
            raise Refusal("Integer overflow", FAIL)
        if rows.per_bin <= 0 or columns.per_bin <= 0:
            continue
        picture = values[int(image), ...]
        if mode == "avg":
            y[region, ...] = (_mean if finite else _mean_of_any)(xp, picture, rows, columns)
        else:
            y[region, ...] = _largest(xp, picture, rows, columns)
    return narrow(xp, y, x.dtype)


class _Samples:
    """Sampling points of a region along one axis, ``per_bin`` in each output bin: two neighbours each, with weights. Only those
    that see the image are kept, which are no more than it has pixels, however far a region reaches."""

    def __init__(
        self, start: np.floating[Any], length: np.floating[Any], bins: int, sampling_ratio: int, size: int
    ) -> None:
        self.bins, self.size = bins, size
        self.per_bin = sampling_ratio if sampling_ratio > 0 else math.ceil(length / bins)
        step = length / bins
        sample = _seen(float(start), float(step), bins, max(0, self.per_bin), size)
        self.bin, within = np.divmod(sample, max(1, self.per_bin))
        offsets = (within + np.float32(0.5)) / max(1, self.per_bin)
        points = start + (self.bin + offsets.astype(step.dtype)) * step
        inside = (points >= -1) & (points <= size)
        self.bin = self.bin[inside]
        points = np.clip(points[inside], 0, size - 1)
        self.low = points.astype(np.int64)
        self.high = np.minimum(self.low + 1, size - 1)
        upper = points - self.low
        self.weights = (1 - upper, upper)

    def means(self) -> np.ndarray:
        """(bins, size) matrix that takes the mean of each bin's samples."""
        matrix = np.zeros((self.bins, self.size))
        for neighbour, weight in zip((self.low, self.high), self.weights, strict=True):
            np.add.at(matrix, (self.bin, neighbour), weight)
        return matrix / self.per_bin

    def touched(self) -> tuple[np.ndarray, np.ndarray]:
        """(bins, size) matrices: 1 for each pixel that a sample of the bin sees, and for each that one sees with weight 0."""
        seen, weightless = np.zeros((2, self.bins, self.size))
        for neighbour, weight in zip((self.low, self.high), self.weights, strict=True):
            seen[self.bin, neighbour] = 1
            weightless[self.bin[weight == 0], neighbour[weight == 0]] = 1
        return seen, weightless

    def extremes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(bins, most) arrays: the pixels that each bin's samples see, the first of them once more where a bin has fewer, and the
        least and the largest weight that each has. What a sample beyond the image sees weighs nothing."""
        least, most = (np.full((self.bins, self.size), sign * np.inf) for sign in (1, -1))
        for neighbour, weight in zip((self.low, self.high), self.weights, strict=True):
            np.minimum.at(least, (self.bin, neighbour), weight)
            np.maximum.at(most, (self.bin, neighbour), weight)
        beyond = np.bincount(self.bin, minlength=self.bins) < self.per_bin
        least[beyond, 0] = 0
        most[beyond, 0] = np.maximum(most[beyond, 0], 0)
        found = np.isfinite(most)
        counts = found.sum(axis=1, keepdims=True)
        pixels = np.argsort(~found, axis=1, kind="stable")[:, : counts.max()]
        pixels = np.where(np.arange(pixels.shape[1]) < counts, pixels, pixels[:, :1])
        return pixels, np.take_along_axis(least, pixels, 1), np.take_along_axis(most, pixels, 1)


def _seen(start: float, step: float, bins: int, per_bin: int, size: int) -> np.ndarray:
    """The numbers of the samples that may lie within [-1, size], and of some around them: places far away are known to a few
    roundings of float32 only."""
    total = bins * per_bin
    if total == 0 or step == 0:
        return np.arange(total)
    roundings = 2.0**-20 * (abs(start) + abs(step) * bins)
    ends = sorted((edge - start) / step * per_bin for edge in (-1 - roundings, size + roundings))
    first, last = (min(max(end + margin, 0.0), float(total)) for end, margin in zip(ends, (-2, 2), strict=True))
    return np.arange(int(first), min(total, math.ceil(last)))


def _mean(xp: Any, picture: Any, rows: _Samples, columns: _Samples) -> Any:
    return _through(xp, rows.means(), picture, columns.means())


def _through(xp: Any, down: np.ndarray, picture: Any, across: np.ndarray) -> Any:
    """``picture`` between a matrix for its rows and the transpose of one for its columns."""
    first, last = (xp.asarray(matrix, dtype=picture.dtype) for matrix in (down, across))
    return xp.matmul(xp.matmul(first, picture), xp.matrix_transpose(last))


def _mean_of_any(xp: Any, picture: Any, rows: _Samples, columns: _Samples) -> Any:
    """``_mean`` of a picture with infinities or NaN, which a matrix product would spread to bins that do not see them."""
    y = _mean(xp, xp.where(xp.isfinite(picture), picture, 0.0), rows, columns)
    (down, light_down), (across, light_across) = rows.touched(), columns.touched()
    for value in (math.inf, -math.inf, math.nan):
        there = xp.astype(xp.isnan(picture) if math.isnan(value) else picture == value, picture.dtype)
        y = xp.where(_through(xp, down, there, across) > 0, y + value, y)
        weightless = _through(xp, light_down, there, across) + _through(xp, down, there, light_across)
        y = xp.where(weightless > 0, math.nan, y)
    return y


def _largest(xp: Any, picture: Any, rows: _Samples, columns: _Samples) -> Any:
    """Per bin, the largest of its samples' weighted corners; the operator's test data does not take their sums. A pixel is largest
    with its largest weights if it is positive, else with its least ones; one that weighs nothing is 0, even an infinity."""
    (down, *of_rows), (across, *of_columns) = rows.extremes(), columns.extremes()
    seen = xp.take(xp.take(picture, xp.asarray(down.ravel()), axis=1), xp.asarray(across.ravel()), axis=2)
    weights = [
        xp.asarray(row.reshape(-1, 1) * column.reshape(-1), dtype=picture.dtype)
        for row, column in zip(of_rows, of_columns, strict=True)
    ]
    corners = [xp.where(weight == 0, 0.0, seen) * weight for weight in weights]
    bins = xp.reshape(xp.maximum(*corners), (picture.shape[0], *down.shape, *across.shape))
    return xp.max(bins, axis=(2, 4))


@op("MaxRoiPool", 1, 22, host_inputs=(1,))
def max_roi_pool(xp: Any, x: Any, rois: Any, *, pooled_shape: Sequence[int], spatial_scale: float = 1.0) -> Any:
    """The maximum of each bin of each region; bins are rounded outward to whole pixels, empty ones give zero."""
    values = widen(xp, x)
    y = xp.zeros((rois.shape[0], x.shape[1], *pooled_shape), dtype=values.dtype)
    if 0 in (*x.shape, *rois.shape):
        return narrow(xp, y, x.dtype)
    corners = rois[:, 1:].astype(np.float32) * np.float32(spatial_scale)
    whole = np.trunc(corners)  # halves go away from zero
    corners = (whole + np.where(np.abs(corners - whole) >= 0.5, np.sign(corners), 0)).astype(np.int64)
    left, top, right, bottom = corners.T
    rows, columns = _bins(top, bottom, pooled_shape[0], x.shape[2]), _bins(left, right, pooled_shape[1], x.shape[3])
    empty = (rows[1] <= rows[0])[:, :, None] | (columns[1] <= columns[0])[:, None]
    images = np.trunc(rois[:, 0].astype(np.float64))
    if not ((images >= 0) & (images < x.shape[0])).all():
        raise ValueError(f"a region is of an image that is not in [0, {x.shape[0]})")
    for region, image in enumerate(images.astype(np.int64).tolist()):
        band = _largest_of(xp, values[image, ...], 1, *(edges[region] for edges in rows))
        y[region, ...] = _largest_of(xp, band, 2, *(edges[region] for edges in columns))
    if empty.any():
        y = xp.where(xp.asarray(empty[:, None]), xp.zeros_like(y), y)
    return narrow(xp, y, x.dtype)


def _bins(first: np.ndarray, last: np.ndarray, bins: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(regions, bins): where each bin begins and ends, in the float32 of ONNX Runtime and Caffe, which decides what whole pixels it
    reaches."""
    step = np.maximum(last - first + 1, 1).astype(np.float32)[:, None] / np.float32(bins)
    edges = np.arange(bins + 1, dtype=np.float32) * step
    begins, ends = np.floor(edges[:, :-1]).astype(np.int64), np.ceil(edges[:, 1:]).astype(np.int64)
    return np.clip(begins + first[:, None], 0, size), np.clip(ends + first[:, None], 0, size)


def _largest_of(xp: Any, x: Any, axis: int, begins: np.ndarray, ends: np.ndarray) -> Any:
    """The maximum of each bin along an axis of (C, H, W), of empty ones any element."""
    lasts = np.maximum(ends - 1, 0)
    best = xp.take(x, xp.asarray(lasts), axis=axis)
    for step in range(int((ends - begins).max()) - 1):
        best = xp.maximum(best, xp.take(x, xp.asarray(np.minimum(begins + step, lasts)), axis=axis))
    return best
