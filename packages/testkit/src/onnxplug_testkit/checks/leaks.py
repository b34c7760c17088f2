"""L1: memory that is not given back, of the provider and of the process."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.checks.robust import impossible
from onnxplug_testkit.models import chain, open_session
from onnxplug_testkit.subject import Subject

SESSIONS, SETTLED = 100, 10
IDLE = 5
"""Of so many sessions one is closed before it ran."""
FAILURES = 20
TURNS = 3
KEPT_OF_A_FAILURE = 16 << 10
"""Bytes that a failure may cost, on the average."""


@check("memory.leaks_over_runs")
def leaks_over_runs(subject: Subject, seed: int) -> None:
    """In a session's steady state neither the provider's memory nor the process grows from run to run."""
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((256, 16)).astype(np.float32)
    with subject.allocators() as allocators, open_session(subject, made) as session:

        def runs() -> None:
            for _ in range(20):
                session.run(None, {"x": x})

        runs()
        before = [a.stats().bytes_in_use for a in allocators]
        allowed = 20 * x.nbytes
        grown = _growth(runs, allowed)
        after = [a.stats().bytes_in_use for a in allocators]
    assert after == before, f"the allocators' bytes in use go from {before} to {after} over 20 runs"
    assert grown < allowed, f"the process grows by {grown} bytes over 20 runs on tensors of {x.nbytes}"


@check("memory.leaks_over_sessions")
def leaks_over_sessions(subject: Subject, seed: int) -> None:
    """A hundred sessions, run or not, and closed, leave no block, thread, process, open or temporary file and no growing process behind."""
    made = chain(subject)
    x = np.random.default_rng(seed).standard_normal((256, 16)).astype(np.float32)

    def sessions(count: int) -> None:
        for number in range(count):
            with open_session(subject, made) as session:
                if number % IDLE:
                    session.run(None, {"x": x})
            del session

    with subject.allocators() as allocators, _temporary_folder() as folder:
        sessions(SETTLED)
        opened = _left_things(folder)
        allowed = (SESSIONS - SETTLED) * x.nbytes // 2
        grown = _growth(lambda: sessions(SESSIONS - SETTLED), allowed)
        left_open = _left_things(folder)
    for what, count in left_open.items():
        more = count - opened.get(what, count)
        assert more < (SESSIONS - SETTLED) // 2, (
            f"{more} more {what} are there after {SESSIONS - SETTLED} sessions were closed"
        )
    left = sum(a.stats().bytes_in_use for a in allocators)
    assert left == 0, f"{left} bytes of the provider's memory are in use after {SESSIONS} sessions were closed"
    assert grown < allowed, (
        f"the process grows by {grown} bytes over {SESSIONS - SETTLED} sessions on tensors of {x.nbytes}"
    )


@check("memory.leaks_over_failures")
def leaks_over_failures(subject: Subject, seed: int) -> None:
    """Runs that fail, and sessions in which they did, leave no block and no growing process behind."""
    cases = impossible(subject)

    def fail() -> None:
        for made, bad, _ in cases:
            with open_session(subject, made) as session:
                for _ in range(FAILURES):
                    try:
                        session.run(None, bad)
                    except (*STATUS_ERRORS, RuntimeError, ValueError):
                        continue

    with subject.allocators() as allocators:
        fail()
        count = FAILURES * len(cases)
        allowed = count * KEPT_OF_A_FAILURE
        grown = _growth(fail, allowed)
    left = sum(a.stats().bytes_in_use for a in allocators)
    assert left == 0, (
        f"{left} bytes of the provider's memory are in use after runs failed and their sessions were closed"
    )
    assert grown < allowed, f"the process grows by {grown} bytes over {count} runs that fail"


@check("memory.feeds_are_let_go")
def feeds_are_let_go(subject: Subject, seed: int) -> None:
    """Inputs and results that the caller let go are gone after the next run, those of a run that failed too."""
    made = chain(subject)
    with open_session(subject, made) as session:
        x = np.random.default_rng(seed).standard_normal((256, 16)).astype(np.float32)
        watched = [weakref.ref(x), weakref.ref(session.run(None, {"x": x})[0])]
        del x
        session.run(None, {"x": np.zeros((256, 16), np.float32)})
        session.run(None, {"x": np.zeros((3, 16), np.float32)})
        gc.collect()
        for what, reference in zip(("an input", "a result"), watched, strict=True):
            assert reference() is None, f"{what} of an earlier run is still held"
    with contextlib.suppress(Unsupported):
        _feeds_of_failures(subject)


def _feeds_of_failures(subject: Subject) -> None:
    for made, bad, good in impossible(subject):
        feeds = {name: array.copy() for name, array in bad.items()}
        watched = [weakref.ref(array) for array in feeds.values()]
        with open_session(subject, made) as session:
            with contextlib.suppress(*STATUS_ERRORS, RuntimeError, ValueError):
                session.run(None, feeds)
            del feeds
            for _ in range(2):
                session.run(None, good)
            gc.collect()
            assert not any(reference() is not None for reference in watched), (
                "an input of a run that failed is still held"
            )


def _left_things(folder: str) -> dict[str, int]:
    """How many threads, processes and open files the process has, as far as the operating system tells, and files there are in a folder."""
    found = {
        "threads": threading.active_count(),
        "temporary files": sum(len([*folders, *files]) for _, folders, files in os.walk(folder)),
    }
    for what, place in (("threads", "/proc/self/task"), ("open files", "/proc/self/fd")):
        with contextlib.suppress(OSError):
            found[what] = len(os.listdir(place))
    with contextlib.suppress(OSError):
        children = (Path(task, "children").read_text() for task in Path("/proc/self/task").iterdir())
        found["processes"] = sum(len(text.split()) for text in children)
    return found


@contextlib.contextmanager
def _temporary_folder() -> Iterator[str]:
    """What goes into the folder of temporary files meanwhile goes into one of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)),
        mock.patch.object(tempfile, "tempdir", folder),
    ):
        yield folder


def _growth(work: Callable[[], None], allowed: int) -> int:
    """Bytes of Python and NumPy memory that ``work()`` leaves behind, the least of ``TURNS`` times unless one is under ``allowed``.

    What leaks does so every time; what a thread of the process imports or keeps for good meanwhile is there once.
    """
    least = _grown(work)
    for _ in range(TURNS - 1):
        if least < allowed:
            break
        least = min(least, _grown(work))
    return least


def _grown(work: Callable[[], None]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
