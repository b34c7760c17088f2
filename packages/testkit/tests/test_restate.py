"""Nodes said otherwise give what the nodes give, for another provider that knows both."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug_testkit.kernels.oracle import oracles
from onnxplug_testkit.kernels.plain import Plain
from onnxplug_testkit.kernels.restate import Restated, restatements
from onnxplug_testkit.kernels.worked import Worked


def one(node: onnx.NodeProto, version: int, inputs: dict[str, tuple[int, list[int]]], output: int) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, code, shape) for name, (code, shape) in inputs.items()]
    graph = helper.make_graph([node], "one", infos, [helper.make_tensor_value_info(node.output[0], output, None)])
    imports = [helper.make_opsetid(node.domain, version)] + ([helper.make_opsetid("", 21)] if node.domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxplug.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, feeds)
    return found


def form(model: onnx.ModelProto, text: str) -> Restated:
    return next(r for r in restatements(model) if r.text == text)


def agree(model: onnx.ModelProto, text: str, feeds: dict[str, np.ndarray], rtol: float) -> None:
    said = form(model, text)
    admitted = dict(said.admit(feeds))
    (given,) = said.back(run(said.model, dict(said.feed(admitted))), admitted)
    (wanted,) = run(model, admitted)
    assert given.dtype == wanted.dtype
    np.testing.assert_allclose(given.astype(np.float64), wanted.astype(np.float64), rtol)


X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def test_in_float() -> None:
    model = one(
        helper.make_node("Softplus", ["x"], ["y"], "node"), 1, {"x": (TensorProto.DOUBLE, [3, 4])}, TensorProto.DOUBLE
    )
    agree(model, "in float", {"x": X.astype(np.float64) / 3}, 1e-6)
    assert form(model, "in float").single


def test_by_positions() -> None:
    node = helper.make_node("Trilu", ["x"], ["y"], "node", upper=1)
    model = one(node, 14, {"x": (TensorProto.INT8, [3, 4])}, TensorProto.INT8)
    agree(model, "by positions", {"x": np.arange(12, dtype=np.int8).reshape(3, 4)}, 0)


@pytest.mark.parametrize(
    ("node", "version", "codes"),
    [
        (helper.make_node("Tile", ["x", "n", "a"], ["y"], "node"), 1, (1, 1, 1)),
        (helper.make_node("Upsample", ["i"], ["y"], "node", scales=[1.0, 1.0, 2.0, 3.0]), 7, (1,)),
        (helper.make_node("GlobalLpPool", ["i"], ["y"], "node", p=2), 2, (1,)),
        (helper.make_node("BiasAdd", ["x", "b", "x"], ["y"], "node", domain="com.microsoft"), 1, (1, 1)),
        (helper.make_node("FusedGemm", ["x", "w"], ["y"], "node", domain="com.microsoft", activation="Relu"), 1, (1, 1)),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)  # fmt: skip
def test_restated(node: onnx.NodeProto, version: int, codes: tuple[int, ...]) -> None:
    values = {
        "x": X, "n": np.array(2, np.float32), "a": np.array(1, np.float32), "b": X[0], "w": X.T.copy(),
        "i": X.reshape(1, 1, 3, 4),
    }  # fmt: skip
    feeds = {name: values[name] for name in dict.fromkeys(node.input)}
    model = one(node, version, {name: (1, list(array.shape)) for name, array in feeds.items()}, 1)
    agree(model, "restated", feeds, 1e-6)


@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (12, 1)])
def test_shares_of_bytes_are_judged_by_the_text(opset: int, axis: int) -> None:
    """1 / y_scale is not whole here, which onnxruntime cuts it to."""
    given = ["x", "x_scale", "x_zero", "y_scale", "y_zero"]
    node = helper.make_node("QLinearSoftmax", given, ["y"], "node", domain="com.microsoft", opset=opset, axis=axis)
    types = dict(zip(given, [(3, [2, 3, 4]), (1, []), (3, []), (1, []), (3, [])], strict=True))
    oracle = next(oracles(one(node, 1, types, TensorProto.INT8), "CPUExecutionProvider"))
    assert oracle.name == "ReferenceExecutionProvider, restated"
    x, scale = np.arange(24, dtype=np.int8).reshape(2, 3, 4) * 5 % 37, np.float32(1 / 200.95)
    feeds = {
        "x": x.astype(np.int8),
        "x_scale": np.float32(0.1),
        "x_zero": np.int8(3),
        "y_scale": scale,
        "y_zero": np.int8(-128),
    }
    (got,) = oracle({name: np.asarray(value) for name, value in feeds.items()})
    powers = np.exp(x.reshape((2, -1, 4) if opset > 12 else (2, -1)) * 0.1)
    wanted = np.rint(powers / powers.sum(-1, keepdims=True) / scale).reshape(x.shape) - 128
    np.testing.assert_array_equal(got, wanted)


def test_worked_out() -> None:
    """A table of two rows in blocks of a float16 and 32 bytes, and an index that is not there."""
    node = helper.make_node(
        "GatherPacked", ["x", "i"], ["y"], "node", domain="com.microsoft", K=32, packed_type=8, output_dtype=1
    )
    model = one(node, 1, {"x": (TensorProto.UINT8, [2, 34]), "i": (TensorProto.INT64, [2])}, TensorProto.FLOAT)
    table = np.zeros((2, 34), np.uint8)
    table[:, :2] = np.array([[0.5], [2.0]], np.float16).view(np.uint8)
    table[:, 2:] = np.arange(-16, 16, dtype=np.int8).view(np.uint8)
    assert Worked.takes(model)
    (got,) = Worked(model).run(None, {"x": table, "i": np.array([1, 7])})
    np.testing.assert_array_equal(got, np.arange(-16, 16) * np.array([[2.0], [0.5]], np.float32))
    node.attribute[2].i = 23
    model = one(node, 1, {"x": (TensorProto.UINT8, [2, 136]), "i": (TensorProto.INT64, [2])}, TensorProto.FLOAT)
    assert not Worked.takes(model)


def test_the_sparse_mixer_is_worked_out() -> None:
    """onnxruntime's kernel ignores the attribute: it would give the shares of a softmax of all."""
    node = helper.make_node(
        "MoE", ["x", "l", "f", "", "s"], ["y"], "node", domain="com.microsoft", k=2, use_sparse_mixer=1
    )
    shapes = {"x": [1, 2], "l": [1, 4], "f": [4, 2, 2], "s": [4, 2, 2]}
    model = one(node, 1, {name: (TensorProto.FLOAT, shape) for name, shape in shapes.items()}, TensorProto.FLOAT)
    assert Worked.takes(model)
    x, each = np.array([[2, 3]], np.float32), np.eye(2, dtype=np.float32) * np.arange(1, 5)[:, None, None]
    logits = np.array([[3.0, 2.99, 1.0, 0.99]], np.float32)
    (got,) = Worked(model).run(
        None, {"x": x, "l": logits, "f": each, "s": np.tile(np.eye(2, dtype=np.float32), (4, 1, 1))}
    )
    np.testing.assert_allclose(got, x * (1 / (1 + np.exp(-0.01)) * 1 + 1.0 * 2), rtol=1e-5)
    node.attribute[1].i = 0
    assert not Worked.takes(one(node, 1, {"x": (TensorProto.FLOAT, [1, 2])}, TensorProto.FLOAT))


def test_a_line_of_python() -> None:
    node = helper.make_node("DictVectorizer", ["x"], ["y"], "node", domain="ai.onnx.ml", string_vocabulary=["c", "a"])
    model = one(node, 1, {"x": (1, [])}, TensorProto.DOUBLE)
    assert Plain.takes(model)
    (row,) = Plain(model).run(None, {"x": {"a": 0.5, "b": 2.0}})
    assert row.dtype == np.float64 and row.tolist() == [[0.0, 0.5]]
