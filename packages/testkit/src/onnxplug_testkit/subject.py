"""The provider under test: its announcement, its options, and instances and sessions made of it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxplug.contract import Allocator, ProviderSpec, SessionContext
from onnxplug.plugins import ProviderInstance, create_instance, registry

LIMIT_OPTIONS = ("mem_limit", "memory_limit")
"""How options that bound a provider's memory end (``gpu_mem_limit``); ``limit_option`` of conformance.toml overrides them."""


@dataclass(frozen=True)
class Subject:
    """A provider and the options it is tested with.

    ``module``: the dotted name of its front door (empty when it was registered in process). ``distribution`` and ``version``
    say where it comes from. ``limit_option``: the option that bounds its memory; empty: it is known by its name.
    """

    spec: ProviderSpec
    options: Mapping[str, str] = field(default_factory=dict)
    module: str = ""
    distribution: str = ""
    version: str = ""
    limit_option: str = ""

    @property
    def name(self) -> str:
        """The provider's full name."""
        return self.spec.name

    @contextlib.contextmanager
    def instance(self, **options: str) -> Iterator[ProviderInstance]:
        """An instance outside any session, closed afterwards."""
        context = SessionContext(threads=1, config={}, log=logging.getLogger("onnxplug.testkit"))
        made = create_instance(self.spec, {**self.options, **options}, context)
        try:
            yield made
        except BaseException:
            # What failed is told, not that closing after it fails too.
            with contextlib.suppress(Exception):
                made.call("close")
            raise
        made.call("close")

    @contextlib.contextmanager
    def watched(self, watch: Callable[[Any], Any]) -> Iterator[None]:
        """Sessions opened meanwhile use ``watch(provider)`` in the place of each provider object that is created."""
        with self.created_by(lambda options, context: watch(self.spec.create(options, context))):
            yield

    @contextlib.contextmanager
    def created_by(self, create: Callable[[Any, SessionContext], Any]) -> Iterator[None]:
        """Sessions opened meanwhile have their provider objects of ``create(options, context)``."""
        registry.register_provider(dataclasses.replace(self.spec, create=create), replace=True)
        try:
            yield
        finally:
            self.restore()

    @contextlib.contextmanager
    def allocators(self) -> Iterator[list[Allocator]]:
        """A list of the allocators that sessions opened meanwhile are handed out."""
        noted: list[Allocator] = []

        def note(provider: Any) -> Any:
            create = provider.create_allocators

            def create_allocators() -> Sequence[Allocator]:
                made: Sequence[Allocator] = create()
                noted.extend(made)
                return made

            provider.create_allocators = create_allocators
            return provider

        with self.watched(note):
            yield noted

    def restore(self) -> None:
        """Undo what ``watched`` or ``announce`` registered; a provider that came in process stays."""
        if self.module:
            with contextlib.suppress(ValueError):
                registry.unregister_provider(self.name)
        else:
            self.announce()

    def announce(self) -> None:
        """Make the spec the one that sessions find under its name."""
        registry.register_provider(self.spec, replace=True)

    def limit(self) -> str | None:
        """The option that bounds the provider's memory, if it has one."""
        known = [f.name for f in dataclasses.fields(self.spec.options)]
        if self.limit_option:
            return self.limit_option if self.limit_option in known else None
        return next((name for name in known if name.endswith(LIMIT_OPTIONS)), None)


def resolve(name: str, options: Mapping[str, str] | None = None, limit_option: str = "") -> Subject:
    """The subject a user means by ``cpu`` or a full name. ProviderLookupError when no such provider can be loaded, ValueError for options
    that it does not have.

    A provider that is loaded but not usable on this machine is resolved all the same: that is the run's verdict to give.
    """
    full = registry.full_name(name)
    record = registry.record(full, load=True)
    spec = registry.announced_spec(full)
    if spec is None:
        spec = registry.spec(full)
    known = [f.name for f in dataclasses.fields(spec.options)]
    for what, name in (("limit_option", limit_option), *(("option", each) for each in options or ())):
        if name and name not in known:
            raise ValueError(f"{what} {name!r} is no option of {full}, which has {', '.join(known) or 'none'}")
    module = record.entry_point.partition(":")[0] if record is not None else ""
    distribution, version = (record.distribution, record.version) if record is not None else ("", "")
    return Subject(spec, dict(options or {}), module, distribution, version, limit_option)
