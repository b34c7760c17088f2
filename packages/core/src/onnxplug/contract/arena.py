"""A best-fit arena over a raw allocator: regions taken from the device are cut into chunks and coalesced when freed.

Sizes, defaults and growth rules are those of onnxruntime's arena, so that option values mean the same: requests are
rounded up to 256 bytes; ``kNextPowerOfTwo`` doubles each new region up to 1 GiB, ``kSameAsRequested`` takes what was
asked for.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from onnxplug.contract.errors import RuntimeException
from onnxplug.contract.memory import Allocator, AllocatorStats, ArenaConfig, Buffer

_ROUND = 256
_MIN_RETRY = 8 << 10


class _Chunk:
    __slots__ = ("free", "next", "offset", "previous", "region", "size")

    def __init__(self, region: Buffer, offset: int, size: int) -> None:
        self.region, self.offset, self.size = region, offset, size
        self.free = True
        self.previous: _Chunk | None = None
        self.next: _Chunk | None = None


class Arena(Allocator):
    """An arena over ``raw``. Thread-safe. ``allocate`` raises RuntimeException with onnxruntime's wording at the
    limit."""

    def __init__(self, raw: Allocator, config: ArenaConfig | None = None) -> None:
        self.raw, self.config, self.device = raw, config or raw.arena, raw.device
        self.alignment, self.max_allocation = raw.alignment, raw.max_allocation
        self._unit = max(_ROUND, raw.alignment)
        self._lock = threading.RLock()
        self._busy = False
        self._late: list[Buffer] = []
        self._regions: list[tuple[Buffer, _Chunk]] = []
        self._free: list[tuple[int, int, _Chunk]] = []  # (size, id, chunk), kept sorted: best fit is one bisection
        self._taken: dict[int, tuple[Buffer, _Chunk]] = {}
        self._growth = self.config.initial_chunk
        self._closed = False
        self._reserved = self._in_use = self._peak = self._count = 0

    def allocate(self, nbytes: int) -> Buffer:
        size = max(self._unit, -(-nbytes // self._unit) * self._unit)
        with self._alone():
            if self._closed:
                raise RuntimeException(f"Arena of {self.device} is closed (the session that owned it is gone)")
            chunk = self._best_fit(size) or self._extend(size)
            self._split(chunk, size)
            chunk.free = False
            buffer = Buffer(self.device, nbytes, chunk.region.handle, chunk.region.offset + chunk.offset)
            self._taken[id(buffer)] = (buffer, chunk)
            self._count += 1
            self._in_use += chunk.size
            self._peak = max(self._peak, self._in_use)
        return buffer

    def over(self, address: int, nbytes: int) -> Buffer:
        return self.raw.over(address, nbytes)

    def free(self, buffer: Buffer) -> None:
        with self._lock:
            if self._busy:  # the collector dropped its owner in the middle of another call of this thread
                self._late.append(buffer)
                return
            with self._alone():
                self._give_back(buffer)

    def shrink(self) -> int:
        """Give wholly free regions back to the device (the first one stays under kNextPowerOfTwo); returns the bytes
        given back."""
        given = 0
        with self._alone():
            keep = 1 if self.config.strategy == "kNextPowerOfTwo" else 0
            for region, first in self._regions[keep:]:
                if first.free and first.next is None:
                    self._remove(first)
                    self._regions.remove((region, first))
                    self.raw.free(region)
                    given += region.nbytes
            self._reserved -= given
            self._growth = self.config.initial_growth
        return given

    def close(self) -> None:
        """Give every region back, whether in use or not. The arena gives nothing afterwards; what is freed late is
        ignored."""
        with self._alone():
            self._closed = True
            for region, _ in self._regions:
                self.raw.free(region)
            self._regions.clear()
            self._free.clear()
            self._taken.clear()
            self._reserved = self._in_use = 0

    def stats(self) -> AllocatorStats:
        with self._alone():
            extra = {"regions": len(self._regions), "live_allocations": len(self._taken)}
            return AllocatorStats(self._in_use, self._peak, self._reserved, self._count, self.config.limit, extra)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other thread, and nothing that is freed meanwhile, changes the books until the end."""
        with self._lock:
            self._busy = True
            try:
                yield
            finally:
                while self._late:
                    self._give_back(self._late.pop())
                self._busy = False

    def _give_back(self, buffer: Buffer) -> None:
        if self._closed:
            return
        _, chunk = self._taken.pop(id(buffer), (None, None))
        if chunk is None:
            raise ValueError(f"{buffer!r} is not allocated from this arena of {self.device} (freed twice?)")
        self._in_use -= chunk.size
        chunk.free = True
        if chunk.next is not None and chunk.next.free:
            self._remove(chunk.next)
            _merge(chunk, chunk.next)
        if chunk.previous is not None and chunk.previous.free:
            self._remove(chunk.previous)
            chunk = _merge(chunk.previous, chunk)
        self._insert(chunk)

    def _best_fit(self, size: int) -> _Chunk | None:
        at = bisect.bisect_left(self._free, (size, -1))
        if at == len(self._free):
            return None
        return self._free.pop(at)[2]

    def _extend(self, size: int) -> _Chunk:
        limit = self.config.limit
        available = None if limit is None else limit - self._reserved
        if available is not None and size > available:
            raise RuntimeException(
                f"Arena of {self.device}: Available memory of {available} is smaller than requested bytes of {size}"
                f" (limit {limit}, reserved {self._reserved}, in use {self._in_use})"
            )
        region = self._take_region(size, self._region_size(size, available))
        if self.config.strategy == "kNextPowerOfTwo":
            self._growth = min(max(self._growth, region.nbytes) * 2, self.config.max_growth)
        chunk = _Chunk(region, 0, region.nbytes)
        self._regions.append((region, chunk))
        self._reserved += region.nbytes
        return chunk

    def _region_size(self, size: int, available: int | None) -> int:
        first = not self._regions
        wanted = max(size, self.config.initial_chunk) if first else size
        if self.config.strategy == "kNextPowerOfTwo":
            while self._growth < size and self._growth < self.config.max_growth:
                self._growth *= 2
            wanted = max(size, self._growth)
        for ceiling in (available, self.max_allocation):
            if ceiling is not None:
                wanted = max(size, min(wanted, ceiling))
        return wanted

    def _take_region(self, least: int, wanted: int) -> Buffer:
        while True:
            try:
                return self.raw.allocate(wanted)
            except MemoryError as error:
                smaller = int(wanted * 0.9) // self._unit * self._unit
                if wanted == least:
                    raise RuntimeException(
                        f"Failed to allocate memory for requested buffer of size {least} on {self.device}: {error}"
                    ) from error
                wanted = max(least, smaller if smaller >= _MIN_RETRY else least)

    def _split(self, chunk: _Chunk, size: int) -> None:
        spare = chunk.size - size
        if spare < self._unit or (chunk.size < 2 * size and spare < self.config.max_dead_bytes):
            return
        rest = _Chunk(chunk.region, chunk.offset + size, spare)
        rest.previous, rest.next, chunk.next, chunk.size = chunk, chunk.next, rest, size
        if rest.next is not None:
            rest.next.previous = rest
        self._insert(rest)

    def _insert(self, chunk: _Chunk) -> None:
        bisect.insort(self._free, (chunk.size, id(chunk), chunk))

    def _remove(self, chunk: _Chunk) -> None:
        del self._free[bisect.bisect_left(self._free, (chunk.size, id(chunk)))]


def _merge(left: _Chunk, right: _Chunk) -> _Chunk:
    left.size += right.size
    left.next = right.next
    if right.next is not None:
        right.next.previous = left
    return left
