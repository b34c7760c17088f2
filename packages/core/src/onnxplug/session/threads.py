"""Threads that go on to the next work: to start one takes longer than many a model.

A thread without work waits ``PATIENCE`` and ends, so that nothing has to end it: neither a session nor a program that exits, which waits
for threads, as work begun is to be finished.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

PATIENCE = 0.02
"""Seconds. A program that asks less often than that does not notice that a thread is started; nor does one that exits notice a wait."""

Work = Callable[[], object]


class _Waiting:
    """A thread without work: whoever takes it off ``_idle`` gives it some and releases ``given``."""

    __slots__ = ("given", "work")

    def __init__(self) -> None:
        self.work: Work | None = None
        self.given = threading.Lock()
        self.given.acquire()


_idle: list[_Waiting] = []


def in_thread(work: Work, name: str) -> None:
    """Do ``work`` in another thread, a new one of this name unless one waits. What it raises ends the thread, with Python's report."""
    try:
        waiting = _idle.pop()
    except IndexError:
        threading.Thread(target=_serve, args=([work],), name=name).start()
        return
    waiting.work = work
    waiting.given.release()


def _serve(first: list[Work]) -> None:
    work: Work | None = first.pop()  # a name of the caller's would keep what the work holds
    waiting = _Waiting()
    while work is not None:
        work()
        work = None
        _idle.append(waiting)
        if not waiting.given.acquire(timeout=PATIENCE):
            try:
                _idle.remove(waiting)
            except ValueError:  # somebody has just taken it
                waiting.given.acquire()
        work, waiting.work = waiting.work, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)
