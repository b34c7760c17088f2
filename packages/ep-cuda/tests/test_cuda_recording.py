"""What may not happen while work is recorded as a CUDA graph, or cuDNN's plans are looked for."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cupy", reason="capability: CuPy (cupy is not installed)")
pytest.importorskip("cudnn", reason="capability: cuDNN (nvidia-cudnn-frontend is not installed)")

from onnxplug.contract import EPFail
from onnxplug_ep_cuda.dnn.plans import NoPlan, Planner
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


def test_a_plan_that_breaks_the_device_is_not_only_out_of_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy.cuda import runtime

    from onnxplug_ep_cuda.dnn import session as module

    class Broken:
        """An event of a device that is lost."""

        def record(self, stream: Any) -> None:
            error: Exception = runtime.CUDARuntimeError.__new__(runtime.CUDARuntimeError, 700)
            raise error

    array = SimpleNamespace(data=SimpleNamespace(ptr=0))
    fake = SimpleNamespace(
        zeros=lambda *_: array, empty=lambda *_: array, float32=None, uint8=None, cuda=SimpleNamespace(Event=Broken)
    )
    monkeypatch.setattr(module, "cupy", fake)
    session: Any = DnnSession.__new__(DnnSession)
    session._queue, session._handle = SimpleNamespace(compute=None), None
    graph = SimpleNamespace(get_workspace_size_plan_at_index=lambda index: 0)
    with pytest.raises(EPFail, match="CUDA reports"):
        session._time(SimpleNamespace(sizes=dict), graph, 0)


def test_a_refusal_without_words_is_no_error_of_its_own() -> None:
    class Silent:
        dtype = "float32"

        def graph(self, **place: Any) -> Any:
            raise RuntimeError

    with pytest.raises(NoPlan, match="RuntimeError"):
        Planner("HEURISTIC", True, True, {}, "a device").plan(Silent())
