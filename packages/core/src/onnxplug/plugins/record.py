"""What is known of one plugin, as data: ``get_available_providers()``, session errors and ``onnxplug doctor`` all
render this."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from onnxplug.contract.records import record

State = Literal["discovered", "disabled", "clashing", "broken", "outdated", "unavailable", "available"]
Stage = Literal["discover", "import", "announce", "handshake", "check"]


@record(frozen=True, slots=True)
class PluginRecord:
    """One claim of one name by one distribution.

    ``provider`` is the entry point's key, the provider's full name (empty when the distribution's metadata cannot be
    read); for ``kind`` "observer" the observer's name. ``distribution`` is empty for what was registered in process.
    ``requires`` is what the distribution says it needs ("numpy>=2.1"). ``stage`` is how far it came; unless ``state`` is
    "discovered" or "available", ``error`` says why it cannot be used and ``fix`` what to do about it.
    """

    provider: str
    distribution: str = ""
    version: str = ""
    entry_point: str = ""
    state: State = "discovered"
    stage: Stage = "discover"
    error: str = ""
    fix: str = ""
    detail: str = ""
    import_seconds: float | None = None
    kind: Literal["provider", "observer"] = "provider"
    requires: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Where it comes from: distribution and version."""
        return f"{self.distribution} {self.version}".strip() or "registered in process"

    @property
    def usable(self) -> bool:
        """Whether sessions can use it."""
        return self.state == "available"

    def to_dict(self) -> dict[str, Any]:
        """The fields, fit for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        state = f"broken at {self.stage}" if self.state == "broken" else self.state
        line = f"{self.provider or 'a plugin'} ({self.source}) is {state}"
        if self.detail:
            line += f" ({self.detail})"
        if self.error:
            line += f": {self.error.rstrip('.')}"
        if self.fix:
            line += f". To fix: {self.fix}"
        return " ".join(line.split())


class ProviderLookupError(LookupError):
    """A name does not lead to a provider that can be used. ``record`` is what is known of it, None when nothing is."""

    def __init__(self, name: str, text: str, record: PluginRecord | None = None) -> None:
        super().__init__(text)
        self.name, self.record = name, record


def describe(error: BaseException) -> str:
    """``Type: message``, also for an exception whose own ``__str__`` raises."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be read)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
