"""From a description of kernel launches to a call: arguments are set once, and again only where an operand is another tensor than last
time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyopencl as cl

from onnxplug.contract import EPFail
from onnxplug_ep_opencl.faults import Faults
from onnxplug_ep_opencl.queue import Origin, Queue
from onnxplug_kernel_text.nodes.call import Ref

__all__ = ["BoundJob", "Job", "Launch", "Ref"]


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel. ``source`` is text behind the prelude, in which everything declared starts with ``name``; ``scalars``
    follow the tensors; ``items`` is a multiple of ``group`` in every dimension."""

    source: str
    name: str
    tensors: Sequence[Ref]
    scalars: Sequence[np.generic]
    items: tuple[int, ...]
    group: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """Launches in order, and the bytes of scratch memory they share."""

    launches: Sequence[Launch] = field(default_factory=tuple)
    workspace: int = 0

    def room(self, operands: int) -> int:
        """The bytes of scratch memory, which follows so many operands: some where launches name it, though there is nothing to keep."""
        named = any(ref.number >= operands for launch in self.launches for ref in launch.tensors)
        return self.workspace or int(named)


class BoundJob:
    """A job with kernels of its own, made when it first runs. Serves several threads, one after another. ``origin``: the step that
    profiles name."""

    def __init__(self, queue: Queue, job: Job, owned: Sequence[Any] = (), origin: Origin | None = None) -> None:
        self._queue, self._owned, self._origin = queue, owned, origin
        self._waiting = [launch for launch in job.launches if all(launch.items)]
        for launch in self._waiting:
            queue.programs.announce((launch.source, launch.name))
        self._launches: list[_Bound] = []
        self._lock = threading.Lock()

    def __call__(self, *operands: Any) -> None:
        queue = self._queue
        with self._lock:
            try:
                if self._waiting:
                    self._launches = [_Bound(queue, launch, self._owned) for launch in self._waiting]
                    self._waiting = []
                    queue.loads = True
                if queue.profiled:
                    made = [(launch.name, launch.enqueue(queue.queue, operands)) for launch in self._launches]
                    queue.wait_for(self._origin, made)
                    return
                for launch in self._launches:
                    launch.enqueue(queue.queue, operands)
            except cl.Error as error:
                raise EPFail(f"{queue.machine.device.name.strip()}: {error}") from error


class _Bound:
    __slots__ = ("_arguments", "_group", "_items", "_kernel", "_owned", "_told", "name")

    def __init__(self, queue: Queue, launch: Launch, owned: Sequence[Any]) -> None:
        self._kernel = queue.programs.kernel((launch.source, launch.name))
        self.name, self._items, self._group = launch.name, launch.items, launch.group
        self._arguments: list[list[Any]] = [[at, ref, None] for at, ref in enumerate(launch.tensors) if ref.number >= 0]
        self._owned = [owned[-1 - ref.number] for ref in launch.tensors if ref.number < 0]
        self._told: list[list[Any]] = []
        for at, ref in enumerate(launch.tensors):
            if ref.number < 0 and isinstance(owned[-1 - ref.number], Faults):
                self._told.append([at, ref, owned[-1 - ref.number], None])
            elif ref.number < 0:
                self._set(at, ref, owned[-1 - ref.number])
        for at, scalar in enumerate(launch.scalars):
            self._kernel.set_arg(2 * len(launch.tensors) + at, scalar)

    def enqueue(self, queue: Any, operands: Sequence[Any]) -> Any:
        """The launch's event."""
        for argument in self._arguments:
            at, ref, last = argument
            tensor = operands[ref.number]
            if tensor is not last or tensor.block.memory is None:
                self._set(at, ref, tensor)
                argument[2] = tensor
        for told in self._told:
            at, ref, faults, last = told
            tensor = faults.here()
            if tensor is not last:
                self._set(at, ref, tensor)
                told[3] = tensor
        return cl.enqueue_nd_range_kernel(queue, self._kernel, self._items, self._group)

    def _set(self, at: int, ref: Ref, tensor: Any) -> None:
        self._kernel.set_arg(2 * at, tensor.buffer())
        self._kernel.set_arg(2 * at + 1, np.int64(tensor.offset // ref.size + ref.offset))
