"""The host allocator, alone and under the core's arena."""

from __future__ import annotations

import numpy as np
import pytest

from onnxplug.contract import HOST, Arena, view_host
from onnxplug_ep_cpu.memory import HostAllocator


@pytest.mark.parametrize("nbytes", (0, 1, 63, 64, 65, 10_000, 1 << 22))
def test_blocks_are_aligned_and_disjoint(nbytes: int) -> None:
    allocator = HostAllocator()
    buffers = [allocator.allocate(nbytes) for _ in range(5)]
    for number, buffer in enumerate(buffers):
        assert (buffer.device, buffer.nbytes, buffer.offset) == (HOST, nbytes, 0)
        assert buffer.handle.nbytes == nbytes
        assert nbytes == 0 or buffer.handle.ctypes.data % 64 == 0
        buffer.handle.fill(number)
    assert all((b.handle == n).all() for n, b in enumerate(buffers))


def test_statistics_and_release() -> None:
    allocator = HostAllocator()
    first, second = allocator.allocate(100), allocator.allocate(50)
    allocator.free(first)
    stats = allocator.stats()
    assert (stats.bytes_in_use, stats.peak_bytes_in_use, stats.allocations) == (50, 150, 2)
    allocator.free(second)
    assert allocator.stats().bytes_in_use == 0


def test_a_second_free_and_a_stranger_are_errors() -> None:
    allocator, other = HostAllocator(), HostAllocator()
    buffer = allocator.allocate(10)
    with pytest.raises(ValueError, match="not allocated"):
        other.free(buffer)
    allocator.free(buffer)
    with pytest.raises(ValueError, match="freed twice"):
        allocator.free(buffer)


def test_too_much_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        HostAllocator().allocate(1 << 60)


def test_under_the_arena() -> None:
    raw = HostAllocator()
    arena = Arena(raw)
    buffer = arena.allocate(4 * 1000)
    array = view_host(buffer, 0, np.dtype(np.float32), (10, 100))
    array[...] = 1.0
    assert array.sum() == 1000 and array.ctypes.data % 64 == 0
    arena.free(buffer)
    arena.close()
    assert raw.stats().extra["live_allocations"] == 0
