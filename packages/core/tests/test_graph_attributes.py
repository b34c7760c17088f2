"""Functions that are given graphs: FlexAttention, SequenceMap, and model-local functions with graph attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper, parser

import onnxplug

RNG = np.random.default_rng(8)
OPSETS = '<ir_version: 10, opset_import: ["": 24, "ai.onnx.preview": 1, "local": 1]> '


def session(proto: Any) -> onnxplug.InferenceSession:
    return onnxplug.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


def attention(
    score_mod: str, prob_mod: str = "", attributes: str = "", element: str = "float"
) -> onnxplug.InferenceSession:
    """FlexAttention over 4 query and 2 key heads; the graphs read ``bias`` and ``gain`` of the graph around them."""
    graphs = [f"score_mod = s (float[2, 4, 3, 5] a) => (b) {{ {score_mod} }}" if score_mod else ""]
    graphs += [f"prob_mod = p (float[2, 4, 3, 5] a) => (b) {{ {prob_mod} }}" if prob_mod else "", attributes]
    given = ", ".join(g for g in graphs if g)
    return session(
        parser.parse_model(
            OPSETS
            + f"g ({element}[2, 4, 3, 8] q, {element}[2, 2, 5, 8] k, {element}[2, 2, 5, 6] v, float[1, 4, 3, 5] bias) => (y)"
            f"<float gain = {{2.0}}> {{ y = ai.onnx.preview.FlexAttention {f'<{given}>' if given else ''} (q, k, v) }}"
        )
    )


def feeds(dtype: type = np.float32) -> dict[str, np.ndarray]:
    shapes = {"q": (2, 4, 3, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 6)}
    made = {name: RNG.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    return {**made, "bias": RNG.normal(size=(1, 4, 3, 5)).astype(np.float32)}


def scores(given: dict[str, np.ndarray], scale: float = 8**-0.5) -> np.ndarray:
    q, k = (given[name].astype(np.float64) for name in "qk")
    return q @ np.repeat(k, 2, axis=1).swapaxes(-1, -2) * scale


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def result(probabilities: np.ndarray, given: dict[str, np.ndarray]) -> np.ndarray:
    return probabilities @ np.repeat(given["v"].astype(np.float64), 2, axis=1)


def test_attention_without_graphs() -> None:
    given = feeds()
    (y,) = attention("", attributes="scale = 0.25").run(None, given)
    np.testing.assert_allclose(y, result(softmax(scores(given, 0.25)), given), rtol=1e-4, atol=1e-5)


def test_modified_scores() -> None:
    given = feeds()
    (y,) = attention("c = Mul (a, a)\nb = Add (c, a)").run(None, given)
    s = scores(given)
    np.testing.assert_allclose(y, result(softmax(s * s + s), given), rtol=1e-4, atol=1e-5)


def test_graphs_read_values_around_them() -> None:
    """Whatever names the operator's own body has: a captured ``Q`` is the model's."""
    given = feeds()
    (y,) = attention("c = Add (a, bias)\nb = Mul (c, gain)", "b = Mul (a, gain)").run(None, given)
    np.testing.assert_allclose(y, result(2 * softmax((scores(given) + given["bias"]) * 2), given), rtol=1e-4, atol=1e-5)


def test_a_causal_mask() -> None:
    given = feeds()
    mask = (
        "zero = Constant <value_int = 0> ()\none = Constant <value_int = 1> ()\nrows = Constant <value_int = 3> ()\n"
        "columns = Constant <value_int = 5> ()\nlast = Constant <value_ints = [1]> ()\nr = Range (zero, rows, one)\n"
        "r1 = Unsqueeze (r, last)\nc = Range (zero, columns, one)\nf = Greater (c, r1)\n"
        "inf = Constant <value_float = -1e30> ()\nb = Where (f, inf, a)"
    )
    (y,) = attention(mask).run(None, given)
    hidden = np.where(np.arange(5) > np.arange(3)[:, None], -np.inf, 0)
    np.testing.assert_allclose(y, result(softmax(scores(given) + hidden), given), rtol=1e-4, atol=1e-5)


def test_halves_are_scored_in_the_precision_asked_for() -> None:
    given = feeds(np.float16)
    (y,) = attention("b = Add (a, bias)", attributes="softmax_precision = 1", element="float16").run(None, given)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, result(softmax(scores(given) + given["bias"]), given), rtol=5e-3, atol=5e-3)


def test_a_sequence_mapped_with_values_around_it() -> None:
    mapped = session(
        parser.parse_model(
            OPSETS + "g (float[2] x, float[3] y, float[1] w, float[1] k) => (z) {"
            "s = SequenceConstruct (x, y)\n"
            "t = SequenceMap <body = b (float[N] e, float[1] u) => (f) { h = Mul (e, u)\nf = Add (h, k) }> (s, w)\n"
            "z = ConcatFromSequence <axis = 0> (t) }"
        )
    )
    x, y = RNG.normal(size=2).astype(np.float32), RNG.normal(size=3).astype(np.float32)
    w, k = np.array([3], np.float32), np.array([0.5], np.float32)
    (z,) = mapped.run(None, {"x": x, "y": y, "w": w, "k": k})
    np.testing.assert_allclose(z, np.concatenate([x, y]) * 3 + 0.5, rtol=1e-6)


@pytest.mark.parametrize("taken", [True, False])
def test_a_function_with_a_graph_as_attribute(taken: bool) -> None:
    """The graph reads ``y`` of the model, and the function has a ``y`` of its own."""
    branch = helper.make_graph(
        [helper.make_node("Add", ["x", "y"], ["sum"])], "b", [], [helper.make_empty_tensor_value_info("sum")]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["y"], ["n"])], "e", [], [helper.make_empty_tensor_value_info("n")]
    )
    choice = helper.make_node("If", ["c"], ["r"], else_branch=other)
    choice.attribute.append(AttributeProto(name="then_branch", ref_attr_name="graph", type=AttributeProto.GRAPH))
    function = helper.make_function(
        "local", "either", ["c", "v"], ["r"], [helper.make_node("Mul", ["v", "v"], ["y"]), choice],
        [helper.make_opsetid("", 24)], attributes=["graph"],
    )  # fmt: skip
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    call = helper.make_node("either", ["c", "x"], ["z"], domain="local", graph=branch)
    graph = helper.make_graph([call], "g", inputs, [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2])])
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("local", 1)]
    x, y = np.array([2, 3], np.float32), np.array([5, 7], np.float32)
    built = session(helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10))
    (z,) = built.run(None, {"x": x, "y": y, "c": np.array(taken)})
    np.testing.assert_array_equal(z, x + y if taken else -x * x)
