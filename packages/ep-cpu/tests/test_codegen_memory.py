"""Weights that were packed are let go, and had again from where they came."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from codegen_models import model, session
from onnx import helper, numpy_helper

import onnxplug
from onnxplug.capi.onnxruntime_pybind11_state import Fail
from onnxplug.graph.value import Value
from onnxplug_ep_cpu.codegen.lower import packing

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 256)).astype(np.float32)
W = RNG.standard_normal((256, 256)).astype(np.float32)
S = np.array([0.5, 2] * 128, np.float32)


def proto() -> Any:
    """Any number of rows times a weight."""
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": X}, ["y"], {})
    for value in (*made.graph.input, *made.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "rows"
    made.graph.initializer.append(numpy_helper.from_array(W, "w"))
    return made


def weight(session: Any) -> Any:
    return session._engine.built.graph.initializers["w"]


@pytest.fixture(params=["path", "bytes"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    data = proto().SerializeToString()
    if request.param == "bytes":
        return data
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    return str(path)


def test_a_packed_weight_goes_and_comes_back(source: Any) -> None:
    session = onnxplug.InferenceSession(source, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": X})
    np.testing.assert_allclose(want, X @ W, rtol=1e-4, atol=1e-4)
    assert weight(session).was_released
    np.testing.assert_array_equal(weight(session).constant, W)
    for rows in (1, 2, 3, 2):  # other shapes are bound from what was packed
        np.testing.assert_allclose(session.run(None, {"x": X[:1].repeat(rows, 0)})[0][0], want[0], rtol=1e-5, atol=1e-5)


def test_a_file_that_was_written_to_is_an_error_where_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(proto().SerializeToString())
    session = onnxplug.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": X})
    path.write_bytes(b"else")
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], want)
    np.testing.assert_allclose(session.run(None, {"x": X[:1]})[0], want[:1], rtol=1e-5, atol=1e-5)
    with pytest.raises(Fail, match="has been written to"):
        _ = weight(session).constant


def test_weights_not_packed_yet_do_not_need_the_file(tmp_path: Path) -> None:
    """Shapes that are not fixed are bound by the first run."""
    path = tmp_path / "model.onnx"
    path.write_bytes(proto().SerializeToString())
    session = onnxplug.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    path.unlink()
    np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ W, rtol=1e-4, atol=1e-4)


def test_weights_that_were_folded_are_computed_again() -> None:
    """A normalisation behind a convolution scales its filters; the scaled ones are packed and go too."""
    x = RNG.standard_normal((1, 64, 9, 9)).astype(np.float32)
    w = RNG.standard_normal((256, 64, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"]),
        helper.make_node("BatchNormalization", ["h", "s", "b", "m", "s"], ["y"], epsilon=0.0),
    ]
    made = model(nodes, {"x": x}, ["y"], {"w": w, "s": S, "b": np.zeros_like(S), "m": np.zeros_like(S)})
    session = onnxplug.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    session.run(None, {"x": x})
    (node,) = (n for n in session._engine.built.graph.nodes if n.op_type == "Conv")
    assert node.inputs[1].was_released
    np.testing.assert_allclose(node.inputs[1].constant, w * np.sqrt(S)[:, None, None, None], rtol=1e-6)
    assert not node.inputs[1].source.source.is_read, "the filters of the model are looked at where they lie"


def test_filters_are_packed_from_wherever_they_lie() -> None:
    """Constants of a file that is mapped to memory start at any address."""
    x = RNG.standard_normal((1, 256, 8, 8)).astype(np.float32)
    w = RNG.standard_normal((64, 256, 1, 1)).astype(np.float32)
    made = model([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": w}).SerializeToString()
    results, block = [], np.empty(w.nbytes + 64, np.uint8)
    for place in (-block.ctypes.data % 4 + k for k in range(4)):
        lies = block[place : place + w.nbytes].view(np.float32).reshape(w.shape)
        lies[...] = w
        with (
            mock.patch.object(Value, "view", return_value=lies),
            mock.patch.object(packing, "lying", wraps=packing.lying) as read,
        ):
            session = onnxplug.InferenceSession(made, providers=["CPUExecutionProvider"])
            results.append(session.run(None, {"x": x})[0])
        assert any(call.args[0] is lies for call in read.call_args_list), "it is read where it lies"
    assert all(np.array_equal(results[0], other) for other in results)
    np.testing.assert_allclose(
        results[0], np.einsum("oi,nihw->nohw", w[:, :, 0, 0].astype(np.float64), x), rtol=1e-4, atol=1e-3
    )


def test_what_a_failed_lowering_packed_serves_the_next() -> None:
    """The second image has another Winograd tile; its sizes cannot be followed through the Resize behind."""
    x = RNG.standard_normal((1, 128, 8, 8)).astype(np.float32)
    w = RNG.standard_normal((128, 128, 3, 3)).astype(np.float32) / 32
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "filters", pads=[1] * 4),
        helper.make_node("Resize", ["c", "", "scales"], ["y"], mode="linear"),
    ]
    made = model(nodes, {"x": x}, ["y"], {"w": w, "scales": np.array([1, 1, 1.5, 1.5], np.float32)})
    for value in (*made.graph.input, *made.graph.output):
        for dimension in value.type.tensor_type.shape.dim[2:]:
            dimension.ClearField("dim_value")
    native, plain = (session(made, codegen=codegen) for codegen in (True, False))
    algorithms = []
    for feed in (x, np.tile(x, (1, 1, 7, 8))):
        got = native.run(None, {"x": feed})[0]
        np.testing.assert_allclose(got, plain.run(None, {"x": feed})[0], rtol=1e-3, atol=1e-3)
        algorithms.append(native.explain().regions[0]["facts"]["algorithms"]["filters"])
    assert algorithms[0] != algorithms[1]
