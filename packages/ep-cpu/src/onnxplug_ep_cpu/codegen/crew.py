"""Work that threads do while a session is made: compiling, mostly without the interpreter's lock."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")

MOST = 8
"""Threads at most: a model has a few dozen kernels, and each thread needs memory to compile."""


class Job(Generic[Made]):
    """Something made once, by a thread of the crew or by the first that waits for it, whoever comes first."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make: Callable[[], Made] | None = make
        self._claim = threading.Lock()
        self._done = threading.Event()
        self._made: list[Made] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make it, unless somebody else does."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            assert self._make is not None
            self._made.append(self._make())
        except BaseException as error:
            self._error = error
        finally:
            self._make = None
            self._done.set()

    def result(self) -> Made:
        """What was made; the exception that making it raised."""
        self.run()
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._made[0]


class Crew:
    """Threads that live as long as there are jobs: one for each processor but that of the thread that gives them. When the interpreter
    ends, what they make is waited for, since LLVM takes itself apart then; what nobody has begun is left."""

    def __init__(self) -> None:
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._size = min(MOST, max(1, count - 1))
        self._lock = threading.Lock()
        self._waiting: deque[Job[bytes]] = deque()
        self._threads: set[threading.Thread] = set()
        self._process = os.getpid()
        atexit.register(self._end)

    def add(self, job: Job[bytes]) -> None:
        """Have a job done soon."""
        with self._lock:
            self._waiting.append(job)
            if len(self._threads) == self._size:
                return
            thread = threading.Thread(target=self._work, name="onnxplug-cpu-compile", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads.discard(threading.current_thread())
                    return
                job = self._waiting.popleft()
            job.run()

    def _end(self) -> None:
        if os.getpid() != self._process:  # one forked from it, which has none of the threads
            return
        with self._lock:
            self._waiting.clear()
            threads = list(self._threads)
        for thread in threads:
            thread.join()
