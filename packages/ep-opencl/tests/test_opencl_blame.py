"""Which node of a fused chain is named when its operands do not go together."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from opencl_models import needs_device

import onnxplug


@needs_device
def test_a_node_within_a_chain_is_named() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "before"),
        helper.make_node("Add", ["r", "w"], ["s"], "culprit"),
        helper.make_node("Relu", ["s"], ["y"], "after"),
    ]
    shapes = {"x": ["n", "m"], "w": ["p", "q"], "y": None}
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    graph = helper.make_graph(nodes, "chain", [infos["x"], infos["w"]], [infos["y"]])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxplug.InferenceSession(made.SerializeToString(), providers=["OpenCLExecutionProvider"])
    with pytest.raises(Exception, match="culprit"):
        session.run(None, {"x": np.zeros((2, 3), np.float32), "w": np.zeros((4, 5), np.float32)})
