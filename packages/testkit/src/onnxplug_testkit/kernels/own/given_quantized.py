"""The kit's own structures of com.microsoft's quantized operators without the zero points and other operands that may be left out, and
with attributes that all others leave alone."""

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
    Operand,
    OwnNode,
    bytes_of,
    ms,
    numbers,
    numpy_like,
    real,
    scalar,
    scale,
)

Attributes = dict[str, Any]


def given_quantized_nodes() -> Iterator[OwnNode]:
    """All of them."""
    yield from _without_zero_points()
    yield from _embedding()
    yield from _recurrent()
    yield from _blocks()
    yield from _experts()


def _without_zero_points() -> Iterator[OwnNode]:
    for dtype, text in ((np.uint8, U8), (np.int8, I8)):
        name, low = np.dtype(dtype).name, -100 if text == I8 else 0
        a, b = (bytes_of(dtype, 2, 3, 8, low=low, high=120), text), (bytes_of(dtype, 3, 8, low=low, high=100), text)
        for op_type in ("QLinearAdd", "QLinearMul"):
            given = [a, scale(0.02), GONE, b, scale(0.03), GONE, scale(0.06)]
            yield ms(op_type, given, [text], f"{name}_plain")
        one, more = [a, scale(0.02), GONE], {"axes": [1], "keepdims": 0}
        yield ms("QLinearSigmoid", [*one, scale(1 / 256)], [text], f"{name}_plain")
        yield ms("QLinearLeakyRelu", [*one, scale(0.03)], [text], f"{name}_plain", alpha=0.5)
        yield ms("QLinearReduceMean", [*one, scale(0.03)], [text], f"{name}_plain", **more)
        image = (bytes_of(dtype, 1, 2, 7, 7, high=120), text)
        window: Attributes = {"kernel_shape": [3, 3], "strides": [2, 2]}
        yield ms("QLinearAveragePool", [image, scale(0.02), GONE, scale(0.03)], [text], f"{name}_plain", **window)
        yield ms("DequantizeLinear", [a, scale(0.02)], [F], f"{name}_plain")
    yield ms("QuantizeLinear", [real(2, 3, 4, low=0, high=1), scale(0.02)], [U8], "plain")
    zero = (scalar(0, np.uint8), U8)
    weights = [(bytes_of(np.int8, 6, 4, 3, 3, high=60), I8), scale(0.01), (scalar(0, np.int8), I8)]
    whole = [(bytes_of(np.uint8, 1, 4, 7, 7, high=120), U8), scale(0.02), zero, *weights, scale(0.6), zero]
    yield ms("QLinearConv", whole, [U8], "plain", kernel_shape=[3, 3])
    shared = [(bytes_of(np.uint8, 2, 3, 8, high=120), U8), scale(0.05), GONE, scale(1 / 256), zero]
    yield ms("QLinearSoftmax", shared, [U8], "plain", opset=13, axis=-1)


def _embedding() -> Iterator[OwnNode]:
    ids, spans = (bytes_of(np.int32, 2, 5, high=5), I32), GONE
    stored: list[Operand] = [
        GONE if s is None else (bytes_of(np.uint8, *s, high=100), U8) for s in ((10, 8), (6, 8), None, (8,), (8,))
    ]
    scales = [scale(0.01), scale(0.02), GONE, scale(0.04), scale(0.05)]
    zeros = [(scalar(v, np.uint8), U8) if v else GONE for v in (12, 20, 0, 40, 9)]
    given = [ids, spans, *stored, GONE, *scales, *zeros]
    yield ms("QEmbedLayerNormalization", given, [F, I32], "alone", epsilon=0.25)


def _recurrent() -> Iterator[OwnNode]:
    x = real(5, 3, 6)
    named: Attributes = {"activations": ["Sigmoid", "Tanh", "Softsign"], "clip": 0.75}
    sloped: Attributes = {
        "activations": ["HardSigmoid", "Affine", "Tanh"],
        "activation_alpha": [0.3, 0.7],
        "activation_beta": [0.4, 0.1],
    }
    for direction, d in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        w, r = ((bytes_of(np.uint8, d, n, 16, high=60), U8) for n in (6, 4))
        scales = [(np.full(d, 0.01, np.float32), F), (np.arange(20, 20 + 3 * d, 3).astype(np.uint8), U8)] * 2
        states = [real(d, 3, 4, low=-1, high=1), real(d, 3, 4, low=-1, high=1), real(d, 12, low=-1, high=1)]
        told: Attributes = {"hidden_size": 4, "direction": direction}
        bare = [x, w, r, GONE, GONE, GONE, GONE, GONE, *scales]
        yield ms("DynamicQuantizeLSTM", bare, [F, F, F], f"{direction}_bare", **told)
        whole = [x, w, r, real(d, 32), numbers(5, 2, 3), *states, *scales]
        yield ms("DynamicQuantizeLSTM", whole, [F, F, F], f"{direction}_whole", **told)
        if d == 1:
            yield ms("DynamicQuantizeLSTM", whole, [F, F, F], f"{direction}_named", **named, **told)
            yield ms("DynamicQuantizeLSTM", whole, [F, F, F], f"{direction}_sloped", **sloped, **told)
            yield ms("DynamicQuantizeLSTM", whole, [F, F, F], f"{direction}_coupled", input_forget=1, **told)


def _blocks() -> Iterator[OwnNode]:
    packed = (bytes_of(np.uint8, 72, high=255), U8)
    sizes: Attributes = {"K": 24, "N": 6, "block_size": 16, "quant_type": 1}
    yield ms(
        "MatMulBnb4", [real(2, 3, 24), packed, real(9, low=0.1, high=1)], [F], "training", training_mode=1, **sizes
    )
    held, scales = (bytes_of(np.uint8, 6, 2, 8, high=255), U8), real(6, 2, low=0.01, high=0.1)
    exact: Attributes = {"K": 32, "N": 6, "block_size": 16, "bits": 4}
    yield ms("MatMulNBits", [real(2, 32), held, scales], [F], "single", accuracy_level=1, **exact)
    table, wanted = (numpy_like("int4", 6, 4, 32), "tensor(int4)"), (bytes_of(np.int64, 2, 3, high=3), N)
    for across, along, shape in ((1, 2, (6, 4, 2)), (0, 2, (6, 4, 2)), (1, 0, (1, 4, 32))):
        chosen: Attributes = {"gather_axis": across, "quantize_axis": along, "block_size": 16, "elements": "int4"}
        given = [table, wanted, real(*shape, low=0.1, high=0.2)]
        yield ms("GatherBlockQuantized", given, [F], f"{across}_{along}", **chosen)


def _experts() -> Iterator[OwnNode]:
    rows, scores = real(2, 5, 16), real(10, 3)

    def weights(inner: int, outer: int) -> Operand:
        return bytes_of(np.uint8, 3, inner, outer, high=255), U8

    def scaled(inner: int) -> Operand:
        return real(3, inner, low=0.01, high=0.1)

    first, second = [weights(8, 8), scaled(8)], [weights(16, 4), scaled(16)]
    biases = real(3, 8), real(3, 16)
    for name in ("gelu", "silu", "identity"):
        given = [rows, scores, *first, biases[0], *second, biases[1]]
        yield ms("QMoE", given, [F], name, k=2, activation_type=name)
    told: Attributes = {
        "activation_type": "swiglu",
        "activation_alpha": 1.5,
        "activation_beta": 1.0,
        "swiglu_limit": 2.0,
    }
    double = [weights(16, 8), scaled(16), real(3, 16)]
    yield ms("QMoE", [rows, scores, *double, *second], [F], "swiglu", k=1, swiglu_fusion=1, **told)
