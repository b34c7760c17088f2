"""Small models from nodes, as sessions and as graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

import onnxplug as ort
from onnxplug.graph import Graph, Schemas, build_graph
from onnxplug.graph.infer import infer_graph
from onnxplug.load import load_model

X, Y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
ONE = np.array([1, -2], np.float32)


def proto(nodes: Sequence[Any], inputs: Sequence[Any] = (X,), outputs: Sequence[Any] = (Y,), **more: Any) -> ModelProto:
    opsets = more.pop("opsets", {"": 21})
    return helper.make_model(
        helper.make_graph(list(nodes), "g", list(inputs), list(outputs), more.pop("initializer", None)),
        opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()],
        ir_version=more.pop("ir_version", 9),
        functions=more.pop("functions", []),
    )


def session(source: ModelProto | bytes, **keywords: Any) -> ort.InferenceSession:
    data = source if isinstance(source, bytes) else source.SerializeToString()
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"], enable_fallback=0, **keywords)


def graph(source: ModelProto | bytes) -> Graph:
    built = build_graph(load_model(source if isinstance(source, bytes) else source.SerializeToString()), Schemas())
    infer_graph(built)
    return built


node = helper.make_node


def twice(made: Any) -> Any:
    made.attribute.append(made.attribute[0])
    return made
