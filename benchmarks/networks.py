"""Architectures that onnx does not bring: built here with their real dimensions and seeded random weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8


class Builder:
    """A graph as it grows: each method adds nodes and gives the name of what they make."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[TensorProto] = []
        self._rng = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """A node with one output."""
        name = f"{kind.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def several(self, kind: str, count: int, *inputs: str, **attributes: object) -> list[str]:
        """A node with several outputs."""
        names = [f"{kind.lower()}{len(self._nodes)}_{i}" for i in range(count)]
        self._nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names

    def constant(self, array: np.ndarray) -> str:
        """An initializer."""
        name = f"w{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape: int, inputs: int) -> str:
        """Normal weights for a sum over ``inputs`` values."""
        return self.constant((self._rng.standard_normal(shape) / math.sqrt(inputs)).astype(np.float32))

    def ints(self, *values: int) -> str:
        """An int64 vector."""
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        """A float32 scalar."""
        return self.constant(np.float32(value)[()].reshape(()))

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        """MatMul and bias."""
        product = self.op("MatMul", x, self.weights(inputs, outputs, inputs=inputs))
        return self.op("Add", product, self.weights(outputs, inputs=100))

    def norm(self, x: str, width: int) -> str:
        """Layer normalisation of the last axis."""
        ones, zeros = self.constant(np.ones(width, np.float32)), self.constant(np.zeros(width, np.float32))
        return self.op("LayerNormalization", x, ones, zeros, axis=-1, epsilon=1e-5)

    def gelu(self, x: str) -> str:
        """x * (1 + erf(x / sqrt 2)) / 2, as exporters write it."""
        erf = self.op("Erf", self.op("Div", x, self.scalar(math.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.scalar(1))), self.scalar(0.5))

    def attention(self, x: str, width: int, heads: int, length: int, mask: str = "") -> str:
        """Scaled dot product attention of ``heads`` heads, with its projections; ``mask`` is added to the scores."""
        split = self.ints(0, length, heads, width // heads)
        parts = [self.op("Reshape", self.dense(x, width, width), split) for _ in range(3)]
        q, v = (self.op("Transpose", parts[i], perm=[0, 2, 1, 3]) for i in (0, 2))
        k = self.op("Transpose", parts[1], perm=[0, 2, 3, 1])
        scores = self.op("Div", self.op("MatMul", q, k), self.scalar(math.sqrt(width // heads)))
        shares = self.op("Softmax", self.op("Add", scores, mask) if mask else scores, axis=-1)
        joined = self.op("Transpose", self.op("MatMul", shares, v), perm=[0, 2, 1, 3])
        return self.dense(self.op("Reshape", joined, self.ints(0, length, width)), width, width)

    def model(self, kind: int, shape: Sequence[int], output: str) -> ModelProto:
        """The model from input ``x`` of that type and shape to one output."""
        inputs = [helper.make_tensor_value_info("x", kind, shape)]
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self._nodes, "bench", inputs, outputs, self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def mobilenet() -> ModelProto:
    """MobileNetV2 (Sandler et al., arXiv 1801.04381, table 2) for 224 x 224 images, normalisations folded as exporters do."""
    b = Builder()

    def conv(x: str, inputs: int, outputs: int, size: int, stride: int, groups: int = 1, clip: bool = True) -> str:
        weights = b.weights(outputs, inputs // groups, size, size, inputs=inputs // groups * size * size)
        made = b.op(
            "Conv", x, weights, b.weights(outputs, inputs=100), kernel_shape=[size, size], strides=[stride, stride],
            pads=[size // 2] * 4, group=groups,
        )  # fmt: skip
        return b.op("Clip", made, low, high) if clip else made

    low, high = b.scalar(0), b.scalar(6)
    x, width = conv("x", 3, 32, 3, 2), 32
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, outputs, blocks, first in stages:
        for block in range(blocks):
            stride, inner = first if block == 0 else 1, width * expansion
            y = x if expansion == 1 else conv(x, width, inner, 1, 1)
            y = conv(conv(y, inner, inner, 3, stride, groups=inner), inner, outputs, 1, 1, clip=False)
            x, width = b.op("Add", x, y) if stride == 1 and width == outputs else y, outputs
    x = b.op("Flatten", b.op("GlobalAveragePool", conv(x, width, 1280, 1, 1)))
    return b.model(TensorProto.FLOAT, [1, 3, 224, 224], b.dense(x, 1280, 1000))


def encoder(blocks: int = 4, width: int = 768, heads: int = 12, length: int = 128) -> ModelProto:
    """Blocks of BERT base (Devlin et al., arXiv 1810.04805) over embedded tokens, normalised behind each sum."""
    b, x = Builder(), "x"
    for _ in range(blocks):
        x = b.norm(b.op("Add", x, b.attention(x, width, heads, length)), width)
        inner = b.gelu(b.dense(x, width, 4 * width))
        x = b.norm(b.op("Add", x, b.dense(inner, 4 * width, width)), width)
    return b.model(TensorProto.FLOAT, [1, length, width], x)


def decoder(blocks: int = 4, width: int = 768, heads: int = 12, length: int = 64, words: int = 8192) -> ModelProto:
    """Blocks of GPT-2 (Radford et al., 2019) with embedding, causal mask and output projection, normalised before each part."""
    b = Builder()
    mask = b.constant(np.triu(np.full((length, length), -1e4, np.float32), 1))
    x = b.op("Gather", b.weights(words, width, inputs=100), "x")
    x = b.op("Add", x, b.weights(length, width, inputs=100))
    for _ in range(blocks):
        x = b.op("Add", x, b.attention(b.norm(x, width), width, heads, length, mask))
        inner = b.gelu(b.dense(b.norm(x, width), width, 4 * width))
        x = b.op("Add", x, b.dense(inner, 4 * width, width))
    logits = b.op("MatMul", b.norm(x, width), b.weights(width, words, inputs=width))
    return b.model(TensorProto.INT64, [1, length], logits)


def lstm(layers: int = 2, features: int = 80, width: int = 320, length: int = 100) -> ModelProto:
    """Bidirectional LSTM layers over frames of speech, time first, and a projection to characters."""
    b, x, inputs = Builder(), "x", features
    for _ in range(layers):
        w, r = b.weights(2, 4 * width, inputs, inputs=inputs), b.weights(2, 4 * width, width, inputs=width)
        y, _, _ = b.several("LSTM", 3, x, w, r, hidden_size=width, direction="bidirectional")
        x, inputs = b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), b.ints(length, 1, 2 * width)), 2 * width
    return b.model(TensorProto.FLOAT, [length, 1, features], b.dense(x, inputs, 32))


def perceptron() -> ModelProto:
    """Three small layers: what is timed is as much the call as the work."""
    b, x = Builder(), "x"
    for inputs, outputs in ((32, 64), (64, 64), (64, 4)):
        x = b.op("Relu", b.dense(x, inputs, outputs))
    return b.model(TensorProto.FLOAT, [1, 32], b.op("Softmax", x, axis=-1))
