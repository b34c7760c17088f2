"""Loading: what is broken, slow or outdated is explained and harms no other."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from pathlib import Path

import pytest
from core_plugins import ACME, ANNOUNCE, ODD, PLUGIN, Install, loaded, make_spec, write_distribution

from onnxplug.plugins import (
    ProviderLookupError,
    registry,
)
from onnxplug.plugins.load import contract_mismatch


@pytest.mark.parametrize(
    ("code", "stage", "text"),
    [
        ("raise ValueError('no such board')", "import", "ValueError: no such board"),
        ("raise SystemExit(3)", "import", "SystemExit: 3"),
        ("import acme_driver", "import", "the module 'acme_driver' is missing"),
        ("from onnxplug.contract import Nonsense", "import", "upgrade the older one of onnxplug and acme-ep"),
        (ODD, "import", "Odd: (its message cannot be read)"),
        ("syntax error", "import", "SyntaxError"),
        (PLUGIN, "announce", "acme_plugin (the entry point's value) is not a module with a function onnxplug_provider"),
        (PLUGIN + "@hookimpl\ndef onnxplug_providers(): pass", "announce", "unknown hook 'onnxplug_providers'"),
        (PLUGIN + "@hookimpl\ndef onnxplug_provider(name): return spec()", "announce", "Argument(s) {'name'}"),
        (ANNOUNCE + "1 / 0", "announce", "ZeroDivisionError"),
        (ANNOUNCE + "{}", "announce", "returned a dict"),
        (ANNOUNCE + "spec(nonsense=1)", "announce", "nonsense"),
        (ANNOUNCE + "[spec('A'), spec('B')]", "announce", "onnxplug_provider() announces A, B"),
        (ANNOUNCE + "[spec(), spec()]", "announce", f"announces {ACME}, {ACME}"),
        (ANNOUNCE + "spec(contract='1')", "handshake", "ProviderSpec.contract is '1'"),
        (ANNOUNCE + "spec(check=None)", "handshake", "ProviderSpec.check is None, not callable"),
        (ANNOUNCE + "spec(options=dict)", "handshake", "not a dataclass"),
        (ANNOUNCE + "spec(vendor=None)", "handshake", "ProviderSpec.vendor"),
        (ANNOUNCE + "spec(check=lambda: 1 / 0)", "check", "ZeroDivisionError"),
        (ANNOUNCE + "spec(check=lambda: True)", "check", "check() returned a bool"),
    ],
)  # fmt: skip
def test_broken_plugin_is_explained_and_harms_no_other(install: Install, code: str, stage: str, text: str) -> None:
    install(code)
    install(ANNOUNCE + "spec('FineExecutionProvider')", ("FineExecutionProvider",), "fine-ep", "fine_plugin")
    found = loaded()
    assert (found["state"], found["stage"]) == ("broken", stage)
    line = registry.explain_missing(ACME)
    assert text in line and "acme-ep 1.0" in line and f"broken at {stage}" in line and "\n" not in line
    assert ACME not in registry.available_providers()
    assert "FineExecutionProvider" in registry.available_providers()
    with pytest.raises(ProviderLookupError) as raised:
        registry.spec(ACME)
    assert str(raised.value) == line and raised.value.record is not None and raised.value.record.stage == stage
    assert registry.announced_spec(ACME) is None


def test_keyboard_interrupt_passes_and_is_not_remembered(install: Install, site: Path) -> None:
    install("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        registry.spec(ACME)
    (site / "acme_plugin.py").write_text(ANNOUNCE + "spec()  # mended")
    importlib.invalidate_caches()
    assert registry.spec(ACME).name == ACME


def test_slow_import_is_given_up(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "go_on", threading.Event(), raising=False)
    install("import sys\nsys.go_on.wait(120)\nsys.go_on.set()", module="slow_plugin")
    monkeypatch.setenv("ONNXPLUG_IMPORT_TIMEOUT", "0.2")
    registry.refresh()
    found = loaded()
    assert not sys.go_on.is_set(), "the import was waited for"  # type: ignore[attr-defined]
    sys.go_on.set()  # type: ignore[attr-defined]
    assert (found["state"], found["error"]) == ("broken", "import took longer than 0.2 s")
    assert "ONNXPLUG_IMPORT_TIMEOUT" in registry.explain_missing(ACME)


def test_no_thread_while_the_caller_is_imported(install: Install, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_IMPORT_TIMEOUT", "60")
    (site / "app").mkdir()
    (site / "app" / "__init__.py").write_text(f"from onnxplug.plugins import registry\nspec = registry.spec({ACME!r})")
    (site / "app" / "plugin.py").write_text("import app\n" + ANNOUNCE + "spec()")
    write_distribution(site, "app", "unused", "", {ACME: "app.plugin"})
    registry.refresh()
    started = time.perf_counter()
    assert importlib.import_module("app").spec.name == ACME
    assert time.perf_counter() - started < 50, "a worker thread waited for the import lock of app"


def test_front_door_may_ask_the_registry(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPLUG_IMPORT_TIMEOUT", "60")
    code = "from onnxplug.plugins import registry\nseen = registry.available_providers()\n"
    install(code + ANNOUNCE + "spec(check=lambda: Available(str(len(registry.available_providers()))))")
    install(ANNOUNCE + "spec('FineExecutionProvider')", ("FineExecutionProvider",), "fine-ep", "fine_plugin")
    started = time.perf_counter()
    assert loaded()["state"] == "available"
    assert time.perf_counter() - started < 50
    assert "FineExecutionProvider" in sys.modules["acme_plugin"].seen and ACME not in sys.modules["acme_plugin"].seen


def test_several_providers_in_one_module(install: Install) -> None:
    names = ("AExecutionProvider", "BExecutionProvider", "CExecutionProvider")
    install(
        ANNOUNCE + "[spec('AExecutionProvider'), spec('BExecutionProvider', check=lambda: Unavailable('off'))]", names
    )
    assert [loaded(name)["state"] for name in names] == ["available", "unavailable", "broken"]


def test_undecorated_announcement_is_enough(install: Install) -> None:
    install(PLUGIN + "def onnxplug_provider(): return spec()")
    assert loaded()["state"] == "available"


def test_unavailable_says_why_and_what_to_do(install: Install) -> None:
    install(ANNOUNCE + "spec(check=lambda: Unavailable('no board found', 'plug one in'))")
    assert registry.explain_missing(ACME) == f"{ACME} (acme-ep 1.0) is unavailable: no board found. To fix: plug one in"
    assert ACME not in registry.available_providers()
    spec = registry.announced_spec(ACME)
    assert spec is not None and spec.name == ACME
    with pytest.raises(ProviderLookupError, match="no board found"):
        registry.spec(ACME)


def test_outdated_contract(install: Install) -> None:
    install(ANNOUNCE + "spec(contract=(0, 0), check=lambda: 1 / 0)")
    found = loaded()
    assert (found["state"], found["stage"]) == ("outdated", "handshake")
    assert found["fix"] == "upgrade acme-ep: pip install --upgrade acme-ep"
    assert "contract 0.0" in registry.explain_missing(ACME)


@pytest.mark.parametrize(
    ("theirs", "ours", "older"),
    [
        ((0, 1), (0, 1), None), ((0, 1), (0, 2), "acme-ep"), ((0, 3), (0, 2), "onnxplug"), ((0, 9), (1, 0), "acme-ep"),
        ((1, 0), (0, 9), "onnxplug"), ((1, 2), (1, 2), None), ((1, 0), (1, 2), None), ((1, 3), (1, 2), "onnxplug"),
        ((1, 9), (2, 0), "acme-ep"), ((2, 0), (1, 9), "onnxplug"),
    ],
)  # fmt: skip
def test_contract_negotiation(theirs: tuple[int, int], ours: tuple[int, int], older: str | None) -> None:
    answer = contract_mismatch(make_spec(contract=theirs), "acme-ep", ours)
    assert (answer is None) == (older is None)
    if answer is not None:
        assert answer[1] == f"upgrade {older}: pip install --upgrade {older}"
