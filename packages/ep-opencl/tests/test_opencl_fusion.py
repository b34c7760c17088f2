"""Groups of element-wise operators, alone and behind products: what is fused, and that it computes what the nodes do."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from opencl_models import PROVIDER, needs_device

import onnxplug as ort

pytestmark = needs_device
FORMS = ("register", "local")
rng = np.random.default_rng(17)


def model(
    nodes: list[Any], inputs: dict[str, Any], constants: dict[str, np.ndarray], outputs: dict[str, int] | None = None
) -> bytes:
    """A model whose inputs have the shapes given, symbols among them."""
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(n, e, None) for n, e in (outputs or {"y": TensorProto.FLOAT}).items()]
    weights = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", given, made, weights)
    made_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made_model).SerializeToString()


def check(data: bytes, feeds: dict[str, np.ndarray], groups: int, **options: str) -> None:
    """Results against CPU's on the unfused graph, and how many regions there are."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    ours = ort.InferenceSession(data, settings, providers=[(PROVIDER, options)])
    assert set(ours.placement().values()) == {PROVIDER}
    assert len(ours.explain().regions) == groups
    theirs = ort.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    for _ in range(2):
        for got, want in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            assert got.dtype == want.dtype
            # Sums of at most 200 products of numbers near 1, rounded in another order.
            np.testing.assert_allclose(got, want, rtol=200 * np.finfo(np.float32).eps, atol=2e-5)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
def test_a_convolution_with_what_follows_it(form: str) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "scale"], ["m"]),
        helper.make_node("Add", ["m", "x"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    constants = {"w": normal(5, 5, 3, 3), "b": normal(5), "scale": normal(5, 1, 1)}
    check(model(nodes, {"x": [2, 5, 9, 11]}, constants), {"x": normal(2, 5, 9, 11)}, 1, kernel_shape=form)


@pytest.mark.parametrize("form", FORMS)
def test_a_convolution_of_single_channels_with_what_follows_it(form: str) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], group=5),
        helper.make_node("Add", ["c", "x"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Mul", ["r", "scale"], ["y"]),
    ]
    constants = {"w": normal(5, 1, 3, 3), "b": normal(5), "scale": normal(5, 1, 1)}
    check(model(nodes, {"x": ["n", 5, 9, 43]}, constants), {"x": normal(2, 5, 9, 43)}, 1, kernel_shape=form)


FOLLOWING: list[tuple[str, int, dict[str, Any]]] = [
    *(
        (name, 1, {})
        for name in [
            "Relu",
            "LeakyRelu",
            "Elu",
            "HardSigmoid",
            "HardSwish",
            "Neg",
            "Reciprocal",
            "Sign",
            "Abs",
            "Shrink",
            "Softsign",
        ]
    ),
    *((name, 2, {}) for name in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "PRelu"]),
    ("ThresholdedRelu", 1, {"alpha": 0.25}),
    ("Shrink", 1, {"lambd": 0.75, "bias": 0.5}),
    ("Max", 3, {}),
    ("Clip", 3, {}),
    ("Cast", 1, {"to": TensorProto.INT32}),
    ("Equal", 2, {}),
]


@pytest.mark.parametrize("form", FORMS)
def test_whatever_follows_a_product(form: str) -> None:
    """Of whole tiles and parts of them, where its text may be that of vectors: numbers are so few that some are zero or equal."""
    nodes, outputs = [], {}
    for n, (name, arity, attributes) in enumerate(FOLLOWING):
        nodes.append(helper.make_node("MatMul", ["x", "w"], [f"p{n}"]))
        nodes.append(helper.make_node(name, [f"p{n}", *["row", "one"][: arity - 1]], [f"r{n}"], **attributes))
        nodes.append(helper.make_node("Identity", [f"r{n}"], [f"y{n}"]))
        outputs[f"y{n}"] = {"Cast": TensorProto.INT32, "Equal": TensorProto.BOOL}.get(name, TensorProto.FLOAT)
    constants = {
        "w": rng.integers(-2, 3, (6, 75)).astype(np.float32) / 4,
        "row": np.full(75, -0.5, np.float32),
        "one": np.array(0.25, np.float32),
    }
    (clip,) = (node for node in nodes if node.op_type == "Clip")
    clip.input[1], constants["low"] = "low", np.array(-0.5, np.float32)  # a bound is one number
    feeds = {"x": rng.integers(-2, 3, (11, 6)).astype(np.float32)}
    data = model(nodes, {"x": ["n", 6]}, constants, outputs)
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    ours = ort.InferenceSession(data, settings, providers=[(PROVIDER, {"kernel_shape": form})])
    theirs = ort.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    for (name, *_), got, want in zip(FOLLOWING, ours.run(None, feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=4 * np.finfo(np.float32).eps, err_msg=name)


def test_an_operand_that_no_product_can_take_on_its_way_out() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "rows"], ["y"]),
    ]
    constants = {"w": normal(5, 5, 3, 3), "rows": normal(9, 1)}
    check(model(nodes, {"x": [2, 5, 9, 11]}, constants), {"x": normal(2, 5, 9, 11)}, 1)


@pytest.mark.parametrize("form", FORMS)
def test_a_product_with_bias_and_gelu(form: str) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["h"]),
        helper.make_node("Div", ["h", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["f"]),
        helper.make_node("Mul", ["h", "f"], ["g"]),
        helper.make_node("Mul", ["g", "half"], ["y"]),
    ]
    constants = {
        "w": normal(24, 40), "b": normal(40),
        "root": np.float32(2**0.5).reshape(()), "one": np.float32(1).reshape(()), "half": np.float32(0.5).reshape(()),
    }  # fmt: skip
    data = model(nodes, {"x": ["batch", "length", 24]}, constants)
    for shape in ((3, 7, 24), (1, 1, 24), (2, 20, 24)):
        check(data, {"x": normal(*shape)}, 1, kernel_shape=form)


def test_values_that_are_needed_elsewhere_and_of_several_shapes() -> None:
    nodes = [
        helper.make_node("Mul", ["a", "a"], ["square"]),
        helper.make_node("Add", ["square", "b"], ["sum"]),
        helper.make_node("Greater", ["sum", "square"], ["larger"]),
        helper.make_node("Where", ["larger", "sum", "b"], ["y"]),
    ]
    outputs = {"y": TensorProto.FLOAT, "square": TensorProto.FLOAT, "larger": TensorProto.BOOL}
    data = model(nodes, {"a": [4, 1], "b": [3, 1, 50]}, {}, outputs)
    check(data, {"a": normal(4, 1), "b": normal(3, 1, 50)}, 1)


def test_a_product_that_others_read_keeps_its_own_kernel() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Softmax", ["p"], ["s"]),
        helper.make_node("Add", ["r", "s"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"]),
    ]
    check(model(nodes, {"x": [6, 10]}, {"w": normal(10, 12)}), {"x": normal(6, 10)}, 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("images", [1, 2])
def test_groups_that_a_concat_joins(form: str, images: int) -> None:
    """Of the operands one is a product with what follows it, one a product alone, one is constant; of two others somebody else reads, too,
    or the Concat twice."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["x", "v", "b"], ["alone"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["x"], ["twice"]),
        helper.make_node("Tanh", ["x"], ["read"]),
        helper.make_node("Softmax", ["read"], ["s"]),
        helper.make_node("Concat", ["r", "k", "alone", "twice", "twice", "read"], ["y"], axis=1),
    ]
    constants = {"w": normal(7, 5, 1, 1), "v": normal(6, 5, 3, 3), "b": normal(6), "k": normal(images, 2, 9, 11)}
    data = model(nodes, {"x": ["n", 5, 9, 11]}, constants, {"y": TensorProto.FLOAT, "s": TensorProto.FLOAT})
    check(data, {"x": normal(images, 5, 9, 11)}, 1, kernel_shape=form)


def test_two_products_that_meet() -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["p"], transB=1),
        helper.make_node("Gemm", ["x", "v", "b"], ["q"], alpha=0.5, beta=2.0),
        helper.make_node("Add", ["p", "q"], ["s"]),
        helper.make_node("Sigmoid", ["s"], ["y"]),
    ]
    constants = {"w": normal(12, 10), "v": normal(10, 12), "b": normal(12)}
    check(model(nodes, {"x": [6, 10]}, constants), {"x": normal(6, 10)}, 1)


def test_nothing_at_all() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    check(model(nodes, {"x": ["n", 10]}, {"w": normal(10, 12)}), {"x": normal(0, 10)}, 1)
