"""The registry, short names, priority, and observers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from core_plugins import ACME, ANNOUNCE, Install, loaded, make_spec

from onnxplug.contract import Available, ExecutionProvider, ProviderSpec, Unavailable
from onnxplug.plugins import (
    ProviderLookupError,
    observers,
    observers_for,
    register_observer,
    registry,
    unregister_observer,
)
from onnxplug.plugins.names import by_priority, full_name


def test_register_in_process(registered: Callable[[ProviderSpec], None]) -> None:
    registered(make_spec(check=lambda: Available()))
    assert ACME in registry.available_providers() and ACME in registry.all_providers()
    with pytest.raises(ValueError, match="already registered"):
        registry.register_provider(make_spec())
    registry.register_provider(make_spec(check=lambda: Unavailable("gone")), replace=True)
    assert registry.explain_missing(ACME) == f"{ACME} (registered in process) is unavailable: gone"
    registry.refresh()
    assert loaded()["state"] == "unavailable"
    with pytest.raises(ValueError, match="not registered in process"):
        registry.unregister_provider("OtherExecutionProvider")


def test_register_refuses_what_is_installed_or_wrong(install: Install) -> None:
    @dataclass(frozen=True)
    class Needy:
        level: int

    install(ANNOUNCE + "spec()")
    with pytest.raises(ValueError, match=r"acme-ep 1\.0"):
        registry.register_provider(make_spec())
    with pytest.raises(ValueError, match="upgrade onnxplug"):
        registry.register_provider(make_spec("NewExecutionProvider", contract=(99, 0)))
    with pytest.raises(TypeError, match="not a ProviderSpec"):
        registry.register_provider(ExecutionProvider)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Needy .* cannot be made from its defaults"):
        registry.register_provider(make_spec("NewExecutionProvider", options=Needy))


def test_check_is_asked_once(registered: Callable[[ProviderSpec], None]) -> None:
    calls: list[int] = []
    registered(make_spec(check=lambda: calls.append(1) or Available()))  # type: ignore[func-returns-value]
    registry.available_providers()
    registry.spec(ACME)
    assert len(calls) == 1
    registry.refresh()
    registry.spec(ACME)
    assert len(calls) == 2


def test_priority() -> None:
    mixed = [
        "ReferenceExecutionProvider", "ZebraExecutionProvider", "CPUExecutionProvider", ACME, "OpenCLExecutionProvider",
        "CUDAExecutionProvider", ACME, "OnnxRuntimeExecutionProvider",
    ]  # fmt: skip
    assert by_priority(mixed) == [
        "CUDAExecutionProvider", "OpenCLExecutionProvider", ACME, "ZebraExecutionProvider", "CPUExecutionProvider",
        "ReferenceExecutionProvider", "OnnxRuntimeExecutionProvider",
    ]  # fmt: skip
    known = registry.all_providers()
    assert known[:3] == ["NvTensorRTRTXExecutionProvider", "TensorrtExecutionProvider", "CUDAExecutionProvider"]
    assert known.index("AzureExecutionProvider") < known.index("CPUExecutionProvider")


@pytest.mark.parametrize("text", ["cpu", "CPU", "CPUExecutionProvider", "cpuexecutionprovider", "cp", " cpu "])
def test_short_names(text: str) -> None:
    assert full_name(text, ["CPUExecutionProvider", ACME]) == "CPUExecutionProvider"


def test_short_name_of_what_is_not_installed_and_errors() -> None:
    assert full_name("cuda", [ACME]) == "CUDAExecutionProvider"
    assert full_name("a", [ACME]) == ACME
    with pytest.raises(ProviderLookupError, match="'ac' may be acme or acorn"):
        full_name("ac", [ACME, "AcornExecutionProvider"])
    with pytest.raises(
        ProviderLookupError, match=r"No provider is called 'opencll' \(there are acme\); did you mean opencl\?"
    ):
        full_name("opencll", [ACME])
    with pytest.raises(ProviderLookupError, match="No provider is called ''"):
        full_name("", [ACME])


def test_explanations_of_names_nobody_offers(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_discovered", {})
    assert registry.explain_missing("CUDAExecutionProvider").endswith("pip install onnxplug-ep-cuda")
    assert registry.explain_missing("QNNExecutionProvider").endswith("pip install onnxplug-ep-onnxruntime")
    assert "onnxruntime knows this name" in registry.explain_missing("AzureExecutionProvider")
    assert registry.explain_missing("CpuExecutonProvider").endswith("did you mean CPUExecutionProvider?")
    assert registry.explain_missing("CUDExecutionProvider").endswith("did you mean CUDAExecutionProvider?")
    assert registry.explain_missing("Qqqqqqqq") == "No provider is called Qqqqqqqq"
    with pytest.raises(ProviderLookupError) as raised:
        registry.spec("Qqqqqqqq")
    assert raised.value.record is None and raised.value.name == "Qqqqqqqq"


# observers

OBSERVER = """
seen = []
def onnxplug_run_start(options): seen.append(options)
"""


def test_nobody_listens(site: Path) -> None:
    assert observers_for("onnxplug_placed") == ()


def test_installed_observer(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(OBSERVER, ("tracer",), "tracer", "tracer_module", group="observers")
    for tell in observers_for("onnxplug_run_start"):
        tell(session=None, options="mine")
    assert sys.modules["tracer_module"].seen == ["mine"]
    assert observers_for("onnxplug_run_end") == ()
    assert registry.record("tracer") is None
    assert [r.state for r in observers.observer_records() if r.provider == "tracer"] == ["available"]
    monkeypatch.setenv("ONNXPLUG_DISABLE", "tracer")
    registry.refresh()
    assert observers_for("onnxplug_run_start") == ()


def test_broken_observer_is_warned_of_once(install: Install) -> None:
    install("raise SystemExit(1)", ("tracer",), "tracer", "tracer_module", group="observers")
    with pytest.warns(RuntimeWarning, match=r"observer tracer \(tracer 1\.0\) is broken at import: SystemExit: 1"):
        assert observers_for("onnxplug_run_start") == ()
    assert observers_for("onnxplug_run_start") == ()


def test_provider_module_may_observe(install: Install) -> None:
    install(OBSERVER + ANNOUNCE + "spec()")
    assert observers_for("onnxplug_run_start") == ()
    registry.spec(ACME)
    assert len(observers_for("onnxplug_run_start")) == 1


def test_raising_observer_is_disabled(site: Path) -> None:
    class Clumsy:
        def onnxplug_run_start(self, session: object) -> None:
            raise ValueError("oops")

        def onnxplug_run_end(self, error: object) -> None:
            raise AssertionError("called though disabled")

    clumsy = Clumsy()
    register_observer(clumsy, "clumsy")
    try:
        (tell,) = observers_for("onnxplug_run_start")
        with pytest.warns(
            RuntimeWarning, match="observer clumsy is disabled: onnxplug_run_start raised ValueError: oops"
        ):
            tell(session=None, options=None)
        tell(session=None, options=None)
        assert observers_for("onnxplug_run_start") == observers_for("onnxplug_run_end") == ()
    finally:
        unregister_observer(clumsy)
    with pytest.raises(ValueError, match="not registered"):
        unregister_observer(clumsy)
    with pytest.raises(ValueError, match="has none of"):
        register_observer(object())
