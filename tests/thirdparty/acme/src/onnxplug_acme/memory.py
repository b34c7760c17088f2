"""The device's memory: blocks that only the transfer and the kernels look into, and a log of what was copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract import HOST, Allocator, Buffer, DataTransfer, Device

DEVICE = Device("acme")
copied: list[tuple[str, str, int]] = []
"""(from, to, bytes) of every copy in this process."""
live: set[int] = set()
"""Blocks that were allocated and not freed."""


class AcmeTensor:
    """A dense tensor on the device; not an array to NumPy."""

    __slots__ = ("_block", "_offset", "dtype", "shape")
    __array__ = None
    __array_ufunc__ = None

    def __init__(self, block: bytearray, offset: int, dtype: np.dtype, shape: Sequence[int]) -> None:
        self._block, self._offset, self.dtype, self.shape = block, offset, dtype, tuple(shape)

    def numbers(self) -> np.ndarray:
        """Its elements, for code that runs on the device."""
        return np.frombuffer(self._block, self.dtype, math.prod(self.shape), self._offset).reshape(self.shape)


def tensor(dtype: np.dtype, shape: Sequence[int]) -> AcmeTensor:
    """A fresh tensor that owns its memory."""
    return AcmeTensor(bytearray(dtype.itemsize * math.prod(shape)), 0, dtype, shape)


class AcmeAllocator(Allocator):
    """Blocks of the device."""

    device = DEVICE

    def allocate(self, nbytes: int) -> Buffer:
        block = bytearray(nbytes)
        live.add(id(block))
        return Buffer(DEVICE, nbytes, block)

    def free(self, buffer: Buffer) -> None:
        if id(buffer.handle) not in live:
            raise ValueError(f"{buffer!r} is not allocated here")
        live.remove(id(buffer.handle))


class AcmeTransfer(DataTransfer):
    """Between the device and the host."""

    def can_copy(self, source: Device, destination: Device) -> bool:
        return {source, destination} in ({DEVICE, HOST}, {DEVICE})

    def copy(self, source: Any, destination: Any, stream: Any = None) -> None:
        copied.append((_side(source), _side(destination), _numbers(source).nbytes))
        np.copyto(_numbers(destination), _numbers(source))


def _side(tensor: Any) -> str:
    return str(DEVICE if isinstance(tensor, AcmeTensor) else HOST)


def _numbers(tensor: Any) -> np.ndarray:
    return tensor.numbers() if isinstance(tensor, AcmeTensor) else tensor
