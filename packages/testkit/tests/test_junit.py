"""The report as JUnit XML: counts, what never looks green, text that XML cannot hold."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from onnxplug_testkit.junit import junit


def report(*tests: tuple[str, str], verdict: str = "conformant", **changes: Any) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "provider": {"name": "AcmeExecutionProvider"},
        "distribution": {"name": "onnxplug-ep-acme", "version": "1.2.3"},
        "devices": {"check": "", "list": []},
        "machine": {"system": "Linux", "python": "3.12", "onnx": "1.22"},
        "contract": "0.1", "kit": "0.1.0", "level": "memory", "profile": None, "seed": 7, "command": [], "time": "", "not_run": "",
        "waiver_problems": [], "counts": {"cells": {}, "tests": {}, "not_selected": 0}, "cells": [],
        "tests": [{"id": i, "status": s, "detail": "why\nso \x00", "seconds": 0.25} for i, s in tests],
    } | changes  # fmt: skip


def counts(root: ElementTree.Element) -> tuple[int, ...]:
    return tuple(int(root.get(key, "")) for key in ("tests", "failures", "errors", "skipped"))


def test_statuses() -> None:
    tests = [
        ("contract.handshake", "passed"), ("memory.alignment", "failed"), ("memory.sizes", "unsupported"),
        ("memory.zero_size", "waived"), ("memory.double_free", "expected"),
    ]  # fmt: skip
    root = ElementTree.fromstring(junit(report(*tests, verdict="failed")))
    assert [s.get("name") for s in root] == ["contract", "memory", "run"]
    assert counts(root) == (6, 2, 0, 3)
    failure = root.find("testsuite[@name='memory']/testcase[@name='alignment']/failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("why", "why\nso \N{REPLACEMENT CHARACTER}")
    (handshake,) = root.findall("testsuite[@name='contract']/testcase")
    assert (handshake.get("classname"), handshake.get("time")) == ("onnxplug.contract", "0.2500")


def test_conformant_is_green() -> None:
    root = ElementTree.fromstring(junit(report(("contract.handshake", "passed"))))
    assert counts(root) == (2, 0, 0, 0)
    assert root.find("testsuite[@name='run']/properties/property[@name='verdict'][@value='conformant']") is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "not_run", "not_run": "no such board"},
        {"verdict": "partial", "counts": {"cells": {}, "tests": {}, "not_selected": 3}},
        {"verdict": "failed", "waiver_problems": ["the waiver of memory.x expired on 2020-01-01"]},
        {"verdict": "failed"},
    ],
)
def test_what_is_not_whole_is_not_green(changes: dict[str, Any]) -> None:
    _, failures, errors, _ = counts(ElementTree.fromstring(junit(report(**changes))))
    assert failures + errors > 0
