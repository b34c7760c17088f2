"""Native regions in sessions: whatever their inputs, threads and processes, behind faults, and by their settings."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
from typing import Any
from unittest import mock

import numpy as np
import pytest
from codegen_models import model, row, run_native, session
from onnx import helper

import onnxplug
from onnxplug.contract.errors import Fail
from onnxplug_ep_cpu.codegen import capability, region
from onnxplug_ep_cpu.codegen.host import host
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.prepared import Prepared
from onnxplug_ep_cpu.codegen.settings import Settings, settings, unavailable
from onnxplug_ep_cpu.codegen.target import NAMES, host_target

# ---- regions

CHAIN = [
    helper.make_node("Add", ["x", "y"], ["a"]),
    helper.make_node("Tanh", ["a"], ["b"]),
    helper.make_node("Mul", ["b", "x"], ["z"]),
]


def wanted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.tanh(x.astype(np.float64) + y) * x


def source(feeds: dict[str, np.ndarray]) -> bytes:
    return bytes(model(CHAIN, feeds, ["z"]).SerializeToString())


def test_inputs_that_start_anywhere() -> None:
    block = np.zeros(4 * 1000 + 4, np.uint8)
    x = block[4:].view(np.float32)
    x[:] = row(1000)
    (z,) = run_native(model(CHAIN, {"x": x, "y": x}, ["z"]), {"x": x, "y": x})
    np.testing.assert_allclose(z, wanted(x, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    n = 100_000
    feeds = {"x": row(n), "y": row(n, 1)}
    (one,) = run_native(model(CHAIN, feeds, ["z"]), feeds, threads=1)
    (other,) = run_native(model(CHAIN, feeds, ["z"]), feeds, threads=threads)
    np.testing.assert_array_equal(one, other)


def test_many_threads_on_one_session_and_on_many() -> None:
    """The pool serves one run at a time; the others run alone, and all are right."""
    shared = session(model(CHAIN, {"x": row(50_000), "y": row(50_000)}, ["z"]))
    wrong: list[int] = []

    def work(seed: int) -> None:
        own = session(model(CHAIN, {"x": row(50_000), "y": row(50_000)}, ["z"]))
        for turn in range(30):
            x, y = row(50_000, seed), row(50_000, seed + turn)
            (z,) = (shared if turn % 2 else own).run(None, {"x": x, "y": y})
            if not np.allclose(z, wanted(x, y), rtol=1e-5, atol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    # `session` patches and restores this too: without the outer patch the threads would restore one another's 1 for good
    with mock.patch.object(capability, "SMALLEST", 1):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_symbolic_model_runs_at_every_size() -> None:
    made = session(model(CHAIN, {"x": row(4), "y": row(4)}, ["z"], symbolic=True))
    for n in [*range(40), 7, 1000]:
        x, y = row(n), row(n, 1)
        np.testing.assert_allclose(made.run(None, {"x": x, "y": y})[0], wanted(x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="capability: fork")
def test_a_forked_child_gets_a_pool_of_its_own() -> None:
    feeds = {"x": row(100_000), "y": row(100_000, 1)}
    proto = model(CHAIN, feeds, ["z"])
    (before,) = session(proto).run(None, feeds)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_fresh_child, args=(proto.SerializeToString(), feeds, queue))
    child.start()
    np.testing.assert_array_equal(queue.get(timeout=60), before)
    child.join(60)
    assert child.exitcode == 0


def _fresh_child(source: bytes, feeds: Any, queue: Any) -> None:
    made = onnxplug.InferenceSession(source, providers=["CPUExecutionProvider"])
    queue.put(made.run(None, feeds)[0])


def test_what_cannot_be_generated_runs_node_by_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise Unsupported("no reason at all")

    monkeypatch.setattr(region.NativeRegion, "_form", refuse)
    feeds = {"x": row(10), "y": row(10, 1)}
    (z,) = session(model(CHAIN, feeds, ["z"])).run(None, feeds)
    np.testing.assert_allclose(z, wanted(**feeds), rtol=1e-5, atol=1e-6)
    assert "no reason at all" in caplog.text


def test_who_asks_for_no_warnings_is_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise Unsupported("no reason at all")

    monkeypatch.setattr(region.NativeRegion, "_form", refuse)
    feeds = {"x": row(10), "y": row(10, 1)}
    for severity, told in ((3, False), (2, True)):
        options = onnxplug.SessionOptions()
        options.log_severity_level = severity
        made = onnxplug.InferenceSession(
            model(CHAIN, feeds, ["z"]).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        made.run(None, feeds)
        assert ("no reason at all" in caplog.text) is told


@pytest.mark.faults
def test_behind_a_fault_of_the_generator_numpy_gives_the_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise IndexError("a fault")

    monkeypatch.setattr(region.NativeRegion, "_form", fail)
    feeds = {"x": row(10), "y": row(10, 1)}
    (z,) = session(model(CHAIN, feeds, ["z"])).run(None, feeds)
    np.testing.assert_allclose(z, wanted(**feeds), rtol=1e-5, atol=1e-6)
    assert "please report it" in caplog.text and "a fault" in caplog.text


def test_packed_weights_go_with_the_session() -> None:
    weights = np.ones((64, 64), np.float32)
    proto = model([helper.make_node("MatMul", ["x", "w"], ["z"])], {"x": row(64).reshape(1, 64)}, ["z"], {"w": weights})
    gc.collect()
    before = sum(isinstance(o, Prepared) for o in gc.get_objects())
    made = session(proto)
    made.run(None, {"x": row(64).reshape(1, 64)})
    del made
    gc.collect()
    assert sum(isinstance(o, Prepared) for o in gc.get_objects()) == before


# ---- settings


def test_settings_have_defaults_and_refuse_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONNXPLUG_CPU_CODEGEN", "ONNXPLUG_CPU_TARGET"):
        monkeypatch.delenv(name, raising=False)
    assert settings({"session.x": "1"}) == Settings()
    assert settings({"ep.cpu.codegen": "0", "ep.cpu.winograd": "0"}) == Settings(codegen=False, winograd=False)
    monkeypatch.setenv("ONNXPLUG_CPU_CODEGEN", "0")
    assert not settings({"session.intra_op.allow_spinning": "0"}).spinning
    assert not settings({"session.intra_op.allow_spinning": "false"}).spinning
    assert not settings({}).codegen and settings({"ep.cpu.codegen": "1"}).codegen
    with pytest.raises(ValueError, match="must be 0 or 1"):
        settings({"ep.cpu.winograd": "yes"})
    with pytest.raises(ValueError, match="unknown config entry"):
        settings({"ep.cpu.wino": "1"})


@pytest.mark.parametrize("name", ["", *(n for n in NAMES if NAMES.index(n) >= NAMES.index(host_target().name))])
def test_narrower_targets_give_the_same_results(name: str) -> None:
    if name == "neon" and host_target().name != "neon":
        pytest.skip("capability: neon")
    feeds = {"x": row(1003), "y": row(1003, 1)}
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.target", name or host_target().name)
    made = onnxplug.InferenceSession(source(feeds), options, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(made.run(None, feeds)[0], wanted(**feeds), rtol=1e-5, atol=1e-6)


def test_code_generation_can_be_switched_off() -> None:
    feeds = {"x": row(10), "y": row(10)}
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", "0")
    made = onnxplug.InferenceSession(source(feeds), options, providers=["CPUExecutionProvider"])
    assert made.explain().regions == [] or not made.explain().regions


def test_without_llvmlite_numpy_serves(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    unavailable.cache_clear()
    host.cache_clear()
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    try:
        feeds = {"x": row(10), "y": row(10, 1)}
        made = onnxplug.InferenceSession(source(feeds), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(made.run(None, feeds)[0], wanted(**feeds), rtol=1e-5, atol=1e-6)
        assert not made.explain().regions and "llvmlite cannot be imported" in caplog.text
    finally:
        unavailable.cache_clear()


def test_a_setting_that_means_nothing_is_refused() -> None:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", "maybe")
    with pytest.raises(Fail, match="must be 0 or 1"):
        onnxplug.InferenceSession(
            model(CHAIN, {"x": row(1), "y": row(1)}, ["z"]).SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
        )
