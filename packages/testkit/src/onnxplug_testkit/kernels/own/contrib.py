"""The kit's own structures of com.microsoft, onnxruntime's operators, for which ONNX has no data. Values are only
examples of shape and range."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxplug.contract import numpy_dtype
from onnxplug_testkit.kernels.own.node import (
    GONE,
    I8,
    I32,
    U8,
    B,
    F,
    N,
    Operand,
    OwnNode,
    S,
    bytes_of,
    flags,
    ints,
    ms,
    ramp,
    real,
    scalar,
    scale,
    waves,
)


def contrib_nodes() -> Iterator[OwnNode]:
    """All of them."""
    yield from _norms()
    yield from _fused()
    yield from _products()
    yield from _places()
    yield from _attention()
    yield from _grouped()
    yield from _moving()
    yield from _others()


def _norms() -> Iterator[OwnNode]:
    x, skip, gamma, beta, bias = real(2, 3, 8), real(2, 3, 8, low=-1, high=1), real(8, low=0.5), real(8), real(8)
    yield ms("SimplifiedLayerNormalization", [x, gamma], [F, F])
    yield ms("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], [F, "", "", F])
    yield ms("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], [F, "", F, F], "statistics")
    yield ms("SkipLayerNormalization", [x, skip, gamma, beta, bias], [F, "", "", F])
    yield ms("SkipLayerNormalization", [x, skip, gamma, beta, bias], [F, F, F, F], "statistics")
    image = real(2, 3, 4, 8)
    for last in (1, 0):
        turned = image if last else real(2, 8, 3, 4)
        for activation in (0, 1):
            more = {"groups": 4, "activation": activation, "channels_last": last}
            yield ms("GroupNorm", [turned, gamma, beta], [F], f"{last}_{activation}", **more)
        yield ms(
            "SkipGroupNorm",
            [turned, gamma, beta, real(2, 8), bias],
            [F, F],
            f"{last}",
            groups=2,
            activation=1,
            channels_last=last,
        )
    ids, segments = (bytes_of(np.int32, 2, 5, high=5), I32), flags(2, 5)
    tables = [real(10, 8), real(6, 8), real(2, 8)]
    mask = (np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32), I32)
    yield ms("EmbedLayerNormalization", [ids, segments, *tables, gamma, beta, mask], [F, I32, F])
    for dtype, text in ((np.uint8, U8), (np.int8, I8)):
        stored = [(bytes_of(dtype, *s, high=100), text) for s in ((10, 8), (6, 8), (2, 8), (8,), (8,))]
        scales = [scale(v) for v in (0.01, 0.02, 0.03, 0.04, 0.05)]
        zeros = [(scalar(v, dtype), text) for v in (12, 20, 30, 40, 9)]
        yield ms("QEmbedLayerNormalization", [ids, segments, *stored, mask, *scales, *zeros], [F, I32], text[7:-1])


def _fused() -> Iterator[OwnNode]:
    x, bias = real(2, 3, 8), real(8)
    for op_type in ("Gelu", "FastGelu", "QuickGelu"):
        yield ms(op_type, [x], [F])
    yield ms("BiasGelu", [x, bias], [F])
    yield ms("FastGelu", [x, bias], [F], "bias")
    yield ms("BiasAdd", [x, bias, real(2, 3, 8, low=-1)], [F])
    yield ms("BiasSoftmax", [x, (ramp(1, 3, 8), F)], [F], axis=2, is_inner_broadcast=0)
    yield ms("BiasSplitGelu", [x, bias], [F])
    yield ms("BiasDropout", [x, bias, real(2, 3, 8, low=-1)], [F, B])
    untrained = [(scalar(0.5), F), (scalar(0, np.bool_), B)]
    yield ms("BiasDropout", [x, bias, GONE, *untrained], [F, B], "untrained")
    image, weights = real(2, 4, 6, 6), real(6, 2, 3, 3, low=-1, high=1)
    for name, given in {
        "Relu": {},
        "LeakyRelu": {"activation_params": [0.2]},
        "Clip": {"activation_params": [-0.5, 0.5]},
    }.items():
        more = {"group": 2, "pads": [1] * 4, **given}
        yield ms("FusedConv", [image, weights, real(6), real(2, 6, 6, 6)], [F], name, activation=name, **more)
    yield ms(
        "NhwcConv",
        [real(2, 6, 6, 4), real(6, 3, 3, 2, low=-1, high=1), real(6)],
        [F],
        group=2,
        pads=[1] * 4,
        strides=[2, 1],
    )
    yield ms("GemmFastGelu", [real(3, 4), real(4, 5), real(5)], [F])
    pads = (ints(1, 0, 1, 1), N)
    yield ms("ConvTransposeWithDynamicPads", [image, real(4, 3, 3, 3), pads, real(3)], [F], strides=[2, 2])


def _products() -> Iterator[OwnNode]:
    yield ms("FusedMatMul", [real(2, 5, 4), real(2, 6, 5)], [F], "both", transA=1, transB=1, alpha=0.5)
    yield ms("FusedMatMul", [real(4, 2, 3, 5), real(2, 3, 5, 6)], [F], "batch", transBatchA=1)
    yield ms("TransposeMatMul", [real(2, 5, 4), real(2, 5, 6)], [F], transA=1)
    for name in ("Relu", "Tanh", "Sigmoid"):
        yield ms("FusedMatMulActivation", [real(2, 4, 5), real(2, 5, 6)], [F], name, activation=name)
        scaled = {"activation": name, "alpha": 0.75, "beta": 0.25}
        yield ms("FusedGemm", [real(3, 4), real(4, 5), real(5)], [F], name, elements="float double float16", **scaled)
    yield ms("FusedGemm", [real(3, 4), real(4, 5), real(5)], [F], "plain")
    for metric in ("euclidean", "sqeuclidean"):
        yield ms("CDist", [real(4, 5), real(6, 5)], [F], metric, metric=metric)
    yield ms("Inverse", [((np.eye(4) * 4 + waves(2, 3, 4, 4)).astype(np.float32), F)], [F])


def _places() -> Iterator[OwnNode]:
    for both in (0, 1):
        given = [real(8, 2), (ints(5), N), (ints(30), N)]
        yield ms("RelativePositionBias", given, [F], f"{both}", max_distance=20, is_bidirectional=both)
    gated = [real(2, 3, 8), real(8), real(1, 2, 3, 3), real(4, 6), real(6), real(1, 2, 1, 1)]
    yield ms("GatedRelativePositionBias", gated, [F], num_heads=2)
    offset = (np.array([[0, 1, 2], [3, 5, 4]], np.int32), I32)
    yield ms("GatedRelativePositionBias", [real(4, 8), *gated[1:], offset], [F], "words", num_heads=2)
    counts = (np.array([2, 4, 0], np.int32), I32)
    yield ms("RemovePadding", [real(3, 4, 2), counts], [F, I32, I32, I32])
    places = np.array([[0, 1, 4, 5], [6, 7, 2, 3], [8, 9, 10, 11]], np.int32)
    yield ms("RestorePadding", [real(6, 2), (places, I32)], [F])


def _attention() -> Iterator[OwnNode]:
    batch, length, heads, size = 2, 4, 2, 8
    width = heads * size
    x, bias = real(batch, length, width), real(3 * width)
    w, past = real(width, 3 * width, low=-0.3, high=0.3), real(2, batch, heads, 3, size)
    common = {"num_heads": heads, "unidirectional": 1}
    yield ms("Attention", [x, w, bias], [F, F], "causal", **common)
    keys = (np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32), I32)
    yield ms("Attention", [x, w, bias, keys], [F], "mask", num_heads=heads)
    yield ms("Attention", [x, w, bias, flags(batch, 7), past], [F, F], "past", **common)
    for dtype, text in ((np.uint8, U8), (np.int8, I8)):
        for held, weight in ((np.uint8, U8), (np.int8, I8)):
            given = [
                (bytes_of(dtype, batch, length, width, high=100), text),
                (bytes_of(held, width, 3 * width, high=60), weight),
                bias,
            ]
            zeros = [(scalar(28, dtype), text), (scalar(3, held), weight)]
            label, ends = f"{np.dtype(dtype).name}_{np.dtype(held).name}", (np.array([3, 2], np.int32), I32)
            yield ms("QAttention", [*given, scale(0.01), scale(0.005), ends, *zeros], [F], label, num_heads=heads)
    q, k, v = (real(batch, length, width, low=-1, high=i) for i in (1, 2, 3))
    ends = (np.array([3, 2], np.int32), I32)
    yield ms("MultiHeadAttention", [q, k, v, bias, ends], [F, F, F], "ends", **common)
    cache = [real(batch, heads, 3, size) for _ in range(2)]
    yield ms("MultiHeadAttention", [q, k, v, GONE, GONE, GONE, *cache], [F, F, F], "past", **common)
    yield ms("MultiHeadAttention", [q, k, v], [F, F, F, F], "scores", num_heads=heads)


def _grouped() -> Iterator[OwnNode]:
    heads, shared, size = 4, 2, 16
    cos, sin = real(40, size // 2, low=-1, high=1), real(40, size // 2, low=-1, high=1)
    places = (bytes_of(np.int64, 2, 5, high=19), N)
    for interleaved in (0, 1):
        turned = [real(2, 5, heads * size), places, cos, sin]
        yield ms("RotaryEmbedding", turned, [F], f"{interleaved}", interleaved=interleaved)
    qkv = [real(2, 5, n * size) for n in (heads, shared, shared)]
    sizes = [(np.array([4, 4], np.int32), I32), (scalar(5, np.int32), I32)]
    common = {"num_heads": heads, "kv_num_heads": shared}
    cache = [real(2, shared, 12, size) for _ in range(2)]
    yield ms("GroupQueryAttention", [*qkv, *cache, *sizes], [F, F, F], "prompt", tied=True, **common)
    yield ms(
        "GroupQueryAttention", [*qkv, *cache, *sizes, cos, sin], [F, F, F], "rotary", tied=True, do_rotary=1, **common
    )
    for bits, dtype, text, stored in ((8, np.int8, I8, size), (4, np.uint8, U8, size // 2)):
        one = [real(2, 1, n * size) for n in (heads, shared, shared)]
        held = [(bytes_of(dtype, 2, shared, 6, stored, high=100), text) for _ in range(2)]
        lengths = [(np.array([6, 6], np.int32), I32), (scalar(7, np.int32), I32)]
        scales = [(np.array([0.02], np.float32), F)] * 2
        kinds = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": bits}
        yield ms(
            "GroupQueryAttention",
            [*one, *held, *lengths, *[GONE] * 5, *scales],
            [F, text, text],
            f"{bits}",
            **common,
            **kinds,
        )


def _moving() -> Iterator[OwnNode]:
    x = real(2, 3, 4, 4)
    for upper in (0, 1):
        yield ms("Trilu", [x, (scalar(1, np.int64), N)], [F], f"{upper}", upper=upper)
    for axis in (1, 0, -1):
        yield ms("ExpandDims", [x, (scalar(axis, np.int32), I32)], [F], f"{axis}")
    places = np.array([[1, 2], [0, 1], [1, 0], [0, 2]])
    yield ms("GatherND", [x, (places, N)], [F])
    yield ms("GatherND", [x, (places.astype(np.int32), I32)], [F], "int32")
    yield ms("Pad", [x, (ints(0, 0, 1, 2, 0, 0, -1, 1), N), (np.array([3], np.float32), F)], [F])
    yield ms("UnfoldTensor", [real(3, 10, 4)], [F], dim=1, size=4, step=2)
    yield ms("Unique", [(np.array([2, 1, 1, 3, 4, 3], np.float32), F)], [F, N, N])


def _others() -> Iterator[OwnNode]:
    x = real(2, 3, 4, 4)
    for element in ("float", "double", "int16", "int32", "int64"):
        text, dtype = f"tensor({element})", numpy_dtype(element)
        yield ms("Range", [(scalar(v, dtype), text) for v in (10, 1, -4)], [text], element)
    yield ms("NGramRepeatBlock", [(bytes_of(np.int64, 3, 12, high=3), N), real(3, 6)], [F], ngram_size=2)
    boxes = (np.array([[0.1, 0.2, 0.8, 0.9], [-0.2, 0, 1.1, 0.7]], np.float32), F)
    for mode in ("bilinear", "nearest"):
        given = [x, boxes, flags(2), (np.array([3, 5], np.int32), I32)]
        yield ms("CropAndResize", given, [F], mode, mode=mode, extrapolation_value=0.75)
    yield ms("GridSample", [x, real(2, 3, 4, 2, low=-1.2, high=1.2)], [F])
    words = (np.array([["a b,c", "hello, world  x"], ["", "ab"]], object), S)
    for label, kind in (("separators", {"separators": [",", " "]}), ("expression", {"tokenexp": "[a-z]+"})):
        yield ms("Tokenizer", [words], [S], label, mark=1, mincharnum=1, pad_value="#", **kind)
    hashed: list[Operand] = [words]
    for element in ("int32", "uint32", "int64", "uint64", "float", "double"):
        hashed.append((bytes_of(numpy_dtype(element), 2, 3, high=99), f"tensor({element})"))
    for operand in hashed:
        yield ms("MurmurHash3", [operand], ["tensor(uint32)"], operand[1])
        yield ms("MurmurHash3", [operand], [I32], f"{operand[1]} signed", positive=0, seed=7)
