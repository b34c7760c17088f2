"""Sparse constants that are a model's outputs, with both runtimes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

CPU = ["CPUExecutionProvider"]
X = np.ones((1, 2), np.float32)


@pytest.fixture(params=["onnxplug", "onnxruntime"])
def ort(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


def sparse(name: str, kind: int = TensorProto.FLOAT, values: Any = (3.0, 1.0, 2.0)) -> Any:
    """[[1, 0, 0], [2, 0, 3]], its values in another order."""
    indices = helper.make_tensor("", TensorProto.INT64, [3], [5, 0, 3])
    return helper.make_sparse_tensor(helper.make_tensor(name, kind, [3], values), indices, [2, 3])


def model(form: str, **like: Any) -> bytes:
    """Y = X W, and W, a sparse constant, beside it."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "m"]) for name in "XY"]
    nodes = [helper.make_node("MatMul", ["X", "W"], ["Y"])]
    if form != "initializer":
        nodes.insert(0, helper.make_node("Constant", [], ["W"], sparse_value=sparse("")))
        nodes[0].attribute[0].name = form
    held = [sparse("W", **like)] if form == "initializer" else []
    shown = [infos[1], helper.make_empty_tensor_value_info("W")]
    graph = helper.make_graph(nodes, "g", infos[:1], shown, sparse_initializer=held)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )


def check(ort: Any, tensor: Any) -> None:
    tensor = ort.SparseTensor(tensor) if not isinstance(tensor, ort.SparseTensor) else tensor
    assert tensor.format() == ort.OrtSparseFormat.ORT_SPARSE_COO
    assert (tensor.data_type(), tensor.dense_shape()) == ("sparse_tensor(float)", [2, 3])
    assert (tensor.values().tolist(), tensor.as_coo_view().indices().tolist()) == ([1, 2, 3], [0, 3, 5])


@pytest.mark.parametrize("form", ["initializer", "sparse_value", "value"])
def test_every_form_of_run_gives_a_sparse_tensor(ort: Any, form: str) -> None:
    session = ort.InferenceSession(model(form), providers=CPU)
    assert [o.type for o in session.get_outputs()] == ["tensor(float)"] * 2
    y, w = session.run(None, {"X": X})
    assert y.tolist() == [[3, 0, 3]]
    assert isinstance(w, importlib.import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state").SparseTensor)
    assert type(w).__name__ == "SparseTensor"
    check(ort, w)

    (value,) = session.run_with_ort_values(["W"], {"X": ort.OrtValue.ortvalue_from_numpy(X)})
    assert value.is_sparse_tensor() and value.data_type() == "sparse_tensor(float)"
    check(ort, value.as_sparse_tensor())

    only = ort.RunOptions()
    only.only_execute_path_to_fetches = True
    check(ort, session.run(["W"], {"X": X}, only)[0])

    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    for name in "YW":
        binding.bind_output(name)
    for _ in range(3):
        session.run_with_iobinding(binding)
        check(ort, binding.get_outputs()[1].as_sparse_tensor())
        check(ort, binding.copy_outputs_to_cpu()[1])
    binding.bind_ortvalue_output("W", ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32)))
    with pytest.raises(RuntimeError, match="Error in execution"):
        session.run_with_iobinding(binding)


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_it_stays_sparse_in_a_saved_model(ort: Any, level: str, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    check(ort, ort.InferenceSession(model("sparse_value"), options, CPU).run(["W"], {"X": X})[0])
    check(ort, ort.InferenceSession(options.optimized_model_filepath, providers=CPU).run(["W"], {"X": X})[0])


def test_what_a_node_makes_of_it_is_dense(ort: Any) -> None:
    shown = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "WZ"]
    node = helper.make_node("Identity", ["W"], ["Z"])
    graph = helper.make_graph([node], "g", [], shown, sparse_initializer=[sparse("W")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    w, z = ort.InferenceSession(made.SerializeToString(), providers=CPU).run(None, {})
    check(ort, w)
    assert z.tolist() == [[1, 0, 0], [2, 0, 3]]


def test_text_cannot_be_sparse(ort: Any) -> None:
    given = model("initializer", kind=TensorProto.STRING, values=["a", "b", "c"])
    with pytest.raises(Exception, match="Unsupported sparse tensor data type of 8") as caught:
        ort.InferenceSession(given, providers=CPU)
    assert type(caught.value).__name__ == "Fail"
