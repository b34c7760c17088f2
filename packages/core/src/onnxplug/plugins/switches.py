"""The environment switches, read before anything is imported, and the trace that one of them turns on.

* ``ONNXPLUG_PROVIDERS``: allow-list, comma separated, of ``Name`` or ``Name@distribution``; all others are disabled.
* ``ONNXPLUG_DISABLE``: names of providers or observers, or distributions, that are not used.
* ``ONNXPLUG_AUTOLOAD=0``: no discovery at all; only what is registered in process exists.
* ``ONNXPLUG_TRACE=1``: each step of discovery and loading, with its time and traceback, goes to stderr.
* ``ONNXPLUG_IMPORT_TIMEOUT``: seconds that a plugin's import may take (default 10; 0: no limit).

Providers are named in full or short (``cpu``), upper or lower case. The switches rule discovery, not
``register_provider``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from onnxplug.contract.logs import Log
from onnxplug.contract.records import record

logger = Log("onnxplug.plugins")
_DEFAULT_TIMEOUT = 10.0
_SUFFIX = "executionprovider"


@record(frozen=True, slots=True)
class Switches:
    """The switches of one environment. ``allow`` None: everything; ``import_timeout`` None: no limit."""

    allow: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()
    autoload: bool = True
    import_timeout: float | None = _DEFAULT_TIMEOUT

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Switches:
        """The switches in force; turns the trace on when asked to."""
        if environ.get("ONNXPLUG_TRACE", "0") not in ("", "0"):
            _trace_to_stderr()
        allow = _names(environ.get("ONNXPLUG_PROVIDERS", ""))
        return cls(
            allow=allow or None,
            disable=_names(environ.get("ONNXPLUG_DISABLE", "")),
            autoload=environ.get("ONNXPLUG_AUTOLOAD", "1") != "0",
            import_timeout=_timeout(environ.get("ONNXPLUG_IMPORT_TIMEOUT", "")),
        )

    def forbids(self, name: str, distribution: str) -> str | None:
        """Why discovery leaves out provider ``name`` of ``distribution``, or None when it does not."""
        if (reason := self.disables(name, distribution)) is not None:
            return reason
        if self.allow is not None and not any(_allows(entry, name, distribution) for entry in self.allow):
            return f"ONNXPLUG_PROVIDERS={','.join(self.allow)} does not name it"
        return None

    def disables(self, name: str, distribution: str) -> str | None:
        """The part of ``forbids`` that concerns observers as well."""
        for entry in self.disable:
            if short(entry) == short(name) or normalized(entry) == normalized(distribution):
                return f"disabled by ONNXPLUG_DISABLE={','.join(self.disable)}"
        return None


def short(name: str) -> str:
    """The name that command lines take: ``CPUExecutionProvider`` -> ``cpu``."""
    return name.casefold().removesuffix(_SUFFIX)


def _allows(entry: str, name: str, distribution: str) -> bool:
    wanted, _, of = entry.partition("@")
    return short(wanted) == short(name) and (not of or normalized(of) == normalized(distribution))


def normalized(name: str) -> str:
    """A distribution's name in the form that compares (PEP 503)."""
    name = name.replace("_", "-").replace(".", "-")
    while "--" in name:
        name = name.replace("--", "-")
    return name.casefold()


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _timeout(text: str) -> float | None:
    try:
        seconds = float(text or _DEFAULT_TIMEOUT)
    except ValueError:
        logger.warning("ONNXPLUG_IMPORT_TIMEOUT=%s is not a number of seconds; using %g", text, _DEFAULT_TIMEOUT)
        return _DEFAULT_TIMEOUT
    return seconds if seconds > 0 else None


def _trace_to_stderr() -> None:
    import logging

    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    node: logging.Logger | None = logger.logger
    while node is not None:
        for handler in node.handlers:
            if (
                isinstance(handler, logging.StreamHandler)
                and handler.stream is sys.stderr
                and handler.level <= logging.INFO
            ):
                return
        node = node.parent if node.propagate else None
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logger.addHandler(handler)
