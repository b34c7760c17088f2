"""Device memory of a session: raw blocks for the core's arena, and CuPy's temporaries out of an arena of their own.

Both arenas take their regions from one ``CUDAAllocator``, which keeps ``gpu_mem_limit`` over the two together. Where blocks come from,
cudaMalloc or the application's functions, is a ``Source``: the books are kept, and tested, without a driver.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from onnxplug.contract import Allocator, AllocatorStats, Arena, ArenaConfig, Buffer, Device, RuntimeException

ALIGNMENT = 256
"""cudaMalloc's, which the contract's arena keeps for the chunks it cuts."""
VECTOR = 16
"""Bytes at multiples of which cuDNN and generated kernels expect tensors to begin: a device reads words at no other address."""
lent: set[int] = set()
"""Devices on which the application has lent memory: runs wait there for what its default stream was asked for."""


_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


class Source(Protocol):
    """Where blocks of device memory come from."""

    def malloc(self, nbytes: int) -> int:
        """Address of a fresh block. MemoryError says why there is none."""

    def free(self, address: int) -> None:
        """Give a block back once no work queued on the device reads or writes it."""

    def empty_cache(self) -> None:
        """Give what the source itself keeps back to the device."""


class DriverSource:
    """cudaMalloc and cudaFree, which waits for the device by itself."""

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id

    def malloc(self, nbytes: int) -> int:
        import cupy
        from cupy.cuda import runtime

        with cupy.cuda.Device(self._device_id):
            try:
                return int(runtime.malloc(nbytes))
            except runtime.CUDARuntimeError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                free, total = runtime.memGetInfo()
                raise MemoryError(f"GPU {self._device_id} has {free} of {total} bytes free") from error

    def free(self, address: int) -> None:
        import cupy
        from cupy.cuda import runtime

        with cupy.cuda.Device(self._device_id):
            runtime.free(address)

    def empty_cache(self) -> None:
        """cudaFree keeps nothing."""


class Waits(Protocol):
    """What has to be waited for: the session's ``Queue``."""

    def on_device(self) -> AbstractContextManager[Any]:
        """Make the session's device current."""

    def wait(self) -> None:
        """Until all is done that the session asked for."""

    def settle(self) -> None:
        """Until all is done that anybody asked of the device."""


class ExternalSource:
    """The application's functions by address: ``void *alloc(size_t)``, ``void free(void *)``, ``void empty_cache()``, called while the
    session's device is current.

    Such an allocator (PyTorch's) gives blocks that work of its own stream may still use, and a block that goes back to another stream at
    once: so both are waited for.
    """

    def __init__(self, alloc: int, free: int, empty_cache: int, waits: Waits) -> None:
        self._alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(alloc)
        self._free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free)
        self._empty_cache = ctypes.CFUNCTYPE(None)(empty_cache) if empty_cache else None
        self._waits = waits

    def malloc(self, nbytes: int) -> int:
        with self._waits.on_device():
            address = self._alloc(max(nbytes, 1))
        if not address:
            raise MemoryError("gpu_external_alloc returned no memory")
        self._waits.settle()
        return int(address)

    def free(self, address: int) -> None:
        self._waits.wait()
        with self._waits.on_device():
            self._free(address)

    def empty_cache(self) -> None:
        if self._empty_cache is not None:
            with self._waits.on_device():
                self._empty_cache()


class CUDAAllocator(Allocator):
    """Raw blocks of one device for one session, together at most ``config.limit`` bytes. Thread-safe. A buffer's handle is the
    address of its block."""

    alignment = ALIGNMENT

    def __init__(
        self, device: Device, source: Source, config: ArenaConfig, settle: Callable[[], None] = lambda: None
    ) -> None:
        """``settle``: waits until the device has done what anybody asked of it."""
        self.device, self.arena, self._source, self._settle = device, config, source, settle
        self._lock = threading.RLock()  # a collection inside the lock may free a buffer
        self._live: dict[int, Buffer] = {}
        self._in_use = self._peak = self._count = 0

    def allocate(self, nbytes: int) -> Buffer:
        size = max(nbytes, ALIGNMENT)
        with self._lock:
            limit = self.arena.limit
            if limit is not None and self._in_use + nbytes > limit:
                raise MemoryError(f"{self._figures(nbytes)}; option gpu_mem_limit is {limit}")
            try:
                address = self._source.malloc(size)
            except MemoryError as error:
                raise MemoryError(f"{self._figures(nbytes)}; {error}") from error
            buffer = Buffer(self.device, nbytes, address)
            self._live[address] = buffer
            self._in_use += nbytes
            self._peak, self._count = max(self._peak, self._in_use), self._count + 1
        return buffer

    def free(self, buffer: Buffer) -> None:
        with self._lock:
            if self._live.get(buffer.handle) is not buffer:
                raise ValueError(f"{buffer!r} is not allocated from this allocator of {self.device} (freed twice?)")
            del self._live[buffer.handle]
            self._in_use -= buffer.nbytes
        self._source.free(buffer.handle)

    def over(self, address: int, nbytes: int) -> Buffer:
        if address % VECTOR:
            raise ValueError(
                f"A tensor at {address:#x} does not begin at a multiple of {VECTOR} bytes, as device code expects: copy it, for "
                "memory that an allocator gives does"
            )
        lent.add(self.device.id)
        self._settle()
        return Buffer(self.device, nbytes, address)

    def stats(self) -> AllocatorStats:
        with self._lock:
            extra = {"live_allocations": len(self._live)}
            return AllocatorStats(self._in_use, self._peak, self._in_use, self._count, self.arena.limit, extra)

    def close(self) -> None:
        """Tell the source that the session is gone. Its blocks went back before."""
        self._source.empty_cache()

    def _figures(self, nbytes: int) -> str:
        return (
            f"{nbytes} bytes wanted on {self.device}, {self._in_use} in use by this session in {len(self._live)} blocks"
        )


class _Lease:
    """A buffer that goes back to its arena with the last array that shows it."""

    __slots__ = ("_arena", "_buffer")

    def __init__(self, arena: Arena, buffer: Buffer) -> None:
        self._arena, self._buffer = arena, buffer

    def __del__(self) -> None:
        self._arena.free(self._buffer)


class Scratch:
    """CuPy's allocator for what kernels return and what they need in between.

    One stream orders all use of it, so that memory freed by the host while the device still works on it may be given out again.
    Recorded device work is the exception: its addresses live as long as the recording, in an arena of its own (``apart``).
    """

    def __init__(self, raw: CUDAAllocator) -> None:
        self._raw, self._arena = raw, Arena(raw)
        self._first = self._arena

    def __call__(self, nbytes: int) -> Any:
        """Memory for CuPy, as ``cupy.cuda.MemoryPointer``. MemoryError, with the figures, when there is none."""
        return self._taken(self._arena, nbytes)

    def lasting(self, nbytes: int) -> Any:
        """The same of the session's own arena, also while work is recorded."""
        return self._taken(self._first, nbytes)

    @staticmethod
    def _taken(arena: Arena, nbytes: int) -> Any:
        try:
            buffer = arena.allocate(nbytes)
        except RuntimeException as error:
            raise MemoryError(error.text) from error
        return pointer(buffer, 0, _Lease(arena, buffer))

    def apart(self) -> Arena:
        """Begin to take memory from a fresh arena; returns the one left, for ``back``."""
        left, self._arena = self._arena, Arena(self._raw)
        return left

    def back(self, arena: Arena) -> Arena:
        """Take memory from ``arena`` again; returns the one used meanwhile, which its holder closes."""
        used, self._arena = self._arena, arena
        return used

    def stats(self) -> AllocatorStats:
        """Figures of the temporaries."""
        return self._arena.stats()

    def close(self) -> None:
        """Give every region back."""
        self._arena.close()


def pointer(buffer: Buffer, offset: int, owner: Any) -> Any:
    """CuPy's pointer to ``offset`` bytes into a buffer; it keeps ``owner`` alive."""
    import cupy

    memory = cupy.cuda.UnownedMemory(buffer.handle + buffer.offset, buffer.nbytes, owner, buffer.device.id)
    return cupy.cuda.MemoryPointer(memory, offset)


def view(buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> Any:
    """The dense CuPy array over ``offset`` bytes into a buffer."""
    import cupy

    return cupy.ndarray(tuple(shape), dtype, pointer(buffer, offset, buffer))
