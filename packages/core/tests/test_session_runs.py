"""The other ways to run and to feed: asynchronous, by vectors, with adapters; memory and devices of a session; external files in
memory; arena shrinkage."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from core_graphs import model, plain_program, same
from core_providers import CPU, OwnProvider, offered
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.contract import ArenaConfig, Device
from onnxplug.contract.errors import InvalidArgument, RuntimeException

PLAIN = model("g (float[N, 2] x) => (float[N, 2] y) { y = Neg(x) }")
X = np.array([[1, -2]], np.float32)


def answered(session: Any, *arguments: Any) -> tuple[Any, Any, str, bool]:
    """What a callback is called with, and whether that was in another thread."""
    told: list[Any] = []
    done = threading.Event()

    def callback(results: Any, data: Any, error: str) -> None:
        told.append((results, data, error, threading.current_thread() is not threading.main_thread()))
        done.set()

    names, feed, *rest = arguments
    assert session.run_async(names, feed, callback, "data", *rest) is None
    assert done.wait(120)
    return told[0]  # type: ignore[no-any-return]


NONE_FED = {
    "g (float[N, 2] x, float[N, 2] z) => (float[N, 2] y) { y = Add(x, z) }": "Missing Input: z",
    "g (float[N, 2] x, float[2] z) => (float[N, 2] y) <float[2, 2] w = {1, 0, 0, 1}> { y = Gemm(x, w, z) }": "Missing Input: z",
    "g (float[N, 2] x, float z) => (float[N, 2] y) { y = Clip(x, z) }": "Missing Input: z",
    "g (float[N, 2] x, float[N, 2] z) => (float[N, 2] y) { y = Neg(x) }": "",
    "g (float[N, 2] x, float[N, 2] z) => (float[N, 2] y, float[N, 2] z) { y = Neg(x) }": "",
}


@pytest.mark.parametrize("text", NONE_FED)
def test_none_leaves_out_an_input(ort: Any, text: str) -> None:
    """It is missing where a node reads it."""
    made = ort.InferenceSession(model(text), providers=[CPU])
    if NONE_FED[text]:
        with pytest.raises(Exception, match=NONE_FED[text]) as caught:
            made.run(None, {"x": X, "z": None})
        assert type(caught.value).__name__ == "Fail"
    else:
        y, *given = made.run(None, {"x": X, "z": None})
        same(y, -X)
        assert given in ([], [None])


def test_an_optional_that_has_a_value_is_that_value(ort: Any) -> None:
    source = model("g (optional(float[2]) x) => (optional(float[2]) y) { y = Identity(x) }")
    value = ort.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32))
    (y,) = ort.InferenceSession(source, providers=[CPU]).run_with_ort_values(None, {"x": value})
    assert (y.data_type(), y.is_tensor(), y.element_type(), y.shape()) == ("tensor(float)", True, 1, [2])


def test_run_async(ort: Any) -> None:
    session = ort.InferenceSession(PLAIN, providers=[CPU])
    results, data, error, elsewhere = answered(session, None, {"x": X})
    same(results, [-X])
    assert (data, error, elsewhere) == ("data", "", True)
    results, _, error, _ = answered(session, ["y"], {"x": X.astype(float)})
    assert results == [] and error == "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))"
    for name, text in (("q", "Invalid output name: q"), ("", "output name cannot be empty")):
        assert answered(session, ["y", name], {"x": X})[2] == text
    with pytest.raises(ValueError, match=r"Required inputs \(\['x'\]\) are missing from input feed"):
        session.run_async(None, {}, lambda *told: None, None)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    single = ort.InferenceSession(PLAIN, options, providers=[CPU])
    with pytest.raises(
        ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="intra op thread pool must have at least one thread"
    ):
        single.run_async(None, {"x": X}, lambda *told: None, None)


def test_a_callback_is_asked_for_at_once() -> None:
    with pytest.raises(TypeError, match="expected a callable"):
        onnxplug.InferenceSession(PLAIN).run_async(None, {"x": X}, None, None)  # type: ignore[arg-type]


def test_runs_by_vectors(ort: Any) -> None:
    state = ort.capi.onnxruntime_pybind11_state
    session = ort.InferenceSession(PLAIN, providers=[CPU])
    feeds, fetches = state.OrtValueVector(), state.OrtValueVector()
    feeds.push_back(ort.OrtValue.ortvalue_from_numpy(X)._ortvalue)
    device = ort.OrtDevice.make("cpu", 0)._get_c_device()
    session.run_with_ortvaluevector(ort.RunOptions(), ["x"], feeds, ["y"], fetches, [device])
    assert len(fetches) == 1
    same([fetches[0].numpy()], [-X])


def test_a_model_without_outputs_cannot_be_run(ort: Any) -> None:
    session = ort.InferenceSession(model("g (float[1] x) => () { y = Neg(x) }"), providers=[CPU])
    with pytest.raises(
        ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="At least one output should be requested"
    ):
        session.run(None, {"x": X[0, :1]})


def test_an_operator_nobody_knows(ort: Any) -> None:
    source = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 21, "foo": 1]> g (float[1] x) => (float[1] y) { y = foo.Bar(x) }'
    )
    with pytest.raises(
        ort.capi.onnxruntime_pybind11_state.Fail, match=r"Fatal error: foo:Bar\(-1\) is not a registered function/op"
    ):
        ort.InferenceSession(source.SerializeToString(), providers=[CPU])


def test_memory_of_a_session(ort: Any) -> None:
    session = ort.InferenceSession(PLAIN, providers=[CPU])
    for info in (*session.get_input_memory_infos(), *session.get_output_memory_infos()):
        assert (info.name, info.device_id, info.mem_type) == ("Cpu", 0, ort.OrtMemType.DEFAULT)
        assert info.allocator_type == ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    (device,) = session.get_input_epdevices()
    assert device.ep_name == CPU
    value = session.create_ortvalue_from_shape_and_type([1, 2], np.float32, "cpu")
    value.update_inplace(X)
    same([v.numpy() for v in session.run_with_ort_values(None, {"x": value})], [-X])
    with pytest.raises(RuntimeError, match="No session allocator found for"):
        session.create_ortvalue_from_shape_and_type([1, 2], np.float32, "cuda")
    with pytest.raises(RuntimeError, match="currently only supported for numeric tensor types"):
        session.create_ortvalue_from_shape_and_type([1, 2], np.str_, "cpu")
    assert session.get_tuning_results() == [] and session.set_tuning_results([]) is None
    assert session.release_captured_graph(3) is None


def test_memory_of_a_session_on_a_device() -> None:
    device = Device("acme", 2)
    with offered("acme", AcmeExecutionProvider=lambda: OwnProvider(device)):
        session = onnxplug.InferenceSession(PLAIN, providers=["AcmeExecutionProvider", CPU], enable_fallback=0)
        (info,) = session.get_input_memory_infos()
        assert (info.name, info.device_id) == ("acme", 2)
        value = session.create_ortvalue_from_shape_and_type([1, 2], 1, "acme", 2)
        value.update_inplace(X)
        same(session.run(None, {"x": value}), [-X])
        assert session.get_input_epdevices() == [None]  # the provider announces no such device


def test_inner_names_that_programs_use(ort: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(PLAIN)
    session = ort.InferenceSession(str(tmp_path / "m.onnx"), providers=[CPU])
    assert session._model_path == str(tmp_path / "m.onnx") and session._sess.get_providers() == [CPU]
    assert ort.InferenceSession(PLAIN, providers=[CPU])._model_bytes == PLAIN
    binding = session.io_binding()
    binding._iobinding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X)._ortvalue)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    same([binding.get_outputs()[0].numpy()], [-X])


# ---- options in the model


def with_config(text: str | None) -> bytes:
    proto = onnx.load_from_string(PLAIN)
    if text is not None:
        proto.metadata_props.add(key="ort_config", value=text)
    return bytes(proto.SerializeToString())


@pytest.fixture
def configured(ort: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a session from a model with this configuration, and gives its options."""
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")

    def make(text: str | None, **keywords: Any) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 7
        return ort.InferenceSession(with_config(text), options, [CPU], **keywords).get_session_options()

    return make


def test_a_model_brings_its_options(configured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = configured(
        '{"session_options": {"inter_op_num_threads": 5, "intra_op_num_threads": 2, "graph_optimization_level": 1, '
        '"execution_mode": 1, "nope": 3}}'
    )
    assert (given.inter_op_num_threads, given.intra_op_num_threads) == (5, 2)
    assert given.graph_optimization_level == 1 and given.execution_mode == 1
    assert configured('{"x": 1}').intra_op_num_threads == 0
    monkeypatch.delenv("ORT_LOAD_CONFIG_FROM_MODEL")
    assert configured('{"session_options": {"intra_op_num_threads": 2}}').intra_op_num_threads == 7


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ('"intra_op_num_threads": "2"', "intra_op_num_threads option in the model file must be an integer"),
        ('"graph_optimization_level": 98', "Unsupported graph_optimization_level value in ORT config: 98"),
        ('"execution_mode": 5', "Unsupported execution_mode value in ORT config: 5"),
        ('"enable_profiling": true', "enable_profiling option in the model file must be an integer"),
        ('"enable_profiling": 3', "Unsupported value for enable_profiling option: 3"),
        ("bad", "Json stored in the `ort_config` key cannot be parsed. Error message:"),
    ],
)
def test_options_of_a_model_that_cannot_be_read(configured: Any, settings: str, text: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        configured(f'{{"session_options": {{{settings}}}}}')
    assert f"Could not finalize session options while constructing the inference session. Error Message: {text}" in str(
        caught.value
    )
    with pytest.raises(RuntimeError, match="ModelProto needs to be parsed to check for ORT config within it"):
        configured("{}", read_config_from_model=0)


# ---- the log


def test_verbose_logs_show_placements(capfd: pytest.CaptureFixture[str], ort: Any) -> None:
    options = ort.SessionOptions()
    options.log_severity_level, options.logid = 0, "mine"
    with plain_program():
        ort.InferenceSession(PLAIN, options, providers=[CPU])
    lines = [line for line in capfd.readouterr().err.splitlines() if f"[V:{ort.__name__}:mine," in line]
    at = next(i for i, line in enumerate(lines) if line.endswith("] Node placements"))
    assert lines[at + 1].endswith("]  All nodes placed on [CPUExecutionProvider]. Number of nodes: 1")


def test_verbose_logs_show_the_nodes_of_each_provider(capfd: pytest.CaptureFixture[str]) -> None:
    options = onnxplug.SessionOptions()
    options.log_severity_level = 0
    source = model("g (float[N, 2] x) => (float[N, 2] y) { [a] h = Neg(x) [b] y = Sin(h) }")
    with offered(AcmeExecutionProvider=lambda: OwnProvider(Device("acme"))), plain_program():
        onnxplug.InferenceSession(source, options, ["AcmeExecutionProvider", CPU])
    texts = [line.split("] ", 1)[1] for line in capfd.readouterr().err.splitlines() if "[V:" in line]
    at = texts.index("Node placements")
    assert texts[at + 1 : at + 5] == [
        " Node(s) placed on [AcmeExecutionProvider]. Number of nodes: 1", "  Neg (a)",
        " Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1", "  Sin (b)",
    ]  # fmt: skip


def test_a_result_goes_into_a_bound_value_of_its_device_without_the_host() -> None:
    with offered("acme", AcmeExecutionProvider=lambda: OwnProvider(Device("acme"))) as made:
        session = onnxplug.InferenceSession(PLAIN, providers=["AcmeExecutionProvider", CPU])
        binding = session.io_binding()
        value, result = (onnxplug.OrtValue.ortvalue_from_numpy(x, "acme", 0) for x in (X, np.zeros_like(X)))
        binding.bind_ortvalue_input("x", value)
        binding.bind_ortvalue_output("y", result)
        before = len(made["AcmeExecutionProvider"][0].transfer.log)
        session.run_with_iobinding(binding)
        assert made["AcmeExecutionProvider"][0].transfer.moves()[before:] == [("acme:0", "acme:0")]
        same([result.numpy()], [-X])


def test_values_on_a_device_do_not_outlive_a_session_that_is_closed() -> None:
    """What ends by itself waits for them; ``close`` does not, and then nobody may touch their memory."""
    with offered("acme", AcmeExecutionProvider=lambda: OwnProvider(Device("acme"))):
        session, other = (onnxplug.InferenceSession(PLAIN, providers=["AcmeExecutionProvider", CPU]) for _ in range(2))
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y", "acme")
        session.run_with_iobinding(binding)
        (value,) = binding.get_outputs()
        same([value.numpy()], [-X])
        session.close()
        assert value.shape() == [1, 2] and value.device_name() == "acme"
        for use in (
            value.numpy,
            value.data_ptr,
            value.__dlpack__,
            binding.copy_outputs_to_cpu,
            lambda: value.update_inplace(X),
            lambda: other.run(None, {"x": value}),
        ):
            with pytest.raises(RuntimeException, match="that went with its session, which is closed"):
                use()


# ---- adapters


def adapted() -> bytes:
    """y = x * a + b, where a and b are inputs with defaults 1 and 0."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xab"]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "a"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])],
        "g",
        infos,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.full(2, v, np.float32), n) for n, v in (("a", 1), ("b", 0))],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    return bytes(made.SerializeToString())


def test_adapters_fill_optional_inputs(ort: Any, tmp_path: Path) -> None:
    adapter = ort.AdapterFormat()
    adapter.set_adapter_version(3)
    adapter.set_model_version(5)
    values = {"a": np.array([2, 3], np.float32), "b": np.array([10, 20], np.float32)}
    adapter.set_parameters({n: ort.OrtValue.ortvalue_from_numpy(v) for n, v in values.items()})
    adapter.export_adapter(str(tmp_path / "one.onnx_adapter"))
    for reader in (ort, onnxplug, pytest.importorskip("onnxruntime")):
        read = reader.AdapterFormat.read_adapter(str(tmp_path / "one.onnx_adapter"))
        assert (read.get_format_version(), read.get_adapter_version(), read.get_model_version()) == (1, 3, 5)
        found = {n: v.numpy() for n, v in read.get_parameters().items()}
        assert found.keys() == values.keys()
        same([found["a"], found["b"]], [values["a"], values["b"]])
        lora = reader.LoraAdapter()
        lora.Load(str(tmp_path / "one.onnx_adapter"))
        options = reader.RunOptions()
        options.add_active_adapter(lora)
        session = reader.InferenceSession(adapted(), providers=[CPU])
        same(session.run(None, {"x": X[0]}), [X[0]])
        for fed in ({}, {"a": X[0]}):  # the adapter wins
            same(session.run(None, {"x": X[0], **fed}, options), [X[0] * values["a"] + values["b"]])


def test_files_that_are_no_adapters(ort: Any, tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(RuntimeError):
        ort.AdapterFormat.read_adapter(str(path))
    for content in (b"", b"abc", b"\x0c\0\0\0TORT\0\0\0\0", b"\xff" * 64):
        path.write_bytes(content)
        with pytest.raises(RuntimeError):
            ort.AdapterFormat.read_adapter(str(path))
        with pytest.raises(RuntimeError):
            ort.LoraAdapter().Load(str(path))


def test_types_of_adapters() -> None:
    import ml_dtypes

    adapter = onnxplug.AdapterFormat()
    with pytest.raises(RuntimeError, match="must be a tensor of numbers"):
        adapter.set_parameters({"s": onnxplug.OrtValue._wrap(np.array(["a"], object))})
    with pytest.raises(TypeError, match="expected a LoraAdapter"):
        onnxplug.RunOptions().add_active_adapter(adapter)
    value = onnxplug.OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([1, 2, 3], np.uint16), TensorProto.BFLOAT16)
    adapter.set_parameters({"b": value})
    assert adapter.get_parameters()["b"].numpy().dtype == ml_dtypes.bfloat16


# ---- external files in memory


def external(location: str = "w.bin", offset: int = 4) -> bytes:
    graph = onnx.load_from_string(model("g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"))
    tensor = graph.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", "8")):
        tensor.external_data.add(key=key, value=value)
    return bytes(graph.SerializeToString())


def test_external_files_in_memory(ort: Any) -> None:
    content = np.array([0, 5, 6], np.float32).tobytes()
    fail = ort.capi.onnxruntime_pybind11_state.Fail

    def session(name: str, data: bytes) -> Any:
        options = ort.SessionOptions()
        options.add_external_initializers_from_files_in_memory([name], [data], [len(data)])
        return ort.InferenceSession(external(), options, providers=[CPU])

    same(session("w.bin", content).run(None, {"x": X}), [X + np.array([5, 6], np.float32)])
    with pytest.raises(fail, match=r"External file: w\.bin not found from the table user provided"):
        session("other.bin", content)
    with pytest.raises(fail, match="are out of bounds or can not be read in full"):
        session("w.bin", content[:8])


# ---- arena shrinkage


def shrinking(ort: Any, devices: str) -> Any:
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", devices)
    return options


def test_arena_shrinkage(ort: Any) -> None:
    session = ort.InferenceSession(PLAIN, providers=[CPU])
    later = ("cpu:0;gpu:0", "cpu:0;cpu:1")  # onnxruntime 1.32 refuses devices behind the first that are not there
    for devices in ("cpu:0", "cpu", "", "cpu:0;", *(() if ort.__version__.startswith("1.32") else later)):
        same(session.run(None, {"x": X}, shrinking(ort, devices)), [-X])
    invalid = ort.capi.onnxruntime_pybind11_state.InvalidArgument
    for devices, text in (
        (
            "gpu:0",
            "Did not find an arena based allocator registered for device-id combination in the memory arena shrink list: gpu:0",
        ),
        ("gpu:0;cpu:0", "in the memory arena shrink list: gpu:0"),
        ("cpu:0;xyz:0", "Unsupported device specified in the memory arena shrink list: xyz"),
        ("xyz:0", "Unsupported device specified in the memory arena shrink list: xyz"),
        ("cpu:a", "Unsupported device id in the memory arena shrink list: a"),
    ):
        with pytest.raises(invalid, match=text):
            session.run(None, {"x": X}, shrinking(ort, devices))


def test_memory_goes_back_to_the_device() -> None:
    """Branches of many sizes leave frames and regions behind; after a shrinking run only the last run's own are there."""
    made: list[OwnProvider] = []

    def provider() -> OwnProvider:
        made.append(OwnProvider(Device("acme"), arena=ArenaConfig(strategy="kSameAsRequested", initial_chunk=1024)))
        return made[-1]

    source = model(
        "g (float[N, 4] x, bool c) => (float[N, 4] y) { a = Neg(x) b = If(c)<then_branch = t () => (float[N, 4] p) "
        "{ u = Neg(a) p = Add(u, a) }, else_branch = e () => (float[N, 4] q) { v = Abs(a) q = Add(v, a) }> y = Neg(b) }"
    )
    with offered(AcmeExecutionProvider=provider):
        session = onnxplug.InferenceSession(source, providers=["AcmeExecutionProvider", CPU], enable_fallback=0)
        for rows in (4096, 1024, 256):
            x = np.ones((rows, 4), np.float32)
            same(session.run(None, {"x": x, "c": np.array(True)}), [0 * x])
        allocator = made[0].allocator
        held = sum(buffer.nbytes for buffer in allocator.live.values())
        x = np.ones((2, 4), np.float32)
        same(session.run(None, {"x": x, "c": np.array(False)}, shrinking(onnxplug, "acme:0")), [0 * x])
        left = sum(buffer.nbytes for buffer in allocator.live.values())
        assert left < held / 50
        with pytest.raises(InvalidArgument, match="acme:1"):
            session.run(None, {"x": x, "c": np.array(False)}, shrinking(onnxplug, "acme:1"))


# ---- the constructor's fallback


def test_cuda_is_tried_after_tensorrt(capsys: pytest.CaptureFixture[str]) -> None:
    """The first of the two refuses its options; the session is made on the other one."""
    asked = [("TensorrtExecutionProvider", {"no_such_option": "1"}), "CUDAExecutionProvider", CPU]
    with offered(TensorrtExecutionProvider=OwnProvider, CUDAExecutionProvider=OwnProvider):
        made = onnxplug.InferenceSession(PLAIN, providers=asked)
        assert made.get_providers() == ["CUDAExecutionProvider", CPU]
        assert (
            "Falling back to ['CUDAExecutionProvider', 'CPUExecutionProvider'] and retrying." in capsys.readouterr().out
        )
        alone = onnxplug.InferenceSession(PLAIN, providers=asked[:1])
        assert alone.get_providers() == [CPU]
