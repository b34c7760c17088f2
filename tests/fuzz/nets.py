"""Programs built as networks are: blocks of convolutions, of attention, of quantized products, of computed shapes, over dynamic sizes."""

from __future__ import annotations

import random

import numpy as np

from fuzz.images import image
from fuzz.mobile import mobile
from fuzz.net import Net, activation, linear, norm
from fuzz.program import Program


def tokens(n: Net) -> list[str]:
    """Blocks of a transformer: attention over heads with computed shapes, and a perceptron."""
    batch, length, heads, size = n.pick(1, 2), n.pick(1, 3, 7, 16, 33), n.pick(1, 2, 4), n.pick(4, 8, 16)
    width = heads * size
    if n.maybe():
        ids = n.input(n.rng.integers(0, 11, (batch, length)), 0, 1)
        x = n("Gather", n.floats(11, width), ids)
    else:
        x = n.input(n.floats(batch, length, width), 0, 1)
    for _ in range(n.pick(1, 1, 2)):
        source = norm(n, x, width) if n.maybe() else x
        x = n("Add", x, linear(n, _attention(n, source, heads, size), width, width))
        inner = n.pick(8, 17, 64)
        x = n("Add", x, linear(n, activation(n, linear(n, norm(n, x, width), width, inner)), inner, width))
    return [x]


def _attention(n: Net, x: str, heads: int, size: int) -> str:
    width, element = heads * size, n.element
    if n.maybe(0.3):
        parts = n("Split", linear(n, x, width, 3 * width), np.array([width] * 3), outputs=3, axis=-1)
    else:
        parts = [linear(n, x, width, width) for _ in range(3)]
    shape = n("Shape", x)
    target = n.pick(
        lambda: np.array([0, -1, heads, size]),
        lambda: n(
            "Concat",
            *(n("Unsqueeze", n("Gather", shape, np.array(i), axis=0), np.array([0])) for i in (0, 1)),
            np.array([heads, size]),
            axis=0,
        ),
    )()
    q, k, v = (n("Transpose", n("Reshape", p, target), perm=[0, 2, 1, 3]) for p in parts)
    scale = np.array(size**-0.5, element)
    scores = n("MatMul", n("Mul", q, scale) if n.maybe() else q, n("Transpose", k, perm=[0, 1, 3, 2]))
    scores = n("Mul", scores, scale) if n.maybe() else n("Div", scores, np.array(size**0.5, element))
    if n.maybe():
        length = n("Gather", shape, np.array(1), axis=0)
        row = n("Range", np.array(0), length, np.array(1))
        causal = n(
            "LessOrEqual" if n.program.opset >= 12 else "Less",
            n("Unsqueeze", row, np.array([0])),
            n("Unsqueeze", row, np.array([1])),
        )
        scores = n("Where", causal, scores, np.array(n.pick(-1e4, -np.inf), element))
    weights = n("Softmax", scores, axis=-1)
    y = n("Transpose", n("MatMul", weights, v), perm=[0, 2, 1, 3])
    return str(n("Reshape", y, np.array([0, 0, width])))


def quantized(n: Net) -> list[str]:
    """Convolutions and products between QuantizeLinear and DequantizeLinear, with scales that are powers of two."""
    unsigned = n.maybe()
    kind = np.uint8 if unsigned else np.int8
    flat = n.maybe()
    channels, out = n.pick(1, 3, 4, 8, 16, 17), n.pick(2, 4, 8, 16, 33)
    x = n.input(
        n.floats(*((n.pick(1, 2, 5), channels) if flat else (n.pick(1, 2), channels, n.pick(6, 8), n.pick(8, 9)))),
        *((0,) if flat else (0, 2, 3)),
    )

    def point() -> tuple[np.ndarray, np.ndarray]:
        return np.array(2.0 ** -n.pick(2, 3, 4), np.float32), np.array(n.pick(0, 3, 128 if unsigned else -5), kind)

    def both(v: str) -> str:
        scale, zero = point()
        return str(n("DequantizeLinear", n("QuantizeLinear", v, scale, zero), scale, zero))

    def weights(*shape: int, axis: int) -> str:
        per = n.maybe()
        scale = np.full(shape[axis], 2.0**-5, np.float32) if per else np.array(2.0**-5, np.float32)
        values = n.rng.integers(-128, 128, shape).astype(np.int8)
        return str(
            n("DequantizeLinear", values, scale, np.zeros(scale.shape, np.int8), **({"axis": axis} if per else {}))
        )

    def bent(v: str) -> str:
        kind = n.pick("Relu", "LeakyRelu", "Clip", "")
        bounds = [np.array(0, np.float32), np.array(6, np.float32)] if kind == "Clip" else []
        return str(n(kind, v, *bounds, **({"alpha": 0.25} if kind == "LeakyRelu" else {}))) if kind else v

    x = both(x)
    for _ in range(n.pick(1, 2, 3)):
        if flat:
            x = n("MatMul", x, weights(channels, out, axis=1))
            x = n("Add", x, n.floats(out)) if n.maybe() else x
        else:
            kernel, group = n.pick(1, 3), channels if n.maybe(0.2) else 1
            out = channels if group > 1 else out
            x = n(
                "Conv",
                x,
                weights(out, channels // group, kernel, kernel, axis=0),
                n.floats(out),
                pads=[kernel // 2] * 4,
                group=group,
                strides=[n.pick(1, 2)] * 2,
            )
        if n.maybe():
            x = bent(x)
        x = both(x)
        if n.maybe(0.3):
            x = both(n("Add", x, n("Mul", x, np.array(0.5, np.float32))))
        if not flat and n.maybe(0.3):
            x = both(n("MaxPool", x, kernel_shape=[2, 2], pads=[1] * 4)) if n.maybe() else n("Concat", x, x, axis=1)
            out = out * 2 if n.program.nodes[-1].op_type == "Concat" else out
        channels, out = out, n.pick(2, 4, 8, 16, 33)
    return [x]


def network(chance: random.Random, opset: int) -> tuple[Program, list[str]]:
    """A program and its outputs."""
    build = chance.choice((image, mobile, mobile, tokens, tokens, quantized))
    element = np.float32 if build is quantized else chance.choice((np.float32, np.float32, np.float32, np.float16))
    net = Net(chance, opset, element)
    outputs = build(net)
    for name in net.program.made():
        net.program.types[name] = "tensor(float16)" if element is np.float16 else "tensor(float)"
    return net.program, list(dict.fromkeys(name for name in outputs if name in net.program.made()))
