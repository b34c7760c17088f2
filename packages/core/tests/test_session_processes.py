"""Sessions across processes and interruptions: pickles, copies, forks, KeyboardInterrupt."""

from __future__ import annotations

import _thread
import copy
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_graphs import model, same
from core_providers import CPU, OwnProvider, offered
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.contract import Device
from onnxplug.contract.errors import STATUS_ERRORS, Fail

PLAIN = model("g (float[N, 2] x) => (float[N, 2] y) { h = Neg(x) y = Abs(h) }")
LOOP = (
    "g (float[2] x) => (float[2] y) { n = Constant<value_int=%d>() yes = Constant<value = bool {1}>() "
    "y = Loop(n, yes, x)<body = b (int64 i, bool on, float[2] v) => (bool go, float[2] w) { go = Identity(on) w = Neg(v) }> }"
)
ENDLESS = model(LOOP % 10**9)
X = np.array([[1, -2]], np.float32)


def options_with_everything() -> Any:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = 2
    options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.strict_providers", "1")
    options.add_free_dimension_override_by_name("N", 1)
    options.add_provider(CPU, {})
    options.set_provider_selection_policy(onnxplug.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    options.add_initializer("w", onnxplug.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32)))
    options.add_external_initializers_from_files_in_memory(["f"], [b"abcd"], [4])
    return options


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_options_are_copied_whole(way: Callable[[Any], Any]) -> None:
    options = options_with_everything()
    twin = way(options)
    assert twin.intra_op_num_threads == 2 and twin.graph_optimization_level == 0 and twin.has_providers()
    assert twin.get_session_config_entry("session.strict_providers") == "1"
    assert twin._free_dimensions_by_name == {"N": 1} and twin._policy == options._policy
    same([twin._initializers["w"].numpy()], [np.ones(2, np.float32)])
    assert bytes(twin._external_files["f"]) == b"abcd"
    twin.intra_op_num_threads = 4
    twin.add_free_dimension_override_by_name("M", 1)
    assert options.intra_op_num_threads == 2 and options._free_dimensions_by_name == {"N": 1}
    run = onnxplug.RunOptions()
    run.add_run_config_entry("k", "v")
    assert way(run).get_run_config_entry("k") == "v"


def test_a_session_is_pickled_with_its_bytes() -> None:
    made = onnxplug.InferenceSession(PLAIN, options_with_everything(), enable_fallback=0)
    made.disable_fallback()
    twin = pickle.loads(pickle.dumps(made))
    assert twin.get_providers() == made.get_providers() and twin.get_inputs()[0].shape == [1, 2]
    assert twin.get_session_options().intra_op_num_threads == 2 and not twin._fallback
    same(twin.run(None, {"x": X}), made.run(None, {"x": X}))
    same(copy.deepcopy(made).run(None, {"x": X}), [np.abs(X)])


def test_a_session_is_pickled_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(PLAIN)
    made = onnxplug.InferenceSession("m.onnx")
    data = pickle.dumps(made)
    assert len(data) < 2000 and PLAIN not in data
    monkeypatch.chdir("/")
    same(pickle.loads(data).run(None, {"x": X}), [np.abs(X)])
    Path(tmp_path, "m.onnx").unlink()
    with pytest.raises(onnxplug.capi.onnxruntime_pybind11_state.NoSuchFile):
        pickle.loads(data)


def test_a_session_is_made_where_the_working_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.onnx").write_bytes(PLAIN)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    made = onnxplug.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    same(made.run(None, {"x": X}), [np.abs(X)])


class Named(onnxplug.InferenceSession):
    def __init__(self, name: str) -> None:
        super().__init__(PLAIN)
        self.name = name


def test_attributes_of_a_subclass_are_pickled() -> None:
    twin = pickle.loads(pickle.dumps(Named("mine")))
    assert type(twin) is Named and twin.name == "mine"
    same(twin.run(None, {"x": X}), [np.abs(X)])


@pytest.mark.parametrize("method", ["spawn"])
def test_a_session_is_sent_to_another_process(method: str) -> None:
    with multiprocessing.get_context(method).Pool(1) as pool:
        arguments = onnxplug.InferenceSession(PLAIN), None, {"x": X}
        # any process can import the function, wherever the tests were started from
        same(pool.apply(onnxplug.InferenceSession.run, arguments), [np.abs(X)])


# ---- fork

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def in_child(work: Callable[[], str]) -> str:
    """What ``work`` gives in a forked process, or the exception it raises there."""
    inward, outward = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = work()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(outward, text.encode())
        os._exit(0)
    os.close(outward)
    with os.fdopen(inward, "rb") as file:
        text = file.read().decode()
    os.waitpid(pid, 0)
    return text


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_session_is_made_anew_after_a_fork(caplog: pytest.LogCaptureFixture) -> None:
    made = onnxplug.InferenceSession(PLAIN)
    made.run(None, {"x": X})
    engine = made._engine
    with engine.built.runtime._lock:  # as if another thread had held it when the process was forked

        def work() -> str:
            (y,) = made.run(None, {"x": X})
            (again,) = made.run(None, {"x": X + 1})
            texts = [r.getMessage() for r in caplog.records if "forked" in r.getMessage()]
            named = f"made in process {os.getppid()}" in texts[0]
            return f"{y.tolist()} {again.tolist()} {made._engine is engine} {len(texts)} {named}"

        told = in_child(work)
    assert told == "[[1.0, 2.0]] [[2.0, 1.0]] False 1 True"
    assert made._engine is engine
    same(made.run(None, {"x": X}), [np.abs(X)])


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_binding_goes_on_in_a_child_and_in_its_child() -> None:
    made, x = onnxplug.InferenceSession(PLAIN), X.copy()
    binding = made.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")

    def runs() -> str:
        told = []
        for _ in range(3):  # the third is made ready by the first two
            x[0, 0] += 1
            made.run_with_iobinding(binding)
            told.append(binding.copy_outputs_to_cpu()[0].tolist())
        return str(told)

    assert runs() == "[[[2.0, 2.0]], [[3.0, 2.0]], [[4.0, 2.0]]]"
    assert in_child(runs) == "[[[5.0, 2.0]], [[6.0, 2.0]], [[7.0, 2.0]]]"
    assert (
        in_child(lambda: str(made.run(None, {"x": x})) and in_child(runs))
        == "[[[5.0, 2.0]], [[6.0, 2.0]], [[7.0, 2.0]]]"
    )

    def voided() -> str:
        runs()
        made.set_providers([CPU])
        return runs()

    assert in_child(voided) == "ValueError: IOBinding must be used with the session that created it."


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_binding_may_be_the_first_use_of_a_session_in_a_child() -> None:
    made = onnxplug.InferenceSession(PLAIN)

    def work() -> str:
        binding = made.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y")
        made.run_with_iobinding(binding)
        return str(binding.copy_outputs_to_cpu()[0].tolist())

    assert in_child(work) == "[[1.0, 2.0]]"


@needs_fork
def test_a_session_on_a_device_explains_itself_after_a_fork() -> None:
    device = Device("acme")
    with offered(AcmeExecutionProvider=lambda: OwnProvider(device)):
        made = onnxplug.InferenceSession(PLAIN, providers=["AcmeExecutionProvider", CPU], enable_fallback=0)
        told = in_child(lambda: str(made.run(None, {"x": X})))
        assert told.startswith("Fail: ") and f"made in process {os.getpid()}" in told and "acme:0" in told
        assert "'spawn'" in told
        same(made.run(None, {"x": X}), [np.abs(X)])


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_exits_closes_nothing_of_its_parent() -> None:
    code = (
        "import os, sys, onnxplug\n"
        "from core_providers import OwnProvider, offered\nfrom onnxplug.contract import Device\n"
        "from test_session_processes import PLAIN\n"
        "class Told(OwnProvider):\n    def close(self):\n        print('closed', os.getpid() == main, flush=True)\n"
        "main = os.getpid()\n"
        "with offered('acme', AcmeExecutionProvider=lambda: Told(Device('acme'))):\n"
        "    made = onnxplug.InferenceSession(PLAIN, providers=['AcmeExecutionProvider'])\n"
        "    if os.fork() == 0:\n        sys.exit(0)\n    os.wait()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("closed True\n", "")


# ---- interruption


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT as programs in a terminal have it: those that a shell started in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_run_is_interrupted_and_the_session_stays_usable() -> None:
    made = onnxplug.InferenceSession(ENDLESS)
    run = onnxplug.RunOptions()
    watchdog = threading.Timer(60, lambda: setattr(run, "terminate", True))
    watchdog.start()
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, _thread.interrupt_main).start()  # in here: a machine may be slow to begin the run
        made.run(None, {"x": X[0]}, run)
    watchdog.cancel()
    threading.Timer(0.3, lambda: setattr(run, "terminate", True)).start()
    with pytest.raises(Fail, match="Exiting due to terminate flag"):
        made.run(None, {"x": X[0]}, run)


def test_ctrl_c_ends_a_program_at_once(tmp_path: Path) -> None:
    """A real signal, in a program of its own: the run stops, a new run answers, the process ends by itself."""
    (tmp_path / "m.onnx").write_bytes(ENDLESS)
    (tmp_path / "plain.onnx").write_bytes(PLAIN)
    program = (
        "import onnxplug, numpy as np, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "s, p = onnxplug.InferenceSession('m.onnx'), onnxplug.InferenceSession('plain.onnx')\n"
        "try:\n    print('ready', flush=True)\n    s.run(None, {'x': np.ones(2, np.float32)})\n"
        "except KeyboardInterrupt:\n    print(p.run(None, {'x': np.ones((1, 2), np.float32)})[0].tolist())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (out, err, process.returncode) == ("[[1.0, 1.0]]\n", "", 0)


# ---- the end


def test_everything_goes_with_the_last_reference() -> None:
    """No cycle of references keeps a session's parts until the collector comes by."""
    made = onnxplug.InferenceSession(model(LOOP % 3))
    same(made.run(None, {"x": X[0]}), [-X[0]])
    engine = made._engine
    arenas = [space.allocator for space in engine.built.runtime.memories]
    parts = [weakref.ref(part) for part in (made, engine, engine.built.runtime, engine.built.runner)]
    gc.collect()
    gc.disable()
    try:
        del engine, made
        assert [part() for part in parts] == [None] * 4
        assert all(arena.stats().bytes_reserved == 0 for arena in arenas)
    finally:
        gc.enable()


def test_a_session_is_a_context_manager_and_takes_a_model_proto() -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.ones(2, np.float32), "w")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    with onnxplug.InferenceSession(proto) as made:
        same(made.run(None, {"x": X[0]}), [X[0] + 1])
    with pytest.raises(onnxplug.capi.onnxruntime_pybind11_state.NoModel):
        made.run(None, {"x": X[0]})


def test_errors_across_processes_read_as_they_did() -> None:
    """A worker's exception reaches a pool's caller as a pickle."""
    for cls in STATUS_ERRORS:
        error = cls("no room")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.text) == (cls, str(error), "no room")
