"""The fast core of ``nox -s conformance``, ``opencl`` and ``openvino``: every check but the kernels', and the trials of a few operators."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from onnxplug.contract import Unavailable
from onnxplug_testkit.check import Check, Unsupported, checks
from onnxplug_testkit.checks import graph, leaks, patterns
from onnxplug_testkit.kernels.plan import plan
from onnxplug_testkit.kit import Kit
from onnxplug_testkit.mutants.page import conformance_page
from onnxplug_testkit.subject import Subject, resolve
from onnxplug_testkit.waivers import read

PROVIDERS = ("cpu", "reference", "opencl", "onnxruntime", "openvino")
OPERATORS = {"Conv", "Gather", "LayerNormalization", "MatMul", "Softmax"}
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "conformance.md"
SEED = 1


@pytest.fixture(autouse=True)
def few_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leak shows in fewer sessions than the kit makes."""
    monkeypatch.setattr(leaks, "SESSIONS", 25)


@pytest.fixture
def subject(ep: str, monkeypatch: pytest.MonkeyPatch) -> Subject:
    """A provider as its ``conformance.toml`` says, which holds it to the highest level; skipped without a device."""
    found = _subject(ep)
    answer = found.spec.check()
    if isinstance(answer, Unavailable):
        pytest.skip(answer.reason)
    if ep in ("opencl", "onnxruntime", "openvino"):  # which compile for long what each random graph needs
        monkeypatch.setattr(graph, "GRAPHS", 2)
        monkeypatch.setattr(patterns, "EVERY", 8)
    return found


@functools.cache
def _subject(ep: str) -> Subject:
    settings = read(ROOT / "packages" / f"ep-{ep}" / "conformance.toml")
    assert settings.level == "robust" and not settings.waivers
    return resolve(settings.ep, settings.options, settings.limit_option)


@pytest.mark.parametrize("ep", PROVIDERS)
@pytest.mark.parametrize("check", checks().values(), ids=lambda check: check.name)
def test_check(subject: Subject, check: Check) -> None:
    try:
        check(subject, SEED)
    except Unsupported as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("ep", PROVIDERS)
def test_trials(subject: Subject) -> None:
    kit = Kit(subject, "kernels", SEED)
    made = plan(subject, OPERATORS)
    newest = {
        t.target.key[1]: max(u.target.key[2] for u in made.trials if u.target.key[1] == t.target.key[1])
        for t in made.trials
    }
    tried = [t for t in made.trials if not t.target.key[0] and t.target.key[2] == newest[t.target.key[1]]]
    for test, run in [(t, kit.try_out) for t in tried] + [(g, kit.try_generated) for g in made.generated[-3:]]:
        try:
            run(test)
        except Unsupported:
            continue
    assert {entry.status for entry in kit.ledger.cells.values()} == {"proven"}


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == conformance_page(), (
        "onnxplug-testkit mutants --page > docs/reference/conformance.md"
    )
