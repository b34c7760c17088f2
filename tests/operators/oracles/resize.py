"""Resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import always, by_reference, oracle


def _axis_matrix(size: int, scale: float, mode: str) -> np.ndarray:
    """(output, input) weights of one axis, output i lying at i / scale; the nearest is the next one when shrinking, as
    the test data has it."""
    count = int(np.floor(size * scale))
    matrix = np.zeros((count, size))
    for i in range(count):
        at = i / scale
        low = min(int(at), size - 1)
        high = min(low + 1, size - 1)
        share = at - low if mode != "nearest" else float(scale < 1 and at > low)
        matrix[i, low] += 1 - share
        matrix[i, high] += share
    return matrix


@oracle(
    "Upsample",
    sentence="output_dimension = floor(input_dimension * scale); versions 1 and 7 have the scales in attributes",
    wrong=always,
)
def upsample(case: Case, x: list[Any]) -> Any:
    attributes = case.attributes
    if case.version == 1:
        scales = [1.0, 1.0, attributes["height_scale"], attributes["width_scale"]]
    else:
        scales = attributes["scales"] if "scales" in attributes else [float(v) for v in x[1]]
    return _scaled(case.inputs[0], scales, attributes.get("mode", "nearest"))


def _scaled(data: np.ndarray, scales: Sequence[float], mode: str) -> np.ndarray:
    for axis, scale in enumerate(scales):
        data = _along(data, axis, _axis_matrix(data.shape[axis], scale, mode), mode)
    return data


def _along(data: np.ndarray, axis: int, matrix: np.ndarray, mode: str) -> np.ndarray:
    """Products with (output, input) weights along an axis; selection by the greatest weight for nearest."""
    if mode == "nearest":
        return np.take(data, matrix.argmax(1), axis)
    return np.moveaxis(np.tensordot(matrix, data.astype(np.float64), (1, axis)), 0, axis)


@oracle(
    "Resize",
    sentence="each dimension is a weighted average of its neighbourhood; onnx.reference takes no bool, string or negative axes, and skips"
    " axes of size 1",
    wrong=always,
)
def resize(case: Case, x: list[Any]) -> Any:
    data, attributes = case.inputs[0], case.attributes
    mode = attributes.get("mode", "nearest")
    if case.version == 10:
        return _scaled(data, [float(v) for v in x[1]], mode)
    _, roi, scales, sizes = [*x, None, None, None][:4]
    axes = [a % data.ndim for a in attributes.get("axes", range(data.ndim))]
    way = attributes.get("coordinate_transformation_mode", "half_pixel")
    extents = [data.shape[a] for a in axes]
    if scales is None or not len(scales):
        shares = [int(size) / extent for size, extent in zip(sizes, extents, strict=True)]
        policy = attributes.get("keep_aspect_ratio_policy", "stretch")
        counts = [int(size) for size in sizes]
        if policy != "stretch":
            shares = [min(shares) if policy == "not_larger" else max(shares)] * len(axes)
            counts = [math.floor(extent * share + 0.5) for extent, share in zip(extents, shares, strict=True)]
    else:
        shares = [float(v) for v in scales]
        counts = [
            math.floor(np.float32(extent) * np.float32(share)) for extent, share in zip(extents, shares, strict=True)
        ]
    outside = np.zeros((), bool)
    for position, axis in enumerate(axes):
        ends = (
            (0.0, 1.0)
            if roi is None or way != "tf_crop_and_resize"
            else (float(roi[position]), float(roi[position + len(axes)]))
        )
        at = _coordinates(way, extents[position], counts[position], shares[position], ends)
        beyond = (at < 0) | (at > extents[position] - 1) if way == "tf_crop_and_resize" else np.zeros(at.shape, bool)
        outside = outside | beyond.reshape([-1 if i == axis else 1 for i in range(data.ndim)])
        if way == "tf_crop_and_resize" or counts[position] != extents[position] or shares[position] != 1:
            data = _along(data, axis, _weights(at, extents[position], shares[position], attributes), mode)
    return np.where(outside, attributes.get("extrapolation_value", 0.0), data) if outside.any() else data


def _coordinates(way: str, size: int, count: int, scale: float, ends: tuple[float, float]) -> np.ndarray:
    """Where each output element lies in the input."""
    i, length = np.arange(count, dtype=np.float64), size * scale  # the length is not rounded, as the test data has it
    if way == "align_corners":
        return i * (size - 1) / (length - 1) if count > 1 else i * 0
    if way == "tf_crop_and_resize":
        start, end = ends
        return (
            start * (size - 1) + i * (end - start) * (size - 1) / (count - 1)
            if count > 1
            else i + 0.5 * (start + end) * (size - 1)
        )
    if way == "half_pixel_symmetric":
        return size / 2 * (1 - count / (size * scale)) + (i + 0.5) / scale - 0.5
    if way == "pytorch_half_pixel" and count == 1:
        return i * 0
    return {"asymmetric": i / scale, "tf_half_pixel_for_nn": (i + 0.5) / scale}.get(way, (i + 0.5) / scale - 0.5)


def _weights(at: np.ndarray, size: int, scale: float, attributes: dict[str, Any]) -> np.ndarray:
    """(output, input) weights of elements at ``at``; beyond the ends the end counts. "antialias is achieved by stretching
    the resampling filter by a factor max(1, 1 / scale)"."""
    mode, matrix = attributes.get("mode", "nearest"), np.zeros((len(at), size))
    stretch = max(1.0, 1 / scale) if attributes.get("antialias") else 1.0
    pick: dict[str, Any] = {
        "round_prefer_floor": lambda v: math.ceil(v - 0.5), "round_prefer_ceil": lambda v: math.floor(v + 0.5), "floor": math.floor,
        "ceil": math.ceil,
    }  # fmt: skip
    for row, place in enumerate(at):
        low = math.floor(place)
        if mode == "nearest":
            taps = {pick[attributes.get("nearest_mode", "round_prefer_floor")](place): 1.0}
        else:
            reach = math.ceil((1 if mode == "linear" else 2) * stretch)
            near = np.arange(low - reach, low + reach + 1)
            if attributes.get("exclude_outside"):
                near = near[(near >= 0) & (near < size)]
            distance = np.abs(place - near) / stretch
            found = (
                np.maximum(0, 1 - distance)
                if mode == "linear"
                else np.where(distance < 2, _keys(distance, attributes.get("cubic_coeff_a", -0.75)), 0)
            )
            taps = dict(zip(near.tolist(), (found / found.sum()).tolist(), strict=True))
        for k, w in taps.items():
            matrix[row, min(max(k, 0), size - 1)] += w
    return matrix


@oracle(
    "GridSample",
    sentence="GridSample-16: three interpolation modes: bilinear (default), nearest and bicubic; the same under newer names",
    wrong=lambda case: case.types["T1"] == "tensor(string)",
)
def grid_sample(case: Case, x: list[Any]) -> Any:
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = case.attributes.get("mode", "linear")
    attributes = {**case.attributes, "mode": names.get(mode, mode)}
    if attributes["mode"] == "cubic" and attributes.get("padding_mode") == "border":
        return _sample_cubic_border(case, x)
    y = by_reference("GridSample", 20, x, attributes)
    return np.where(y == 0, "", y) if y.dtype == object else y


def _sample_cubic_border(case: Case, x: list[Any]) -> Any:
    """Every pixel read beyond the border is the border's, with Keys' kernel, a = -0.75."""
    data, grid = x
    y = np.zeros((*data.shape[:2], *grid.shape[1:3]))
    for n, i, j in np.ndindex(grid.shape[:3]):
        weights, places = [], []
        for axis, size in enumerate(data.shape[2:]):
            g = grid[n, i, j, 1 - axis]
            at = (g + 1) / 2 * (size - 1) if case.attributes.get("align_corners") else ((g + 1) * size - 1) / 2
            low = np.floor(at)
            near = low + np.arange(-1, 3)
            weights.append(_keys(np.abs(at - near)))
            places.append(np.clip(near, 0, size - 1).astype(int))
        y[n, :, i, j] = np.einsum("cab,a,b->c", data[n][:, places[0]][:, :, places[1]], *weights)
    return y


def _keys(distance: np.ndarray, a: float = -0.75) -> np.ndarray:
    near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
    return np.where(distance <= 1, near, far)
