"""Devices, options, memory and placement, through sessions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest
from onnx import TensorProto, helper, parser
from opencl_models import PROVIDER, needs_device, one_node, run
from pyopencl.characterize import has_src_build_cache

import onnxplug as ort
from onnxplug.contract import Fail
from onnxplug.contract.errors import InvalidArgument
from onnxplug_ep_opencl import device, machine
from onnxplug_ep_opencl.options import OpenCLOptions

pytestmark = needs_device
X = np.linspace(-2, 2, 1000, dtype=np.float32)


def test_a_device_is_chosen_by_its_name() -> None:
    first = device.listed()[0]
    options = OpenCLOptions(platform=first.platform.name[:8].upper(), device=first.name[:6].lower())
    assert device.select(options)[1] == first


def test_a_device_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(RuntimeError, match=r"no OpenCL device has .*device='no such'.*; devices: 0: "):
        device.select(OpenCLOptions(device="no such"))


def test_a_limit_on_memory_is_an_error_that_names_it() -> None:
    model = one_node("Relu", {"x": X})
    with pytest.raises(Exception, match="1000"):
        run(model, {"x": X}, device_mem_limit="1000")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device_mem_limit": "-1"}, '"device_mem_limit": -1 is less than 1'),
        ({"device_mem_limit": "much"}, '"device_mem_limit": "much" is not an integer'),
        ({"device_id": "-1"}, '"device_id": -1 is less than 0'),
        ({"tuning": "perhaps"}, '"tuning": "perhaps" is not a boolean'),
        ({"kernel_shape": "round"}, '"kernel_shape": "round" is not one of auto'),
        ({"cache_dir": os.path.join(__file__, "cache")}, '"cache_dir": .* is no folder'),
        ({"cache_dir": "a\0b"}, '"cache_dir": .* is no folder'),
        ({"platform": "99"}, "no OpenCL device has .*platform='99'"),
        ({"platform": "²"}, "no OpenCL device has .*platform='²'"),
        ({"memory": "1"}, 'Unknown provider option: "memory"'),
    ],
)
def test_an_option_that_means_nothing_is_an_error_that_names_it(options: dict[str, str], said: str) -> None:
    with pytest.raises((RuntimeError, Fail), match=said):
        ort.InferenceSession(one_node("Relu", {"x": X}), providers=[(PROVIDER, options)], enable_fallback=0)


def test_programs_are_kept_in_the_folder_that_is_named(tmp_path: Path) -> None:
    if has_src_build_cache(device.listed()[0]) or os.environ.get("PYOPENCL_NO_CACHE"):
        pytest.skip("the driver keeps programs itself, or none are to be kept")
    folder = tmp_path / "new" / "cache"
    run(one_node("Relu", {"x": X}), {"x": X}, cache_dir=str(folder))
    assert any(folder.iterdir())


@pytest.mark.parametrize(
    "options", [{"profiling": "1"}, {"fast_math": "1"}, {"arena_extend_strategy": "kSameAsRequested"}]
)
def test_options_change_no_result(options: dict[str, str]) -> None:
    (got,) = run(one_node("LeakyRelu", {"x": X}), {"x": X}, **options)
    np.testing.assert_array_equal(got, np.where(X < 0, np.float32(0.01) * X, X))


def test_shape_computation_stays_on_the_host() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Mul", ["s", "two"], ["t"], name="twice"),
        helper.make_node("Expand", ["x", "t"], ["y"], name="expand"),
    ]
    two = helper.make_tensor("two", TensorProto.INT64, [2], [2, 1])
    value = [helper.make_tensor_value_info(n, 1, [None, None]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], [two])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=[PROVIDER, "CPUExecutionProvider"])
    assert session.placement() == {"shape": PROVIDER, "twice": "CPUExecutionProvider", "expand": PROVIDER}
    x = np.arange(5, dtype=np.float32).reshape(1, 5)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.tile(x, (2, 1)))


def test_an_extent_that_only_a_scale_knows_is_enough_to_normalise() -> None:
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], "normal")
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", "m"]) for n in "xy"]
    weights = [helper.make_tensor(n, TensorProto.FLOAT, [4], [1, 2, 3, 4]) for n in "sb"]
    graph = helper.make_graph([node], "g", value[:1], value[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    session = ort.InferenceSession(model, providers=[PROVIDER, "CPUExecutionProvider"])
    assert session.placement() == {"normal": PROVIDER}
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    (right,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], right, rtol=0, atol=1e-5)


def test_tensors_stay_on_the_device_between_runs() -> None:
    session = ort.InferenceSession(one_node("Neg", {"x": X}), providers=[PROVIDER])
    held = ort.OrtValue.ortvalue_from_numpy(X, "opencl", 0)
    assert held.device_name() == "opencl"
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", held)
    binding.bind_output("y0", "opencl", 0)
    session.run_with_iobinding(binding)
    (made,) = binding.get_outputs()
    assert made.device_name() == "opencl"
    np.testing.assert_array_equal(made.numpy(), -X)


def test_what_has_no_address_is_refused_with_the_way_out() -> None:
    held = ort.OrtValue.ortvalue_from_numpy(X, "opencl", 0)
    assert held.__dlpack_device__() == (4, 0)
    with pytest.raises(BufferError, match=r"opencl:0 exchanges no DLPack tensors.*OrtValue\.numpy"):
        np.from_dlpack(held)
    with pytest.raises(RuntimeError, match="Memory of opencl:0 has no address"):
        held.data_ptr()


def test_results_feed_the_next_run_where_they_are() -> None:
    """A loop as decoders have it, over lengths that grow: one binding, outputs of one run the inputs of the next."""
    node = helper.make_node("Concat", ["x", "one"], ["y"], "grow", axis=0)
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy"]
    graph = helper.make_graph([node], "g", value[:1], value[1:], [helper.make_tensor("one", 1, [1], [7.0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    session = ort.InferenceSession(model, providers=[PROVIDER])
    binding, held = session.io_binding(), ort.OrtValue.ortvalue_from_numpy(X[:3], "opencl", 0)
    for _ in range(4):
        binding.bind_ortvalue_input("x", held)
        binding.bind_output("y", "opencl", 0)
        session.run_with_iobinding(binding)
        (held,) = binding.get_outputs()
        assert held.device_name() == "opencl"
    del session, binding
    np.testing.assert_array_equal(held.numpy(), [*X[:3], 7, 7, 7, 7])


def test_memory_given_for_a_result_is_written() -> None:
    session = ort.InferenceSession(one_node("Neg", {"x": X}), providers=[PROVIDER])
    given = ort.OrtValue.ortvalue_from_shape_and_type(list(X.shape), np.float32, "opencl", 0)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y0", given)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(given.numpy(), -X)
    given.update_inplace(X)
    np.testing.assert_array_equal(given.numpy(), X)


TWO_STEPS = """<ir_version: 9, opset_import: ["": 21]> g (float[n, 4] x, int64[k] i) => (float[k, 4] y) {
  a = Neg (x) b = Exp (a) y = Gather (b, i) }"""


def test_a_profile_has_the_times_that_the_device_took(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    model = parser.parse_model(TWO_STEPS).SerializeToString()
    feeds = {"x": X.reshape(250, 4), "i": np.arange(7)}
    for timed in ("1", "0"):
        session = ort.InferenceSession(model, options, providers=[(PROVIDER, {"profiling": timed})])
        for _ in range(2):
            session.run(None, feeds)
        told = json.loads(Path(session.end_profiling()).read_text())
        events = [e for e in told if e["args"].get("provider") == PROVIDER]
        steps, launches = ([e for e in events if e["cat"] == kind] for kind in ("Node", "Kernel"))
        assert len(steps) == 4 and len(launches) == (4 if timed == "1" else 0)
        for step, launch in zip(steps, sorted(launches, key=lambda e: e["ts"]), strict=timed == "1"):
            name = step["args"]["node_name"]
            assert launch["args"]["region"] == name and launch["args"]["nodes"] == step["args"].get("nodes", [name])
            late = launch["ts"] + launch["dur"] - step["ts"] - step["dur"]
            assert step["ts"] <= launch["ts"] and late <= 0


def test_a_run_beyond_the_limit_leaves_the_session_usable() -> None:
    node = helper.make_node("Neg", ["x"], ["y"], "small")
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "xy"]
    graph = helper.make_graph([node], "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    session = ort.InferenceSession(model, providers=[(PROVIDER, {"device_mem_limit": "100000"})])
    with pytest.raises(Exception, match=r"Available memory of \d+ is smaller than requested bytes of 400128"):
        session.run(None, {"x": np.zeros(100_000, np.float32)})
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)


def test_memory_beyond_the_limit_in_a_run_names_the_node_and_the_option() -> None:
    """What a run makes beside its plan: the weights of a product, in tiles."""
    model = one_node(
        "MatMul", {"a": np.ones((4, 4000), np.float32), "b": np.ones((4000, 3), np.float32)}, constants=("b",)
    )
    session = ort.InferenceSession(
        model, providers=[(PROVIDER, {"device_mem_limit": "200000", "kernel_shape": "register"})]
    )
    with pytest.raises(Exception, match=r"MatMul_0.* of device_mem_limit=200000 in use"):
        session.run(None, {"a": np.ones((4, 4000), np.float32)})


def test_a_device_that_is_lost_is_answered_by_the_next_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or by an error that names the device, where there is none."""

    def lost(*_: object, **__: object) -> None:
        raise cl.RuntimeError("clEnqueueNDRangeKernel failed: DEVICE_NOT_AVAILABLE")

    model = one_node("Neg", {"x": X})
    sessions = [ort.InferenceSession(model, providers=[PROVIDER, "CPUExecutionProvider"]) for _ in range(2)]
    sessions[1].disable_fallback()
    monkeypatch.setattr(cl, "enqueue_nd_range_kernel", lost)
    np.testing.assert_array_equal(sessions[0].run(None, {"x": X})[0], -X)
    with pytest.raises(ort.contract.EPFail, match="DEVICE_NOT_AVAILABLE"):
        sessions[1].run(None, {"x": X})


def test_a_compiler_that_fails_is_an_error_that_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    session = ort.InferenceSession(one_node("Asinh", {"x": X}), providers=[PROVIDER])  # not compiled by others
    monkeypatch.setattr(machine, "PRELUDE", f"/* {uuid.uuid4()} */ this is no program")
    session.disable_fallback()
    with pytest.raises(ort.contract.EPFail, match=r"kernel Asinh: .* does not compile kernels"):
        session.run(None, {"x": X})


REFUSED = """clBuildProgram failed: BUILD_PROGRAM_FAILURE

Build on <pyopencl.Device 'pthread' on 'Portable Computing Language'>:

error: unknown target CPU 'generic'
Device pthread failed to build the program

(options: -w)"""


def test_a_device_that_builds_nothing_is_an_error_when_the_session_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Refusing:
        def __init__(self, *_: object) -> None: ...

        def build(self, *_: object, **__: object) -> None:
            raise cl.RuntimeError(REFUSED)

    monkeypatch.setattr(cl, "Program", Refusing)
    model, providers = one_node("Neg", {"x": X}), [(PROVIDER, {"cache_dir": str(tmp_path)})]
    strict = ort.SessionOptions()
    strict.add_session_config_entry("session.strict_providers", "1")
    said = r"builds no program: error: unknown target CPU 'generic'\. Install a driver .* device_id"
    with pytest.raises(ort.contract.EPFail, match=said):
        ort.InferenceSession(model, strict, providers=providers)
    session = ort.InferenceSession(model, providers=providers)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert re.search(said, session.explain().skipped[PROVIDER])


def test_a_compiler_is_tried_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = []
    program = cl.Program
    monkeypatch.setattr(cl, "Program", lambda *given: made.append(given) or program(*given))
    for _ in range(2):
        ort.InferenceSession(one_node("Neg", {"x": X}), providers=[(PROVIDER, {"cache_dir": str(tmp_path)})])
    assert len(made) == 1


def test_a_shape_of_another_size_is_refused_when_a_run_brings_it() -> None:
    node = helper.make_node("Reshape", ["x", "s"], ["y"], "shaped")
    given = [
        helper.make_tensor_value_info(n, e, ["n"]) for n, e in (("x", TensorProto.FLOAT), ("s", TensorProto.INT64))
    ]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=[PROVIDER])
    with pytest.raises(Exception, match="shaped"):
        session.run(None, {"x": X, "s": np.array([7, 7], np.int64)})
    assert session.run(None, {"x": X, "s": np.array([10, 100], np.int64)})[0].shape == (10, 100)


def test_compilers_are_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """Also about a source that no cache has seen and that is worth a warning."""
    (first, *_) = device.listed()
    if not first.platform.name.startswith("Portable"):
        pytest.skip("how quiet a vendor's compiler can be is not ours to say")
    doubtful = f"__kernel void odd(__global int *x) {{ int a = x[0]; x[1] = a != a; }} // {uuid.uuid4().hex}"
    machine.machine(first).program(doubtful, (), "")
    assert capfd.readouterr() == ("", "")


TWO = """
import numpy as np
import onnxplug as ort
from opencl_models import PROVIDER, one_node

x = np.linspace(-2, 2, 100, dtype=np.float32)
model = one_node("Neg", {"x": x})
first, second = (
    ort.InferenceSession(model, providers=[(PROVIDER, {"platform": "portable", "device_id": n})]) for n in ("0", "1")
)
held = ort.OrtValue.ortvalue_from_numpy(x, "opencl", 1)
binding = first.io_binding()
binding.bind_ortvalue_input("x", held)
binding.bind_output("y0", "opencl", 0)
first.run_with_iobinding(binding)
(made,) = binding.get_outputs()
(back,) = second.run_with_ort_values(None, {"x": made})
np.testing.assert_array_equal(back.numpy(), x)
binding.bind_output("y0", "opencl", 1)
first.run_with_iobinding(binding)
(beside,) = binding.get_outputs()
assert beside.__dlpack_device__() == (4, 1), beside
np.testing.assert_array_equal(beside.numpy(), -x)
binding.bind_output("y0", "opencl", 7)  # which nobody offers
first.run_with_iobinding(binding)
assert binding.get_outputs()[0].device_name() == "cpu"
"""


SPLIT = """
import json
import numpy as np
import onnx
import onnxplug as ort
from onnx import numpy_helper, parser
from onnxplug_ep_opencl import device, machine
from opencl_models import PROVIDER, one_node

FIRST, SECOND = f"{PROVIDER}[opencl:0]", f"{PROVIDER}[opencl:1]"
rng = np.random.default_rng(0)
x, *weights = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 64), (64, 64), (64, 64), (64, 64)))
graph = "g (float[4, 64] x) => (float[4, 64] y) { a = MatMul(x, u) b = Tanh(a) c = MatMul(b, v) d = Tanh(c) y = MatMul(d, w) }"
made = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> {graph}')
made.graph.initializer.extend(numpy_helper.from_array(w, name) for w, name in zip(weights, "uvw"))
model = made.SerializeToString()
wanted = np.tanh(np.tanh(x @ weights[0]) @ weights[1]) @ weights[2]

def entries(*limits):
    return [(PROVIDER, {"device_id": n, **({"device_mem_limit": m} if m else {})}) for n, m in enumerate(limits)]

options = ort.SessionOptions()
options.enable_profiling = True
split = ort.InferenceSession(model, options, providers=entries(30000, None), enable_fallback=0)
owners = {"MatMul_0": FIRST, "Tanh_0": FIRST, "MatMul_1": SECOND, "Tanh_1": SECOND, "MatMul_2": SECOND}
assert split.placement() == owners, split.placement()
told = split.explain()
assert [(c["from"], c["to"]) for c in told.copies] == [("opencl:0", "opencl:1")], told.copies
(why,) = [node["reasons"][FIRST] for node in told.nodes if node["name"] == "Tanh_1"]
assert why == "weights may take 22500 of 30000 bytes, and up to 'MatMul_1' there are 32768", why
for _ in range(3):
    np.testing.assert_allclose(split.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-4)
for at in (0, 1):
    binding = split.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "opencl", at))
    binding.bind_output("y", "opencl", 1 - at)
    split.run_with_iobinding(binding)
    (result,) = binding.get_outputs()
    assert result.__dlpack_device__() == (4, 1 - at)
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-4, atol=1e-4)
with open(split.end_profiling()) as file:
    events = [e["args"] for e in json.load(file) if e["cat"] == "Node"]
assert {e["provider"] for e in events} == {FIRST, SECOND, "onnxplug"}

both = ort.InferenceSession(model, providers=entries(30000, 30000), enable_fallback=0)
assert both.placement()["MatMul_2"] == "CPUExecutionProvider" and set(both.placement().values()) > {FIRST, SECOND}
np.testing.assert_allclose(both.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-4)

by_hand = ort.SessionOptions()
by_hand.add_provider_for_devices([d for d in ort.get_ep_devices() if d.ep_name == PROVIDER], {"device_mem_limit": "30000"})
assert ort.InferenceSession(model, by_hand, enable_fallback=0).placement() == both.placement()

machine.machine(device.listed()[0]).has_double = False
wide = one_node("Neg", {"x": x.astype(np.float64)})
narrow = ort.InferenceSession(wide, providers=entries(None, None), enable_fallback=0)
assert set(narrow.placement().values()) == {SECOND}
np.testing.assert_array_equal(narrow.run(None, {"x": x.astype(np.float64)})[0], -x.astype(np.float64))
"""


@pytest.mark.parametrize("script", [TWO, SPLIT], ids=["sessions", "nodes"])
def test_two_devices_of_one_process(script: str, tmp_path: Path) -> None:
    """Sessions take one another's tensors, and one session's nodes are on both."""
    if not device.listed()[0].platform.name.startswith("Portable"):
        pytest.skip("only PoCL is two devices where it is asked to be")
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    made = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "POCL_DEVICES": "pthread pthread", "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr


GATHERING = """<ir_version: 9, opset_import: ["": 21]> g (float[n, 4] x, int64[k] i, int64[r] s) => (float[k, 4] y, float[a, b] z) {
  y = Gather (x, i) z = Reshape (x, s) }"""


def gathered(session: ort.InferenceSession, place: int, shape: Sequence[int] = (2, 6)) -> list[np.ndarray]:
    feeds = {"x": np.ones((3, 4), np.float32), "i": np.array([place]), "s": np.array(shape)}
    return session.run(None, feeds)


def test_what_a_kernel_of_a_failed_run_told_is_not_the_next_ones() -> None:
    session = ort.InferenceSession(parser.parse_model(GATHERING).SerializeToString(), providers=[PROVIDER])
    with pytest.raises(Fail, match="Reshape"):
        gathered(session, 9, (5, 5))
    gathered(session, 0)
    with pytest.raises(InvalidArgument, match="out of bounds"):
        gathered(session, 9)


def test_a_run_ends_with_its_own_errors_whatever_other_threads_meet() -> None:
    session = ort.InferenceSession(parser.parse_model(GATHERING).SerializeToString(), providers=[PROVIDER])

    def runs(place: int) -> list[bool]:
        """Which of them failed."""
        failed = []
        for _ in range(150):
            try:
                gathered(session, place)
            except InvalidArgument:
                failed.append(True)
            else:
                failed.append(False)
        return failed

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(runs, [0, 9, 1, 7]))
    assert [set(one) for one in made] == [{False}, {True}, {False}, {True}]
