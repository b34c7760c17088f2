"""Checks: named functions of a subject, with the level they belong to.

A check raises ``CheckFailed`` when the contract is broken and ``Unsupported``, which names a capability, when the subject
does not offer what it is about. Status errors of sessions that it does not expect are stated as its failure; what else it raises
counts as a failure too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.levels import LEVELS

if TYPE_CHECKING:
    from onnxplug_testkit.subject import Subject

CAPABILITIES = {
    "claimed": "get_capability takes the node; it may decline one, with a reason",
    "oracle": "some oracle computes the node",
    "allocator": "the provider brings an allocator of its own",
    "device_memory": "the provider has memory that is not the host's",
    "device_to_device": "its data transfer copies within the device",
    "distribution": "it comes from an installed distribution, not from register_provider()",
    "exports": "what it compiles can be exported",
    "fork": "the operating system has fork()",
    "fused_regions": "get_capability claims nodes as regions",
    "host_address": "native arrays show the address of their bytes",
    "lent_memory": "its allocator takes memory of an application by its address",
    "memory_limit": "a provider option bounds its memory",
    "max_allocation": "its allocator states a largest block",
    "options": "it has options that the check is about",
    "operators": "the registry has the operators the check is made of",
    "recordings": "it records the work of whole graphs and replays it",
    "streams": "it has queues of its own",
    "statistics": "its allocator keeps figures",
}
"""What a check may find missing, and what the word means. A skip for any other reason is a failure."""

_MODULES = (
    "contract",
    "door",
    "limits",
    "memory",
    "leaks",
    "transfer",
    "claims",
    "registered",
    "graph",
    "circumstances",
    "patterns",
    "edges",
    "loops",
    "fed",
    "kept",
    "recorded",
    "settings",
    "asked",
    "crossing",
    "robust",
    "faults",
    "malformed",
    "interrupts",
    "process",
    "apart",
    "surroundings",
)


class CheckFailed(AssertionError):
    """The contract is broken. ``check`` is the name of the check that says so, ``text`` what it says."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(f"{check}: {text}")
        self.check, self.text = check, text


class Unsupported(Exception):
    """The subject lacks a capability, which is legal."""

    def __init__(self, capability: str, text: str = "") -> None:
        if capability not in CAPABILITIES:
            raise ValueError(f"{capability} is not a capability the kit knows")
        super().__init__(f"{capability} is not there ({text or CAPABILITIES[capability]})")
        self.capability = capability


@dataclass(frozen=True, slots=True)
class Check:
    """A check. ``name`` is ``level.what``; ``text`` the rule it enforces."""

    name: str
    level: str
    text: str
    function: Callable[..., None]

    def __call__(self, subject: Subject, seed: int = 0) -> None:
        """Judge ``subject``; ``seed`` rules whatever data the check makes up. Failures that do not name a check get this one's name."""
        try:
            self.function(subject, seed)
        except AssertionError as error:
            if isinstance(error, CheckFailed):
                raise
            raise CheckFailed(self.name, str(error)) from error
        except STATUS_ERRORS as error:
            raise CheckFailed(self.name, f"a session fails: {error}") from error


_checks: dict[str, Check] = {}


def check(name: str) -> Callable[[Callable[[Any, int], None]], Callable[[Any, int], None]]:
    """Enter a function ``(subject, seed)`` as check ``level.what``; the first line of its docstring is the rule."""
    level = name.partition(".")[0]
    if level not in LEVELS:
        raise ValueError(f"{name} names no level")

    def enter(function: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        _checks[name] = Check(name, level, (function.__doc__ or "").strip().splitlines()[0], function)
        return function

    return enter


def checks() -> dict[str, Check]:
    """All checks by name, in the order of levels."""
    for module in _MODULES:
        importlib.import_module(f"onnxplug_testkit.checks.{module}")
    return dict(sorted(_checks.items(), key=lambda item: LEVELS.index(item[1].level)))


def fail(name: str, text: str) -> NoReturn:
    """Fail check ``name``, which may be an aspect of the one that runs."""
    raise CheckFailed(name, text)
