"""For all tests: no session takes a graph from disk that an earlier one left there, so that each test runs what it is about; and
examples that Hypothesis draws are the same in every run, however long they take (``--hypothesis-profile explore`` draws others)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# too_slow: other processes on the machine decide how fast examples are drawn; deadline: a first example pays for imports
_slow = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("onnxplug", _slow, derandomize=True)
settings.register_profile("explore", _slow, derandomize=False, print_blob=True)
settings.load_profile("onnxplug")

_patch = pytest.MonkeyPatch()


def pytest_sessionstart() -> None:
    """Other processes that a test starts do recall graphs (see ``packages/core/tests/test_recall.py``). Nothing is patched later: the kit
    looks whether the code it judges by is what it was when tests were collected."""
    from onnxplug.session import pipeline

    _patch.setattr(pipeline, "shelf", lambda *_: None)


def pytest_sessionfinish() -> None:
    _patch.undo()
