"""The kit's own structures of ai.onnx in which an attribute has another value than by default, or an operand is left out, that all others
leave alone: without them a kernel that does not know it is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto

from onnxplug_testkit.kernels.own.node import (
    GONE,
    I8,
    I32,
    U8,
    F,
    H,
    N,
    Operand,
    OwnNode,
    S,
    bytes_of,
    ints,
    node,
    real,
    scalar,
    waves,
)

Attributes = dict[str, Any]
D, E8 = "tensor(double)", "tensor(float8e4m3fn)"


def given_nodes() -> Iterator[OwnNode]:
    """Structures of ai.onnx."""
    yield from _types()
    yield from _constants()
    yield from _regions()
    yield from _quantized()
    yield from _reductions()
    yield from _left_out()
    yield from _texts()
    yield from _told()


def _types() -> Iterator[OwnNode]:
    for name in ("BlackmanWindow", "HammingWindow", "HannWindow"):
        yield node(name, 17, [(scalar(9, np.int64), N)], [D], output_datatype=TensorProto.DOUBLE)
    bank = [(scalar(v, t), text) for v, t, text in (
        (8, np.int64, N), (16, np.int64, N), (8192, np.int64, N), (0, np.float32, F), (4096, np.float32, F),
    )]  # fmt: skip
    yield node("MelWeightMatrix", 17, bank, [D], output_datatype=TensorProto.DOUBLE)
    told: dict[str, Attributes] = {
        "RandomNormal": {"mean": 40.0, "scale": 2.0},
        "RandomUniform": {"low": -7.0, "high": -5.0},
    }
    for name, given in told.items():
        yield node(name, 1, [], [F], label="moved", shape=[20, 30], seed=3.0, **given)
        yield node(name, 1, [], [D], label="double", shape=[20, 30], seed=3.0, dtype=TensorProto.DOUBLE)
        yield node(f"{name}Like", 1, [real(20, 30)], [F], label="moved", seed=3.0, **given)
    chances = np.repeat(np.log(np.array([[0.1, 0.6, 0.3]], np.float32)), 2, 0)
    yield node("Multinomial", 7, [(chances, F)], [N], label="int64", sample_size=300, dtype=TensorProto.INT64, seed=7.0)
    yield node("Bernoulli", 15, [real(20, 30, low=0.2, high=0.4)], [F], label="many", seed=3.0)
    for mode in ("down", "nearest"):
        powers = (waves(3, 5, low=0.1, high=9.0), F)
        yield node("Cast", 24, [powers], ["tensor(float8e8m0)"], label=mode, to=TensorProto.FLOAT8E8M0, round_mode=mode)
    yield node("GlobalLpPool", 2, [real(2, 3, 4, 5)], [F], label="sums", p=1)


def _constants() -> Iterator[OwnNode]:
    told: list[tuple[str, Attributes]] = [
        (N, {"value_int": 7}),
        (N, {"value_ints": [3, -1]}),
        (F, {"value_float": 1.5}),
        (F, {"value_floats": [1.5, 2.5]}),
        (S, {"value_string": "a b"}),
        (S, {"value_strings": ["a", "b"]}),
    ]
    for text, given in told:
        yield node("Constant", 13, [], [text], **given)


def _regions() -> Iterator[OwnNode]:
    image = real(1, 2, 9, 9)
    boxes = (np.array([[0, 0, 0, 9, 7], [0, 3, 4, 15, 16]], np.float32), F)
    yield node("MaxRoiPool", 1, [image, boxes], [F], label="scaled", pooled_shape=[2, 3], spatial_scale=0.5)
    batch = (ints(0, 1), N)
    for mode in ("avg", "max"):
        given = [real(2, 2, 9, 9), (boxes[0][:, 1:], F), batch]
        more: Attributes = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.5}
        yield node("RoiAlign", 10, given, [F], label=f"scaled_{mode}", mode=mode, **more)
    image = real(2, 3, 4, 5, low=0.1)
    for axes in ([0, 2], [1], [-1, -2]):
        yield node("MeanVarianceNormalization", 13, [image], [F], label=f"axes{'_'.join(map(str, axes))}", axes=axes)
    offset, mask = real(1, 16, 3, 4, low=-0.4, high=0.4), real(1, 8, 3, 4, low=0.1, high=1.0)
    moved = [real(1, 4, 4, 5), real(6, 2, 2, 2), offset, real(6), mask]
    yield node("DeformConv", 19, moved, [F], label="groups", group=2, offset_group=2)
    for version in (7, 9):
        scales = [(np.array([1, 1, 2, 1.5], np.float32), F)] if version == 9 else []
        told: Attributes = {"mode": "linear"} | ({"scales": [1.0, 1.0, 2.0, 1.5]} if version == 7 else {})
        elements = "float double float16 bfloat16"
        yield node("Upsample", version, [real(1, 2, 3, 4), *scales], [F], label="linear", elements=elements, **told)
    yield node("Crop", 1, [real(2, 3, 6, 7)], [F], label="scale", border=[1, 2, 3, 0], scale=[2, 3])


def _quantized() -> Iterator[OwnNode]:
    steps: Attributes = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 3], "group": 2}
    data, filters = (
        (bytes_of(np.uint8, 1, 4, 7, 8, high=200), U8),
        (bytes_of(np.int8, 6, 2, 2, 3, low=-20, high=20), I8),
    )
    one, other = [(scalar(0.05), F), (scalar(9, np.uint8), U8)], [(scalar(0.03), F), (scalar(2, np.int8), I8)]
    result = [(scalar(0.4), F), (scalar(120, np.uint8), U8)]
    yield node("QLinearConv", 10, [data, *one, filters, *other, *result], [U8], label="uneven", **steps)
    columns = [(waves(6, low=0.01, high=0.05), F), (np.zeros(6, np.int8), I8)]
    yield node("QLinearConv", 10, [data, *one, filters, *columns, *result], [U8], label="columns", **steps)
    for padded in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        more: Attributes = {"auto_pad": padded, "strides": [2, 3], "group": 2}
        whole = [data, *one, filters, *other, *result]
        yield node("QLinearConv", 10, whole, [U8], label=padded.lower(), **more)
        yield node("ConvInteger", 10, [data, filters, one[1]], [I32], label=padded.lower(), **more)
    yield node("ConvInteger", 10, [data, filters], [I32], label="no_zeros", group=2)
    rows, square = (bytes_of(np.uint8, 2, 4, high=200), U8), (bytes_of(np.int8, 4, 3, low=-20, high=20), I8)
    yield node("MatMulInteger", 10, [rows, square], [I32], label="no_zeros")
    halves = [(bytes_of(np.uint8, 3, 4, high=200), U8), (scalar(0.25), F), (scalar(7, np.uint8), U8)]
    yield node("DequantizeLinear", 23, halves, [H], label="half", output_dtype=TensorProto.FLOAT16)
    wide = (waves(3, 5, low=-900, high=900), F)
    told: Attributes = {"saturate": 0, "output_dtype": TensorProto.FLOAT8E4M3FN}
    yield node("QuantizeLinear", 21, [wide, (scalar(1.5), F)], [E8], label="unsaturated", **told)


def _reductions() -> Iterator[OwnNode]:
    body = real(2, 3, 4, low=0.5)
    kinds = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    for kind in kinds:
        name = f"Reduce{kind}"
        axes_since = 13 if kind == "Sum" else 18
        yield node(name, 11, [body], [F], label="attribute", axes=[-2], keepdims=0)
        for version in (11, axes_since):
            yield node(name, version, [body], [F], label=f"all{version}", keepdims=0)
            yield node(name, version, [body], [F], label=f"all_kept{version}")
        for kept in (0, 1):
            idle: Attributes = {"noop_with_empty_axes": 1, "keepdims": kept}
            yield node(name, axes_since, [body, (ints(), N)], [F], label=f"idle{kept}", **idle)
        yield node(name, axes_since, [body, (ints(), N)], [F], label="empty", keepdims=0)


def _left_out() -> Iterator[OwnNode]:
    x = real(4, 5)
    items = [waves(2, 3), waves(2, 3, low=-1), waves(2, 3, high=1)]
    for axis in (0, -1, 1):
        stacked: Attributes = {"axis": axis, "new_axis": 1}
        yield node("ConcatFromSequence", 11, [(items, f"seq({F})")], [F], label=f"new{axis}", **stacked)
    yield node("SequenceErase", 11, [(items, f"seq({F})")], [f"seq({F})"], label="last")
    corners = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.05, 1, 3]]], np.float32)
    scores = (np.array([[[0.9, 0.75, 0.6, 0.95]]], np.float32), F)
    most, overlap, least = (ints(3), N), (scalar(0.5), F), (scalar(0.7), F)
    boxes = [(corners, F), scores]
    left: dict[str, list[Operand]] = {
        "plain": [],
        "count": [most],
        "overlap": [most, overlap],
        "score": [most, GONE, least],
        "all": [most, overlap, least],
    }
    for label, given in left.items():
        yield node("NonMaxSuppression", 11, [*boxes, *given], [N], label=f"left_{label}")
    yield node("DynamicSlice", 1, [x, (ints(1, 0), N), (ints(3, 2), N)], [F], label="no_axes")
    cache, added = real(2, 3, 6, 4), real(2, 3, 2, 4)
    yield node("TensorScatter", 24, [cache, added], [F], label="from_the_start")
    rows = (ints(1, 3), N)
    yield node("TensorScatter", 24, [real(2, 6, 3, 4), real(2, 2, 3, 4), rows], [F], label="axis", axis=1)
    yield node("SimplifiedLayerNormalization", 1, [real(2, 3, 4), real(3, 4)], [F, F], axis=1, epsilon=0.25)
    yield node("Swish", 24, [x], [F], alpha=0.4)
    signal = [real(1, 16, 1), (scalar(4, np.int64), N), real(8, low=0.2, high=1.0)]
    yield node("STFT", 17, signal, [F], label="both_sides", onesided=0)
    channels = [real(3, low=0.5), real(3), real(3), real(3, low=0.5)]
    told: Attributes = {"training_mode": 1, "momentum": 0.3}
    yield node("BatchNormalization", 15, [real(2, 3, 4, 5), *channels], [F, F, F], label="momentum", **told)


def _texts() -> Iterator[OwnNode]:
    words = (np.array([["a", "b", "c", "a"], ["b", "c", "x", "b"]], object), S)
    pool: Attributes = {
        "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1, "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2, 3],
        "pool_strings": ["a", "b", "a", "b", "b", "c"], "elements": "string",
    }  # fmt: skip
    for mode in ("TF", "IDF", "TFIDF"):
        weighted: Attributes = {"mode": mode, "weights": [0.5, 2.0, 3.0, -1.5]}
        yield node("TfIdfVectorizer", 9, [words], [F], label=f"weighted_{mode.lower()}", **pool, **weighted)


def _told() -> Iterator[OwnNode]:
    """What repeats what others say, and slopes of one activation."""
    sloped: Attributes = {"activations": ["Affine"], "activation_alpha": [0.3], "activation_beta": [0.4]}
    yield node("RNN", 7, [real(3, 2, 4), real(1, 5, 4), real(1, 5, 5)], [F, F], label="sloped", hidden_size=5, **sloped)
    data, filters = (bytes_of(np.uint8, 1, 2, 5, 6, high=90), U8), (bytes_of(np.uint8, 3, 2, 2, 3, high=30), U8)
    yield node("ConvInteger", 10, [data, filters], ["tensor(int32)"], label="told", kernel_shape=[2, 3])
    parts = [scalar(v, t) for v, t in ((0.05, np.float32), (9, np.uint8), (0.03, np.float32), (4, np.uint8))]
    zero = [(scalar(0.9), F), (scalar(7, np.uint8), U8)]
    whole = [data, (parts[0], F), (parts[1], U8), filters, (parts[2], F), (parts[3], U8), *zero]
    yield node("QLinearConv", 10, whole, [U8], label="told", kernel_shape=[2, 3])
