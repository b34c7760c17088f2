"""Memory of an OpenCL device: blocks over ``clCreateBuffer``, and dense tensors in them.

Buffers from ``allocate`` must be freed by whoever took them; tensors from ``tensor`` own their bytes and go with the last reference.
Both count against the limit. OpenCL releases a buffer when the commands that use it are done, so freeing waits for nothing.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pyopencl as cl

from onnxplug.contract import Allocator, AllocatorStats, ArenaConfig, Buffer, Device, EPFail
from onnxplug_ep_opencl.machine import Machine

ALIGNMENT = 128
_DLPACK = 4
"""kDLOpenCL (dlpack.h)."""


class Block:
    """Bytes on the device; ``memory`` is None once they were freed."""

    __slots__ = ("__weakref__", "device", "memory", "nbytes", "owner")

    def __init__(self, machine: Machine, device: Device, nbytes: int, owner: ClAllocator) -> None:
        flags = cl.mem_flags.READ_WRITE | (cl.mem_flags.ALLOC_HOST_PTR if machine.shares_memory else 0)
        self.memory: Any = cl.Buffer(machine.context, flags, max(nbytes, 1))
        self.device, self.nbytes, self.owner = device, nbytes, owner

    def release(self) -> None:
        if self.memory is not None:
            self.memory.release()
            self.memory = None

    def __repr__(self) -> str:
        return f"block of {self.nbytes} bytes on {self.device}{', freed' if self.memory is None else ''}"


class ClTensor:
    """A dense row-major tensor at ``offset`` bytes of a block. Only the provider's transfers and kernels read it."""

    __slots__ = ("block", "dtype", "nbytes", "offset", "shape")
    __array_ufunc__ = None

    def __init__(self, block: Block, offset: int, dtype: np.dtype, shape: Sequence[int]) -> None:
        if dtype.hasobject:
            raise TypeError(f"{block.device} holds numbers only, not {dtype}")
        self.block, self.offset, self.dtype, self.shape = block, offset, dtype, tuple(shape)
        self.nbytes = math.prod(self.shape) * dtype.itemsize

    @property
    def device(self) -> Device:
        return self.block.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def buffer(self) -> Any:
        """The OpenCL buffer. EPFail when its memory was freed."""
        memory = self.block.memory
        if memory is None:
            raise EPFail(f"{self!r} was used after its memory was freed")
        return memory

    def __repr__(self) -> str:
        return f"ClTensor({self.dtype}, {self.shape}, {self.block}, offset {self.offset})"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self!r} is not in host memory: copy it to the host first")

    def __dlpack_device__(self) -> tuple[int, int]:
        """(device type, device index) in DLPack's numbers."""
        return _DLPACK, self.block.device.id

    def __dlpack__(self, **_: object) -> NoReturn:
        """BufferError: pyopencl has no DLPack, and the memory no address that others could use."""
        raise BufferError(
            f"{self.block.device} exchanges no DLPack tensors: bring the value to the host (OrtValue.numpy) first"
        )

    __array__ = __bool__ = __float__ = __index__ = __int__ = __iter__ = __len__ = __getitem__ = __reduce__ = _refuse


def view(buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> ClTensor:
    """The tensor at ``offset`` of ``buffer``. ValueError when it does not fit, EPFail when the memory was freed."""
    tensor = ClTensor(buffer.handle, buffer.offset + offset, dtype, shape)
    if offset < 0 or offset + tensor.nbytes > buffer.nbytes or buffer.offset + buffer.nbytes > buffer.handle.nbytes:
        raise ValueError(f"{tensor.nbytes} bytes at {offset} do not fit into a buffer of {buffer.nbytes} bytes")
    tensor.buffer()
    return tensor


class ClAllocator(Allocator):
    """Memory of one device for one session, up to the limit of ``arena``. Thread-safe."""

    alignment = ALIGNMENT

    def __init__(self, machine: Machine, device: Device, arena: ArenaConfig) -> None:
        self.device, self.arena = device, arena
        self.max_allocation = int(machine.device.max_mem_alloc_size)
        self._machine = machine
        self._lock = threading.RLock()  # re-entered when the collector drops a tensor inside a locked section
        self._taken: dict[int, Buffer] = {}
        self._in_use = self._peak = self._count = 0

    def allocate(self, nbytes: int) -> Buffer:
        block = self._block(nbytes)
        buffer = Buffer(self.device, nbytes, block)
        with self._lock:
            self._taken[id(block)] = buffer
        return buffer

    def free(self, buffer: Buffer) -> None:
        block = buffer.handle
        if not isinstance(block, Block) or block.owner is not self:
            raise ValueError(f"{buffer!r} was not allocated here")
        with self._lock:
            if block.memory is None:
                raise ValueError(f"{block} was freed before")
            if self._taken.get(id(block)) is not buffer:
                raise ValueError(f"{buffer!r} was not allocated here")
            del self._taken[id(block)]
            block.release()
            self._in_use -= block.nbytes

    def tensor(self, dtype: np.dtype, shape: Sequence[int]) -> ClTensor:
        """A fresh tensor that owns its memory: for results whose shape no plan knew."""
        block = self._block(math.prod(shape) * dtype.itemsize)
        weakref.finalize(block, self._drop, block.nbytes).atexit = False
        return ClTensor(block, 0, dtype, shape)

    def stats(self) -> AllocatorStats:
        with self._lock:
            return AllocatorStats(self._in_use, self._peak, self._in_use, self._count, self.arena.limit)

    def close(self) -> list[Buffer]:
        """Free what is left, so that later uses are caught; returns it."""
        with self._lock:
            left = list(self._taken.values())
            for buffer in left:
                self.free(buffer)
        return left

    def _block(self, nbytes: int) -> Block:
        limit, largest = self.arena.limit, self.max_allocation
        assert largest is not None
        with self._lock:
            if nbytes > largest:
                raise MemoryError(f"{self.device}: {nbytes} bytes wanted, the largest block is {largest}")
            if limit is not None and self._in_use + nbytes > limit:
                less = "; arena_extend_strategy=kSameAsRequested keeps less in reserve"
                more = less if self.arena.strategy == "kNextPowerOfTwo" else ""
                raise MemoryError(
                    f"{self.device}: {nbytes} bytes wanted, {self._in_use} of device_mem_limit={limit} in use{more}"
                )
            try:
                block = Block(self._machine, self.device, nbytes, self)
            except cl.MemoryError as error:
                raise MemoryError(f"{self.device}: {nbytes} bytes wanted: {error}") from error
            self._in_use += nbytes
            self._peak = max(self._peak, self._in_use)
            self._count += 1
        return block

    def _drop(self, nbytes: int) -> None:
        with self._lock:
            self._in_use -= nbytes
