"""The end of what a session is made of."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from onnxplug.plugins import ProviderInstance
from onnxplug.session.hooks import close
from onnxplug.session.pipeline import Built
from onnxplug.session.selection import Selection

if TYPE_CHECKING:
    from onnxplug.contract.logs import Logger


class Lifetime:
    """Ends a built session: by ``end``, or when the last of those who hold this object goes: the session, its runs, and the
    device values it gave out."""

    __slots__ = ("__weakref__", "_finish")

    def __init__(self, built: Built, selection: Selection, log: Logger) -> None:
        self._finish = weakref.finalize(self, _finish, built, selection.instances, log)

    def abandon(self) -> None:
        """Leave everything as it is when the process exits: it belongs to another one."""
        self._finish.atexit = False

    def end(self) -> None:
        """Give every buffer back and close the providers. Raises what the first provider that fails raised."""
        failures = self._finish()
        if failures:
            raise failures[0]


def _finish(built: Built, instances: Iterable[ProviderInstance], log: Logger) -> list[Exception]:
    built.runner.release()
    failures: list[Exception] = []
    try:
        built.runtime.close()
    except Exception as error:
        log.error("%s", error)
        failures.append(error)
    return failures + close(instances, log)
