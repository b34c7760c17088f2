"""L1: mutants that give out, count or take back memory wrongly."""

from __future__ import annotations

import dataclasses
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
