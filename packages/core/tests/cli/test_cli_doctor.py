"""``onnxplug providers`` and ``onnxplug doctor``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cli_models import ACME, CPU, Cli, as_json, error_of

from onnxplug.contract import (
    Available,
    DeviceInfo,
    Unavailable,
)
from onnxplug.plugins import registry

# providers


def test_providers_json(cli: Cli, offer: Callable[..., None]) -> None:
    offer(
        devices=lambda: [DeviceInfo("NPU", 3, "Acme", "A1", {"memory": "2 GB"}, {"board": "3"})],
        vendor="Acme",
        device_kind="acme",
    )
    code, document = as_json(cli("providers", "--json"))
    assert code == 0
    by_short = {p["short"]: p for p in document["providers"]}
    assert by_short["cpu"]["name"] == CPU
    for provider in document["providers"]:
        assert list(provider) == [
            "name", "short", "state", "detail", "error", "fix", "distribution", "version", "entry_point", "vendor",
            "device_kind", "contract", "devices", "devices_error", "options",
        ]  # fmt: skip
    assert by_short["acme"]["devices"] == [
        {
            "type": "NPU",
            "id": 3,
            "vendor": "Acme",
            "name": "A1",
            "metadata": {"memory": "2 GB"},
            "options": {"board": "3"},
        }
    ]
    options = {o["name"]: o for o in by_short["reference"]["options"]}
    assert list(options["memory"]) == ["name", "type", "default", "choices", "doc"]
    assert options["memory"]["type"] == "str"
    assert options["memory"]["default"] == "simulated"
    assert options["memory"]["choices"] == ["simulated", "host"]
    assert options["float64"]["default"] is False
    assert all(o["doc"] for o in options.values())


def test_providers_text(cli: Cli, offer: Callable[..., None]) -> None:
    offer(check=lambda: Unavailable("no Acme card", "buy one"))
    code, out, _ = cli("providers")
    assert code == 0
    assert f"{ACME} (acme)  unavailable  registered in process" in out
    assert "why: no Acme card" in out
    assert "fix: buy one" in out
    assert f"{CPU} (cpu)  available" in out
    assert "arena_extend_strategy" in out


def test_a_provider_that_cannot_list_its_devices_harms_no_other(cli: Cli, offer: Callable[..., None]) -> None:
    def devices() -> list[DeviceInfo]:
        raise OSError("driver asleep")

    offer(devices=devices)
    _, document = as_json(cli("providers", "--json"))
    errors = {p["name"]: p["devices_error"] for p in document["providers"]}
    assert errors[ACME] == "OSError: driver asleep"
    assert errors[CPU] is None
    assert "driver asleep" in cli("providers")[1]


def test_no_provider_at_all(cli: Cli, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setenv("ONNXPLUG_AUTOLOAD", "0")
    registry.refresh()
    assert as_json(cli("providers", "--json")) == (0, {"providers": []})
    assert "pip install onnxplug-ep-cpu" in cli("providers")[1]
    assert cli("doctor")[0] == 1
    assert error_of(cli("explain", model, "--json"))[0] == 3


# doctor


def test_doctor_json(cli: Cli) -> None:
    code, report = as_json(cli("doctor", "--json"))
    assert code == 0
    assert list(report) == ["healthy", "problems", "notes", "plugins", "environment", "versions", "system"]
    assert report["healthy"] is True
    assert report["problems"] == report["notes"] == []
    assert report["environment"] == {}
    assert {"python", "onnxplug", "contract", "numpy", "onnx", "pluggy"} <= set(report["versions"])
    assert report["versions"]["numpy"] == np.__version__
    assert report["system"]["cpu"]
    record = next(p for p in report["plugins"] if p["provider"] == CPU)
    assert record["state"] == "available"
    assert record["stage"] == "check"


def test_doctor_lists_the_devices_of_those_that_are_usable(cli: Cli, offer: Callable[..., None]) -> None:
    offer(check=lambda: Available("0: Acme / A1 (NPU); 1: Acme / A2 (NPU)"))
    code, out, _ = cli("doctor")
    assert code == 0
    assert f"{ACME}: 0: Acme / A1 (NPU); 1: Acme / A2 (NPU)" in out.partition("Devices")[2]


def test_doctor_names_what_is_broken(cli: Cli, offer: Callable[..., None]) -> None:
    def check() -> Unavailable:
        raise OSError("libacme.so is missing")

    offer(check=check)
    code, report = as_json(cli("doctor", "--json"))
    assert code == 1
    assert not report["healthy"]
    assert len(report["problems"]) == 1
    record = next(p for p in report["plugins"] if p["provider"] == ACME)
    assert (record["state"], record["stage"], record["error"]) == ("broken", "check", "OSError: libacme.so is missing")
    assert record["fix"]
    code, out, _ = cli("doctor")
    assert code == 1
    assert "1 problem" in out
    assert "libacme.so is missing" in out
    assert "  fix: " in out


def test_an_absent_device_is_no_defect(cli: Cli, offer: Callable[..., None]) -> None:
    offer(check=lambda: Unavailable("no Acme card"))
    code, out, _ = cli("doctor")
    assert code == 0
    assert "no Acme card" in out


def test_doctor_shows_switches(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_PROVIDERS", "cpu,acme")
    monkeypatch.setenv("ONNXPLUG_PROVIDER", "cpu")
    registry.refresh()
    code, report = as_json(cli("doctor", "--json"))
    assert code == 0
    assert report["environment"] == {"ONNXPLUG_PROVIDER": "cpu", "ONNXPLUG_PROVIDERS": "cpu,acme"}
    assert len(report["notes"]) == 2
    out = cli("doctor")[1]
    assert "ONNXPLUG_PROVIDER is not a switch" in out
    assert "names acme" in out


def test_what_caches_and_providers_read_is_no_mistake(
    cli: Cli, offer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    offer()
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", "/nowhere")
    monkeypatch.setenv("ONNXPLUG_ACME_SPEED", "2")
    assert as_json(cli("doctor", "--json"))[1]["notes"] == []
