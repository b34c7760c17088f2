"""Host memory for the core's slabs and arenas: NumPy byte arrays that start on a cache line."""

from __future__ import annotations

import threading

import numpy as np

from onnxplug.contract import HOST, Allocator, AllocatorStats, Buffer


class HostAllocator(Allocator):
    """Blocks of host memory aligned to 64 bytes. A buffer's handle is the uint8 array itself. Thread-safe."""

    device = HOST
    alignment = 64

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collection inside the lock may free a buffer
        self._taken: dict[int, Buffer] = {}
        self._in_use = self._peak = self._count = 0

    def allocate(self, nbytes: int) -> Buffer:
        block = np.empty(nbytes + self.alignment, dtype=np.uint8)
        start = -block.ctypes.data % self.alignment
        buffer = Buffer(self.device, nbytes, block[start : start + nbytes])
        with self._lock:
            self._taken[id(buffer)] = buffer
            self._count += 1
            self._in_use += nbytes
            self._peak = max(self._peak, self._in_use)
        return buffer

    def free(self, buffer: Buffer) -> None:
        with self._lock:
            if self._taken.pop(id(buffer), None) is None:
                raise ValueError(
                    f"{buffer.nbytes} bytes of {buffer.device} are not allocated from this allocator (freed twice?)"
                )
            self._in_use -= buffer.nbytes

    def stats(self) -> AllocatorStats:
        with self._lock:
            live = {"live_allocations": len(self._taken)}
            return AllocatorStats(self._in_use, self._peak, self._in_use, self._count, self.max_allocation, live)
