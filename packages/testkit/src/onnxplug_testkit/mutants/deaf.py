"""L1 and L4: mutants that are told something and do not listen."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, Region, RunContext, SessionContext, option
from onnxplug_ep_reference.device import device
from onnxplug_ep_reference.memory import SimAllocator
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject
from onnxplug_testkit.mutants.compiling import Compiling
from onnxplug_testkit.subject import Subject


@dataclass(frozen=True)
class _Promising(ReferenceOptions):
    lanes: int = option(4, "how many elements are computed at once")


@mutant("robust.options_are_asked_for")
def never_asks() -> Subject:
    """Documents an option that it never reads."""
    return subject(options=_Promising)


class _OneWay(ReferenceProvider):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        told = options.arena_extend_strategy
        context.log.debug("the arena was to grow by %s", told)
        super().__init__(ReferenceOptions(options.device_id, options.memory, options.mem_limit), context)


@mutant("memory.arena_grows_as_asked")
def grows_its_own_way() -> Subject:
    """Reads how the arena is to grow, and has it grow by powers of two."""
    return subject(_OneWay)


class _Settled(ReferenceProvider):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        device(options.device_id)
        super().__init__(dataclasses.replace(options, device_id=0), context)


@mutant("contract.devices")
def works_on_the_first() -> Subject:
    """Refuses devices that are not there and uses the first whichever it is told."""
    return subject(_Settled)


@dataclass(frozen=True)
class _Hasty(ReferenceOptions):
    fast: bool = option(False, "arithmetic in half precision")


class _Halved(CompiledRegion):
    def __init__(self, region: CompiledRegion) -> None:
        self._region = region

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        halves = self._region(context, *inputs)
        return [x.astype(np.float16).astype(x.dtype) if x.dtype == np.float32 else x for x in halves]


class _Keeping(Compiling):
    kept: dict[str, CompiledRegion] = {}  # noqa: RUF012  shared by all sessions, which is what is wrong with it

    def __init__(self, options: _Hasty, context: SessionContext) -> None:
        super().__init__(options, context)
        self._fast = options.fast

    def compile(self, regions: Sequence[Region]) -> Sequence[CompiledRegion]:
        made = [_Halved(each) if self._fast else each for each in super().compile(regions)]
        return [self.kept.setdefault(r.key(), m) for r, m in zip(regions, made, strict=True)]


@mutant("robust.options_are_apart")
def keeps_what_was_made_in_haste() -> Subject:
    """Keeps compiled regions by their content, whatever the options were, of which one trades precision."""
    _Keeping.kept.clear()
    return subject(_Keeping, HOST, options=_Hasty)


class _Falsy(SimAllocator):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.arena = dataclasses.replace(self.arena, limit=self.arena.limit or None)


class _Unbounded(ReferenceProvider):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        assert self.allocator is not None
        self.allocator = _Falsy(self.allocator.device, self.allocator.arena)


@mutant("memory.limit_of_nothing")
def takes_zero_for_no_limit() -> Subject:
    """Asks whether there is a limit by its truth, so that one of no bytes is none."""
    return subject(_Unbounded)
