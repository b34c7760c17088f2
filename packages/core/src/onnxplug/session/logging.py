"""Severities of the public surface (0 verbose .. 4 fatal) over Python's ``logging``.

Records go to the logger ``onnxplug``. As long as the application has set up no handler of its own they are written to
stderr in onnxruntime's form; otherwise they go where the application sends its log, once. A callback that was set has
them in place of stderr.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from onnxplug.session.settings import as_int

ROOT = "onnxplug"
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_LETTERS = dict(zip(_LEVELS, "VIWEF", strict=True))
_COLOURS = {"W": "\x1b[0;93m", "E": "\x1b[0;91m", "F": "\x1b[0;95m"}


Callback = Callable[[int, str, str, str, str], object]
"""(severity, category, logid, code location, message)"""


class _Told(threading.local):
    """Whether this thread is in the callback."""

    now = False


class _Handler(logging.Handler):
    """Gives records to the callback. Without one it writes to whatever ``sys.stderr`` is at that moment, unless the application
    handles the records; likewise what a callback logs itself, and what it raised at."""

    callback: Callback | None = None
    _told = _Told()

    def emit(self, record: logging.LogRecord) -> None:
        if self.callback is None or self._told.now or not self._tell(self.callback, record):
            self._write(record)

    def _tell(self, callback: Callback, record: logging.LogRecord) -> bool:
        """Whether the callback took the record. What it raises goes to ``sys.unraisablehook``, as in onnxruntime: whoever logs
        cannot mend it."""
        self._told.now = True
        try:
            severity = sum(record.levelno > level for level in _LEVELS[:-1])
            callback(severity, ROOT, _logid(record), _where(record), _message(record))
        except BaseException as error:
            told = {"exc_type": type(error), "exc_value": error, "exc_traceback": error.__traceback__}
            sys.unraisablehook(cast("sys.UnraisableHookArgs", SimpleNamespace(**told, err_msg=None, object=callback)))
            return False
        finally:
            self._told.now = False
        return True

    def _write(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers or len(logging.getLogger(ROOT).handlers) > 1:
            return
        try:
            stream = sys.stderr
            text = self.format(record)
            colour = _COLOURS.get(text[text.find("[") + 1]) if stream.isatty() else None
            stream.write(f"{colour}{text}\x1b[m\n" if colour else text + "\n")
        except Exception:
            self.handleError(record)


def _logid(record: logging.LogRecord) -> str:
    return getattr(record, "logid", "Default")


def _where(record: logging.LogRecord) -> str:
    return f"{record.filename}:{record.lineno} {record.funcName}"


def _message(record: logging.LogRecord) -> str:
    text = record.getMessage()
    return f"{text}\n{logging.Formatter().formatException(record.exc_info)}" if record.exc_info else text


class _Formatter(logging.Formatter):
    """``2026-08-22 10:00:00.123456 [W:onnxplug:logid, options.py:45 add_session_config_entry] text``"""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        letter = _LETTERS.get(record.levelno, record.levelname[:1])
        micros = int(record.created % 1 * 1_000_000)
        return f"{stamp}.{micros:06d} [{letter}:{ROOT}:{_logid(record)}, {_where(record)}] {_message(record)}"


class _LogId(logging.Filter):
    """Stamps records of one session with its ``logid``, empty ones too; "Default" are those of the process."""

    def __init__(self, logid: str) -> None:
        super().__init__()
        self.logid = logid

    def filter(self, record: logging.LogRecord) -> bool:
        record.logid = self.logid
        return True


def _root() -> logging.Logger:
    logger = logging.getLogger(ROOT)
    if not any(isinstance(handler, _Handler) for handler in logger.handlers):
        handler = _Handler()
        handler.setFormatter(_Formatter())
        logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    return logger


def process_logger() -> logging.Logger:
    """The logger of everything that belongs to no session."""
    return _root()


def session_logger(severity: int = -1, logid: str = "") -> logging.Logger:
    """A logger for one session or run. Severity -1 means that of the process; the logger is not registered
    by name, so it goes with the session.
    """
    logger = logging.Logger(f"{ROOT}.session", _LEVELS[severity] if 0 <= severity < len(_LEVELS) else logging.NOTSET)
    logger.parent = _root()
    logger.addFilter(_LogId(logid))
    return logger


def set_default_logger_severity(severity: int) -> None:
    """Set the process's severity: 0 verbose, 1 info, 2 warning (the default), 3 error, 4 fatal. RuntimeError for any
    other number.
    """
    _root().setLevel(_level(severity))


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted for compatibility; verbose records have one level here."""
    as_int(verbosity)


def set_default_logger_callback(callback: Callback | None, severity: int = 2) -> None:
    """Give messages of the process and of all sessions to ``callback(severity, category, logid, code location, message)`` in
    place of stderr, and set the process's severity; None undoes it, and leaves the severity. It is called on the thread
    that has the message. RuntimeError for what is not callable and for a severity outside 0 to 4.
    """
    level = _level(severity)
    if callback is not None and not callable(callback):
        raise RuntimeError("callback must be a callable")
    _Handler.callback = callback if callback is None else staticmethod(callback)
    if callback is not None:
        _root().setLevel(level)


def _level(severity: object) -> int:
    severity = as_int(severity)
    if not 0 <= severity < len(_LEVELS):
        raise RuntimeError("Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    return _LEVELS[severity]
