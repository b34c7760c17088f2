"""That an option is read is seen wherever it is read; one that is never read is told by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from onnxplug.contract import CompiledRegion, Region, SessionContext, option
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_testkit.check import CheckFailed, checks
from onnxplug_testkit.mutants.base import subject
from onnxplug_testkit.mutants.compiling import Compiling

asked_for = checks()["robust.options_are_asked_for"]


@dataclass(frozen=True, slots=True)
class _Options:
    depth: int = option(1, "how deep to look into products, in one mode only")
    deep: bool = option(False, "that mode")
    stream: int = option(0, "address of a stream")
    old: int = option(0, "accepted; nothing is done with it", idle=True)

    def levels(self) -> int:
        return self.depth + 1


class _Late(Compiling):
    def __init__(self, options: _Options, context: SessionContext) -> None:
        super().__init__(ReferenceOptions(memory="host"), context)
        assert isinstance(options, _Options) and options.__class__ is _Options
        self._options = options

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        if self._options.deep and any(n.op_type == "MatMul" for region in regions for n in region.graph.nodes):
            assert self._options.levels() > 1
        return super().compile(regions)


class _Deaf(_Late):
    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        return Compiling.compile(self, regions)


def test_options_may_be_read_late_and_idle_ones_not_at_all() -> None:
    asked_for(subject(_Late, options=_Options))  # type: ignore[arg-type]


def test_what_no_session_reads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxplug_testkit.checks.asked._operators", lambda subject: ["MatMul"])
    with pytest.raises(CheckFailed, match="option depth, deep is never read"):
        asked_for(subject(_Deaf, options=_Options))  # type: ignore[arg-type]
