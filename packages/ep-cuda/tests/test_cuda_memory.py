"""The books of device memory, over blocks that are numbers or the host's: limits, strategies, the application's allocator."""

from __future__ import annotations

import ctypes
import itertools
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxplug.contract import Arena, ArenaConfig, Device, RuntimeException
from onnxplug_ep_cuda.memory import ALIGNMENT, CUDAAllocator, ExternalSource, Scratch, lent, view

DEVICE = Device("cuda")


class Addresses:
    """Addresses of blocks that nobody reads, of a device of ``total`` bytes."""

    def __init__(self, total: int = 1 << 40) -> None:
        self.total, self.next, self.live = total, 1 << 20, dict[int, int]()

    def malloc(self, nbytes: int) -> int:
        if sum(self.live.values()) + nbytes > self.total:
            raise MemoryError(f"GPU 0 has {self.total - sum(self.live.values())} of {self.total} bytes free")
        address, self.next = self.next, self.next + -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.live[address] = nbytes
        return address

    def free(self, address: int) -> None:
        del self.live[address]

    def empty_cache(self) -> None:
        pass


def allocator(
    limit: int | None = None, strategy: str = "kNextPowerOfTwo", source: Addresses | None = None
) -> CUDAAllocator:
    return CUDAAllocator(DEVICE, source or Addresses(), ArenaConfig(limit, strategy))  # type: ignore[arg-type]


def test_the_limit_holds_to_the_byte() -> None:
    raw = allocator(1000)
    block = raw.allocate(1000)
    with pytest.raises(
        MemoryError, match=r"1 bytes wanted on cuda:0, 1000 in use .* 1 blocks; option gpu_mem_limit is 1000"
    ):
        raw.allocate(1)
    raw.free(block)
    assert raw.stats().bytes_in_use == 0 and raw.stats().peak_bytes_in_use == 1000


def test_a_second_free_and_a_foreign_buffer_are_refused() -> None:
    raw, other = allocator(), allocator()
    block = raw.allocate(64)
    with pytest.raises(ValueError, match="not allocated"):
        other.free(block)
    raw.free(block)
    with pytest.raises(ValueError, match="freed twice"):
        raw.free(block)


@pytest.mark.parametrize(
    ("strategy", "reserved"), [("kNextPowerOfTwo", [4, 8, 16]), ("kSameAsRequested", [3, 3, 3, 3])]
)
def test_strategies_take_regions_as_onnxruntime_does(strategy: str, reserved: list[int]) -> None:
    source = Addresses()
    arena = Arena(allocator(None, strategy, source))
    held = [arena.allocate(3 << 20) for _ in range(4)]
    assert len({buffer.handle + buffer.offset for buffer in held}) == 4
    assert [nbytes >> 20 for nbytes in source.live.values()] == reserved


def test_the_two_arenas_of_a_session_share_its_limit() -> None:
    raw = allocator(8 << 20, "kSameAsRequested")
    planned, temporary = Arena(raw), Arena(raw)
    held = planned.allocate(6 << 20)
    with pytest.raises(RuntimeException, match=r"Failed to allocate memory .*6291456 in use.*gpu_mem_limit is 8388608"):
        temporary.allocate(3 << 20)
    temporary.allocate(2 << 20)
    planned.free(held)


def test_a_full_device_is_reported_with_its_figures() -> None:
    arena = Arena(allocator(None, source=Addresses(4 << 20)))
    with pytest.raises(
        RuntimeException, match=r"size 8388608 on cuda:0: .*0 in use.*GPU 0 has 4194304 of 4194304 bytes free"
    ):
        arena.allocate(8 << 20)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a machine under load
@given(
    st.lists(st.integers(0, 1 << 22), min_size=1, max_size=40), st.sampled_from(["kNextPowerOfTwo", "kSameAsRequested"])
)
def test_buffers_never_overlap_and_all_comes_back(sizes: list[int], strategy: str) -> None:
    source = Addresses()
    arena = Arena(allocator(None, strategy, source))
    held = [arena.allocate(size) for size in sizes]
    spans = sorted((buffer.handle + buffer.offset, buffer.nbytes) for buffer in held)
    assert all(start % ALIGNMENT == 0 for start, _ in spans)
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(spans))
    for buffer in held:
        arena.free(buffer)
    arena.close()
    assert source.live == {}


def test_the_applications_allocator_is_called_by_address() -> None:
    calls: list[str] = []
    blocks: dict[int, ctypes.Array[ctypes.c_char]] = {}

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    def alloc(nbytes: int) -> int | None:
        calls.append(f"alloc {nbytes}")
        if nbytes > 4096:
            return None
        block = ctypes.create_string_buffer(nbytes)
        blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def free(address: int) -> None:
        calls.append("free")
        del blocks[address]

    @ctypes.CFUNCTYPE(None)
    def empty() -> None:
        calls.append("empty")

    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in (alloc, free, empty)]
    waits = SimpleNamespace(
        on_device=nullcontext, wait=lambda: calls.append("wait"), settle=lambda: calls.append("settle")
    )
    source = ExternalSource(*(address or 0 for address in addresses), waits)
    raw = CUDAAllocator(DEVICE, source, ArenaConfig())
    block = raw.allocate(1024)
    ctypes.memset(block.handle, 1, 1024)
    with pytest.raises(MemoryError, match="gpu_external_alloc returned no memory"):
        raw.allocate(8192)
    raw.free(block)
    raw.close()
    assert calls == ["alloc 1024", "settle", "alloc 8192", "wait", "free", "empty"] and not blocks


def test_the_applications_memory_is_taken_where_tensors_may_begin() -> None:
    waited: list[str] = []
    raw = CUDAAllocator(DEVICE, Addresses(), ArenaConfig(), lambda: waited.append("settle"))
    lent.discard(DEVICE.id)
    buffer = Arena(raw).over(4096, 64)
    assert (buffer.device, buffer.handle, buffer.offset, buffer.nbytes) == (DEVICE, 4096, 0, 64)
    assert waited == ["settle"] and DEVICE.id in lent and raw.stats().bytes_in_use == 0
    with pytest.raises(ValueError, match="multiple of 16 bytes"):
        raw.over(4100, 64)


def test_views_and_temporaries_are_cupy_arrays_over_the_arena() -> None:
    pytest.importorskip("cupy", reason="capability: CuPy's array objects (cupy is not installed)")
    raw = allocator()
    arena = Arena(raw)
    buffer = arena.allocate(4096)
    array = view(buffer, 256, np.dtype(np.float32), (3, 4))
    assert (array.data.ptr, array.shape, array.flags.c_contiguous) == (
        buffer.handle + buffer.offset + 256,
        (3, 4),
        True,
    )
    assert view(buffer, 0, np.dtype(np.int64), ()).shape == ()

    scratch = Scratch(raw)
    first = scratch(1000)
    assert scratch.stats().bytes_in_use == 1024
    left = scratch.apart()
    recorded = scratch(1 << 20)
    used = scratch.back(left)
    assert used.stats().bytes_in_use == 1 << 20 and scratch.stats().bytes_in_use == 1024
    del first, recorded
    assert used.stats().bytes_in_use == scratch.stats().bytes_in_use == 0


def test_temporaries_over_the_limit_are_a_memory_error() -> None:
    with pytest.raises(MemoryError, match=r"Available memory of 65536 is smaller than requested bytes of 1048576"):
        Scratch(allocator(1 << 16))(1 << 20)
