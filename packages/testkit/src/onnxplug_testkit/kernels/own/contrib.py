"""The kit's own structures of com.microsoft, onnxruntime's operators, for which ONNX has no data.

Values are only examples of shape and range; scales keep quantized results inside their types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug.contract import numpy_dtype
from onnxplug_testkit.kernels.own.node import (
    GONE,
    I8,
    I32,
    MS,
    U8,
    B,
    F,
    N,
    OwnNode,
    S,
    bytes_of,
    ints,
    node,
    ramp,
    scalar,
    waves,
)

Operand = tuple[Any, str]


def ms(op_type: str, inputs: list[Operand], outputs: list[str], label: str = "", **attributes: Any) -> OwnNode:
    """A node of com.microsoft, whose operators all have version 1."""
    return node(op_type, 1, inputs, outputs, MS, label, **attributes)


def flags(*shape: int) -> Operand:
    """A mask of zeros and ones, the first of each row one."""
    found = bytes_of(np.int32, *shape, high=1)
    found[..., 0] = 1
    return found, I32


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> Operand:
    """A tensor of floats."""
    return waves(*shape, low=low, high=high), F


def scale(value: float) -> Operand:
    """A quantization scale."""
    return scalar(value), F


def contrib_nodes() -> Iterator[OwnNode]:
    """All of them."""
    yield from _norms()
    yield from _fused()
    yield from _products()
    yield from _integer_products()
    yield from _places()
    yield from _elementwise_quantized()
    yield from _windows_quantized()
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
    yield ms("NhwcConv", [real(2, 6, 6, 4), weights, real(6)], [F], group=2, pads=[1] * 4, strides=[2, 1])
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


def _integer_products() -> Iterator[OwnNode]:
    pairs: list[tuple[Any, Any]] = [(np.int16, np.int16), (np.uint16, np.uint16)]
    for left, right in pairs:
        texts = [f"tensor({np.dtype(t).name})" for t in (left, right)]
        given = [(bytes_of(left, 3, 4, high=30), texts[0]), (bytes_of(right, 4, 2, high=30), texts[1])]
        result = "tensor(uint32)" if left == np.uint16 else I32
        yield ms("MatMulInteger16", given, [result], np.dtype(left).name)
    pairs = [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)]
    for left, right in pairs:
        a, b = f"tensor({np.dtype(left).name})", f"tensor({np.dtype(right).name})"
        label = f"{np.dtype(left).name}_{np.dtype(right).name}"
        matrix, weights = (bytes_of(left, 3, 8, high=100), a), (bytes_of(right, 8, 5, high=60), b)
        zeros = [(scalar(3, left), a), (bytes_of(right, 5, high=4), b)]
        columns = real(5, low=0.01, high=0.1)
        yield ms("MatMulIntegerToFloat", [matrix, weights, scale(0.02), columns, *zeros, real(5)], [F], label)
        if left == np.uint8:
            yield ms("DynamicQuantizeMatMul", [real(2, 3, 8), weights, columns, zeros[1], real(5)], [F], label)
        quantized = [matrix, scale(0.02), zeros[0], weights, scale(0.03), (scalar(5, right), b)]
        c = (bytes_of(np.int32, 3, 5, low=-500, high=500), I32)
        yield ms("QGemm", quantized, [F], label, alpha=0.75)
        yield ms("QGemm", [*quantized, c, scale(0.2), (scalar(7, left), a)], [a], f"{label}_quantized", alpha=0.75)
    for depth, block in ((32, 16), (40, 16)):
        blocks = -(-depth // block)
        sizes = {"K": depth, "N": 6, "block_size": block, "bits": 4}
        packed = (bytes_of(np.uint8, 6, blocks, block // 2, high=255), U8)
        given = [real(2, depth), packed, real(6, blocks, low=0.01, high=0.1)]
        yield ms("MatMulNBits", given, [F], f"{depth}", **sizes)
        yield ms(
            "MatMulNBits",
            [*given, (bytes_of(np.uint8, 6, -(-blocks // 2), high=255), U8)],
            [F],
            f"{depth}_zeros",
            tied=True,
            **sizes,
        )
        yield ms(
            "MatMulNBits", [*given, real(6, blocks, low=0, high=8)], [F], f"{depth}_float_zeros", tied=True, **sizes
        )
        groups = (np.repeat(np.arange(blocks)[::-1], block)[:depth].astype(np.int32), I32)
        if depth % block == 0:
            yield ms("MatMulNBits", [*given, GONE, groups], [F], f"{depth}_groups", **sizes)
    for kind, name in enumerate(("fp4", "nf4")):
        sizes = {"K": 24, "N": 6, "block_size": 16, "quant_type": kind}
        packed = (bytes_of(np.uint8, 72, high=255), U8)
        yield ms("MatMulBnb4", [real(2, 3, 24), packed, real(9, low=0.1, high=1)], [F], name, **sizes)
    for name in ("int4", "uint4"):
        table = (numpy_like(name, 20, 32), f"tensor({name})")
        wanted = (bytes_of(np.int64, 2, 3, high=19), N)
        scales, zeros_of = real(20, 2, low=0.1, high=0.2), (numpy_like(name, 20, 2), f"tensor({name})")
        yield ms("GatherBlockQuantized", [table, wanted, scales], [F], name, block_size=16)
        yield ms("GatherBlockQuantized", [table, wanted, scales, zeros_of], [F], f"{name}_zeros", block_size=16)
    bytes_table = [
        (bytes_of(np.uint8, 20, 32, high=255), U8),
        (bytes_of(np.int64, 2, 3, high=19), N),
        real(20, 2, low=0.1, high=0.2),
    ]
    yield ms("GatherBlockQuantized", bytes_table, [F], "uint8", block_size=16, bits=8)


def numpy_like(element: str, *shape: int) -> np.ndarray:
    """Small integers of an element type that NumPy lacks."""
    return bytes_of(np.int8, *shape, low=0, high=7).astype(numpy_dtype(element))


def _elementwise_quantized() -> Iterator[OwnNode]:
    for dtype, text in ((np.uint8, U8), (np.int8, I8)):
        name, lowest = np.dtype(dtype).name, np.iinfo(dtype).min

        def zero(value: int, dtype: Any = dtype, text: str = text) -> Operand:
            return scalar(value, dtype), text

        a, b = (bytes_of(dtype, 2, 3, 8, high=120), text), (bytes_of(dtype, 3, 8, high=100), text)
        one, other, result = [scale(0.02), zero(3)], [scale(0.03), zero(5)], [scale(0.05), zero(7)]
        for op_type in ("QLinearAdd", "QLinearMul"):
            yield ms(op_type, [a, *one, b, *other, *result], [text], name)
        yield ms("QLinearSigmoid", [a, *one, scale(1 / 256), zero(0)], [text], name)
        yield ms("QLinearLeakyRelu", [a, *one, *other], [text], name, alpha=0.1)
        yield ms(
            "QLinearSoftmax", [a, scale(0.05), zero(3), scale(1 / 256), zero(lowest)], [text], name, opset=13, axis=-1
        )
        condition = (bytes_of(np.int8, 2, 3, 8, high=1).astype(bool), B)
        yield ms("QLinearWhere", [condition, a, *one, b, *other, *result], [text], name)
        yield ms("QLinearConcat", [*result, a, *one, a, *other], [text], name, axis=1)
        yield ms("QLinearReduceMean", [a, *one, *other], [text], name, axes=[1], keepdims=1)
    for element in ("uint8", "int8", "uint16", "int16", "uint4", "int4"):
        text, held = f"tensor({element})", numpy_like(element, 2, 3, 4)
        scales, zeros = real(3, low=0.1, high=0.5), (numpy_like(element, 3), text)
        yield ms("QuantizeLinear", [real(2, 3, 4, low=0, high=1), scales, zeros], [text], element, axis=1)
        yield ms("DequantizeLinear", [(held, text), scales, zeros], [F], element, axis=1)
    wide = (bytes_of(np.int32, 2, 3, low=-90, high=90), I32)
    yield ms("DequantizeLinear", [wide, real(3, low=0.1, high=0.5), (np.zeros(3, np.int32), I32)], [F], "int32", axis=1)


def _windows_quantized() -> Iterator[OwnNode]:
    for dtype, text in ((np.uint8, U8), (np.int8, I8)):
        name, kernel = np.dtype(dtype).name, {"kernel_shape": [3, 3], "strides": [2, 2]}
        image, zeros = (bytes_of(dtype, 1, 4, 7, 7, high=120), text), [(scalar(v, dtype), text) for v in (3, 5)]
        one, other = [scale(0.02), zeros[0]], [scale(0.03), zeros[1]]
        for count in (0, 1):
            padded = {"pads": [1, 0, 1, 1], "count_include_pad": count, **kernel}
            yield ms("QLinearAveragePool", [image, *one, *other], [text], f"{name}_{count}", **padded)
        yield ms("QLinearGlobalAveragePool", [image, *one, scale(0.003), zeros[1]], [text], name)
        yield ms("NhwcMaxPool", [image], [text], name, pads=[1] * 4, **kernel)
        for held, weight in ((np.int8, I8), (np.uint8, U8)):
            w, w_zero = (bytes_of(held, 6, 4, 3, 3, high=60), weight), (scalar(0, held), weight)
            given = [image, *one, w, scale(0.01), w_zero, scale(0.6), zeros[1], (bytes_of(np.int32, 6), I32)]
            yield ms("QLinearConv", given, [text], f"{name}_{np.dtype(held).name}", pads=[1] * 4)
        x, (w, r) = real(5, 3, 6), ((bytes_of(dtype, 1, n, 16, high=60), text) for n in (6, 4))
        scales = [(np.array([0.01], np.float32), F), (np.array([20], dtype), text)] * 2
        lengths = (np.array([5, 2, 3], np.int32), I32)
        given = [x, w, r, real(1, 32), lengths, GONE, GONE, GONE, *scales]
        yield ms("DynamicQuantizeLSTM", given, [F, F, F], name, hidden_size=4)


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
    yield ms("ExpandDims", [x, (scalar(1, np.int32), I32)], [F])
    yield ms("GatherND", [x, (bytes_of(np.int64, 4, 2, high=1), N)], [F])
    yield ms("GatherND", [x, (bytes_of(np.int32, 4, 2, high=1), I32)], [F], "int32")
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
