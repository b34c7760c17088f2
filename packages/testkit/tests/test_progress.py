"""The bar on terminals."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from onnxplug_testkit.progress import Progress


def report(when: str, outcome: str = "passed") -> Any:
    return SimpleNamespace(
        when=when,
        outcome=outcome,
        passed=outcome == "passed",
        failed=outcome == "failed",
        nodeid="suite/test_kit.py::test_trial[Add-14]",
    )


def test_a_bar_counts_tests_and_failures() -> None:
    stream = io.StringIO()
    bar = Progress(stream)
    bar.pytest_collection_finish(SimpleNamespace(items=[1, 2]))  # type: ignore[arg-type]
    for outcome in ("passed", "failed"):
        for when in ("setup", "call", "teardown"):
            bar.pytest_runtest_logreport(report(when, outcome if when == "call" else "passed"))
    assert "100% 2/2, 1 failed" in stream.getvalue() and "Add-14" in stream.getvalue()
    assert bar.pytest_report_teststatus(report("call", "failed")) == ("failed", "", "")
    assert bar.pytest_report_teststatus(report("setup")) == ("", "", "")


def test_it_says_how_long_it_will_take() -> None:
    bar = Progress(io.StringIO())
    bar.pytest_collection_finish(SimpleNamespace(items=[1, 2, 3, 4]))  # type: ignore[arg-type]
    bar.pytest_runtest_logreport(report("teardown"))
    assert bar.line(30, "Add-14") == "[######..................]  25% 1/4, 1:30 left  Add-14"
