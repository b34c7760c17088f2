"""What onnxruntime's pages on options, providers, bindings, saved models, profiles and adapters show, as programs of ours that are run with
both packages and compared."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from core_examples import CPU, ROWS, described, same_with_both, told
from core_graphs import model
from onnx import external_data_helper, numpy_helper

TWO = model("""
    g (float[batch, 2] x) => (float[batch, 2] scaled, float[batch, 2] shifted) <float[2] w = {2, 4}, float[2] b = {1, -1}> {
        scaled = Mul (x, w)
        shifted = Add (x, b)
    }""")
QUANTIZED = model("""
    g (float[batch, 4] x) => (float[batch, 3] y)
    <float s = {0.02}, uint8 z = {128}, float[3] ws = {0.01, 0.02, 0.03}, int8[3] wz = {0, 0, 0}> {
        xq = QuantizeLinear (x, s, z)
        xd = DequantizeLinear (xq, s, z)
        wd = DequantizeLinear <axis = 1> (w, ws, wz)
        y = MatMul (xd, wd)
    }""")


def quantized() -> onnx.ModelProto:
    """A quantized product whose weights are bytes."""
    proto = onnx.load_from_string(QUANTIZED)
    weights = np.arange(-60, 60, 10, dtype=np.int8).reshape(4, 3)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return proto


def addresses(ort: Any) -> Any:
    """Memory of another library, bound by address: an input, an output, and the output read there."""
    session = ort.InferenceSession(TWO, providers=CPU)
    x, out = np.ascontiguousarray(ROWS), np.empty((3, 2), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, tuple(x.shape), x.ctypes.data)
    binding.bind_output("scaled", "cpu", 0, np.float32, tuple(out.shape), out.ctypes.data)
    binding.bind_output("shifted", device_type="cpu", device_id=0)
    session.run_with_iobinding(binding)
    first, second = binding.get_outputs(), binding.copy_outputs_to_cpu()
    binding.clear_binding_inputs()
    missing = told(lambda: session.run_with_iobinding(binding))[:1]
    binding.clear_binding_outputs()
    return out, [each.numpy() for each in first], second, missing, told(lambda: session.run_with_iobinding(binding))


def a_state_that_stays_bound(ort: Any) -> Any:
    """The output of one step is the input of the next, by swapping two values; the bound memory is the result."""
    session = ort.InferenceSession(TWO, providers=CPU)
    now = ort.OrtValue.ortvalue_from_numpy(ROWS.copy(), "cpu", 0)
    then = ort.OrtValue.ortvalue_from_shape_and_type((3, 2), np.float32, "cpu", 0)
    for _ in range(3):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", now)
        binding.bind_ortvalue_output("scaled", then)
        session.run_with_iobinding(binding)
        now, then = then, now
    return now.numpy().copy(), then.numpy().copy(), [now.element_type(), now.has_value(), now.is_tensor_sequence()]


def bindings_that_are_wrong(ort: Any) -> Any:
    session = ort.InferenceSession(TWO, providers=CPU)
    binding = session.io_binding()
    small = ort.OrtValue.ortvalue_from_shape_and_type((1, 2), np.float32)
    doubles = ort.OrtValue.ortvalue_from_shape_and_type((3, 2), np.float64)
    seen = [told(lambda: binding.bind_cpu_input("y", ROWS)), told(lambda: binding.bind_ortvalue_output("y", small))]
    binding.bind_cpu_input("x", ROWS)
    for value in (small, doubles):
        binding.bind_ortvalue_output("scaled", value)
        seen.append(told(lambda: session.run_with_iobinding(binding))[:1])  # type: ignore[index]
    return seen


def values_of_every_kind(ort: Any) -> Any:
    """Tensors, lists of tensors and dictionaries go in and come out."""
    lists = model("""
        g (seq(float[N]) many, int64 at) => (seq(float[N]) same, float[N] one) {
            same = Identity (many)
            one = SequenceAt (many, at)
        }""")
    session = ort.InferenceSession(lists, providers=CPU)
    many = [np.float32([1, 2]), np.float32([3])]
    return (
        described([*session.get_inputs(), *session.get_outputs()]),
        session.run(None, {"many": many, "at": np.array(1)}),
        told(lambda: session.run(None, {"many": many, "at": np.array(2)}))[:1],
        told(lambda: session.run(None, {"many": many[0], "at": np.array(0)}))[:1],
        told(lambda: session.run(None, {"many": [1.0], "at": np.array(0)}))[:1],
    )


def run_options(ort: Any) -> Any:
    session = ort.InferenceSession(TWO, providers=CPU)
    options = ort.RunOptions()
    options.logid, options.log_severity_level, options.only_execute_path_to_fetches = "request 7", 4, True
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    seen = [session.run(["shifted"], {"x": ROWS}, options), session.run(["shifted"], {"x": ROWS}, run_options=options)]
    options.terminate = True
    seen.append(told(lambda: session.run(None, {"x": ROWS}, options)))
    options.terminate = False
    seen.append(session.run(["scaled"], {"x": ROWS}, options))
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "tpu:0")
    return [*seen, told(lambda: session.run(None, {"x": ROWS}, options))[:1]]


def a_run_in_the_background(ort: Any) -> Any:
    """A callback sets the result of a future that the caller waits for."""

    class Future:
        def __init__(self) -> None:
            self.done, self.value, self.error = threading.Event(), None, ""

        def fill(self, results: Any, error: str) -> None:
            self.value, self.error = results, error
            self.done.set()

    def callback(results: Any, user_data: Any, error: str) -> None:
        user_data.fill(results, error)

    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(TWO, options, providers=CPU)
    futures = [Future() for _ in range(4)]
    for i, future in enumerate(futures):
        session.run_async(["scaled"], {"x": ROWS * i}, callback, future)
    for future in futures:
        assert future.done.wait(60)
    bad = Future()
    session.run_async(["scaled"], {"x": ROWS[0]}, callback, bad)
    assert bad.done.wait(60)
    return [[future.value, future.error] for future in futures], bad.value, bool(bad.error)


def settings_of_a_session(ort: Any) -> Any:
    """Threads, memory, logs, config entries; and what a session then says of itself."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 3, 2
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = options.enable_mem_pattern = options.enable_mem_reuse = False
    options.logid, options.log_severity_level, options.log_verbosity_level = "mine", 3, 1
    entries = {
        "session.intra_op.allow_spinning": "0",
        "session.inter_op.allow_spinning": "0",
        "session.set_denormal_as_zero": "1",
        "session.disable_prepacking": "1",
        "session.dynamic_block_base": "4",
        "session.intra_op_thread_affinities": "1;1",
        "my.own.key": "any value",
    }
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    session = ort.InferenceSession(TWO, options, providers=CPU, disabled_optimizers=["ConstantFolding"])
    kept = session.get_session_options()
    names = [n for n in dir(options) if not n.startswith("_") and not callable(getattr(options, n))]
    told_back = {name: str(getattr(kept, name)) for name in names}
    missing = told(lambda: kept.get_session_config_entry("no.such.key"))
    return session.run(None, {"x": ROWS}), told_back, [kept.get_session_config_entry(k) for k in entries], missing


def dimensions_that_are_fixed(ort: Any) -> Any:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 3)
    options.add_free_dimension_override_by_name("no such name", 5)
    session = ort.InferenceSession(TWO, options, providers=CPU)
    kinds = described([*session.get_inputs(), *session.get_outputs()])
    return kinds, session.run(None, {"x": ROWS}), told(lambda: session.run(None, {"x": ROWS[:1]}))


def weights_from_elsewhere(ort: Any) -> Any:
    """Initializers given by the caller: shared between sessions, and for those whose data lie in another file."""
    shared = ort.OrtValue.ortvalue_from_numpy(np.float32([10, 100]))
    options = ort.SessionOptions()
    options.add_initializer("w", shared)
    seen = [ort.InferenceSession(TWO, options, providers=CPU).run(["scaled"], {"x": ROWS}) for _ in range(2)]
    proto = onnx.load_from_string(TWO)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))  # as raw bytes
    external_data_helper.convert_model_to_external_data(proto, location="weights.bin", size_threshold=0)
    onnx.save(proto, "external.onnx")
    seen.append(ort.InferenceSession("external.onnx", providers=CPU).run(None, {"x": ROWS}))
    source = Path("external.onnx").read_bytes()
    os.rename("weights.bin", "gone.bin")
    seen.append(told(lambda: ort.InferenceSession("external.onnx", providers=CPU))[:1])
    options = ort.SessionOptions()
    arrays = [np.float32([3, 5]), np.float32([0, 1])]
    options.add_external_initializers(["w", "b"], [ort.OrtValue.ortvalue_from_numpy(a) for a in arrays])
    return [*seen, ort.InferenceSession(source, options, providers=CPU).run(None, {"x": ROWS})]


def an_optimized_model_for_later(ort: Any) -> Any:
    """Optimized once, saved with its weights in a file beside it, loaded without optimizations: a quantized model."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = "optimized.onnx"
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimized.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "8")
    x = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
    made = ort.InferenceSession(quantized().SerializeToString(), options, providers=CPU).run(None, {"x": x})
    later = ort.SessionOptions()
    later.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession("optimized.onnx", later, providers=CPU)
    moved = {
        t.name: [(e.key, e.value) for e in t.external_data]
        for t in onnx.load("optimized.onnx", load_external_data=False).graph.initializer
    }
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "many")
    return (
        made,
        session.run(None, {"x": x}),
        moved["w"][0],
        len(moved["s"]),
        told(lambda: ort.InferenceSession(TWO, options, providers=CPU))[:1],
    )


def profiles(ort: Any) -> Any:
    """Where the file is, what is in it, and what is there when nothing was run."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = "of_two"
    session = ort.InferenceSession(TWO, options, providers=CPU)
    for _ in range(2):
        session.run(None, {"x": ROWS})
    file = session.end_profiling()
    events = json.loads(Path(file).read_text())
    by_op = {e["args"]["op_name"]: e["args"]["input_type_shape"] for e in events if e["cat"] == "Node"}
    counted = {name: sum(e["name"] == name for e in events) for name in ("model_run", "session_initialization")}
    idle = ort.InferenceSession(TWO, options, providers=CPU)
    return file.startswith("of_two_"), by_op, counted, sorted({e["ph"] for e in events}), bool(idle.end_profiling())


def providers_in_order(ort: Any) -> Any:
    """Accelerators of other builds, with the options their pages show: skipped with a warning."""
    asked: list[Any] = [
        ("TensorrtExecutionProvider", {"trt_fp16_enable": True, "trt_engine_cache_path": "cache"}),
        ("CUDAExecutionProvider", {"device_id": 0, "arena_extend_strategy": "kNextPowerOfTwo", "do_copy_in_default_stream": True}),
        "MIGraphXExecutionProvider",
    ]  # fmt: skip
    asked = [a for a in asked if (a if isinstance(a, str) else a[0]) not in ort.get_available_providers()]
    session = ort.InferenceSession(TWO, providers=[*asked, "CPUExecutionProvider"])
    seen = [session.get_providers(), list(session.get_provider_options()), session.run(None, {"x": ROWS})]
    session.set_providers(["CPUExecutionProvider"], [{"arena_extend_strategy": "kSameAsRequested"}])
    session.enable_fallback()
    session.disable_fallback()
    seen += [session.get_providers(), session.run(["shifted"], {"x": ROWS})]
    return [*seen, told(lambda: session.set_providers(["FlyingExecutionProvider"]))[:1]]


def where_nodes_are(ort: Any) -> Any:
    """A session tells which provider has which nodes, when asked to remember."""
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(TWO, options, providers=CPU)
    placed = session.get_provider_graph_assignment_info()
    nodes = sorted((node.op_type, node.domain) for each in placed for node in each.get_nodes())
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return (
        {each.ep_name for each in placed} == set(CPU),
        nodes,
        told(lambda: ort.InferenceSession(TWO, options, providers=CPU)),
    )


def seeds(ort: Any) -> Any:
    """Random numbers repeat after the seed was set."""
    source = model("g (float[2] x) => (float[2, 3] y) { y = RandomUniform <shape = [2, 3]> () }")
    drawn = []
    for seed in (5, 5, 6):
        ort.set_seed(seed)
        drawn.append(ort.InferenceSession(source, providers=CPU).run(None, {"x": ROWS[0]})[0])
    return np.array_equal(drawn[0], drawn[1]), np.array_equal(drawn[0], drawn[2]), drawn[0].dtype.name


SEEDED = """
    g (float[N] x, float[1, 3] p, int64 n) => (a, b, c, d, e, f) {
        t = Constant <value = bool {1}> ()
        a = RandomNormal <seed = 3.0, shape = [20]> ()
        b = RandomUniform <seed = 3.0, shape = [20]> ()
        c = RandomNormalLike <seed = 3.0> (x)
        d = Bernoulli <seed = 3.0> (x)
        e = Multinomial <sample_size = 40, seed = 3.0> (p)
        f = Loop (n, t) <body = l (int64 i, bool go) => (bool on, row) {
            on = Identity (go) row = RandomUniformLike <seed = 3.0> (x) }>
    }"""


def nodes_with_seeds(ort: Any) -> Any:
    """A seed begins a node's numbers, which go on from run to run and from trip to trip. tf2onnx gives every node one."""
    session, another = (ort.InferenceSession(model(SEEDED), providers=CPU) for _ in range(2))
    feeds = {"x": np.full(40, 0.5, np.float32), "p": np.zeros((1, 3), np.float32), "n": np.array(2)}
    first, second, again = session.run(None, feeds), session.run(None, feeds), another.run(None, feeds)
    return (
        [np.array_equal(x, y) for x, y in zip(first, second, strict=True)],
        [np.array_equal(x, y) for x, y in zip(first, again, strict=True)],
        np.array_equal(*first[-1]),
        [x.dtype.name for x in first],
    )


HOWTOS = [
    nodes_with_seeds,
    addresses,
    a_state_that_stays_bound,
    bindings_that_are_wrong,
    values_of_every_kind,
    run_options,
    a_run_in_the_background,
    settings_of_a_session,
    dimensions_that_are_fixed,
    weights_from_elsewhere,
    an_optimized_model_for_later,
    profiles,
    providers_in_order,
    where_nodes_are,
    seeds,
]


@pytest.mark.parametrize("program", HOWTOS, ids=lambda program: program.__name__)
def test_what_a_page_shows(program: Any, tmp_path: Path) -> None:
    same_with_both(program, tmp_path)
