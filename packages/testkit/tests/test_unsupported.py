"""What the checks say where a provider lacks what they need."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug.contract import Device, Fail
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit import models
from onnxplug_testkit.check import Unsupported, checks
from onnxplug_testkit.mutants.base import subject


class _Streaming(ReferenceProvider):
    def create_stream(self, device: Device) -> Any:
        return object()


def test_streams_without_sync_cannot_be_judged() -> None:
    with pytest.raises(Unsupported, match=r"streams is not there \(there is no sync"):
        checks()["memory.stream_copies"](subject(_Streaming))


def test_every_refusal_of_a_session_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(subject: Any, made: Any) -> Any:
        raise Fail(f"no {made.graph.node[0].op_type}")

    monkeypatch.setattr(models, "open_strictly", refuse)
    with pytest.raises(AssertionError, match=r"no session can be made: .*no Relu; .*no Sub$"):
        models.taken(subject())
