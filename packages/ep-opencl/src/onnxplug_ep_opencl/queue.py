"""A session's queue of device work: in order, so that every command sees what those before it wrote."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyopencl as cl

from onnxplug.contract import DeviceWork, EPFail, NodeView
from onnxplug_ep_opencl.machine import Machine
from onnxplug_ep_opencl.pages import bring_constants, has_libraries
from onnxplug_ep_opencl.programs import Programs

Origin = tuple[str, Sequence[NodeView]]
"""The step that launches belong to, by its name, and its nodes."""
_KEPT = 1 << 16
"""Times that nobody asks for, as of runs that are not profiled, give way to later ones."""


class Queue:
    """The queue, and what launches of its session have in common. ``profiled``: wait behind each step, and take the device's times."""

    def __init__(self, machine: Machine, profiled: bool, options: tuple[str, ...], cache_dir: str) -> None:
        self.machine, self.profiled = machine, profiled
        timing: Any = cl.command_queue_properties.PROFILING_ENABLE if profiled else 0
        self.queue: Any = cl.CommandQueue(machine.context, properties=timing)
        self.programs = Programs(machine, options, cache_dir)
        self.loads = False
        """Whether kernels have been launched for the first time since the queue last ran dry."""
        self._options = options
        self._timed: deque[DeviceWork] = deque(maxlen=_KEPT)
        self._process = os.getpid()
        self._brings = has_libraries(machine.device)

    @property
    def identity(self) -> str:
        """The device, its driver, and how kernels are compiled."""
        return "\n".join((self.machine.identity, *self._options))

    def finish(self) -> None:
        """Wait until everything queued is done."""
        with self.guard():
            self.queue.finish()
        if self.loads:
            self.loads = False
            if self._brings:
                bring_constants()

    def wait_for(self, origin: Origin | None, launched: Sequence[tuple[str, Any]]) -> None:
        """Wait for the kernels of a step, names and events, and keep their times: on the host's clock, by which the last one has just
        ended."""
        self.queue.finish()
        if origin is None or not launched:
            return
        step, nodes = origin
        shift = time.perf_counter_ns() - launched[-1][1].profile.end
        for name, event in launched:
            times = event.profile
            self._timed.append(DeviceWork(step, nodes, name, times.start + shift, times.end + shift))

    def timed(self) -> list[DeviceWork]:
        """The times that were taken since this was last asked."""
        return [self._timed.popleft() for _ in range(len(self._timed))]

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Errors of the driver as EPFail: another provider may answer."""
        if os.getpid() != self._process:
            raise EPFail(f"this OpenCL queue belongs to process {self._process}, from which this one was forked")
        try:
            yield
        except cl.Error as error:
            raise EPFail(f"{self.machine.device.name.strip()}: {error}") from error
