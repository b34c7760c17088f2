"""Optimizer steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from onnxplug.contract.types import ELEMENT_CODES, numpy_dtype
from operators.case import Case, Draw, strategy

DOMAIN = "ai.onnx.preview.training"


@strategy("Adagrad", "Adam", "Momentum", domain=DOMAIN)
def step(d: Draw) -> Case:
    element = d.element("T3")
    kinds = 4 if d.op_type == "Adam" else 3
    shapes = [d.shape(1, 2, sizes=(3, 2)) for _ in range(d.pick(1, 2))]
    inputs: list[Any] = [np.array(0.1, numpy_dtype(d.element("T1"))), np.array(d.pick(2, 0, 5), np.int64)]
    for kind in range(kinds):
        inputs += [d.tensor(shape, element, 0.1 if kind >= 2 else -1, 1) for shape in shapes]
    if d.op_type == "Momentum":
        attributes: dict[str, Any] = {
            "alpha": 0.9,
            "beta": 0.8,
            "mode": d.pick("standard", "nesterov"),
            "norm_coefficient": 0.1,
        }
    elif d.op_type == "Adam":
        attributes = d.maybe(alpha=0.8, beta=0.99, epsilon=1e-3, norm_coefficient=0.1, norm_coefficient_post=0.05)
    else:
        attributes = d.maybe(decay_factor=0.1, epsilon=1e-3, norm_coefficient=0.1)
    return Case(inputs, attributes, (kinds - 1) * len(shapes), initializers=frozenset())


@strategy("Gradient", domain=DOMAIN)
def gradient(d: Draw) -> Case:
    """y = sum(x * x) * size(z), differentiated by x; z may be of any type."""
    element = d.element("T2", ("float", "double"))
    nodes = [
        helper.make_node("Mul", ["x0", "x0"], ["squares"]),
        helper.make_node("ReduceSum", ["squares"], ["sum"], keepdims=0),
        helper.make_node("Size", ["x1"], ["count"]),
        helper.make_node("Cast", ["count"], ["times"], to=ELEMENT_CODES[element]),
        helper.make_node("Mul", ["sum", "times"], ["y"]),
    ]
    x, z = d.tensor(d.shape(), element), d.tensor(d.shape(), d.element("T1"))
    types = {"in0": f"tensor({element})", "in1": d.type("T1")}
    return Case([x, z], {"xs": ["x0"], "zs": ["x1"], "y": "y"}, types=types, before=nodes)
