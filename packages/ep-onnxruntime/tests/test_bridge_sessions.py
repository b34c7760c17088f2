"""Options, errors, fallback, threads and lifetimes of sessions on the bridge."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from bridge_models import CPU, OWN, PROVIDERS, model, one_node, open_session, owners, same

import onnxplug as ort
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug_ep_onnxruntime import options as o
from onnxplug_ep_onnxruntime.catalogue import ALL
from onnxplug_ep_onnxruntime.region import BoundRegion
from onnxplug_ep_onnxruntime.sessions import Maker

TWO = model("agraph (float[N] x) => (float[N] y) { a = Exp(x) y = Sqrt(a) }")
X = np.linspace(-1, 1, 6, dtype=np.float32)
WANT = [np.sqrt(np.exp(X))]


def test_options_are_typed_and_shown() -> None:
    with open_session(TWO, [(OWN, {"graph_optimization_level": "disabled"}), CPU]) as session:
        assert session.get_provider_options()[OWN] == {
            "graph_optimization_level": "disabled", "exact": "0", "library": "", "ep": "", "ep_options": "",
        }  # fmt: skip
        same(session.run(None, {"x": X}), WANT)
    for given, text in (
        ({"no_such": "1"}, 'Unknown provider option: "no_such"'),
        ({"graph_optimization_level": "most"}, "graph_optimization_level"),
        ({"ep_options": "[1]", "library": "x"}, "ep_options"),
        ({"ep": "SomeExecutionProvider"}, "give library too"),
    ):
        with pytest.raises((RuntimeError, Fail), match=text):
            open_session(TWO, [(OWN, given)], session__strict_providers="1")


def test_a_library_that_is_none() -> None:
    with pytest.raises((RuntimeError, Fail), match=r"does not take .*no_such_library"):
        open_session(TWO, [(OWN, {"library": "/no_such_library.so"})], session__strict_providers="1")


@pytest.mark.parametrize("bridged", ALL, ids=lambda bridged: bridged.name)
def test_only_what_was_given_is_handed_on_in_the_providers_words(bridged: Any) -> None:
    assert bridged.options().handed_on() == {}
    if bridged.options is o.TensorrtOptions:
        given = o.TensorrtOptions(trt_fp16_enable=True, device_id=1, trt_engine_cache_path="here")
        assert given.handed_on() == {"trt_fp16_enable": "True", "device_id": "1", "trt_engine_cache_path": "here"}
    if bridged.options is o.QnnOptions:
        assert o.QnnOptions(enable_htp_fp16_precision=False).handed_on() == {"enable_htp_fp16_precision": "0"}


def test_errors_of_a_run_name_the_node_and_the_provider() -> None:
    feeds = {"x": np.zeros((3, 2), np.float32), "i": np.array([5])}
    with open_session(one_node("Gather", feeds, 13, axis=0)) as session:
        assert owners(session) == {OWN}
        with pytest.raises(InvalidArgument, match=f"'the node'.*idx=5.*provider {OWN}"):
            session.run(None, feeds)
        same(session.run(None, feeds | {"i": np.array([1])}), [np.zeros((1, 2), np.float32)])


def test_shapes_that_do_not_go_together() -> None:
    with open_session(model("agraph (float[N] x, float[M] z) => (float[K] y) { y = Add(x, z) }")) as session:
        with pytest.raises((Fail, InvalidArgument, ort.capi.onnxruntime_pybind11_state.RuntimeException)):
            session.run(None, {"x": X, "z": X[:4]})
        same(session.run(None, {"x": X, "z": X}), [X + X])


def test_a_device_that_fails_at_run_time_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class EPFailOfOnnxRuntime(Exception):
        pass

    EPFailOfOnnxRuntime.__name__ = "EPFail"

    def lost(*given: Any) -> Any:
        raise EPFailOfOnnxRuntime("[ONNXRuntimeError] : 11 : EP_FAIL : the device is gone")

    with open_session(TWO) as session:
        same(session.run(None, {"x": X}), WANT)
        for bound in [r for r in gc.get_objects() if isinstance(r, BoundRegion)]:
            monkeypatch.setattr(
                bound._region, "_session", type("Lost", (), {"run_with_iobinding": lost, "run": lost})()
            )
            bound._idle.clear()
        monkeypatch.setattr("onnxplug_ep_onnxruntime.region._Binding", _Nothing)
        same(session.run(None, {"x": X}), WANT)
        assert session.get_providers() == [CPU]
        assert f"the device is gone (provider {OWN})" in capsys.readouterr().out


class _Nothing:
    """A binding of a device that is gone."""

    def __init__(self, region: Any, count: int) -> None:
        self.native = type("Native", (), {"bind_input": lambda *a: None, "bind_output": lambda *a: None})()
        self.options, self.addresses = object(), [None] * count


def test_a_session_that_cannot_be_made_leaves_the_nodes_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **more: Any) -> Any:
        raise RuntimeError("out of chips")

    monkeypatch.setattr(Maker, "session", refuse)
    with open_session(TWO) as session:
        assert owners(session) == {CPU}
        same(session.run(None, {"x": X}), WANT)
        reasons = [node["reasons"][OWN] for node in session.explain().to_dict()["nodes"]]
        assert reasons == ["out of chips"] * 2


def test_compilation_that_fails_behind_the_claim(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from onnxplug_ep_onnxruntime.capability import Capability

    def fail(*given: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(Capability, "session", fail)
    with open_session(TWO) as session:
        assert owners(session) == {CPU} and "no room" in caplog.text
        same(session.run(None, {"x": X}), WANT)


def test_a_node_that_onnxruntime_refuses_is_found_among_others() -> None:
    source = model("""agraph (float[N] x, string[M] s) => (float[N] y, string[K] t) {
        a = Exp(x)
        y = Sqrt(a)
        t = StringNormalizer<locale = "xx_YY", case_change_action = "LOWER">(s)
    }""")
    with open_session(source) as session:
        placed = session.placement()
        assert [placed[n] for n in ("Exp_0", "Sqrt_0", "StringNormalizer_0")] == [OWN, OWN, CPU]
        assert "locale" in session.explain().to_dict()["nodes"][2]["reasons"][OWN].lower()


def test_many_threads_share_a_session() -> None:
    weights = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    source = model("agraph (float[N, 32] x) => (float[N, 32] y) { a = MatMul(x, w) y = Tanh(a) }", w=weights)
    failures: list[BaseException] = []
    with open_session(source, intra_op_num_threads=2) as session:

        def work(seed: int) -> None:
            rng = np.random.default_rng(seed)
            try:
                for _ in range(60):
                    x = rng.standard_normal((int(rng.integers(1, 5)), 32)).astype(np.float32)
                    same(session.run(None, {"x": x}), [np.tanh(x @ weights)], rtol=1e-4)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_run_that_is_told_to_stop() -> None:
    source = model("""agraph (float[64, 64] x, int64 trips) => (float[64, 64] y) {
        keep = Constant<value = bool {1}>()
        y = Loop(trips, keep, x) <body = step (int64 i, bool go, float[64, 64] v) => (bool go_on, float[64, 64] next) {
            go_on = Identity(go)
            p = MatMul(v, x)
            next = Tanh(p)
        }>
    }""")
    with open_session(source) as session:
        assert owners(session) == {OWN}
        options, feeds = ort.RunOptions(), {"x": np.eye(64, dtype=np.float32), "trips": np.array(10**7)}
        threading.Timer(0.2, setattr, (options, "terminate", True)).start()
        started = time.monotonic()
        with pytest.raises(Fail, match="terminate flag"):
            session.run(None, feeds, options)
        assert time.monotonic() - started < 60
        assert session.run(None, feeds | {"trips": np.array(2)})[0].shape == (64, 64)


def test_sessions_do_not_stay_behind() -> None:
    weights = np.ones((512, 512), np.float32)
    source = model("agraph (float[N, 512] x) => (float[N, 512] y) { y = MatMul(x, w) }", w=weights)
    resident = lambda: int(open("/proc/self/statm").read().split()[1]) >> 8  # noqa: E731, SIM115
    for number in range(60):
        with open_session(source, intra_op_num_threads=1) as session:
            session.run(None, {"x": weights[:1]})
        if number == 20 and sys.platform == "linux":
            before = resident()
    gc.collect()
    if sys.platform == "linux":
        assert resident() - before < 20, "megabytes that 39 sessions of 1 MB of weights left"


def test_released_weights_can_be_had_again(tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((300, 300)).astype(np.float32)
    path = tmp_path / "model.onnx"
    path.write_bytes(model("agraph (float[N, 300] x) => (float[N, 300] y) { y = MatMul(x, w) }", w=weights))
    x = rng.standard_normal((2, 300)).astype(np.float32)
    with ort.InferenceSession(str(path), providers=PROVIDERS) as session:
        same(session.run(None, {"x": x}), [x @ weights], rtol=1e-3)
        session.set_providers([CPU])
        same(session.run(None, {"x": x}), [x @ weights], rtol=1e-3)


def test_both_runtimes_in_one_process() -> None:
    """onnxruntime imported after the bridge or before it is the same library; where that name means onnxplug, it is not the bridge's."""
    program = """
import sys, numpy as np
{first}
import onnxplug
session = onnxplug.InferenceSession(sys.argv[1], providers=["OnnxRuntimeExecutionProvider"])
assert set(session.placement().values()) == {{"OnnxRuntimeExecutionProvider"}}
x = np.ones(3, np.float32)
(got,) = session.run(None, {{"x": x}})
import onnxruntime
assert (onnxruntime.InferenceSession.__module__.startswith("onnxplug")) is {ours}
np.testing.assert_allclose(got, onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"]).run(None, {{"x": x}})[0])
assert session.explain().to_dict()["regions"][0]["facts"]["provider"] == "OnnxRuntimeExecutionProvider"
import onnxruntime.capi.onnxruntime_pybind11_state.schemadef
from onnxruntime.capi.onnxruntime_pybind11_state.schemadef import OpSchema
from onnxruntime.capi import onnxruntime_pybind11_state as state
assert OpSchema is state.schemadef.OpSchema and state.InferenceSession.__module__.startswith("onnxplug") is {ours}
""" + ("from onnxplug_ep_onnxruntime import library; assert (library.native() is state) is not {ours}\n")
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(TWO)
        for first, ours in (
            ("", False),
            ("import onnxruntime", False),
            ("import onnxplug.shim; onnxplug.shim.install()", True),
        ):
            command = [sys.executable, "-c", program.format(first=first, ours=ours), str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{first}: {done.stderr}"
