"""The threads that share a region's work: one pool per process and thread count, spinning for a while, then asleep.

A pool serves one run at a time; a run that finds it taken does its work alone. Threads are Python's, but work and spin in
native code without the interpreter's lock. After a fork the child starts a pool of its own when it first needs one.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug_ep_cpu.codegen import driver
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.entry import Entry
from onnxplug_ep_cpu.codegen.image import Image
from onnxplug_ep_cpu.codegen.target import host_target

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.trips import Trips

PAUSES = 4000
"""Pauses whose time tells how many fill the time that a thread without work waits for more."""
SPIN, REST = 50_000_000, 100_000
"""Nanoseconds of that time: where spinning is allowed, what onnxruntime's threads were seen to spin, and where it is not."""


class Pool:
    """``threads`` - 1 helpers and whoever calls ``run``. ``spinning``: helpers keep their processors between runs that follow
    each other closely; sleep and waking up cost more than a small model's run."""

    def __init__(self, threads: int, spinning: bool) -> None:
        engine = compiler(host_target()).load(_driver_text())
        p, i = ctypes.c_void_p, ctypes.c_int64
        self.entry, launch = Entry(engine), engine.get_function_address("launch")
        self._launch, self._trips = ctypes.CFUNCTYPE(None, p, p, p)(launch), functools.partial(_trips, launch)
        self._serve = ctypes.CFUNCTYPE(i, p, i, i)(engine.get_function_address("serve"))
        block = np.zeros(driver.CONTEXT_WORDS + 8, np.int64)
        skip = -(block.ctypes.data // 8) % 8
        self._words = block[skip : skip + driver.CONTEXT_WORDS]
        self._context = self._words.ctypes.data
        self._spinning = spinning
        self._taken = threading.Lock()
        self._helpers = [_Sleeper(f"onnxplug-cpu-{number + 1}") for number in range(threads - 1)]
        self._here = -1
        self._asleep = self._helpers[::-1]
        """Those to be woken up, or started: by the first run that is shared, so that small models have no threads."""

    def run(self, record: int, bases: bytes, shared: bool) -> None:
        """Run the program of a record (see ``driver``), with the helpers if ``shared`` and they are free."""
        if not shared or not self._helpers or not self._taken.acquire(blocking=False):
            self._launch(None, record, bases)
            return
        try:
            self._summon()
            self._launch(self._context, record, bases)
        finally:
            self._taken.release()

    def trips(self, image: Image, table: np.ndarray) -> Callable[..., int]:
        """Trip after trip of an image, as ``CompiledRegion.trips`` says, with the helpers where ``run`` has them."""
        if not image.shared or not self._helpers:
            return image.trips(self._trips(), table)
        record, checked, made = image.records[0], image.checked, self._trips()

        def run(workspace: Any, trips: int, going: Any, *arrays: Any) -> int:
            given = (record, table, checked, trips, going, (workspace, *arrays))
            if not self._taken.acquire(blocking=False):
                return made.run(None, *given)
            try:
                self._summon()
                return made.run(self._context, *given)
            finally:
                self._taken.release()

        return run

    @functools.cached_property
    def _spins(self) -> int:
        """Pauses of a thread without work before it sleeps."""
        took = min(self._time_of_pauses() for _ in range(3))
        return max(1, (SPIN if self._spinning else REST) * PAUSES // took)

    def _time_of_pauses(self) -> int:
        began = time.perf_counter_ns()
        self._serve(self._context, 0, PAUSES)
        return time.perf_counter_ns() - began

    def _summon(self) -> None:
        """Have every helper awake and off the caller's processor, where the system likes to put a thread that is woken, and to which
        it may have moved the caller since."""
        here = _current_cpu()
        if here != self._here:
            self._here = here
            for helper in self._helpers:
                helper.keep_off(here)
        while self._asleep:
            helper = self._asleep.pop()
            if helper.thread is None:
                helper.start(
                    functools.partial(self._help, helper, self._spins)
                )  # measured before there is work to be seen
                helper.keep_off(here)
            helper.bell.release()

    def _help(self, helper: _Sleeper, spins: int) -> None:
        helper.bell.acquire()
        last = 0
        while True:
            last = self._serve(self._context, last, spins)
            if last < 0:
                return
            self._asleep.append(helper)
            if self._words[driver.SEQUENCE] != last:
                with contextlib.suppress(ValueError):  # whoever woke it up has taken it off already
                    self._asleep.remove(helper)
                    continue
            helper.bell.acquire()


class _Sleeper:
    """A helper thread: its bell, and the processors it may use."""

    def __init__(self, name: str) -> None:
        self.bell = threading.Semaphore(0)
        self.thread: threading.Thread | None = None
        self.tid = 0
        self._name = name
        self._allowed: set[int] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Have a thread of its own do the work."""
        self.thread = threading.Thread(target=work, name=self._name, daemon=True)
        self.thread.start()
        self.tid = self.thread.native_id or 0

    def keep_off(self, cpu: int) -> None:
        """Keep the thread, if it was started, off a processor."""
        if cpu < 0 or self.thread is None or (self._allowed is not None and cpu not in self._allowed):
            return
        with contextlib.suppress(OSError):
            others = os.sched_getaffinity(0) - {cpu}
            if others:
                os.sched_setaffinity(self.tid, others)
                self._allowed = others


@functools.cache
def _getcpu() -> Any:
    try:
        return ctypes.CDLL(None).sched_getcpu
    except (AttributeError, OSError, TypeError):
        return None


def _current_cpu() -> int:
    find = _getcpu()
    return -1 if find is None else int(find())


_pools: dict[tuple[int, bool], Pool] = {}
_making = threading.Lock()


def pool(threads: int, spinning: bool) -> Pool:
    """The process's pool of that many threads."""
    with _making:
        found = _pools.get((threads, spinning))
        if found is None:
            found = _pools[threads, spinning] = Pool(threads, spinning)
        return found


@functools.cache
def _driver_text() -> str:
    return driver.driver_text(host_target())


@functools.cache
def _trips(launch: int) -> Trips:
    """Compiled for a process's first loop."""
    from onnxplug_ep_cpu.codegen.trips import TRIPS, Trips

    return Trips(compiler(host_target()).load(TRIPS), launch)


def begin(loops: bool) -> None:
    """Have other threads make what a process's first pool needs, if nothing has been compiled here before, and its first ``loops``."""
    if not _pools:
        compiler(host_target()).begin_module(_driver_text())
    if loops and not _trips.cache_info().currsize:
        from onnxplug_ep_cpu.codegen.trips import TRIPS

        compiler(host_target()).begin_module(TRIPS)


def _after_fork() -> None:
    global _making
    _making = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
