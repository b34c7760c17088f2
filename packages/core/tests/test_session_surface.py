"""Options, enumerations, provider arguments, metadata and the module itself: what holds for onnxruntime holds
here.
"""

from __future__ import annotations

import ast
import copy
import importlib
import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from core_graphs import model

import onnxplug
from onnxplug.contract import OptionalType, SequenceType, TensorType
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug.session.model_io import ModelMetadata, NodeArg
from onnxplug.session.options import SessionOptions

CPU = "CPUExecutionProvider"


@pytest.mark.parametrize(
    "name",
    [
        "GraphOptimizationLevel",
        "ExecutionMode",
        "ExecutionOrder",
        "OrtAllocatorType",
        "OrtMemType",
        "OrtDeviceMemoryType",
        "OrtMemoryInfoDeviceType",
        "OrtHardwareDeviceType",
        "OrtSparseFormat",
        "OrtExecutionProviderDevicePolicy",
    ],
)
def test_enumerations_have_onnxruntimes_members(name: str) -> None:
    theirs = getattr(pytest.importorskip("onnxruntime"), name).__members__
    assert {n: int(m) for n, m in getattr(onnxplug, name).__members__.items()} == {n: int(m) for n, m in theirs.items()}


def test_enumerations_compare_as_numbers(ort: Any) -> None:
    level = ort.GraphOptimizationLevel
    member = level.ORT_ENABLE_ALL
    assert member == 99 and member != 98 and int(member) == 99 and hash(member) == 99
    assert not isinstance(member, int)
    assert (str(member), repr(member), member.name, member.value) == (
        "GraphOptimizationLevel.ORT_ENABLE_ALL", "<GraphOptimizationLevel.ORT_ENABLE_ALL: 99>", "ORT_ENABLE_ALL", 99,
    )  # fmt: skip
    assert repr(level(7)) == "<GraphOptimizationLevel.???: 7>"
    assert pickle.loads(pickle.dumps(member)) == member and copy.deepcopy(member) == member
    assert ort.ExecutionMode(99) == member
    order = ort.ExecutionOrder
    assert order(1) == order.PRIORITY_BASED != 1 and order.PRIORITY_BASED != ort.ExecutionMode.ORT_PARALLEL
    assert hash(order.PRIORITY_BASED) == int(order.PRIORITY_BASED) == 1
    with pytest.raises(TypeError):
        level("ORT_ENABLE_ALL")
    with pytest.raises(TypeError):
        member < 100  # noqa: B015


DEFAULTS = {
    "enable_cpu_mem_arena": True, "enable_mem_pattern": True, "enable_mem_reuse": True, "enable_profiling": False,
    "inter_op_num_threads": 0, "intra_op_num_threads": 0, "log_severity_level": -1, "log_verbosity_level": 0,
    "logid": "",
    "optimized_model_filepath": "", "profile_file_prefix": "onnxruntime_profile_", "use_deterministic_compute": False,
    "use_per_session_threads": True, "graph_optimization_level": 99, "execution_mode": 0,
}  # fmt: skip


def test_session_options_have_onnxruntimes_defaults(ort: Any) -> None:
    options = ort.SessionOptions()
    assert {name: getattr(options, name) for name in DEFAULTS} == DEFAULTS and int(options.execution_order) == 0


def test_session_options_have_onnxruntimes_members() -> None:
    theirs = pytest.importorskip("onnxruntime").SessionOptions
    assert {n for n in dir(theirs) if not n.startswith("_")} == {
        n for n in dir(SessionOptions) if not n.startswith("_")
    }


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("intra_op_num_threads", True, 1),
        ("intra_op_num_threads", -4, -4),
        ("intra_op_num_threads", np.int64(3), 3),
        ("enable_profiling", 1, True),
        ("enable_profiling", None, False),
        ("enable_profiling", np.bool_(True), True),
        ("logid", b"abc", "abc"),
        ("log_severity_level", 17, 17),
        ("profile_file_prefix", "", ""),
    ],
)
def test_accepted_option_values(ort: Any, name: str, value: Any, stored: Any) -> None:
    options = ort.SessionOptions()
    setattr(options, name, value)
    assert getattr(options, name) == stored and type(getattr(options, name)) is type(stored)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("graph_optimization_level", 99),
        ("execution_mode", 0),
        ("intra_op_num_threads", 1.5),
        ("intra_op_num_threads", "1"),
        ("intra_op_num_threads", None),
        ("intra_op_num_threads", 2**40),
        ("enable_profiling", "x"),
        ("enable_profiling", [1]),
        ("logid", 5),
        ("logid", None),
        ("optimized_model_filepath", Path("x")),
    ],
)
def test_refused_option_values(ort: Any, name: str, value: Any) -> None:
    options = ort.SessionOptions()
    with pytest.raises(TypeError):
        setattr(options, name, value)
    assert getattr(options, name) == DEFAULTS[name]


def test_options_refuse_typing_errors(ort: Any) -> None:
    for options in (ort.SessionOptions(), ort.RunOptions()):
        with pytest.raises(AttributeError):
            options.intra_op_threads = 2
        with pytest.raises(AttributeError):
            _ = options.nope
        with pytest.raises(TypeError):
            type(options)(1)


def test_session_config_entries(ort: Any) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("k", "1")
    options.add_session_config_entry("a" * 1024, "b" * 8192)
    options.add_session_config_entry("empty", "")
    assert options.get_session_config_entry("k") == "1" and options.get_session_config_entry("empty") == ""
    for key in ("", "a" * 1025):
        with pytest.raises(RuntimeError, match=r"^Config key is empty or longer than maximum length 1024$"):
            options.add_session_config_entry(key, "x")
    with pytest.raises(RuntimeError, match=r"^Config value is longer than maximum length: 8192$"):
        options.add_session_config_entry("v", "b" * 8193)
    with pytest.raises(TypeError):
        options.add_session_config_entry("v", 1)
    with pytest.raises(RuntimeError, match=r"^SessionOptions does not have configuration with key: zz$"):
        options.get_session_config_entry("zz")


def test_free_dimensions_and_initializers(ort: Any) -> None:
    options, value = ort.SessionOptions(), ort.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    options.add_free_dimension_override_by_name("N", 3)
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 3)
    with pytest.raises(TypeError):
        options.add_free_dimension_override_by_name("N", "3")
    options.add_initializer("w", value)
    with pytest.raises(RuntimeError, match="An OrtValue for this name has already been added: w"):
        options.add_initializer("w", value)
    with pytest.raises(RuntimeError, match="must be an OrtValue"):
        options.add_initializer("x", 3)
    options.add_external_initializers(["e"], [value])
    with pytest.raises(RuntimeError, match="Expecting names and ort_values lists to have equal length"):
        options.add_external_initializers(["x"], [])
    options.add_external_initializers_from_files_in_memory(["f"], [b"abcd"], [4])
    with pytest.raises(RuntimeError, match="expecting 'names', 'buffers' and 'lengths' to have equal length"):
        options.add_external_initializers_from_files_in_memory(["f"], [b"ab"], [])


def test_custom_op_libraries_that_do_not_exist(ort: Any) -> None:
    fail = importlib.import_module(ort.__name__ + ".capi.onnxruntime_pybind11_state").Fail
    with pytest.raises(fail, match=r"Failed to load library /nope.so with error: .*No such file"):
        ort.SessionOptions().register_custom_ops_library("/nope.so")


def test_add_provider(ort: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxplug.plugins.registry.available_providers", lambda: [CPU])
    state = importlib.import_module(ort.__name__ + ".capi.onnxruntime_pybind11_state")
    options = ort.SessionOptions()
    assert not options.has_providers()
    options.add_provider(CPU, {})
    assert options.has_providers()
    with pytest.raises(RuntimeError, match=r"^Unknown Provider Type: Nope$"):
        options.add_provider("Nope", {})
    with pytest.raises(
        state.InvalidArgument, match="Failed to add provider of type 'CUDAExecutionProvider' to SessionOptions"
    ):
        options.add_provider("CUDAExecutionProvider", {})
    with pytest.raises(TypeError):
        options.add_provider(CPU, {"a": 1})
    with pytest.raises(state.InvalidArgument, match="Must provide one or more OrtEpDevice instances"):
        options.add_provider_for_devices([], {})
    selecting = ort.SessionOptions()
    selecting.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    assert selecting.has_providers()


def test_run_options(ort: Any) -> None:
    options = ort.RunOptions()
    assert (options.log_severity_level, options.log_verbosity_level, options.logid) == (-1, 0, "")
    assert options.terminate is False and options.only_execute_path_to_fetches is False
    options.terminate = 1
    assert options.terminate is True
    options.add_run_config_entry("gpu_graph_id", "-1")
    assert options.get_run_config_entry("gpu_graph_id") == "-1"
    with pytest.raises(RuntimeError, match=r"^RunOptions does not have configuration with key: z$"):
        options.get_run_config_entry("z")


def test_a_session_keeps_its_own_copy_of_options() -> None:
    options = SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("k", "1")
    kept = options._copy()
    options.intra_op_num_threads = 4
    options.add_session_config_entry("j", "1")
    options.add_free_dimension_override_by_name("N", 1)
    assert kept.intra_op_num_threads == 2 and kept.get_session_config_entry("k") == "1"
    assert not kept._free_dimensions_by_name and set(kept._config_entries) == {"k"}


def _normalize(ort: Any, *args: Any) -> Any:
    collection = importlib.import_module(ort.__name__ + ".capi.onnxruntime_inference_collection")
    return collection.check_and_normalize_provider_args(*args)


def test_provider_arguments(ort: Any) -> None:
    assert _normalize(ort, None, None, [CPU]) == ([], [])
    assert _normalize(ort, (), None, [CPU]) == ([], [])
    pairs = [("B", {"a": True, 0: None}), CPU]
    assert _normalize(ort, pairs, None, ["B", CPU]) == (["B", CPU], [{"a": "True", "0": "None"}, {}])
    assert _normalize(ort, ["B"], [{"x": 2 << 30}], ["B"]) == (["B"], [{"x": "2147483648"}])


def test_provider_warnings(ort: Any) -> None:
    with pytest.warns(UserWarning) as caught:
        assert _normalize(ort, ["X", (CPU, {"a": 1}), CPU], None, ["A", CPU]) == (["X", CPU], [{}, {"a": "1"}])
    assert [str(w.message) for w in caught] == [
        f"Specified provider 'X' is not in available provider names.Available providers: 'A, {CPU}'",
        f"Duplicate provider '{CPU}' encountered, ignoring.",
    ]


@pytest.mark.parametrize(
    ("providers", "options", "text"),
    [
        ({CPU}, None, "'providers' should be a sequence."),
        ([CPU], {"a": 1}, "'provider_options' should be a sequence."),
        ([CPU], [], "'providers' and 'provider_options' should be the same length if both are given."),
        ([(CPU, {})], [{}], "Only string values for 'providers' are supported if 'provider_options' is given."),
        ([CPU], ["a"], "'provider_options' values must be dicts."),
        ([[CPU, {}]], None, "'providers' values must be either strings or (string, dict) tuples."),
        ([(CPU, None)], None, "'providers' values must be either strings or (string, dict) tuples."),
    ],
)
def test_provider_argument_errors(ort: Any, providers: Any, options: Any, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        _normalize(ort, providers, options, [CPU])
    assert str(caught.value) == text


def test_node_arg() -> None:
    arg = NodeArg("X", TensorType("float", ("N", 2, None)))
    assert (arg.name, arg.type, arg.shape) == ("X", "tensor(float)", ["N", 2, None])
    assert str(arg) == "NodeArg(name='X', type='tensor(float)', shape=['N', 2, None])"
    assert (
        repr(arg).startswith("<")
        and NodeArg("X", TensorType("float")).shape == NodeArg("X", TensorType("float", ())).shape == []
    )
    assert NodeArg("X", OptionalType(TensorType("float", (2,)))).shape == [2]
    assert (
        str(NodeArg("X", SequenceType(TensorType("float", (2,)))))
        == "NodeArg(name='X', type='seq(tensor(float))', shape=[])"
    )
    with pytest.raises(AttributeError):
        arg.name = "Y"  # type: ignore[misc]


def test_model_metadata() -> None:
    meta = ModelMetadata(graph_name="g")
    assert (meta.version, meta.producer_name, meta.custom_metadata_map) == (9223372036854775807, "", {})
    meta.description = "mine"
    with pytest.raises(AttributeError):
        meta.nope = 1  # type: ignore[attr-defined]


def test_process_functions(ort: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxplug.session.environment._seed", None)  # and back, for the tests that follow
    ort.set_seed(-5)
    with pytest.raises(TypeError):
        ort.set_seed(1.0)
    assert ort.has_collective_ops() is False
    ort.enable_telemetry_events()
    ort.disable_telemetry_events()
    ort.preload_dlls()
    assert ort.get_version_string() == ort.__version__ and ort.get_device() in ("CPU", "GPU")
    assert "ORT Build Info" in ort.get_build_info()
    state = importlib.import_module(ort.__name__ + ".capi.onnxruntime_pybind11_state")
    with pytest.raises(state.Fail, match=r"Failed to load library /nope.so with error: "):
        ort.register_execution_provider_library("x", "/nope.so")
    with pytest.raises(state.Fail, match=r"Execution provider library: x was not registered."):
        ort.unregister_execution_provider_library("x")


def test_exceptions_are_reached_by_path(ort: Any) -> None:
    names = [error.__name__ for error in STATUS_ERRORS]
    for module in ("onnxruntime_pybind11_state", "_pybind_state"):
        state = importlib.import_module(f"{ort.__name__}.capi.{module}")
        for name in names:
            assert getattr(state, name).__bases__ == (Exception,)
    assert ort.capi.onnxruntime_pybind11_state.Fail is state.Fail


def test_errors_that_programs_make(ort: Any) -> None:
    state = importlib.import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")

    class Own(state.Fail):  # type: ignore[misc]
        def __init__(self, name: str, count: int) -> None:
            super().__init__(f"{name}: {count}")

    assert (str(Own("a", 2)), Own("a", 2).args) == ("a: 2", ("a: 2",))
    assert (str(state.Fail()), state.Fail().args, state.InvalidArgument("a", 2).args) == ("", (), ("a", 2))


def test_what_onnxruntime_checks_when_imported(ort: Any) -> None:
    validation, built = (
        importlib.import_module(f"{ort.__name__}.capi.onnxruntime_{name}")
        for name in ("validation", "collect_build_info")
    )
    assert validation.check_distro_info() is None
    assert validation.check_training_module() == (False, *validation.get_package_name_and_version_info())
    assert built.find_cudart_versions(build_cuda_version="0.0") in (None, []) or built.find_cudart_versions()
    collection = importlib.import_module(f"{ort.__name__}.capi.onnxruntime_inference_collection")
    assert collection.C.get_available_providers() == ort.get_available_providers()


def test_every_listed_name_exists() -> None:
    capi = ("", ".onnxruntime_pybind11_state", "._pybind_state", ".onnxruntime_inference_collection")
    for module in ("onnxplug", *(f"onnxplug.capi{name}" for name in capi)):
        front = importlib.import_module(module)
        assert set(front.__all__) <= set(dir(front))
        for name in front.__all__:
            assert getattr(front, name) is not None
        with pytest.raises(AttributeError, match="nope"):
            _ = front.nope


def test_type_checkers_are_shown_the_lazy_names() -> None:
    tree = ast.parse(Path(onnxplug.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    shown = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert shown == set(onnxplug.__all__) - {"__version__", "cuda_version", "package_name", "version"}


def test_names_onnxruntime_has_here() -> None:
    theirs = {name for name in dir(pytest.importorskip("onnxruntime")) if not name.startswith(("_", "ModelPackage"))}
    left_out = {
        "contextlib", "import_capi_exception", "onnxruntime_validation", "quantization", "tools", "transformers",
    }  # fmt: skip
    assert theirs - left_out <= set(onnxplug.__all__)


def test_version_is_the_distributions() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert onnxplug.__version__ == project["version"]


def test_import_is_light() -> None:
    heavy = ("numpy", "onnx", "ml_dtypes", "rich", "pluggy", "onnxplug.session.session", "onnxplug.plugins")
    code = f"import sys, onnxplug; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_options_alone_do_not_import_onnx_or_providers() -> None:
    code = "import sys, onnxplug as o; o.SessionOptions(); o.OrtValue; print([m for m in %s if m in sys.modules])"
    code %= "('onnx', 'rich')"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_a_first_session_imports_what_its_model_needs(tmp_path: Path) -> None:
    """Without anything on disk, for a model without external data and without values that options give; and nobody looks for garbage."""
    (tmp_path / "model.onnx").write_bytes(model("g (float[2] x) => (float[2] y) { a = Neg(x) y = Exp(a) }"))
    code = (
        "import gc, sys, numpy; before = set(sys.modules); import onnxplug as o\n"
        "collections = lambda: sum(each['collections'] for each in gc.get_stats())\n"
        "gc.collect(); once = collections(); o.InferenceSession; assert collections() == once and gc.isenabled()\n"
        f"o.InferenceSession(sys.argv[1], providers=['{CPU}'])\n"
        "late = 'pathlib', 'logging', 'onnxplug.session.replaced', 'onnxplug.session.ortvalue'\n"
        "print([m for m in late if m in sys.modules and m not in before])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model.onnx")]
    environment = {**os.environ, "ONNXPLUG_CACHE": "0"}
    assert subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout == "[]\n"


def test_what_a_session_tells_of_inputs_are_the_same_objects(ort: Any) -> None:
    made = ort.InferenceSession(model("g (float[2] x) => (float[2] y) { y = Neg(x) }"), providers=[CPU])
    assert made.get_inputs()[0] == made.get_inputs()[0] and made.get_outputs()[0] in made.get_outputs()


def test_the_metadata_of_a_session_is_not_changed_through_what_it_gives() -> None:
    neg = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 20]> g (float[1] x) => (float[1] y) { y = Neg(x) }'
    )
    onnx.helper.set_model_props(neg, {"k": "v"})
    session = onnxplug.InferenceSession(neg, providers=["CPUExecutionProvider"])
    session.get_modelmeta().custom_metadata_map["z"] = "1"
    assert session.get_modelmeta().custom_metadata_map == {"k": "v"}


def test_schemas_and_kernels_are_listed(ort: Any) -> None:
    """As onnxruntime's generators of its pages on operators read them."""
    state = importlib.import_module(f"{ort.__name__}.capi.onnxruntime_pybind11_state")
    if ort is onnxplug:
        for name in ("opkernel", "schemadef"):
            assert importlib.import_module(f"{state.__name__}.{name}") is getattr(state, name)
    schema = state.schemadef.OpSchema
    found = {(s.domain, s.name, s.since_version): s for s in state.get_all_operator_schema()}
    conv = found["", "Conv", 11]
    assert isinstance(conv, schema) and "convolution" in conv.doc and not conv.deprecated
    assert (conv.min_input, conv.max_input, conv.min_output, conv.max_output) == (2, 3, 1, 1)
    assert conv.support_level == schema.SupportType.COMMON and conv.has_type_and_shape_inference_function
    x, _, bias = conv.inputs
    assert (x.name, x.typeStr, x.isHomogeneous) == ("X", "T", True) and "tensor(float)" in x.types
    assert (x.option, bias.option) == (schema.FormalParameterOption.Single, schema.FormalParameterOption.Optional)
    assert [each.name for each in conv.outputs] == ["Y"]
    group = conv.attributes["group"]
    assert (group.type, group.required, group.name) == (schema.AttrType.INT, False, "group")
    assert group._default_value == b"\n\x05group\x18\x01\xa0\x01\x02"
    assert not conv.attributes["kernel_shape"]._default_value
    (types,) = conv.type_constraints
    assert types.type_param_str == "T" and types.allowed_type_strs == [
        "tensor(float16)",
        "tensor(float)",
        "tensor(double)",
    ]
    total = found["", "Sum", 13]
    assert schema.is_infinite(total.max_input) and not schema.is_infinite(conv.max_input)
    kernels = [k for k in state.get_all_opkernel_def() if (k.op_name, k.provider) == ("Conv", CPU)]
    assert kernels and all(isinstance(k, state.opkernel.KernelDef) for k in kernels)
