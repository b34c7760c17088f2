"""Versions of operators that onnx itself no longer runs or infers."""

from __future__ import annotations

import numpy as np
from core_graphs import model
from onnx import TensorProto, helper

import onnxplug as ort

CPU = ["CPUExecutionProvider"]


def test_group_normalization_18_keeps_the_type_of_its_input() -> None:
    """onnx withdrew version 18, which has one scale for each group, and infers nothing for it."""
    made = model(
        "g (float[N,4,3] x, float[2] s, float[2] b) => (float[N,4,3] y) { y = GroupNormalization<num_groups=2>(x, s, b) }",
        18,
    )
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    scale, bias = np.array([2, 3], np.float32), np.array([-1, 1], np.float32)
    (y,) = ort.InferenceSession(made, providers=CPU).run(None, {"x": x, "s": scale, "b": bias})
    groups = x.reshape(2, 2, 6).astype(np.float64)
    centred = groups - groups.mean(2, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(2, keepdims=True) + 1e-5) * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(y, want.reshape(x.shape), rtol=1e-5, atol=1e-6)


def test_scan_8_fills_strings_up_with_empty_ones() -> None:
    text = TensorProto.STRING
    body = helper.make_graph(
        [helper.make_node("Identity", ["e"], ["f"])],
        "body",
        [helper.make_tensor_value_info("e", text, [])],
        [helper.make_tensor_value_info("f", text, [])],
    )
    graph = helper.make_graph(
        [helper.make_node("Scan", ["n", "x"], ["y"], body=body, num_scan_inputs=1)],
        "scan",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("x", text, [2, 3]),
        ],
        [helper.make_tensor_value_info("y", text, [2, 3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=8).SerializeToString()
    x = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
    (y,) = ort.InferenceSession(made, providers=CPU).run(None, {"n": np.array([1, 2]), "x": x})
    assert y.tolist() == [["a", "", ""], ["d", "e", ""]]


def test_a_map_of_double_stays_double() -> None:
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", int64_vocabulary=[2, 1, 5])
    x = helper.make_value_info(
        "x", helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.DOUBLE, ()))
    )
    graph = helper.make_graph([node], "vector", [x], [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1, 3])])
    imports = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 18)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    (y,) = ort.InferenceSession(made, providers=CPU).run(None, {"x": {1: 0.1, 2: 0.2}})
    assert y.dtype == np.float64 and y.tolist() == [[0.2, 0.1, 0.0]]
