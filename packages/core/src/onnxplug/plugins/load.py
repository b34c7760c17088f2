"""Loading one plugin, isolated: import, announce, handshake, check. Whatever goes wrong ends in its record and nowhere
else."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING

from onnxplug.contract.options import parse_options
from onnxplug.contract.provider import CONTRACT_VERSION, Available, ProviderSpec, Unavailable
from onnxplug.plugins import manager, observers
from onnxplug.plugins.bounded import TooSlow, bounded
from onnxplug.plugins.installed import Reference
from onnxplug.plugins.record import PluginRecord, Stage, describe
from onnxplug.plugins.switches import logger

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Plugin:
    """One claim of a provider's name: its record, where its code is, and its spec once announced."""

    def __init__(
        self, record: PluginRecord, entry_point: EntryPoint | Reference | None = None, spec: ProviderSpec | None = None
    ) -> None:
        self.record, self.spec = record, spec
        self._entry_point = entry_point
        self._lock = threading.Lock()

    def load(self, limit: float | None) -> PluginRecord:
        """Decide whether the provider can be used; imports its front door if that has not happened.

        ``limit``: seconds per stage. A front door that asks for itself while it is being loaded sees "discovered".
        """
        if self in _in_progress.get():
            return self.record
        with self._lock:
            if self.record.state == "discovered":
                token = _in_progress.set((*_in_progress.get(), self))
                try:
                    self._load(limit)
                finally:
                    _in_progress.reset(token)
        return self.record

    def _load(self, limit: float | None) -> None:
        name = self.record.provider
        stage: Stage = "import"
        started = time.perf_counter()
        try:
            if self.spec is None:
                assert self._entry_point is not None
                plugin = bounded(self._entry_point.load, limit)
                self._reached(stage, started)
                self.record = replace(self.record, import_seconds=time.perf_counter() - started)
                stage, started = "announce", time.perf_counter()
                self.spec = bounded(lambda: announced(plugin, name), limit)
                self._reached(stage, started)
            stage, started = "handshake", time.perf_counter()
            if (mismatch := contract_mismatch(self.spec, self.record.distribution)) is not None:
                self.record = replace(self.record, state="outdated", stage=stage, error=mismatch[0], fix=mismatch[1])
                logger.info("%s", self.record)
                return
            validate(self.spec)
            stage, started = "check", time.perf_counter()
            answer = bounded(self.spec.check, limit)
            self._reached(stage, started)
            self._answered(answer)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if stage == "import" and not isinstance(error, TooSlow):
                self.record = replace(self.record, import_seconds=time.perf_counter() - started)
            text = f"{stage} {error}" if isinstance(error, TooSlow) else describe(error)
            self.record = replace(self.record, state="broken", stage=stage, error=text, fix=self._fix(stage, error))
            logger.info("%s", self.record, exc_info=error)

    def _answered(self, answer: object) -> None:
        if isinstance(answer, Available):
            self.record = replace(self.record, state="available", stage="check", detail=str(answer.detail))
        elif isinstance(answer, Unavailable):
            reason, fix = str(answer.reason), str(answer.fix)
            self.record = replace(self.record, state="unavailable", stage="check", error=reason, fix=fix)
        else:
            raise TypeError(f"check() returned a {type(answer).__name__}, not Available or Unavailable")

    def _fix(self, stage: Stage, error: BaseException) -> str:
        owner = self.record.distribution
        if not owner:
            return "correct the spec given to register_provider"
        if isinstance(error, TooSlow):
            return f"raise ONNXPLUG_IMPORT_TIMEOUT, or switch it off: ONNXPLUG_DISABLE={self.record.provider}"
        if isinstance(error, ImportError) and (error.name or "").startswith("onnxplug"):
            return f"upgrade the older one of onnxplug and {owner}: pip install --upgrade onnxplug {owner}"
        if isinstance(error, ModuleNotFoundError) and error.name:
            return (
                f"the module '{error.name}' is missing; install {owner}'s dependencies: pip install --upgrade {owner}"
            )
        if stage == "announce":
            return f"a fault of {owner}: upgrade it or tell its maintainers"
        return f"upgrade {owner}: pip install --upgrade {owner}; ONNXPLUG_TRACE=1 shows the traceback"

    def _reached(self, stage: Stage, started: float) -> None:
        logger.info("%s: %s took %.1f ms", self.record.provider, stage, (time.perf_counter() - started) * 1e3)


_in_progress: ContextVar[tuple[Plugin, ...]] = ContextVar("onnxplug plugins being loaded", default=())


def announced(plugin: object, name: str) -> ProviderSpec:
    """The spec called ``name`` among those that ``plugin`` alone announces. TypeError, LookupError or
    PluginValidationError."""
    manager.register(plugin)
    observers.forget()
    mine = [i for i in manager.process_manager().implementations("onnxplug_provider") if i.plugin is plugin]
    if not mine:
        named = getattr(plugin, "__name__", type(plugin).__name__)
        raise LookupError(f"{named} (the entry point's value) is not a module with a function onnxplug_provider")
    answer = mine[0].function()
    specs = [answer] if isinstance(answer, ProviderSpec) else list(answer) if isinstance(answer, Sequence) else None
    if specs is None or not all(isinstance(spec, ProviderSpec) for spec in specs):
        raise TypeError(f"onnxplug_provider() returned a {type(answer).__name__}, not a ProviderSpec or a list of them")
    matches = [spec for spec in specs if spec.name == name]
    if len(matches) != 1:
        names = ", ".join(str(spec.name) for spec in specs) or "nothing"
        raise LookupError(f"the entry point is called {name}, onnxplug_provider() announces {names}")
    return matches[0]


def contract_mismatch(
    spec: ProviderSpec, distribution: str, ours: tuple[int, int] = CONTRACT_VERSION
) -> tuple[str, str] | None:
    """What is wrong with the contract a provider was written for, and the side to upgrade; None when it fits ``ours``.

    While a major is 0 the versions must be equal; from 1.0 on the majors must be, and the provider's minor not above
    ours.
    """
    theirs = spec.contract
    if not (isinstance(theirs, tuple) and len(theirs) == 2 and all(isinstance(part, int) for part in theirs)):
        raise TypeError(f"ProviderSpec.contract is {theirs!r}, not a pair of whole numbers")
    fits = theirs == ours if 0 in (theirs[0], ours[0]) else theirs[0] == ours[0] and theirs[1] <= ours[1]
    if fits:
        return None
    older = "onnxplug" if theirs > ours else distribution or "the provider"
    text = "it is written for contract {}.{}, this onnxplug has contract {}.{}".format(*theirs, *ours)
    return text, f"upgrade {older}" + (f": pip install --upgrade {older}" if " " not in older else "")


def validate(spec: ProviderSpec) -> None:
    """TypeError for the first field of a spec that is not what the contract says."""
    for field in ("name", "device_kind", "vendor"):
        if not isinstance(getattr(spec, field), str):
            raise TypeError(f"ProviderSpec.{field} is {getattr(spec, field)!r}, not a string")
    if not spec.name:
        raise TypeError("ProviderSpec.name is empty")
    for field in ("create", "check", "devices"):
        if not callable(getattr(spec, field)):
            raise TypeError(f"ProviderSpec.{field} is {getattr(spec, field)!r}, not callable")
    if not (isinstance(spec.options, type) and is_dataclass(spec.options)):
        raise TypeError(f"ProviderSpec.options is {spec.options!r}, not a dataclass")
    try:
        parse_options(spec.options, {})
    except Exception as error:
        raise TypeError(
            f"{spec.options.__name__} (ProviderSpec.options) cannot be made from its defaults: {describe(error)}"
        ) from error
