"""L1: mutants that take an application's memory by its address, wrongly; the unchanged one of them does it right."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract import AllocatorStats, Buffer, SessionContext
from onnxplug_ep_reference import memory
from onnxplug_ep_reference.memory import Block, SimAllocator, SimTensor
from onnxplug_ep_reference.options import ReferenceOptions
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import subject
from onnxplug_testkit.subject import Subject


class _Addressed(SimTensor):
    """Tells where it is."""

    __slots__ = ()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        start = _start(self._block) + self._offset
        return {"data": (start, False), "shape": self.shape, "typestr": self.dtype.str, "version": 3}


class Lending(SimAllocator):
    """Finds the block at an address."""

    least = 4
    """Tensors begin at multiples of it."""

    def over(self, address: int, nbytes: int) -> Buffer:
        if address % self.least:
            raise ValueError(f"no tensor begins at {address:#x}")
        return self.shown(*self._found(address), nbytes)

    def shown(self, block: Block, offset: int, nbytes: int) -> Buffer:
        """Bytes of a block that was taken."""
        return Buffer(self.device, nbytes, block, offset)

    def _found(self, address: int) -> tuple[Block, int]:
        for buffer in self._taken.values():
            offset = address - _start(buffer.handle)
            if 0 <= offset < buffer.handle.nbytes:
                return buffer.handle, offset
        raise ValueError(f"nothing is at {address:#x}")


class LendingProvider(ReferenceProvider):
    """The reference with tensors that tell their addresses."""

    lends: type[Lending] = Lending

    def __init__(self, options: ReferenceOptions, context: SessionContext) -> None:
        super().__init__(options, context)
        assert self.allocator is not None
        self.allocator = self.lends(self.allocator.device, self.allocator.arena)

    def view(self, buffer: Buffer, offset: int, dtype: np.dtype, shape: Sequence[int]) -> Any:
        made = memory.view(buffer, offset, dtype, shape)
        return _Addressed(made._block, made._offset, made.dtype, made.shape)


def _start(block: Block) -> int:
    return 0 if block.data is None else int(block.data.ctypes.data)


def _lent_by(allocator: type[Lending]) -> Subject:
    class Changed(LendingProvider):
        lends = allocator

    return subject(Changed)


class _Beginning(Lending):
    def shown(self, block: Block, offset: int, nbytes: int) -> Buffer:
        return super().shown(block, 0, nbytes)


@mutant("memory.lent_blocks")
def lends_from_the_start() -> Subject:
    """Takes the beginning of the block in which the application's memory lies."""
    return _lent_by(_Beginning)


class _Copying(Lending):
    def shown(self, block: Block, offset: int, nbytes: int) -> Buffer:
        made = Block(self.device, nbytes)
        assert made.data is not None and block.data is not None
        made.data[:] = block.data[offset : offset + nbytes]
        return Buffer(self.device, nbytes, made)


@mutant("memory.lent_blocks")
def copies_what_is_lent() -> Subject:
    """Takes a copy of the application's memory, so that nothing is written there."""
    return _lent_by(_Copying)


class _Counting(Lending):
    _lent = 0

    def shown(self, block: Block, offset: int, nbytes: int) -> Buffer:
        self._lent += nbytes
        return super().shown(block, offset, nbytes)

    def stats(self) -> AllocatorStats:
        figures = super().stats()
        return dataclasses.replace(figures, bytes_in_use=figures.bytes_in_use + self._lent)


@mutant("memory.lent_blocks")
def counts_what_is_lent() -> Subject:
    """Counts the application's memory as taken, for good."""
    return _lent_by(_Counting)


class _Freeing(Lending):
    def free(self, buffer: Buffer) -> None:
        taken = self._taken.get(buffer.handle.number)
        if taken is buffer or taken is None:
            super().free(buffer)


@mutant("memory.lent_blocks")
def takes_back_what_is_lent() -> Subject:
    """Lets itself be given the application's memory as if it had been its own."""
    return _lent_by(_Freeing)


class _Rounding(Lending):
    least = 1

    def shown(self, block: Block, offset: int, nbytes: int) -> Buffer:
        return super().shown(block, offset & ~3, nbytes)


@mutant("memory.lent_blocks")
def rounds_addresses_down() -> Subject:
    """Begins tensors at the multiple of four bytes before their address."""
    return _lent_by(_Rounding)
