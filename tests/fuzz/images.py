"""Networks of images: blocks of convolutions, normalisation and pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.net import Net, activation, mean, norm


def image(n: Net) -> list[str]:
    """Convolutions, normalisation, pooling and what goes around them, of one or several images."""
    batch, channels, height, width = (
        n.pick(1, 2, 3),
        n.pick(1, 3, 4, 8, 16),
        n.pick(5, 8, 16, 17),
        n.pick(6, 8, 15, 16, 24),
    )
    x = n.input(n.floats(batch, channels, height, width), 0, 2, 3)
    kept = []
    for _ in range(n.pick(1, 2, 3, 4)):
        x, channels = n.pick(
            _conv, _conv, _conv, _pointwise_and_add, _squeeze_excite, _pool, _concat, _resize, _shuffle, _channel_norm
        )(n, x, channels)
        if n.maybe(0.3):
            kept.append(x)
    if n.maybe():
        pooled = n(n.pick("GlobalAveragePool", "GlobalMaxPool"), x)
        flat = n.pick(
            lambda: n("Flatten", pooled),
            lambda: n("Reshape", pooled, np.array([0, -1])),
            lambda: n("Squeeze", pooled, np.array([2, 3])),
        )()
        x = n("Gemm", flat, n.floats(n.pick(3, 10, 17), channels), None, transB=1)
        x = n("Softmax", x) if n.maybe() else x
    return [*kept, x]


def _conv(n: Net, x: str, channels: int) -> tuple[str, int]:
    kernel, group = n.pick(1, 3, 3, 5, 2), n.pick(1, 1, channels, 2 if channels % 2 == 0 else 1)
    out = n.pick(1, 2, 4, 8, 16, 17, 32) if group == 1 else channels * n.pick(1, 2)
    attributes: dict[str, Any] = {"strides": [n.pick(1, 1, 2)] * 2, "group": group}
    if n.maybe(0.2):
        attributes["auto_pad"] = n.pick("SAME_UPPER", "SAME_LOWER")
    else:
        attributes["pads"] = [n.pick(0, 1, kernel // 2) for _ in range(4)] if n.maybe(0.3) else [kernel // 2] * 4
        attributes["dilations"] = [n.pick(1, 1, 2)] * 2
        if kernel > 3 or attributes["dilations"][0] > 1:
            attributes["pads"] = [kernel] * 4
    weights = [n.floats(out, channels // group, kernel, kernel, scale=0.25), n.floats(out) if n.maybe() else None]
    if n.maybe(0.1):
        weights = [n("Mul", weights[0], np.array(2, n.element)), *weights[1:]]
    y = n("Conv", x, *weights, **attributes)
    if n.maybe(0.3):
        y = n("BatchNormalization", y, n.positive(out), n.floats(out), n.floats(out), n.positive(out))
    return activation(n, y), out


def _pointwise_and_add(n: Net, x: str, channels: int) -> tuple[str, int]:
    y = n("Conv", activation(n, x), n.floats(channels, channels, 1, 1, scale=0.25), n.floats(channels))
    return activation(n, n("Add", *(n.pick([x, y], [y, x])))), channels


def _squeeze_excite(n: Net, x: str, channels: int) -> tuple[str, int]:
    pooled = n("GlobalAveragePool", x) if n.maybe() else mean(n, x, 2, 3)
    small = activation(n, n("Conv", pooled, n.floats(2, channels, 1, 1, scale=0.25)))
    return n("Mul", x, n(n.pick("Sigmoid", "HardSigmoid"), n("Conv", small, n.floats(channels, 2, 1, 1)))), channels


def _pool(n: Net, x: str, channels: int) -> tuple[str, int]:
    kind = n.pick("MaxPool", "AveragePool")
    more = {"count_include_pad": 1} if kind == "AveragePool" and n.maybe() else {}
    return n(kind, x, kernel_shape=[n.pick(2, 3)] * 2, strides=[n.pick(1, 2)] * 2, pads=[1] * 4, **more), channels


def _concat(n: Net, x: str, channels: int) -> tuple[str, int]:
    if channels % 2 == 0 and n.maybe():
        halves = n("Split", x, np.array([channels // 2] * 2), outputs=2, axis=1)
        return n("Concat", activation(n, halves[0]), halves[1], halves[0], axis=1), channels * 3 // 2
    return n("Concat", x, activation(n, x), axis=1), channels * 2


def _resize(n: Net, x: str, channels: int) -> tuple[str, int]:
    mode = n.pick("nearest", "linear")
    way = n.pick("asymmetric", "half_pixel", "align_corners")
    factors = (2.0, 3.0) if way == "align_corners" else (2.0, 1.5, 0.5)  # onnxruntime aligns the whole part of a size
    scales = np.array([1, 1, n.pick(*factors), n.pick(2.0, 3.0)], np.float32)
    return n(
        "Resize",
        x,
        None,
        scales,
        mode=mode,
        coordinate_transformation_mode=way,
        **({"nearest_mode": "floor"} if mode == "nearest" else {}),
    ), channels


def _shuffle(n: Net, x: str, channels: int) -> tuple[str, int]:
    if channels % 2:
        return n("Pad", x, np.array([0, 0, 1, 0, 0, 0, 0, 2]), mode=n.pick("constant", "reflect", "edge")), channels
    if n.maybe():
        shape = n("Shape", x)
        sizes = [n("Slice", shape, np.array([a]), np.array([b])) for a, b in ((0, 1), (2, 4))]
        y = n(
            "Transpose",
            n("Reshape", x, n("Concat", sizes[0], np.array([2, channels // 2]), sizes[1], axis=0)),
            perm=[0, 2, 1, 3, 4],
        )
        return n("Reshape", y, n("Concat", sizes[0], np.array([channels]), sizes[1], axis=0)), channels
    return n("Transpose", activation(n, n("Transpose", x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2]), channels


def _channel_norm(n: Net, x: str, channels: int) -> tuple[str, int]:
    if n.maybe():
        return n("InstanceNormalization", x, n.positive(channels), n.floats(channels)), channels
    y = n("Transpose", x, perm=[0, 2, 3, 1])
    return n("Transpose", norm(n, y, channels), perm=[0, 3, 1, 2]), channels
