"""L1 and L4: mutants that are told something and do not listen."""

from __future__ import annotations

from dataclasses import dataclass

from onnxplug.contract import SessionContext, option
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import subject
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
