"""For all tests: no session takes a graph from disk that an earlier one left there, so that each test runs what it is about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def nothing_recalled() -> Iterator[None]:
    """Other processes that a test starts do recall graphs (see ``packages/core/tests/test_recall.py``)."""
    from onnxplug.session import pipeline

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "shelf", lambda *_: None)
        yield
