"""L1: mutants whose data transfer is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug.contract import DataTransfer, Device
from onnxplug_ep_reference.memory import SimTensor
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


@mutant("graph.shared_sessions")
def blind_to_neighbours() -> Subject:
    """Takes tensors of another simulated device for its own and copies nothing."""

    def copy(inner: DataTransfer, source: Any, destination: Any) -> None:
        devices = {side.device.id for side in (source, destination) if isinstance(side, SimTensor)}
        if devices != {0, 1}:
            inner.copy(source, destination)

    return with_copy(copy)
