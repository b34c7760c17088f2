"""For all tests: no session takes a graph from disk that an earlier one left there, so that each test runs what it is about."""

from __future__ import annotations

import pytest

_patch = pytest.MonkeyPatch()


def pytest_sessionstart() -> None:
    """Other processes that a test starts do recall graphs (see ``packages/core/tests/test_recall.py``). Nothing is patched later: the kit
    looks whether the code it judges by is what it was when tests were collected."""
    from onnxplug.session import pipeline

    _patch.setattr(pipeline, "shelf", lambda *_: None)


def pytest_sessionfinish() -> None:
    _patch.undo()
