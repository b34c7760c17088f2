"""Which providers can be used here, and what is said of the others."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from bridge_models import CPU, OWN

import onnxplug as ort
from onnxplug.contract import Available, Unavailable
from onnxplug.plugins import names, registry
from onnxplug_ep_onnxruntime import device, library
from onnxplug_ep_onnxruntime.catalogue import ALL, Bridged
from onnxplug_ep_onnxruntime.plugin import onnxplug_provider

BY_NAME = {bridged.name: bridged for bridged in ALL}
DNNL, TENSORRT, QNN, DML = (BY_NAME[f"{name}ExecutionProvider"] for name in ("Dnnl", "Tensorrt", "QNN", "Dml"))


@pytest.fixture
def fake_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> library.Wheel:
    """An onnxruntime of a build with two providers."""
    native = tmp_path / "native"
    native.write_bytes(b"")
    found = library.Wheel("onnxruntime-dnnl", "1.31.0", str(native))
    monkeypatch.setattr(library, "wheel", lambda: found)
    monkeypatch.setattr(library, "offered", lambda wheel: ["DnnlExecutionProvider", CPU])
    return found


def test_each_provider_has_its_entry_point_and_its_name_in_the_core() -> None:
    keys = {e.name for e in entry_points(group="onnxplug.providers") if e.value == "onnxplug_ep_onnxruntime.plugin"}
    assert keys == set(BY_NAME) == {spec.name for spec in onnxplug_provider()}
    assert keys == {name for name, owner in names.DISTRIBUTIONS.items() if owner == "onnxplug-ep-onnxruntime"}


def test_those_that_can_be_used_are_listed_behind_the_cpu() -> None:
    listed = ort.get_available_providers()
    assert OWN in listed and listed.index(OWN) > listed.index(CPU)
    offered = library.offered(library.wheel())
    for name, bridged in BY_NAME.items():
        if name != OWN and not bridged.plugin:
            assert (name in listed) <= (name in offered)
    for name in set(BY_NAME) - set(listed):
        record = registry.record(name, load=True)
        assert record is not None and record.state == "unavailable" and record.error


def test_reasons(fake_wheel: library.Wheel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    assert device.check(DNNL) == Available("onnxruntime-dnnl 1.31.0")
    missing = device.check(TENSORRT)
    assert missing == Unavailable(
        "it is not in onnxruntime-dnnl 1.31.0", "pip uninstall onnxruntime-dnnl; pip install onnxruntime-gpu"
    )
    assert device.check(DML) == Unavailable("it exists on Windows only")
    assert device.check(QNN) == Unavailable("it is not in onnxruntime-dnnl 1.31.0", "pip install onnxruntime-qnn")
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    assert "no NVIDIA device is here" in getattr(device.check(TENSORRT), "reason", "")
    assert device.devices(TENSORRT) == ()
    assert [d.type for d in device.devices(DNNL)] == ["CPU"]


def test_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "wheel", lambda: None)
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    monkeypatch.setattr(sys, "platform", "linux")
    assert device.check(BY_NAME[OWN]) == Unavailable("onnxruntime is not installed", "pip install onnxruntime")
    assert device.check(TENSORRT) == Unavailable("onnxruntime is not installed", "pip install onnxruntime-gpu")
    assert device.check(QNN) == Unavailable(
        "onnxruntime is not installed", "pip install onnxruntime; pip install onnxruntime-qnn"
    )


def test_an_onnxruntime_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "wheel", lambda: library.Wheel("onnxruntime", "1.17.3", ""))
    answer = device.check(BY_NAME[OWN])
    assert isinstance(answer, Unavailable) and answer.fix == "pip install --upgrade 'onnxruntime>=1.20'"


def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch, fake_wheel: library.Wheel) -> None:
    def broken(wheel: library.Wheel) -> list[str]:
        raise ImportError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(library, "offered", broken)
    answer = device.check(DNNL)
    assert isinstance(answer, Unavailable) and "libcudart" in answer.reason


def test_a_plugin_without_devices(monkeypatch: pytest.MonkeyPatch, fake_wheel: library.Wheel, tmp_path: Path) -> None:
    (tmp_path / "acme_plugin.py").write_text("def get_library_path(): return '/acme.so'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    bridged = Bridged("AcmeExecutionProvider", QNN.options, "Acme", "NPU", "pip install acme", plugin="acme_plugin")
    monkeypatch.setattr(library, "plugin_devices", lambda path, name: [])
    assert device.check(bridged) == Unavailable("acme_plugin finds no device it can use")
    monkeypatch.setattr(library, "plugin_devices", lambda path, name: [object()])
    assert device.check(bridged) == Available("acme_plugin in onnxruntime-dnnl 1.31.0")


def test_the_library_is_asked_once_for_all_processes(tmp_path: Path) -> None:
    program = (
        "import sys; from onnxplug_ep_onnxruntime import library as l\n"
        "found = l.offered(l.wheel()); assert 'CPUExecutionProvider' in found\n"
        "print(l._native.cache_info().currsize, 'onnxruntime' in sys.modules)"
    )
    environment = {**os.environ, "ONNXPLUG_CACHE_DIR": str(tmp_path)}
    answers = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert answers == ["1 False\n", "0 False\n"]
