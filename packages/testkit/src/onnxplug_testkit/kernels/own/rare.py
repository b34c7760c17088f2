"""Structures that are seldom met: tensors without dimensions or elements, factors of nothing, places along the first axis, indices of
32 bits, limits of zero.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxplug_testkit.kernels.own.node import I8, I32, B, F, N, OwnNode, bytes_of, ints, node, numbers, real, scalar

_ONE, _WHOLE = (scalar(1.5), F), (scalar(-2.5), F)


def rare_nodes() -> Iterator[OwnNode]:
    """Structures of ai.onnx."""
    yield from _without_dimensions()
    yield from _axes()
    yield from _places()
    yield from _settings()


def _without_dimensions() -> Iterator[OwnNode]:
    yield node("Cast", 13, [_ONE], [I32], label="scalar", to=6)
    yield node("Cast", 13, [real(0, 3)], [I32], label="empty", to=6)
    yield node("Add", 14, [_ONE, _WHOLE], [F], label="scalars")
    yield node("Add", 14, [real(4), real(2, 3, 4)], [F], label="fewer_left")
    yield node("Clip", 13, [_WHOLE, (scalar(-1.0), F), (scalar(1.0), F)], [F], label="scalar")
    yield node("ReduceSum", 13, [_ONE], [F], label="scalar")
    flag, flags = (scalar(1, np.bool_), B), (bytes_of(np.int8, 3, 4, high=1).astype(bool), B)
    yield node("Where", 16, [flag, _ONE, _WHOLE], [F], label="scalars")
    yield node("Where", 16, [flag, real(3, 4), real(4)], [F], label="one_condition")
    yield node("Where", 16, [flags, _ONE, real(3, 1)], [F], label="one_value")
    yield node("Reshape", 14, [real(1, 1), (np.zeros(0, np.int64), N)], [F], label="to_scalar")
    yield node("Identity", 14, [_ONE], [F], label="scalar")


def _axes() -> Iterator[OwnNode]:
    deep = real(2, 1, 3, 1, 2, 1, 2)
    yield node("Transpose", 13, [deep], [F], label="deep", perm=[6, 4, 2, 0, 5, 3, 1])
    yield node("ReduceSum", 13, [real(3, 4, 5), (ints(0, -1), N)], [F], label="ends")
    yield node("Softmax", 13, [real(3, 1, 4)], [F], label="of_one", axis=1)
    yield node("Softmax", 13, [real(7)], [F], label="row")
    yield node("Pad", 13, [real(5), (ints(2, 1), N), (scalar(0.5), F)], [F], label="row")
    yield node("ArgMax", 13, [real(6)], [N], label="row")
    yield node("Flatten", 13, [real(2, 3, 4)], [F], label="all", axis=3)
    yield node("TopK", 11, [real(4, 3, 2), (ints(2), N)], [F, N], label="first_axis", axis=0)
    yield node("TopK", 11, [real(3, 5), (ints(5), N)], [F, N], label="all")
    yield node("LayerNormalization", 17, [real(3, 4, 1), real(1), real(1)], [F], label="of_one")
    yield node(
        "OneHot",
        11,
        [(ints(0, 2, -1), N), (scalar(3, np.int64), N), (np.array([2, 5], np.float32), F)],
        [F],
        label="first",
        axis=0,
    )
    bytes_ = (bytes_of(np.int8, 5, 3, low=-90, high=90), I8)
    yield node("DequantizeLinear", 13, [bytes_, real(5, low=0.1, high=0.9)], [F], label="first", axis=0)
    yield node("Expand", 13, [real(2, 3, 4), (ints(3, 1), N)], [F], label="fewer")


def _places() -> Iterator[OwnNode]:
    body = real(3, 4, 5)
    yield node("Gather", 13, [body, numbers(1, -1, 0)], [F], label="of_32_bits", axis=1)
    yield node("Gather", 13, [real(6), (bytes_of(np.int64, 2, 2, 2, low=-6, high=5), N)], [F], label="cube")
    limits = [numbers(*pair) for pair in ((3, 0), (-9, 4), (1, 2), (-1, 2))]
    yield node("Slice", 13, [body, *limits], [F], label="of_32_bits")
    yield node("Slice", 13, [body, (ints(2), N), (ints(2), N)], [F], label="of_nothing")
    where = (np.array([[1, 0, -1], [0, 2, 1]], np.int64), N)
    yield node("ScatterElements", 18, [real(2, 4), where, real(2, 3)], [F], label="last", axis=-1)
    yield node(
        "GatherND",
        13,
        [real(2, 3, 4, 5), (bytes_of(np.int64, 2, 3, 2, 1, high=3), N)],
        [F],
        label="two_batches",
        batch_dims=2,
    )
    yield node(
        "Unique",
        11,
        [(np.array([[2, 1], [0, 3], [2, 1]], np.float32), F)],
        [F, N, N, N],
        label="as_met",
        axis=0,
        sorted=0,
    )
    boxes, scores = real(1, 5, 4, low=0.0, high=1.0), real(1, 2, 5, low=0.1, high=1.0)
    yield node("NonMaxSuppression", 11, [boxes, scores, (ints(0), N)], [N], label="none")


def _settings() -> Iterator[OwnNode]:
    image = real(1, 2, 7, 6)
    yield node("Conv", 11, [image, real(3, 2, 3, 2)], [F], label="valid", auto_pad="VALID", strides=[3, 2])
    product = [real(3, 4), real(4, 5), real(5)]
    yield node("Gemm", 13, product, [F], label="no_alpha", alpha=0.0)
    yield node("Gemm", 13, product, [F], label="no_beta", beta=0.0)
    yield node("Einsum", 12, [real(2, 3), real(3, 4), real(4, 2)], [F], label="three", equation="ij,jk,kl->il")
