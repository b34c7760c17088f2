"""L1: mutants whose data transfer is wrong."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug.contract import DataTransfer, Device, EPFail
from onnxplug_ep_reference.memory import SimTensor, contents
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import with_transfer
from onnxplug_testkit.subject import Subject

Copy = Callable[[DataTransfer, Any, Any], None]


class _Changed(DataTransfer):
    def __init__(
        self, inner: DataTransfer, copy: Copy, can_copy: Callable[[Device, Device], bool] | None = None
    ) -> None:
        self._inner, self._copy, self._can_copy = inner, copy, can_copy or inner.can_copy

    def can_copy(self, source: Device, destination: Device) -> bool:
        return self._can_copy(source, destination)

    def copy(self, source: Any, destination: Any, stream: Any = None) -> None:
        self._copy(self._inner, source, destination)


def with_copy(copy: Copy) -> Subject:
    """The reference with another way to copy."""
    return with_transfer(lambda inner: _Changed(inner, copy))


@mutant("memory.round_trip")
def quiets_nans() -> Subject:
    """Copies floats as numbers, so that NaN payloads are lost."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        if isinstance(source, np.ndarray) and source.dtype == np.float32:
            source = np.where(np.isnan(source), np.float32(np.nan), source)
        inner.copy(source, destination)

    return with_copy(copy)


@mutant("memory.copies_are_complete")
def copies_later() -> Subject:
    """Starts a copy in another thread and does not wait for it."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        def later() -> None:
            time.sleep(0.02)
            inner.copy(source, destination)

        threading.Thread(target=later, daemon=True).start()

    return with_copy(copy)


@mutant("memory.guard_bands")
def overruns_by_one() -> Subject:
    """Writes one byte behind what it was to write."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        inner.copy(source, destination)
        if isinstance(destination, SimTensor):
            block, end = destination._block, destination._offset + destination.nbytes
            if block.data is not None and end < block.nbytes:
                block.data[end] ^= 0xFF

    return with_copy(copy)


@mutant("memory.within_the_device")
def copies_from_the_start() -> Subject:
    """Copies within the device from the beginning of the block, wherever the tensor lies in it."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        if isinstance(source, SimTensor) and isinstance(destination, SimTensor):
            source = SimTensor(source._block, 0, source.dtype, source.shape)
        inner.copy(source, destination)

    return with_copy(copy)


@mutant("memory.within_the_device")
def copies_nothing_inside() -> Subject:
    """Says that it copies within the device, and does nothing."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        if not (isinstance(source, SimTensor) and isinstance(destination, SimTensor)):
            inner.copy(source, destination)

    return with_copy(copy)


@mutant("memory.sizes")
def counts_in_sixteen_bits() -> Subject:
    """Copies as many bytes as the lowest sixteen bits of a tensor's size say."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        kept, nbytes = _bytes(destination), source.nbytes & 0xFFFF
        before = kept.copy()
        inner.copy(source, destination)
        if source.nbytes >> 16:
            kept[nbytes:] = before[nbytes:]

    return with_copy(copy)


@mutant("memory.round_trip")
def copies_no_scalars() -> Subject:
    """Takes a tensor without dimensions for one without elements."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        if source.shape:
            inner.copy(source, destination)

    return with_copy(copy)


@mutant("memory.copies_are_complete")
def copies_at_the_next_copy() -> Subject:
    """Keeps what it is to copy from the host, and copies it when it is called again."""
    kept: list[tuple[Any, Any]] = []

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        while kept:
            with contextlib.suppress(EPFail):  # freed in the meantime
                inner.copy(*kept.pop(0))
        if isinstance(source, np.ndarray):
            kept.append((source, destination))
        else:
            inner.copy(source, destination)

    return with_copy(copy)


@mutant("memory.guard_bands")
def wants_even_addresses() -> Subject:
    """Copies to the host at the next lower multiple of two."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        base = destination.base if isinstance(destination, np.ndarray) else None
        if isinstance(base, np.ndarray) and destination.ctypes.data % 2:
            start = destination.ctypes.data - base.ctypes.data - 1
            there = _bytes(base)[start : start + source.nbytes]
            destination = there.view(source.dtype).reshape(source.shape)
        inner.copy(source, destination)

    return with_copy(copy)


@mutant("memory.within_the_device")
def overruns_inside() -> Subject:
    """Copies whole words of 16 bytes within the device, where the blocks have them."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        inner.copy(source, destination)
        if isinstance(source, SimTensor) and isinstance(destination, SimTensor):
            sides = [(side._block.data, side._offset) for side in (source, destination)]
            nbytes = min(-(-source.nbytes // 16) * 16, *(len(data) - at for data, at in sides if data is not None))
            (read, start), (written, at) = sides
            if read is not None and written is not None:
                written[at : at + nbytes] = read[start : start + nbytes]

    return with_copy(copy)


@mutant("memory.within_the_device")
def copies_between_blocks_only() -> Subject:
    """Takes a copy whose ends are in one block for none."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        one, two = (getattr(side, "_block", None) for side in (source, destination))
        if one is None or one is not two:
            inner.copy(source, destination)

    return with_copy(copy)


@mutant("memory.round_trip")
def has_eight_dimensions() -> Subject:
    """Passes sizes in eight numbers, and copies nothing of what has more."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        if len(source.shape) <= 8:
            inner.copy(source, destination)

    return with_copy(copy)


@mutant("memory.between_devices")
def swaps_devices() -> Subject:
    """Copies from the destination to the source where they are on two of its devices."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        there = isinstance(source, SimTensor) and isinstance(destination, SimTensor)
        inner.copy(*((destination, source) if there and source.device != destination.device else (source, destination)))

    return with_copy(copy)


@mutant("memory.copies_of_threads")
def knows_one_thread() -> Subject:
    """Copies nothing on other threads than the one it came to."""
    home = threading.get_ident()

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        if threading.get_ident() == home:
            inner.copy(source, destination)

    return with_copy(copy)


def _bytes(side: Any) -> np.ndarray:
    """The bytes of a dense tensor, which may be written."""
    array: np.ndarray = contents(side, writable=True) if isinstance(side, SimTensor) else side
    return array.reshape(-1).view(np.uint8)


@mutant("graph.shared_sessions")
def blind_to_neighbours() -> Subject:
    """Takes tensors of another simulated device for its own and copies nothing."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        devices = {side.device.id for side in (source, destination) if isinstance(side, SimTensor)}
        if devices != {0, 1}:
            inner.copy(source, destination)

    return with_copy(copy)
