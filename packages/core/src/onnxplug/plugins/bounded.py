"""Calls into foreign code that may not come back."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

Result = TypeVar("Result")


class TooSlow(Exception):
    """The call did not come back in time."""


def bounded(function: Callable[[], Result], seconds: float | None) -> Result:
    """``function()``, or TooSlow after ``seconds``; exceptions pass through, of whatever class.

    The call runs in a daemon thread, which after the limit is left to itself: it can neither be stopped nor does it
    keep the process from ending. It runs in the caller's own thread, without a limit, when ``seconds`` is None and when
    the caller is itself inside an ``import``: another thread might wait for an import lock that this one holds.
    """
    if seconds is None or _inside_import():
        return function()
    context = contextvars.copy_context()
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(context.run(function))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="onnxplug-plugin", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TooSlow(f"took longer than {seconds:g} s")
    return results[0]


def _inside_import() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
