"""Structures in which every axis has a number of its own, and axes are counted from the end: a kernel that takes one for another, or
does not look, gives something else. Windows first, then what moves or picks elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto

from onnxplug_testkit.kernels.own.node import (
    I8,
    I32,
    U8,
    F,
    N,
    OwnNode,
    S,
    bytes_of,
    ints,
    node,
    ramp,
    real,
    scalar,
    waves,
)


def uneven_nodes() -> Iterator[OwnNode]:
    """Structures of ai.onnx."""
    yield from _pools()
    yield from _convolutions()
    yield from _movements()
    yield from _quantized()
    yield from _odd()


def _odd() -> Iterator[OwnNode]:
    """An odd number of elements: of those of half a byte, the last has its byte for itself. Many, for every edge of a type."""
    x, whole = real(3, 5), "tensor(int32)"
    yield node("Cast", 13, [x], [whole], label="odd", to=TensorProto.INT32)
    many = real(15, 16)
    yield node("Cast", 13, [many], [whole], label="many", to=TensorProto.INT32)
    yield node("CastLike", 15, [many, (ints(1).astype(np.int32), whole)], [whole], label="many")
    yield node("CastLike", 15, [x, (ints(1).astype(np.int32), whole)], [whole], label="odd")
    yield node("Reshape", 14, [x, (ints(5, 3), N)], [F], label="odd")
    yield node("Transpose", 13, [x], [F], label="odd", perm=[1, 0])
    yield node("Flatten", 13, [real(3, 1, 5)], [F], label="odd", axis=2)
    yield node("Squeeze", 13, [real(3, 1, 5), (ints(1), N)], [F], label="odd")
    yield node("Unsqueeze", 13, [x, (ints(1), N)], [F], label="odd")
    yield node("Pad", 19, [x, (ints(2, 0, 0, 0), N)], [F], label="odd")
    yield node("QuantizeLinear", 19, [x, (scalar(0.5), F), (scalar(0, np.int8), I8)], [I8], label="odd")


def _pools() -> Iterator[OwnNode]:
    image = real(1, 2, 8, 10)  # sizes at which rounding up gives one window more
    window: dict[str, Any] = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 2]}
    spread: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [1, 2], "dilations": [2, 3], "pads": [0, 1, 2, 0]}
    for ceil in (0, 1):
        for inner in (0, 1):
            yield node(
                "AveragePool",
                19,
                [image],
                [F],
                label=f"window{ceil}{inner}",
                ceil_mode=ceil,
                count_include_pad=inner,
                **window,
            )
        yield node("AveragePool", 19, [image], [F], label=f"spread{ceil}", ceil_mode=ceil, **spread)
        yield node("MaxPool", 12, [image], [F, N], label=f"window{ceil}", ceil_mode=ceil, **window)
        yield node("MaxPool", 12, [image], [F], label=f"spread{ceil}", ceil_mode=ceil, **spread)
        yield node("LpPool", 18, [image], [F], label=f"window{ceil}", ceil_mode=ceil, p=1, **window)
        yield node("LpPool", 18, [image], [F], label=f"spread{ceil}", ceil_mode=ceil, p=3, **spread)
    places = (np.array([[[[1, 9], [12, 17]], [[24, 27], [30, 39]]]], np.int64), N)
    yield node("MaxUnpool", 11, [real(1, 2, 2, 2), places], [F], kernel_shape=[2, 3], strides=[3, 4], pads=[0, 1, 1, 1])


def _convolutions() -> Iterator[OwnNode]:
    steps: dict[str, Any] = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 3]}
    yield node("Conv", 11, [real(1, 4, 7, 8), real(6, 2, 2, 3), real(6)], [F], label="uneven", group=2, **steps)
    groups = [real(1, 4, 3, 4), real(4, 3, 2, 3), real(6)]
    yield node("ConvTranspose", 11, groups, [F], label="uneven", group=2, **steps)
    yield node("ConvTranspose", 11, [real(1, 2, 3, 4), real(2, 3, 2, 3), real(3)], [F], label="bias", **steps)
    more: dict[str, Any] = {"strides": [2, 3], "output_padding": [1, 2], "pads": [0, 1, 1, 0]}
    yield node("ConvTranspose", 11, [real(1, 2, 3, 4), real(2, 3, 3, 2)], [F], label="output_padding", **more)
    data, filters = (
        (bytes_of(np.uint8, 1, 4, 7, 8, high=200), U8),
        (bytes_of(np.int8, 6, 2, 2, 3, low=-20, high=20), I8),
    )
    zeros = [(scalar(3, np.uint8), U8), (scalar(2, np.int8), I8)]
    yield node("ConvInteger", 10, [data, filters, *zeros], [I32], label="uneven", group=2, **steps)
    yield node(
        "Col2Im",
        18,
        [real(1, 12, 9), (ints(5, 6), N), (ints(2, 3), N)],
        [F],
        strides=[2, 1],
        dilations=[1, 2],
        pads=[1, 0, 0, 1],
    )
    offset = real(1, 12, 4, 3, low=-0.4, high=0.4)
    yield node(
        "DeformConv",
        19,
        [real(1, 2, 7, 8), real(2, 2, 2, 3), offset],
        [F],
        strides=[2, 3],
        dilations=[1, 2],
        pads=[0, 1, 1, 2],
    )


def _movements() -> Iterator[OwnNode]:
    body = real(3, 4, 5)
    for mode in ("constant", "edge", "reflect"):
        yield node("Pad", 13, [body, (ints(-1, 0, 2, 1, -2, -1), N)], [F], label=f"cut_{mode}", mode=mode)
    yield node("Compress", 11, [body, (np.array([True, False, True, True, False]), "tensor(bool)")], [F], axis=-1)
    yield node("CumSum", 14, [body, (scalar(-1, np.int64), N)], [F], label="last")
    yield node("CumSum", 14, [body, (scalar(-2, np.int64), N)], [F], label="middle", exclusive=1, reverse=1)
    yield node("CumProd", 26, [body, (scalar(-1, np.int64), N)], [F], label="last", exclusive=1)
    for number, delta in ((0, 2), (1, -3)):
        limits = [(scalar(v, np.int64), N) for v in ((-7, 6, delta) if number == 0 else (5, -8, delta))]
        yield node("Range", 11, limits, [N], label=f"across_zero{number}")
    yield node("LpNormalization", 22, [body], [F], axis=1, p=1)
    centres = np.array([[[2, 2, 3, 2], [2.3, 2, 3, 2], [6, 1, 2, 2], [6, 1.2, 2, 2], [3, 5, 1, 6]]], np.float32)
    scores = (waves(1, 2, 5, low=0.1, high=1.0), F)
    limits = [(ints(4), N), (scalar(0.4), F), (scalar(0.5), F)]
    yield node("NonMaxSuppression", 11, [(centres, F), scores, *limits], [N], center_point_box=1, label="centres")
    yield node(
        "DFT", 20, [(ramp(2, 8, 3, 1), F), (scalar(8, np.int64), N), (scalar(-3, np.int64), N)], [F], label="axis"
    )
    yield node("Unique", 11, [body], [F, N, N, N], axis=-1)
    words = np.array(["Monday", "monday", "TUESDAY", "friday"], object)
    lower: dict[str, Any] = {"case_change_action": "LOWER", "is_case_sensitive": 1, "stopwords": ["monday"]}
    yield node("StringNormalizer", 10, [(words, S)], [S], **lower)


def _quantized() -> Iterator[OwnNode]:
    """Blocks of four along five elements: from the numbers of elements and scales alone they would be three."""
    data, scales = (bytes_of(np.uint8, 5, 3, high=200), U8), real(2, 3, low=0.1, high=0.9)
    zeros, few = (bytes_of(np.uint8, 2, 3, low=90, high=99), U8), real(5, low=0.1, high=0.9)
    yield node("DequantizeLinear", 21, [data, scales, zeros], [F], label="blocks", axis=0, block_size=4)
    yield node("DequantizeLinear", 21, [data, few], [F], label="rows", axis=-2)
    image = real(5, 3, low=-30.0, high=30.0)
    yield node("QuantizeLinear", 21, [image, scales, zeros], [U8], label="blocks", axis=0, block_size=4)
    yield node(
        "QuantizeLinear", 21, [image, few, (bytes_of(np.uint8, 5, low=90, high=99), U8)], [U8], label="rows", axis=-2
    )
    rows, columns = (bytes_of(np.uint8, 2, 4, high=200), U8), (bytes_of(np.int8, 4, 3, low=-20, high=20), I8)
    for label, zero in (("zeros", scalar(2, np.int8)), ("columns", np.array([-3, 5, 9], np.int8))):
        yield node("MatMulInteger", 10, [rows, columns, (scalar(7, np.uint8), U8), (zero, I8)], [I32], label=label)
