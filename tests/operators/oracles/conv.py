"""Convolutions and pooling, window by window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import always, by_reference, oracle
from operators.values import element_name, limits

Window = tuple[tuple[int, ...], list[tuple[int, ...]], list[tuple[int, ...]]]
"""Output position, positions in the input it covers, and their places in the kernel."""


class Windows:
    """Where a kernel is laid over an image, from a node's attributes."""

    def __init__(self, case: Case, sizes: Sequence[int], kernel: Sequence[int]) -> None:
        attributes, rank = case.attributes, len(sizes)
        self.sizes, self.kernel = sizes, kernel
        self.strides = attributes.get("strides", [1] * rank)
        self.dilations = attributes.get("dilations", [1] * rank)
        extents = [(k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True)]
        auto = attributes.get("auto_pad", "NOTSET")
        pads = attributes.get("pads", [0] * 2 * rank) if auto == "NOTSET" else [0] * 2 * rank
        rounded = math.ceil if attributes.get("ceil_mode") else math.floor
        self.out = []
        for i, (size, extent, stride) in enumerate(zip(sizes, extents, self.strides, strict=True)):
            if auto.startswith("SAME"):
                self.out.append(-(-size // stride))
                total = max((self.out[-1] - 1) * stride + extent - size, 0)
                small = total // 2
                pads[i] = total - small if auto == "SAME_LOWER" else small
                pads[i + rank] = total - pads[i]
            else:
                count = rounded((size + pads[i] + pads[i + rank] - extent) / stride) + 1
                if (count - 1) * stride >= size + pads[i] and attributes.get("ceil_mode"):
                    count -= 1  # windows that start in the padding at the end are ignored
                self.out.append(count)
        self.pads = pads

    def __iter__(self) -> Iterator[Window]:
        for at in np.ndindex(*self.out):
            inside: list[tuple[int, ...]] = []
            taps: list[tuple[int, ...]] = []
            for tap in itertools.product(*map(range, self.kernel)):
                place = tuple(
                    a * s + t * d - p
                    for a, s, t, d, p in zip(at, self.strides, tap, self.dilations, self.pads, strict=False)
                )
                if all(0 <= p < size for p, size in zip(place, self.sizes, strict=True)):
                    inside.append(place)
                    taps.append(tap)
            yield at, inside, taps

    def padded_count(self, at: tuple[int, ...]) -> int:
        """How many taps of a window lie on the image or its padding."""
        count = 1
        for i, a in enumerate(at):
            starts = (a * self.strides[i] + t * self.dilations[i] - self.pads[i] for t in range(self.kernel[i]))
            count *= sum(s < self.sizes[i] + self.pads[i + len(self.sizes)] for s in starts)
        return count


def convolve(case: Case, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The sums of products; ``x`` (N, C, ...), ``w`` (M, C / group, ...)."""
    windows = Windows(case, x.shape[2:], w.shape[2:])
    group = case.attributes.get("group", 1)
    outs, ins = w.shape[0] // group, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], *windows.out), x.dtype)
    for at, inside, taps in windows:
        for place, tap in zip(inside, taps, strict=True):
            for g in range(group):
                part = x[(slice(None), slice(g * ins, (g + 1) * ins), *place)]
                y[(slice(None), slice(g * outs, (g + 1) * outs), *at)] += (
                    part @ w[(slice(g * outs, (g + 1) * outs), slice(None), *tap)].T
                )
    return y


def _per_channel(value: Any, rank: int) -> Any:
    return value.reshape((-1,) + (1,) * (rank - 1)) if np.ndim(value) else value


@oracle(
    "ConvInteger",
    sentence="Zero point tensor for input 'w': a scalar or a 1-D tensor, per output channel; padding is of x's zero point",
)
def conv_integer(case: Case, x: list[Any]) -> Any:
    a, w, za, zw = [*case.inputs, None, None][:4]
    a = a.astype(np.int64) - (0 if za is None else int(za))
    w = w.astype(np.int64)
    return convolve(case, a, w if zw is None else w - _per_channel(zw.astype(np.int64), w.ndim))


@oracle(
    "QLinearConv",
    sentence="requantized by y_scale and y_zero_point, the quotient rounding to nearest even; onnx.reference adds an axis to 1-D images",
    wrong=lambda case: bool(case.inputs[7] % 2),  # where it rounds ties of the sum with the zero point
)
def qlinear_conv(case: Case, x: list[Any]) -> Any:
    a, _, za, w, _, zw, _, zy, bias = [*x, None][:9]
    wide = convolve(
        case, a.astype(np.int64) - int(za), w.astype(np.int64) - _per_channel(np.asarray(zw, np.int64), w.ndim)
    )
    if bias is not None:
        wide = wide + _per_channel(bias.astype(np.int64), wide.ndim - 1)
    ratio = np.float32(case.inputs[1]) * case.inputs[4].astype(np.float32) / np.float32(case.inputs[6])
    y = np.rint(wide * _per_channel(np.asarray(ratio, np.float64), wide.ndim - 1)) + int(zy)
    return np.clip(y, *limits(element_name(case.types["T3"])))


@oracle(
    "ConvTranspose",
    sentence="output_shape[i] = stride[i] * (input_size[i] - 1) + output_padding[i] + ((kernel_shape[i] - 1) * dilations[i] + 1) - pads",
)
def conv_transpose(case: Case, x: list[Any]) -> Any:
    data, w, bias = [*x, None][:3]
    attributes, rank = case.attributes, data.ndim - 2
    kernel, sizes, group = w.shape[2:], data.shape[2:], attributes.get("group", 1)
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    extra = attributes.get("output_padding", [0] * rank)
    full = [s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, sizes, kernel, dilations, strict=True)]
    auto = attributes.get("auto_pad", "NOTSET")
    pads = list(attributes.get("pads", [0] * 2 * rank)) if auto == "NOTSET" else [0] * 2 * rank
    if auto.startswith("SAME"):
        for i in range(rank):
            total = full[i] + extra[i] - sizes[i] * strides[i]
            pads[i] = total // 2 if auto == "SAME_UPPER" else total - total // 2
            pads[i + rank] = total - pads[i]
    out = [f + e - pads[i] - pads[i + rank] for i, (f, e) in enumerate(zip(full, extra, strict=True))]
    ins, outs = w.shape[0] // group, w.shape[1]
    y = np.zeros((data.shape[0], group * outs, *out))
    for at in np.ndindex(*sizes):
        for tap in np.ndindex(*kernel):
            place = tuple(a * s + t * d - p for a, s, t, d, p in zip(at, strides, tap, dilations, pads, strict=False))
            if all(0 <= p < size for p, size in zip(place, out, strict=True)):
                for g in range(group):
                    part = (
                        data[(slice(None), slice(g * ins, (g + 1) * ins), *at)]
                        @ w[(slice(g * ins, (g + 1) * ins), slice(None), *tap)]
                    )
                    y[(slice(None), slice(g * outs, (g + 1) * outs), *place)] += part
    return y if bias is None else y + _per_channel(bias, y.ndim - 1)


@oracle(
    "DeformConv",
    sentence="use linear interpolation for fractional offset values; sampling locations outside of the padded input tensor give zero",
    wrong=always,  # it computes places in float32, and fails on images of size 1
)
def deform_conv(case: Case, x: list[Any]) -> Any:
    data, w, offset, bias, mask = [*x, None, None][:5]
    windows = Windows(case, data.shape[2:], w.shape[2:])
    taps = list(itertools.product(*map(range, w.shape[2:])))
    offset_group, rank = case.attributes["offset_group"], len(windows.out)
    offset = offset.reshape(len(data), offset_group, len(taps), rank, *windows.out)
    mask = None if mask is None else mask.reshape(len(data), offset_group, len(taps), *windows.out)
    ins, outs, shared = w.shape[1], w.shape[0] // case.attributes["group"], data.shape[1] // offset_group
    y = np.zeros((len(data), w.shape[0], *windows.out))
    for n, o, (t, tap), *at in itertools.product(
        range(len(data)), range(len(w)), enumerate(taps), *map(range, windows.out)
    ):
        home = [
            a * s + k * d - p
            for a, s, k, d, p in zip(at, windows.strides, tap, windows.dilations, windows.pads, strict=False)
        ]
        for i in range(ins):
            channel = o // outs * ins + i
            g = channel // shared
            value = _linear_sample(data[n, channel], home + offset[(n, g, t, slice(None), *at)])
            y[(n, o, *at)] += w[(o, i, *tap)] * value * (1 if mask is None else mask[(n, g, t, *at)])
    return y if bias is None else y + _per_channel(bias, y.ndim - 1)


def _linear_sample(image: np.ndarray, place: np.ndarray) -> float:
    """The image at a fractional place, zero around it."""
    low, total = np.floor(place).astype(int), 0.0
    for corner in itertools.product((0, 1), repeat=image.ndim):
        at = low + corner
        if all(0 <= a < size for a, size in zip(at, image.shape, strict=True)):
            total += float(np.prod(1 - np.abs(place - at))) * image[tuple(at)]
    return total


@oracle(
    "AveragePool",
    sentence="The output of each pooling window is divided by the number of elements (exclude pad when count_include_pad is zero)",
    # onnx.reference counts the padding in version 1, for want of the attribute, and moves windows to the middle with ceil_mode.
    wrong=lambda case: case.version == 1 or bool(case.attributes.get("ceil_mode")),
)
def average_pool(case: Case, x: list[Any]) -> Any:
    windows = Windows(case, x[0].shape[2:], case.attributes["kernel_shape"])
    y = np.zeros((*x[0].shape[:2], *windows.out))
    for at, inside, _ in windows:
        count = windows.padded_count(at) if case.attributes.get("count_include_pad") else len(inside)
        y[(..., *at)] = sum(x[0][(..., *place)] for place in inside) / max(count, 1)
    return y


@oracle(
    "LpPool",
    sentence="computing the Lp norm on all values of a subset of the input tensor according to the kernel size",
    wrong=lambda case: bool(case.attributes.get("ceil_mode")),  # onnx.reference moves windows to the middle then
)
def lp_pool(case: Case, x: list[Any]) -> Any:
    windows, p = Windows(case, x[0].shape[2:], case.attributes["kernel_shape"]), case.attributes.get("p", 2)
    y = np.zeros((*x[0].shape[:2], *windows.out))
    for at, inside, _ in windows:
        y[(..., *at)] = sum(np.abs(x[0][(..., *place)]) ** p for place in inside) ** (1 / p)
    return y


@oracle("GlobalLpPool", sentence="equivalent to LpPool with kernel size equal to the spatial dimension of input tensor")
def global_lp_pool(case: Case, x: list[Any]) -> Any:
    p = case.attributes.get("p", 2)
    return (np.abs(x[0]) ** p).sum(tuple(range(2, x[0].ndim)), keepdims=True) ** (1 / p)


@oracle(
    "GlobalMaxPool", sentence="equivalent to MaxPool with kernel size equal to the spatial dimension of input tensor"
)
def global_max_pool(case: Case, x: list[Any]) -> Any:
    return x[0].max(tuple(range(2, x[0].ndim)), keepdims=True)


def _skipping(case: Case) -> bool:
    """Whether SAME padding would be negative, where strides pass over elements; onnx.reference crops then."""
    a = case.attributes
    kernel, ones = a["kernel_shape"], [1] * len(a["kernel_shape"])
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, a.get("dilations", ones), strict=True)]
    passed_over = any(e < s for e, s in zip(extents, a.get("strides", ones), strict=True))
    return passed_over and a.get("auto_pad", "").startswith("SAME")


@oracle(
    "MaxPool",
    sentence="the indices are computed as flatten 1-D tensor; the storage order of the spatial axes is row or column major; pads are ignored",
    wrong=_skipping,
)
def max_pool(case: Case, x: list[Any]) -> Any:
    data = x[0]
    sizes = data.shape[2:]
    windows = Windows(case, sizes, case.attributes["kernel_shape"])
    y = np.zeros((*data.shape[:2], *windows.out), data.dtype)
    where = np.zeros(y.shape, np.int64)
    order = "F" if case.attributes.get("storage_order") else "C"
    for at, inside, _ in windows:
        for n, c in np.ndindex(*data.shape[:2]):
            place = max(inside, key=lambda p: data[(n, c, *p)])
            y[(n, c, *at)] = data[(n, c, *place)]
            offset = np.ravel_multi_index(place, sizes, order=order)
            where[(n, c, *at)] = (n * data.shape[1] + c) * math.prod(sizes) + offset
    return y, where


@oracle(
    "MaxRoiPool",
    sentence="RoIs are given as [[batch_id, x1, y1, x2, y2], ...]; bins are rounded outward to whole pixels (Fast R-CNN)",
)
def max_roi_pool(case: Case, x: list[Any]) -> Any:
    data, rois = x
    scale = case.attributes.get("spatial_scale", 1.0)
    height, width = case.attributes["pooled_shape"]
    y = np.zeros((len(rois), data.shape[1], height, width))
    for r, (image, *box) in enumerate(rois):
        x1, y1, x2, y2 = (math.floor(v * scale + 0.5) for v in box)
        tall, wide = max(y2 - y1 + 1, 1) / height, max(x2 - x1 + 1, 1) / width
        for i, j in np.ndindex(height, width):
            rows = slice(y1 + math.floor(i * tall), min(y1 + math.ceil((i + 1) * tall), data.shape[2]))
            columns = slice(x1 + math.floor(j * wide), min(x1 + math.ceil((j + 1) * wide), data.shape[3]))
            part = data[int(image), :, rows, columns]
            y[r, :, i, j] = part.max((1, 2)) if part.size else 0
    return y


@oracle(
    "RoiAlign",
    sentence="RoiAlign-10 has no half pixel offset: it is version 16 with coordinate_transformation_mode output_half_pixel",
)
def roi_align(case: Case, x: list[Any]) -> Any:
    return by_reference("RoiAlign", 16, x, {**case.attributes, "coordinate_transformation_mode": "output_half_pixel"})
