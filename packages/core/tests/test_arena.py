"""The arena and the slab's offsets: what is handed out never overlaps, limits hold to the byte, everything goes back."""

from __future__ import annotations

import gc
import itertools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from onnxplug.contract import Allocator, Arena, ArenaConfig, Buffer, Device, RuntimeException
from onnxplug.run.memory import Block

UNIT = 256
KIB = 1 << 10
MIB = 1 << 20
STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")


class Raw(Allocator):
    """A device of ``capacity`` bytes that only keeps the books: a buffer's handle is the number of its block."""

    device = Device("acme")

    def __init__(self, capacity: int | None = None, alignment: int = 64, largest: int | None = None) -> None:
        self.alignment, self.max_allocation, self.capacity = alignment, largest, capacity
        self.live: dict[int, Buffer] = {}
        self.count = 0

    @property
    def taken(self) -> int:
        return sum(b.nbytes for b in self.live.values())

    def allocate(self, nbytes: int) -> Buffer:
        if self.capacity is not None and self.taken + nbytes > self.capacity:
            raise MemoryError(f"{nbytes} bytes wanted, {self.capacity - self.taken} left")
        if self.max_allocation is not None and nbytes > self.max_allocation:
            raise MemoryError(f"{nbytes} bytes in one block")
        self.count += 1
        buffer = self.live[self.count] = Buffer(self.device, nbytes, self.count)
        return buffer

    def free(self, buffer: Buffer) -> None:
        if self.live.pop(buffer.handle, None) is not buffer:
            raise ValueError("not mine")


def overlaps(buffers: list[Buffer]) -> list[tuple[Buffer, Buffer]]:
    ordered = sorted(buffers, key=lambda b: (b.handle, b.offset))
    return [(a, b) for a, b in itertools.pairwise(ordered) if a.handle == b.handle and a.offset + a.nbytes > b.offset]


SIZES = st.one_of(st.integers(0, 2 * KIB), st.integers(0, 3 * MIB), st.sampled_from([UNIT, UNIT + 1, MIB, 2 * MIB]))


class ArenaMachine(RuleBasedStateMachine):
    """Any order of allocations, frees and shrinks."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Buffer] = []
        self.peak = self.allocations = 0

    @initialize(
        strategy=st.sampled_from(STRATEGIES),
        limit=st.one_of(st.none(), st.integers(1, 16 * MIB)),
        alignment=st.sampled_from([1, 64, 256, 4096]),
        dead=st.sampled_from([0, 128 << 20]),
        capacity=st.one_of(st.none(), st.integers(MIB, 16 * MIB)),
    )
    def make(self, strategy: Any, limit: int | None, alignment: int, dead: int, capacity: int | None) -> None:
        self.raw = Raw(capacity, alignment)
        self.limit = limit
        self.arena = Arena(self.raw, ArenaConfig(limit, strategy, max_dead_bytes=dead))

    @rule(nbytes=SIZES)
    def allocate(self, nbytes: int) -> None:
        before = self.arena.stats()
        try:
            buffer = self.arena.allocate(nbytes)
        except RuntimeException:
            assert self.limit is not None or self.raw.capacity is not None, "refused without a limit"
            after = self.arena.stats()
            assert (after.bytes_in_use, after.bytes_reserved) == (before.bytes_in_use, before.bytes_reserved)
            return
        assert buffer.nbytes == nbytes and buffer.device == self.raw.device
        assert buffer.offset % self.raw.alignment == 0
        self.held.append(buffer)
        self.allocations += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: Any) -> None:
        buffer = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.arena.free(buffer)
        with pytest.raises(ValueError, match="freed twice"):
            self.arena.free(buffer)

    @rule()
    def shrink(self) -> None:
        before = self.arena.stats().bytes_reserved
        given_back = self.arena.shrink()
        assert self.arena.stats().bytes_reserved == before - given_back
        if not self.held:
            assert len(self.raw.live) <= (self.arena.config.strategy == "kNextPowerOfTwo")

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "arena"):
            return
        stats = self.arena.stats()
        assert not overlaps(self.held)
        for buffer in self.held:
            assert buffer.offset + buffer.nbytes <= self.raw.live[buffer.handle].nbytes
        assert stats.bytes_reserved == self.raw.taken and (self.limit is None or stats.bytes_reserved <= self.limit)
        assert sum(b.nbytes for b in self.held) <= stats.bytes_in_use <= stats.bytes_reserved
        assert stats.bytes_in_use <= stats.peak_bytes_in_use and stats.peak_bytes_in_use >= self.peak
        self.peak = stats.peak_bytes_in_use
        assert (stats.allocations, stats.limit) == (self.allocations, self.limit)
        assert stats.extra == {"regions": len(self.raw.live), "live_allocations": len(self.held)}
        if not self.held:
            assert stats.bytes_in_use == 0

    def teardown(self) -> None:
        if not hasattr(self, "arena"):
            return
        for buffer in self.held:
            self.arena.free(buffer)
        biggest = max((b.nbytes for b in self.raw.live.values()), default=0)
        if biggest >= UNIT:  # all is free, so it was coalesced: the largest region is one piece again
            count = self.raw.count
            self.arena.free(self.arena.allocate(biggest // self.arena._unit * self.arena._unit))
            assert self.raw.count == count
        self.arena.close()
        assert not self.raw.live


ArenaMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_any_order_of_calls = ArenaMachine.TestCase


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("limit", [UNIT, 10 * UNIT, MIB, 3 * MIB + UNIT])
def test_the_limit_is_exact(strategy: Any, limit: int) -> None:
    raw = Raw()
    arena = Arena(raw, ArenaConfig(limit, strategy))
    buffer = arena.allocate(limit)
    with pytest.raises(RuntimeException, match=f"Available memory of 0 is smaller than requested bytes of {UNIT}"):
        arena.allocate(1)
    arena.free(buffer)
    arena.close()
    with pytest.raises(RuntimeException, match=f"Available memory of {limit} is smaller"):
        Arena(raw, ArenaConfig(limit, strategy)).allocate(limit + 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_small_pieces_fill_the_limit(strategy: Any) -> None:
    arena = Arena(Raw(), ArenaConfig(16 * UNIT, strategy))
    pieces = [arena.allocate(UNIT) for _ in range(16)]
    assert not overlaps(pieces) and arena.stats().bytes_in_use == 16 * UNIT
    with pytest.raises(RuntimeException):
        arena.allocate(0)


def test_next_power_of_two_grows_and_same_as_requested_does_not() -> None:
    growing, exact = Raw(), Raw()
    doubling = Arena(growing, ArenaConfig())
    asking = Arena(exact, ArenaConfig(strategy="kSameAsRequested"))
    for arena in (doubling, asking):
        for _ in range(4):
            arena.allocate(MIB)
    assert [b.nbytes // MIB for b in growing.live.values()] == [1, 2, 4]
    assert [b.nbytes // MIB for b in exact.live.values()] == [1, 1, 1, 1]
    huge = Raw()
    Arena(huge, ArenaConfig(max_growth=4 * MIB)).allocate(9 * MIB)
    assert [b.nbytes // MIB for b in huge.live.values()] == [9]


def test_the_best_fit_is_taken() -> None:
    arena = Arena(Raw(), ArenaConfig(initial_chunk=64 * KIB))
    sizes = [3, 1, 5, 1, 2, 1, 4, 1]
    blocks = [arena.allocate(size * UNIT) for size in sizes]
    for index in (0, 2, 4, 6):
        arena.free(blocks[index])
    for wanted, index in ((2, 4), (3, 0), (4, 6), (5, 2)):
        assert arena.allocate(wanted * UNIT).offset == blocks[index].offset


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)])
def test_neighbours_coalesce(order: tuple[int, ...]) -> None:
    raw = Raw()
    arena = Arena(raw, ArenaConfig(initial_chunk=3 * KIB, strategy="kSameAsRequested"))
    blocks = [arena.allocate(KIB) for _ in range(3)]
    for index in order:
        arena.free(blocks[index])
    whole = arena.allocate(3 * KIB)
    assert (whole.offset, raw.count) == (0, 1)


def test_a_large_free_chunk_is_cut_rather_than_wasted() -> None:
    raw = Raw()
    arena = Arena(raw, ArenaConfig(strategy="kSameAsRequested", max_dead_bytes=0))
    arena.free(arena.allocate(MIB))
    first, second = arena.allocate(MIB // 2 + UNIT), arena.allocate(MIB // 2 - UNIT)
    assert raw.count == 1 and not overlaps([first, second])


def test_the_largest_block_of_a_device_bounds_growth() -> None:
    raw = Raw(largest=2 * MIB)
    arena = Arena(raw)
    for _ in range(12):
        arena.allocate(MIB)
    assert max(b.nbytes for b in raw.live.values()) == 2 * MIB
    with pytest.raises(RuntimeException, match="Failed to allocate memory"):
        arena.allocate(3 * MIB)


@pytest.mark.parametrize("left", [UNIT, 2 * KIB, 100 * KIB])
def test_a_nearly_full_device_gives_what_it_still_has(left: int) -> None:
    arena = Arena(Raw(capacity=left))
    buffer = arena.allocate(UNIT)
    assert arena.stats().bytes_reserved <= left
    arena.free(buffer)
    with pytest.raises(RuntimeException, match=r"Failed to allocate memory for requested buffer .* left"):
        arena.allocate(left + UNIT)


@pytest.mark.parametrize(("strategy", "kept"), [("kNextPowerOfTwo", 1), ("kSameAsRequested", 0)])
def test_shrinking_gives_back_what_nobody_uses(strategy: Any, kept: int) -> None:
    raw = Raw()
    arena = Arena(raw, ArenaConfig(strategy=strategy))
    first, second, third = (arena.allocate(4 * MIB) for _ in range(3))
    arena.free(first)
    arena.free(third)
    arena.shrink()
    assert second.handle in raw.live and len(raw.live) == 1 + kept
    arena.free(second)
    arena.shrink()
    assert len(raw.live) == kept and arena.stats().bytes_reserved == raw.taken
    arena.allocate(4 * MIB)


def test_a_foreign_buffer_is_refused() -> None:
    one, other = Arena(Raw()), Arena(Raw())
    buffer = one.allocate(8)
    for wrong in (Buffer(buffer.device, 8, buffer.handle, buffer.offset), Buffer(buffer.device, 8, None)):
        with pytest.raises(ValueError, match="not allocated"):
            one.free(wrong)
    with pytest.raises(ValueError):
        other.free(buffer)
    one.free(buffer)


def test_a_closed_arena_gives_nothing_and_forgives_late_frees() -> None:
    raw = Raw()
    arena = Arena(raw)
    buffer = arena.allocate(8)
    arena.close()
    assert not raw.live and arena.stats().bytes_reserved == 0
    arena.free(buffer)
    arena.close()
    with pytest.raises(RuntimeException, match="closed"):
        arena.allocate(8)


def test_many_threads() -> None:
    arena = Arena(Raw(), ArenaConfig(initial_chunk=4 * KIB))
    seen: list[Buffer] = []
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        mine: list[Buffer] = []
        try:
            for _ in range(300):
                if mine and random.random() < 0.5:
                    arena.free(mine.pop(int(random.integers(len(mine)))))
                else:
                    mine.append(arena.allocate(int(random.integers(0, 4 * KIB))))
            seen.extend(mine)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and not overlaps(seen) and arena.stats().extra["live_allocations"] == len(seen)


def test_the_collector_may_drop_blocks_in_the_middle_of_an_allocation() -> None:
    """Garbage that holds memory is freed wherever Python happens to collect, the arena's own code included."""

    class Collecting(Raw):
        def allocate(self, nbytes: int) -> Buffer:
            gc.collect()
            return super().allocate(nbytes)

    class Knot:
        def __init__(self) -> None:
            self.me, self.block = self, Block(arena, KIB)

    arena = Arena(Collecting(), ArenaConfig(initial_chunk=4 * KIB, strategy="kSameAsRequested"))
    done: list[Buffer] = []

    def work() -> None:
        gc.disable()
        try:
            for _ in range(20):
                Knot()
                done.append(arena.allocate(8 * KIB))
        finally:
            gc.enable()

    gc.freeze()  # each collection then looks at what this test makes alone
    try:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(60)
    finally:
        gc.unfreeze()
    assert not thread.is_alive(), "the arena waits for itself"
    gc.collect()
    assert len(done) == 20 and not overlaps(done) and arena.stats().extra["live_allocations"] == 20


@given(st.lists(st.integers(0, 20 * KIB), min_size=1, max_size=40), st.sampled_from(STRATEGIES))
@settings(max_examples=60, deadline=None)
def test_what_was_freed_serves_the_same_again(sizes: list[int], strategy: Any) -> None:
    raw = Raw()
    arena = Arena(raw, ArenaConfig(strategy=strategy))
    for buffer in [arena.allocate(size) for size in sizes]:
        arena.free(buffer)
    count = raw.count
    for _ in range(2):
        again = [arena.allocate(size) for size in sizes]
        assert not overlaps(again)
        for buffer in again:
            arena.free(buffer)
    assert strategy == "kSameAsRequested" or raw.count == count
