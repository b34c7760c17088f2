"""Discovery reads metadata only: records, clashes, switches, the trace."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from core_plugins import ACME, ANNOUNCE, Install, loaded, make_spec, write_distribution

from onnxplug.contract import ProviderSpec
from onnxplug.plugins import (
    ProviderLookupError,
    registry,
)
from onnxplug.plugins.discover import OBSERVERS, PROVIDERS
from onnxplug.plugins.installed import Reference, installed

GROUPS = (PROVIDERS, OBSERVERS)


def test_discovery_imports_nothing(site: Path) -> None:
    write_distribution(site, "acme-ep", "acme_plugin", "raise SystemExit(3)", {ACME: "acme_plugin"})
    program = f"""
        import sys
        import onnxplug.plugins
        assert "importlib.metadata" not in sys.modules
        from onnxplug.plugins import registry
        assert "importlib.metadata" not in sys.modules
        assert {ACME!r} in [r.provider for r in registry.records()]
        assert registry.record({ACME!r}).state == "discovered"
        assert {ACME!r} in registry.all_providers()
        assert not set(sys.modules) & {{"acme_plugin", "onnx", "ml_dtypes", "importlib.metadata", "email"}}
        print("light")
    """
    path = os.pathsep.join([str(site), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "light\n", done.stderr


def test_what_is_installed_in_folders_is_read_as_importlib_metadata_reads_it(site: Path) -> None:
    write_distribution(site, "acme-ep", "acme_plugin", "", {ACME: "acme_plugin"}, version="2.0")
    write_distribution(site, "zeta-ep", "zeta", "", {"ZetaExecutionProvider": "zeta:inner.thing"}, group="observers")
    light = installed(GROUPS)
    assert light is not None
    ours = {(d.name, d.version, r.group, r.name, r.value) for d in light for r in d.references}
    theirs = {
        (d.name, d.version, e.group, e.name, e.value)
        for d in metadata.distributions()
        for group in GROUPS
        for e in d.entry_points.select(group=group)
    }
    assert ours == theirs
    assert ("zeta-ep", "1.0", GROUPS[1], "ZetaExecutionProvider", "zeta:inner.thing") in ours


@pytest.mark.parametrize("text", ["no equals sign", "acme = acme_plugin [extra]", "acme ="])
def test_what_is_unusual_is_left_to_importlib_metadata(site: Path, text: str) -> None:
    write_distribution(site, "acme-ep", "acme_plugin", "", {ACME: "acme_plugin"})
    assert installed(GROUPS) is not None
    (site / "acme_ep-1.0.dist-info" / "entry_points.txt").write_text(f"[{GROUPS[0]}]\n{text}\n")
    assert installed(GROUPS) is None


def test_zip_files_and_other_finders_are_left_to_importlib_metadata(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site / "packed.zip").write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(site / "packed.zip"))
        assert installed(GROUPS) is None
    finder = type("Finder", (), {"find_spec": lambda *a: None, "find_distributions": lambda *a: ()})
    monkeypatch.setattr(sys, "meta_path", [finder(), *sys.meta_path])
    assert installed(GROUPS) is None


def test_a_reference_is_the_module_or_an_object_in_it() -> None:
    assert Reference("g", "n", "os.path").load() is os.path
    assert Reference("g", "n", "os:path.join").load() is os.path.join


def test_record_before_and_after_loading(install: Install) -> None:
    install(ANNOUNCE + "spec(check=lambda: Available('2 boards'))", version="2.5")
    before = registry.record(ACME)
    assert before is not None and (before.state, before.distribution, before.version) == (
        "discovered",
        "acme-ep",
        "2.5",
    )
    assert "acme_plugin" not in sys.modules
    assert registry.spec(ACME).name == ACME
    after = registry.record(ACME)
    assert after is not None and after.usable and after.detail == "2 boards" and after.import_seconds is not None
    assert after.import_seconds > 0
    assert json.loads(json.dumps(after.to_dict()))["state"] == "available"
    assert str(after) == f"{ACME} (acme-ep 2.5) is available (2 boards)"


def test_malformed_metadata_harms_only_its_owner(install: Install, site: Path) -> None:
    install(ANNOUNCE + "spec()")
    info = site / "bad_ep-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-ep\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[onnxplug.providers]\nno equals sign\n")
    registry.refresh()
    assert registry.spec(ACME)
    (bad,) = [r for r in registry.records(load=True) if r.distribution == "bad-ep"]
    assert (bad.state, bad.stage, bad.provider) == ("broken", "discover", "")
    assert "its metadata cannot be read" in str(bad)


def test_shadowed_distribution_is_no_clash(install: Install, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(ANNOUNCE + "spec()")
    earlier = site / "earlier"
    earlier.mkdir()
    write_distribution(earlier, "Acme.EP", "acme_plugin", ANNOUNCE + "spec()", {ACME: "acme_plugin"}, version="9.0")
    monkeypatch.syspath_prepend(str(earlier))
    registry.refresh()
    assert [r.version for r in registry.records() if r.provider == ACME] == ["9.0"]


def test_clash_belongs_to_neither(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(ANNOUNCE + "spec(vendor='first')", name="first-ep", module="first_plugin")
    install(ANNOUNCE + "spec(vendor='second')", name="second-ep", module="second_plugin")
    assert [r.state for r in registry.records(load=True) if r.provider == ACME] == ["clashing", "clashing"]
    with pytest.raises(ProviderLookupError, match=r"first-ep 1\.0 .* and second-ep 1\.0 .* claim this name"):
        registry.spec(ACME)
    assert ACME not in registry.available_providers()
    assert not {"first_plugin", "second_plugin"} & set(sys.modules)

    monkeypatch.setenv("ONNXPLUG_PROVIDERS", f"{ACME}@Second_EP")
    registry.refresh()
    assert registry.spec(ACME).vendor == "second"
    assert "first_plugin" not in sys.modules

    monkeypatch.delenv("ONNXPLUG_PROVIDERS")
    monkeypatch.setenv("ONNXPLUG_DISABLE", "second-ep")
    registry.refresh()
    assert registry.spec(ACME).vendor == "first"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ONNXPLUG_DISABLE", ACME),
        ("ONNXPLUG_DISABLE", "x, acme"),
        ("ONNXPLUG_DISABLE", "acme_ep"),
        ("ONNXPLUG_PROVIDERS", "cpu"),
    ],
)
def test_switched_off_before_import(
    install: Install, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    install("raise RuntimeError('must not be imported')")
    monkeypatch.setenv(variable, value)
    registry.refresh()
    assert loaded()["state"] == "disabled"
    assert variable in registry.explain_missing(ACME)
    assert "acme_plugin" not in sys.modules


def test_allow_list_takes_short_names(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(ANNOUNCE + "spec()")
    monkeypatch.setenv("ONNXPLUG_PROVIDERS", "cpu, acme")
    registry.refresh()
    assert loaded()["state"] == "available"


def test_autoload_off(
    install: Install, registered: Callable[[ProviderSpec], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(ANNOUNCE + "spec()")
    monkeypatch.setenv("ONNXPLUG_AUTOLOAD", "0")
    registry.refresh()
    registered(make_spec("OwnExecutionProvider"))
    assert [r.provider for r in registry.records()] == ["OwnExecutionProvider"]
    assert "ONNXPLUG_AUTOLOAD=0" in registry.explain_missing(ACME)


@pytest.fixture
def silent_log(site: Path) -> Iterator[logging.Logger]:
    log = logging.getLogger("onnxplug.plugins")
    handlers, level = log.handlers[:], log.level
    log.handlers.clear()
    log.setLevel(logging.NOTSET)
    yield log
    log.handlers[:] = handlers
    log.setLevel(level)


def test_trace_reaches_stderr(
    install: Install,
    silent_log: logging.Logger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install("1 / 0")
    monkeypatch.setenv("ONNXPLUG_TRACE", "1")
    registry.refresh()
    registry.record(ACME, load=True)
    registry.refresh()
    registry.records()
    seen = capsys.readouterr().err
    assert "entry points in" in seen and "ZeroDivisionError" in seen and "Traceback" in seen
    assert seen.count("broken at import") == 1
    assert len(silent_log.handlers) == 1
