"""What other people in the process do is not put down to the provider."""

from __future__ import annotations

import builtins
import contextlib
import datetime
import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from onnxplug.contract import CONTRACT_VERSION
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.check import CheckFailed, checks
from onnxplug_testkit.checks import surroundings
from onnxplug_testkit.kit import Kit
from onnxplug_testkit.mutants.base import subject
from onnxplug_testkit.subject import resolve
from onnxplug_testkit.waivers import Waiver

CONTRACT = ".".join(map(str, CONTRACT_VERSION))
LEFT_ALONE = checks()["robust.process_is_left_alone"]


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Another thread that draws random numbers and prints."""
    done = threading.Event()

    def act() -> None:
        while not done.wait(0.0005):
            random.random()
            print("from another thread")

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_the_environment_is_the_one_before_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/elsewhere")
    LEFT_ALONE(resolve("ref"))


def test_another_thread_is_not_the_provider() -> None:
    with busy():
        LEFT_ALONE(resolve("ref"))


class _Setting(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        os.environ["OMP_NUM_THREADS"] = "7"


def test_what_every_session_does_is_the_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    broken = subject(_Setting)
    broken.announce()
    with busy(), pytest.raises(CheckFailed, match=r"a session changes environment variables\n"):
        LEFT_ALONE(broken)
    assert os.environ["OMP_NUM_THREADS"] == "3"


class _Tiny(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        np.float32(1e-38) * np.float32(1e-38)


def test_an_underflow_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    tiny = subject(_Tiny)
    tiny.announce()
    LEFT_ALONE(tiny)
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def noted() -> None:
    """The code that judges is noted, as the kit does at its start."""
    surroundings.remember()


@pytest.mark.usefixtures("noted")
def test_replacements_that_are_not_the_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    from _pytest.assertion import util

    monkeypatch.setattr(builtins, "input", lambda *given: "")
    monkeypatch.setattr(util, "_reprcompare", None)
    assert surroundings.replacements() == []


@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("kind", ["expected_failure", None])
def test_code_replaced_during_the_run(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    waived = (
        {surroundings.CODE: Waiver(surroundings.CODE, kind, "known", "here", datetime.date.max, CONTRACT)}
        if kind
        else {}
    )
    made = Kit(resolve("ref"), "contract", waivers=waived)
    monkeypatch.setattr(np, "array_equal", lambda *given: True)
    made.finish()
    entry = made.ledger.tests[surroundings.CODE]
    assert entry.status == ("expected" if kind else "failed")
