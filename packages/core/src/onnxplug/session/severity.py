"""A session's log, and the severities it may have (0 verbose .. 4 fatal; -1: that of what is around it)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.contract.logs import Log, before_first

if TYPE_CHECKING:
    import logging

SEVERITIES = range(5)


def is_severity(level: int) -> bool:
    """Whether an option may have this severity."""
    return level == -1 or level in SEVERITIES


class SessionLog(Log):
    """Messages of one session or run, those from ``severity`` up, with its ``logid``."""

    def __init__(self, severity: int, logid: str) -> None:
        super().__init__("onnxplug.session")
        self._severity, self._logid = severity, logid
        self._made: logging.Logger | None = None
        before_first(_root)

    def _may_want(self, level: int) -> bool:
        return level >= 10 * (self._severity + 1) if self._severity in SEVERITIES else super()._may_want(level)

    @property
    def logger(self) -> logging.Logger:
        if self._made is None:
            from onnxplug.session.logging import session_logger

            self._made = session_logger(self._severity, self._logid)
        return self._made


def _root() -> None:
    from onnxplug.session.logging import process_logger

    process_logger()
