"""Networks as for phones and for segmentation: windows of uneven sizes, steps and pads, filters by channel and by group, transposed ones,
branches that meet, over signals, images and bodies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fuzz.net import Net, activation


def mobile(n: Net) -> list[str]:
    """Blocks of layers one behind the other, the images of some so large that a layer's rows do not stay in a cache."""
    axes, large = n.pick(1, 2, 2, 2, 2, 3), n.maybe(0.15)
    batch, channels = n.pick(1, 1, 2), n.pick(1, 2, 3, 5, 8, 16, 17, 24, 32)
    sizes = [n.pick(1, 4, 7, 8, 13, 16, 19, 24) for _ in range(axes)]
    if large and axes == 2:
        channels, sizes = n.pick(16, 24, 33, 48), [n.pick(80, 96, 113), n.pick(96, 112, 121)]
    x = n.input(n.floats(batch, channels, *sizes), 0, *range(2, 2 + axes))
    kept = []
    for _ in range(n.pick(1, 2, 3, 4)):
        x, channels = n.pick(
            _layer, _layer, _separable, _separable, _inverted, _shortcut, _branches, _transposed, _pooled, _resized, _merged, _shuffled
        )(n, x, channels, axes)  # fmt: skip
        if n.maybe(0.2):
            kept.append(x)
    return [*kept, x]


def _bent(n: Net, x: str, channels: int, axes: int) -> str:
    """Normalisation and a function, or neither."""
    if n.maybe(0.4):
        x = n(
            "BatchNormalization", x, n.positive(channels), n.floats(channels), n.floats(channels), n.positive(channels)
        )
    kind = n.pick("", "", "slopes", "swish", "other")
    if kind == "slopes":
        return str(n("PRelu", x, n.floats(channels, *[1] * axes, scale=0.25)))
    if kind == "swish" and n.program.opset >= 14:
        return str(n("HardSwish", x))
    return activation(n, x) if kind else x


def _around(n: Net, reach: int) -> tuple[int, int]:
    """How many of the elements around that a window of ``reach`` more than one sees come before and behind."""
    before = n.pick(reach // 2, reach // 2, reach // 2, 0, reach)
    return before, reach - before


def _filtered(
    n: Net,
    x: str,
    channels: int,
    out: int,
    axes: int,
    kernel: list[int],
    steps: list[int],
    group: int = 1,
    even: bool = False,
) -> str:
    """A convolution whose result is as large as the image divided by ``steps``, or ``even`` nearly so."""
    dilations = [n.pick(1, 1, 1, 2, 3) for _ in kernel]
    around = [_around(n, (k - 1) * d) for k, d in zip(kernel, dilations, strict=True)]
    if even and n.maybe(0.3):
        around = [(n.pick(before, before + 1, max(0, before - 1)), behind + n.pick(0, 1)) for before, behind in around]
    given: dict[str, Any] = {"strides": steps, "dilations": dilations, "group": group}
    if even and n.maybe(0.15):
        given |= {
            "auto_pad": n.pick("SAME_UPPER", "SAME_LOWER"),
            "dilations": [1] * axes,
        }  # onnxruntime takes no others
    else:
        given["pads"] = [before for before, _ in around] + [behind for _, behind in around]
    return str(
        n(
            "Conv",
            x,
            n.floats(out, channels // group, *kernel, scale=0.25),
            n.floats(out) if n.maybe() else None,
            **given,
        )
    )


def _kernel(n: Net, axes: int) -> list[int]:
    side = n.pick(1, 3, 3, 5)
    return [side] * axes if n.maybe(0.7) else [n.pick(1, 2, 3, 4, 5, 7) for _ in range(axes)]


def _steps(n: Net, axes: int) -> list[int]:
    return [n.pick(1, 1, 2)] * axes if n.maybe(0.8) else [n.pick(1, 2, 3) for _ in range(axes)]


def _groups(n: Net, channels: int) -> int:
    return int(n.pick(*(g for g in range(1, channels + 1) if channels % g == 0)))


def _layer(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    group = _groups(n, channels) if n.maybe(0.4) else 1
    out = group * n.pick(1, 2, 3, 8) if group > 1 else n.pick(1, 2, 5, 8, 16, 19, 32)
    y = _filtered(n, x, channels, out, axes, _kernel(n, axes), _steps(n, axes), group, even=True)
    return _bent(n, y, out, axes), out


def _separable(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    """A filter by channel and a product over channels, in either order."""
    out, times = n.pick(4, 8, 17, 24, 40), n.pick(1, 1, 1, 2)

    def by_channel(v: str, many: int) -> str:
        y = _filtered(n, v, many, many * times, axes, _kernel(n, axes), _steps(n, axes), many, even=True)
        return _bent(n, y, many * times, axes)

    def product(v: str, many: int) -> str:
        return _bent(n, _filtered(n, v, many, out, axes, [1] * axes, [1] * axes), out, axes)

    if n.maybe():
        return product(by_channel(x, channels), channels * times), out
    return by_channel(product(x, channels), out), out * times


def _inverted(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    """A residual block that is wide inside, with or without attention to channels."""
    wide, ones = channels * n.pick(1, 2, 4, 6), [1] * axes
    y = _bent(n, _filtered(n, x, channels, wide, axes, ones, ones), wide, axes)
    y = _bent(n, _filtered(n, y, wide, wide, axes, _kernel(n, axes), ones, wide), wide, axes)
    if n.maybe():
        few = max(1, wide // 4)
        weight = n("Relu", n("Conv", n("GlobalAveragePool", y), n.floats(few, wide, *ones, scale=0.25), n.floats(few)))
        weight = n(n.pick("Sigmoid", "HardSigmoid"), n("Conv", weight, n.floats(wide, few, *ones, scale=0.25)))
        y = n("Mul", *n.pick([y, weight], [weight, y]))
    y = _filtered(n, y, wide, channels, axes, ones, ones)
    return _bent(n, n("Add", *n.pick([x, y], [y, x])), channels, axes), channels


def _shortcut(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    """A block whose shortcut is a product of every other pixel, or of pooled ones."""
    steps, out, ones = _steps(n, axes), n.pick(4, 8, 16, 20), [1] * axes
    y = _bent(n, _filtered(n, x, channels, out, axes, [3] * axes, steps), out, axes)
    y = _filtered(n, y, out, out, axes, [3] * axes, ones)
    if n.maybe():
        short = _filtered(n, x, channels, out, axes, ones, steps)
    else:
        pooled = n(n.pick("AveragePool", "MaxPool"), x, kernel_shape=steps, strides=steps, ceil_mode=1)
        short = _filtered(n, pooled, channels, out, axes, ones, ones)
    return _bent(n, n("Add", y, short), out, axes), out


def _branches(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    """Several layers of the same image, one behind the other by channel, perhaps with the image itself."""
    made, total = [], 0
    for _ in range(n.pick(2, 3)):
        out, kind = n.pick(3, 4, 8, 16), n.pick("conv", "conv", "pool", "self")
        if kind == "self":
            made, total = [*made, x], total + channels
            continue
        v = x
        if kind == "pool":
            v = n(n.pick("MaxPool", "AveragePool"), x, kernel_shape=[3] * axes, pads=[1] * (2 * axes))
        kernel = [1] * axes if kind == "pool" else _kernel(n, axes)
        made.append(_bent(n, _filtered(n, v, channels, out, axes, kernel, [1] * axes), out, axes))
        total += out
    return _bent(n, n("Concat", *made, axis=1), total, axes), total


def _transposed(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    group = _groups(n, channels) if n.maybe(0.4) else 1
    each = n.pick(1, 1, 2) if group > 1 else n.pick(1, 3, 8, 17)
    kernel, steps = _kernel(n, axes), [n.pick(1, 2, 2, 3, 4) for _ in range(axes)]
    given: dict[str, Any] = {"strides": steps, "group": group, "dilations": [n.pick(1, 1, 1, 2) for _ in kernel]}
    reach = [(k - 1) * d for k, d in zip(kernel, given["dilations"], strict=True)]
    if n.maybe(0.4):
        given["output_padding"] = [n.pick(0, s - 1) for s in steps]
    if n.maybe(0.2):
        given["auto_pad"] = n.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    elif n.maybe(0.7):
        given["pads"] = [n.pick(0, r // 2) for r in (*reach, *reach)]
    bias = n.floats(group * each) if n.maybe() else None
    y = n("ConvTranspose", x, n.floats(channels, each, *kernel, scale=0.25), bias, **given)
    return _bent(n, y, group * each, axes), group * each


def _pooled(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    kind = n.pick("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool")
    kernel = [n.pick(1, 2, 3, 3, 5) for _ in range(axes)]
    given: dict[str, Any] = {"kernel_shape": kernel, "strides": [n.pick(1, 2, 3) for _ in kernel]}
    if kind == "MaxPool" and n.program.opset >= 10 and n.maybe(0.3):
        given["dilations"] = [n.pick(1, 2) for _ in kernel]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, given.get("dilations", [1] * axes), strict=True)]
    if (
        "dilations" in given
    ):  # onnxruntime leaves them out of auto_pad, and with pads windows may see nothing of a small image
        pass
    elif n.maybe(0.2):
        given["auto_pad"] = n.pick("SAME_UPPER", "SAME_LOWER")
    else:
        around = [
            (min(e // 2, k - 1),) * 2 for e, k in zip(extents, kernel, strict=True)
        ]  # so that one window fits anywhere
        around = [
            (0, k - 1) if e == k and n.maybe(0.3) else pads for pads, e, k in zip(around, extents, kernel, strict=True)
        ]
        given["pads"] = [before for before, _ in around] + [behind for _, behind in around]
    if n.program.opset >= (18 if kind == "LpPool" else 10) and n.maybe():
        given["ceil_mode"] = 1
    if kind == "AveragePool" and n.maybe():
        given["count_include_pad"] = 1
    return _bent(n, n(kind, x, **given), channels, axes), channels


def _resized(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    """An image enlarged by whole numbers, and a layer of it."""
    scales = np.array([1, 1, *(n.pick(1, 2, 2, 3) for _ in range(axes))], np.float32)
    mode = n.pick("nearest", "linear", "cubic") if axes == 2 else "nearest"
    given = {"nearest_mode": "floor"} if mode == "nearest" else {}
    way = "asymmetric" if mode == "nearest" else n.pick("asymmetric", "half_pixel", "align_corners")
    y = n("Resize", x, None, scales, mode=mode, coordinate_transformation_mode=way, **given)
    return _layer(n, y, channels, axes)


def _merged(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    """What is made of a smaller image is enlarged to the size of this one, and joined to it."""
    y = _filtered(n, x, channels, channels, axes, [3] * axes, [2] * axes)
    shape = n("Shape", x)
    sizes = n(
        "Concat",
        n("Slice", n("Shape", y), np.array([0]), np.array([2])),
        n("Slice", shape, np.array([2]), np.array([9])),
        axis=0,
    )
    given = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    y = n("Resize", _bent(n, y, channels, axes), None, None, sizes, mode="nearest", **given)
    if n.maybe():
        return _bent(n, n("Add", x, y), channels, axes), channels
    return n("Concat", x, y, axis=1), 2 * channels


def _shuffled(n: Net, x: str, channels: int, axes: int) -> tuple[str, int]:
    """Channels that become pixels, or padding of its own node before a layer."""
    if axes == 2 and n.maybe():
        out = n.pick(1, 3, 8)
        y = _filtered(n, x, channels, 4 * out, axes, [3] * axes, [1] * axes)
        return n(
            "DepthToSpace", y, blocksize=2, **({"mode": n.pick("DCR", "CRD")} if n.program.opset >= 11 else {})
        ), out
    pads = [0, 0, *(n.pick(0, 1, 2) for _ in range(axes)), 0, 0, *(n.pick(0, 1, 3) for _ in range(axes))]
    y = n("Pad", x, np.array(pads), mode=n.pick("constant", "constant", "edge"))
    group, out = (channels, channels) if n.maybe(0.4) else (1, n.pick(4, 16, 20))
    y = n(
        "Conv",
        y,
        n.floats(out, channels // group, *[min(3, 1 + math.prod(pads[-axes:]))] * axes, scale=0.25),
        group=group,
    )
    return _bent(n, y, out, axes), out
