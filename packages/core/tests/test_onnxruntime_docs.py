"""onnxruntime's documentation rewritten as tests: the examples of its Python API pages (sessions, IOBinding, OrtValue, profiling,
SessionOptions, provider selection), each run with both packages."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import model

ADD = model("g (float[3, 4] input1, float[3, 4] input2) => (float[3, 4] output) { output = Add(input1, input2) }")
CPU = "CPUExecutionProvider"


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)


# ---- api_summary: "Load and run a model"


def test_load_and_run(ort: Any) -> None:
    session = ort.InferenceSession(ort_example(ort, "mul_1.onnx"), providers=[CPU])
    outputs = session.run([session.get_outputs()[0].name], {session.get_inputs()[0].name: np.ones((3, 2), np.float32)})
    assert outputs[0].tolist() == [[1, 2], [3, 4], [5, 6]]
    name, shape, kind = (getattr(session.get_inputs()[0], a) for a in ("name", "shape", "type"))
    assert (name, shape, kind) == ("X", [3, 2], "tensor(float)")


def ort_example(ort: Any, name: str) -> str:
    import importlib

    return importlib.import_module(f"{ort.__name__}.datasets").get_example(name)  # type: ignore[no-any-return]


def test_options_and_providers(ort: Any) -> None:
    so = ort.SessionOptions()
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    wanted = [p for p in ("CUDAExecutionProvider", CPU) if p in ort.get_available_providers()]
    session = ort.InferenceSession(ort_example(ort, "sigmoid.onnx"), sess_options=so, providers=wanted)
    assert session.get_providers() == wanted


# ---- api_summary: "Data on CPU", "Data on device"


def test_ortvalue_on_the_cpu(ort: Any, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    ortvalue = ort.OrtValue.ortvalue_from_numpy(arrays[0])
    assert ortvalue.device_name() == "cpu"
    assert ortvalue.shape() == list(arrays[0].shape)
    assert ortvalue.data_type() == "tensor(float)"
    assert ortvalue.is_tensor()
    assert np.array_equal(ortvalue.numpy(), arrays[0])
    session = ort.InferenceSession(ADD, providers=[CPU])
    results = session.run(["output"], {"input1": ortvalue, "input2": arrays[1]})
    assert np.array_equal(results[0], arrays[0] + 1)


def test_iobinding_with_arrays(ort: Any, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    session = ort.InferenceSession(ADD, providers=[CPU])
    io_binding = session.io_binding()
    io_binding.bind_cpu_input("input1", arrays[0])
    io_binding.bind_cpu_input("input2", arrays[1])
    io_binding.bind_output("output")
    session.run_with_iobinding(io_binding)
    assert np.array_equal(io_binding.copy_outputs_to_cpu()[0], arrays[0] + 1)


def test_iobinding_with_values_and_addresses(ort: Any, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    first = ort.OrtValue.ortvalue_from_numpy(arrays[0], "cpu", 0)
    session = ort.InferenceSession(ADD, providers=[CPU])
    io_binding = session.io_binding()
    io_binding.bind_input(
        name="input1",
        device_type=first.device_name(),
        device_id=0,
        element_type=np.float32,
        shape=first.shape(),
        buffer_ptr=first.data_ptr(),
    )
    io_binding.bind_cpu_input("input2", arrays[1])
    io_binding.bind_output("output", "cpu")
    session.run_with_iobinding(io_binding)
    (value,) = io_binding.get_outputs()
    assert value.device_name() == "cpu" and np.array_equal(value.numpy(), arrays[0] + 1)


def test_iobinding_into_memory_that_is_there(ort: Any, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    made = ort.OrtValue.ortvalue_from_shape_and_type([3, 4], np.float32, "cpu", 0)
    session = ort.InferenceSession(ADD, providers=[CPU])
    io_binding = session.io_binding()
    for name, array in zip(("input1", "input2"), arrays, strict=True):
        io_binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
    io_binding.bind_output(
        name="output",
        device_type=made.device_name(),
        device_id=0,
        element_type=np.float32,
        shape=made.shape(),
        buffer_ptr=made.data_ptr(),
    )
    session.run_with_iobinding(io_binding)
    assert np.array_equal(made.numpy(), arrays[0] + 1)
    io_binding.bind_ortvalue_output("output", made)
    made.update_inplace(np.zeros((3, 4), np.float32))
    session.run_with_iobinding(io_binding)
    assert io_binding.get_outputs()[0].data_ptr() == made.data_ptr() and made.numpy()[0, 0] == 1


def test_sessions_share_an_output(ort: Any, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    """ "The output of one model is the input of the next", without a copy."""
    session = ort.InferenceSession(ADD, providers=[CPU])
    io_binding = session.io_binding()
    for name, array in zip(("input1", "input2"), arrays, strict=True):
        io_binding.bind_cpu_input(name, array)
    io_binding.bind_output("output")
    session.run_with_iobinding(io_binding)
    (middle,) = io_binding.get_outputs()
    (last,) = session.run_with_ort_values(["output"], {"input1": middle, "input2": middle})
    assert np.array_equal(last.numpy(), 2 * (arrays[0] + 1))


def test_an_ortvalue_is_updated_in_place(ort: Any, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(arrays[0].copy())
    address = value.data_ptr()
    value.update_inplace(arrays[1])
    assert value.data_ptr() == address and np.array_equal(value.numpy(), arrays[1])


def test_sparse_tensors(ort: Any) -> None:
    device = ort.OrtDevice.make("cpu", 0)
    values, indices = np.array([1.0, 2.0, 3.0], np.float32), np.array([3, 5, 15], np.int64)
    coo = ort.SparseTensor.sparse_coo_from_numpy(np.array([7, 7], np.int64), values, indices, device)
    assert coo.format() == ort.OrtSparseFormat.ORT_SPARSE_COO and list(coo.dense_shape()) == [7, 7]
    assert np.array_equal(coo.values(), values) and np.array_equal(coo.as_coo_view().indices(), indices)
    value = ort.OrtValue.ort_value_from_sparse_tensor(coo)
    assert value.is_sparse_tensor() and value.data_type() == "sparse_tensor(float)"


# ---- performance: threads, profiling, saved models


def test_threads(ort: Any, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    so = ort.SessionOptions()
    so.intra_op_num_threads = 2
    so.inter_op_num_threads = 1
    so.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    so.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(ADD, so, providers=[CPU])
    assert session.get_session_options().intra_op_num_threads == 2
    assert np.array_equal(session.run(None, dict(zip(("input1", "input2"), arrays, strict=True)))[0], arrays[0] + 1)


def test_profiling(ort: Any, arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = ort.InferenceSession(ADD, options, providers=[CPU])
    session.run(None, dict(zip(("input1", "input2"), arrays, strict=True)))
    events = json.loads(Path(session.end_profiling()).read_text())
    (node,) = [e for e in events if e["cat"] == "Node" and e["name"].endswith("_kernel_time")]
    assert (node["ph"], node["args"]["op_name"], node["args"]["provider"]) == ("X", "Add", CPU)
    assert node["args"]["output_type_shape"] == [{"float": [3, 4]}] and node["args"]["output_size"] == "48"
    assert {e["name"] for e in events if e["cat"] == "Session"} >= {
        "model_loading_array", "session_initialization", "model_run",
    }  # fmt: skip


def test_an_optimized_model_is_saved(ort: Any, arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    so = ort.SessionOptions()
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    so.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(ADD, so, providers=[CPU])
    saved = ort.InferenceSession(str(tmp_path / "optimized.onnx"), providers=[CPU])
    assert np.array_equal(saved.run(None, dict(zip(("input1", "input2"), arrays, strict=True)))[0], arrays[0] + 1)


def test_free_dimensions_are_fixed(ort: Any) -> None:
    so = ort.SessionOptions()
    so.add_free_dimension_override_by_name("batch", 1)
    free = model("g (float[batch, 4] x) => (float[batch, 4] y) { y = Neg(x) }")
    assert ort.InferenceSession(free, so, providers=[CPU]).get_inputs()[0].shape == [1, 4]


def test_initializers_are_shared(ort: Any) -> None:
    source = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 1}> { y = Add(x, w) }")
    shared = ort.OrtValue.ortvalue_from_numpy(np.array([5, 6], np.float32))
    so = ort.SessionOptions()
    so.add_initializer("w", shared)
    for _ in range(2):
        session = ort.InferenceSession(source, so, providers=[CPU])
        assert session.run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [5, 6]


# ---- execution providers


def test_providers_with_options(ort: Any) -> None:
    session = ort.InferenceSession(ADD, providers=[(CPU, {"use_arena": "1"})])
    assert session.get_providers() == [CPU] and list(session.get_provider_options()) == [CPU]
    session = ort.InferenceSession(ADD, providers=[CPU], provider_options=[{}])
    session.set_providers([CPU])
    assert session.get_providers() == [CPU]


def test_an_accelerator_that_is_not_here(ort: Any) -> None:
    absent = next(n for n in ort.get_all_providers() if n not in ort.get_available_providers())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session = ort.InferenceSession(ADD, providers=[(absent, {"device_id": 0}), CPU])
    assert session.get_providers() == [CPU]
    assert any(f"Specified provider '{absent}' is not in available provider names" in str(w.message) for w in caught)


def test_metadata(ort: Any) -> None:
    meta = ort.InferenceSession(ort_example(ort, "logreg_iris.onnx"), providers=[CPU]).get_modelmeta()
    assert isinstance(meta.producer_name, str) and meta.version == 0 and meta.custom_metadata_map == {}


def test_probabilities_are_maps(ort: Any) -> None:
    session = ort.InferenceSession(ort_example(ort, "logreg_iris.onnx"), providers=[CPU])
    label, probabilities = (each.name for each in session.get_outputs())
    x = np.random.default_rng(0).random((3, 2), np.float32)
    labels, maps = session.run([label, probabilities], {session.get_inputs()[0].name: x})
    assert labels.shape == (3,) and len(maps) == 3 and sorted(maps[0]) == [0, 1, 2]
    assert abs(sum(maps[0].values()) - 1) < 1e-5


def test_exceptions(ort: Any) -> None:
    """ "Common errors with onnxruntime"."""
    state = ort.capi.onnxruntime_pybind11_state
    session = ort.InferenceSession(ort_example(ort, "logreg_iris.onnx"), providers=[CPU])
    x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with pytest.raises(state.InvalidArgument, match="Unexpected input data type"):
        session.run([session.get_outputs()[0].name], {"float_input": x})
    with pytest.raises(state.InvalidArgument, match="Invalid output name"):
        session.run(["misspelled"], {"float_input": x.astype(np.float32)})
    with pytest.raises(ValueError, match="Required inputs"):
        session.run(None, {"misspelled": x.astype(np.float32)})
    with pytest.raises(state.InvalidArgument, match="Invalid rank for input"):
        session.run(None, {"float_input": np.zeros((1, 2, 3), np.float32)})
    with pytest.raises(state.NoSuchFile):
        ort.InferenceSession("does_not_exist.onnx", providers=[CPU])
