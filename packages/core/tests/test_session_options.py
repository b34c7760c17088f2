"""The options of a session, and bindings over a memory of its own."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from core_graphs import model
from core_providers import CPU, OwnProvider, offered
from core_sessions import PLAIN, REFERENCE, X, on_device, options_with, session
from onnx import ModelProto

import onnxplug
from onnxplug.contract import (
    CONTRACT_VERSION,
    ProviderSpec,
)
from onnxplug.contract.errors import (
    Fail,
)
from onnxplug.plugins.registry import unregister_provider
from onnxplug_ep_reference.memory import live_buffers

# ---- the options of a session


def test_free_dimensions(ort: Any) -> None:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 3)
    options.add_free_dimension_override_by_name("unknown", 7)
    made = ort.InferenceSession(PLAIN, options, [CPU])
    assert made.get_inputs()[0].shape == [3, 2] and made.get_outputs()[0].shape == [3, 2]
    with pytest.raises(Exception, match="Got invalid dimensions"):
        made.run(None, {"x": X})


def test_free_dimensions_by_denotation(ort: Any) -> None:
    proto = ModelProto.FromString(PLAIN)
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 3)
    assert ort.InferenceSession(proto.SerializeToString(), options, [CPU]).get_inputs()[0].shape == [3, 2]


def test_the_first_of_several_sizes_counts(ort: Any) -> None:
    proto = ModelProto.FromString(PLAIN)
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ort.SessionOptions()
    for size in (3, 4):
        options.add_free_dimension_override_by_name("N", size)
        options.add_free_dimension_override_by_denotation("data_batch", size)
    options.add_free_dimension_override_by_name("unknown", 1 << 40)
    assert ort.InferenceSession(proto.SerializeToString(), options, [CPU]).get_inputs()[0].shape == [3, 2]
    for wrong in ("3", 3.0, 1 << 64):
        with pytest.raises(TypeError):
            options.add_free_dimension_override_by_name("N", wrong)


def test_a_dimension_of_two_sizes(ort: Any) -> None:
    proto = ModelProto.FromString(PLAIN)
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("N", 3)
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 5)
    with pytest.raises(
        ort.capi.onnxruntime_pybind11_state.InvalidArgument, match=r"Conflicting free dimension overrides\."
    ):
        ort.InferenceSession(proto.SerializeToString(), options, [CPU])


def test_a_denoted_dimension_that_has_a_size_already(ort: Any) -> None:
    proto = ModelProto.FromString(PLAIN)
    proto.graph.input[0].type.tensor_type.shape.dim[1].denotation = "DATA_CHANNEL"
    for size, refused in ((2, False), (3, True)):
        options = ort.SessionOptions()
        options.add_free_dimension_override_by_denotation("DATA_CHANNEL", size)
        if not refused:
            assert ort.InferenceSession(proto.SerializeToString(), options, [CPU]).get_inputs()[0].shape == ["N", 2]
            continue
        wrong = ort.capi.onnxruntime_pybind11_state.InvalidArgument
        with pytest.raises(wrong, match="Invalid free dimension override"):
            ort.InferenceSession(proto.SerializeToString(), options, [CPU])


@pytest.mark.parametrize(
    "number", [np.bool_(True), np.float32(1), np.int64(1), np.array(1), Decimal(1), Fraction(3, 2)]
)
def test_what_becomes_an_integer_is_one(ort: Any, number: Any) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = number
    assert options.intra_op_num_threads == 1
    for wrong in (1.0, np.float64(1), np.float32("nan"), "1", 2**31):
        with pytest.raises(TypeError):
            options.intra_op_num_threads = wrong


AFFINITIES = "session.intra_op_thread_affinities"
LAYERS = "session.layer_assignment_settings"
ENTRIES = [
    (3, AFFINITIES, "1;2", None),
    (3, AFFINITIES, ";1-2;;4,5,", None),
    (1, AFFINITIES, "abc", None),
    (2, AFFINITIES, "", RuntimeError("Affinity string must not be empty")),
    (2, AFFINITIES, "abc", RuntimeError("Processor id must consist of only digits: abc")),
    (2, AFFINITIES, "1,2-3", RuntimeError("Processor id must consist of only digits: 1,2-3")),
    (2, AFFINITIES, "0-2", RuntimeError("Processor id must start from 1: 0-2")),
    (2, AFFINITIES, "3-1", RuntimeError("Invalid processor interval: 3-1")),
    (2, AFFINITIES, "9" * 20, RuntimeError("Failed to read affinities from affinity string")),
    (3, AFFINITIES, "1", RuntimeError("affinities: 1, thread_pool_size: 3")),
    (1, "session.dynamic_block_base", "4 of them", None),
    (1, "session.dynamic_block_base", "many", ValueError("stoi|number")),
    (1, "session.dynamic_block_base", "2147483647 of them", None),
    (1, "session.dynamic_block_base", "10000000000", IndexError("stoi|number")),
    (1, "ep.cuda.gqa_workspace_max_total_sequence_length", str(2**31 - 1), None),
    (1, "ep.cuda.gqa_workspace_max_total_sequence_length", "-0", None),
    (
        1,
        "ep.cuda.gqa_workspace_max_total_sequence_length",
        str(2**63),
        "InvalidArgument must be a (nonnegative )?decimal",
    ),
    (1, "session.qdq_matmulnbits_block_size", str(2**63 - 1), None),
    (1, "session.qdq_matmulnbits_block_size", str(2**63), "Fail Failed to parse value"),
    (1, "session.function_expansion_node_limit", "07", None),
    (1, "session.function_expansion_node_limit", "0x1", None),
    (1, "session.function_expansion_byte_limit", "0", "InvalidArgument Invalid positive integer value '0'"),
    (1, "session.gqa_value_layout", "BNHS", None),
    (1, "session.gqa_value_layout", "bnhs", "InvalidArgument Expected 'BNSH' or 'BNHS'"),
    (1, "session.graph_optimizations_loop_level", "x", "RuntimeException Exception during initialization"),
    (1, "session.graph_optimizations_loop_level", str(2**31), "RuntimeException Exception during initialization"),
    (1, "session.qdq_matmulnbits_accuracy_level", "4", None),
    (1, "session.qdq_matmulnbits_accuracy_level", "5", "Fail accuracy level must be between 0 and 4"),
    (1, "session.enable_moe_expert_counting", "yes", 'Fail must be "0" or "1"'),
    (1, "optimization.minimal_build_optimizations", "all", "InvalidArgument Invalid value for"),
    (1, LAYERS, "cpu(a,b);gpu(c)", None),
    (1, LAYERS, "cpu(a); ", None),
    (1, LAYERS, "cpu", r"InvalidArgument Missing '\(' in entry: cpu"),
    (1, LAYERS, "cpu(a", r"InvalidArgument Missing '\)' in entry: cpu\(a"),
    (1, LAYERS, "(a)", r"InvalidArgument Empty device name in entry: \(a\)"),
    (1, "session.of_its_own", "anything", None),
]


@pytest.mark.parametrize(("threads", "key", "value", "refusal"), ENTRIES)
def test_values_of_entries_that_cannot_be_meant(ort: Any, threads: int, key: str, value: str, refusal: Any) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry(key, value)
    if refusal is None:
        assert ort.InferenceSession(PLAIN, options, [CPU]).get_providers() == [CPU]
        return
    if isinstance(refusal, str):
        name, _, text = refusal.partition(" ")
        kind = getattr(ort.capi.onnxruntime_pybind11_state, name)
    else:
        kind, text = type(refusal), str(refusal)
    with pytest.raises(kind, match=text):
        ort.InferenceSession(PLAIN, options, [CPU])


RUN_ENTRIES = {
    "gpu_graph_id": ({"-0", "007", str(-(2**31))}, {" 1", "1 ", "+1", str(2**31)}),
    "memory.enable_memory_arena_shrinkage": ({"", "cpu:0;"}, {";", ";cpu:0"}),
}


@pytest.mark.parametrize("key", RUN_ENTRIES)
def test_values_of_run_entries(ort: Any, key: str) -> None:
    session, x = ort.InferenceSession(PLAIN, providers=[CPU]), np.ones((1, 2), np.float32)
    for refused, values in enumerate(RUN_ENTRIES[key]):
        for value in values:
            options = ort.RunOptions()
            options.add_run_config_entry(key, value)
            if not refused:
                session.run(None, {"x": x}, options)
                continue
            with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
                session.run(None, {"x": x}, options)


WEIGHTED = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")


def test_an_initializer_in_place_of_the_models(ort: Any) -> None:
    value, options = ort.OrtValue.ortvalue_from_numpy(np.array([5, 6], np.float32)), ort.SessionOptions()
    options.add_initializer("w", value)
    options.add_initializer("unknown", value)
    made = ort.InferenceSession(WEIGHTED, options, [CPU])
    assert made.run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [5, 6]


def test_an_initializer_of_another_shape(ort: Any) -> None:
    x, told = np.zeros(2, np.float32), np.array([[5], [6]], np.float32)
    wide, long = (ort.OrtValue.ortvalue_from_numpy(array) for array in (told, np.ones(3, np.float32)))
    options = ort.SessionOptions()
    options.add_initializer("w", wide)
    assert ort.InferenceSession(WEIGHTED, options, [CPU]).run(None, {"x": x})[0].tolist() == [[5, 5], [6, 6]]
    options = ort.SessionOptions()
    options.add_initializer("w", long)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail):
        ort.InferenceSession(WEIGHTED, options, [CPU]).run(None, {"x": x})


def test_an_initializer_of_another_type() -> None:
    options = onnxplug.SessionOptions()
    options.add_initializer("w", onnxplug.OrtValue.ortvalue_from_numpy(np.ones(2, np.int64)))
    with pytest.raises(Fail, match=r"Replacement tensor's data type does not match.*'w' has"):
        session(WEIGHTED, options=options)


def test_threads_are_told_to_the_providers() -> None:
    seen = []
    spec = ProviderSpec(
        "OwnExecutionProvider", CONTRACT_VERSION, lambda options, context: seen.append(context) or OwnProvider()
    )  # type: ignore[func-returns-value]
    onnxplug.register_provider(spec)
    try:
        session(providers=["OwnExecutionProvider"], options=options_with(intra_op_num_threads=3, session__own="7"))
    finally:
        unregister_provider("OwnExecutionProvider")
    assert seen[0].threads == 3 and seen[0].config["session.own"] == "7"


@pytest.mark.parametrize("arena", [True, False])
def test_host_memory_with_and_without_an_arena(arena: bool) -> None:
    with offered(OwnExecutionProvider=OwnProvider):
        made = session(providers=["OwnExecutionProvider", CPU], options=options_with(enable_cpu_mem_arena=arena))
        for rows in (1, 5, 1):
            assert made.run(["y"], {"x": np.tile(X, (rows, 1))})[0].shape == (rows, 2)


# ---- bindings over a memory of its own


def test_values_on_a_device() -> None:
    made = session(providers=[REFERENCE])
    before = len(live_buffers())
    value = on_device(X)
    assert value.device_name() == "sim" and value.shape() == [1, 2] and value.numpy().tolist() == X.tolist()
    for x in (value, onnxplug.OrtValue.ortvalue_from_numpy(X)):
        y, z = made.run_with_ort_values(None, {"x": x})
        assert y.device_name() == "cpu" and y.numpy().tolist() == [[1, 2]] and not z.numpy().any()
        assert made.run(["y"], {"x": x})[0].tolist() == [[1, 2]]
    assert session().run(["y"], {"x": value})[0].tolist() == [[1, 2]], "a session without that device takes it too"
    made.close()
    assert len(live_buffers()) <= before + 1


def test_bound_to_a_device(simulated: Any) -> None:
    binding = simulated.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_output("y", "sim")
    binding.bind_output("z")
    for _ in range(3):
        simulated.run_with_iobinding(binding)
    y, z = binding.get_outputs()
    assert (y.device_name(), z.device_name()) == ("sim", "cpu")
    assert [a.tolist() for a in binding.copy_outputs_to_cpu()] == [[[1, 2]], [[0, 0]]]
    with pytest.raises(TypeError):
        np.asarray(y._payload.native)
    binding.bind_ortvalue_input("x", y)
    simulated.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[1].tolist() == [[0, 0]] and y.numpy().tolist() == [[1, 2]]


def test_bound_to_given_memory(simulated: Any) -> None:
    target, host = on_device(np.zeros((1, 2), np.float32)), np.zeros((1, 2), np.float32)
    binding = simulated.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", target)
    binding.bind_output("z", "cpu", 0, np.float32, [1, 2], host.ctypes.data)
    host[:] = 7
    simulated.run_with_iobinding(binding)
    assert target.numpy().tolist() == [[1, 2]] and not host.any()
    assert binding.get_outputs()[0].numpy().tolist() == [[1, 2]]
    binding.bind_ortvalue_output("y", on_device(np.zeros((3, 2), np.float32)))
    with pytest.raises(
        RuntimeError,
        match=r"Error in execution: .*has shape \{3,2\} but the computed output shape for this run is \{1,2\}",
    ):
        simulated.run_with_iobinding(binding)
    binding.bind_ortvalue_output("y", on_device(np.zeros((1, 2), np.float64)))
    with pytest.raises(RuntimeError, match="Error in execution: Unexpected output data type"):
        simulated.run_with_iobinding(binding)


def test_bindings_that_are_refused(ort: Any) -> None:
    one, other = (ort.InferenceSession(PLAIN, providers=[CPU]) for _ in range(2))
    binding = one.io_binding()
    with pytest.raises(ValueError, match="IOBinding must be used with the session that created it"):
        other.run_with_iobinding(binding)
    with pytest.raises(RuntimeError, match="Error in execution: At least one output should be requested"):
        one.run_with_iobinding(binding)
    binding.bind_output("y")
    binding.bind_cpu_input("x", X[0])
    with pytest.raises(RuntimeError, match="Error in execution: Invalid rank for input: x"):
        one.run_with_iobinding(binding)
    binding.bind_cpu_input("x", X)
    one.run_with_iobinding(binding)
    one.set_providers([CPU])
    with pytest.raises(ValueError, match="IOBinding must be used with the session that created it"):
        one.run_with_iobinding(binding)


def test_what_is_no_model_of_onnxruntimes_format(ort: Any) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.load_model_format", "ORT")
    with pytest.raises(Exception, match="ORT model verification failed"):
        ort.InferenceSession(PLAIN, options, [CPU])
