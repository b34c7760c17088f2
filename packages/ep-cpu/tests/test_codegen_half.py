"""Half precision in generated code: float16 outside of a region, float32 arithmetic inside."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import onnxplug


def session_of(nodes: list[Any], x: np.ndarray, held: dict[str, np.ndarray], outputs: list[str]) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, x.shape)],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnxplug.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_a_network_of_half_precision_is_one_region() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 9, 7)).astype(np.float16)
    held = {
        "w": rng.standard_normal((5, 3, 3, 3)) / 5,
        "b": rng.standard_normal(5),
        "m": rng.standard_normal((7, 4)) / 3,
    }
    held = {n: a.astype(np.float16) for n, a in held.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="c", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], name="r"),
        helper.make_node("MatMul", ["r", "m"], ["y"], name="y"),
        helper.make_node("Transpose", ["r"], ["t"], name="t", perm=[0, 2, 3, 1]),
    ]
    session = session_of(nodes, x, held, ["y", "t"])
    assert [len(region["nodes"]) for region in session.explain().regions] == [4]
    y, t = session.run(None, {"x": x})
    wide = {n: a.astype(np.float64) for n, a in held.items()}
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    sums = np.maximum(np.einsum("nchwij,ocij->nohw", windows, wide["w"]) + wide["b"].reshape(-1, 1, 1), 0)
    for got, wanted in ((y, sums @ wide["m"]), (t, sums.transpose(0, 2, 3, 1))):
        assert got.dtype == np.float16
        # One rounding to float16: half of 2**-10 relative, float32's own errors far below.
        np.testing.assert_allclose(got, wanted, rtol=2**-11 * 1.01, atol=1e-6)


def test_rounding_to_half_precision_is_not_left_out() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], name="f", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "k"], ["p"], name="p"),
        helper.make_node("Cast", ["p"], ["h"], name="h", to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["y"], name="y", to=TensorProto.FLOAT),
    ]
    x = np.linspace(-3, 3, 50).astype(np.float16)
    (y,) = session_of(nodes, x, {"k": np.float32(1.2345)}, ["y"]).run(None, {"x": x})
    np.testing.assert_array_equal(y, (x.astype(np.float32) * np.float32(1.2345)).astype(np.float16).astype(np.float32))
