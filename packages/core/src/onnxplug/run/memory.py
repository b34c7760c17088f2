"""Memory of a session: one ``DeviceMemory`` per memory space, and copies between any two of them."""

from __future__ import annotations

import functools
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from onnxplug.contract.arena import Arena
from onnxplug.contract.errors import EPFail, Fail, RuntimeException
from onnxplug.contract.memory import HOST, Allocator, ArenaConfig, Buffer, DataTransfer, Device
from onnxplug.contract.provider import view_host
from onnxplug.run.lender import Lender

P = ParamSpec("P")
R = TypeVar("R")


class HostAllocator(Allocator):
    """Aligned host memory, for sessions in which no provider brings an allocator for it."""

    device = HOST
    alignment = 64
    arena = ArenaConfig(strategy="kSameAsRequested")

    def allocate(self, nbytes: int) -> Buffer:
        block = np.empty(nbytes + self.alignment, np.uint8)
        start = -block.ctypes.data % self.alignment
        return Buffer(HOST, nbytes, block[start : start + nbytes])

    def free(self, buffer: Buffer) -> None:
        buffer.handle = None


class Block:
    """A buffer that goes back to its allocator when the last reference to it goes."""

    __slots__ = ("_allocator", "buffer")

    def __init__(self, allocator: Allocator, nbytes: int) -> None:
        self._allocator = allocator
        self.buffer = allocator.allocate(nbytes)

    def __del__(self) -> None:
        if hasattr(self, "buffer"):
            self._allocator.free(self.buffer)


class Slab(Block):
    """Memory in which the frames of several plans lie, one of which runs at a time. Thread-safe."""

    __slots__ = ("_turn",)

    def __init__(self, allocator: Allocator, nbytes: int) -> None:
        super().__init__(allocator, nbytes)
        self._turn: deque[None] = deque()

    def take(self) -> bool:
        """Take it for a run; False where somebody has it. A new one is taken by its maker."""
        try:
            self._turn.pop()
        except IndexError:
            return False
        return True

    def give(self) -> None:
        """Let somebody else take it."""
        self._turn.append(None)


class DeviceArray:
    """A dense tensor in some memory space: the provider's native array and what keeps its bytes alive."""

    __slots__ = ("_native", "block", "memory")

    def __init__(self, memory: DeviceMemory, native: Any, block: Block | None = None) -> None:
        self.memory, self._native, self.block = memory, native, block

    @property
    def native(self) -> Any:
        """The provider's array. RuntimeException when the session was closed whose memory this is."""
        if self.memory.closed:
            raise RuntimeException(
                f"This value was in memory of {self.device} that went with its session, which is closed."
            )
        return self._native

    @property
    def device(self) -> Device:
        return self.memory.device

    @property
    def dtype(self) -> np.dtype:
        dtype: np.dtype = np.dtype(self._native.dtype)
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._native.shape)

    def to_host(self) -> np.ndarray:
        """A fresh NumPy array with the same contents."""
        return self.memory.download(self.native)

    def write(self, array: np.ndarray) -> None:
        """Overwrite the contents with an array of the same dtype and shape."""
        self.memory.transfer_in(array, self.native)


class LentArray(DeviceArray):
    """One over memory that the application has."""

    __slots__ = ("_address",)

    def __init__(self, memory: DeviceMemory, address: int, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self._address = address
        buffer = memory.allocator.over(address, dtype.itemsize * math.prod(shape))
        super().__init__(memory, memory.view(buffer, 0, dtype, shape))

    def settle(self) -> None:
        """Wait until whoever writes it is done."""
        self.memory.allocator.over(self._address, self.dtype.itemsize * math.prod(self.shape))


def _of_provider(method: Callable[Concatenate[DeviceMemory, P], R]) -> Callable[Concatenate[DeviceMemory, P], R]:
    """Let an EPFail out of a memory's method say whose memory it is, so that run-time fallback knows whom to leave
    out."""

    @functools.wraps(method)
    def call(self: DeviceMemory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except EPFail as error:
            if self.provider is not None and not hasattr(error, "provider"):
                error.provider = self.provider
            raise

    return call


class DeviceMemory:
    """One memory space. ``view`` makes native arrays over buffers; ``transfer`` is None for the host; ``provider`` is
    the name of whose it is, where a session says so."""

    def __init__(self, allocator: Allocator, view: Any = view_host, transfer: DataTransfer | None = None) -> None:
        self.allocator, self.device, self.view, self.transfer = allocator, allocator.device, view, transfer
        self.provider: str | None = None
        self.closed = False

    @_of_provider
    def empty(self, dtype: np.dtype, shape: Sequence[int]) -> DeviceArray:
        """An uninitialised tensor."""
        block = Block(self.allocator, dtype.itemsize * int(np.prod(shape, dtype=np.int64)))
        return DeviceArray(self, self.view(block.buffer, 0, dtype, tuple(shape)), block)

    @_of_provider
    def over(self, address: int, dtype: np.dtype, shape: Sequence[int]) -> LentArray:
        """A tensor over memory that the application has. ValueError and NotImplementedError as of the allocator's ``over``."""
        return LentArray(self, address, dtype, tuple(shape))

    def upload(self, array: np.ndarray) -> DeviceArray:
        """A tensor here with the contents of a host array."""
        made = self.empty(array.dtype, array.shape)
        self.transfer_in(array, made.native)
        return made

    @_of_provider
    def transfer_in(self, array: np.ndarray, native: Any) -> None:
        """Host array into a native array of this space."""
        if self.transfer is None:
            np.copyto(self._reached(native), array)
        else:
            self.transfer.copy(_dense(array), native)

    def _reached(self, native: Any) -> np.ndarray:
        """A native array that NumPy can read and write without a transfer."""
        if not isinstance(native, np.ndarray):
            raise Fail(
                f"{self.provider}: nothing copies to and from {self.device}, whose tensors are {type(native).__name__}; "
                "get_data_transfer must give a DataTransfer"
            )
        return native

    @_of_provider
    def send(self, source: Any, destination: Any, stream: Any = None) -> None:
        """One native array into another, of which at least one is here."""
        assert self.transfer is not None
        self.transfer.copy(source, destination, stream)

    @_of_provider
    def download(self, native: Any) -> np.ndarray:
        """A fresh host array with the contents of a native array."""
        if self.transfer is None:
            return np.array(self._reached(native))
        array = np.empty(tuple(native.shape), np.dtype(native.dtype))
        self.transfer.copy(native, array)
        return array


class Memories:
    """All memory spaces of a session. ``lender``: where runs have the memory of large results from, None where each is taken from
    the system."""

    def __init__(self, spaces: Mapping[Device, DeviceMemory], lender: Lender | None = None) -> None:
        self._spaces, self.lender = dict(spaces), lender
        if HOST not in self._spaces:
            self._spaces[HOST] = DeviceMemory(Arena(HostAllocator()))

    def __getitem__(self, device: Device) -> DeviceMemory:
        return self._spaces[device]

    def __iter__(self) -> Any:
        return iter(self._spaces.values())

    def close(self) -> None:
        """Give every region back to the devices."""
        failed: Exception | None = None
        if self.lender is not None:
            self.lender.close()
        for space in self._spaces.values():
            space.closed = space.transfer is not None
            try:
                if isinstance(space.allocator, Arena):
                    space.allocator.close()
            except Exception as error:  # the other devices get theirs
                failed = failed or error
        if failed is not None:
            raise failed

    def find(self, kind: str, id_: int) -> DeviceMemory | None:
        """The default memory of a device by kind and index."""
        return self._spaces.get(Device(kind, id_))

    def copy(self, source: Any, at: Device, destination: Any, to: Device, stream: Any = None) -> None:
        """Contents of one native array into another of equal dtype and shape: the destination's provider is asked, then
        the source's, and where neither knows the way the copy goes through the host."""
        if at == to == HOST:
            np.copyto(destination, source)
            return
        source = _dense(source) if at == HOST else source
        for space in (self._spaces[to], self._spaces[at]):
            if space.transfer is not None and space.transfer.can_copy(at, to):
                space.send(source, destination, None if to == HOST else stream)
                return
        if HOST in (at, to):
            raise EPFail(f"No data transfer from {at} to {to}")
        self._spaces[to].transfer_in(self._spaces[at].download(source), destination)

    def move(self, source: Any, at: Device, to: Device, stream: Any = None) -> DeviceArray:
        """A fresh tensor in another space with the contents of a native array."""
        made = self._spaces[to].empty(np.dtype(source.dtype), source.shape)
        self.copy(source, at, made.native, to, stream)
        return made


def _dense(array: np.ndarray) -> np.ndarray:
    """The array row-major and without gaps, which is all that transfers take."""
    return array if array.flags.c_contiguous else array.copy(order="C")


_environment: dict[tuple[str, int], DeviceMemory] = {}
_environment_lock = threading.Lock()


def device_memory(kind: str, id_: int) -> DeviceMemory:
    """Memory of a device outside any session (OrtValue), from the first usable provider of that kind. LookupError when
    there is none."""
    from onnxplug.plugins.environment import provider_for_device

    with _environment_lock:
        found = _environment.get((kind, id_))
        if found is None:
            instance = provider_for_device(kind, id_)
            raw = next((a for a in instance.allocators if a.device == Device(kind, id_)), None)
            if raw is None:
                raise LookupError(f"{instance.name} has no memory on {kind}:{id_}")
            view, transfer = instance.provider.view, instance.call("get_data_transfer")
            found = _environment[kind, id_] = DeviceMemory(Arena(raw), view, transfer)
    return found
