"""The pytest plugin: options, collection of the kit's own tests, verdicts, report. Inert unless ``--ep`` is given."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from onnxplug_testkit.kit import Kit

NOT_RUN, PARTIAL = 10, 11
"""Exit codes: the provider has no device here; not every test of the level was run."""
SUITE = Path(__file__).parent / "suite"
_KIT = pytest.StashKey["Kit"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onnxplug", "onnxplug conformance kit")
    group.addoption("--ep", help="execution provider to judge: a full name, or cpu, cuda, ...")
    group.addoption("--level", help="contract, memory, kernels (default), graph or robust; each includes those before")
    group.addoption(
        "--profile", help="must-pass profile: elementwise, cnn, transformer or full; several with commas between"
    )
    group.addoption(
        "--report",
        type=Path,
        action="append",
        default=[],
        help="write the report here: JSON (.json), or a rendering (.html, .md, .xml for JUnit, .svg for a badge); may be repeated",
    )
    group.addoption(
        "--seed", type=int, default=None, help="seed of all data; a fresh one is drawn and printed by default"
    )
    group.addoption(
        "--waivers", type=Path, help="settings and waivers (default: conformance.toml in the working directory)"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--ep") is None:
        return
    if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
        raise pytest.UsageError(
            "the conformance kit does not run under pytest-xdist: one process keeps the ledger that the verdict is made of, and "
            "checks of leaks and threads need it to themselves; leave out -n (or give -n 0)"
        )
    from onnxplug_testkit.render import FORMS
    from onnxplug_testkit.start import start

    for path in config.getoption("--report"):
        if path.suffix not in (".json", *FORMS):
            raise pytest.UsageError(f"--report {path}: its ending is none of .json, {', '.join(FORMS)}")
    try:
        config.stash[_KIT] = start(
            config.getoption("--ep"),
            config.getoption("--level"),
            config.getoption("--profile"),
            config.getoption("--seed"),
            config.getoption("--waivers"),
        )
    except (ValueError, LookupError) as error:
        raise pytest.UsageError(str(error)) from error
    if sys.stdout.isatty() and config.get_verbosity() <= 0:
        from onnxplug_testkit.progress import Progress

        config.pluginmanager.register(Progress(), "onnxplug-testkit-progress")


def kit_of(config: pytest.Config) -> Kit | None:
    """The run in progress; None when the plugin is inert."""
    return config.stash.get(_KIT, None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The suite is no test of anybody's without ``--ep``, nor without a device."""
    if collection_path != SUITE and SUITE not in collection_path.parents:
        return None
    kit = kit_of(config)
    return True if kit is None or kit.ledger.not_run else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kit = kit_of(metafunc.config)
    if kit is None or metafunc.module.__name__.rpartition(".")[2] != "test_kit":
        return
    for name, values in (
        ("early", _early),
        ("trial", _trials),
        ("generated", _generated),
        ("group", _groups),
        ("claim", _claims),
        ("late", _late),
    ):
        if f"kit_{name}" in metafunc.fixturenames:
            pairs = values(kit)
            metafunc.parametrize(f"kit_{name}", [v for _, v in pairs], ids=[text for text, _ in pairs])


def _early(kit: Kit) -> list[tuple[str, Any]]:
    return [(c.name, c) for c in kit.checks() if c.level in ("contract", "memory")]


def _trials(kit: Kit) -> list[tuple[str, Any]]:
    return [(t.id, t) for t in kit.plan.trials]


def _generated(kit: Kit) -> list[tuple[str, Any]]:
    return [(g.id, g) for g in kit.plan.generated]


def _groups(kit: Kit) -> list[tuple[str, Any]]:
    return [(g.id, g) for g in kit.plan.groups]


def _claims(kit: Kit) -> list[tuple[str, Any]]:
    return [(name, name) for name in kit.claim_checks()]


def _late(kit: Kit) -> list[tuple[str, Any]]:
    return [(c.name, c) for c in kit.checks() if c.level in ("graph", "robust")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A part of the suite that the level leaves empty is not there, rather than skipped."""
    if kit_of(config) is not None:
        items[:] = [item for item in items if not _is_empty(item)]


def _parameters(item: pytest.Item) -> dict[str, Any]:
    """The kit's parameters of a test; none for anybody else's."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return {key: value for key, value in parameters.items() if key.startswith("kit_")}


def _is_empty(item: pytest.Item) -> bool:
    return any(type(value).__name__ == "NotSetType" for value in _parameters(item).values())


def _name(item: pytest.Item) -> str | None:
    """The kit's name for one of its tests; None for anybody else's."""
    from onnxplug_testkit.kit import generated_test, trial_test

    for key, value in _parameters(item).items():
        if key == "kit_trial":
            return trial_test(value)
        if key == "kit_generated":
            return generated_test(value)
        return str(value if key == "kit_claim" else value.id if key == "kit_group" else value.name)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Verdicts are the ledger's: a skip must name a capability, a waived failure is expected, a waived pass a failure."""
    report = yield
    kit = kit_of(item.config)
    name = _name(item) if kit is not None else None
    if kit is None or name is None or (call.when != "call" and report.passed):
        return report
    from onnxplug_testkit.check import Unsupported

    error = call.excinfo.value if call.excinfo is not None else None
    entry = kit.settle(name, error, report.duration)
    if entry.status in ("unsupported", "waived") and isinstance(error, Unsupported):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {entry.detail}")
    elif entry.status == "expected":
        report.outcome, report.wasxfail = "skipped", entry.detail
    elif entry.status == "failed":
        report.outcome = "failed"
        if error is None or isinstance(error, AssertionError | Unsupported | pytest.skip.Exception):
            report.longrepr = f"{name}: {entry.detail}"
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    kit = kit_of(session.config)
    if kit is None or exitstatus in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
        return
    kit.finish()
    verdict = kit.ledger.verdict()
    paths = session.config.getoption("--report")
    if paths:
        from onnxplug_testkit.render import save
        from onnxplug_testkit.report import build, write

        data = build(kit, list(session.config.invocation_params.args))
        for path in paths:
            (write if path.suffix == ".json" else save)(data, path)
    if verdict == "not_run":
        session.exitstatus = NOT_RUN
    elif verdict == "failed":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif verdict == "partial" and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = PARTIAL


def pytest_report_header(config: pytest.Config) -> str | None:
    kit = kit_of(config)
    if kit is None:
        return None
    profile = f", profile {kit.profile}" if kit.profile is not None else ""
    return f"onnxplug conformance: {kit.subject.name}, level {kit.level}{profile}, seed {kit.seed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    kit = kit_of(config)
    if kit is None:
        return
    from onnxplug_testkit.report import summary

    terminalreporter.section("onnxplug conformance")
    for line in summary(kit):
        terminalreporter.line(line)
