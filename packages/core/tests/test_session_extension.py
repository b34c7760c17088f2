"""The classes of onnxruntime's extension module and what is scoped to a session or to the process, on both packages."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import model

SOURCE = model("g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}> { y = Add (x, w) }")
X = np.ones((3, 2), np.float32)
CPU = ["CPUExecutionProvider"]


@pytest.fixture
def state(ort: Any) -> Any:
    return importlib.import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")


def session(ort: Any) -> Any:
    return ort.InferenceSession(SOURCE, providers=CPU)


def test_a_session_in_two_steps(ort: Any, state: Any) -> None:
    made = state.InferenceSession(ort.SessionOptions(), SOURCE, False, False)
    with pytest.raises(state.Fail, match="Session not initialized"):
        made.run(["y"], {"x": X}, None)
    made.initialize_session(CPU, [{}], {"ConstantFolding"})
    assert made.run(["y"], {"x": X}, None)[0].tolist() == [[2, 3]] * 3
    assert [each.name for each in made.inputs_meta] == ["x"] and [each.name for each in made.outputs_meta] == ["y"]
    assert (made.get_providers(), made.get_provider_options()) == (CPU, {CPU[0]: {}})
    assert made.overridable_initializers == [] and made.model_meta.graph_name == "g"
    assert made.get_profiling_start_time_ns == 0 and made.end_profiling() == "" and made.get_tuning_results() == []
    assert len(made.input_meminfos) == len(made.output_meminfos) == len(made.input_epdevices) == 1
    value = made.create_ortvalue_from_shape_and_onnx_type([3, 2], 1, state.OrtDevice(0, 0, 0))
    value.update_inplace(X)
    results = made.run_with_ort_values({"x": value}, ["y"], None)
    assert len(results) == 1 and results[0].numpy().tolist() == [[2, 3]] * 3


def test_the_session_within(ort: Any, state: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(SOURCE)
    whole = ort.InferenceSession(str(path), providers=CPU)
    assert whole._sess.run(["y"], {"x": X}, None)[0].tolist() == [[2, 3]] * 3
    binding = state.SessionIOBinding(whole._sess)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X)._ortvalue)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.zeros_like(X))._ortvalue)
    whole._sess.run_with_iobinding(binding, None)
    assert binding.copy_outputs_to_cpu()[0].tolist() == [[2, 3]] * 3 and len(binding.get_outputs()) == 1
    assert (whole._model_path, whole._inputs_meta[0].name, whole._outputs_meta[0].name) == (str(path), "x", "y")
    assert whole._providers == CPU and whole._provider_options == {CPU[0]: {}} and whole._enable_fallback
    assert whole._model_meta.graph_name == "g"
    assert (whole._sess_options_initial, whole._fallback_providers, whole._read_config_from_model) == (None, CPU, False)
    assert whole._profiling_start_time_ns == whole.get_profiling_start_time_ns()
    with pytest.raises(ValueError, match=r"Required inputs \(\['x'\]\) are missing from input feed \(\['z'\]\)"):
        whole._validate_input(["z"])
    whole._create_inference_session(CPU, None, ["ConstantFolding"])
    assert whole.run(None, {"x": X})[0].tolist() == [[2, 3]] * 3


def test_a_binding_by_devices(ort: Any, state: Any) -> None:
    device, result = state.OrtDevice(state.OrtDevice.cpu(), state.OrtDevice.default_memory(), 0), np.zeros_like(X)
    whole = ort.InferenceSession(SOURCE, providers=CPU)
    binding = whole.io_binding()
    inner = binding._iobinding
    inner.bind_input("x", X)
    inner.bind_output("y", device)
    whole.run_with_iobinding(binding)
    assert binding.get_outputs()[0].numpy().tolist() == inner.copy_outputs_to_cpu()[0].tolist() == [[2, 3]] * 3
    inner.clear_binding_inputs()
    inner.clear_binding_outputs()
    twice = 2 * X
    inner.bind_input("x", device, twice.dtype, list(twice.shape), twice.ctypes.data)
    inner.bind_output("y", device, 1, list(result.shape), result.ctypes.data)
    inner.synchronize_inputs()
    whole._sess.run_with_iobinding(inner, None)
    inner.synchronize_outputs()
    assert result.tolist() == [[3, 4]] * 3
    for wrong in (("y", "cpu"), ("y", device, 1), ("y", device, 1, [3, 2], "here")):
        with pytest.raises(TypeError):
            inner.bind_output(*wrong)


def test_a_session_reset(ort: Any, state: Any, tmp_path: Path) -> None:
    whole = ort.InferenceSession(SOURCE, providers=CPU)
    options = whole.get_session_options()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    whole._sess_options = options
    whole._reset_session(CPU, [{}])
    assert whole.run(None, {"x": X})[0].tolist() == [[2, 3]] * 3
    if ort.__name__ == "onnxplug":  # onnxruntime resets to the options of the beginning
        assert Path(whole.end_profiling()).exists()


def test_a_model_is_of_the_kind_that_was_said(ort: Any, state: Any) -> None:
    with pytest.raises(TypeError):
        state.InferenceSession(ort.SessionOptions(), 5, True, False)


def test_block_sparse_tensors(ort: Any, state: Any) -> None:
    values = np.arange(32, dtype=np.float32).reshape(4, 4, 2)  # rows and columns of a block, blocks
    device = state.OrtDevice(0, 0, 0)
    make = state.SparseTensor.blocksparse_from_numpy
    data = make([8, 8], values, np.array([[0, 1], [1, 0]], np.int32), device)
    assert data.format == ort.OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE
    if ort.__name__ == "onnxplug":  # onnxruntime 1.31 reads the indices as int64 and raises
        assert data.get_blocksparse_data().indices().tolist() == [[0, 1], [1, 0]]
        assert ort.SparseTensor(data).as_blocksparse_view().indices().dtype == np.int32
    assert np.array_equal(data.values(), values) and not data.values().flags.writeable
    tensor = ort.SparseTensor(data)
    assert tensor.format() == data.format and tensor.dense_shape() == [8, 8]
    assert tensor.data_type() == "sparse_tensor(float)"
    for shape, indices, text in (
        ((16,), [[0], [1]], "at lest 3-D shape. Got:1"),
        ((1, 16), [[0], [1]], "at lest 3-D shape. Got:2"),
        ((4, 4, 1), [0, 1], "indices to have 2-D shape . Got: 1"),
        ((4, 4, 1), [[0]], r"must have dim\[0\] == 2"),
        ((1, 4, 4), [[0], [1]], "index blocks: 1 to be equal to values blocks: 4"),
    ):
        with pytest.raises(RuntimeError, match=text):
            make([8, 8], np.ones(shape, np.float32), np.array(indices, np.int32), device)
    for view in (tensor.as_coo_view, data.get_csrc_data):
        with pytest.raises(RuntimeError, match=r"does not contain (COO|CSR\(C\)) format"):
            view()


def test_values_by_the_extension_classes_forms(ort: Any, state: Any) -> None:
    device = state.OrtDevice(0, 0, 0)
    assert state.OrtValue.ortvalue_from_shape_and_onnx_type([2, 3], 10, device).data_type() == "tensor(float16)"
    assert state.OrtValue.ortvalue_from_shape_and_type([2], np.int64, device).element_type() == 7
    assert state.OrtValue.ortvalue_from_numpy(X, device).shape() == [3, 2]
    assert state.OrtValue.from_dlpack(np.ones(3, np.uint8).__dlpack__()).data_type() == "tensor(uint8)"
    vector = state.OrtValueVector()
    vector.push_back(state.OrtValue.ortvalue_from_numpy(X > 0, device))
    vector.push_back(state.OrtValue.ortvalue_from_numpy(X, device))
    assert [each.data_type() for each in vector] == ["tensor(bool)", "tensor(float)"]


def test_octets_that_are_booleans(ort: Any, state: Any) -> None:
    """Capsules of before DLPack had a code for booleans; onnxruntime 1.32 takes them for octets alone."""
    if not hasattr(state, "is_dlpack_uint8_tensor"):
        pytest.skip(f"onnxruntime {ort.__version__} does not tell booleans of octets")
    octets = np.array([1, 0, 1], np.uint8)
    assert state.is_dlpack_uint8_tensor(octets.__dlpack__())
    assert state.OrtValue.from_dlpack(octets.__dlpack__(), True).data_type() == "tensor(bool)"
    vector = state.OrtValueVector()
    vector.push_back(octets.__dlpack__(), True)
    vector.push_back(X.__dlpack__())
    assert vector.bool_tensor_indices() == [0] and vector[1].numpy().tolist() == X.tolist()
    with pytest.raises(TypeError, match=r"valid DLPack capsule|incompatible function"):
        state.is_dlpack_uint8_tensor(5)


def test_a_sessions_values_are_for_that_session(ort: Any) -> None:
    mine, other = session(ort), session(ort)
    value = mine.create_ortvalue_from_shape_and_type([3, 2], np.float32, "cpu")
    value.update_inplace(X)
    assert mine.run(None, {"x": value})[0].tolist() == [[2, 3]] * 3
    for run in (other.run, other.run_with_ort_values):
        with pytest.raises(ValueError, match="Session-scoped OrtValue must be used with the session that created it"):
            run(None, {"x": value})
    for bind in (other.io_binding().bind_ortvalue_input, other.io_binding().bind_ortvalue_output):
        with pytest.raises(ValueError, match="Session-scoped OrtValue must be bound to the session that created it"):
            bind("x", value)
    mine.set_providers(CPU)
    with pytest.raises(ValueError, match="Session-scoped OrtValue"):
        mine.run(None, {"x": value})
    with pytest.raises(RuntimeError, match="No session allocator found for"):
        mine.create_ortvalue_from_shape_and_type([3, 2], np.float32, "cpu", 1)


POOLS = """
import sys, importlib, numpy as np
ort = importlib.import_module(sys.argv[1])
source, x = bytes.fromhex(sys.argv[2]), np.ones((3, 2), np.float32)
def made(per_session):
    options = ort.SessionOptions()
    options.use_per_session_threads = per_session
    options.log_severity_level = 4
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"], enable_fallback=0)
def outcome(call):
    try:
        return "ok" if call() is None else "made"
    except Exception as error:
        return type(error).__name__ + (" per session" if "per" in str(error) else "")
print(outcome(lambda: made(False)), outcome(lambda: made(True)), sep="; ", end="; ")
print(outcome(lambda: ort.set_global_thread_pool_sizes(2, 1)), outcome(lambda: made(True)), sep="; ", end="; ")
print(outcome(lambda: ort.set_global_thread_pool_sizes(2, 1)), outcome(lambda: made(False)), sep="; ", end="; ")
print(made(False).run(None, {"x": x})[0].tolist())
"""


def test_global_thread_pools(ort: Any) -> None:
    command = [sys.executable, "-c", POOLS, ort.__name__, SOURCE.hex()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    told = "RuntimeError per session; made; ok; RuntimeError per session; Fail; made"
    assert ran.stdout.strip() == f"{told}; {[[2.0, 3.0]] * 3}"


def test_global_threads_are_what_providers_get() -> None:
    code = (
        "import onnxplug as ort; from onnxplug.session import environment\n"
        "options = ort.SessionOptions(); options.use_per_session_threads = False; options.intra_op_num_threads = 7\n"
        "ort.set_global_thread_pool_sizes(3)\n"
        "assert environment.requested_threads(options) == 3\n"
        "import sys; session = ort.InferenceSession(bytes.fromhex(sys.argv[1]), options)\n"
        "assert session._engine.built.runtime.threads == 3\n"
    )
    subprocess.run([sys.executable, "-c", code, SOURCE.hex()], check=True, timeout=120)


@pytest.mark.parametrize("severity", [9, -2])
def test_severities_that_are_none(ort: Any, state: Any, severity: int) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = severity
    with pytest.raises(RuntimeError, match=f"Not a valid onnxruntime::logging::Severity value: {severity}"):
        ort.InferenceSession(SOURCE, options, providers=CPU)
    run_options = ort.RunOptions()
    run_options.log_severity_level = severity
    with pytest.raises(state.Fail, match="Invalid run log severity level"):
        session(ort).run(None, {"x": X}, run_options)


def test_arrays_become_an_adapter_file(ort: Any, state: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "w.npz", a=X, b=X[0])
    tool = importlib.import_module(f"{ort.__name__}.capi.convert_npz_to_onnx_adapter")
    arguments = {"npz_file_path": "w.npz", "output_file_path": "w.adapter", "adapter_version": 3, "model_version": 4}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tool", *(f"--{name}={value}" for name, value in arguments.items())])
    assert tool.main() == 0
    read = state.AdapterFormat.read_adapter(str(tmp_path / "w.adapter"))
    assert (read.adapter_version, read.model_version, sorted(read.parameters)) == (3, 4, ["a", "b"])
    package = importlib.import_module(f"{ort.__name__}.capi.build_and_package_info")
    assert (package.package_name, package.__version__) == (ort.__name__, ort.__version__)
