"""A memory space that only pretends to be elsewhere: its tensors are opaque to NumPy, and every misuse of it is an error.

Fresh bytes are 0xFF (NaN in every float type), freed ones 0xDD. Buffers from ``allocate`` must be freed by whoever took them; tensors from
``tensor`` own their bytes and go with the last reference. Both count against the limit.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from onnxplug.contract import Allocator, AllocatorStats, ArenaConfig, Buffer, Device, EPFail

FRESH, FREED = 0xFF, 0xDD
ALIGNMENT = 64

_numbers = itertools.count(1)
_live: dict[int, Buffer] = {}


def live_buffers() -> list[Buffer]:
    """The buffers of all simulated memories that were allocated and not freed."""
    return list(_live.values())


class Block:
    """Bytes of a simulated device; ``data`` is None once they were freed."""

    __slots__ = ("__weakref__", "data", "device", "nbytes", "number")

    def __init__(self, device: Device, nbytes: int) -> None:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        self.data: np.ndarray | None = raw[start : start + nbytes]
        self.data.fill(FRESH)
        self.device, self.nbytes, self.number = device, nbytes, next(_numbers)

    def __repr__(self) -> str:
        return f"block {self.number} of {self.device} ({self.nbytes} bytes{', freed' if self.data is None else ''})"


class SimTensor:
    """A dense row-major tensor in simulated memory. Only the provider's data transfer and kernels read its bytes."""

    __slots__ = ("_block", "_offset", "dtype", "shape")
    __array_ufunc__ = None

    def __init__(self, block: Block, offset: int, dtype: np.dtype, shape: Sequence[int]) -> None:
        if dtype.hasobject:
            raise TypeError(f"{block.device} holds numbers only, not {dtype}")
        self._block, self._offset, self.dtype, self.shape = block, offset, dtype, tuple(shape)

    @property
    def device(self) -> Device:
        return self._block.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"SimTensor({self.dtype}, {self.shape}, {self._block}, offset {self._offset})"

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self!r} is not in host memory: copy it to the host first")

    __array__ = __bool__ = __float__ = __index__ = __int__ = __iter__ = __len__ = __getitem__ = __reduce__ = _refuse


def contents(tensor: SimTensor, *, writable: bool = False) -> np.ndarray:
    """The tensor's bytes as an array. EPFail when its memory was freed."""
    block, start = tensor._block, tensor._offset
    if block.data is None:
        raise EPFail(f"{tensor!r} was used after its memory was freed")
    array = block.data[start : start + tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)
    array.flags.writeable = writable
    return array


def view(buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> SimTensor:
    """The tensor at ``offset`` of ``buffer``. ValueError when it does not fit, EPFail when the memory was freed."""
    tensor = SimTensor(buffer.handle, buffer.offset + offset, dtype, shape)
    if offset < 0 or offset + tensor.nbytes > buffer.nbytes or buffer.offset + buffer.nbytes > buffer.handle.nbytes:
        raise ValueError(
            f"{tensor.nbytes} bytes at {offset} do not fit into a buffer of {buffer.nbytes} bytes: {tensor!r}"
        )
    contents(tensor)
    return tensor


class SimAllocator(Allocator):
    """The memory of one simulated device for one session, up to the limit of ``arena``. Thread-safe."""

    alignment = ALIGNMENT

    def __init__(self, device: Device, arena: ArenaConfig | None = None) -> None:
        self.device, self.arena = device, arena or ArenaConfig()
        self._lock = threading.RLock()  # re-entered when the collector drops a tensor inside a locked section
        self._taken: dict[int, Buffer] = {}
        self._in_use = self._peak = self._count = self._tensors = 0

    def allocate(self, nbytes: int) -> Buffer:
        block = self._block(nbytes)
        buffer = Buffer(self.device, nbytes, block)
        with self._lock:
            self._taken[block.number] = _live[block.number] = buffer
        return buffer

    def free(self, buffer: Buffer) -> None:
        block = buffer.handle
        if not isinstance(block, Block):
            raise ValueError(f"{buffer!r} is not of {self.device}")
        with self._lock:
            if block.data is None:
                raise ValueError(f"{block} was freed before")
            if self._taken.get(block.number) is not buffer:
                raise ValueError(f"{buffer!r} was not allocated here")
            del self._taken[block.number], _live[block.number]
            block.data.fill(FREED)
            block.data = None
            self._in_use -= block.nbytes

    def tensor(self, dtype: np.dtype, shape: Sequence[int]) -> SimTensor:
        """A fresh tensor that owns its memory and gives it back with its last reference."""
        block = self._block(math.prod(shape) * dtype.itemsize)
        with self._lock:
            self._tensors += 1
        weakref.finalize(block, self._drop, block.nbytes).atexit = False
        return SimTensor(block, 0, dtype, shape)

    def stats(self) -> AllocatorStats:
        """Figures; ``extra`` counts live buffers and live self-owned tensors apart."""
        with self._lock:
            extra = {"live_buffers": len(self._taken), "live_tensors": self._tensors}
            return AllocatorStats(self._in_use, self._peak, self._in_use, self._count, self.arena.limit, extra)

    def close(self) -> list[Buffer]:
        """Free what is left, so that later uses are caught; returns it."""
        with self._lock:
            leaked = list(self._taken.values())
            for buffer in leaked:
                self.free(buffer)
        return leaked

    def _block(self, nbytes: int) -> Block:
        limit = self.arena.limit
        with self._lock:
            if limit is not None and self._in_use + nbytes > limit:
                raise MemoryError(f"{self.device}: {nbytes} bytes wanted, {self._in_use} of {limit} in use")
            block = Block(self.device, nbytes)
            self._in_use += nbytes
            self._peak = max(self._peak, self._in_use)
            self._count += 1
        return block

    def _drop(self, nbytes: int) -> None:
        with self._lock:
            self._in_use -= nbytes
            self._tensors -= 1
