"""Discovery, loading, the registry and observers, with throw-away distributions on ``sys.path``."""

from __future__ import annotations

import importlib
import json
import logging
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from onnxplug.contract import CONTRACT_VERSION, Available, ExecutionProvider, ProviderSpec, Unavailable
from onnxplug.plugins import (
    ProviderLookupError,
    observers,
    observers_for,
    register_observer,
    registry,
    unregister_observer,
)
from onnxplug.plugins.load import contract_mismatch
from onnxplug.plugins.manager import process_manager
from onnxplug.plugins.names import by_priority, full_name

ACME = "AcmeExecutionProvider"
PLUGIN = """
from onnxplug.contract import CONTRACT_VERSION, Available, ExecutionProvider, ProviderSpec, Unavailable, hookimpl

def spec(name="AcmeExecutionProvider", **fields):
    defaults = {"name": name, "contract": CONTRACT_VERSION, "create": lambda o, c: ExecutionProvider()}
    return ProviderSpec(**{**defaults, **fields})
"""
ODD = "class Odd(BaseException):\n    def __str__(self): return self.x\nraise Odd"
ANNOUNCE = PLUGIN + "@hookimpl\ndef onnxplug_provider():\n    return "
Install = Callable[..., None]


def write_distribution(
    folder: Path,
    name: str,
    module: str,
    code: str,
    providers: dict[str, str],
    *,
    version: str = "1.0",
    group: str = "providers",
) -> None:
    """What an installer leaves behind: one module and its dist-info."""
    (folder / f"{module}.py").write_text(textwrap.dedent(code))
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    entries = "".join(f"{key} = {value}\n" for key, value in providers.items())
    (info / "entry_points.txt").write_text(f"[onnxplug.{group}]\n{entries}")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in [n for n in os.environ if n.startswith("ONNXPLUG_")]:
        monkeypatch.delenv(name)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.refresh()
    yield tmp_path
    monkeypatch.undo()
    for _, plugin in process_manager().list_name_plugin():
        if str(getattr(plugin, "__file__", "")).startswith(str(tmp_path)):
            process_manager().unregister(plugin)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    registry.refresh()


@pytest.fixture
def install(site: Path) -> Install:
    def write(
        code: str, providers: tuple[str, ...] = (ACME,), name: str = "acme-ep", module: str = "acme_plugin", **more: str
    ) -> None:
        write_distribution(site, name, module, code, dict.fromkeys(providers, module), **more)  # type: ignore[arg-type]
        registry.refresh()

    return write


def loaded(name: str = ACME) -> dict[str, object]:
    found = registry.record(name, load=True)
    assert found is not None
    return found.to_dict()


def make_spec(name: str = ACME, **fields: object) -> ProviderSpec:
    return ProviderSpec(
        **{"name": name, "contract": CONTRACT_VERSION, "create": lambda o, c: ExecutionProvider(), **fields}
    )  # type: ignore[arg-type]


@pytest.fixture
def registered(site: Path) -> Iterator[Callable[[ProviderSpec], None]]:
    names: list[str] = []

    def add(spec: ProviderSpec) -> None:
        registry.register_provider(spec)
        names.append(spec.name)

    yield add
    for name in names:
        registry.unregister_provider(name)


# discovery


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
        assert not set(sys.modules) & {{"acme_plugin", "onnx", "ml_dtypes"}}
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


# loading


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
    install("import time\ntime.sleep(30)", module="slow_plugin")
    monkeypatch.setenv("ONNXPLUG_IMPORT_TIMEOUT", "0.2")
    registry.refresh()
    started = time.perf_counter()
    found = loaded()
    assert time.perf_counter() - started < 10
    assert (found["state"], found["error"]) == ("broken", "import took longer than 0.2 s")
    assert "ONNXPLUG_IMPORT_TIMEOUT" in registry.explain_missing(ACME)


def test_no_thread_while_the_caller_is_imported(install: Install, site: Path) -> None:
    (site / "app").mkdir()
    (site / "app" / "__init__.py").write_text(f"from onnxplug.plugins import registry\nspec = registry.spec({ACME!r})")
    (site / "app" / "plugin.py").write_text("import app\n" + ANNOUNCE + "spec()")
    write_distribution(site, "app", "unused", "", {ACME: "app.plugin"})
    registry.refresh()
    started = time.perf_counter()
    assert importlib.import_module("app").spec.name == ACME
    assert time.perf_counter() - started < 8, "a worker thread waited for the import lock of app"


def test_front_door_may_ask_the_registry(install: Install) -> None:
    code = "from onnxplug.plugins import registry\nseen = registry.available_providers()\n"
    install(code + ANNOUNCE + "spec(check=lambda: Available(str(len(registry.available_providers()))))")
    install(ANNOUNCE + "spec('FineExecutionProvider')", ("FineExecutionProvider",), "fine-ep", "fine_plugin")
    started = time.perf_counter()
    assert loaded()["state"] == "available"
    assert time.perf_counter() - started < 8
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


# the registry


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
        "CUDAExecutionProvider", ACME,
    ]  # fmt: skip
    assert by_priority(mixed) == [
        "CUDAExecutionProvider", "OpenCLExecutionProvider", ACME, "ZebraExecutionProvider", "CPUExecutionProvider",
        "ReferenceExecutionProvider",
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
    assert "onnxruntime knows this name" in registry.explain_missing("QNNExecutionProvider")
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
