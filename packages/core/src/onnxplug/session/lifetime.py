"""The end of what a session is made of, and providers' hooks at the edges of its life and its runs."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from onnxplug.contract.errors import EPFail
from onnxplug.plugins import ProviderInstance
from onnxplug.session.pipeline import Built
from onnxplug.session.selection import Selection, close


class Lifetime:
    """Ends a built session: by ``end``, or when the last of those who hold this object goes: the session, its runs, and the
    device values it gave out."""

    __slots__ = ("__weakref__", "_finish")

    def __init__(self, built: Built, selection: Selection, log: logging.Logger) -> None:
        self._finish = weakref.finalize(self, _finish, built, selection.instances, log)

    def end(self) -> None:
        """Give every buffer back and close the providers. Raises what the first provider that fails raised."""
        failures = self._finish()
        if failures:
            raise failures[0]


def _finish(built: Built, instances: Iterable[ProviderInstance], log: logging.Logger) -> list[Exception]:
    built.runner.release()
    built.runtime.close()
    return close(instances, log)


def edge_hooks(instances: Iterable[ProviderInstance], hook: str) -> list[Callable[..., Any]]:
    """Methods of the providers that implement ``hook``; what they raise arrives as the surface's errors, naming the provider."""
    return [_guarded(i, hook, method) for i in instances if i.supports(hook) and (method := i.method(hook))]


def _guarded(instance: ProviderInstance, hook: str, method: Callable[..., Any]) -> Callable[..., Any]:
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
