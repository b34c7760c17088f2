"""Threads that runs in other threads share: one that waits is used again, and none outlives its use for long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from onnxplug.session import threads
from onnxplug.session.threads import in_thread

NAME = "a thread of these tests"


def done(work: Callable[[], object] = lambda: None) -> threading.Thread:
    """The thread that did the work, which may be about to wait for more."""
    by: list[threading.Thread] = []
    over = threading.Event()

    def counted() -> None:
        try:
            work()
        finally:
            by.append(threading.current_thread())
            over.set()

    in_thread(counted, NAME)
    assert over.wait(60)
    return by[0]


def waits(thread: threading.Thread) -> None:
    """Return when the thread waits for work or is gone."""
    end = time.monotonic() + 60
    while not threads._idle and thread.is_alive() and time.monotonic() < end:
        time.sleep(0.001)


def test_a_thread_that_waits_does_the_next_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PATIENCE", 60)
    monkeypatch.setattr(threads, "_idle", [])
    first = done()
    for _ in range(3):
        waits(first)
        assert done() is first
    waits(first)
    others: list[threading.Thread] = []
    assert done(lambda: others.append(done())) is first, "work asked for by work"
    assert others != [first]
    monkeypatch.setattr(threads, "PATIENCE", 0)
    for thread in (first, *others):
        end = time.monotonic() + 60
        while thread.is_alive() and time.monotonic() < end:
            done()
        assert not thread.is_alive()


def test_a_thread_without_work_ends_and_keeps_nothing() -> None:
    class Held:
        pass

    held = Held()
    seen = weakref.ref(held)
    thread = done(lambda held=held: None)  # type: ignore[misc]
    del held
    thread.join(60)
    assert not thread.is_alive() and seen() is None and not threads._idle


def test_work_that_raises_is_reported_and_hinders_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_value))

    def fail() -> None:
        raise LookupError("here")

    done(fail).join(60)
    assert [str(error) for error in told] == ["here"]
    assert done() is not None


def test_threads_that_race_for_one_that_gives_up_lose_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PATIENCE", 1e-6)
    counts, lock = [0], threading.Lock()

    def count() -> None:
        with lock:
            counts[0] += 1

    def ask() -> None:
        for _ in range(300):
            in_thread(count, NAME)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    end = time.monotonic() + 60
    while counts[0] < 900 and time.monotonic() < end:
        time.sleep(0.001)
    assert counts[0] == 900


@pytest.mark.skipif(not hasattr(os, "fork"), reason="capability: fork")
def test_a_program_that_forks_and_exits_at_once_has_its_work_done() -> None:
    """The child has none of the parent's threads, and a program waits at its exit for work, but no longer."""
    program = (
        "import os, sys, threading, time, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "from onnxplug.session import threads\n"
        "threads.PATIENCE = 3\n"
        "threads.in_thread(lambda: None, 'first')\n"
        "while not threads._idle: time.sleep(0.001)\n"
        "pid = os.fork()\n"
        "threads.PATIENCE = 0.02\n"
        "threads.in_thread(lambda: (time.sleep(0.1), os.write(1, b'x')), 'second')\n"
        "if pid: os.waitpid(pid, 0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, b"xx"), ran.stderr
