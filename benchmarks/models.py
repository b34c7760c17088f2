"""The models that are timed: made here, with seeded weights, so that nothing is downloaded."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from networks import IR_VERSION, OPSET, decoder, encoder, lstm, mobilenet, perceptron


def identity() -> ModelProto:
    """One Identity of four floats: what is timed is the call."""
    return _model([helper.make_node("Identity", ["x"], ["y"])], [4])


def adds(count: int = 300) -> ModelProto:
    """A chain of ``count`` Adds of 16 floats: what is timed is the step from node to node."""
    names = ["x", *(f"t{i}" for i in range(1, count)), "y"]
    nodes = [helper.make_node("Add", [a, "b"], [b]) for a, b in itertools.pairwise(names)]
    return _model(nodes, [1, 16], numpy_helper.from_array(np.full(16, 0.01, np.float32), "b"))


def light(name: str) -> ModelProto:
    """A CNN of onnx's own light models: real topology, seeded random weights in place of its ConstantOfShape weights."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    graph, rng = model.graph, np.random.default_rng(0)
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    scales = {n.input[i] for n in graph.node if n.op_type == "BatchNormalization" for i in (1, 4)}
    weights = [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in shapes]
    for node in weights:
        graph.node.remove(node)
        values = _weights(shapes[node.input[0]].tolist(), node.output[0] in scales, rng)
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
    used = {name for n in graph.node for name in n.input}
    for field in (graph.initializer, graph.input):
        for unused in [item for item in field if item.name not in used]:
            field.remove(unused)
    return model


CASES: dict[str, Callable[[], ModelProto]] = {
    "identity": identity,
    "300 adds": adds,
    "perceptron": perceptron,
    "squeezenet": lambda: light("squeezenet"),
    "resnet50": lambda: light("resnet50"),
    "mobilenet v2": mobilenet,
    "bert blocks": encoder,
    "gpt2 blocks": decoder,
    "lstm": lstm,
}
QUICK = ("identity", "perceptron")
"""Those that say whether the benchmark works."""


def _weights(shape: list[int], positive: bool, rng: np.random.Generator) -> np.ndarray:
    """He-scaled weights, small biases; scales and variances of normalisation between 0.5 and 1.5."""
    if positive:
        values = 0.5 + rng.random(shape)
    elif len(shape) > 1:
        values = rng.standard_normal(shape) * np.sqrt(2 / max(1, int(np.prod(shape[1:]))))
    else:
        values = rng.standard_normal(shape) * 0.1
    return np.asarray(values, np.float32)


def _model(nodes: list[onnx.NodeProto], shape: list[int], *initializers: TensorProto) -> ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "bench",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, shape)],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
