"""A session's queue of device work: in order, so that every command sees what those before it wrote."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyopencl as cl

from onnxplug.contract import EPFail
from onnxplug_ep_opencl.machine import Machine
from onnxplug_ep_opencl.pages import bring_constants, has_libraries
from onnxplug_ep_opencl.programs import Programs


class Queue:
    """The queue, and what launches of its session have in common. ``profiled``: wait behind each launch."""

    def __init__(self, machine: Machine, profiled: bool, options: tuple[str, ...], cache_dir: str) -> None:
        self.machine, self.profiled = machine, profiled
        self.queue: Any = cl.CommandQueue(machine.context)
        self.programs = Programs(machine, options, cache_dir)
        self.loads = False
        """Whether kernels have been launched for the first time since the queue last ran dry."""
        self._options = options
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

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Errors of the driver as EPFail: another provider may answer."""
        if os.getpid() != self._process:
            raise EPFail(f"this OpenCL queue belongs to process {self._process}, from which this one was forked")
        try:
            yield
        except cl.Error as error:
            raise EPFail(f"{self.machine.device.name.strip()}: {error}") from error
