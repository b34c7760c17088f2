"""Calls of providers' hooks by a session, outside of placement: what they raise arrives as the surface's errors and names the
provider."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from onnxplug.contract.errors import EPFail, Fail
from onnxplug.contract.memory import Allocator, AllocatorStats, Buffer, DataTransfer, Device
from onnxplug.plugins import ProviderInstance

if TYPE_CHECKING:
    from onnxplug.contract.logs import Logger


def guarded(instance: ProviderInstance, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """``method`` with its exceptions as the surface has them; an EPFail is told whose it is."""

    def call(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except BaseException as error:
            failure = instance.failure(hook, error)
            if isinstance(failure, EPFail) and not hasattr(failure, "provider"):
                failure.provider = instance.name
            if failure is error:
                raise
            raise failure from error

    return call


def hook(instance: ProviderInstance, name: str) -> Callable[..., Any] | None:
    """The guarded method of a hook that the provider implements itself, else None."""
    method = instance.method(name) if instance.supports(name) else None
    return None if method is None else guarded(instance, name, method)


def hooks(instances: Iterable[ProviderInstance], name: str) -> list[Callable[..., Any]]:
    """The guarded methods of the providers that implement a hook."""
    return [method for i in instances if (method := hook(i, name)) is not None]


class GuardedAllocator(Allocator):
    """A provider's allocator, guarded. MemoryError passes: an arena then asks for less."""

    def __init__(self, instance: ProviderInstance, raw: Allocator) -> None:
        self.device, self.alignment, self.max_allocation, self.arena = (
            raw.device, raw.alignment, raw.max_allocation, raw.arena,
        )  # fmt: skip
        self._provider, self._raw = instance.name, raw
        self._allocate = guarded(instance, "allocate of its allocator", self._fresh)
        self._free = guarded(instance, "free of its allocator", raw.free)

    def allocate(self, nbytes: int) -> Buffer:
        made = self._allocate(nbytes)
        if isinstance(made, MemoryError):
            raise made
        if not isinstance(made, Buffer) or made.nbytes < nbytes:
            raise Fail(
                f"{self._provider}: allocate of its allocator must give a Buffer of {nbytes} bytes, it gave {made!r}"
            )
        return made

    def free(self, buffer: Buffer) -> None:
        self._free(buffer)

    def stats(self) -> AllocatorStats:
        return self._raw.stats()

    def _fresh(self, nbytes: int) -> Any:
        try:
            return self._raw.allocate(nbytes)
        except MemoryError as error:
            return error


class GuardedTransfer(DataTransfer):
    """A provider's transfer, guarded."""

    def __init__(self, instance: ProviderInstance, transfer: DataTransfer) -> None:
        self._copy = guarded(instance, "the copy of its data transfer", transfer.copy)
        self._can_copy = guarded(instance, "can_copy of its data transfer", transfer.can_copy)

    def can_copy(self, source: Device, destination: Device) -> bool:
        return bool(self._can_copy(source, destination))

    def copy(self, source: Any, destination: Any, stream: Any = None) -> None:
        self._copy(source, destination, stream)


def close(instances: Iterable[ProviderInstance], log: Logger) -> list[Exception]:
    """Close every provider, whatever the others do; failures are logged and returned."""
    failures = []
    for instance in instances:
        try:
            instance.call("close")
        except Exception as error:
            log.error("%s", error)
            failures.append(error)
    return failures
