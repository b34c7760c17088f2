"""Models of what transformer and quantization tools write, and of convolutions that are not over images: their results are compared on a
GPU with the CPU provider's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import TensorProto

from gpu_models import Architecture, Net

MS = "com.microsoft"
LENGTH, WORDS = 40, 200


def encoder(width: int = 128, heads: int = 4, layers: int = 2) -> Architecture:
    """BERT as onnxruntime's optimizer writes it, with padding."""
    net = Net()
    tables = [net.weight(n, width, fan=1) for n in (WORDS, LENGTH, 2)]
    ones, small = net.constant(np.ones(width, np.float32)), net.weight(width)
    x, _ = net.add("EmbedLayerNormalization", "ids", "kinds", *tables, ones, small, "seen", outputs=2, domain=MS)
    for _ in range(layers):
        projection = net.weight(width, 3 * width, fan=width), net.weight(3 * width)
        y = net.add("Attention", x, *projection, "seen", domain=MS, num_heads=heads)
        x = net.add("SkipLayerNormalization", net.linear(y, width, width), x, ones, small, domain=MS)
    inputs = {name: (TensorProto.INT32, ["N", LENGTH]) for name in ("ids", "kinds", "seen")}

    def feeds(batch: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(1)
        seen = (np.arange(LENGTH) < rng.integers(1, LENGTH + 1, (batch, 1))).astype(np.int32)
        ids, kinds = (rng.integers(0, n, (batch, LENGTH)).astype(np.int32) for n in (WORDS, 2))
        return {"ids": ids, "kinds": kinds, "seen": seen}

    return Architecture(net.named(x, "y").model(inputs, {"y": 3}), feeds)


def four_bits(width: int = 128, heads: int = 4, block: int = 32) -> Architecture:
    """A decoder's layer with weights of four bits, rotated queries and keys, and causal attention."""
    net, rng = Net(), np.random.default_rng(2)

    def linear(x: str) -> str:
        blocks = width // block
        packed = net.constant(rng.integers(0, 256, (width, blocks, block // 2)).astype(np.uint8))
        scales = net.constant((rng.random(width * blocks) * 0.05).astype(np.float32))
        sizes = {"K": width, "N": width, "bits": 4, "block_size": block}
        return str(net.add("MatMulNBits", x, packed, scales, domain=MS, **sizes))

    angles = np.outer(np.arange(LENGTH), 0.9 ** np.arange(width // heads // 2)).astype(np.float32)
    turns = [net.constant(f(angles)) for f in (np.cos, np.sin)]
    places = net.constant(np.zeros(1, np.int64))
    q, k = (net.add("RotaryEmbedding", linear("x"), places, *turns, domain=MS, num_heads=heads) for _ in range(2))
    y = net.add("MultiHeadAttention", q, k, linear("x"), domain=MS, num_heads=heads, unidirectional=1)
    return _floats(net.named(linear(y), "y"), (LENGTH, width))


def integers(channels: int = 16) -> Architecture:
    """A quantized network of images: convolutions, a pooled product, and one whose input is quantized by its range."""
    net, rng = Net(), np.random.default_rng(3)
    scale, zero = net.constant(np.float32(0.05)), net.constant(np.uint8(120))
    signed = net.constant(np.int8(0))

    def weights(*shape: int) -> str:
        return net.constant(rng.integers(-127, 128, shape).astype(np.int8))

    each = net.constant((rng.random(channels) * 0.01 + 0.001).astype(np.float32))
    zeros = net.constant(np.zeros(channels, np.int8))
    x = net.add("QuantizeLinear", "x", scale, zero)
    for _ in range(2):
        w = weights(channels, channels, 3, 3)
        x = net.add("QLinearConv", x, scale, zero, w, each, zeros, scale, zero, pads=[1] * 4)
    x = net.add("DequantizeLinear", x, scale, zero)
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    numbers, by, from_ = net.add("DynamicQuantizeLinear", x, outputs=3)
    y = net.add("Cast", net.add("MatMulInteger", numbers, weights(channels, 10), from_, signed), to=TensorProto.FLOAT)
    return _floats(net.named(net.add("Mul", y, by), "y"), (channels, 12, 12), rank=2)


def volumes(channels: int = 16) -> Architecture:
    """A small U-shape over volumes: down by strides, up by a transposed convolution."""
    net = Net()

    def weights(*window: int) -> tuple[str, str]:
        return net.weight(channels, channels, *window, fan=channels * int(np.prod(window))), net.weight(channels)

    a = net.add("Relu", net.add("Conv", "x", *weights(3, 3, 3), pads=[1] * 6))
    b = net.add("Relu", net.add("Conv", a, *weights(2, 2, 2), strides=[2] * 3))
    up = net.add("ConvTranspose", b, *weights(2, 2, 2), strides=[2] * 3)
    return _floats(net.named(net.add("Add", up, a), "y"), (channels, 8, 8, 8))


def sound(channels: int = 16) -> Architecture:
    """Convolutions along a line and back."""
    net = Net()
    w, b = net.weight(channels, channels, 4, fan=4 * channels), net.weight(channels)
    a = net.add("Relu", net.add("Conv", "x", w, b, strides=[2], pads=[1, 1]))
    return _floats(net.named(net.add("ConvTranspose", a, w, b, strides=[2], pads=[1, 1]), "y"), (channels, 100))


MODELS: Mapping[str, Callable[[], Architecture]] = {
    "bert, optimized": encoder, "decoder of 4 bits": four_bits, "integers": integers, "volumes": volumes, "sound": sound,
}  # fmt: skip
LARGEST_ERRORS: Mapping[str, float] = {"integers": 0.02}
"""Of the largest result, where it is not that of float32: a quantized value may round to its neighbour."""


def _floats(net: Net, shape: tuple[int, ...], rank: int = 0) -> Architecture:
    """The model of a net with one float input."""
    made = net.model({"x": (TensorProto.FLOAT, ["N", *shape])}, {"y": rank or len(shape) + 1})
    return Architecture(
        made, lambda batch: {"x": np.random.default_rng(1).standard_normal((batch, *shape)).astype(np.float32)}
    )
