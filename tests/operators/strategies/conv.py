"""Convolutions, pooling and other sliding windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.types import numpy_dtype
from operators.case import Case, Draw, strategy
from operators.strategies.matmul import scale, zero_point


def window(
    d: Draw, rank: int, *, dilated: bool = True, ceil: bool = False
) -> tuple[list[int], list[int], dict[str, Any]]:
    """Kernel sizes, spatial sizes they fit in, and the attributes of padding and steps."""
    kernel = [d.pick(2, 3, 1) for _ in range(rank)]
    dilations = [d.pick(1, 2) for _ in range(rank)] if dilated else [1] * rank
    extent = [(k - 1) * step + 1 for k, step in zip(kernel, dilations, strict=True)]
    sizes = [e + d.pick(2, 0, 1, 3, 4) for e in extent]
    attributes: dict[str, Any] = {}
    if d.pick(True, False):
        attributes["strides"] = [d.pick(1, 2, 3) for _ in range(rank)]
    if dilated and (max(dilations) > 1 or d.flag()):
        attributes["dilations"] = dilations
    auto = d.pick("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if auto != "NOTSET":
        attributes["auto_pad"] = auto
    elif d.pick(True, False):
        attributes["pads"] = [d.integer(0, k - 1) for _ in range(2) for k in kernel]
    if auto == "NOTSET" and ceil and d.flag():
        pads, strides = attributes.get("pads", [0] * 2 * rank), attributes.get("strides", [1] * rank)
        last = [
            -(-(n + pads[i] + pads[i + rank] - e) // strides[i]) * strides[i]
            for i, (n, e) in enumerate(zip(sizes, extent, strict=True))
        ]
        if all(at < n + pads[i] for i, (at, n) in enumerate(zip(last, sizes, strict=True))):
            attributes["ceil_mode"] = 1  # no window starts in the padding at the end, of which versions disagree
    return kernel, sizes, attributes


@strategy("Conv")
def conv(d: Draw) -> Case:
    rank = d.pick(2, 1, 3)
    kernel, sizes, attributes = window(d, rank)
    group, per_group = d.pick(1, 2, 3), d.integer(1, 2)
    out = group * d.integer(1, 2)
    if group > 1 or d.flag():
        attributes["group"] = group
    if d.flag():
        attributes["kernel_shape"] = kernel
    bias = d.optional(lambda: d.tensor((out,)))
    return Case(
        [d.tensor((d.pick(1, 2), group * per_group, *sizes)), d.tensor((out, per_group, *kernel)), bias], attributes
    )


@strategy("ConvInteger")
def conv_integer(d: Draw) -> Case:
    kernel, sizes, attributes = window(d, d.pick(2, 1))
    group = d.pick(1, 2)
    a, b = d.element("T1"), d.element("T2")
    out = group * d.integer(1, 2)
    x, w = d.tensor((1, group * 2, *sizes), a, -128, 255), d.tensor((out, 2, *kernel), b, -128, 255)
    return Case(
        [x, w, zero_point(d, (), a), zero_point(d, () if d.pick(True, False) else (out,), b)],
        {**attributes, "group": group},
    )


@strategy("QLinearConv")
def qlinear_conv(d: Draw) -> Case:
    kernel, sizes, attributes = window(d, d.pick(2, 1))
    group = d.pick(1, 2)
    out = group * d.integer(1, 2)
    a, b, c = d.element("T1"), d.element("T2"), d.element("T3")
    per = (out,) if d.flag() else ()
    inputs: list[Any] = [d.tensor((1, group * 2, *sizes), a, -100, 200), scale(d, (), "float"), d.tensor((), a, -3, 5)]
    inputs += [
        d.tensor((out, 2, *kernel), b, -100, 200),
        scale(d, per, "float"),
        d.tensor(per, b, 0, 0 if b == "int8" else 5),
    ]
    inputs += [
        np.array(16, np.float32),
        d.tensor((), c, -3, 5),
        d.optional(lambda: d.tensor((out,), "int32", -500, 500)),
    ]
    return Case([np.asarray(v) if v is not None else v for v in inputs], {**attributes, "group": group})


@strategy("ConvTranspose")
def conv_transpose(d: Draw) -> Case:
    rank = d.pick(2, 1, 3)
    kernel, sizes, attributes = window(d, rank)
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    if "auto_pad" in attributes and attributes["auto_pad"] != "VALID":
        for i in range(rank):  # the output is as long as the input times the stride, which the kernel must reach
            kernel[i] = max(kernel[i], 1 + -(-(strides[i] - 1) // dilations[i]))
    group = d.pick(1, 2)
    if group > 1 or d.flag():
        attributes["group"] = group
    if d.flag():
        attributes["output_padding"] = [d.integer(0, max(s, k) - 1) for s, k in zip(strides, dilations, strict=True)]
        if attributes.get("auto_pad", "VALID") != "VALID":
            del attributes["output_padding"]
    per_group = d.integer(1, 2)
    bias = d.optional(lambda: d.tensor((group * per_group,)))
    return Case(
        [d.tensor((d.pick(1, 2), group * 2, *sizes)), d.tensor((group * 2, per_group, *kernel)), bias], attributes
    )


@strategy("DeformConv")
def deform_conv(d: Draw) -> Case:
    kernel, sizes, attributes = window(d, 2)
    attributes.pop("auto_pad", None)
    group, offset_group = d.pick(1, 2), d.pick(1, 2)
    strides, pads = attributes.get("strides", [1, 1]), attributes.get("pads", [0, 0, 0, 0])
    dilations = attributes.get("dilations", [1, 1])
    out = [
        (s + pads[i] + pads[i + 2] - dilations[i] * (k - 1) - 1) // strides[i] + 1
        for i, (s, k) in enumerate(zip(sizes, kernel, strict=True))
    ]
    offsets = d.tensor((1, offset_group * 2 * kernel[0] * kernel[1], *out), None, -1.5, 1.5)
    bias = d.optional(lambda: d.tensor((group,)))
    mask = d.optional(lambda: d.tensor((1, offset_group * kernel[0] * kernel[1], *out), None, 0, 1))
    attributes |= {"group": group, "offset_group": offset_group}
    return Case(
        [
            d.tensor((1, 2 * group if offset_group == 1 else 4, *sizes)),
            d.tensor((group, 2 if offset_group == 1 else 4 // group, *kernel)),
            offsets,
            bias,
            mask,
        ],
        attributes,
    )


@strategy("AveragePool", "LpPool", "MaxPool")
def pool(d: Draw) -> Case:
    dilated = {"AveragePool": 19, "LpPool": 18, "MaxPool": 10}[d.op_type]
    ceil = {"AveragePool": 10, "LpPool": 18, "MaxPool": 10}[d.op_type]
    kernel, sizes, attributes = window(d, d.pick(2, 1, 3), dilated=d.version >= dilated, ceil=d.version >= ceil)
    attributes["kernel_shape"] = kernel
    if "pads" in attributes:  # windows of padding only have no value
        attributes["pads"] = [min(p, 1) if k > 1 else 0 for p, k in zip(attributes["pads"], kernel * 2, strict=True)]
    if d.op_type == "AveragePool" and d.version >= 7:
        attributes |= d.maybe(count_include_pad=d.pick(0, 1))
    if d.op_type == "LpPool":
        attributes |= d.maybe(p=d.pick(2, 1, 3) if d.version > 1 else d.pick(2.0, 1.0))
    outputs = 1
    if d.op_type == "MaxPool" and d.version >= 8:
        attributes |= d.maybe(storage_order=d.pick(0, 1))
        outputs = 2 if d.cell.parameter == "I" else d.pick(1, 2)
    low, high = (-128, 255) if "int" in d.element() else (None, None)
    return Case([d.tensor((d.pick(1, 2), d.pick(2, 1), *sizes), None, low, high)], attributes, outputs)


@strategy("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d: Draw) -> Case:
    attributes = (
        d.maybe(p=d.pick(2, 1, 3) if d.version > 1 else d.pick(2.0, 1.0)) if d.op_type == "GlobalLpPool" else {}
    )
    return Case(
        [d.tensor((d.pick(2, 1), d.pick(2, 3), *(d.integer(1, 5) for _ in range(d.pick(2, 1, 3)))))], attributes
    )


@strategy("MaxUnpool")
def max_unpool(d: Draw) -> Case:
    n, c, h, w = d.integer(1, 2), d.integer(1, 2), d.integer(1, 3), d.integer(1, 3)
    stride = d.pick(2, 3)
    total = (h * stride, w * stride)
    x = d.tensor((n, c, h, w))
    rows = np.arange(h)[:, None] * stride + d.rng.integers(0, stride, (n, c, h, w))
    columns = np.arange(w) * stride + d.rng.integers(0, stride, (n, c, h, w))
    plane = (np.arange(n)[:, None] * c + np.arange(c))[:, :, None, None]
    indices = (plane * total[0] + rows) * total[1] + columns
    attributes: dict[str, Any] = {"kernel_shape": [stride, stride], "strides": [stride, stride]}
    shape = np.array([n, c, *total], np.int64) if d.flag() else None
    return Case([x, indices.astype(np.int64), shape], attributes)


@strategy("MaxRoiPool")
def max_roi_pool(d: Draw) -> Case:
    n, c, h, w, count = d.integer(1, 2), d.integer(1, 2), d.integer(3, 6), d.integer(3, 6), d.integer(1, 3)
    x1, y1 = d.rng.integers(0, w, count), d.rng.integers(0, h, count)
    x2, y2 = x1 + d.rng.integers(0, 3, count), y1 + d.rng.integers(0, 3, count)
    rois = np.stack([d.rng.integers(0, n, count), x1, y1, np.minimum(x2, w - 1), np.minimum(y2, h - 1)], 1)
    scale_ = d.pick(1.0, 0.5)
    rois = rois / np.array([1, scale_, scale_, scale_, scale_])
    return Case(
        [d.tensor((n, c, h, w)), rois.astype(numpy_dtype(d.element()))],
        {
            "pooled_shape": [d.integer(1, 3), d.integer(1, 3)],
            **({"spatial_scale": scale_} if scale_ != 1 or d.flag() else {}),
        },
    )


@strategy("RoiAlign")
def roi_align(d: Draw) -> Case:
    n, c, h, w, count = d.integer(1, 2), d.integer(1, 2), d.integer(3, 6), d.integer(3, 6), d.integer(1, 3)
    corner = d.rng.uniform(0, 3, (count, 2))
    rois = np.concatenate([corner, corner + d.rng.uniform(0.5, 4, (count, 2))], 1).astype(numpy_dtype(d.element("T1")))
    attributes = d.maybe(
        output_height=d.integer(1, 3), output_width=d.integer(1, 3), sampling_ratio=d.pick(0, 2, 1), spatial_scale=d.pick(1.0, 0.5),
        mode=d.pick("avg", "max"),
    )  # fmt: skip
    if d.version >= 16:
        attributes |= d.maybe(coordinate_transformation_mode=d.pick("half_pixel", "output_half_pixel"))
    return Case(
        [d.tensor((n, c, h, w), d.element("T1")), rois, d.rng.integers(0, n, count).astype(np.int64)], attributes
    )


@strategy("Col2Im")
def col2im(d: Draw) -> Case:
    rank = d.pick(2, 1, 3)
    block = [d.integer(1, 3) for _ in range(rank)]
    dilations, strides = [d.pick(1, 2) for _ in block], [d.pick(1, 2) for _ in block]
    pads = [d.integer(0, 1) for _ in range(2 * rank)]
    steps = [d.integer(1, 3) for _ in block]
    image = [
        (n - 1) * s + dil * (b - 1) + 1 - pads[i] - pads[i + rank]
        for i, (n, s, dil, b) in enumerate(zip(steps, strides, dilations, block, strict=True))
    ]
    if min(image) < 1:
        pads = [0] * (2 * rank)
        image = [(n - 1) * s + dil * (b - 1) + 1 for n, s, dil, b in zip(steps, strides, dilations, block, strict=True)]
    x = d.tensor((d.integer(1, 2), d.integer(1, 2) * int(np.prod(block)), int(np.prod(steps))))
    attributes = {"dilations": dilations, "pads": pads, "strides": strides}
    return Case([x, np.array(image, np.int64), np.array(block, np.int64)], attributes)


@strategy("CausalConvWithState")
def causal_conv(d: Draw) -> Case:
    n, c, length, k = d.integer(1, 2), d.integer(1, 3), d.integer(1, 5), d.integer(1, 4)
    bias, past = d.optional(lambda: d.tensor((c,))), d.optional(lambda: d.tensor((n, c, k - 1)))
    attributes = d.maybe(activation=d.pick("none", "silu", "swish"))
    return Case([d.tensor((n, c, length)), d.tensor((c, 1, k)), bias, past], attributes, 2)
