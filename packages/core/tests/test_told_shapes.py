"""What sessions tell of outputs whose shapes onnxruntime does not infer, and what they say where results are of another shape."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import onnxplug as ort

REGRESSOR = (
    """Y = ai.onnx.ml.LinearRegressor<targets = 2, coefficients = [1.0, 1.0, 1.0, 1.0], intercepts = [0.0, 1.0]>(X)"""
)
LOOP = """c = Constant<value = bool {1}>()
    Y, Z = Loop<body = b (int64 i, bool c, float[2,3] x) => (bool co, float[2,3] xo, float[2,3] s) {
        co = Identity(c) xo = Relu(x) s = Abs(x)
    }>(n, c, X)"""
SCAN = """Y, Z = Scan<num_scan_inputs = 1, body = b (float[3] s, float[3] x) => (float[3] so, float[3] o) {
    so = Add(s, x) o = Relu(so)
}>("", S, X)"""


def _model(inputs: str, outputs: str, nodes: str, opset: int = 17) -> bytes:
    imports = f'"": {opset}, "ai.onnx.ml": 3'
    text = f"<ir_version: 8, opset_import: [{imports}]> g ({inputs}) => ({outputs}) {{ {nodes} }}"
    return bytes(parser.parse_model(text).SerializeToString())


def _shapes(model: bytes) -> list[list[int | str | None]]:
    return [output.shape for output in ort.InferenceSession(model).get_outputs()]


@pytest.mark.parametrize(
    ("model", "told"),
    [  # each as onnxruntime 1.31 tells it
        (_model("float[N,2] X", "float[N,1] Y", REGRESSOR), [["N", 1]]),
        (_model("float[N,2] X", "float[N,1] Y", REGRESSOR.replace("Y", "t") + " Y = Identity(t)"), [["N", 1]]),
        (_model("int64 n, float[2,3] X", "float[5] Y, float[K,2,3] Z", LOOP), [[5], ["K", 2, 3]]),
        (_model("float[B,3] S, float[B,T,3] X", "float[B,3] Y, float[A,T,3] Z", SCAN, 8), [["B", 3], ["A", "T", 3]]),
        (_model("float[N,4] X, int64[2] s", "float[2,2] Y", "Y = Reshape(X, s)"), [[2, 2]]),
        (_model("float[N,4] X", "bool[M,4] Y", "Y = LessOrEqual(X, X)", 13), [["M", 4]]),
    ],
)
def test_shapes_told_are_onnxruntimes(model: bytes, told: list[list[int | str | None]]) -> None:
    assert _shapes(model) == told
    assert _shapes(model) == told  # of the graph that the first session kept


def _logged(model: bytes, *runs: dict[str, np.ndarray]) -> list[str]:
    messages: list[str] = []
    ort.set_default_logger_callback(lambda severity, category, logid, where, message: messages.append(message))
    try:
        session = ort.InferenceSession(model)
        for feeds in runs:
            session.run(None, feeds)
    finally:
        ort.set_default_logger_callback(None)
    return messages


def test_each_run_warns_of_a_result_that_is_not_as_the_model_declares_it() -> None:
    x = np.ones((3, 4), np.float32)
    model = _model("float[N,4] X, int64[2] s", "float[2,2] Y", "Y = Reshape(X, s)")
    other, same = {"X": x, "s": np.array([6, 2])}, {"X": x[:1], "s": np.array([2, 2])}
    warning = "Expected shape from model of {2,2} does not match actual shape of {6,2} for output Y"
    assert _logged(model, other, same, other) == [warning, warning]
    regressor = _model("float[N,2] X", "float[N,1] Y", REGRESSOR)
    expected = "Expected shape from model of {-1,1} does not match actual shape of {3,2} for output Y"
    assert _logged(regressor, {"X": x[:, :2]}) == [expected]


def test_a_declared_shape_that_contradicts_the_inferred_is_warned_of_once() -> None:
    model = _model("float[3,4] X", "float[3,5] Y", "Y = Relu(X)")
    warning = "Error merging shape info for output. 'Y' source:{3,4} target:{3,5}. Falling back to lenient merge."
    assert _logged(model, *[{"X": np.ones((3, 4), np.float32)}] * 2) == [warning]
