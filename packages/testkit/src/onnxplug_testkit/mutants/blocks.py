"""L1: mutants that give out, count or take back memory wrongly."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract import Allocator, AllocatorStats, ArenaConfig, Buffer, KernelDef, NodeView, SessionContext
from onnxplug_ep_reference.memory import SimAllocator
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import subject, with_kernels
from onnxplug_testkit.subject import Subject


def _on(allocator: type[SimAllocator]) -> Subject:
    class Changed(ReferenceProvider):
        def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
            super().__init__(options, context)
            assert self.allocator is not None
            self.allocator = allocator(self.allocator.device, self.allocator.arena)

    return subject(Changed)


class _Misaligned(SimAllocator):
    def allocate(self, nbytes: int) -> Buffer:
        buffer = super().allocate(nbytes + 4)
        buffer.nbytes, buffer.offset = nbytes, 4
        return buffer


@mutant("memory.alignment")
def misaligned() -> Subject:
    """Blocks start four bytes late."""
    return _on(_Misaligned)


class _Short(SimAllocator):
    def allocate(self, nbytes: int) -> Buffer:
        return super().allocate(nbytes & ~63)


@mutant("memory.sizes")
def rounds_down() -> Subject:
    """Blocks are rounded down to the alignment."""
    return _on(_Short)


class _Empty(SimAllocator):
    def allocate(self, nbytes: int) -> Buffer:
        if nbytes == 0:
            raise MemoryError("cannot allocate nothing")
        return super().allocate(nbytes)


@mutant("memory.zero_size")
def refuses_nothing() -> Subject:
    """Refuses blocks of no bytes."""
    return _on(_Empty)


class _Overlapping(SimAllocator):
    _last: Buffer | None = None

    def allocate(self, nbytes: int) -> Buffer:
        buffer = super().allocate(nbytes)
        if self._last is not None and self._last.nbytes == nbytes and self._last.handle.data is not None:
            buffer.handle.data = self._last.handle.data
        self._last = buffer
        return buffer


@mutant("memory.blocks_are_apart")
def overlapping() -> Subject:
    """Two blocks of one size share their bytes."""
    return _on(_Overlapping)


class _Unlimited(SimAllocator):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.arena = ArenaConfig()


@mutant("memory.limit_is_kept")
def ignores_the_limit() -> Subject:
    """Takes the option that bounds its memory and forgets it."""
    return _on(_Unlimited)


class _Stingy(SimAllocator):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if self.arena.limit is not None:
            self.arena = dataclasses.replace(self.arena, limit=self.arena.limit - 1)


@mutant("memory.limit_is_reached")
def limit_off_by_one() -> Subject:
    """Gives one byte less than its limit."""
    return _on(_Stingy)


class _Boastful(SimAllocator):
    max_allocation = 1 << 20


@mutant("memory.largest_block")
def larger_than_largest() -> Subject:
    """Gives blocks beyond the largest it states."""
    return _on(_Boastful)


class _Forgiving(SimAllocator):
    def free(self, buffer: Buffer) -> None:
        if buffer.handle.data is not None:
            super().free(buffer)


@mutant("memory.double_free")
def forgiving_free() -> Subject:
    """Accepts a second free."""
    return _on(_Forgiving)


class _Hospitable(SimAllocator):
    def free(self, buffer: Buffer) -> None:
        if self._taken.get(buffer.handle.number) is buffer or buffer.handle.data is None:
            super().free(buffer)


@mutant("memory.foreign_free")
def hospitable_free() -> Subject:
    """Accepts a block of another allocator."""
    return _on(_Hospitable)


class _Miscounting(SimAllocator):
    def stats(self) -> AllocatorStats:
        return dataclasses.replace(super().stats(), bytes_in_use=self._peak)


@mutant("memory.statistics")
def counts_up_only() -> Subject:
    """Its bytes in use never go down."""
    return _on(_Miscounting)


class _Boundless(SimAllocator):
    def stats(self) -> AllocatorStats:
        return dataclasses.replace(super().stats(), limit=None)


@mutant("memory.statistics")
def tells_of_no_limit() -> Subject:
    """Keeps its limit and does not tell it."""
    return _on(_Boundless)


class _Aligning(SimAllocator):
    def allocate(self, nbytes: int) -> Buffer:
        if nbytes <= 1 << 16:
            return super().allocate(nbytes)
        buffer = super().allocate(nbytes + 16)
        buffer.nbytes, buffer.offset = nbytes, 16
        return buffer


@mutant("memory.alignment")
def aligns_small_blocks_only() -> Subject:
    """Has a header of 16 bytes before blocks beyond 64 KB."""
    return _on(_Aligning)


class _Spending(SimAllocator):
    _spent = 0

    def allocate(self, nbytes: int) -> Buffer:
        if self.arena.limit is not None and self._spent + nbytes > self.arena.limit:
            raise MemoryError("the limit is reached")
        self._spent += nbytes
        return super().allocate(nbytes)


@mutant("memory.limit_is_reached")
def forgives_no_block() -> Subject:
    """Counts against its limit what was given back."""
    return _on(_Spending)


class _Generous(SimAllocator):
    """Keeps its limit by itself."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._limit, self.arena, self._held = self.arena.limit, ArenaConfig(), 0

    def allocate(self, nbytes: int) -> Buffer:
        if self._limit is not None and self._held + nbytes > self._limit:
            raise MemoryError("the limit is reached")
        self._held += nbytes
        return super().allocate(nbytes)

    def free(self, buffer: Buffer) -> None:
        super().free(buffer)
        self._held -= 2 * buffer.nbytes


@mutant("memory.limit_is_kept")
def gives_back_twice() -> Subject:
    """Takes each block that is given back off its count twice, so that its limit grows."""
    return _on(_Generous)


class _Rounding(SimAllocator):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if self.arena.limit is not None:
            self.arena = dataclasses.replace(self.arena, limit=-(-self.arena.limit >> 20) << 20)


@mutant("memory.limit_is_kept")
def counts_in_megabytes() -> Subject:
    """Rounds its limit up to whole megabytes."""
    return _on(_Rounding)


class _Losing(SimAllocator):
    _lost = 0

    def allocate(self, nbytes: int) -> Buffer:
        self._lost += nbytes
        buffer = super().allocate(nbytes)
        self._lost -= nbytes
        return buffer

    def stats(self) -> AllocatorStats:
        figures = super().stats()
        return dataclasses.replace(figures, bytes_in_use=figures.bytes_in_use + self._lost)


@mutant("memory.largest_block")
def counts_what_it_refuses() -> Subject:
    """Counts a block before it is there, and goes on counting one that cannot be had."""
    return _on(_Losing)


class _Forgetful(SimAllocator):
    _freed: Buffer | None = None

    def free(self, buffer: Buffer) -> None:
        if buffer.handle.data is not None or buffer is self._freed:
            super().free(buffer)
        self._freed = buffer


@mutant("memory.double_free")
def remembers_the_last_free() -> Subject:
    """Knows the block again that was freed last, and no earlier one."""
    return _on(_Forgetful)


class _Alone(SimAllocator):
    _largest = 0

    def allocate(self, nbytes: int) -> Buffer:
        self._largest = max(self._largest, nbytes)
        return super().allocate(nbytes)

    def stats(self) -> AllocatorStats:
        return dataclasses.replace(super().stats(), peak_bytes_in_use=self._largest)


@mutant("memory.statistics")
def takes_the_largest_for_the_peak() -> Subject:
    """Tells the size of the largest block as its peak."""
    return _on(_Alone)


class _Living(SimAllocator):
    def stats(self) -> AllocatorStats:
        return dataclasses.replace(super().stats(), allocations=len(self._taken))


@mutant("memory.statistics")
def counts_the_living() -> Subject:
    """Tells how many blocks there are as how many were taken."""
    return _on(_Living)


class _Hurried(SimAllocator):
    _held = 0

    def allocate(self, nbytes: int) -> Buffer:
        self._count_by(nbytes)
        return super().allocate(nbytes)

    def free(self, buffer: Buffer) -> None:
        super().free(buffer)
        self._count_by(-buffer.nbytes)

    def stats(self) -> AllocatorStats:
        return dataclasses.replace(super().stats(), bytes_in_use=self._held)

    def _count_by(self, nbytes: int) -> None:
        held = self._held
        time.sleep(0)
        self._held = held + nbytes


@mutant("memory.blocks_of_threads")
def counts_without_a_lock() -> Subject:
    """Reads its count, and writes it when another thread has written it."""
    return _on(_Hurried)


class _Leaky(ReferenceProvider):
    def on_run_start(self, options: Any) -> None:
        assert self.allocator is not None
        self._kept = [*getattr(self, "_kept", []), self.allocator.allocate(1 << 16)]

    def close(self) -> None:
        assert self.allocator is not None
        self.allocator.close()


@mutant("memory.leaks_over_runs")
def leaks_a_buffer_per_run() -> Subject:
    """Takes a block in every run and gives none back."""
    return subject(_Leaky)


class _Prepared(ReferenceProvider):
    def create_allocators(self) -> Sequence[Allocator]:
        made = super().create_allocators()
        self._ready = [(allocator, allocator.allocate(1 << 16)) for allocator in made]
        return made

    def on_run_start(self, options: Any) -> None:
        while self._ready:
            allocator, block = self._ready.pop()
            allocator.free(block)

    def close(self) -> None:
        """What it keeps its first run gives back."""


@mutant("memory.leaks_over_sessions")
def prepares_for_a_run() -> Subject:
    """Takes a block for its first run and keeps it where there is none."""
    return subject(_Prepared)


_sessions: list[Any] = []


class _Hoarding(ReferenceProvider):
    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        _sessions.append(np.zeros(1 << 15))


@mutant("memory.leaks_over_sessions")
def hoards_sessions() -> Subject:
    """Keeps something of every session in a module's list."""
    return subject(_Hoarding)


@mutant("memory.results_are_the_callers")
def recycles_results() -> Subject:
    """A kernel returns the same array in every run."""

    def create(definition: KernelDef, node: NodeView) -> Any:
        kernel: Any = definition.create(node)
        held: dict[tuple[int, ...], np.ndarray] = {}

        def call(*inputs: np.ndarray) -> np.ndarray:
            result = kernel(*inputs)
            kept = held.setdefault(result.shape, result)
            np.copyto(kept, result)
            return kept

        return call

    return with_kernels(("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Exp"), create)
