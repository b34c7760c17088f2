"""Writing a network as calls, and the layers that networks of all kinds have."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from onnx import helper

from fuzz.program import Program


class Net:
    """A program that is written as calls; values are known by name, and computed by nobody until it runs."""

    def __init__(self, chance: random.Random, opset: int, element: type = np.float32) -> None:
        self.chance, self.program, self.element = chance, Program(opset), element
        self.rng = np.random.default_rng(chance.getrandbits(32))

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


def norm(n: Net, x: str, width: int) -> str:
    """LayerNormalization, as an operator or in the nodes of older exporters, or of root mean squares."""
    element = n.element
    if n.program.opset >= 17 and n.maybe():
        return str(n("LayerNormalization", x, n.positive(width), n.floats(width) if n.maybe() else None, axis=-1))
    centred = n("Sub", x, mean(n, x, -1)) if n.maybe() else x
    spread = n(
        "Sqrt",
        n(
            "Add",
            mean(n, n("Pow", centred, np.array(2, element)) if n.maybe() else n("Mul", centred, centred), -1),
            np.array(1e-3, element),
        ),
    )
    scaled = n("Mul", n("Div", centred, spread), n.positive(width))
    return str(n("Add", scaled, n.floats(width)) if n.maybe() else scaled)


def mean(n: Net, x: str, *axes: int) -> str:
    """ReduceMean as the version wants its axes."""
    if n.program.opset >= 18:
        return str(n("ReduceMean", x, np.array(axes)))
    return str(n("ReduceMean", x, axes=list(axes)))


def linear(n: Net, x: str, rows: int, columns: int) -> str:
    """A product with weights and what follows."""
    y = n("MatMul", x, n.floats(rows, columns, scale=0.25))
    return str(n("Add", *n.pick([y, n.floats(columns)], [n.floats(columns), y])) if n.maybe() else y)
