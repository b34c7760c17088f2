"""Programs built as networks are: blocks of convolutions, of attention, of quantized products, of computed shapes, over dynamic sizes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from fuzz.program import Program, typed

Block = Callable[["Net", str], str]


class Net:
    """A program that is written as calls; values are known by name, and computed by nobody until it runs."""

    def __init__(self, chance: random.Random, opset: int, element: type = np.float32) -> None:
        self.chance, self.program, self.element = chance, Program(opset), element
        self.rng = np.random.default_rng(chance.getrandbits(32))
        self.shapes: dict[str, tuple[int, ...]] = {}

    def __call__(self, op_type: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """The names of what a node gives; arrays among its inputs become initializers."""
        names = [i if isinstance(i, str) else "" if i is None else self.constant(i) for i in inputs]
        made = [f"v{len(self.program.values) + k}" for k in range(outputs)]
        for name in made:
            self.program.values[name] = None
            self.program.types[name] = "tensor(float)"
        self.program.nodes.append(helper.make_node(op_type, names, made, domain=domain, **attributes))
        return made[0] if outputs == 1 else made

    def constant(self, value: Any) -> str:
        return self.program.give(np.asarray(value), fixed=True)

    def input(self, value: np.ndarray, *free: int) -> str:
        """An input, and which of its axes may have any size."""
        name = self.program.give(value, fixed=False)
        self.program.free[name] = free
        return name

    def floats(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """Halves and quarters, of which products and short sums are exact."""
        return (np.round(self.rng.uniform(-2, 2, shape) * 4) / 4 * scale).astype(self.element)

    def positive(self, *shape: int) -> np.ndarray:
        return (np.round(self.rng.uniform(1, 8, shape)) / 4).astype(self.element)

    def pick(self, *options: Any) -> Any:
        return self.chance.choice(options)

    def maybe(self, share: float = 0.5) -> bool:
        return self.chance.random() < share


def activation(n: Net, x: str) -> str:
    """One of the functions between layers, some written out as exporters do."""
    kind = n.pick(
        "Relu",
        "LeakyRelu",
        "Sigmoid",
        "Tanh",
        "HardSigmoid",
        "Clip",
        "silu",
        "gelu",
        "hswish",
        "PRelu",
        "Elu",
        "Softplus",
        "mish",
        "none",
    )
    one = lambda v: np.array(v, n.element)  # noqa: E731
    if kind == "none":
        return x
    if kind == "Clip":
        return str(n("Clip", x, one(0), n.pick(None, one(6))))
    if kind == "silu":
        return str(n("Mul", x, n("Sigmoid", x)))
    if kind == "gelu":
        inner = n("Add", n("Erf", n("Div", x, one(2**0.5))), one(1))
        return str(n("Mul", n("Mul", x, inner), one(0.5)))
    if kind == "hswish":
        return str(n("Mul", x, n("Div", n("Clip", n("Add", x, one(3)), one(0), one(6)), one(6))))
    if kind == "mish":
        return str(n("Mul", x, n("Tanh", n("Softplus", x))))
    return str(n(kind, x, one([0.25]))) if kind == "PRelu" else str(n(kind, x))


def image(n: Net) -> list[str]:
    """Convolutions, normalisation, pooling and what goes around them, of one or several images."""
    batch, channels, height, width = (
        n.pick(1, 2, 3),
        n.pick(1, 3, 4, 8, 16),
        n.pick(5, 8, 16, 17),
        n.pick(6, 8, 15, 16, 24),
    )
    x = n.input(n.floats(batch, channels, height, width), 0, 2, 3)
    kept = []
    for _ in range(n.pick(1, 2, 3, 4)):
        x, channels = n.pick(
            _conv, _conv, _conv, _pointwise_and_add, _squeeze_excite, _pool, _concat, _resize, _shuffle, _channel_norm
        )(n, x, channels)
        if n.maybe(0.3):
            kept.append(x)
    if n.maybe():
        pooled = n(n.pick("GlobalAveragePool", "GlobalMaxPool"), x)
        flat = n.pick(
            lambda: n("Flatten", pooled),
            lambda: n("Reshape", pooled, np.array([0, -1])),
            lambda: n("Squeeze", pooled, np.array([2, 3])),
        )()
        x = n("Gemm", flat, n.floats(n.pick(3, 10, 17), channels), None, transB=1)
        x = n("Softmax", x) if n.maybe() else x
    return [*kept, x]


def _conv(n: Net, x: str, channels: int) -> tuple[str, int]:
    kernel, group = n.pick(1, 3, 3, 5, 2), n.pick(1, 1, channels, 2 if channels % 2 == 0 else 1)
    out = n.pick(1, 2, 4, 8, 16, 17, 32) if group == 1 else channels * n.pick(1, 2)
    attributes: dict[str, Any] = {"strides": [n.pick(1, 1, 2)] * 2, "group": group}
    if n.maybe(0.2):
        attributes["auto_pad"] = n.pick("SAME_UPPER", "SAME_LOWER")
    else:
        attributes["pads"] = [n.pick(0, 1, kernel // 2) for _ in range(4)] if n.maybe(0.3) else [kernel // 2] * 4
        attributes["dilations"] = [n.pick(1, 1, 2)] * 2
        if kernel > 3 or attributes["dilations"][0] > 1:
            attributes["pads"] = [kernel] * 4
    weights = [n.floats(out, channels // group, kernel, kernel, scale=0.25), n.floats(out) if n.maybe() else None]
    if n.maybe(0.1):
        weights = [n("Mul", weights[0], np.array(2, n.element)), *weights[1:]]
    y = n("Conv", x, *weights, **attributes)
    if n.maybe(0.3):
        y = n("BatchNormalization", y, n.positive(out), n.floats(out), n.floats(out), n.positive(out))
    return activation(n, y), out


def _pointwise_and_add(n: Net, x: str, channels: int) -> tuple[str, int]:
    y = n("Conv", activation(n, x), n.floats(channels, channels, 1, 1, scale=0.25), n.floats(channels))
    return activation(n, n("Add", *(n.pick([x, y], [y, x])))), channels


def _squeeze_excite(n: Net, x: str, channels: int) -> tuple[str, int]:
    pooled = n("GlobalAveragePool", x) if n.maybe() else _mean(n, x, 2, 3)
    small = activation(n, n("Conv", pooled, n.floats(2, channels, 1, 1, scale=0.25)))
    return n("Mul", x, n(n.pick("Sigmoid", "HardSigmoid"), n("Conv", small, n.floats(channels, 2, 1, 1)))), channels


def _pool(n: Net, x: str, channels: int) -> tuple[str, int]:
    kind = n.pick("MaxPool", "AveragePool")
    more = {"count_include_pad": 1} if kind == "AveragePool" and n.maybe() else {}
    return n(kind, x, kernel_shape=[n.pick(2, 3)] * 2, strides=[n.pick(1, 2)] * 2, pads=[1] * 4, **more), channels


def _concat(n: Net, x: str, channels: int) -> tuple[str, int]:
    if channels % 2 == 0 and n.maybe():
        halves = n("Split", x, np.array([channels // 2] * 2), outputs=2, axis=1)
        return n("Concat", activation(n, halves[0]), halves[1], halves[0], axis=1), channels * 3 // 2
    return n("Concat", x, activation(n, x), axis=1), channels * 2


def _resize(n: Net, x: str, channels: int) -> tuple[str, int]:
    mode = n.pick("nearest", "linear")
    way = n.pick("asymmetric", "half_pixel", "align_corners")
    factors = (2.0, 3.0) if way == "align_corners" else (2.0, 1.5, 0.5)  # onnxruntime aligns the whole part of a size
    scales = np.array([1, 1, n.pick(*factors), n.pick(2.0, 3.0)], np.float32)
    return n(
        "Resize",
        x,
        None,
        scales,
        mode=mode,
        coordinate_transformation_mode=way,
        **({"nearest_mode": "floor"} if mode == "nearest" else {}),
    ), channels


def _shuffle(n: Net, x: str, channels: int) -> tuple[str, int]:
    if channels % 2:
        return n("Pad", x, np.array([0, 0, 1, 0, 0, 0, 0, 2]), mode=n.pick("constant", "reflect", "edge")), channels
    if n.maybe():
        shape = n("Shape", x)
        sizes = [n("Slice", shape, np.array([a]), np.array([b])) for a, b in ((0, 1), (2, 4))]
        y = n(
            "Transpose",
            n("Reshape", x, n("Concat", sizes[0], np.array([2, channels // 2]), sizes[1], axis=0)),
            perm=[0, 2, 1, 3, 4],
        )
        return n("Reshape", y, n("Concat", sizes[0], np.array([channels]), sizes[1], axis=0)), channels
    return n("Transpose", activation(n, n("Transpose", x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2]), channels


def _channel_norm(n: Net, x: str, channels: int) -> tuple[str, int]:
    if n.maybe():
        return n("InstanceNormalization", x, n.positive(channels), n.floats(channels)), channels
    y = n("Transpose", x, perm=[0, 2, 3, 1])
    return n("Transpose", norm(n, y, channels), perm=[0, 3, 1, 2]), channels


def norm(n: Net, x: str, width: int) -> str:
    """LayerNormalization, as an operator or in the nodes of older exporters, or of root mean squares."""
    element = n.element
    if n.program.opset >= 17 and n.maybe():
        return str(n("LayerNormalization", x, n.positive(width), n.floats(width) if n.maybe() else None, axis=-1))

    def mean(v: str) -> str:
        return str(_mean(n, v, -1))

    centred = n("Sub", x, mean(x)) if n.maybe() else x
    spread = n(
        "Sqrt",
        n(
            "Add",
            mean(n("Pow", centred, np.array(2, element)) if n.maybe() else n("Mul", centred, centred)),
            np.array(1e-3, element),
        ),
    )
    scaled = n("Mul", n("Div", centred, spread), n.positive(width))
    return str(n("Add", scaled, n.floats(width)) if n.maybe() else scaled)


def _mean(n: Net, x: str, *axes: int) -> str:
    """ReduceMean as the version wants its axes."""
    if n.program.opset >= 18:
        return str(n("ReduceMean", x, np.array(axes)))
    return str(n("ReduceMean", x, axes=list(axes)))


def linear(n: Net, x: str, rows: int, columns: int) -> str:
    """A product with weights and what follows."""
    y = n("MatMul", x, n.floats(rows, columns, scale=0.25))
    return str(n("Add", *n.pick([y, n.floats(columns)], [n.floats(columns), y])) if n.maybe() else y)


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
    build = chance.choice((image, image, tokens, tokens, quantized))
    element = np.float32 if build is quantized else chance.choice((np.float32, np.float32, np.float32, np.float16))
    net = Net(chance, opset, element)
    outputs = build(net)
    for name in net.program.made():
        net.program.types[name] = "tensor(float16)" if element is np.float16 else "tensor(float)"
    return net.program, list(dict.fromkeys(name for name in outputs if name in net.program.made()))


__all__ = ["network", "typed"]
