"""What may not happen while work is recorded as a CUDA graph."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cupy", reason="capability: CuPy (cupy is not installed)")
pytest.importorskip("cudnn", reason="capability: cuDNN (nvidia-cudnn-frontend is not installed)")

from onnxplug_ep_cuda.dnn.plans import Planner
from onnxplug_ep_cuda.dnn.session import DnnSession


def test_no_plan_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the times would end the recording."""
    asked: list[tuple[str, bool]] = []
    monkeypatch.setattr(Planner, "plan", lambda self, problem: asked.append((self.search, self.time is None)))
    session: Any = DnnSession.__new__(DnnSession)
    session._queue = SimpleNamespace(capturing=False, inside=nullcontext)
    session._lock, session._plans = threading.RLock(), {}
    session._convolutions = Planner("EXHAUSTIVE", True, True, {}, "a device", lambda *_: 1.0)
    for recorded in (False, True):
        session._queue.capturing = recorded
        session.convolution(f"problem {recorded}")
    assert asked == [("EXHAUSTIVE", False), ("HEURISTIC", True)]
