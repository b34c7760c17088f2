"""Run a small model on the installed wheels: each provider alone, then both in one session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

import onnxplug as ort

CPU, REFERENCE = "CPUExecutionProvider", "ReferenceExecutionProvider"


def model() -> bytes:
    """relu(x @ w) + 1, w fixed."""
    w = helper.make_tensor("w", TensorProto.FLOAT, [3, 2], [1.0, -1.0, 2.0, 0.5, -1.0, 3.0])
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
            helper.make_node("Relu", ["product"], ["positive"], "positive"),
            helper.make_node("Add", ["positive", "one"], ["y"], "sum"),
        ],
        "smoke",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])],
        [w, one],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def main() -> None:
    """AssertionError where something is missing or wrong."""
    available = ort.get_available_providers()
    assert {CPU, REFERENCE} <= set(available), available
    x = np.array([[1, 2, 3], [-1, 0, 1]], np.float32)
    expected = np.maximum(x @ np.array([[1, -1], [2, 0.5], [-1, 3]], np.float32), 0) + 1
    for providers in ([CPU], [REFERENCE], [REFERENCE, CPU]):
        session = ort.InferenceSession(model(), providers=providers)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, expected, rtol=1e-6)
        assert set(session.placement().values()) == {providers[0]}, session.placement()
    subprocess.run([Path(sys.executable).with_name("onnxplug"), "providers"], check=True)
    print("smoke: ok")


if __name__ == "__main__":
    main()
