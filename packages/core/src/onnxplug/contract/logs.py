"""Loggers that import ``logging`` with their first message that somebody may want. With what it needs (tracebacks, templates, regular
expressions) that module takes a tenth of a small model's session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
"""``logging``'s levels."""

_prepare: list[Callable[[], object]] = []


def before_first(prepare: Callable[[], object]) -> None:
    """Call ``prepare`` before the first message of any ``Log``; at once if ``logging`` has been imported."""
    _prepare.append(prepare)
    if "logging" in sys.modules:
        _prepared()


def _prepared() -> None:
    while _prepare:
        _prepare.pop()()


class Log:
    """``logging.getLogger(name)``, and all that it has. As long as nobody has imported ``logging`` nobody has asked for what is less
    than a warning, and it is dropped."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, text: str, *values: object, **more: Any) -> None:
        self._tell(DEBUG, text, values, more)

    def info(self, text: str, *values: object, **more: Any) -> None:
        self._tell(INFO, text, values, more)

    def warning(self, text: str, *values: object, **more: Any) -> None:
        self._tell(WARNING, text, values, more)

    def error(self, text: str, *values: object, **more: Any) -> None:
        self._tell(ERROR, text, values, more)

    def isEnabledFor(self, level: int) -> bool:
        """Whether somebody may want messages of this level."""
        return self._may_want(level) and self.logger.isEnabledFor(level)

    def _may_want(self, level: int) -> bool:
        return level >= WARNING or "logging" in sys.modules

    def _tell(self, level: int, text: str, values: tuple[object, ...], more: dict[str, Any]) -> None:
        if self._may_want(level):
            self.logger.log(level, text, *values, stacklevel=3, **more)

    @property
    def logger(self) -> logging.Logger:
        """The logger itself."""
        import logging

        _prepared()
        return logging.getLogger(self._name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.logger, name)


if TYPE_CHECKING:
    Logger = logging.Logger | Log
    """What core and providers write their messages to."""
