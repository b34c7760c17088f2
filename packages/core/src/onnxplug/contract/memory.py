"""Devices, buffers, allocators and copies: what a provider with memory of its own declares.

A provider hands out *raw* allocators; the core wraps each in an arena (``onnxplug.contract.arena``) and asks only for
large regions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import Any, Literal, NamedTuple

from onnxplug.contract.records import record

Strategy = Literal["kNextPowerOfTwo", "kSameAsRequested"]


class Device(NamedTuple):
    """One memory space: a kind ("cpu", "cuda", "opencl", ...), an index, and the memory kind on it ("default",
    "pinned", ...)."""

    kind: str
    id: int = 0
    memory: str = "default"

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}" + ("" if self.memory == "default" else f"/{self.memory}")


HOST = Device("cpu")


@record(slots=True, eq=False)
class Buffer:
    """``nbytes`` bytes at ``offset`` of a block the provider owns; ``handle`` is the provider's own object for the
    block."""

    device: Device
    nbytes: int
    handle: Any
    offset: int = 0


@record(slots=True)
class AllocatorStats:
    """Figures of an allocator or arena, in bytes unless the name says otherwise."""

    bytes_in_use: int = 0
    peak_bytes_in_use: int = 0
    bytes_reserved: int = 0
    allocations: int = 0
    limit: int | None = None
    extra: dict[str, int] = field(default_factory=dict)


@record(frozen=True, slots=True)
class ArenaConfig:
    """Limits and growth of an arena (bytes). ``limit`` None: as much as the device gives."""

    limit: int | None = None
    strategy: Strategy = "kNextPowerOfTwo"
    initial_chunk: int = 1 << 20
    initial_growth: int = 2 << 20
    max_dead_bytes: int = 128 << 20
    max_growth: int = 1 << 30


class Allocator(ABC):
    """Raw memory of one device and memory kind."""

    device: Device
    alignment: int = 64
    max_allocation: int | None = None
    """The largest single block the device gives (bytes); None: no such limit."""
    arena: ArenaConfig = ArenaConfig()
    """Limit and growth of the core's arena over this allocator, usually from the provider's options."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """A fresh block of at least ``nbytes`` (0 is legal), aligned to ``alignment``. Raises MemoryError when there is
        none."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Give a block back. A second free, or a buffer of another allocator, raises ValueError."""

    def over(self, address: int, nbytes: int) -> Buffer:
        """A buffer over memory of this device that the application has, by its address; nobody frees it here. On return the device has done
        what anybody asked of it before. ValueError for an address where tensors of this device cannot begin, NotImplementedError (the
        default) where memory has no addresses."""
        raise NotImplementedError(f"memory of {self.device} has no addresses")

    def stats(self) -> AllocatorStats:
        """Current figures; an allocator that keeps none returns zeros."""
        return AllocatorStats()


class DataTransfer(ABC):
    """Copies between memory spaces of one provider and the host, or between its devices."""

    @abstractmethod
    def can_copy(self, source: Device, destination: Device) -> bool:
        """Whether ``copy`` handles this direction."""

    @abstractmethod
    def copy(self, source: Any, destination: Any, stream: Any = None) -> None:
        """Copy the whole dense tensor ``source`` into ``destination`` (native arrays of equal dtype and shape).

        Without a stream the copy is complete on return; with one it is ordered on that stream and the core keeps
        ``source`` alive until the stream was synchronised.
        """
