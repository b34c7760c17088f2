"""The kit's own structures of com.microsoft in which an attribute has another value than by default, or an operand is left out, that all
others leave alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import (
    GONE,
    I8,
    I32,
    U8,
    F,
    N,
    OwnNode,
    bytes_of,
    ints,
    ms,
    numbers,
    real,
    scalar,
    scale,
)

Attributes = dict[str, Any]
_PADDED = ("SAME_UPPER", "SAME_LOWER", "VALID")


def given_contrib_nodes() -> Iterator[OwnNode]:
    """Structures of com.microsoft."""
    yield from _windows()
    yield from _products()
    yield from _norms()
    yield from _attention()
    yield from _grouped()
    yield from _others()


def _windows() -> Iterator[OwnNode]:
    steps: Attributes = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 3]}
    image, weights, bias = real(1, 4, 7, 8), real(6, 2, 2, 3), real(6)
    last = real(1, 7, 8, 4)
    yield ms("FusedConv", [image, weights, bias], [F], "uneven", group=2, activation="Relu", **steps)
    yield ms("FusedConv", [image, weights], [F], "plain", group=2, activation="Tanh")
    across = real(6, 2, 3, 2)
    yield ms("NhwcConv", [last, across], [F], "uneven", group=2, **steps)
    yield ms("NhwcFusedConv", [last, weights, bias], [F], "uneven", group=2, activation="Relu", **steps)
    tuned: Attributes = {"activation": "LeakyRelu", "activation_params": [0.3], "group": 2}
    yield ms("NhwcFusedConv", [last, weights, bias], [F], "slope", **tuned)
    for padded in _PADDED:
        more: Attributes = {"auto_pad": padded, "strides": [2, 3], "group": 2}
        yield ms("FusedConv", [image, weights, bias], [F], padded, activation="Relu", **more)
        yield ms("NhwcConv", [last, across, bias], [F], padded, **more)
    data, filters = (
        (bytes_of(np.uint8, 1, 4, 7, 8, high=200), U8),
        (bytes_of(np.int8, 6, 2, 2, 3, low=-20, high=20), I8),
    )
    one, other = [scale(0.05), (scalar(9, np.uint8), U8)], [scale(0.03), (scalar(0, np.int8), I8)]
    result, start = [scale(0.4), (scalar(120, np.uint8), U8)], numbers(-9000, 7000, 300, -4000, 9000, -500)
    whole = [data, *one, filters, *other, *result, start]
    yield ms("QLinearConv", whole, [U8], "uneven", group=2, **steps)
    for padded in _PADDED:
        yield ms("QLinearConv", whole, [U8], padded, auto_pad=padded, strides=[2, 3], group=2)
    images = (bytes_of(np.uint8, 3, *data[0].shape[1:], high=200), U8)
    yield ms("QLinearConv", [images, *whole[1:]], [U8], "images", group=2, **steps)
    turned = (np.ascontiguousarray(data[0].transpose(0, 2, 3, 1)), U8)
    yield ms("QLinearConv", [turned, *whole[1:]], [U8], "last", group=2, channels_last=1, **steps)
    wide = (bytes_of(np.uint8, 3, 2, 8, 10, high=200), U8)
    turned = (np.ascontiguousarray(wide[0].transpose(0, 2, 3, 1)), U8)
    zeros = [scale(0.02), (scalar(3, np.uint8), U8), scale(0.03), (scalar(5, np.uint8), U8)]
    window: Attributes = {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 2]}
    for ceil in (0, 1):
        yield ms("QLinearAveragePool", [wide, *zeros], [U8], f"uneven{ceil}", ceil_mode=ceil, **window)
        last_of: Attributes = {"channels_last": 1, "ceil_mode": ceil, **window}
        yield ms("QLinearAveragePool", [turned, *zeros], [U8], f"last{ceil}", **last_of)
        spread: Attributes = {"kernel_shape": [3, 2], "strides": [1, 2], "dilations": [2, 3], "pads": [0, 1, 2, 0]}
        yield ms("NhwcMaxPool", [turned], [U8], f"uneven{ceil}", ceil_mode=ceil, **spread)
    for padded in _PADDED:
        same: Attributes = {"auto_pad": padded, "kernel_shape": [2, 3], "strides": [3, 2]}
        yield ms("QLinearAveragePool", [wide, *zeros], [U8], padded, **same)
        yield ms("NhwcMaxPool", [turned], [U8], padded, **same)
    yield ms("QLinearGlobalAveragePool", [turned, *zeros], [U8], "last", channels_last=1)


def _products() -> Iterator[OwnNode]:
    turned: Attributes = {"transA": 1, "transB": 1, "alpha": 0.5, "activation": "Relu"}
    yield ms("FusedGemm", [real(4, 3), real(5, 4)], [F], "turned", **turned)
    yield ms("FusedGemm", [real(4, 3), real(4, 5), real(3, 1)], [F], "turned_a", transA=1, beta=0.5, activation="Tanh")
    sloped: Attributes = {"activation": "LeakyRelu", "activation_alpha": 0.3}
    yield ms("FusedGemm", [real(3, 4), real(4, 5), real(5)], [F], "slope", **sloped)
    yield ms("FusedMatMul", [real(3, 5, 4), real(4, 3, 6)], [F], "batch_b", transBatchB=1)
    yield ms(
        "FusedMatMul",
        [real(4, 3, 5), real(6, 3, 4)],
        [F],
        "batch_both",
        transBatchA=1,
        transBatchB=1,
        transA=1,
        transB=1,
    )
    yield ms("FusedMatMulActivation", [real(2, 5, 4), real(2, 6, 5)], [F], "turned", **turned)
    yield ms("FusedMatMulActivation", [real(2, 4, 5), real(2, 5, 6)], [F], "slope", **sloped)
    yield ms("TransposeMatMul", [real(2, 5, 4), real(2, 6, 5)], [F], "turned", transA=1, transB=1, alpha=0.5)
    rows, columns = (bytes_of(np.uint8, 8, 3, high=100), U8), (bytes_of(np.int8, 5, 8, low=-30, high=30), I8)
    given = [rows, scale(0.02), (scalar(3, np.uint8), U8), columns, scale(0.03), (scalar(0, np.int8), I8)]
    yield ms("QGemm", given, [F], "turned", transA=1, transB=1, alpha=0.5)
    yield ms("GemmFastGelu", [real(3, 4), real(4, 5)], [F], "plain")
    left, right = (bytes_of(np.uint8, 3, 8, high=100), U8), (bytes_of(np.int8, 8, 5, low=-30, high=30), I8)
    yield ms("MatMulIntegerToFloat", [left, right, scale(0.02), real(5, low=0.01, high=0.1)], [F], "plain")
    yield ms("DynamicQuantizeMatMul", [real(2, 3, 8), right, scale(0.05)], [F], "plain")
    packed = (bytes_of(np.uint8, 6, 2, 8, high=255), U8)
    scales, sizes = real(6, 2, low=0.01, high=0.1), {"K": 32, "N": 6, "block_size": 16, "bits": 4}
    yield ms("MatMulNBits", [real(2, 32), packed, scales, GONE, GONE, real(6)], [F], "bias", tied=True, **sizes)
    wider = (bytes_of(np.uint8, 6, 2, 16, high=255), U8)
    yield ms("MatMulNBits", [real(2, 32), wider, scales], [F], "bytes", **{**sizes, "bits": 8})


def _norms() -> Iterator[OwnNode]:
    x, skip, gamma, beta = real(2, 3, 8), real(2, 3, 8, low=-1, high=1), real(8, low=0.5), real(8)
    rough: Attributes = {"epsilon": 0.25}
    yield ms("SimplifiedLayerNormalization", [x, real(3, 8, low=0.5)], [F, F], "rough", axis=1, **rough)
    yield ms("SkipSimplifiedLayerNormalization", [x, skip, gamma], [F], "plain", **rough)
    yield ms("SkipLayerNormalization", [x, skip, gamma], [F], "plain", **rough)
    yield ms("SkipLayerNormalization", [x, skip, gamma, beta], [F], "shift", **rough)
    yield ms("SkipLayerNormalization", [x, (skip[0][0], F), gamma, beta], [F], "rows")
    yield ms("GroupNorm", [real(2, 3, 4, 8), gamma, beta], [F], "rough", groups=2, activation=0, **rough)
    yield ms(
        "SkipGroupNorm",
        [real(2, 3, 4, 8), gamma, beta, real(2, 8), real(8)],
        [F, F],
        "rough",
        groups=2,
        activation=0,
        **rough,
    )
    yield ms("QuickGelu", [x], [F], "slope", alpha=0.8)
    ids, segments = (bytes_of(np.int32, 2, 5, high=5), I32), (bytes_of(np.int32, 2, 5, high=1), I32)
    tables, places = (
        [real(10, 8), real(6, 8), real(2, 8)],
        (np.array([[4, 0, 2, 1, 5], [0, 1, 5, 3, 2]], np.int32), I32),
    )
    more = [gamma, beta, GONE, places]
    yield ms("EmbedLayerNormalization", [ids, segments, *tables, *more], [F, "", F], "places", **rough)
    alone = [ids, GONE, *tables[:2], GONE, gamma, beta]
    yield ms("EmbedLayerNormalization", alone, [F, I32], "alone")


def _attention() -> Iterator[OwnNode]:
    batch, length, heads, size = 2, 4, 2, 8
    width = heads * size
    x, bias, w = real(batch, length, width), real(3 * width), real(width, 3 * width, low=-0.3, high=0.3)
    added = real(batch, heads, length, length)
    yield ms("Attention", [x, w, bias], [F], "scale", num_heads=heads, scale=0.7)
    yield ms("Attention", [x, w, bias, GONE, GONE, added], [F], "added", num_heads=heads)
    yield ms(
        "Attention", [x, w, bias, GONE, GONE, real(1, heads, length, length)], [F], "added_to_all", num_heads=heads
    )
    split: Attributes = {"num_heads": heads, "qkv_hidden_sizes": [8, 8, 12]}
    yield ms("Attention", [x, real(width, 28, low=-0.3, high=0.3), real(28)], [F], "widths", **split)
    q, k, v = (real(batch, length, width, low=-1, high=i) for i in (1, 2, 3))
    yield ms("MultiHeadAttention", [q, k, v], [F], "scale", num_heads=heads, scale=0.7)
    yield ms("MultiHeadAttention", [q, k, v, GONE, GONE, added], [F], "added", num_heads=heads)
    yield ms(
        "MultiHeadAttention", [q, k, v, bias, GONE, real(1, 1, length, length)], [F], "added_to_all", num_heads=heads
    )
    across = [real(batch, heads, 6, size), real(batch, heads, 6, size, low=-1)]
    yield ms("MultiHeadAttention", [q, *across], [F], "across", num_heads=heads)
    data = (bytes_of(np.uint8, batch, length, width, high=100), U8)
    weights = (bytes_of(np.int8, width, 3 * width, low=-30, high=30), I8)
    whole = [data, weights, bias, scale(0.01), scale(0.005)]
    yield ms("QAttention", whole, [F], "plain", num_heads=heads)
    zeros = [GONE, (scalar(28, np.uint8), U8), (scalar(0, np.int8), I8)]
    yield ms("QAttention", [*whole, *zeros], [F], "causal", num_heads=heads, unidirectional=1)
    past = real(2, batch, heads, 3, size)
    yield ms("QAttention", [*whole, *zeros, past], [F, F], "past", num_heads=heads, unidirectional=1)


def _grouped() -> Iterator[OwnNode]:
    heads, shared, size = 4, 2, 16
    cos, sin = real(40, size // 2, low=-1, high=1), real(40, size // 2, low=-1, high=1)
    qkv = [real(2, 5, n * size) for n in (heads, shared, shared)]
    sizes = [(np.array([4, 4], np.int32), I32), (scalar(5, np.int32), I32)]
    common: Attributes = {"num_heads": heads, "kv_num_heads": shared, "tied": True}
    cache = [real(2, shared, 12, size) for _ in range(2)]
    whole = [*qkv, *cache, *sizes]
    for label, more in _ways():
        yield ms("GroupQueryAttention", whole, [F, F, F], label, **common, **more)
    turned: Attributes = {"do_rotary": 1, "rotary_interleaved": 1}
    yield ms("GroupQueryAttention", [*whole, cos, sin], [F, F, F], "interleaved", **common, **turned)
    together = (np.concatenate([part for part, _ in qkv], -1), F)
    yield ms("GroupQueryAttention", [together, GONE, GONE, *cache, *sizes], [F, F, F], "packed", **common)
    added = real(2, 1, 5, 5)
    yield ms("GroupQueryAttention", [*whole, GONE, GONE, GONE, added], [F, F, F], "added", **common)
    yield ms("GroupQueryAttention", [*whole, *[GONE] * 4, real(heads)], [F, F, F], "sinks", **common)
    one, lengths = (
        [real(2, 1, n * size) for n in (heads, shared, shared)],
        [(np.array([6, 3], np.int32), I32), (scalar(7, np.int32), I32)],
    )
    yield ms("GroupQueryAttention", [*one, *cache, *lengths], [F, F, F], "token", **common)
    yield ms(
        "GroupQueryAttention", [*one, *cache, *lengths, cos, sin], [F, F, F], "token_rotary", do_rotary=1, **common
    )
    yield ms("GroupQueryAttention", [*one, *cache, *lengths], [F, F, F], "token_window", local_window_size=3, **common)
    places = (bytes_of(np.int64, 2, 5, high=19), N)
    parts = [real(2, 5, heads * size), places, real(40, 4, low=-1, high=1), real(40, 4, low=-1, high=1)]
    yield ms("RotaryEmbedding", parts, [F], "partly", num_heads=heads, rotary_embedding_dim=8)
    yield ms("RotaryEmbedding", [real(2, heads, 5, size), places, cos, sin], [F], "heads")
    yield ms("RotaryEmbedding", [real(2, 5, heads * size), (ints(7), N), cos, sin], [F], "offset")


def _ways() -> list[tuple[str, Attributes]]:
    return [
        ("scale", {"scale": 0.7}),
        ("softcap", {"softcap": 1.5}),
        ("window", {"local_window_size": 2}),
        ("smooth", {"smooth_softmax": 1}),
    ]


def _others() -> Iterator[OwnNode]:
    x = real(2, 3, 4, 5)
    for mode, pads in (("edge", (0, 0, 1, 2, 0, 0, 3, 1)), ("reflect", (0, 0, 1, 2, 0, 0, 2, 1))):
        yield ms("Pad", [x, (ints(*pads), N)], [F], mode, mode=mode)
    yield ms("Pad", [x, (ints(0, 0, 1, 2, 0, 0, -1, 1), N)], [F], "zeros")
    grid = real(2, 3, 4, 2, low=-1.4, high=1.4)
    for mode in ("nearest", "bicubic"):
        yield ms("GridSample", [x, grid], [F], mode, mode=mode)
    for padding in ("border", "reflection"):
        yield ms("GridSample", [x, grid], [F], padding, padding_mode=padding, align_corners=1)
    for upper in (0, 1):
        yield ms("Trilu", [x], [F], f"plain{upper}", upper=upper)
    yield ms("Range", [(scalar(3), F), (scalar(8), F)], [F], "ones")
