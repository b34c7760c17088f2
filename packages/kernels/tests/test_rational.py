"""Sigmoid and tanh as quotients of polynomials, and the quantized LSTM made with them: near to the truth, and onnxruntime's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from one_node import Case, by_kernel, by_onnxruntime
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from onnxplug_kernels.rational import sigmoid_and_tanh

X = np.concatenate([np.linspace(-20, 20, 40001), np.geomspace(1e-30, 1, 1000)]).astype(np.float32)[None]


@pytest.mark.parametrize("place", [0, 1], ids=["sigmoid", "tanh"])
def test_errors(place: int) -> None:
    x = X.astype(np.float64)
    wanted = 1 / (1 + np.exp(-x)) if place == 0 else np.tanh(x)
    assert np.abs(sigmoid_and_tanh(np)[place](X) - wanted).max() < 2.4e-7


def test_nan_goes_through() -> None:
    for function in sigmoid_and_tanh(np):
        assert np.isnan(function(np.float32([[np.nan]]))).all()


@pytest.mark.parametrize("op_type", ["Sigmoid", "Tanh"])
def test_bits_of_onnxruntime(op_type: str) -> None:
    (theirs,) = by_onnxruntime(Case("", op_type, [X]))
    np.testing.assert_array_equal(sigmoid_and_tanh(np)[op_type == "Tanh"](X), theirs)


@pytest.mark.parametrize("hidden", [48, 320])
def test_bits_of_a_quantized_lstm(hidden: int) -> None:
    """Weights of the whole range, and more steps than a difference in the last bit would survive: states between two levels
    make it one level, and the loop more of that."""
    draw, steps, batch, width = np.random.default_rng(3), 30, 2, 40
    x = draw.normal(size=(steps, batch, width)).astype(np.float32)
    w, r = (draw.integers(-127, 128, (2, n, 4 * hidden)).astype(np.int8) for n in (width, hidden))
    bias = draw.normal(0, 0.3, (2, 8 * hidden)).astype(np.float32)
    zero, scales = np.zeros(2, np.int8), [np.full(2, s, np.float32) for s in (0.003, 0.02 / np.sqrt(hidden))]
    inputs = [x, w, r, bias, None, None, None, None, scales[0], zero, scales[1], zero]
    case = Case(
        "com.microsoft", "DynamicQuantizeLSTM", inputs, {"hidden_size": hidden, "direction": "bidirectional"}, 3
    )
    for ours, theirs in zip(by_kernel(case), exactly(case), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def exactly(case: Case) -> list[Any]:
    """onnxruntime's results for constant weights, with exact products of bytes: by default they saturate on processors
    without VNNI."""
    ort = pytest.importorskip("onnxruntime")
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    node = helper.make_node(case.op_type, names, case.names, domain=case.domain, **case.attributes)
    first, *others = zip(names, case.inputs, strict=True)
    graph = helper.make_graph(
        [node],
        "exactly",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, first[1].shape)],
        [ValueInfoProto(name=name) for name in case.names],
        [numpy_helper.from_array(x, name) for name, x in others if name],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(case.domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # more of them quantize parts of the batch separately
    options.add_session_config_entry("session.x64quantprecision", "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x0": first[1]})
