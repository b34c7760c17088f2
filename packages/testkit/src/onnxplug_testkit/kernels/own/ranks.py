"""The kit's own structures of ai.onnx in unusual ranks, of several images and channels, of many operands or one, and without elements:
kernels that are written for each rank, or go wrong behind the first image, are right for all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import F, N, OwnNode, ints, node, real, scalar

Attributes = dict[str, Any]


def rank_nodes() -> Iterator[OwnNode]:
    """Structures of ai.onnx."""
    yield from _many_axes()
    yield from _many_operands()
    yield from _images()
    yield from _filters()
    yield from _empty()
    limits = [(scalar(1.5), F), (scalar(-1.5), F)]
    yield node("Clip", 13, [real(3, 4), *limits], [F], label="crossed")


def _many_axes() -> Iterator[OwnNode]:
    five, six = real(2, 3, 1, 2, 4), real(2, 1, 3, 2, 2, 3)
    for op_type in ("Add", "Mul", "Sub", "Div", "Max", "Min", "Equal", "Less", "Pow"):
        result = "tensor(bool)" if op_type in ("Equal", "Less") else F
        low = 0.5 if op_type in ("Div", "Pow") else -2.0
        wide, small = real(2, 3, 1, 2, 4, low=low), real(3, 5, 1, 4, low=low)
        yield node(op_type, 13, [wide, small], [result], label="rank5")
        wide, small = real(2, 1, 3, 2, 2, 3, low=low), real(1, 2, 3, 1, 2, 1, low=low)
        yield node(op_type, 13, [wide, small], [result], label="rank6")
        yield node(op_type, 13, [real(2, 3, 4, low=low), real(2, 1, 4, low=low)], [result], label="middle")
    chosen = (np.arange(48).reshape(2, 3, 1, 2, 4) % 3 == 0, "tensor(bool)")
    yield node("Where", 9, [chosen, real(3, 5, 1, 4), real(2, 4, low=9.0, high=10.0)], [F], label="rank5")
    yield node("Transpose", 13, [five], [F], label="rank5", perm=[4, 0, 3, 1, 2])
    yield node("Transpose", 13, [six], [F], label="rank6", perm=[5, 3, 0, 2, 4, 1])
    yield node("Concat", 13, [five, real(2, 3, 5, 2, 4)], [F], label="rank5", axis=-3)
    yield node("Expand", 13, [five, (ints(2, 3, 5, 2, 4), N)], [F], label="rank5")
    yield node("Slice", 13, [five, *((ints(*v), N) for v in ((1, -1), (3, -9), (-4, 4), (1, -2)))], [F], label="rank5")
    yield node("Gather", 13, [five, (ints(2, -3), N)], [F], label="rank5", axis=-4)
    yield node("Pad", 13, [five, (ints(0, 1, 0, 2, 0, 1, 0, 3, 0, 0), N)], [F], label="rank5")
    yield from _six_axes(six)
    for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L2"):
        axes = (ints(-2, 0), N)
        version = 13 if kind == "Sum" else 18
        yield node(f"Reduce{kind}", version, [five, axes], [F], label="rank5", keepdims=0)
    for op_type in ("Softmax", "LogSoftmax", "Hardmax"):
        for axis in (-1, 1):
            yield node(op_type, 13, [five], [F], label=f"rank5_{axis}", axis=axis)
        yield node(op_type, 13, [real(2, 3, 4, 5)], [F], label="rank4", axis=-2)
    yield node("ArgMax", 13, [five], [N], label="rank5", axis=-4, keepdims=0)
    yield node("CumSum", 14, [five, (scalar(-4, np.int64), N)], [F], label="rank5")
    yield node("MatMul", 13, [real(2, 1, 3, 2, 4), real(3, 1, 4, 3)], [F], label="rank5")


def _six_axes(six: tuple[np.ndarray, str]) -> Iterator[OwnNode]:
    """More than kernels of devices have that pass sizes and strides in registers of a fixed number."""
    chosen = (np.arange(72).reshape(2, 1, 3, 2, 2, 3) % 3 == 0, "tensor(bool)")
    yield node("Where", 9, [chosen, six, real(3, 1, 1, 3, low=9.0, high=10.0)], [F], label="rank6")
    yield node("Concat", 13, [six, real(2, 1, 3, 5, 2, 3)], [F], label="rank6", axis=3)
    yield node("Expand", 13, [six, (ints(2, 4, 3, 2, 2, 3), N)], [F], label="rank6")
    yield node("Tile", 13, [six, (ints(1, 2, 1, 1, 2, 1), N)], [F], label="rank6")
    yield node("Slice", 13, [six, *((ints(*v), N) for v in ((1, -1), (3, -9), (-4, 5), (1, -2)))], [F], label="rank6")
    yield node("Gather", 13, [six, (ints(2, -3), N)], [F], label="rank6", axis=2)
    yield node("Pad", 13, [six, (ints(0, 1, 0, 2, 0, 1, 1, 0, 0, 0, 0, 2), N)], [F], label="rank6")
    yield node("ReduceSum", 13, [six, (ints(-2, 0), N)], [F], label="rank6", keepdims=0)
    yield node("Softmax", 13, [six], [F], label="rank6", axis=2)
    yield node("MatMul", 13, [six, real(2, 1, 1, 3, 4)], [F], label="rank6")


def _many_operands() -> Iterator[OwnNode]:
    for op_type in ("Sum", "Mean", "Max", "Min"):
        for count in (1, 7):
            given = [real(3, 1, low=-2 - i) if i % 2 else real(3, 4, high=2 + i) for i in range(count)]
            yield node(op_type, 13, given, [F], label=f"of{count}")
    parts = [real(2, 1 + i % 3, 3) for i in range(9)]
    yield node("Concat", 13, parts, [F], label="of9", axis=1)
    yield node("Concat", 13, parts[:1], [F], label="of1", axis=-2)
    yield node("Split", 13, [real(2, 9, 3)], [F] * 9, label="in9", axis=1)


def _images() -> Iterator[OwnNode]:
    """Two images of three channels in one, two and three dimensions."""
    for size in ((7,), (6, 5), (4, 3, 5)):
        rank = len(size)
        image, channels = real(2, 3, *size), [real(3, low=0.5), real(3)]
        said = f"images{rank}"
        window: Attributes = {
            "kernel_shape": [2, 3, 2][:rank],
            "strides": [2, 1, 1][:rank],
            "pads": [1, 0, 1][:rank] + [0, 1, 1][:rank],
        }
        yield node("MaxPool", 12, [image], [F, N], label=said, **window)
        yield node("AveragePool", 11, [image], [F], label=said, **window)
        yield node("LpPool", 18, [image], [F], label=said, **window)
        for op_type in ("GlobalAveragePool", "GlobalMaxPool"):
            yield node(op_type, 1, [image], [F], label=said)
        yield node("BatchNormalization", 15, [image, *channels, real(3), real(3, low=0.5)], [F], label=said)
        yield node("InstanceNormalization", 6, [image, *channels], [F], label=said)
        yield node("LRN", 13, [image], [F], label=said, size=3, alpha=0.5, beta=0.6, bias=1.5)
        for mode in ("nearest", "linear"):
            scales = (np.array([1, 1, 1.5, 2, 0.8][: rank + 2], np.float32), F)
            floats = "float double float16 bfloat16" if mode == "linear" else ""
            yield node(
                "Resize",
                13,
                [image, (np.array([], np.float32), F), scales],
                [F],
                label=f"{said}_{mode}",
                mode=mode,
                elements=floats,
            )
    yield node("Resize", 13, [real(2, 3, 6, 5), (np.array([], np.float32), F), (np.array([1, 1, 1.5, 2], np.float32), F)], [F],
               label="images_cubic", mode="cubic", elements="float double float16 bfloat16")  # fmt: skip
    yield node(
        "BatchNormalization", 15, [real(4, 3), real(3, low=0.5), real(3), real(3), real(3, low=0.5)], [F], label="rows"
    )
    for mode in ("linear", "nearest"):
        yield node(
            "GridSample",
            20,
            [real(2, 3, 4, 5), real(2, 3, 2, 2, low=-1.2, high=1.2)],
            [F],
            label=f"images_{mode}",
            mode=mode,
        )
    yield node("DepthToSpace", 13, [real(2, 12, 3, 4)], [F], label="images", blocksize=2, mode="CRD")
    yield node("DepthToSpace", 13, [real(2, 8, 3, 4)], [F], label="images_plain", blocksize=2)
    yield node("SpaceToDepth", 13, [real(2, 3, 4, 6)], [F], label="images", blocksize=2)


def _filters() -> Iterator[OwnNode]:
    plane = real(2, 4, 7, 6)
    for label, more in _ways():
        groups, filters = more.get("group", 1), more.pop("filters", 6)
        kernel = more.pop("kernel")
        weights = real(filters, 4 // groups, *kernel, low=-1, high=1)
        yield node("Conv", 11, [plane, weights, real(filters)], [F], label=label, **more)
        back = real(4, filters // groups, *kernel, low=-1, high=1)
        yield node("ConvTranspose", 11, [plane, back, real(filters)], [F], label=label, **more)
    for size, kernel in (((9,), (3,)), ((5, 4, 6), (2, 3, 2))):
        rank = len(size)
        more = {"strides": [2, 1, 1][:rank], "pads": [1, 0, 1][:rank] + [0, 1, 1][:rank], "dilations": [1, 1, 2][:rank]}
        for group in (1, 2):
            told: Attributes = {"group": group, **more}
            body = real(2, 4, *size)
            yield node("Conv", 11, [body, real(6, 4 // group, *kernel)], [F], label=f"rank{rank}_{group}", **told)
            yield node(
                "ConvTranspose", 11, [body, real(4, 6 // group, *kernel)], [F], label=f"rank{rank}_{group}", **told
            )


def _ways() -> list[tuple[str, Attributes]]:
    return [
        ("point_pads", {"kernel": (1, 1), "pads": [1, 0, 2, 1]}),
        ("point_strides", {"kernel": (1, 1), "strides": [2, 3]}),
        ("point_groups", {"kernel": (1, 1), "group": 2}),
        ("depth", {"kernel": (3, 2), "group": 4, "filters": 4, "pads": [1, 0, 1, 1]}),
        ("depth_doubled", {"kernel": (3, 3), "group": 4, "filters": 8}),
        ("depth_steps", {"kernel": (3, 2), "group": 4, "filters": 4, "strides": [2, 1]}),
        ("depth_spread", {"kernel": (2, 3), "group": 4, "filters": 4, "dilations": [3, 2], "pads": [2, 1, 0, 2]}),
        ("large", {"kernel": (5, 5), "pads": [2, 2, 2, 2]}),
        ("larger", {"kernel": (7, 3), "pads": [3, 1, 3, 1], "strides": [2, 2]}),
        ("row", {"kernel": (1, 5), "pads": [0, 2, 0, 2]}),
        ("column", {"kernel": (5, 1), "pads": [2, 0, 2, 0]}),
        ("square_steps", {"kernel": (3, 3), "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ]


def _empty() -> Iterator[OwnNode]:
    none = real(0, 3)
    for op_type in ("Relu", "Abs", "Exp", "Sigmoid", "Size", "Shape", "Identity", "NonZero"):
        yield node(
            op_type,
            13 if op_type != "Relu" else 14,
            [none],
            [N if op_type in ("Size", "Shape", "NonZero") else F],
            label="empty",
        )
    for op_type in ("Add", "Mul", "Sub"):
        yield node(op_type, 14, [none, real(1, 3)], [F], label="empty")
    yield node("MatMul", 13, [real(2, 0), real(0, 3)], [F], label="no_terms")
    yield node("MatMul", 13, [none, real(3, 4)], [F], label="no_rows")
    yield node("Gemm", 13, [real(2, 0), real(0, 3), real(3)], [F], label="no_terms")
    for kind in ("Sum", "Prod", "SumSquare"):
        yield node(f"Reduce{kind}", 13 if kind == "Sum" else 18, [none, (ints(0), N)], [F], label="empty", keepdims=0)
    yield node("Concat", 13, [none, real(2, 3), real(0, 3)], [F], label="empty", axis=0)
    yield node("Transpose", 13, [real(2, 0, 3)], [F], label="empty", perm=[2, 0, 1])
    yield node("Softmax", 13, [real(2, 0, 3)], [F], label="empty", axis=-1)
    yield node("Gather", 13, [real(3, 2), (np.zeros((0,), np.int64), N)], [F], label="empty", axis=0)
    yield node("Slice", 13, [real(4, 3), (ints(3), N), (ints(1), N)], [F], label="empty")
    yield node("Reshape", 14, [real(0, 4), (ints(2, 0, 3), N)], [F], label="empty", allowzero=1)
