"""Operators of ``com.microsoft``: against onnxruntime, and small cases worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from one_node import Case, assert_equal, assert_portable, by_kernel, by_onnxruntime, is_portable

MS = "com.microsoft"
RNG = np.random.default_rng(5)
F = np.float32


def normal(*shape: int, dtype: Any = F) -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def uniform(low: float, high: float, *shape: int) -> np.ndarray:
    return RNG.uniform(low, high, size=shape).astype(F)


def integers(dtype: Any, *shape: int, low: int | None = None, high: int | None = None) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(
        limits.min if low is None else low, limits.max + 1 if high is None else high, size=shape
    ).astype(dtype)


def flags(*shape: int) -> np.ndarray:
    return RNG.integers(0, 2, size=shape).astype(np.int32)


def case(
    op_type: str,
    inputs: list[Any],
    outputs: int | list[str] = 1,
    label: str = "",
    atol: float = 1e-5,
    domain: str = MS,
    **attributes: Any,
) -> Case:
    return Case(domain, op_type, inputs, attributes, outputs, 1, 1e-4, atol, label)


def norms() -> Iterator[Case]:
    for dtype, atol in ((np.float32, 1e-5), (np.float16, 1e-2)):
        name = np.dtype(dtype).name

        def n(*shape: int, dtype: Any = dtype) -> np.ndarray:
            return normal(*shape, dtype=dtype)

        x, skip, gamma, beta, bias = n(2, 3, 8), n(2, 3, 8), n(8), n(8), n(8)
        outputs = ["y", "", "", "sum"]
        yield case("SimplifiedLayerNormalization", [x, gamma], 2, name, atol, "")
        yield case("SimplifiedLayerNormalization", [x, n(3, 8)], 1, f"{name}-axis", atol, "", axis=1)
        yield case("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], outputs, name, atol, epsilon=1e-5)
        yield case("SkipLayerNormalization", [x, skip, gamma, beta, bias], outputs, name, atol, epsilon=1e-5)
        yield case("SkipLayerNormalization", [x, skip[0], gamma], 1, f"{name}-broadcast", atol)
    ids, segments = integers(np.int32, 2, 5, low=0, high=6), flags(2, 5)
    words, places, kinds, gamma, beta = normal(10, 8), normal(6, 8), normal(2, 8), normal(8), normal(8)
    tables = [ids, segments, words, places, kinds, gamma, beta]
    yield case("EmbedLayerNormalization", [*tables, np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)], 3)
    yield case("EmbedLayerNormalization", [ids, None, words, places, None, gamma, beta, None, ids], 2, "position_ids")
    quantized = [
        ids,
        segments,
        *(integers(np.uint8, *s) for s in ((10, 8), (6, 8), (2, 8), (8,), (8,))),
        flags(2, 5),
        *(np.array(v, F) for v in (0.01, 0.02, 0.03, 0.04, 0.05)),
        *(np.array(v, np.uint8) for v in (128, 120, 110, 100, 90)),
    ]
    yield case("QEmbedLayerNormalization", quantized, 2)


def activations() -> Iterator[Case]:
    x, bias = 3 * normal(2, 3, 8), normal(8)
    for op_type in ("Gelu", "FastGelu", "QuickGelu"):
        yield case(op_type, [x])
    yield case("QuickGelu", [x], label="alpha", alpha=0.7)
    yield case("BiasGelu", [x, bias])
    yield case("FastGelu", [x, bias], label="bias")


def fused() -> Iterator[Case]:
    yield case("FusedMatMul", [normal(2, 3, 5, 4), normal(2, 3, 6, 5)], transA=1, transB=1, alpha=0.5)
    yield case("FusedMatMul", [normal(4, 2, 3, 5), normal(2, 3, 5, 6)], label="transBatchA", transBatchA=1)
    yield case("FusedMatMul", [normal(5, 2, 3, 4), normal(2, 3, 5, 6)], label="both A", transBatchA=1, transA=1)
    yield case("FusedMatMul", [normal(2, 3, 4, 5), normal(6, 2, 3, 5)], label="both B", transBatchB=1, transB=1)
    yield case("FusedMatMul", [normal(5), normal(5, 6)], label="vector", transA=1)
    yield case("TransposeMatMul", [normal(2, 5, 4), normal(2, 5, 6)], transA=1)
    for name, parameters in {
        "Relu": {},
        "LeakyRelu": {"activation_alpha": 0.2},
        "Tanh": {},
        "Sigmoid": {},
        "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4},
        "Elu": {"activation_alpha": 0.3},
        "Selu": {"activation_alpha": 0.3, "activation_gamma": 2.0},
        "Softplus": {},
        "Softsign": {},
        "ThresholdedRelu": {"activation_alpha": 0.5},
        "ParametricSoftplus": {"activation_alpha": 0.5, "activation_beta": 2.0},
        "ScaledTanh": {"activation_alpha": 0.5, "activation_beta": 2.0},
    }.items():
        inputs = [normal(3, 4), normal(4, 5), normal(5)]
        yield case("FusedGemm", inputs, label=name, activation=name, alpha=0.7, beta=0.3, **parameters)
    x, w, b = normal(2, 4, 6, 6), normal(6, 2, 3, 3), normal(6)
    for name, params in {
        "Relu": None,
        "LeakyRelu": [0.2],
        "Tanh": None,
        "Sigmoid": None,
        "HardSigmoid": [0.3, 0.4],
        "Clip": [-0.5, 0.5],
        "HardSwish": None,
    }.items():
        more = {"activation": name, "group": 2, "pads": [1] * 4, **({"activation_params": params} if params else {})}
        yield case("FusedConv", [x, w, b, normal(2, 6, 6, 6)], label=name, **more)
    pads = np.array([1, 0, 1, 1])
    yield case("ConvTransposeWithDynamicPads", [x, normal(4, 3, 3, 3), pads, normal(3)], strides=[2, 2])


def products() -> Iterator[Case]:
    for bits in (2, 4, 8):
        for depth, block in ((64, 32), (70, 16)):
            columns, blocks = 24, -(-depth // block)
            packed = integers(np.uint8, columns, blocks, block * bits // 8)
            scales = uniform(0.01, 0.1, columns, blocks)
            zeros = integers(np.uint8, columns, -(-blocks * bits // 8))
            sizes = {"K": depth, "N": columns, "block_size": block, "bits": bits}
            a, label = normal(2, 3, depth), f"{bits}-{depth}"
            yield case("MatMulNBits", [a, packed, scales], 1, label, 2e-3, **sizes)
            yield case("MatMulNBits", [a, packed, scales, zeros], 1, f"{label}-zeros", 2e-3, **sizes)
            with_bias = [a, packed, scales.ravel(), zeros.ravel(), None, normal(columns)]
            yield case("MatMulNBits", with_bias, 1, f"{label}-bias", 2e-3, **sizes)
            if bits == 4:
                floats = [a, packed, scales, uniform(0, 8, columns, blocks)]
                yield case("MatMulNBits", floats, 1, f"{label}-float zeros", 2e-3, **sizes)
                groups = np.repeat(np.arange(blocks)[::-1], block).astype(np.int32)
                yield case("MatMulNBits", [a, packed, scales, None, groups], 1, f"{label}-groups", 2e-3, **sizes)
    for kind, name in enumerate(("fp4", "nf4")):
        for depth, block in ((64, 32), (70, 16)):
            count = depth * 24
            a, packed = normal(2, 3, depth), integers(np.uint8, (count + 1) // 2)
            sizes = {"K": depth, "N": 24, "block_size": block, "quant_type": kind}
            yield case(
                "MatMulBnb4", [a, packed, uniform(0.1, 1, -(-count // block))], 1, f"{name}-{depth}", 1e-4, **sizes
            )
    for left, right in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)):
        label = f"{np.dtype(left).name}-{np.dtype(right).name}"
        # Without VNNI onnxruntime adds pairs of products of uint8 and int8 in 16 bits, which full-range int8 overflows.
        small = {"low": -60, "high": 60} if right == np.int8 else {}
        a, b = integers(left, 2, 3, 8), integers(right, 8, 5, **small)
        a_scale, b_scale, b_scales = np.array(0.02, F), np.array(0.03, F), uniform(0.01, 0.1, 5)
        a_zero, b_zeros = np.array(3, left), integers(right, 5, low=0, high=5)
        yield case("MatMulIntegerToFloat", [a, b, a_scale, b_scale], label=label)
        columns = [a, b, a_scale, b_scales, a_zero, b_zeros, normal(5)]
        yield case("MatMulIntegerToFloat", columns, label=f"{label}-columns")
        if left == np.uint8:
            yield case("DynamicQuantizeMatMul", [normal(2, 3, 8), b, b_scale], label=label)
            more = [normal(2, 3, 8), b, b_scales, b_zeros, normal(5)]
            yield case("DynamicQuantizeMatMul", more, label=f"{label}-columns")
        matrix, c = integers(left, 3, 8), integers(np.int32, 3, 5, low=-500, high=500)
        gemm = [matrix.T.copy(), a_scale, a_zero, b.T.copy(), b_scale, np.array(5, right)]
        turned = {"transA": 1, "transB": 1, "alpha": 0.7}
        yield case("QGemm", gemm, label=label, **turned)
        yield case("QGemm", [*gemm, c, np.array(0.2, F), np.array(7, left)], label=f"{label}-quantized", **turned)
        yield case("QGemm", [matrix, a_scale, a_zero, b, b_scales, b_zeros, c[0]], label=f"{label}-columns")
    for metric in ("euclidean", "sqeuclidean"):
        yield case("CDist", [normal(4, 5), normal(6, 5)], label=metric, metric=metric)
    short = {"low": -30, "high": 30}
    yield case("MatMulInteger16", [integers(np.int16, 3, 4, **short), integers(np.int16, 4, 2, **short)])
    for bits in (4, 8):
        table, zeros = integers(np.uint8, 20, 64 * bits // 8), integers(np.uint8, 20, 4 * bits // 8)
        inputs = [table, RNG.integers(-20, 20, size=(2, 3)), uniform(0.1, 0.2, 20, 4)]
        sizes = {"bits": bits, "block_size": 16}
        yield case("GatherBlockQuantized", inputs, label=f"{bits}", **sizes)
        yield case("GatherBlockQuantized", [*inputs, zeros], label=f"{bits}-zeros", **sizes)


def experts() -> Iterator[Case]:
    x, scores, hidden, inner = normal(2, 5, 16), normal(10, 4), 16, 24
    first, second = 0.3 * normal(4, inner, hidden), 0.3 * normal(4, hidden, inner)
    biases = normal(4, inner), normal(4, hidden)
    for name in ("relu", "gelu", "silu", "identity"):
        for count, normalize in ((1, 0), (2, 0), (3, 1)):
            more = {"k": count, "normalize_routing_weights": normalize, "activation_type": name}
            yield case("MoE", [x, scores, first, biases[0], second, biases[1]], 1, f"{name}-{count}", **more)
    yield case("MoE", [x[0], scores[:5], first, None, second], label="rows", k=2)
    tied = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [2, 1, 1, 1]], F)
    yield case("MoE", [normal(3, 16), tied, first, None, second], label="ties", k=2)
    wide, gate = 0.3 * normal(4, 2 * inner, hidden), {"activation_type": "swiglu", "swiglu_fusion": 1, "k": 2}
    yield case("MoE", [x, scores, wide, normal(4, 2 * inner), second, biases[1]], label="swiglu", **gate)
    scaled = {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.7, **gate}
    yield case("MoE", [x, scores, wide, normal(4, 2 * inner), second, biases[1]], label="swiglu-limit", **scaled)
    x, hidden, inner = normal(6, 32), 32, 32
    for bits in (4, 8):
        packed = [integers(np.uint8, 4, n, 32 * bits // 8) for n in (2 * inner, inner, hidden)]
        scales = [uniform(0.01, 0.02, 4, n) for n in (2 * inner, inner, hidden)]
        blocks = [uniform(0.01, 0.02, 4, n, 2) for n in (2 * inner, inner, hidden)]
        zeros = [integers(np.uint8, 4, n, 2 * bits // 8) for n in (2 * inner, inner, hidden)]
        more = {"expert_weight_bits": bits, "k": 2, "normalize_routing_weights": 1}
        plain = {"activation_type": "silu", **more}
        yield case(
            "QMoE", [x, scores[:6], packed[1], scales[1], None, packed[2], scales[2]], 1, f"{bits}-plain", 1e-3, **plain
        )
        halved = [x, scores[:6], packed[0], scales[0], normal(4, 2 * inner), packed[2], scales[2], normal(4, hidden)]
        yield case("QMoE", halved, 1, f"{bits}-swiglu", 1e-3, **gate | more)
        shares = [*halved, None, None, None, None, None, None, uniform(0.1, 1, 6, 4)]
        for normalize in (0, 1):
            label = f"{bits}-weights-{normalize}"
            yield case("QMoE", shares, 1, label, 1e-3, **gate | more | {"normalize_routing_weights": normalize})
        yield case("QMoE", halved, 1, f"{bits}-not normalized", 1e-3, **gate | more | {"normalize_routing_weights": 0})
        in_blocks = [x, scores[:6], packed[0], blocks[0], None, packed[2], blocks[2]]
        yield case("QMoE", in_blocks, 1, f"{bits}-blocks", 1e-3, **gate | more, block_size=16)
        with_zeros = [*in_blocks, None, None, None, None, zeros[0], zeros[2]]
        yield case("QMoE", with_zeros, 1, f"{bits}-zeros", 1e-3, **gate | more, block_size=16)


def experimental() -> Iterator[Case]:
    """Of ONNX's own domain before opset 10."""
    x, image = normal(3, 4), normal(2, 3, 6, 7)
    limits = [np.array([1, -3]), np.array([99, -1])]
    cases: list[tuple[str, list[Any], dict[str, Any]]] = [
        *((op_type, [x], {"alpha": 0.7, "beta": 1.3}) for op_type in ("Affine", "ParametricSoftplus", "ScaledTanh")),
        ("Scale", [x], {"scale": 0.4}),
        ("ImageScaler", [image], {"scale": 0.4, "bias": [1.0, -2.0, 0.5]}),
        ("Crop", [image], {"border": [1, 2, 3, 0]}),
        ("Crop", [image], {"border": [1, 2, 0, 0], "scale": [3, 4]}),
        ("DynamicSlice", [image, *limits], {}),
        ("DynamicSlice", [image, *limits, np.array([3, 2])], {}),
    ]
    for number, (op_type, inputs, attributes) in enumerate(cases):
        yield Case("", op_type, inputs, attributes, label=f"{number}", opset=9)


def recurrent() -> Iterator[Case]:
    for directions, direction in ((1, "forward"), (1, "reverse"), (2, "bidirectional")):
        for dtype, limits in ((np.uint8, {}), (np.int8, {"low": -60, "high": 60})):
            x = normal(5, 3, 6)
            w, r = (integers(dtype, directions, n, 16, **limits) for n in (6, 4))
            zero = np.full(directions, 100 if dtype == np.uint8 else 0, dtype)
            scales = [uniform(0.005, 0.01, directions), zero, uniform(0.005, 0.01, directions), zero]
            common = {"hidden_size": 4, "direction": direction}
            label = f"{direction}-{np.dtype(dtype).name}"
            bare = [x, w, r, normal(directions, 32), None, None, None, None, *scales]
            yield case("DynamicQuantizeLSTM", bare, 3, label, **common)
            lengths, state = np.array([5, 2, 3], np.int32), (directions, 3, 4)
            full = [x, w, r, bare[3], lengths, normal(*state), normal(*state), normal(directions, 12), *scales]
            yield case("DynamicQuantizeLSTM", full, 3, f"{label}-all inputs", **common)
            yield case("DynamicQuantizeLSTM", bare, 3, f"{label}-coupled", input_forget=1, clip=0.5, **common)


def quantized() -> Iterator[Case]:
    def scale(value: float) -> np.ndarray:
        return np.array(value, F)

    for dtype in (np.uint8, np.int8):

        def zero(value: int, dtype: Any = dtype) -> np.ndarray:
            return np.array(value, dtype)

        name = np.dtype(dtype).name
        a, b = integers(dtype, 2, 3, 40), integers(dtype, 3, 40)
        one, other, result = [scale(0.02), zero(3)], [scale(0.03), zero(5)], [scale(0.05), zero(7)]
        for op_type in ("QLinearAdd", "QLinearMul"):
            yield case(op_type, [a, *one, b, *other, *result], label=name, atol=1)
        yield case("QLinearSigmoid", [a, *one, scale(1 / 256), zero(0)], label=name)
        yield case("QLinearLeakyRelu", [a, *one, *other], label=name, alpha=0.1)
        lowest = zero(np.iinfo(dtype).min)
        for opset, axis in ((13, -1), (13, 1), (12, 1)):
            inputs = [a, scale(0.05), zero(3), scale(1 / 256), lowest]
            yield case("QLinearSoftmax", inputs, 1, f"{name}-{opset}-{axis}", 1, opset=opset, axis=axis)
        condition = RNG.uniform(size=(2, 3, 40)) < 0.5
        yield case("QLinearWhere", [condition, a, *one, b, *other, *result], label=name)
        yield case("QLinearConcat", [*result, a, *one, a, *other], label=name, axis=1)
        x, kernel = integers(dtype, 2, 4, 7, 7), {"kernel_shape": [3, 3], "strides": [2, 2]}
        w, w_scales = integers(np.int8, 6, 4, 3, 3, low=-60, high=60), uniform(0.01, 0.02, 6)
        for last in (0, 1):
            label = f"{name}-{'NHWC' if last else 'NCHW'}"
            image = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
            for more in ({}, {"count_include_pad": 1}, {"ceil_mode": 1}):
                attributes = {"channels_last": last, "pads": [1, 0, 1, 1], **kernel, **more}
                yield case("QLinearAveragePool", [image, *one, *other], 1, f"{label}-{[*more]}", 1, **attributes)
            inputs = [image, *one, scale(0.003), zero(5)]
            yield case("QLinearGlobalAveragePool", inputs, 1, label, 1, channels_last=last)
            weights = [w, w_scales, np.zeros(6, np.int8), scale(0.6), zero(5), integers(np.int32, 6, low=-9, high=9)]
            yield case("QLinearConv", [image, *one, *weights], 1, label, 1, channels_last=last, pads=[1] * 4)
        yield case("NhwcMaxPool", [np.ascontiguousarray(np.moveaxis(x, 1, -1))], label=name, pads=[1] * 4, **kernel)
        yield case("QuantizeLinear", [normal(2, 3, 4), *one], label=name)
        axis = [uniform(0.01, 0.02, 3), integers(dtype, 3)]
        yield case("QuantizeLinear", [normal(2, 3, 4), *axis], label=f"{name}-axis", axis=1)
        yield case("DequantizeLinear", [integers(dtype, 2, 3), *axis], label=f"{name}-axis", axis=1)


def attention() -> Iterator[Case]:
    batch, length, heads, size = 2, 4, 2, 8
    width = heads * size
    x, w, bias = normal(batch, length, width), 0.3 * normal(width, 3 * width), normal(3 * width)
    past = normal(2, batch, heads, 3, size)
    for causal in (0, 1):
        masks = {
            "none": None,
            "keys": np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32),
            "all hidden": np.zeros((batch, length), np.int32),
            "ends": np.array([3, 2], np.int32),
            "ends and starts": np.array([3, 4, 1, 0], np.int32),
            "pairs": flags(batch, length, length),
        }
        common = {"num_heads": heads, "unidirectional": causal}
        for name, mask in masks.items():
            yield case("Attention", [x, w, bias, mask], 2, f"{name}-{causal}", **common)
        added = [x, w, bias, masks["keys"], None, normal(batch, heads, length, length)]
        yield case("Attention", added, 1, f"bias-{causal}", scale=0.3, mask_filter_value=-500.0, **common)
        yield case("Attention", [x, w, bias, flags(batch, 7), past], 2, f"past-{causal}", **common)
        yield case("Attention", [x[:, :1], w, bias, None, past], 2, f"decode-{causal}", **common)
        sizes = {"qkv_hidden_sizes": [width, width, 6], **common}
        wide = [x, normal(width, 2 * width + 6), normal(2 * width + 6)]
        yield case("Attention", wide, 1, f"sizes-{causal}", **sizes)
        for dtype, limits in ((np.uint8, {}), (np.int8, {"low": -60, "high": 60})):
            xq, wq = integers(np.uint8, batch, length, width), integers(dtype, width, 3 * width, **limits)
            scales = [bias, np.array(0.01, F), np.array(0.005, F)]
            zeros = [np.array(128, np.uint8), np.array(3, dtype)]
            label = f"{np.dtype(dtype).name}-{causal}"
            yield case("QAttention", [xq, wq, *scales, masks["ends"], *zeros, past[..., :0, :]], 2, label, **common)
            yield case("QAttention", [xq, wq, *scales, None, *zeros, past], 2, f"{label}-past", **common)
        q, k, v = (normal(batch, length, width) for _ in range(3))
        for name in ("none", "keys", "ends", "pairs"):
            yield case("MultiHeadAttention", [q, k, v, bias, masks[name]], 3, f"{name}-{causal}", **common)
        added = [q, k, v, None, None, normal(1, heads, length, length)]
        yield case("MultiHeadAttention", added, 1, f"bias-{causal}", scale=0.4, **common)
        cache = [None, None, None, *(normal(batch, heads, 3, size) for _ in range(2))]
        yield case("MultiHeadAttention", [q, k, v, *cache], 3, f"past-{causal}", **common)
        yield case("MultiHeadAttention", [q[:, :1], k[:, :1], v[:, :1], *cache], 3, f"decode-{causal}", **common)
    crossed = [normal(batch, heads, 6, size) for _ in range(2)]
    yield case("MultiHeadAttention", [q, *crossed, bias], 1, "cross, split", num_heads=heads)
    yield case("MultiHeadAttention", [q, normal(batch, 6, width), normal(batch, 6, 6)], 1, "cross", num_heads=heads)


def grouped() -> Iterator[Case]:
    heads, shared, size = 4, 2, 16
    cos, sin = normal(40, size // 2), normal(40, size // 2)
    for interleaved in (0, 1):
        x, places = normal(2, 5, heads * size), RNG.integers(0, 20, size=(2, 5))
        turned = {"interleaved": interleaved}
        yield case("RotaryEmbedding", [x, places, cos, sin], label=f"{interleaved}", **turned)
        yield case("RotaryEmbedding", [x, np.array([3]), cos, sin], label=f"{interleaved}-offset", **turned)
        split = [normal(2, heads, 5, size), places, cos, sin]
        yield case("RotaryEmbedding", split, label=f"{interleaved}-4d", **turned)
        part = {"num_heads": heads, "rotary_embedding_dim": 8, **turned}
        yield case("RotaryEmbedding", [x, places, cos[:, :4], sin[:, :4]], label=f"{interleaved}-part", **part)

    def step(
        label: str,
        new: int,
        lengths: list[int],
        room: int | None,
        packed: bool = False,
        rotary: bool = False,
        more: list[Any] | None = None,
        dtype: Any = F,
        **attributes: Any,
    ) -> Case:
        batch = len(lengths)
        if packed:
            qkv = [normal(batch, new, (heads + 2 * shared) * size, dtype=dtype), None, None]
        else:
            qkv = [normal(batch, new, n * size, dtype=dtype) for n in (heads, shared, shared)]
        past = [None if room is None else normal(batch, shared, room, size, dtype=dtype) for _ in range(2)]
        sizes = [np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32)]
        angles = [cos.astype(dtype), sin.astype(dtype)] if rotary else [None, None]
        inputs = [*qkv, *past, *sizes, *angles, *(more or [])]
        while inputs[-1] is None:
            inputs.pop()
        attributes |= {"num_heads": heads, "kv_num_heads": shared, "do_rotary": int(rotary)}
        return case("GroupQueryAttention", inputs, 3, label, 1e-5 if dtype == F else 1e-2, **attributes)

    for packed in (False, True):
        for rotary in (False, True):
            label = f"{'packed' if packed else 'apart'}-{'rotary' if rotary else 'plain'}"
            yield step(f"{label}-prompt", 5, [5, 5], None, packed, rotary)
            yield step(f"{label}-buffer", 5, [5, 5], 12, packed, rotary)
            yield step(f"{label}-decode", 1, [7, 7], 6, packed, rotary)
            yield step(f"{label}-ragged", 1, [7, 4], 12, packed, rotary)
            yield step(f"{label}-chunk", 3, [9], 6, packed, rotary)
    yield step("interleaved", 5, [5, 5], None, rotary=True, rotary_interleaved=1)
    yield step("half", 5, [5, 5], None, rotary=True, dtype=np.float16)
    for name, attributes in {
        "softcap": {"softcap": 2.0},
        "scale": {"scale": 0.1},
        "smooth": {"smooth_softmax": 1},
        "smooth, capped": {"smooth_softmax": 1, "softcap": 2.0},
        "window": {"local_window_size": 3},
        "both ways": {"causal": 0},
    }.items():
        yield step(f"{name}-prompt", 5, [5, 5], None, **attributes)
        yield step(f"{name}-decode", 1, [7, 5], 6, **attributes)
    yield step("bias", 5, [5, 5], None, more=[None, normal(2, heads, 5, 5)])
    yield step("sink", 5, [5, 5], None, more=[None, None, normal(heads)])
    yield step("places", 1, [7, 4], 6, rotary=True, more=[np.array([[6], [3]])])
    for bits, dtype, stored in ((8, np.int8, size), (4, np.uint8, size // 2)):
        for kind, shape in (("PER_TENSOR", (1,)), ("PER_CHANNEL", (1, shared, 1, size))):
            qkv = [normal(2, 1, n * size) for n in (heads, shared, shared)]
            past = [integers(dtype, 2, shared, 6, stored) for _ in range(2)]
            scales = [uniform(0.01, 0.03, *shape) * 128 / 2 ** (bits - 1) for _ in range(2)]
            inputs = [*qkv, *past, np.array([6, 6], np.int32), np.array(7, np.int32), *[None] * 5, *scales]
            quantization = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
            counts = {"num_heads": heads, "kv_num_heads": shared}
            yield case("GroupQueryAttention", inputs, 3, f"{kind}-{bits}", **counts, **quantization)


def others() -> Iterator[Case]:
    x = normal(2, 3, 4, 4)
    yield case("Inverse", [x], atol=1e-4)
    for upper in (0, 1):
        yield case("Trilu", [x, np.array(1)], label=f"{upper}", upper=upper)
    yield case("Unique", [np.array([2, 1, 1, 3, 4, 3], F)], 3)
    for axis in (0, -1, 2):
        yield case("ExpandDims", [x, np.array(axis, np.int32)], label=f"{axis}")
    yield case("GatherND", [x, RNG.integers(0, 2, size=(4, 2))])
    yield case("Pad", [x, np.array([0, 0, 1, 2, 0, 0, -1, 1]), np.array([3.0], F)])
    yield case("Pad", [x, np.array([0, 0, 1, 2, 0, 0, 1, 1])], label="reflect", mode="reflect")
    for dtype in (np.float32, np.float64, np.int16, np.int32, np.int64):
        yield case("Range", [np.array(v, dtype) for v in (10, 1, -4)], label=np.dtype(dtype).name)
    for n in (1, 2, 3):
        yield case("NGramRepeatBlock", [RNG.integers(0, 4, size=(3, 12)), normal(3, 6)], label=f"{n}", ngram_size=n)
    for mode in ("bilinear", "nearest"):
        inputs = [x, uniform(-0.2, 1.2, 5, 4), flags(5), np.array([3, 5], np.int32)]
        yield case("CropAndResize", inputs, label=mode, mode=mode, extrapolation_value=0.7)
    yield case("GridSample", [x, uniform(-1.2, 1.2, 2, 3, 4, 2)])
    yield case("UnfoldTensor", [normal(3, 10, 4)], dim=1, size=4, step=2)
    words = np.array(["a b,c", "hello, wörld  x", "", "ab"], object)
    numbers = [np.frombuffer(RNG.bytes(48), dtype) for dtype in (np.int32, np.uint32, np.int64, np.uint64)]
    for x in (words, normal(3), normal(4, dtype=np.float64), *numbers, words[:0]):
        for label, attributes in (("", {}), ("seeded", {"seed": 77, "positive": 0})):
            yield case("MurmurHash3", [x], label=f"{x.dtype}{x.shape}{label}", **attributes)
    for kind in (
        {"separators": [" "]},
        {"separators": [",", " "]},
        {"separators": [""]},
        {"separators": ["[, ]+"]},
        {"tokenexp": "[a-z]+"},
        {"tokenexp": "a|ab|[c-z]"},
        {"tokenexp": "."},
    ):
        for mark in (0, 1):
            fixed = {"mark": mark, "mincharnum": 1, "pad_value": "#"}
            yield case("Tokenizer", [words.reshape(2, 2)], label=f"{kind}-{mark}", **fixed, **kind)


CASES = [
    *norms(),
    *activations(),
    *fused(),
    *products(),
    *experts(),
    *experimental(),
    *recurrent(),
    *quantized(),
    *attention(),
    *grouped(),
    *others(),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_onnxruntime(case: Case) -> None:
    assert_equal(case, by_kernel(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", [c for c in CASES if is_portable(c)], ids=str)
def test_with_the_standard_alone(case: Case) -> None:
    assert_portable(case)


def run(op_type: str, inputs: list[Any], outputs: int | list[str] = 1, **attributes: Any) -> list[Any]:
    return by_kernel(case(op_type, inputs, outputs, **attributes))


def test_bias_split_gelu() -> None:
    x = np.array([[[3.0, -1.0, 0.0, 1e9]]], F)
    assert run("BiasSplitGelu", [x, np.array([0.0, 3.0, 0.0, 0.0], F)])[0].tolist() == [[[0.0, 2e9]]]


def test_bias_dropout_outside_training() -> None:
    data, bias, residual = np.ones((2, 3), F), np.array([1, 2, 3], F), np.full((2, 3), 10, F)
    y, mask = run("BiasDropout", [data, bias, residual], 2)
    assert y.tolist() == [[12, 13, 14]] * 2
    assert mask.all()


def test_bias_softmax_over_all_later_axes() -> None:
    (y,) = run("BiasSoftmax", [np.zeros((2, 2, 2), F), np.zeros((1, 2, 2), F)], axis=1, is_inner_broadcast=0)
    np.testing.assert_allclose(y, np.full((2, 2, 2), 0.25, F))


def test_weights_of_four_bits() -> None:
    """Column 0 holds 0..15 from the low half of each byte on, with zero point 8."""
    packed = np.array([[[0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]]], np.uint8)
    (y,) = run("MatMulNBits", [np.eye(16, dtype=F), packed, np.array([[0.5]], F)], K=16, N=1, block_size=16)
    assert y[:, 0].tolist() == [(i - 8) / 2 for i in range(16)]


def test_groups_have_zero_points_too() -> None:
    """onnxruntime's CPU kernel leaves packed zero points out where there is a g_idx."""
    packed = np.zeros((1, 2, 8), np.uint8)
    inputs = [np.eye(32, dtype=F), packed, np.ones((1, 2), F), np.array([[0x31]], np.uint8)]
    (y,) = run("MatMulNBits", [*inputs, np.arange(32, dtype=np.int32) % 2], K=32, N=1, block_size=16)
    assert y[:4, 0].tolist() == [-1, -3, -1, -3]


def test_exact_product_of_full_range() -> None:
    """255 * 127 * 2 passes 16 bits, in which onnxruntime adds pairs of products without VNNI."""
    one = np.array(1, F)
    (y,) = run("MatMulIntegerToFloat", [np.full((1, 2), 255, np.uint8), np.full((2, 1), 127, np.int8), one, one])
    assert y.item() == 255 * 127 * 2


def test_packed_queries_keys_and_values() -> None:
    packed = normal(2, 4, 2, 3, 8)
    apart = [packed[:, :, :, i].reshape(2, 4, 16) for i in range(3)]
    np.testing.assert_array_equal(
        run("MultiHeadAttention", [packed], num_heads=2)[0], run("MultiHeadAttention", apart, num_heads=2)[0]
    )
    pairs = np.stack([x.reshape(2, 4, 2, 8) for x in apart[1:]], axis=3)
    np.testing.assert_array_equal(
        run("MultiHeadAttention", [apart[0], pairs], num_heads=2)[0],
        run("MultiHeadAttention", apart, num_heads=2)[0],
    )


def test_normed_queries_and_keys() -> None:
    """With unit weights each head is divided by its root mean square, whatever its length was."""
    q, k, v = normal(1, 3, 32), normal(1, 3, 16), normal(1, 3, 16)
    sizes = [None, None, np.array([2], np.int32), np.array(3, np.int32)]
    weights = [*[None] * 7, np.ones(8, F), np.ones(8, F)]
    counts = {"num_heads": 4, "kv_num_heads": 2}
    plain = run("GroupQueryAttention", [q, k, v, *sizes, *weights], **counts)[0]
    longer = run("GroupQueryAttention", [5 * q, 7 * k, v, *sizes, *weights], **counts)[0]
    np.testing.assert_allclose(plain, longer, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("FusedGemm", [normal(2, 2), normal(2, 2)], {"activation": "Nothing"}),
        ("CDist", [normal(2, 2), normal(2, 2)], {"metric": "cosine"}),
        ("Tokenizer", [np.array(["a"], object)], {"mark": 0, "mincharnum": 1, "pad_value": ""}),
        ("MultiHeadAttention", [normal(1, 2, 4)], {"num_heads": 2}),
    ],
)
def test_refusals(op_type: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        run(op_type, inputs, **attributes)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(last: int, activation: int) -> None:
    """onnxruntime has it on GPUs alone."""
    x, skip, gamma, beta, bias = normal(2, 8, 3, 5), normal(2, 8), normal(8), normal(8), normal(8)
    attributes = {"groups": 4, "activation": activation, "channels_last": last, "epsilon": 1e-3}

    def expected(x: np.ndarray) -> np.ndarray:
        parts = x.astype(np.float64).reshape(2, 4, -1)
        centred = parts - parts.mean(-1, keepdims=True)
        y = (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)).reshape(x.shape)
        y = y * gamma[:, None, None] + beta[:, None, None]
        return y / (1 + np.exp(-y)) if activation else y

    def arranged(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x

    (y,) = run("GroupNorm", [arranged(x), gamma, beta], **attributes)
    np.testing.assert_allclose(y, arranged(expected(x)), rtol=1e-4, atol=1e-5)
    total = x + skip[:, :, None, None] + bias[:, None, None]
    for given in (skip, arranged(skip[:, :, None, None]), arranged(np.broadcast_to(skip[:, :, None, None], x.shape))):
        y, added = run("SkipGroupNorm", [arranged(x), gamma, beta, given, bias], 2, **attributes)
        np.testing.assert_allclose(added, arranged(total), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y, arranged(expected(total)), rtol=1e-4, atol=1e-5)


def test_convolution_of_channels_last() -> None:
    """onnxruntime has it on GPUs alone."""
    x, w, b = normal(2, 4, 7, 6), normal(6, 2, 3, 3), normal(6)
    attributes = {"group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1]}
    (y,) = run("NhwcConv", [np.ascontiguousarray(np.moveaxis(x, 1, -1)), w, b], **attributes)
    (want,) = by_kernel(Case("", "Conv", [x, w, b], attributes, 1, 22, 1e-5, 1e-6, ""))
    np.testing.assert_allclose(np.moveaxis(y, -1, 1), want, rtol=1e-5, atol=1e-6)


def test_product_and_gelu() -> None:
    """onnxruntime has it on GPUs alone."""
    x, w, bias = normal(3, 4), normal(4, 5), normal(5)
    (want,) = run("FastGelu", [x @ w, bias])
    np.testing.assert_allclose(run("GemmFastGelu", [x, w, bias])[0], want, rtol=1e-5, atol=1e-6)


def test_an_expert_without_rows_and_rows_without_number() -> None:
    first, second = normal(4, 6, 8), normal(4, 8, 6)
    (y,) = run("MoE", [np.zeros((0, 8), F), np.zeros((0, 4), F), first, None, second], k=2)
    assert y.shape == (0, 8)
    x, scores = normal(3, 8), np.tile(np.array([0, 9, -9, -9], F), (3, 1))
    (y,) = run("MoE", [x, scores, first, None, second], normalize_routing_weights=1)
    np.testing.assert_allclose(y, np.maximum(x @ first[1].T, 0) @ second[1].T, rtol=1e-4, atol=1e-5)
    (turned,) = run("MoE", [x, scores, first.swapaxes(1, 2), None, second.swapaxes(1, 2)], normalize_routing_weights=1)
    np.testing.assert_allclose(turned, y, rtol=1e-5)


def test_the_sparse_mixer_counts_experts_near_the_best_alone() -> None:
    x, first, second = normal(1, 8), normal(4, 6, 8), normal(4, 8, 6)
    scores = np.array([[3.0, 2.99, 1.0, 0.99]], F)  # pairs near each other, far from the other pair
    (y,) = run("MoE", [x, scores, first, None, second], k=2, use_sparse_mixer=1)

    def by(expert: int) -> np.ndarray:
        return np.maximum(x @ first[expert].T, 0) @ second[expert].T

    one = 1 / (1 + np.exp(-0.01))
    np.testing.assert_allclose(y, one * by(0) + 1.0 * by(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attributes", [{"quant_type": "fp4"}, {"weights_prepacked": 1}])
def test_layouts_of_one_device_are_refused(attributes: dict[str, Any]) -> None:
    packed, scales = integers(np.uint8, 2, 8, 4), uniform(0.1, 0.2, 2, 8)
    with pytest.raises(ValueError, match="only packed integers are portable"):
        run("QMoE", [normal(3, 8), normal(3, 2), packed, scales, None, packed, scales], **attributes)


def test_weights_of_four_bit_floats_the_other_way_round() -> None:
    """onnxruntime's CPU kernel multiplies by something else."""
    a, packed, absmax = normal(2, 3), integers(np.uint8, 24), uniform(0.1, 1, 3)
    sizes = {"K": 16, "N": 3, "block_size": 16, "quant_type": 1}
    (y,) = run("MatMulBnb4", [a, packed, absmax], transB=0, **sizes)
    (weights,) = run("MatMulBnb4", [np.eye(16, dtype=F), packed, absmax], **sizes)
    np.testing.assert_allclose(y, a @ weights.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("both", [0, 1])
def test_relative_position_bias(both: int) -> None:
    """onnxruntime has it on GPUs alone; buckets as transformers' T5 numbers them."""
    buckets, heads, distance, queries, keys = 8, 2, 20, 5, 30
    table = normal(heads, buckets)
    (y,) = run(
        "RelativePositionBias", [table.reshape(buckets, heads), np.array([queries]), np.array([keys])],
        max_distance=distance, is_bidirectional=both,
    )  # fmt: skip

    def bucket(query: int, key: int) -> int:
        count, place, behind = buckets, 0, query - key
        if both:
            count //= 2
            place, behind = (count if behind < 0 else 0), abs(behind)
        behind = max(behind, 0)
        half = count // 2
        if behind < half:
            return place + behind
        further = int(np.log(np.float32(behind) / half) / np.log(distance / half) * (count - half))
        return place + min(half + further, count - 1)

    wanted = [[[table[h, bucket(i, j)] for j in range(keys)] for i in range(queries)] for h in range(heads)]
    np.testing.assert_array_equal(y, np.array([wanted]))


def test_gated_relative_position_bias() -> None:
    """onnxruntime has it on GPUs alone."""
    batch, length, heads, size, gate = 2, 3, 2, 4, 6
    q, q_bias, places = normal(batch, length, heads * size), normal(heads * size), normal(1, heads, length, length)
    weight, bias, eco = normal(size, gate), normal(gate), normal(1, heads, 1, 1)
    (y,) = run("GatedRelativePositionBias", [q, q_bias, places, weight, bias, eco], num_heads=heads)
    split = (q + q_bias).reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
    u, r = np.split(1 / (1 + np.exp(-(split @ weight + bias).reshape(batch, heads, length, 2, -1).sum(-1))), 2, axis=-1)
    np.testing.assert_allclose(y, (u * (r * eco - 1) + 2) * places, rtol=1e-4, atol=1e-5)
    counts = np.array([3, 2], np.int32)
    words, offsets, _, _ = run("RemovePadding", [q, counts], 4)
    (packed,) = run("GatedRelativePositionBias", [words, q_bias, places, weight, bias, eco, offsets], num_heads=heads)
    np.testing.assert_allclose(packed[0], y[0], rtol=1e-5)
    np.testing.assert_allclose(packed[1, :, :2], y[1, :, :2], rtol=1e-5)


def test_padding_is_removed_and_restored() -> None:
    """onnxruntime has it on GPUs alone."""
    x = normal(3, 4, 2)
    words, offsets, ends, longest = run("RemovePadding", [x, np.array([2, 4, 0], np.int32)], 4)
    np.testing.assert_array_equal(words, np.concatenate([x[0, :2], x[1]]))
    assert offsets.tolist() == [[0, 1, 4, 5], [6, 7, 2, 3], [8, 9, 10, 11]]
    assert (ends.tolist(), longest.tolist()) == ([0, 2, 6, 6], [4])
    (back,) = run("RestorePadding", [words, offsets])
    x[0, 2:], x[2] = 0, 0
    np.testing.assert_array_equal(back, x)
