"""Architectures that are compared on a GPU: their topology and sizes, seeded weights, any batch; written with ONNX's own operators for
normalisation and attention, so that other frameworks can use theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 23, 11


@dataclass(frozen=True)
class Architecture:
    """A model, and its inputs for a batch."""

    model: onnx.ModelProto
    feeds: Callable[[int], dict[str, np.ndarray]]


class Net:
    """A graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self._rng = np.random.default_rng(0)

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node; the name of its output, or of several."""
        names = [f"{op.lower()}{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, *shape: int, fan: int = 0) -> str:
        """Random weights: such that sums of ``fan`` products stay of size 1; without, small biases."""
        size = (1 / fan) ** 0.5 if fan else 0.02
        return self.constant((self._rng.standard_normal(shape) * size).astype(np.float32))

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def linear(self, x: str, inner: int, outer: int) -> str:
        """x W + b over the last axis."""
        product = self.add("MatMul", x, self.weight(inner, outer, fan=inner))
        return str(self.add("Add", product, self.weight(outer)))

    def normal(self, x: str, width: int) -> str:
        """Layer normalisation."""
        scale = self.constant(np.ones(width, np.float32))
        return str(self.add("LayerNormalization", x, scale, self.weight(width), axis=-1, epsilon=1e-5))

    def convolution(self, x: str, inner: int, outer: int, kernel: int, stride: int = 1) -> str:
        """A convolution with bias that keeps the size but for the stride."""
        weights = self.weight(outer, inner, kernel, kernel, fan=inner * kernel * kernel // 2)
        pads = [kernel // 2] * 4 if kernel % 2 else [0] * 4
        return str(
            self.add("Conv", x, weights, self.weight(outer), strides=[stride] * 2, pads=pads, kernel_shape=[kernel] * 2)
        )

    def named(self, value: str, name: str) -> Net:
        """The net with a value under a name of its own."""
        for node in self.nodes:
            for values in (node.input, node.output):
                values[:] = [name if v == value else v for v in values]
        return self

    def model(self, inputs: Mapping[str, tuple[int, Sequence[Any]]], outputs: Mapping[str, int]) -> onnx.ModelProto:
        """The model; ``outputs`` gives their ranks."""
        graph = helper.make_graph(
            self.nodes, "g",
            [helper.make_tensor_value_info(n, t, list(s)) for n, (t, s) in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * rank) for n, rank in outputs.items()],
            self.weights,
        )  # fmt: skip
        opsets = {"": OPSET, "com.microsoft": 1}
        used = sorted({node.domain for node in self.nodes} | {""})
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid(d, opsets[d]) for d in used], ir_version=IR_VERSION
        )


def resnet(blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64, side: int = 224, classes: int = 1000) -> Architecture:
    """ResNet-50 (He et al., 2015; stride in the 3 x 3 convolution), its normalisations folded into the convolutions."""
    net = Net()
    x = net.add("Relu", net.convolution("x", 3, width, 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inner = width
    for stage, count in enumerate(blocks):
        narrow = width << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = net.add("Relu", net.convolution(x, inner, narrow, 1))
            y = net.add("Relu", net.convolution(y, narrow, narrow, 3, stride))
            y = net.convolution(y, narrow, 4 * narrow, 1)
            skip = x if block else net.convolution(x, inner, 4 * narrow, 1, stride)
            x = net.add("Relu", net.add("Add", y, skip))
            inner = 4 * narrow
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    y = net.linear(x, inner, classes)
    shape = (3, side, side)
    return Architecture(net.model({"x": (TensorProto.FLOAT, ("N", *shape))}, {y: 2}), _images(shape))


def bert(layers: int = 12, width: int = 768, heads: int = 12, length: int = 128, words: int = 30522) -> Architecture:
    """BERT base (Devlin et al., 2018): encoder and pooler."""
    net = Net()
    x = net.add("Gather", net.weight(words, width), "ids")
    x = net.normal(net.add("Add", x, net.weight(length, width)), width)
    for _ in range(layers):
        x = net.normal(net.add("Add", x, _attention(net, x, width, heads)), width)
        x = net.normal(net.add("Add", x, _feed_forward(net, x, width)), width)
    first = net.add("Gather", x, net.constant(np.array(0)), axis=1)
    y = net.add("Tanh", net.linear(first, width, width))
    model = net.model({"ids": (TensorProto.INT64, ("N", length))}, {y: 2})
    return Architecture(model, lambda batch: {"ids": _rng().integers(0, words, (batch, length))})


def vit(
    layers: int = 12, width: int = 768, heads: int = 12, side: int = 224, patch: int = 16, classes: int = 1000
) -> Architecture:
    """ViT-B/16 (Dosovitskiy et al., 2020), the mean of its tokens classified."""
    net, tokens = Net(), (side // patch) ** 2
    x = net.convolution("x", 3, width, patch, patch)
    x = net.add("Reshape", x, net.constant(np.array([0, width, tokens])))
    x = net.add("Add", net.add("Transpose", x, perm=[0, 2, 1]), net.weight(tokens, width))
    for _ in range(layers):
        x = net.add("Add", x, _attention(net, net.normal(x, width), width, heads))
        x = net.add("Add", x, _feed_forward(net, net.normal(x, width), width))
    x = net.add("ReduceMean", net.normal(x, width), net.constant(np.array([1])), keepdims=0)
    y = net.linear(x, width, classes)
    shape = (3, side, side)
    return Architecture(net.model({"x": (TensorProto.FLOAT, ("N", *shape))}, {y: 2}), _images(shape))


def gpt2(layers: int = 12, width: int = 768, heads: int = 12, past: int = 256, words: int = 50257) -> Architecture:
    """One step of GPT-2 (Radford et al., 2019) with a cache of ``past`` tokens: one token in, its logits and the longer cache out."""
    net, size = Net(), width // heads
    x = net.add("Add", net.add("Gather", net.weight(words, width), "ids"), net.weight(1, width))
    caches, presents = [], []
    for layer in range(layers):
        before = [f"past_key{layer}", f"past_value{layer}"]
        y, *after = _attention(net, net.normal(x, width), width, heads, before)
        caches += before
        presents += after
        x = net.add("Add", x, y)
        x = net.add("Add", x, _feed_forward(net, net.normal(x, width), width))
    y = net.add("MatMul", net.normal(x, width), net.weight(width, words, fan=width))
    cache = (TensorProto.FLOAT, ("N", heads, past, size))
    model = net.model(
        {"ids": (TensorProto.INT64, ("N", 1)), **dict.fromkeys(caches, cache)}, {y: 3, **dict.fromkeys(presents, 4)}
    )

    def feeds(batch: int) -> dict[str, np.ndarray]:
        rng = _rng()
        made = {n: rng.standard_normal((batch, heads, past, size)).astype(np.float32) for n in caches}
        return {"ids": rng.integers(0, words, (batch, 1)), **made}

    return Architecture(model, feeds)


ARCHITECTURES: dict[str, Callable[..., Architecture]] = {
    "resnet50": resnet,
    "bert_base": bert,
    "vit_b16": vit,
    "gpt2 decode": gpt2,
}


def small(name: str) -> Architecture:
    """An architecture with two layers and narrow ones."""
    sizes: dict[str, dict[str, Any]] = {
        "resnet50": {"blocks": (1, 2), "width": 8, "side": 32, "classes": 10},
        "bert_base": {"layers": 2, "width": 24, "heads": 3, "length": 10, "words": 50},
        "vit_b16": {"layers": 2, "width": 24, "heads": 3, "side": 32, "patch": 8, "classes": 10},
        "gpt2 decode": {"layers": 2, "width": 24, "heads": 3, "past": 9, "words": 50},
    }
    return ARCHITECTURES[name](**sizes[name])


def _attention(net: Net, x: str, width: int, heads: int, past: Sequence[str] = ()) -> Any:
    """Attention with its projections; with a cache the two longer ones too."""
    q, k, v = (net.linear(x, width, width) for _ in range(3))
    inputs = [q, k, v, *(["", *past] if past else [])]
    made = net.add("Attention", *inputs, outputs=3 if past else 1, q_num_heads=heads, kv_num_heads=heads)
    if not past:
        return net.linear(made, width, width)
    return net.linear(made[0], width, width), made[1], made[2]


def _feed_forward(net: Net, x: str, width: int) -> str:
    return net.linear(net.add("Gelu", net.linear(x, width, 4 * width)), 4 * width, width)


def _images(shape: tuple[int, int, int]) -> Callable[[int], dict[str, np.ndarray]]:
    return lambda batch: {"x": _rng().standard_normal((batch, *shape)).astype(np.float32)}


def _rng() -> np.random.Generator:
    return np.random.default_rng(1)
