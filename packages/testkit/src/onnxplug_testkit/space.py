"""One memory space of a provider, used directly: blocks, native arrays over them, and bytes in and out."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import Allocator, Buffer, DataTransfer
from onnxplug.plugins import ProviderInstance
from onnxplug_testkit.check import Unsupported
from onnxplug_testkit.subject import Subject

INDEX_OPTION = "device_id"
"""The option that says on which of its devices a provider works."""


class Space:
    """The default memory of an instance."""

    def __init__(self, instance: ProviderInstance) -> None:
        allocators = instance.call("create_allocators")
        if not allocators:
            raise Unsupported("allocator")
        self.instance = instance
        self.allocator: Allocator = allocators[0]
        self.transfer: DataTransfer | None = instance.call("get_data_transfer")

    def view(self, buffer: Buffer, dtype: np.dtype, shape: Sequence[int], offset: int = 0) -> Any:
        """A native array over a block."""
        return self.instance.provider.view(buffer, offset, dtype, tuple(shape))

    def write(self, array: np.ndarray, native: Any) -> None:
        """Host to native."""
        if self.transfer is None:
            np.copyto(native, array)
        else:
            self.transfer.copy(array, native)

    def read(self, native: Any) -> np.ndarray:
        """Native to a fresh host array."""
        if self.transfer is None:
            return np.array(native)
        return self.read_into(native, np.empty(tuple(native.shape), np.dtype(native.dtype)))

    def read_into(self, native: Any, array: np.ndarray) -> np.ndarray:
        """Native to a host array, which is returned."""
        if self.transfer is None:
            np.copyto(array, native)
        else:
            self.transfer.copy(native, array)
        return array

    def step(self, nbytes: int) -> int:
        """The least multiple of the allocator's alignment from so many bytes on: tensors may start at no other places of a block."""
        return -(-nbytes // self.allocator.alignment) * self.allocator.alignment

    @contextlib.contextmanager
    def block(self, nbytes: int) -> Iterator[Buffer]:
        """A block, given back at the end."""
        buffer = self.allocator.allocate(nbytes)
        try:
            yield buffer
        finally:
            self.allocator.free(buffer)


@contextlib.contextmanager
def space_of(subject: Subject, **options: str) -> Iterator[Space]:
    """The default memory of a fresh instance; Unsupported when the provider brings no allocator."""
    with subject.instance(**options) as instance:
        yield Space(instance)


@contextlib.contextmanager
def spaces_of(subject: Subject) -> Iterator[tuple[Space, Space]]:
    """The memories of two instances on two devices of the provider; Unsupported when it has one only."""
    listed = [info.id for info in subject.spec.devices()]
    known = {f.name for f in dataclasses.fields(subject.spec.options)}
    if len(listed) < 2 or INDEX_OPTION not in known:
        raise Unsupported("device_to_device", "there is one device")
    with (
        space_of(subject, **{INDEX_OPTION: str(listed[0])}) as one,
        space_of(subject, **{INDEX_OPTION: str(listed[1])}) as two,
    ):
        if one.allocator.device == two.allocator.device:
            raise Unsupported("device_to_device", "both devices have one memory")
        yield one, two


def place_of(subject: Subject) -> tuple[str, int]:
    """Kind and number of the device that has the subject's memory."""
    with subject.instance() as instance:
        allocators = instance.call("create_allocators")
        return (allocators[0].device.kind, allocators[0].device.id) if allocators else ("cpu", 0)
