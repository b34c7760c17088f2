"""Fixtures of the core's tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from core_plugins import install as install
from core_plugins import registered as registered
from core_plugins import site as site
from core_sessions import REFERENCE, X, on_device, session

from onnxplug_ep_reference.memory import live_buffers


@pytest.fixture(params=["onnxplug", "onnxruntime"])
def ort(request: pytest.FixtureRequest) -> Iterator[Any]:
    """This package, and where it is installed the one it has to agree with."""
    engine = pytest.importorskip(request.param)
    engine.set_default_logger_severity(4)
    yield engine
    engine.set_default_logger_severity(2)


@pytest.fixture
def only_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """No provider but a CPU's, as in onnxruntime's plain build."""
    monkeypatch.setattr("onnxplug.plugins.registry.available_providers", lambda: [])


@pytest.fixture
def simulated() -> Iterator[Any]:
    """A session over the reference provider's simulated memory, and that nothing of it stays there."""
    on_device(X)  # takes a region for the whole process
    gc.collect()
    before = len(live_buffers())
    made = session(providers=[REFERENCE])
    yield made
    made.close()
    gc.collect()
    assert len(live_buffers()) == before
