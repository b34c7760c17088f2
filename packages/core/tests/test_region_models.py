"""Nodes as the ONNX model that a provider hands to another library."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from onnxplug.contract.model import boundary, onnx_model
from onnxplug.graph import Graph, Schemas, build_graph
from onnxplug.graph.infer import infer_graph
from onnxplug.load import load_model

WEIGHTS = np.arange(64 * 32, dtype=np.float32).reshape(64, 32) / 2048
TEXT = """<ir_version: 9, opset_import: ["": 20]> agraph (float[N, 64] x, bool c) => (float[N, 32] y) {
    p = MatMul(x, w)
    q = Relu(p)
    r = If(c) <
        then_branch = yes () => (float[N, 32] a) { a = Add(q, bias) },
        else_branch = no () => (float[N, 32] b) { b = Mul(q, half) }
    >
    y = Softmax<axis = 1>(r)
}"""


def read() -> Graph:
    proto = parser.parse_model(TEXT)
    for name, array in (("w", WEIGHTS), ("bias", np.ones(32, np.float32)), ("half", np.array(0.5, np.float32))):
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    graph = build_graph(load_model(proto.SerializeToString()), Schemas())
    infer_graph(graph)
    return graph


def test_nodes_as_a_model_compute_what_they_compute_in_the_graph() -> None:
    graph = read()
    nodes = graph.nodes[:3]  # without Softmax: q is inside, its captures too
    inputs, outputs = boundary(graph, nodes)
    assert ([v.name for v in inputs], [v.name for v in outputs]) == (["x", "c"], ["r"])
    model, apart = onnx_model(graph, nodes, inputs, outputs, newest={"": 17})
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 19)]  # If's
    assert list(apart) == ["w"] and model.ByteSize() < WEIGHTS.nbytes
    for tensor in model.graph.initializer:
        if tensor.name in apart:
            assert tensor.data_location == tensor.EXTERNAL
            tensor.CopyFrom(numpy_helper.from_array(apart[tensor.name].constant, tensor.name))
    onnx.checker.check_model(model, full_check=True)
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    hidden = np.maximum(x @ WEIGHTS, 0)
    for condition, want in ((True, hidden + 1), (False, hidden / 2)):
        (got,) = ReferenceEvaluator(model).run(None, {"x": x, "c": np.array(condition)})
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_large_constants_can_be_inputs_of_the_model() -> None:
    graph = read()
    model, apart = onnx_model(graph, graph.nodes[:2], *boundary(graph, graph.nodes[:2]), {"": 17}, apart_as_inputs=True)
    assert [i.name for i in model.graph.input] == ["x", "w"] and not model.graph.initializer and list(apart) == ["w"]
    onnx.checker.check_model(model, full_check=True)
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    (got,) = ReferenceEvaluator(model).run(None, {"x": x, "w": WEIGHTS})
    np.testing.assert_allclose(got, np.maximum(x @ WEIGHTS, 0), rtol=1e-6)


def test_a_model_imports_no_older_version_than_its_nodes_need() -> None:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    body = helper.make_graph([helper.make_node("Gelu", ["x"], ["y"])], "g", [x], [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    graph = build_graph(load_model(proto.SerializeToString()), Schemas())
    infer_graph(graph)
    model, _ = onnx_model(graph, graph.nodes, *boundary(graph, graph.nodes), newest={"": 17})
    assert model.opset_import[0].version == 20  # Gelu's
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
